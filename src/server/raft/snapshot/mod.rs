//! Snapshots: the state at one position, which replaces the log up to there.

mod file;
mod memory;

pub(super) use file::FileSnapshots;
pub use memory::MemorySnapshots;

use super::machine::Position;
use bytes::Bytes;
use std::io;
use std::path::PathBuf;

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry in it.
    pub at: Position,
    /// Who was a member at that entry, encoded.
    pub membership: Bytes,
    /// The machine's state.
    pub data: Bytes,
}

/// Where snapshots are kept.
pub trait SnapshotStore: Send + Sync + 'static {
    /// The newest one.
    ///
    /// # Errors
    /// When it cannot be read or is damaged. An older one is never given in its place.
    fn newest(&self) -> io::Result<Option<Snapshot>>;

    /// Makes this one the newest, durably, before it returns.
    ///
    /// # Errors
    /// When durability is in doubt; the earlier newest one is then still there.
    fn save(&self, snapshot: &Snapshot) -> io::Result<()>;

    /// Where it is, for an operator who reads an error.
    fn place(&self) -> PathBuf {
        PathBuf::from("the snapshots in memory")
    }

    /// True when its calls may block.
    fn blocks(&self) -> bool {
        true
    }
}
