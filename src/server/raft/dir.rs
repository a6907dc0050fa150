//! The data directory of a durable node: `LOCK`, `log.redb` and `snapshots/`.
//!
//! It belongs to one node of one cluster, which the log says, and to one process at a time, which the lock sees to.

use super::disk::Disk;
use super::error::StartError;
use super::log::RedbLog;
use super::record;
use super::snapshot::FileSnapshots;
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, NodeId};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Held for as long as it lives. The system releases it when the process dies, however it dies.
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    pub(super) fn take(dir: &Path) -> Result<DirLock, StartError> {
        let path = dir.join("LOCK");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| StartError::of_file(&path, e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Locked(dir.to_path_buf())),
            Err(e) => Err(StartError::of_file(&path, e.into())),
        }
    }
}

/// Opens or makes the directory.
pub(super) fn open(dir: &Path, cluster: &ClusterId, node: NodeId) -> Result<Disk, StartError> {
    let at = |e: io::Error| StartError::of_file(dir, e);
    fs::create_dir_all(dir).map_err(at)?;
    let lock = DirLock::take(dir)?;
    let snapshots_dir = dir.join("snapshots");
    let snapshots =
        FileSnapshots::open(&snapshots_dir).map_err(|e| StartError::of_file(&snapshots_dir, e))?;

    let path = dir.join("log.redb");
    let ours =
        v1::RaftIdentity { cluster: cluster.to_string(), node: node.get(), store: new_store().map_err(at)? };
    if !path.exists() {
        if !snapshots.is_empty().map_err(at)? {
            let why = "it is missing beside its snapshots, and with it the votes this node gave".to_string();
            return Err(StartError::Corrupt { path, why });
        }
        RedbLog::create(&path, &record::encode(&ours))?;
        // The names in the directory too must outlast a power cut.
        File::open(dir).and_then(|d| d.sync_all()).map_err(at)?;
    }
    let (log, found) = RedbLog::open(&path, lock)?;
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
