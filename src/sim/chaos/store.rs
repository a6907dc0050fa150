//! What the workers write to: one SQLite file a partition, fenced or not. A file a partition, because SQLite has one write
//! lock a file, and a worker that is stopped while it holds one must not stop the others' partitions.
//!
//! The unfenced store is the fenced one without its fence: it ignores the token and changes nothing else.

use crate::history::{Event, What};
use ringfence::FencingToken;
use ringfence::fence::FenceError;
use ringfence::fence::sqlite::SqliteFence;
use ringfence::ids::{Epoch, Scope};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `data` is what is there; `journal` is what the file took, in its own order, raises among it (those have no operation).
const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS data (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
  n INTEGER PRIMARY KEY, op INTEGER, key TEXT, epoch INTEGER NOT NULL, at_us INTEGER
);";

/// A raise comes as an update or as the scope's first row.
const JOURNAL_OF_RAISES: &str = "\
CREATE TRIGGER IF NOT EXISTS journal_of_raises AFTER UPDATE OF epoch ON ringfence_fence
BEGIN INSERT INTO journal (epoch) VALUES (NEW.epoch); END;
CREATE TRIGGER IF NOT EXISTS journal_of_first_raises AFTER INSERT ON ringfence_fence
BEGIN INSERT INTO journal (epoch) VALUES (NEW.epoch); END;";

/// Keys of a partition.
pub(super) const KEYS: u64 = 4;

/// The key of this number in a partition.
pub(super) fn key(scope: &Scope, number: u64) -> String {
    format!("{scope}/k{number}")
}

/// The file of a partition.
pub(super) fn path(dir: &Path, scope: &Scope) -> PathBuf {
    dir.join(format!("{}.sqlite", scope.to_string().replace('/', "-")))
}

/// The name of a partition's store in a history.
pub(super) fn actor(scope: &Scope) -> String {
    format!("store {scope}")
}

/// Why the store did not do something.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The fence decided.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

/// One partition's file.
pub(super) struct Store {
    conn: Connection,
    fence: Option<SqliteFence>,
}

impl Store {
    /// Opens the file, with the tables made. `fenced` has the token that says which cluster it belongs to.
    pub(super) fn open(path: &Path, fenced: Option<&FencingToken>) -> Result<Store, StoreError> {
        let conn = Connection::open(path)?;
        // Another worker may be stopped in the middle of a transaction.
        conn.busy_timeout(Duration::from_secs(2))?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.execute_batch(TABLES)?;
        let fence = fenced.map(|token| SqliteFence::install(&conn, token.cluster())).transpose()?;
        if fence.is_some() {
            conn.execute_batch(JOURNAL_OF_RAISES)?;
        }
        Ok(Store { conn, fence })
    }

    /// Raises the fence to the token's epoch.
    pub(super) fn raise(&mut self, token: &FencingToken) -> Result<(), StoreError> {
        match &self.fence {
            Some(fence) => Ok(fence.raise(&mut self.conn, token)?),
            None => Ok(()),
        }
    }

    /// Writes the number of the operation as the key's value.
    pub(super) fn write(&mut self, token: &FencingToken, op: u64, key: &str) -> Result<(), StoreError> {
        let epoch = token.epoch().get();
        let put = |tx: &rusqlite::Transaction<'_>| -> Result<(), StoreError> {
            tx.prepare_cached("INSERT OR REPLACE INTO data (key, value) VALUES (?1, ?2)")?
                .execute((key, op))?;
            // Under the write lock, so that these times grow in the journal's order.
            let at = super::clock::now_us();
            tx.prepare_cached("INSERT INTO journal (op, key, epoch, at_us) VALUES (?1, ?2, ?3, ?4)")?
                .execute((op, key, epoch, at))?;
            Ok(())
        };
        match &self.fence {
            Some(fence) => fence.write(&mut self.conn, std::slice::from_ref(token), put),
            None => {
                let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
                put(&tx)?;
                Ok(tx.commit()?)
            }
        }
    }

    /// The key's value.
    pub(super) fn read(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let mut found = self.conn.prepare_cached("SELECT value FROM data WHERE key = ?1")?;
        Ok(found.query_row([key], |row| row.get(0)).optional()?)
    }

    /// What the file took after row `after`, as events of the store; and the last row.
    pub(super) fn journal(&self, scope: &Scope, after: i64) -> anyhow::Result<(Vec<Event>, i64)> {
        let mut rows =
            self.conn.prepare("SELECT n, op, key, epoch, at_us FROM journal WHERE n > ?1 ORDER BY n")?;
        let mut rows = rows.query([after])?;
        let (mut events, mut last, mut at, by) = (Vec::new(), after, 0, actor(scope));
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            at = row.get::<_, Option<u64>>(4)?.unwrap_or(at);
            let (scope, epoch) = (scope.clone(), Epoch::new(row.get(3)?)?);
            let what = match row.get::<_, Option<u64>>(1)? {
                None => What::Raised { scope, epoch },
                Some(op) => What::Applied { op, key: row.get(2)?, scope, epoch, value: op },
            };
            events.push(Event { at, by: by.clone(), what });
        }
        Ok((events, last))
    }

    /// The highest epoch in the journal up to this row.
    pub(super) fn highest_until(&self, row: i64) -> anyhow::Result<Option<Epoch>> {
        let highest: Option<u64> =
            self.conn.query_row("SELECT max(epoch) FROM journal WHERE n <= ?1", [row], |row| row.get(0))?;
        Ok(highest.map(Epoch::new).transpose()?)
    }
}
