//! The negative control in SQL: guards that people write, each found by its rule.

use crate::subject::{SqliteHandle, SqliteStore, SqliteSubject, put};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::collections::BTreeMap;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// Reads the fence, decides, and opens the transaction afterwards.
    SelectThenWrite,
    /// `UPDATE .. WHERE fence <= :token` on each row, and no row of the scope.
    EachRow,
    /// A fence of its own, checked with `epoch < :token`.
    Strict,
    /// A fence of its own, checked with `epoch = :token`.
    Equality,
    /// A fence of its own, which takes whatever is raised.
    LastOpener,
    /// A fence of its own in a file that a restart loses, as in a temporary folder.
    ForgetsAtCrash,
    /// A fence of its own, and a clean-up that deletes from every table.
    DeletedOnCleanUp,
}

impl Guard {
    /// The condition of the check in SQL, for the guards with a fence of their own: `?2` is the token's epoch.
    fn check(self) -> &'static str {
        match self {
            Guard::Strict => "epoch < ?2",
            Guard::Equality => "epoch = ?2",
            _ => "epoch <= ?2",
        }
    }

    fn raise(self) -> &'static str {
        if matches!(self, Guard::LastOpener) { "true" } else { "epoch <= ?2" }
    }
}

const OWN_FENCE: &str =
    "CREATE TABLE IF NOT EXISTS side.own_fence (scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL)";

struct Flawed(Guard);

/// With the folder of the file for the guards that have a fence of their own.
struct FlawedStore(Guard, SqliteStore, TempDir);

struct FlawedHandle(Guard, SqliteHandle);

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        let mut store = SqliteSubject { journal: "wal" }.fresh(cluster)?;
        store
            .connection()
            .execute_batch("ALTER TABLE texts ADD COLUMN fence INTEGER NOT NULL DEFAULT 0")
            .unwrap();
        Ok(FlawedStore(self.0, store, tempfile::tempdir().unwrap()))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        let mut handle = self.1.open()?;
        let side = self.2.path().join("fence");
        handle.connection().execute("ATTACH ?1 AS side", [side.to_str().unwrap()]).unwrap();
        handle.connection().execute_batch(OWN_FENCE).unwrap();
        Ok(FlawedHandle(self.0, handle))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        if matches!(self.0, Guard::ForgetsAtCrash) {
            self.2 = tempfile::tempdir().unwrap();
        }
        self.1.crash()
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        if matches!(self.0, Guard::DeletedOnCleanUp) {
            let side = Connection::open(self.2.path().join("fence")).unwrap();
            side.execute("DELETE FROM own_fence", ()).unwrap();
        }
        self.1.clean_up()
    }
}

impl FlawedHandle {
    fn select_then_write(
        &mut self,
        token: &FencingToken,
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let highest = self.1.highest(token.scope())?;
        if let Some(highest) = highest.filter(|highest| *highest > token.epoch()) {
            return Err(Fenced::new(token.clone(), highest).into());
        }
        paused();
        let tx = self.1.connection().transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        pairs.iter().try_for_each(|(key, value)| put(&tx, key, value))?;
        tx.commit().unwrap();
        Ok(())
    }

    fn each_row(
        &mut self,
        token: &FencingToken,
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let tx = self.1.connection().transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        paused();
        for (key, value) in pairs {
            let changed = upsert(&tx, key, value, token.epoch());
            if changed == 0 {
                let seen: i64 =
                    tx.query_row("SELECT fence FROM texts WHERE key = ?1", [key], |r| r.get(0)).unwrap();
                let seen = Epoch::new(seen.cast_unsigned()).unwrap();
                return Err(Fenced::new(token.clone(), seen).into());
            }
        }
        tx.commit().unwrap();
        Ok(())
    }
}

