//! A fence in SQLite: one row a scope, in the database that holds the data, locked and checked in the user's own
//! transaction.
//!
//! ```
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FenceError, FencingToken, sqlite::SqliteFence};
//! use rusqlite::Connection;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut conn = Connection::open_in_memory()?;
//! conn.execute_batch("CREATE TABLE files (id INTEGER PRIMARY KEY, value TEXT)")?;
//! let fence = SqliteFence::install(&conn, &ClusterId::new("prod")?)?;
//!
//! let old: FencingToken = "prod/files/17@33".parse()?;
//! let new: FencingToken = "prod/files/17@34".parse()?;
//! fence.raise(&mut conn, &new)?;
//!
//! let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! fence.check(&tx, &new)?;
//! tx.execute("INSERT INTO files VALUES (1, 'by 34')", ())?;
//! tx.commit()?;
//!
//! let tx = conn.transaction()?;
//! assert!(matches!(fence.check(&tx, &old), Err(FenceError::Fenced(_)))); // and nothing is written
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **The row is of the scope, not of the data.** A row that no newer owner has touched yet, and a row that does not
//!   exist yet, are fenced like any other.
//! - **The check takes the write lock** before it reads, so nobody raises between it and the commit. SQLite has one write
//!   lock a database: writers of all scopes wait for each other, as they do without a fence.
//! - **Data and fence are in one database file.** A table of an attached database is not protected: SQLite commits the
//!   two one after the other.
//! - **A transaction ends at its first error.** SQLite itself rolls back when the disk is full or fails; a statement that
//!   is executed after that is on its own, without the fence.
//! - **Restoring the database from a backup takes the fence back too.** The owners raise again before they write.
//! - Other programs that write the tables must check as well; [`CHECK_SQL`] is the check as one statement.
//!
//! # Durability
//!
//! A raise survives a power cut once it has answered: it runs its own transaction under `synchronous = EXTRA`, whatever the
//! connection is set to (`NORMAL` in WAL mode, and even `FULL` with a deleted journal, may lose the last commit), and
//! puts the setting back. `synchronous = OFF`, and a journal in memory or none, can lose the whole database and are
//! refused. A check commits with the user's write, under the user's setting: they are lost together or not at all. On
//! macOS, `fsync` does not reach the platter unless `PRAGMA fullfsync = ON`.
//!
//! An in-memory database has a fence that dies with its data, which is all it needs to do.

mod durable;
mod effects;
mod failure;
mod raiser;
mod row;
mod schema;

pub use effects::SqliteEffects;
pub use raiser::{MAX_QUEUED_RAISES, SqliteRaiser};
pub use schema::FORMAT;

use crate::token::in_lock_order;
use crate::{FenceError, FencingToken, HighWater};
use failure::failed;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::BTreeMap;

/// The check as one statement, for programs that do not use this crate.
///
/// Bind `:cluster`, `:scope` (`orders/17`) and `:epoch`, run it first in the transaction of the write, and look at the
/// number of rows changed: one, and the write may go on; none, and the transaction must be rolled back. The number does
/// not tell *why*: the owner was replaced, nobody has raised, another cluster, or an implausible epoch. It compares no
/// sessions.
pub const CHECK_SQL: &str = "\
UPDATE main.ringfence_fence
   SET epoch = :epoch, session = CASE WHEN epoch = :epoch THEN session END
 WHERE scope = :scope
   AND epoch BETWEEN 1 AND :epoch
   AND :epoch - epoch <= 281474976710656
   AND :epoch <= 9007199254740991
   AND (SELECT cluster FROM main.ringfence_binding) = :cluster";

/// The fence of one SQLite database. It holds no connection: every call says which.
#[derive(Clone, Debug)]
pub struct SqliteFence {
    cluster: ClusterId,
}

impl SqliteFence {
    /// Makes the fence's tables where they are missing, and binds the database to the cluster at first use.
    ///
    /// Installing again changes nothing, so a program does it at every start. It opens a transaction of its own.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when the database is bound to another cluster; [`FenceError::NotDurable`] as for
    /// [`SqliteFence::raise`]; [`FenceError::Corrupt`] when the tables are of another format; [`FenceError::Busy`] and
    /// [`FenceError::Store`].
    pub fn install(conn: &Connection, cluster: &ClusterId) -> Result<SqliteFence, FenceError> {
        durable::durably(conn, "installing the fence", |tx| schema::install(tx, cluster))?;
        Ok(SqliteFence { cluster: cluster.clone() })
    }

