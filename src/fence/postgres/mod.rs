//! A fence in PostgreSQL: one row a scope, in the database that holds the data, locked and checked in the user's own
//! transaction.
//!
//! The rule is in the database, as functions of a schema `ringfence` ([`PostgresFence::MIGRATION_SQL`]), so that every
//! language and every client has the same one; `SELECT ringfence.check('prod/orders/17@42')` is all that a writer needs.
//! This module calls them, and turns their errors into [`FenceError`].
//!
//! ```no_run
//! # #[cfg(feature = "tokio-postgres")]
//! # async fn story(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::{FencingToken, postgres::PostgresFence};
//!
//! let fence = PostgresFence::install(&client, &ClusterId::new("prod")?).await?;
//! let token: FencingToken = "prod/orders/17@42".parse()?; // of a grant: `Ownership::token`
//! fence.raise(&client, &token).await?; // before the owner reads
//!
//! let tx = client.transaction().await?;
//! fence.check(&tx, &token).await?; // `Fenced` when a newer owner has raised
//! tx.execute("UPDATE orders SET state = 'paid' WHERE id = $1", &[&7_i64]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it rests on
//!
//! - **The row is of the scope, not of the data.** A row that no newer owner has touched yet, and a row that does not exist
//!   yet, are fenced like any other.
//! - **The check shares the row's lock** (`FOR SHARE`), a raise updates the row: one of the two waits. In `REPEATABLE READ`
//!   and `SERIALIZABLE`, a check on a snapshot that is older than a raise is a serialization failure, so
//!   [`FenceError::Busy`], and never an acceptance. Writers of one scope do not wait for each other.
//! - **They queue.** PostgreSQL lets whoever shares a row's lock pass a raise that waits, so busy writers could keep a raise
//!   out for ever. Checks and raises of a scope therefore queue on an advisory lock first.
//! - **A refusal ends the transaction**, as every error does in PostgreSQL; after it, `COMMIT` rolls back.
//! - **Check outside of savepoints.** `ROLLBACK TO SAVEPOINT` lets go of the locks that were taken after it.
//! - **Others that write must check too.** A trigger with `ringfence.refuse_unstamped()` refuses statements whose
//!   transaction has checked nothing.
//!
//! # Durability
//!
//! A raise is one statement in a transaction of its own, and its commit waits for the disk, and for synchronous standbys
//! where there are any, whatever `synchronous_commit` says. `fsync = off`, a replica and an unlogged table are refused
//! ([`FenceError::NotDurable`]). A check commits with the user's write, under the user's setting: they are lost together or
//! not at all. A failover to a standby that is not synchronous, and a restore of a backup, may take the fence back
//! together with the data: then the owners raise again before they write.
//!
//! # A raise that has to wait
//!
//! A raise waits for transactions that have checked and not ended, at most [`PostgresFence::raising_within`]. When an owner
//! was paused in the middle of one, it answers [`FenceError::Blocked`], which names the connection, its state and since
//! when, and may be tried again. Set `idle_in_transaction_session_timeout` for the role of the workers, so that the server
//! ends such a transaction; or let the raise end it ([`PostgresFence::ending_blockers`]).

mod connection;
mod effects;
mod failure;
mod statement;
#[cfg(feature = "sqlx-postgres")]
mod with_sqlx;
#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres;

pub use connection::{Begin, Connection, InTransaction};
pub use effects::PostgresEffects;
#[cfg(feature = "sqlx-postgres")]
pub use with_sqlx::SqlxRaiser;
#[cfg(feature = "tokio-postgres")]
pub use with_tokio_postgres::TokioRaiser;

use crate::{FenceError, FencingToken};
use connection::{Call, Open};
use failure::Failure;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use statement::Statement;
use std::slice::from_ref;
use std::time::Duration;

/// The format of the tables. A database of another format is refused.
pub const FORMAT: i32 = 1;

/// The revision of the functions that this version brings. A database with a lower one is brought up to it by
/// [`PostgresFence::install`]; a higher one of the same format serves this version too.
pub const REVISION: i32 = 1;

/// The fence of one PostgreSQL database. It holds no connection: every call says which.
///
/// Every call is one statement and one round trip. A call whose future is dropped may still take effect, which is
/// harmless: a raise is of an epoch that the caller was granted, and a check dies with its transaction.
#[derive(Clone, Debug)]
pub struct PostgresFence {
    cluster: ClusterId,
    wait: Duration,
    end_blockers: bool,
}

impl PostgresFence {
    /// The schema `ringfence` with its tables and functions, as one text for `psql -1` or a migration tool.
    pub const MIGRATION_SQL: &'static str = include_str!("migrations/0001_ringfence.sql");

