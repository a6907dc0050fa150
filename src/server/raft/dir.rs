//! The data directory.

use super::disk::Disk;
use super::error::StartError;
use ringfence_core::ids::{ClusterId, NodeId};
use std::path::Path;

pub(super) fn open(dir: &Path, cluster: &ClusterId, node: NodeId) -> Result<Disk, StartError> {
    Err(StartError::Raft(format!("{} {cluster} {node}", dir.display())))
}
