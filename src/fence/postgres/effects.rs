//! Effects recorded in PostgreSQL, beside the fence.

use super::connection::{Call, Open};
use super::failure::Failure;
use super::statement::{Argument, Statement};
use super::{Begin, Connection, InTransaction, PostgresFence};
use crate::effects::{
    Claim, Delivery, EffectError, EffectKey, MAX_OPEN, Outcome, Record, Resolution, Sending, State, rule,
};
use crate::{FenceError, FencingToken};
use ringfence_core::ids::{Epoch, Scope};

/// A row as one text, because every call of the fence answers one: words, and then two texts, the first with its length.
macro_rules! row {
    () => {
        "concat_ws(' ', key, scope, state, attempts, coalesce(epoch, 0), length(payload), payload || outcome)"
    };
}
/// The effects of one kind, recorded in a PostgreSQL database with a fence. See [`effects`](crate::effects).
///
/// A claim waits for the disk, whatever `synchronous_commit` says, as a raise does. Several connections of one owner may
/// claim at one time: each effect is claimed by one of them.
#[derive(Clone, Debug)]
pub struct PostgresEffects {
    fence: PostgresFence,
    kind: String,
    delivery: Delivery,
}

impl PostgresEffects {
    /// The table `ringfence.effects`, as one text for `psql -1` or a migration tool.
    pub const MIGRATION_SQL: &'static str = include_str!("migrations/0002_effects.sql");

    /// Makes the table where it is missing. The fence has to be installed before. `kind` is part of each key, such as `charge`.
    ///
    /// # Errors
    /// [`FenceError::NotInstalled`] without a fence; [`FenceError::Busy`], [`FenceError::Store`]; [`EffectError::Unfit`] for a
    /// kind that fits into no key.
    pub async fn install(
        mut conn: impl Connection,
        fence: &PostgresFence,
        kind: &str,
        delivery: Delivery,
    ) -> Result<PostgresEffects, EffectError> {
        rule::fit_for_a_kind(kind)?;
        // Asked first, because a role that may not make tables may use one that is there.
        let there = ask(
            &mut conn,
            "looking for the effects",
            "SELECT to_regclass('ringfence.effects')::text",
            vec![],
        );
        if there.await?.is_none() {
            let made = conn.batch(PostgresEffects::MIGRATION_SQL).await;
            made.map_err(|failure| failure.into_error("installing the effects", &[]))?;
        }
        Ok(PostgresEffects { fence: fence.clone(), kind: kind.to_owned(), delivery })
    }

    /// Records that something is to be done, in the transaction of the work that it is of. Checks the fence.
    ///
    /// The same operation with the same payload may be intended again: it is one effect.
    ///
    /// # Errors
    /// As [`PostgresFence::check`], [`EffectError::Unfit`], [`EffectError::PayloadDiffers`], [`EffectError::TooMany`]. Roll
    /// back then.
    pub async fn intend(
        &self,
        mut tx: impl InTransaction,
        token: &FencingToken,
        operation: &str,
        payload: &str,
    ) -> Result<EffectKey, EffectError> {
        let key = EffectKey::new(token, &self.kind, operation)?;
        self.check(&mut tx, token).await?;
        let there = self.read(&mut tx, &key).await?;
        let open = if there.is_some() { 0 } else { count_open(&mut tx, token.scope()).await? };
        let Some(record) = rule::intend(there.as_ref(), token, &key, payload, open)? else { return Ok(key) };
        if !insert(&mut tx, &self.kind, &record).await? {
            // Another connection of this owner has intended the same meanwhile.
            let there = must_be(self.read(&mut tx, &key).await?, &key)?;
            rule::intend(Some(&there), token, &key, payload, open)?;
        }
        Ok(key)
    }

