//! See the crate's description; the modules follow.

/// The generated messages and services of package `ringfence.v1`; their documentation is in `proto/`.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("ringfence.v1");

    /// The contract as a file descriptor set, for server reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("ringfence_descriptor");
}
