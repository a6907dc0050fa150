//! Effects recorded in SQLite, beside the fence.

use super::failure::failed;
use super::{SqliteFence, durable};
use crate::effects::{
    Claim, Delivery, EffectError, EffectKey, MAX_OPEN, Outcome, Record, Resolution, Sending, State, rule,
};
use crate::{FenceError, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

/// The state is a word, so that people can read it and put a row right by hand. Times are for people only.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS main.ringfence_effects (
    key      TEXT NOT NULL PRIMARY KEY,
    kind     TEXT NOT NULL,
    scope    TEXT NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('intended', 'sending', 'done', 'refused', 'held')),
    attempts INTEGER NOT NULL,
    epoch    INTEGER,
    payload  TEXT NOT NULL,
    outcome  TEXT NOT NULL,
    intended_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    changed_at  TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS main.ringfence_effects_open ON ringfence_effects (scope, kind, key)
    WHERE state IN ('intended', 'sending', 'held');
";

const COLUMNS: &str = "key, scope, state, attempts, epoch, payload, outcome";

/// The effects of one kind, recorded in a SQLite database with a fence. See [`effects`](crate::effects).
///
/// A claim is durable before it answers, as a raise is, whatever `synchronous` says.
#[derive(Clone, Debug)]
pub struct SqliteEffects {
    fence: SqliteFence,
    kind: String,
    delivery: Delivery,
}

impl SqliteEffects {
    /// Makes the table where it is missing. `kind` is part of each key, such as `charge`.
    ///
    /// # Errors
    /// As [`SqliteFence::install`]; [`EffectError::Unfit`] for a kind that fits into no key.
    pub fn install(
        conn: &Connection,
        fence: &SqliteFence,
        kind: &str,
        delivery: Delivery,
    ) -> Result<SqliteEffects, EffectError> {
        let doing = "installing the effects";
        rule::fit_for_a_kind(kind)?;
        durable::durably(conn, doing, |tx| tx.execute_batch(TABLE).map_err(failed(doing)))?;
        Ok(SqliteEffects { fence: fence.clone(), kind: kind.to_owned(), delivery })
    }

    /// Records that something is to be done, in the transaction of the work that it is of. Checks the fence.
    ///
    /// The same operation with the same payload may be intended again: it is one effect.
    ///
    /// # Errors
    /// As [`SqliteFence::check`], [`EffectError::Unfit`], [`EffectError::PayloadDiffers`], [`EffectError::TooMany`]. Roll
    /// back then.
    pub fn intend(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        operation: &str,
        payload: &str,
    ) -> Result<EffectKey, EffectError> {
        let key = EffectKey::new(token, &self.kind, operation)?;
        self.fence.check(tx, token)?;
        let there = read(tx, &self.kind, &key)?;
        let open = if there.is_some() { 0 } else { count_open(tx, token.scope())? };
        if let Some(record) = rule::intend(there.as_ref(), token, &key, payload, open)? {
            insert(tx, &self.kind, &record)?;
        }
        Ok(key)
    }

    /// Says that this owner makes the call now, in a transaction of its own, durably.
    ///
    /// The owner that claims again what it has claimed before says that the earlier call is over, and its outcome unknown.
    ///
    /// # Errors
    /// As [`SqliteFence::check`] and, for durability, [`SqliteFence::raise`]; [`EffectError::NotIntended`],
    /// [`EffectError::OtherScope`]. After [`FenceError::Store`] send nothing; claim again.
    pub fn claim(
        &self,
        conn: &Connection,
        token: &FencingToken,
        key: &EffectKey,
    ) -> Result<Claim, EffectError> {
        self.durably(conn, token, |tx| self.claimed(tx, token, must_be(read(tx, &self.kind, key)?, key)?))
    }

