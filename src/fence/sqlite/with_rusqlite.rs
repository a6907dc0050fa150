//! The fence for rusqlite.

use super::decide::decide;
use super::failure::{Ended, failed, has_ended};
use super::raiser::SqliteRaiser;
use super::{durable, row, schema};
use crate::token::in_lock_order;
use crate::{FenceError, FencingToken, HighWater};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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
    /// [`SqliteFence::raise`]; [`FenceError::Corrupt`] when the tables are of another format; [`FenceError::Unfit`] in a
    /// transaction; [`FenceError::Busy`] and [`FenceError::Store`].
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
    /// journal is not on disk; [`FenceError::NotInstalled`]; [`FenceError::Corrupt`]; [`FenceError::Unfit`] in a transaction;
    /// [`FenceError::Busy`], when another writer held the lock for longer than the connection's busy timeout;
    /// [`FenceError::Store`], after which it may have been raised or not, and raising again is safe.
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
    /// After an error the transaction must be dropped or rolled back, also after an error of a statement of your own:
    /// `INSERT OR ROLLBACK` and a full disk end the transaction, and what runs after that is on its own.
    /// [`SqliteFence::write`] sees to that where the write passes the error on, and says so where it does not.
    ///
    /// # Errors
    /// As [`HighWater::check`]; [`FenceError::Unfit`] when the transaction has ended; [`FenceError::WrongCluster`],
    /// [`FenceError::NotInstalled`], [`FenceError::Corrupt`], [`FenceError::NotDurable`] as for a raise,
    /// [`FenceError::Busy`] and [`FenceError::Store`].
    pub fn check(&self, tx: &Transaction<'_>, token: &FencingToken) -> Result<(), FenceError> {
        self.check_all(tx, std::slice::from_ref(token))
    }

    /// Checks the tokens of all scopes that the transaction touches. All are accepted, or none is remembered.
    ///
    /// # Errors
    /// As [`SqliteFence::check`], and [`FenceError::Unstamped`] without any token.
    pub fn check_all(&self, tx: &Transaction<'_>, tokens: &[FencingToken]) -> Result<(), FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        if tx.is_autocommit() {
            return Err(has_ended());
        }
        durable::refuse_off(tx)?;
        row::lock(tx)?;
        let mut read = BTreeMap::new();
        for token in &tokens {
            if let Entry::Vacant(place) = read.entry(token.scope()) {
                place.insert(row::read(tx, token.scope())?);
            }
        }
        for (scope, row) in decide(&tokens, &read)? {
            row::write(tx, &scope, row)?;
        }
        Ok(())
    }

    /// Checks the tokens and runs the write in one immediate transaction; commits when it answers `Ok`, rolls back when
    /// it does not.
    ///
    /// # Errors
    /// As [`SqliteFence::check_all`], and whatever the write answers. [`FenceError::Busy`] may be the commit's own answer,
    /// after the write has run: nothing of it is in the database then, and what it did elsewhere has happened. A commit that
    /// failed with [`FenceError::Store`] is unknown; so is a write whose transaction had ended before.
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
        let doing = "committing the write";
        if tx.is_autocommit() {
            return Err(FenceError::store(doing, Ended).into());
        }
        tx.commit().map_err(failed(doing))?;
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
pub(super) fn raise_row(
    tx: &Transaction<'_>,
    token: &FencingToken,
    decide: impl FnOnce(Option<HighWater>, &FencingToken) -> Result<HighWater, FenceError>,
) -> Result<(), FenceError> {
    let before = row::read_for(tx, token)?;
    row::write_raised(tx, token.scope(), decide(before, token)?)
}