    /// Says that this owner makes the call now, in a transaction of its own, durably.
    ///
    /// The owner that claims again what it has claimed before says that the earlier call is over, and its outcome unknown.
    ///
    /// # Errors
    /// As [`PostgresFence::check`]; [`EffectError::NotIntended`], [`EffectError::OtherScope`]. After [`FenceError::Store`] send
    /// nothing; claim again.
    pub async fn claim<C: Begin>(
        &self,
        conn: &mut C,
        token: &FencingToken,
        key: &EffectKey,
    ) -> Result<Claim, EffectError> {
        let claim = self.fence.write(conn, std::slice::from_ref(token), async |tx| {
            let mut tx = Own(tx);
            let record = must_be(self.read(&mut tx, key).await?, key)?;
            self.claimed(&mut tx, token, record).await
        });
        claim.await
    }

    /// Claims the next effect of the scope that this owner has not claimed yet: what was never sent, and what another owner
    /// has left without an outcome. `None` when there is no more, or another connection of this owner is at it.
    ///
    /// # Errors
    /// As [`PostgresEffects::claim`].
    pub async fn claim_next<C: Begin>(
        &self,
        conn: &mut C,
        token: &FencingToken,
    ) -> Result<Option<Claim>, EffectError> {
        let claim = self.fence.write(conn, std::slice::from_ref(token), async |tx| {
            let mut tx = Own(tx);
            match next(&mut tx, &self.kind, token).await? {
                Some(record) => self.claimed(&mut tx, token, record).await.map(Some),
                None => Ok(None),
            }
        });
        claim.await
    }

    /// Records what a call came to, in the user's transaction. Checks the fence.
    ///
    /// # Errors
    /// As [`PostgresFence::check`]: a replaced owner records nothing, and its successor finds the call as one that may have
    /// happened. [`EffectError::NotClaimed`] when this call is not the one under way any more. Roll back then.
    pub async fn settle(
        &self,
        tx: impl InTransaction,
        token: &FencingToken,
        sending: &Sending,
        outcome: Outcome<'_>,
    ) -> Result<Record, EffectError> {
        let settled = |record| rule::settle(record, token, sending, self.delivery, outcome);
        self.changed(tx, token, sending.key(), settled).await
    }

    /// Records what a person has found out about an effect that is held, in the user's transaction. Checks the fence.
    ///
    /// # Errors
    /// As [`PostgresFence::check`]; [`EffectError::NotHeld`], [`EffectError::NotIntended`], [`EffectError::OtherScope`].
    pub async fn resolve(
        &self,
        tx: impl InTransaction,
        token: &FencingToken,
        key: &EffectKey,
        resolution: Resolution<'_>,
    ) -> Result<Record, EffectError> {
        self.changed(tx, token, key, |record| rule::resolve(record, token, resolution)).await
    }

    /// Takes over an effect that is recorded under another partition of the keyspace, in the user's transaction. For the owner
    /// of a partition that was split off, which has raised the fences of its ancestors. Checks the fence.
    ///
    /// # Errors
    /// As [`PostgresFence::check`]; [`EffectError::OtherScope`] for another keyspace; [`EffectError::NotIntended`].
    pub async fn adopt(
        &self,
        tx: impl InTransaction,
        token: &FencingToken,
        key: &EffectKey,
    ) -> Result<Record, EffectError> {
        self.changed(tx, token, key, |record| rule::adopt(record, token)).await
    }

    /// One effect, in a transaction, where it is locked until that ends. `SELECT * FROM ringfence.effects` lists them.
    ///
    /// # Errors
    /// [`FenceError::Busy`], [`FenceError::Store`], [`FenceError::Corrupt`].
    pub async fn find(
        &self,
        mut tx: impl InTransaction,
        key: &EffectKey,
    ) -> Result<Option<Record>, EffectError> {
        Ok(self.read(&mut tx, key).await?)
    }

    async fn check(&self, tx: &mut impl Ask, token: &FencingToken) -> Result<(), FenceError> {
        let tokens = std::slice::from_ref(token);
        let statement = Statement::check(tokens);
        let doing = statement.doing;
        tx.ask(statement).await.map(|_| ()).map_err(|failure| failure.into_error(doing, tokens))
    }

