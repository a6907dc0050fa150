//! Every bound of this module, and its reason.

/// The largest entry. A snapshot, not an entry, carries large state; an entry must fit a message with room to spare.
pub const ENTRY_BYTES: usize = 1 << 20;

/// The largest message between nodes: tonic's own default, stated so that both sides agree on it.
pub const MESSAGE_BYTES: usize = 4 << 20;

/// Where a request for entries stops: one more entry of the largest size still fits into a message.
pub const APPEND_BYTES: usize = MESSAGE_BYTES - ENTRY_BYTES - (64 << 10);

/// How many entries one append carries at most.
pub const APPEND_ENTRIES: usize = 1024;

/// One message of a snapshot's stream. Small, so that heartbeats on the same connection are not kept waiting.
pub const SNAPSHOT_CHUNK_BYTES: usize = 512 << 10;

/// The largest snapshot taken from a peer. It is held in memory while it arrives.
pub const SNAPSHOT_BYTES: u64 = 1 << 30;

/// Appends of one peer that were sent and not answered yet.
pub const APPENDS_IN_FLIGHT: usize = 32;

/// Writes waiting for the log's thread. A commit takes all that wait, so this bounds one commit too.
pub const LOG_QUEUE: usize = 4096;

/// Requests and events waiting for the Raft core.
pub const CORE_QUEUE: usize = 8192;

/// The longest address of a member.
pub const ADDRESS_BYTES: usize = 255;

/// The most members, voters and learners together.
pub const MEMBERS: usize = 16;
