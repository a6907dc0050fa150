//! What a node keeps: a log and snapshots, in memory or in a directory.

use super::error::StartError;
use super::log::{LogBackend, MemoryLog};
use super::snapshot::{MemorySnapshots, SnapshotStore};
use ringfence_core::ids::{ClusterId, NodeId};
use std::path::Path;

/// The two stores of a node.
pub struct Disk {
    pub(super) log: Box<dyn LogBackend>,
    pub(super) snapshots: Box<dyn SnapshotStore>,
}

impl Disk {
    /// Stores of one's own making, such as a simulator's.
    pub fn new(log: impl LogBackend, snapshots: impl SnapshotStore) -> Disk {
        Disk { log: Box::new(log), snapshots: Box::new(snapshots) }
    }

    /// Memory only: a node that forgets everything when it stops. For trying things out, never for a cluster.
    pub fn memory() -> Disk {
        Disk::new(MemoryLog::new(), MemorySnapshots::new())
    }

    /// A data directory, made if there is none. It is locked until the node has stopped.
    ///
    /// # Errors
    /// [`StartError::Locked`], [`StartError::NotOurs`], [`StartError::Corrupt`] and [`StartError::Io`], each with the
    /// file named.
    pub fn open(dir: &Path, cluster: &ClusterId, node: NodeId) -> Result<Disk, StartError> {
        super::dir::open(dir, cluster, node)
    }
}
