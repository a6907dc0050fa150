//! For the fuzzer of this repository, and no part of the library: it may change at any time.

pub use crate::formation::fuzzing::formation_message;
pub use crate::raft::fuzzing::{log, peer_message, record, snapshot_files, snapshot_stream, stores};
