//! The data directory of a durable node: `LOCK`, `log.redb` and `snapshots/`.
//!
//! It belongs to one node of one cluster, which the log says, and to one process at a time, which the lock sees to.

use super::disk::Disk;
use super::error::StartError;
use super::log::RedbLog;
use super::record;
use super::snapshot::FileSnapshots;
use crate::files::Files;
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, NodeId};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Opens or makes the directory.
pub(super) fn open(
    files: &Arc<dyn Files>,
    dir: &Path,
    cluster: &ClusterId,
    node: NodeId,
) -> Result<Disk, StartError> {
    let at = |e: io::Error| StartError::of_file(dir, e);
    files.create_dir_all(dir).map_err(at)?;
    let path = dir.join("LOCK");
    let held = files.lock(&path).map_err(|e| StartError::of_file(&path, e))?;
    let lock = held.ok_or_else(|| StartError::Locked(dir.to_path_buf()))?;
    let snapshots_dir = dir.join("snapshots");
    let snapshots = FileSnapshots::open(Arc::clone(files), &snapshots_dir)
        .map_err(|e| StartError::of_file(&snapshots_dir, e))?;

    let path = dir.join("log.redb");
    let ours =
        v1::RaftIdentity { cluster: cluster.to_string(), node: node.get(), store: new_store().map_err(at)? };
    if !files.exists(&path) {
        if !snapshots.is_empty().map_err(at)? {
            let why = "it is missing beside its snapshots, and with it the votes this node gave".to_string();
            return Err(StartError::Corrupt { path, why });
        }
        RedbLog::create(files.as_ref(), &path, &record::encode(&ours))?;
        // The names in the directory too must outlast a power cut.
        files.sync_dir(dir).map_err(at)?;
    }
    let (log, found) = RedbLog::open(files, &path, lock)?;
    let found: v1::RaftIdentity =
        record::decode(&found).map_err(|e| StartError::Corrupt { path: path.clone(), why: e.to_string() })?;
    if (&found.cluster, found.node) != (&ours.cluster, ours.node) {
        let shown = |id: &v1::RaftIdentity| format!("node {} of cluster {}", id.node, id.cluster);
        return Err(StartError::NotOurs { path, found: shown(&found), wanted: shown(&ours) });
    }
    Ok(Disk { log: Box::new(log), snapshots: Box::new(snapshots), store: found.store })
}

/// A number that no other store has.
pub(super) fn new_store() -> io::Result<u64> {
    let number = getrandom::u64().map_err(|e| io::Error::other(e.to_string()))?;
    // Zero means "not learnt" on the wire.
    Ok((number >> 1).max(1))
}
