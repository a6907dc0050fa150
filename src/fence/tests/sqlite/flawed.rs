//! The negative control in SQL: two guards that people write, each found by its rule.

use crate::subject::{SqliteHandle, SqliteStore, SqliteSubject, put};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// Reads the fence, decides, and opens the transaction afterwards.
    SelectThenWrite,
    /// `UPDATE .. WHERE fence <= :token` on each row, and no row of the scope.
    EachRow,
}

struct Flawed(Guard);

struct FlawedStore(Guard, SqliteStore);

struct FlawedHandle(Guard, SqliteHandle);

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        let mut store = SqliteSubject { journal: "wal" }.fresh(cluster)?;
        store
            .connection()
            .execute_batch("ALTER TABLE texts ADD COLUMN fence INTEGER NOT NULL DEFAULT 0")
            .unwrap();
        Ok(FlawedStore(self.0, store))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        Ok(FlawedHandle(self.0, self.1.open()?))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        self.1.crash()
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
        self.1.raise(token)
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
        }
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        self.1.data()
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.1.highest(scope)
    }
}

#[test]
fn t57_guards_that_leave_a_gap_are_found() {
    for (guard, rule) in [
        (Guard::SelectThenWrite, Rule::OneStep),
        (Guard::EachRow, Rule::UntouchedRowsFenced),
        (Guard::EachRow, Rule::RaiseFences),
    ] {
        let outcome = run_rule(&Flawed(guard), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{guard:?} was not found by \"{rule}\": {outcome:?}");
    }
    // And they look right where no gap is tried.
    assert_eq!(run_rule(&Flawed(Guard::SelectThenWrite), Rule::OlderRefused), Outcome::Held);
    assert_eq!(run_rule(&Flawed(Guard::EachRow), Rule::EqualAccepted), Outcome::Held);
}
