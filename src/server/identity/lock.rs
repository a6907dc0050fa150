//! One process for each data directory.
//!
//! The log has a lock of its own, which is taken when the log is opened: after the node has come to belong to a
//! cluster. Until then this one keeps two processes from becoming two nodes under one identity.

use super::IdentityError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// Held for as long as it lives. The system releases it when the process dies, however it dies.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Lock, IdentityError> {
        let path = dir.join("node.lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|source| IdentityError::Io { path: path.clone(), source })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(IdentityError::Locked(dir.to_owned())),
            Err(e) => Err(IdentityError::Io { path, source: e.into() }),
        }
    }
}
