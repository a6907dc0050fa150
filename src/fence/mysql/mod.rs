//! A fence in MariaDB and MySQL: one row a scope, in the database that holds the data, locked and checked in the user's own
//! transaction.
//!
//! It keeps a replaced owner's late transaction from committing on top of what its successor has read and decided on.
//!
//! The rule is in the database, as procedures ([`MysqlFence::MIGRATION_SQL`]), so that every language and every client has the
//! same one; `CALL ringfence_check('prod/orders/17@42')` is all that a writer needs. This module calls them through sqlx, and
//! turns their errors into [`FenceError`].
//!
//! ```no_run
//! # async fn story(mut conn: sqlx::MySqlConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FencingToken, mysql::MysqlFence};
//! use sqlx::Connection as _;
//!
//! let fence = MysqlFence::install(&mut conn, &ClusterId::new("prod")?).await?;
//! fence.covers(&mut conn, "orders").await?; // a table of MyISAM is refused
//! let token: FencingToken = "prod/orders/17@42".parse()?; // of a grant: `Ownership::token`
//! fence.raise(&mut conn, &token).await?; // before the owner reads
//!
//! let mut tx = conn.begin().await?;
//! fence.check(&mut tx, &token).await?; // `Fenced` when a newer owner has raised; then roll back
//! sqlx::query("UPDATE orders SET state = 'paid' WHERE id = ?").bind(7_i64).execute(&mut *tx).await?;
//! fence.commit(tx).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **The row is of the scope, not of the data.** A row that no newer owner has touched yet, and a row that does not exist
//!   yet, are fenced like any other.
//! - **The check shares the row's lock** (`LOCK IN SHARE MODE`), a raise updates the row: one of the two waits, in the order in
//!   which they came. A locking read sees what is committed, whatever the snapshot of `REPEATABLE READ` says; and a check on a
//!   snapshot that is older than a raise is [`FenceError::Busy`], also for the new owner, whose reads would be as old.
//! - **An error does not end the transaction here.** Only a deadlock rolls it back; after a refusal and after a wait that was too
//!   long, what the transaction had written is still in it. Roll back; [`MysqlFence::write`] does.
//! - **A transaction may end unseen.** DDL commits it, a deadlock rolls it back, and the statements after that each commit on
//!   their own, without the fence. [`MysqlFence::commit`] finds out and says so; a trigger with `ringfence_refuse_unstamped()`
//!   prevents it.
//! - **InnoDB only.** What MyISAM or Aria has written is not taken back: [`MysqlFence::covers`] refuses such a table.
//! - **One server.** Galera, and group replication with several primaries, do not show a row's lock to other nodes. Galera is
//!   refused; the other is not found out.
//!
//! # Durability
//!
//! A raise commits a transaction of its own. `innodb_flush_log_at_trx_commit` other than 1, a binary log with `sync_binlog`
//! other than 1, and a server that is read-only are refused ([`FenceError::NotDurable`]). A check commits with the user's write,
//! under the server's setting: they are lost together or not at all. A failover to a replica that lags, and a restore of a
//! backup, may take the fence back together with the data: then the owners raise again before they write.

mod call;
mod failure;
mod migration;
mod raiser;

pub use raiser::MysqlRaiser;

use crate::{FenceError, FencingToken};
use call::Call;
use failure::failed;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use sqlx::{Connection as _, MySql, MySqlConnection, Transaction};
use std::slice::from_ref;
use std::time::Duration;

/// The format of the tables. A database of another format is refused.
pub const FORMAT: i32 = 1;

/// The revision of the procedures that this version brings. A database with a lower one is brought up to it by
/// [`MysqlFence::install`]; a higher one of the same format serves this version too.
pub const REVISION: i32 = 1;

/// The fence of one database of MariaDB or MySQL. It holds no connection: every call says which.
///
/// A call whose future is dropped may still take effect, which is harmless: a raise is of an epoch that the caller was
/// granted, and a check dies with its transaction.
#[derive(Clone, Debug)]
pub struct MysqlFence {
    cluster: ClusterId,
    wait: Duration,
}