    /// Claims the next effect of the scope that this owner has not claimed yet: what was never sent, and what another owner
    /// has left without an outcome. `None` when there is no more.
    ///
    /// # Errors
    /// As [`SqliteEffects::claim`].
    pub fn claim_next(&self, conn: &Connection, token: &FencingToken) -> Result<Option<Claim>, EffectError> {
        self.durably(conn, token, |tx| {
            let next = next(tx, &self.kind, token)?;
            next.map(|record| self.claimed(tx, token, record)).transpose()
        })
    }

    /// Records what a call came to, in the user's transaction. Checks the fence.
    ///
    /// # Errors
    /// As [`SqliteFence::check`]: a replaced owner records nothing, and its successor finds the call as one that may have
    /// happened. [`EffectError::NotClaimed`] when this call is not the one under way any more. Roll back then.
    pub fn settle(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        sending: &Sending,
        outcome: Outcome<'_>,
    ) -> Result<Record, EffectError> {
        self.changed(tx, token, sending.key(), |record| {
            rule::settle(record, token, sending, self.delivery, outcome)
        })
    }

    /// Records what a person has found out about an effect that is held, in the user's transaction. Checks the fence.
    ///
    /// # Errors
    /// As [`SqliteFence::check`]; [`EffectError::NotHeld`], [`EffectError::NotIntended`], [`EffectError::OtherScope`].
    pub fn resolve(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        key: &EffectKey,
        resolution: Resolution<'_>,
    ) -> Result<Record, EffectError> {
        self.changed(tx, token, key, |record| rule::resolve(record, token, resolution))
    }

    /// Takes over an effect that is recorded under another partition of the keyspace, in the user's transaction. For the owner
    /// of a partition that was split off, which has raised the fences of its ancestors. Checks the fence.
    ///
    /// # Errors
    /// As [`SqliteFence::check`]; [`EffectError::OtherScope`] for another keyspace; [`EffectError::NotIntended`].
    pub fn adopt(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        key: &EffectKey,
    ) -> Result<Record, EffectError> {
        self.changed(tx, token, key, |record| rule::adopt(record, token))
    }

    /// One effect.
    ///
    /// # Errors
    /// [`FenceError::Busy`], [`FenceError::Store`], [`FenceError::Corrupt`].
    pub fn find(&self, conn: &Connection, key: &EffectKey) -> Result<Option<Record>, EffectError> {
        Ok(read(conn, &self.kind, key)?)
    }

    /// The effects of a scope in this state, in the order of their keys, at most so many.
    ///
    /// # Errors
    /// As [`SqliteEffects::find`].
    pub fn list(
        &self,
        conn: &Connection,
        scope: &Scope,
        state: State,
        limit: u32,
    ) -> Result<Vec<Record>, EffectError> {
        let doing = "listing the effects";
        let sql = format!(
            "SELECT {COLUMNS} FROM main.ringfence_effects
              WHERE scope = ?1 AND kind = ?2 AND state = ?3 ORDER BY key LIMIT ?4"
        );
        let mut statement = conn.prepare(&sql).map_err(failed(doing))?;
        let rows = statement
            .query_map(params![scope.to_string(), self.kind, state.name(), limit], |row| Ok(decode(row)))
            .map_err(failed(doing))?;
        let records: Result<Vec<_>, _> = rows.map(|row| row.map_err(failed(doing))?).collect();
        Ok(records?)
    }

    fn durably<T>(
        &self,
        conn: &Connection,
        token: &FencingToken,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, EffectError>,
    ) -> Result<T, EffectError> {
        durable::durably(conn, "claiming an effect", |tx| {
            self.fence.check(tx, token)?;
            work(tx)
        })
    }

    fn claimed(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        record: Record,
    ) -> Result<Claim, EffectError> {
        let (record, send) = rule::claim(record, token, self.delivery)?;
        update(tx, &record)?;
        Ok(rule::claimed(record, send))
    }

    fn changed(
        &self,
        tx: &Transaction<'_>,
        token: &FencingToken,
        key: &EffectKey,
        change: impl FnOnce(Record) -> Result<Record, EffectError>,
    ) -> Result<Record, EffectError> {
        self.fence.check(tx, token)?;
        let record = change(must_be(read(tx, &self.kind, key)?, key)?)?;
        update(tx, &record)?;
        Ok(record)
    }
}

