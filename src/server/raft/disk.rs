//! What a node keeps: a log and snapshots, in memory or in a directory.

use super::error::StartError;
use super::log::{LogBackend, MemoryLog};
use super::snapshot::{MemorySnapshots, SnapshotStore};
use crate::files::Files;
use ringfence_core::ids::{ClusterId, NodeId};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

/// The two stores of a node.
pub struct Disk {
    pub(super) log: Box<dyn LogBackend>,
    pub(super) snapshots: Box<dyn SnapshotStore>,
    /// The number that tells this store from any other, also from the one this node had before it was wiped.
    pub(super) store: u64,
}

impl Disk {
    /// Stores of one's own making, such as a simulator's. `store` is the number that tells this store from any other:
    /// the same whenever it is opened again, another one after it was wiped.
    pub fn new(log: impl LogBackend, snapshots: impl SnapshotStore, store: NonZeroU64) -> Disk {
        Disk { log: Box::new(log), snapshots: Box::new(snapshots), store: store.get() }
    }

    /// Memory only: a node that forgets everything when it stops. For trying things out, never for a cluster.
    pub fn memory() -> Disk {
        let store = NonZeroU64::new(fastrand::u64(1..=u64::MAX >> 1)).unwrap_or(NonZeroU64::MIN);
        Disk::new(MemoryLog::new(), MemorySnapshots::new(), store)
    }

    /// A data directory, made if there is none. It is locked until the node has stopped.
    ///
    /// # Errors
    /// [`StartError::Locked`], [`StartError::NotOurs`], [`StartError::Corrupt`] and [`StartError::Io`], each with the
    /// file named.
    pub fn open(
        files: &Arc<dyn Files>,
        dir: &Path,
        cluster: &ClusterId,
        node: NodeId,
    ) -> Result<Disk, StartError> {
        super::dir::open(files, dir, cluster, node)
    }
}
