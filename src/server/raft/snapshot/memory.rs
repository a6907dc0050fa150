//! Snapshots in memory, for `dev` and for simulations.

use super::{Snapshot, SnapshotStore};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The newest snapshot, in memory. A clone is the same store.
#[derive(Clone, Debug, Default)]
pub struct MemorySnapshots(Arc<Mutex<Option<Snapshot>>>);

impl MemorySnapshots {
    /// Without a snapshot.
    pub fn new() -> MemorySnapshots {
        MemorySnapshots::default()
    }
}

impl SnapshotStore for MemorySnapshots {
    fn newest(&self) -> io::Result<Option<Snapshot>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&self, snapshot: &Snapshot) -> io::Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}
