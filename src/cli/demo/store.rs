//! What the demo's workers write to: one SQLite file with numbered records, fenced or not.
//!
//! The unfenced store is the fenced one without its fence. It ignores the token and changes nothing else: the same
//! tables, the same transactions, the same durability.
//!
//! `drills` is what the probes of drills write: a table of its own, in the same file and behind the same fence.

use ringfence::FencingToken;
use ringfence::fence::FenceError;
use ringfence::fence::sqlite::SqliteFence;
use ringfence::ids::{ClusterId, Scope};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use std::path::Path;
use std::time::Duration;

/// `records` is the data: a later write to the same number replaces the earlier one, as a file is overwritten.
/// `journal` is what the store took, in order; the audit reads both.
const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS records (
  partition INTEGER, seq INTEGER, epoch INTEGER NOT NULL, worker TEXT NOT NULL, PRIMARY KEY (partition, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal (
  n INTEGER PRIMARY KEY, partition INTEGER, seq INTEGER, epoch INTEGER NOT NULL, worker TEXT NOT NULL, at_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS drills (n INTEGER PRIMARY KEY, partition INTEGER, epoch INTEGER NOT NULL);";

/// Opens the file with the tables made.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    // Three processes write one file; each waits its turn.
    conn.busy_timeout(Duration::from_secs(20))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.execute_batch(TABLES)?;
    Ok(conn)
}

/// One record.
pub(super) struct Record<'a> {
    pub(super) partition: u32,
    pub(super) seq: u64,
    pub(super) worker: &'a str,
}

/// Why a write was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The fence has seen a newer owner.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

/// Where an owner writes.
pub(super) trait Store: Send {
    /// Opens a partition for the owner that holds `token`, and says which number is to be written next. `ancestors` are
    /// those that it was split from: whoever owned one of them before is refused from here on.
    fn open_partition(&mut self, token: &FencingToken, ancestors: &[FencingToken])
    -> Result<u64, StoreError>;

    /// Writes one record. When this returns it is on disk.
    fn write(&mut self, token: &FencingToken, record: &Record<'_>) -> Result<(), StoreError>;

    /// A write that harms nothing, on the same way.
    fn probe(&mut self, token: &FencingToken) -> Result<(), StoreError>;
}

/// The store that checks.
pub(super) struct Fenced {
    conn: Connection,
    fence: SqliteFence,
}

impl Fenced {
    pub(super) fn new(conn: Connection, cluster: &ClusterId) -> Result<Fenced, StoreError> {
        let fence = SqliteFence::install(&conn, cluster)?;
        Ok(Fenced { conn, fence })
    }
}

impl Store for Fenced {
    /// Raises first, reads then: whatever an older owner writes after this read is refused.
    fn open_partition(
        &mut self,
        token: &FencingToken,
        ancestors: &[FencingToken],
    ) -> Result<u64, StoreError> {
        for ancestor in ancestors {
            match self.fence.raise(&mut self.conn, ancestor) {
                // It has seen a higher epoch of that one, which is as good.
                Ok(_) | Err(FenceError::Fenced(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.fence.raise(&mut self.conn, token)?;
        next_seq(&self.conn, token)
    }

    fn write(&mut self, token: &FencingToken, record: &Record<'_>) -> Result<(), StoreError> {
        self.fence.write(&mut self.conn, std::slice::from_ref(token), |tx| put(tx, token, record))
    }

    fn probe(&mut self, token: &FencingToken) -> Result<(), StoreError> {
        self.fence.write(&mut self.conn, std::slice::from_ref(token), |tx| put_probe(tx, token))
    }
}

/// The store that does not.
pub(super) struct Unfenced {
    conn: Connection,
}

impl Unfenced {
    pub(super) fn new(conn: Connection) -> Unfenced {
        Unfenced { conn }
    }
}

impl Store for Unfenced {
    fn open_partition(&mut self, token: &FencingToken, _: &[FencingToken]) -> Result<u64, StoreError> {
        next_seq(&self.conn, token)
    }

    fn write(&mut self, token: &FencingToken, record: &Record<'_>) -> Result<(), StoreError> {
        let tx = self.conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        put(&tx, token, record)?;
        tx.commit()?;
        Ok(())
    }

    fn probe(&mut self, token: &FencingToken) -> Result<(), StoreError> {
        let tx = self.conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        put_probe(&tx, token)?;
        tx.commit()?;
        Ok(())
    }
}

fn next_seq(conn: &Connection, token: &FencingToken) -> Result<u64, StoreError> {
    let Scope::Partition(_, partition) = token.scope() else { return Ok(1) };
    let last: Option<Option<u64>> = conn
        .query_row("SELECT max(seq) FROM records WHERE partition = ?1", [partition.get()], |row| row.get(0))
        .optional()?;
    Ok(last.flatten().unwrap_or(0) + 1)
}

fn put_probe(tx: &Transaction<'_>, token: &FencingToken) -> Result<(), StoreError> {
    let Scope::Partition(_, partition) = token.scope() else { return Ok(()) };
    tx.execute(
        "INSERT INTO drills (partition, epoch) VALUES (?1, ?2)",
        [u64::from(partition.get()), token.epoch().get()],
    )?;
    Ok(())
}

fn put(tx: &Transaction<'_>, token: &FencingToken, record: &Record<'_>) -> Result<(), StoreError> {
    let epoch = token.epoch().get();
    tx.prepare_cached(
        "INSERT OR REPLACE INTO records (partition, seq, epoch, worker) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![record.partition, record.seq, epoch, record.worker])?;
    tx.prepare_cached(
        "INSERT INTO journal (partition, seq, epoch, worker, at_ns) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        record.partition,
        record.seq,
        epoch,
        record.worker,
        super::clock::monotonic_ns()
    ])?;
    Ok(())
}