impl MysqlFence {
    /// The tables and procedures as one text for the command-line client, or for a migration tool that knows `DELIMITER`.
    pub const MIGRATION_SQL: &'static str = include_str!("migrations/0001_ringfence.sql");

    /// The fence of a database that was installed and bound by other means. It asks nothing of the database.
    pub fn of(cluster: &ClusterId) -> MysqlFence {
        MysqlFence { cluster: cluster.clone(), wait: Duration::from_secs(5) }
    }

    /// Makes the fence's tables and procedures where they are missing, and binds the database to the cluster at first use.
    ///
    /// Installing again changes nothing, so a program does it at every start; several may at once. A user that may not make
    /// them can install where an administrator has run [`MysqlFence::MIGRATION_SQL`]; that text says what it needs.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when the database is bound to another cluster; [`FenceError::NotDurable`] as for
    /// [`MysqlFence::raise`]; [`FenceError::Corrupt`] when the tables are of another format or partly gone;
    /// [`FenceError::Unfit`] in a transaction and on Galera; [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn install(conn: &mut MySqlConnection, cluster: &ClusterId) -> Result<MysqlFence, FenceError> {
        // Before anything is made: DDL commits whatever is open.
        refuse_transaction(conn)?;
        if revision(conn).await? < REVISION {
            make(conn).await?;
        }
        let doing = "binding the database to its cluster";
        let bind = sqlx::query("CALL ringfence_bind(?)").bind(cluster.to_string());
        bind.execute(&mut *conn).await.map_err(|error| failed(doing, error, &[]))?;
        Ok(MysqlFence::of(cluster))
    }

    /// How long a raise waits for transactions that write under an earlier epoch. 5 s unless said; the server counts in whole
    /// seconds, at least one.
    #[must_use]
    pub fn raising_within(mut self, wait: Duration) -> MysqlFence {
        self.wait = wait;
        self
    }

    /// The cluster it was made for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Refuses a table whose rows a rollback does not take back, such as one of MyISAM. Ask once a table, at the start.
    ///
    /// # Errors
    /// [`FenceError::Unfit`] when the table is not of InnoDB, or not in this database; [`FenceError::NotInstalled`];
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn covers(&self, conn: &mut MySqlConnection, table: &str) -> Result<(), FenceError> {
        let call = sqlx::query("CALL ringfence_covers(?)").bind(table.to_owned());
        call.execute(conn).await.map(|_| ()).map_err(|error| failed("looking at a table", error, &[]))
    }

    /// Checks a token in the user's transaction, and keeps raises of its scope out from here to its end.
    ///
    /// Call it first: then the reads that follow are as new as the fence, a refusal costs nothing, and all transactions lock in
    /// the same order. After an error, roll back. End the transaction with [`MysqlFence::commit`].
    ///
    /// # Errors
    /// As [`HighWater::check`](crate::HighWater::check); [`FenceError::WrongCluster`], [`FenceError::NotInstalled`],
    /// [`FenceError::Corrupt`]; [`FenceError::NotDurable`] on a server that is read-only; [`FenceError::Unfit`] where there is no
    /// transaction any more; [`FenceError::Busy`] on an old snapshot, after a deadlock or a timeout; [`FenceError::Store`].
    pub async fn check(
        &self,
        tx: &mut Transaction<'_, MySql>,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        self.check_all(tx, from_ref(token)).await
    }

    /// Checks the tokens of all scopes that the transaction touches. All are accepted, or none is remembered.
    ///
    /// # Errors
    /// As [`MysqlFence::check`], and [`FenceError::Unstamped`] without any token.
    pub async fn check_all(
        &self,
        tx: &mut Transaction<'_, MySql>,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        Call::check(tokens).run(tx, tokens).await
    }

    /// As [`MysqlFence::check_all`], but nothing is remembered and the transaction is to go on after a refusal. For the time
    /// before the fence enforces: give the answer to [`ObserveOnly::observe`](crate::ObserveOnly::observe), which counts it.
    ///
    /// # Errors
    /// As [`MysqlFence::check_all`].
    pub async fn observe_all(
        &self,
        tx: &mut Transaction<'_, MySql>,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        let doing = "observing the fence";
        let (texts, sessions) = call::arrays(tokens);
        let ask = sqlx::query_scalar::<MySql, Option<String>>("CALL ringfence_observe(?, ?)");
        let seen = ask.bind(texts).bind(sessions).fetch_one(&mut **tx).await;
        let Some(seen) = seen.map_err(|error| failed(doing, error, tokens))? else { return Ok(()) };
        let (state, said) = seen.split_once(' ').unwrap_or((&seen, ""));
        Err(failure::refusal(state, said, tokens)
            .unwrap_or_else(|| FenceError::store(doing, Unreadable(seen.clone()))))
    }

    /// Commits a transaction that was checked, and finds out whether it was still the one of the check.
    ///
    /// # Errors
    /// [`FenceError::Store`] when its last check was refused, and then nothing is written; and when it had ended before: a
    /// statement in it commits by itself, as DDL does, or an error that was swallowed has rolled it back. What ran after that took
    /// effect on its own, without the fence. Also when that could not be found out, as when the connection was lost meanwhile, and
    /// when the commit failed otherwise: its outcome is unknown. [`FenceError::Busy`] when the commit did nothing.
    pub async fn commit(&self, mut tx: Transaction<'_, MySql>) -> Result<(), FenceError> {
        let doing = "committing the write";
        let still = sqlx::raw_sql("RELEASE SAVEPOINT ringfence_checked").execute(&mut *tx).await;
        if let Err(error) = still {
            let error = failure::not_found_out(failed(doing, error, &[]));
            roll_back(tx).await;
            return Err(error);
        }
        tx.commit().await.map_err(|error| failed(doing, error, &[]))
    }

    /// Begins a transaction, checks the tokens and runs the write in it; commits when it answers `Ok`, rolls back when it
    /// does not.
    ///
    /// # Errors
    /// As [`MysqlFence::check_all`] and [`MysqlFence::commit`], and whatever the write answers.
    pub async fn write<T, E: From<FenceError>>(
        &self,
        conn: &mut MySqlConnection,
        tokens: &[FencingToken],
        work: impl AsyncFnOnce(&mut Transaction<'_, MySql>) -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = conn.begin().await;
        let mut tx = begun.map_err(|error| failed("beginning the write", error, &[]))?;
        let done = match self.check_all(&mut tx, tokens).await {
            Ok(()) => work(&mut tx).await,
            Err(refused) => Err(refused.into()),
        };
        match done {
            Ok(answer) => {
                self.commit(tx).await?;
                Ok(answer)
            }
            Err(error) => {
                roll_back(tx).await;
                Err(error)
            }
        }
    }

    /// Raises the fence of the token's scope, in a transaction of its own, durably.
    ///
    /// # Errors
    /// As [`HighWater::raise`](crate::HighWater::raise); [`FenceError::WrongCluster`]; [`FenceError::NotDurable`] on a server that
    /// is read-only, or set to lose a commit; [`FenceError::Unfit`] in a transaction, with `autocommit = 0`, and on Galera;
    /// [`FenceError::NotInstalled`]; [`FenceError::Corrupt`]; [`FenceError::Blocked`] and [`FenceError::Busy`];
    /// [`FenceError::Store`], after which it may have been raised or not, and raising again is safe.
    pub async fn raise(&self, conn: &mut MySqlConnection, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(conn, from_ref(token)).await
    }

    /// Raises several scopes in one transaction, which costs one wait for the disk instead of many: all or none.
    ///
    /// # Errors
    /// As [`MysqlFence::raise`]; no scope is raised then.
    pub async fn raise_all(
        &self,
        conn: &mut MySqlConnection,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        raise_by(conn, Call::raise(tokens, self.wait), tokens).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`MysqlFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise(
        &self,
        conn: &mut MySqlConnection,
        token: &FencingToken,
    ) -> Result<(), FenceError> {
        raise_by(conn, Call::force_raise(token, self.wait), from_ref(token)).await
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn highest(
        &self,
        conn: &mut MySqlConnection,
        scope: &Scope,
    ) -> Result<Option<Epoch>, FenceError> {
        let doing = "reading the fence";
        let ask = sqlx::query_scalar::<MySql, Option<String>>("CALL ringfence_highest(?)");
        let seen = ask.bind(scope.to_string()).fetch_one(conn).await;
        let Some(text) = seen.map_err(|error| failed(doing, error, &[]))? else { return Ok(None) };
        let epoch = text.parse().ok().and_then(|number| Epoch::new(number).ok());
        epoch.map(Some).ok_or_else(|| FenceError::store(doing, Unreadable(text)))
    }
}

/// The procedures of the database answered what those of this version do not.
#[derive(Debug, thiserror::Error)]
#[error("the fence answered {0:?}")]
struct Unreadable(String);

fn refuse_transaction(conn: &MySqlConnection) -> Result<(), FenceError> {
    if conn.is_in_transaction() {
        let why = "the connection is in a transaction, which a raise or an installation would commit; they take their own";
        return Err(FenceError::Unfit { why: why.into() });
    }
    Ok(())
}

async fn raise_by(
    conn: &mut MySqlConnection,
    call: Call<'_>,
    tokens: &[FencingToken],
) -> Result<(), FenceError> {
    refuse_transaction(conn)?;
    let answer = call.run(conn, tokens).await;
    if matches!(answer, Err(FenceError::Busy { .. } | FenceError::Store { .. })) {
        // The procedure ends its transaction itself, unless it was killed in the middle.
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
    }
    answer
}

async fn roll_back(tx: Transaction<'_, MySql>) {
    // Should it fail, the connection is gone, and the server rolls back by itself.
    let _ = tx.rollback().await;
}

/// The revision of the procedures that are there; 0 without any.
async fn revision(conn: &mut MySqlConnection) -> Result<i32, FenceError> {
    let doing = "looking for the fence";
    match sqlx::raw_sql("CALL ringfence_revision(@ringfence_revision)").execute(&mut *conn).await {
        Ok(_) => {
            let ask = sqlx::query_scalar::<MySql, Option<i64>>("SELECT CAST(@ringfence_revision AS SIGNED)");
            let found = ask.fetch_one(conn).await.map_err(|error| failed(doing, error, &[]))?;
            Ok(found.and_then(|revision| i32::try_from(revision).ok()).unwrap_or(0))
        }
        Err(error) => match failed(doing, error, &[]) {
            FenceError::NotInstalled => Ok(0),
            other => Err(other),
        },
    }
}

/// Runs the migration, alone: a procedure is away for a moment while it is replaced.
async fn make(conn: &mut MySqlConnection) -> Result<(), FenceError> {
    let doing = "installing the fence";
    let lock = "SELECT COALESCE(GET_LOCK(CONCAT('ringfence.', SHA1(DATABASE())), 60), 0)";
    let held = sqlx::query_scalar::<MySql, i64>(lock).fetch_one(&mut *conn).await;
    if held.map_err(|error| failed(doing, error, &[]))? != 1 {
        return Err(FenceError::busy(doing, StillInstalling));
    }
    let mut made = Ok(());
    // Somebody else may have done it meanwhile.
    match revision(conn).await {
        Ok(found) if found >= REVISION => {}
        Ok(_) => {
            for statement in migration::statements() {
                made = sqlx::raw_sql(statement).execute(&mut *conn).await.map(|_| ());
                if made.is_err() {
                    let _ = sqlx::raw_sql(migration::LAST).execute(&mut *conn).await;
                    break;
                }
            }
        }
        Err(error) => {
            release(conn).await;
            return Err(error);
        }
    }
    release(conn).await;
    made.map_err(|error| failed(doing, error, &[]))
}

async fn release(conn: &mut MySqlConnection) {
    // It goes with the connection otherwise.
    let _ = sqlx::raw_sql("DO RELEASE_LOCK(CONCAT('ringfence.', SHA1(DATABASE())))").execute(conn).await;
}

#[derive(Debug, thiserror::Error)]
#[error("another installation is under way")]
struct StillInstalling;