    /// The fence of a database that was installed and bound by other means. It asks nothing of the database.
    pub fn of(cluster: &ClusterId) -> PostgresFence {
        PostgresFence { cluster: cluster.clone(), wait: Duration::from_secs(5), end_blockers: false }
    }

    /// Makes the fence's schema where it is missing, and binds the database to the cluster at first use.
    ///
    /// Installing again changes nothing, so a program does it at every start; several may at once. A role that may not make
    /// a schema can install where an administrator has run [`PostgresFence::MIGRATION_SQL`]; that text says what it needs.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`] when the database is bound to another cluster; [`FenceError::NotDurable`] as for
    /// [`PostgresFence::raise`]; [`FenceError::Corrupt`] when the tables are of another format or partly gone;
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn install(
        mut conn: impl Connection,
        cluster: &ClusterId,
    ) -> Result<PostgresFence, FenceError> {
        let looking = Statement::revision();
        let doing = looking.doing;
        let found = match conn.call(looking).await {
            Ok(revision) => revision.and_then(|text| text.parse().ok()).unwrap_or(0),
            Err(failure) if failure.is_of_a_missing_fence() => 0,
            Err(failure) => return Err(failure.into_error(doing, &[])),
        };
        if found < REVISION {
            let installed = conn.batch(PostgresFence::MIGRATION_SQL).await;
            installed.map_err(|failure| failure.into_error("installing the fence", &[]))?;
        }
        run(&mut conn, Statement::bind(cluster), &[]).await?;
        Ok(PostgresFence::of(cluster))
    }

    /// How long a raise waits for transactions that write under an earlier epoch. 5 s unless said; at least 1 ms.
    #[must_use]
    pub fn raising_within(mut self, wait: Duration) -> PostgresFence {
        self.wait = wait;
        self
    }

    /// Lets a raise that has waited in vain end the connections it has waited for, and try again.
    ///
    /// Their transactions are rolled back, so nothing of the earlier owner takes effect: this is safe, and rude to whatever
    /// else the connection was doing. The role needs `ringfence.end_blockers`, and the schema's owner the right to end the
    /// workers' backends (`pg_signal_backend`) and to see since when they run (`pg_read_all_stats`).
    #[must_use]
    pub fn ending_blockers(mut self) -> PostgresFence {
        self.end_blockers = true;
        self
    }

    /// The cluster it was made for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Checks a token in the user's transaction, and keeps raises of its scope out from here to its end.
    ///
    /// Call it first, so that a refusal costs nothing and all transactions lock in the same order; a later check is as safe.
    /// Not in a savepoint. With tokio-postgres, it and the first statement can be under way together (`tokio::try_join!`): a
    /// refusal ends the transaction for both. After an error, roll back.
    ///
    /// # Errors
    /// As [`HighWater::check`](crate::HighWater::check); [`FenceError::WrongCluster`], [`FenceError::NotInstalled`],
    /// [`FenceError::Corrupt`]; [`FenceError::NotDurable`] with `fsync = off` and on a replica; [`FenceError::Busy`] after a
    /// serialization failure, a deadlock or a timeout; [`FenceError::Store`].
    pub async fn check(&self, tx: impl InTransaction, token: &FencingToken) -> Result<(), FenceError> {
        self.check_all(tx, from_ref(token)).await
    }

    /// Checks the tokens of all scopes that the transaction touches. All are accepted, or none is remembered.
    ///
    /// # Errors
    /// As [`PostgresFence::check`], and [`FenceError::Unstamped`] without any token.
    pub async fn check_all(
        &self,
        mut tx: impl InTransaction,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        run(&mut tx, Statement::check(tokens), tokens).await.map(|_| ())
    }

    /// As [`PostgresFence::check_all`], but the transaction can go on after a refusal. For the time before the fence
    /// enforces: give the answer to [`ObserveOnly::observe`](crate::ObserveOnly::observe), which counts it.
    ///
    /// # Errors
    /// As [`PostgresFence::check_all`]. After what is no refusal, the transaction is at its end all the same.
    pub async fn observe_all(
        &self,
        mut tx: impl InTransaction,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        let statement = Statement::observe(tokens);
        let doing = statement.doing;
        let Some(seen) = run(&mut tx, statement, tokens).await? else { return Ok(()) };
        let (code, detail) = seen.split_once(' ').unwrap_or((&seen, ""));
        Err(failure::refusal(code, detail, tokens)
            .unwrap_or_else(|| FenceError::store(doing, Unreadable(seen.clone()))))
    }

