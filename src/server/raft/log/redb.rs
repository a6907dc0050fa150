//! The log in a redb file.
//!
//! redb gives atomic, checksummed commits, in two phases: a last one that was torn never took effect, and one that took
//! effect and is damaged is refused. What it gives back is checked again, record by record, by its reader: redb verifies
//! its pages only after an unclean stop.

use super::{LogBackend, LogOp, Stored};
use crate::files::{BlockFile, Files, Held, Opened};
use crate::raft::error::{Damaged, StartError};
use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const COMMITTED: &str = "committed";
const IDENTITY: &str = "identity";

/// The log is in memory too, so the file's cache only serves its writer.
const CACHE_BYTES: usize = 32 << 20;

/// A log in one file.
pub(in crate::raft) struct RedbLog {
    db: Database,
    path: PathBuf,
    files: Arc<dyn Files>,
    // Behind the database: the lock must be the last to go.
    _lock: Held,
}

/// Any error of the store, with its kind where it has one: a full disk should be called that.
fn of(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(e) => e,
        redb::Error::Corrupted(why) => io::Error::new(io::ErrorKind::InvalidData, why),
        other => io::Error::other(other),
    }
}

impl RedbLog {
    /// Makes the file, with this record as its identity. It appears complete or not at all: a power cut while a node is
    /// made must not leave one that is refused as damaged.
    pub(in crate::raft) fn create(
        files: &dyn Files,
        path: &Path,
        identity: &Bytes,
    ) -> Result<(), StartError> {
        let at = |e: io::Error| StartError::of_file(path, e);
        let new = path.with_extension("new");
        match files.remove(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(e)),
            _ => {}
        }
        let db = Self::check(files, &new).map_err(at)?;
        let made = (|| {
            let write = db.begin_write().map_err(of)?;
            {
                write.open_table(ENTRIES).map_err(of)?;
                let mut meta = write.open_table(META).map_err(of)?;
                meta.insert(IDENTITY, &identity[..]).map_err(of)?;
            }
            write.commit().map_err(of)
        })();
        made.map_err(at)?;
        drop(db);
        files.rename(&new, path).map_err(at)
    }

    /// Opens the file. Returns the identity that it holds, too.
    pub(in crate::raft) fn open(
        files: &Arc<dyn Files>,
        path: &Path,
        lock: Held,
    ) -> Result<(RedbLog, Bytes), StartError> {
        // A damaged tree can make the store panic instead of returning an error; to an operator both are the same.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let db = Self::check(files.as_ref(), path)?;
            let identity =
                Self::identity(&db)?.ok_or_else(|| Damaged::error(path, "it does not say whose it is"))?;
            Ok((db, identity))
        }));
        let opened = opened.unwrap_or_else(|_| Err(Damaged::error(path, "its structure is broken")));
        let (db, identity) = opened.map_err(|e| StartError::of_file(path, e))?;
        Ok((RedbLog { db, path: path.to_path_buf(), files: Arc::clone(files), _lock: lock }, identity))
    }

    fn check(files: &dyn Files, path: &Path) -> io::Result<Database> {
        let existed = files.exists(path);
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let opened = match files.open(path)? {
            Opened::System(path) => builder.create(path),
            Opened::Given(file) => builder.create_with_backend(Backend(file)),
        };
        let mut db = opened.map_err(|e| match e {
            redb::DatabaseError::Storage(redb::StorageError::Io(e))
                if e.kind() != io::ErrorKind::InvalidData =>
            {
                e
            }
            other => Damaged::error(path, other.to_string()),
        })?;
        // An unclean stop was repaired while opening. If there is still something to repair, committed data is missing.
        if existed && !db.check_integrity().map_err(|e| Damaged::error(path, e.to_string()))? {
            return Err(Damaged::error(path, "a committed write is missing from it"));
        }
        Ok(db)
    }

    fn identity(db: &Database) -> io::Result<Option<Bytes>> {
        let read = db.begin_read().map_err(of)?;
        let meta = read.open_table(META).map_err(of)?;
        Ok(meta.get(IDENTITY).map_err(of)?.map(|v| Bytes::copy_from_slice(v.value())))
    }

    fn read(&self) -> io::Result<Stored> {
        let read = self.db.begin_read().map_err(of)?;
        let meta = read.open_table(META).map_err(of)?;
        let value = |key| -> io::Result<Option<Bytes>> {
            Ok(meta.get(key).map_err(of)?.map(|v| Bytes::copy_from_slice(v.value())))
        };
        let mut stored = Stored {
            vote: value(VOTE)?,
            purged: value(PURGED)?,
            committed: value(COMMITTED)?,
            entries: Vec::new(),
        };
        for row in read.open_table(ENTRIES).map_err(of)?.iter().map_err(of)? {
            let (index, record) = row.map_err(of)?;
            stored.entries.push((index.value(), Bytes::copy_from_slice(record.value())));
        }
        Ok(stored)
    }
}

impl LogBackend for RedbLog {
    fn load(&mut self) -> io::Result<Stored> {
        catch_unwind(AssertUnwindSafe(|| self.read()))
            .unwrap_or_else(|_| Err(Damaged::error(&self.path, "its structure is broken")))
    }

    fn commit(&mut self, ops: &[LogOp]) -> io::Result<()> {
        let mut write = self.db.begin_write().map_err(of)?;
        // A second flush, for about a quarter of the appends per second: the pages of a commit are on the disk before the
        // bit that makes it the newest. Without it a commit whose pages are damaged cannot be told from a torn one, and
        // would be undone although it was acknowledged.
        write.set_two_phase_commit(true);
        if ops.iter().all(|op| matches!(op, LogOp::Committed(_))) {
            write.set_durability(Durability::None).map_err(of)?;
        }
        {
            let mut entries = write.open_table(ENTRIES).map_err(of)?;
            let mut meta = write.open_table(META).map_err(of)?;
            for op in ops {
                match op {
                    LogOp::Append(rows) => {
                        for (index, record) in rows {
                            entries.insert(*index, &record[..]).map_err(of)?;
                        }
                    }
                    LogOp::TruncateFrom(first) => entries.retain_in(*first.., |_, _| false).map_err(of)?,
                    LogOp::PurgeTo(last, record) => {
                        entries.retain_in(..=*last, |_, _| false).map_err(of)?;
                        meta.insert(PURGED, &record[..]).map_err(of)?;
                    }
                    LogOp::Vote(record) => drop(meta.insert(VOTE, &record[..]).map_err(of)?),
                    LogOp::Committed(record) => drop(meta.insert(COMMITTED, &record[..]).map_err(of)?),
                }
            }
        }
        write.commit().map_err(of)
    }

    fn place(&self) -> PathBuf {
        self.path.clone()
    }

    fn blocks(&self) -> bool {
        self.files.blocks()
    }

    fn takes(&self) -> Option<Duration> {
        Some(self.files.takes())
    }
}

/// A file of a disk that is not the system's.
#[derive(Debug)]
struct Backend(Box<dyn BlockFile>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
