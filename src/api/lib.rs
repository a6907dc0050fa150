//! The wire contract of ringfence: the generated messages and services, and the only conversion between them and the
//! types of the core.
//!
//! | module | what it is |
//! |---|---|
//! | [`v1`] | generated from `proto/ringfence/v1`; nothing outside this crate takes its messages apart by hand twice |
//! | [`convert`] | core types to and from the public messages; a field that is wrong is named |
//! | [`state`] | log entries and snapshots as bytes, for coordinator nodes |
//! | [`Failure`] | a failed call in a form that programs can act on |
//!
//! It does no I/O and decides nothing. Its rule: what comes from the wire or the disk is checked in full before it becomes a
//! value of the core, and no bytes make it panic.

pub mod convert;
pub mod error;
pub mod state;
mod text;

pub use error::{ErrorKind, Failure};
pub use v1::FILE_DESCRIPTOR_SET;

use std::ops::RangeInclusive;
use std::time::Duration;

/// The protocol version that a client states when it joins or attaches.
pub const PROTOCOL: u32 = 1;

/// The largest message that either side sends or takes, in bytes. What can be larger is streamed in pieces.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The size, in bytes, that one piece of a streamed picture aims at: large enough that the framing does not count, and
/// far below [`MAX_MESSAGE_BYTES`], so that one last row too many does no harm.
pub const PIECE_BYTES: usize = 256 << 10;

/// How long a drill may be given.
pub const DRILL_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 60);

/// The generated messages and services of package `ringfence.v1`; their documentation is in `proto/`.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("ringfence.v1");

    /// The contract as a file descriptor set, for server reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("ringfence_descriptor");
}