    /// Begins a transaction, checks the tokens and runs the write in it; commits when it answers `Ok`, rolls back when it
    /// does not.
    ///
    /// The write has to pass its own errors on: one that it swallows has ended the transaction all the same, and the commit
    /// then rolls back without saying so.
    ///
    /// # Errors
    /// As [`PostgresFence::check_all`], and whatever the write answers. A commit that failed with [`FenceError::Store`] is
    /// unknown; one that is [`FenceError::Busy`] did nothing.
    pub async fn write<C: Begin, T, E: From<FenceError>>(
        &self,
        conn: &mut C,
        tokens: &[FencingToken],
        work: impl AsyncFnOnce(&mut C::Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = conn.begin().await;
        let mut tx = begun.map_err(|failure| failure.into_error("beginning the write", &[]))?;
        let statement = Statement::check(tokens);
        let doing = statement.doing;
        if let Err(failure) = tx.call(statement).await {
            tx.roll_back().await;
            return Err(failure.into_error(doing, tokens).into());
        }
        match work(&mut tx).await {
            Ok(answer) => {
                let committed = tx.commit().await;
                committed.map_err(|failure| failure.into_error("committing the write", &[]))?;
                Ok(answer)
            }
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    /// Raises the fence of the token's scope, in a transaction of its own, durably.
    ///
    /// The connection must not be in a transaction, or the raise is as durable as that is when this answers. sqlx knows and
    /// refuses; tokio-postgres does not know of a `BEGIN` that was sent as a text.
    ///
    /// # Errors
    /// As [`HighWater::raise`](crate::HighWater::raise); [`FenceError::WrongCluster`]; [`FenceError::NotDurable`] with
    /// `fsync = off`, on a replica, with an unlogged table; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`];
    /// [`FenceError::Blocked`] and [`FenceError::Busy`]; [`FenceError::Unfit`] inside a transaction of sqlx;
    /// [`FenceError::Store`], after which it may have been raised or not, and raising again is safe.
    pub async fn raise(&self, conn: impl Connection, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_all(conn, from_ref(token)).await
    }

    /// Raises several scopes in one transaction, which costs one wait for the disk instead of many: all or none.
    ///
    /// # Errors
    /// As [`PostgresFence::raise`]; no scope is raised then.
    pub async fn raise_all(&self, conn: impl Connection, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.raise_by(conn, Statement::raise(tokens, self.wait), tokens).await
    }

    /// Raises past the bound on a jump ([`MAX_JUMP`](crate::MAX_JUMP)), for an operator who knows why. It does not move a
    /// fence back either.
    ///
    /// # Errors
    /// As [`PostgresFence::raise`], without [`FenceError::Implausible`].
    pub async fn force_raise(&self, conn: impl Connection, token: &FencingToken) -> Result<(), FenceError> {
        self.raise_by(conn, Statement::force_raise(token, self.wait), from_ref(token)).await
    }

    async fn raise_by(
        &self,
        mut conn: impl Connection,
        statement: Statement,
        tokens: &[FencingToken],
    ) -> Result<(), FenceError> {
        // Each try is blocked by another scope, or by somebody new.
        for _ in tokens {
            let blocked = match run(&mut conn, statement.clone(), tokens).await {
                Err(FenceError::Blocked(blocked)) if self.end_blockers => blocked,
                answer => return answer.map(|_| ()),
            };
            run(&mut conn, Statement::end_blockers(blocked.scope(), self.wait), tokens).await?;
        }
        run(&mut conn, statement, tokens).await.map(|_| ())
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::Busy`] and [`FenceError::Store`].
    pub async fn highest(
        &self,
        mut conn: impl Connection,
        scope: &Scope,
    ) -> Result<Option<Epoch>, FenceError> {
        let statement = Statement::highest(scope);
        let doing = statement.doing;
        let Some(text) = run(&mut conn, statement, &[]).await? else { return Ok(None) };
        let epoch = text.parse().ok().and_then(|number| Epoch::new(number).ok());
        epoch.map(Some).ok_or_else(|| FenceError::store(doing, Unreadable(text)))
    }
}

/// The functions of the database answered what those of this version do not.
#[derive(Debug, thiserror::Error)]
#[error("the fence answered {0:?}")]
struct Unreadable(String);

async fn run(
    conn: &mut impl Call,
    statement: Statement,
    tokens: &[FencingToken],
) -> Result<Option<String>, FenceError> {
    let doing = statement.doing;
    conn.call(statement).await.map_err(|failure: Failure| failure.into_error(doing, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migration_is_of_this_format_and_revision() {
        let sql = PostgresFence::MIGRATION_SQL;
        assert!(sql.contains(&format!("Format {FORMAT}, revision {REVISION}.")));
        assert!(sql.contains(&format!(
            "ringfence.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT {REVISION}'"
        )));
        assert!(sql.contains(&crate::MAX_JUMP.to_string()) && sql.contains(&Epoch::MAX.get().to_string()));
    }
}