/// Runs a guard with a fence of its own in a transaction, and the write behind it.
fn own_fence(
    conn: &mut Connection,
    token: &FencingToken,
    guard: &str,
    write: impl FnOnce(&Transaction<'_>) -> Result<(), FenceError>,
) -> Result<(), FenceError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let named = (token.scope().to_string(), token.epoch().get().cast_signed());
    if tx.execute(guard, named.clone()).unwrap() == 0 {
        let seen = tx.query_row("SELECT epoch FROM side.own_fence WHERE scope = ?1", [named.0], |r| {
            r.get::<_, u64>(0)
        });
        let not_raised = || FenceError::NotRaised { token: token.clone() };
        let seen = Epoch::new(seen.map_err(|_| not_raised())?).unwrap();
        return Err(Fenced::new(token.clone(), seen).into());
    }
    write(&tx)?;
    tx.commit().unwrap();
    Ok(())
}

fn upsert(conn: &Connection, key: &str, value: &str, epoch: Epoch) -> usize {
    conn.execute(
        "INSERT INTO texts (key, value, fence) VALUES (?1, ?2, ?3)
         ON CONFLICT (key) DO UPDATE SET value = ?2, fence = ?3 WHERE fence <= ?3",
        (key, value, epoch.get().cast_signed()),
    )
    .unwrap()
}

impl Handle for FlawedHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        if matches!(self.0, Guard::SelectThenWrite | Guard::EachRow) {
            return self.1.raise(token);
        }
        let raise = format!(
            "INSERT INTO side.own_fence VALUES (?1, ?2) ON CONFLICT (scope) DO UPDATE SET epoch = ?2 WHERE {}",
            self.0.raise()
        );
        own_fence(self.1.connection(), token, &raise, |_| Ok(()))
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        match self.0 {
            Guard::SelectThenWrite => self.select_then_write(&tokens[0], pairs, paused),
            Guard::EachRow => self.each_row(&tokens[0], pairs, paused),
            guard => {
                let check =
                    format!("UPDATE side.own_fence SET epoch = ?2 WHERE scope = ?1 AND {}", guard.check());
                own_fence(self.1.connection(), &tokens[0], &check, |tx| {
                    paused();
                    pairs.iter().try_for_each(|(key, value)| put(tx, key, value))
                })
            }
        }
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        self.1.data()
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        if matches!(self.0, Guard::SelectThenWrite | Guard::EachRow) {
            return self.1.highest(scope);
        }
        let seen = self.1.connection().query_row(
            "SELECT epoch FROM side.own_fence WHERE scope = ?1",
            [scope.to_string()],
            |row| row.get::<_, u64>(0),
        );
        Ok(seen.ok().map(|epoch| Epoch::new(epoch).unwrap()))
    }
}

#[test]
fn t57_guards_that_leave_a_gap_are_found() {
    for (guard, rule) in [
        (Guard::SelectThenWrite, Rule::OneStep),
        (Guard::EachRow, Rule::UntouchedRowsFenced),
        (Guard::EachRow, Rule::RaiseFences),
        (Guard::Strict, Rule::EqualAccepted),
        (Guard::Equality, Rule::NewerAccepted),
        (Guard::LastOpener, Rule::ForwardOnly),
        (Guard::ForgetsAtCrash, Rule::SurvivesCrash),
        (Guard::DeletedOnCleanUp, Rule::SurvivesCleanUp),
    ] {
        let outcome = run_rule(&Flawed(guard), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{guard:?} was not found by \"{rule}\": {outcome:?}");
    }
    // And they look right where nobody tries that.
    for (guard, rule) in [
        (Guard::SelectThenWrite, Rule::OlderRefused),
        (Guard::EachRow, Rule::EqualAccepted),
        (Guard::Strict, Rule::ForwardOnly),
        (Guard::Equality, Rule::OlderRefused),
        (Guard::LastOpener, Rule::OneStep),
        (Guard::ForgetsAtCrash, Rule::UntouchedRowsFenced),
        (Guard::DeletedOnCleanUp, Rule::SurvivesCrash),
        (Guard::DeletedOnCleanUp, Rule::OneStep),
    ] {
        assert_eq!(run_rule(&Flawed(guard), rule), Outcome::Held, "{guard:?}: {rule}");
    }
}