fn must_be(record: Option<Record>, key: &EffectKey) -> Result<Record, EffectError> {
    record.ok_or_else(|| EffectError::NotIntended { key: key.clone() })
}

fn read(conn: &Connection, kind: &str, key: &EffectKey) -> Result<Option<Record>, FenceError> {
    let sql = format!("SELECT {COLUMNS} FROM main.ringfence_effects WHERE key = ?1 AND kind = ?2");
    one(conn, &sql, params![key.as_str(), kind])
}

/// Never sent, or left by an owner before this one. What this one has claimed itself is under way.
fn next(conn: &Connection, kind: &str, token: &FencingToken) -> Result<Option<Record>, FenceError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM main.ringfence_effects
          WHERE scope = ?1 AND kind = ?2 AND state IN ('intended', 'sending')
            AND (state = 'intended' OR epoch < ?3)
          ORDER BY key LIMIT 1"
    );
    one(conn, &sql, params![token.scope().to_string(), kind, token.epoch().get().cast_signed()])
}

fn one(
    conn: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> Result<Option<Record>, FenceError> {
    let doing = "reading an effect";
    let mut statement = conn.prepare_cached(sql).map_err(failed(doing))?;
    let found = statement.query_row(parameters, |row| Ok(decode(row))).optional().map_err(failed(doing))?;
    found.transpose()
}

fn count_open(conn: &Connection, scope: &Scope) -> Result<u64, FenceError> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM main.ringfence_effects
                WHERE scope = ?1 AND state IN ('intended', 'sending', 'held') LIMIT ?2)";
    conn.query_row(sql, params![scope.to_string(), MAX_OPEN.cast_signed()], |row| row.get(0))
        .map_err(failed("counting the effects"))
}

fn insert(tx: &Transaction<'_>, kind: &str, record: &Record) -> Result<(), FenceError> {
    tx.execute(
        "INSERT INTO main.ringfence_effects (key, kind, scope, state, attempts, payload, outcome)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, '')",
        params![
            record.key().as_str(),
            kind,
            record.scope().to_string(),
            record.state().name(),
            record.payload()
        ],
    )
    .map(|_| ())
    .map_err(failed("recording an effect"))
}

fn update(tx: &Transaction<'_>, record: &Record) -> Result<(), FenceError> {
    tx.execute(
        "UPDATE main.ringfence_effects
            SET scope = ?2, state = ?3, attempts = ?4, epoch = ?5, outcome = ?6, changed_at = CURRENT_TIMESTAMP
          WHERE key = ?1",
        params![
            record.key().as_str(),
            record.scope().to_string(),
            record.state().name(),
            record.attempts(),
            record.epoch().map(|epoch| epoch.get().cast_signed()),
            record.outcome(),
        ],
    )
    .map(|_| ())
    .map_err(failed("recording an effect"))
}

/// Every value is taken for hostile: somebody may have edited it.
fn decode(row: &Row<'_>) -> Result<Record, FenceError> {
    let key: String = row.get(0).map_err(failed("reading an effect"))?;
    let damaged = |found: String| FenceError::Corrupt {
        place: format!("the row of {} in ringfence_effects", key.escape_default()),
        found,
    };
    let text = |column: usize| row.get::<_, String>(column).map_err(|error| damaged(error.to_string()));
    let scope = text(1)?.parse::<Scope>().map_err(|error| damaged(error.to_string()))?;
    let state = State::named(&text(2)?).ok_or_else(|| damaged("a state that is none".into()))?;
    let attempts = row.get(3).map_err(|error| damaged(error.to_string()))?;
    let epoch = row.get::<_, Option<u64>>(4).map_err(|error| damaged(error.to_string()))?;
    let epoch = epoch.map(Epoch::new).transpose().map_err(|error| damaged(error.to_string()))?;
    Ok(Record::stored(EffectKey::stored(key.clone()), scope, state, attempts, epoch, text(5)?, text(6)?))
}
