//! A fence in SQLite: one row a scope, in the database that holds the data, locked and checked in the user's own
//! transaction.
//!
//! [`SqliteFence`] is for rusqlite (feature `rusqlite`), [`SqlxFence`] for sqlx (feature `sqlx-sqlite`). They keep the same
//! tables: both may guard one file at once, and what was raised by one is refused by the other.
//!
//! ```
//! # #[cfg(feature = "rusqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FenceError, FencingToken, sqlite::SqliteFence};
//! use rusqlite::Connection;
//!
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
//! # #[cfg(not(feature = "rusqlite"))]
//! # fn main() {}
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

mod decide;
#[cfg(feature = "rusqlite")]
mod durable;
#[cfg(feature = "rusqlite")]
mod effects;
mod failure;
#[cfg(feature = "rusqlite")]
mod raiser;
#[cfg(feature = "rusqlite")]
mod row;
#[cfg(feature = "rusqlite")]
mod schema;
mod sql;
mod value;
#[cfg(feature = "rusqlite")]
mod with_rusqlite;
#[cfg(feature = "sqlx-sqlite")]
mod with_sqlx;

#[cfg(feature = "rusqlite")]
pub use effects::SqliteEffects;
#[cfg(feature = "rusqlite")]
pub use raiser::{MAX_QUEUED_RAISES, SqliteRaiser};
pub use sql::FORMAT;
#[cfg(feature = "rusqlite")]
pub use with_rusqlite::SqliteFence;
#[cfg(feature = "sqlx-sqlite")]
pub use with_sqlx::{SqlxFence, SqlxRaiser};

/// The check as one statement, for programs that do not use this crate. `docs/fences-sqlite.md` has the rest of what they need:
/// the tables, the binding and the raise.
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
