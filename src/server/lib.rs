//! See the crate's description; the modules follow.

pub mod raft;
