//! The log: entries, vote and commit point of this node.
//!
//! `LogStore` answers every read from memory, where the whole uncompacted log is, and hands writes to
//! a [`LogBackend`] in order. A backend that touches a disk is driven by one thread, which makes everything that waits
//! durable by one commit. Rules: an answer follows durability; after the first failed commit no write is ever answered
//! with success again.

mod cache;
mod memory;
mod redb;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use memory::MemoryLog;
pub(super) use redb::RedbLog;
pub(super) use store::LogStore;

use bytes::Bytes;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Where the log is kept. It stores records; what they mean is not its business.
pub trait LogBackend: Send + 'static {
    /// Everything that is kept. Called once, before any commit.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    fn load(&mut self) -> io::Result<Stored>;

    /// Makes all of `ops` durable, in order and as one step, before it returns.
    ///
    /// # Errors
    /// When durability is in doubt. It is not called again after that.
    fn commit(&mut self, ops: &[LogOp]) -> io::Result<()>;

    /// Where it is, for an operator who reads an error.
    fn place(&self) -> PathBuf {
        PathBuf::from("the log in memory")
    }

    /// True when [`commit`](LogBackend::commit) may block, so that a thread of its own must run it. A simulator's
    /// backend says no, since threads are not deterministic.
    fn blocks(&self) -> bool {
        true
    }

    /// How long the next commit takes, for a backend that does not block and yet is no faster than a disk: a simulator's.
    /// `None`: no time at all.
    fn takes(&self) -> Option<Duration> {
        None
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// Entries by index, in order, behind all that are there.
    Append(Vec<(u64, Bytes)>),
    /// Forget this index and all above.
    TruncateFrom(u64),
    /// Forget this index and all below; the record names the entry.
    PurgeTo(u64, Bytes),
    /// Replace the vote.
    Vote(Bytes),
    /// Replace the commit point. It may be lost: it only shortens the next start.
    Committed(Bytes),
}

/// What a backend holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The entries that were not purged, by index, without a gap.
    pub entries: Vec<(u64, Bytes)>,
    /// The vote.
    pub vote: Option<Bytes>,
    /// The last entry purged.
    pub purged: Option<Bytes>,
    /// The commit point.
    pub committed: Option<Bytes>,
}
