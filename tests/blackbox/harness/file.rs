//! The file that the workers write to, and what it shows.

use super::Write;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One SQLite file: `journal` is what the store took, in order; `records` is what is there now.
pub(crate) struct SharedFile {
    pub(crate) path: PathBuf,
    pub(crate) fenced: bool,
}

/// What the file shows. It trusts nobody.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Writes that were taken after one of a higher epoch of that partition.
    pub(crate) stale_accepted: u64,
    /// Acknowledged writes that are not there.
    pub(crate) lost: u64,
}

impl SharedFile {
    pub(crate) fn create(dir: &Path, fenced: bool) -> SharedFile {
        let file = SharedFile { path: dir.join("records.sqlite"), fenced };
        // Before several processes race for it.
        file.open().pragma_update(None, "journal_mode", "WAL").unwrap();
        file
    }

    pub(crate) fn open(&self) -> Connection {
        let conn = Connection::open(&self.path).unwrap();
        conn.busy_timeout(Duration::from_secs(20)).unwrap();
        conn
    }

    /// Each write that was taken, in order: partition, epoch, and when, on the machine's monotonic clock.
    pub(crate) fn journal(&self) -> Vec<(u64, u64, i64)> {
        let conn = self.open();
        let mut rows = conn.prepare("SELECT partition, epoch, at_ns FROM journal ORDER BY n").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Holds the file against what was acknowledged.
    pub(crate) fn audit(&self, acks: &[Write]) -> Audit {
        let mut highest = BTreeMap::new();
        let mut audit = Audit::default();
        for (partition, epoch, _) in self.journal() {
            let top = highest.entry(partition).or_insert(epoch);
            audit.stale_accepted += u64::from(epoch < *top);
            *top = epoch.max(*top);
        }
        let conn = self.open();
        let mut rows = conn.prepare("SELECT partition, epoch, seq FROM records").unwrap();
        let write = |row: &rusqlite::Row<'_>| {
            Ok(Write { partition: row.get(0)?, epoch: row.get(1)?, seq: row.get(2)? })
        };
        let kept: BTreeSet<Write> = rows.query_map([], write).unwrap().map(Result::unwrap).collect();
        audit.lost = acks.iter().filter(|ack| !kept.contains(ack)).count() as u64;
        audit
    }
}
