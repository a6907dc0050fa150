//! The server's half.

/// Answers the peers of one node.
#[derive(Clone)]
pub struct RaftService {}