    async fn read(&self, tx: &mut impl Ask, key: &EffectKey) -> Result<Option<Record>, FenceError> {
        let sql = concat!(
            "SELECT max(r) FROM (SELECT ",
            row!(),
            " AS r FROM ringfence.effects",
            " WHERE key = $1 AND kind = $2 FOR UPDATE) AS locked"
        );
        let arguments = vec![Argument::Text(key.to_string()), Argument::Text(self.kind.clone())];
        ask(tx, "reading an effect", sql, arguments).await?.map(|text| decode(&text)).transpose()
    }

    async fn claimed(
        &self,
        tx: &mut impl Ask,
        token: &FencingToken,
        record: Record,
    ) -> Result<Claim, EffectError> {
        let (record, send) = rule::claim(record, token, self.delivery)?;
        // What is sent must be known to whoever comes next, after a power cut too.
        let durably =
            "SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
                              THEN set_config('synchronous_commit', 'on', true) END";
        ask(tx, "claiming an effect", durably, vec![]).await?;
        update(tx, &record).await?;
        Ok(rule::claimed(record, send))
    }

    async fn changed(
        &self,
        mut tx: impl InTransaction,
        token: &FencingToken,
        key: &EffectKey,
        change: impl FnOnce(Record) -> Result<Record, EffectError>,
    ) -> Result<Record, EffectError> {
        self.check(&mut tx, token).await?;
        let record = change(must_be(self.read(&mut tx, key).await?, key)?)?;
        update(&mut tx, &record).await?;
        Ok(record)
    }
}

/// A user's transaction, or one that was begun here.
trait Ask {
    async fn ask(&mut self, statement: Statement) -> Result<Option<String>, Failure>;
}

impl<T: Call> Ask for T {
    async fn ask(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        self.call(statement).await
    }
}

struct Own<'t, T>(&'t mut T);

impl<T: Open> Call for Own<'_, T> {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        self.0.call(statement).await
    }
}

async fn ask(
    tx: &mut impl Ask,
    doing: &'static str,
    sql: &'static str,
    arguments: Vec<Argument>,
) -> Result<Option<String>, FenceError> {
    let answer = tx.ask(Statement { doing, sql, arguments, alone: false }).await;
    answer.map_err(|failure| failure.into_error(doing, &[]))
}

fn must_be(record: Option<Record>, key: &EffectKey) -> Result<Record, EffectError> {
    record.ok_or_else(|| EffectError::NotIntended { key: key.clone() })
}

/// Never sent, or left by an owner before this one. What this one has claimed itself is under way.
async fn next(tx: &mut impl Ask, kind: &str, token: &FencingToken) -> Result<Option<Record>, FenceError> {
    let sql = concat!(
        "SELECT max(r) FROM (SELECT ",
        row!(),
        " AS r FROM ringfence.effects",
        " WHERE scope = $1 AND kind = $2 AND state IN ('intended', 'sending')",
        " AND (state = 'intended' OR epoch < $3)",
        " ORDER BY key COLLATE \"C\" LIMIT 1 FOR UPDATE SKIP LOCKED) AS locked"
    );
    let arguments = vec![
        Argument::Text(token.scope().to_string()),
        Argument::Text(kind.to_owned()),
        Argument::Number(Some(token.epoch().get().cast_signed())),
    ];
    ask(tx, "reading an effect", sql, arguments).await?.map(|text| decode(&text)).transpose()
}

async fn count_open(tx: &mut impl Ask, scope: &Scope) -> Result<u64, FenceError> {
    let doing = "counting the effects";
    let sql = "SELECT count(*)::text FROM (SELECT FROM ringfence.effects
                WHERE scope = $1 AND state IN ('intended', 'sending', 'held') LIMIT $2) AS open";
    let limit = Argument::Number(Some(MAX_OPEN.cast_signed()));
    let count = ask(tx, doing, sql, vec![Argument::Text(scope.to_string()), limit]).await?;
    count.and_then(|text| text.parse().ok()).ok_or_else(|| strange(doing))
}