    /// The cluster it was installed for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Raises the fence of the token's scope, in a transaction of its own, durably.
    ///
    /// # Errors
    /// As [`HighWater::raise`]; [`FenceError::WrongCluster`]; [`FenceError::NotDurable`] when `synchronous` is `OFF` or the
    /// journal is not on disk; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`]; [`FenceError::Busy`], when another
    /// writer held the lock for longer than the connection's busy timeout; [`FenceError::Store`], after which it may have
    /// been raised or not, and raising again is safe.
    pub fn raise(&self, conn: &mut Connection, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(conn, std::slice::from_ref(token))
    }

    /// Raises several scopes in one transaction, which costs one `fsync` instead of many: all or none.
    ///
    /// # Errors
    /// As [`SqliteFence::raise`]; no scope is raised then.
    pub fn raise_all(&self, conn: &mut Connection, tokens: &[FencingToken]) -> Result<(), FenceError> {
        durable::durably(conn, "raising the fence", |tx| {
            tokens.iter().try_for_each(|token| raise_row(tx, token, HighWater::raise))
        })
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`SqliteFence::raise`], without [`FenceError::Implausible`].
    pub fn force_raise(&self, conn: &mut Connection, token: &FencingToken) -> Result<(), FenceError> {
        durable::durably(conn, "raising the fence", |tx| raise_row(tx, token, HighWater::force_raise))
    }

    /// Checks a token in the user's transaction, and holds the write lock from here to its end.
    ///
    /// Begin the transaction `IMMEDIATE`. A deferred one is safe too, but when somebody wrote since it first read, the
    /// check answers [`FenceError::Busy`] and the whole transaction has to run again.
    ///
    /// After an error the transaction must be dropped or rolled back. [`SqliteFence::write`] sees to that.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::WrongCluster`], [`FenceError::NotInstalled`], [`FenceError::Corrupt`],
    /// [`FenceError::NotDurable`] when `synchronous` is `OFF`, [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn check(&self, tx: &Transaction<'_>, token: &FencingToken) -> Result<(), FenceError> {
        self.check_all(tx, std::slice::from_ref(token))
    }

    /// Checks the tokens of all scopes that the transaction touches. All are accepted, or none is remembered.
    ///
    /// # Errors
    /// As [`SqliteFence::check`], and [`FenceError::Unstamped`] without any token.
    pub fn check_all(&self, tx: &Transaction<'_>, tokens: &[FencingToken]) -> Result<(), FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        durable::refuse_off(tx)?;
        row::lock(tx)?;
        let mut after: BTreeMap<&Scope, (Option<HighWater>, HighWater)> = BTreeMap::new();
        for token in &tokens {
            let (before, row) = match after.get(token.scope()) {
                Some((before, row)) => (*before, Some(*row)),
                None => {
                    let row = row::read_for(tx, token)?;
                    (row, row)
                }
            };
            after.insert(token.scope(), (before, HighWater::check(row, token)?));
        }
        for (scope, (before, row)) in after {
            // The owner going on writes nothing here: the lock is the database's, not the row's.
            if before != Some(row) {
                row::write(tx, scope, row)?;
            }
        }
        Ok(())
    }

    /// Checks the tokens and runs the write in one immediate transaction; commits when it answers `Ok`, rolls back when
    /// it does not.
    ///
    /// # Errors
    /// As [`SqliteFence::check_all`], and whatever the write answers. A commit that failed with [`FenceError::Store`] is
    /// unknown.
    pub fn write<T, E: From<FenceError>>(
        &self,
        conn: &mut Connection,
        tokens: &[FencingToken],
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed("beginning the write"))?;
        self.check_all(&tx, tokens)?;
        let answer = work(&tx)?;
        tx.commit().map_err(failed("committing the write"))?;
        Ok(answer)
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn highest(&self, conn: &Connection, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        Ok(row::read(conn, scope)?.row.map(HighWater::epoch))
    }

    /// Gives the fence a thread of its own on this connection, so that an async owner can raise it.
    ///
    /// # Errors
    /// [`FenceError::Store`] when the thread cannot be started.
    pub fn raiser(&self, conn: Connection) -> Result<SqliteRaiser, FenceError> {
        SqliteRaiser::start(self.clone(), conn)
    }
}

/// Decides on one raise and writes it, under the lock of the transaction.
fn raise_row(
    tx: &Transaction<'_>,
    token: &FencingToken,
    decide: impl FnOnce(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>,
) -> Result<(), FenceError> {
    let before = row::read_for(tx, token)?;
    row::write_raised(tx, token.scope(), decide(before, token)?)
}