/// Whether it was not there.
async fn insert(tx: &mut impl Ask, kind: &str, record: &Record) -> Result<bool, FenceError> {
    let doing = "recording an effect";
    let sql = "WITH made AS (
                   INSERT INTO ringfence.effects (key, kind, scope, payload) VALUES ($1, $2, $3, $4)
                   ON CONFLICT DO NOTHING RETURNING 1)
               SELECT count(*)::text FROM made";
    let arguments = vec![
        Argument::Text(record.key().to_string()),
        Argument::Text(kind.to_owned()),
        Argument::Text(record.scope().to_string()),
        Argument::Text(record.payload().to_owned()),
    ];
    Ok(ask(tx, doing, sql, arguments).await?.as_deref() == Some("1"))
}

async fn update(tx: &mut impl Ask, record: &Record) -> Result<(), FenceError> {
    let doing = "recording an effect";
    let sql = "WITH changed AS (
                   UPDATE ringfence.effects
                      SET scope = $2, state = $3, attempts = $4, epoch = $5, outcome = $6, changed_at = clock_timestamp()
                    WHERE key = $1 RETURNING 1)
               SELECT count(*)::text FROM changed";
    let arguments = vec![
        Argument::Text(record.key().to_string()),
        Argument::Text(record.scope().to_string()),
        Argument::Text(record.state().name().to_owned()),
        Argument::Number(Some(i64::from(record.attempts()))),
        Argument::Number(record.epoch().map(|epoch| epoch.get().cast_signed())),
        Argument::Text(record.outcome().to_owned()),
    ];
    match ask(tx, doing, sql, arguments).await?.as_deref() {
        Some("1") => Ok(()),
        _ => Err(strange(doing)),
    }
}

fn strange(doing: &'static str) -> FenceError {
    FenceError::store(doing, std::io::Error::other("the database answered what it does not answer"))
}

/// Every value is taken for hostile: somebody may have edited it.
fn decode(text: &str) -> Result<Record, FenceError> {
    let damaged = || FenceError::Corrupt {
        place: "a row of ringfence.effects".into(),
        found: format!("{:?}", text.chars().take(80).collect::<String>()),
    };
    let mut words = text.splitn(7, ' ');
    let mut word = || words.next().ok_or_else(damaged);
    let (key, scope, state, attempts, epoch, length, rest) =
        (word()?, word()?, word()?, word()?, word()?, word()?, word()?);
    let length: usize = length.parse().map_err(|_| damaged())?;
    let end = rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(length).ok_or_else(damaged)?;
    let (payload, outcome) = rest.split_at(end);
    let epoch: u64 = epoch.parse().map_err(|_| damaged())?;
    Ok(Record::stored(
        EffectKey::stored(key.to_owned()),
        scope.parse().map_err(|_| damaged())?,
        State::named(state).ok_or_else(damaged)?,
        attempts.parse().map_err(|_| damaged())?,
        (epoch > 0).then(|| Epoch::new(epoch)).transpose().map_err(|_| damaged())?,
        payload.to_owned(),
        outcome.to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f096_a_row_is_read_back_exactly_and_a_damaged_one_is_an_error() {
        let record = decode("prod/o/k/1 o/17 sending 2 33 4 ä b\u{1f980}c d").unwrap();
        assert_eq!((record.payload(), record.outcome()), ("ä b\u{1f980}", "c d"));
        assert_eq!((record.attempts(), record.epoch().map(Epoch::get)), (2, Some(33)));
        assert_eq!(decode("prod/o/k/1 o/17 intended 0 0 0 ").unwrap().epoch(), None);
        for damaged in [
            "",
            "prod/o/k/1 o/17 sending 2 33 4",
            "prod/o/k/1 o/17 sending 2 33 4 abc",
            "prod/o/k/1 o/17 sent 2 33 0 ",
            "prod/o/k/1 nowhere sending 2 33 0 ",
            "prod/o/k/1 o/17 sending -2 33 0 ",
            "prod/o/k/1 o/17 sending 2 9007199254740992 0 ",
        ] {
            assert!(matches!(decode(damaged), Err(FenceError::Corrupt { .. })), "{damaged}");
        }
    }
}
