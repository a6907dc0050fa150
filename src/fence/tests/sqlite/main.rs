//! The fence in SQLite: the conformance suite, then case by case.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod corrupt;
mod crash;
mod effects;
mod flawed;
mod locking;
mod page;
#[path = "../shared/payments.rs"]
mod payments;
mod raiser;
mod recipe;
mod stale;
#[path = "../shared/stale.rs"]
mod storm;
mod subject;
mod with_sqlx;

use ringfence_fence::conformance::{Outcome, run};
use subject::SqliteSubject;

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_sqlite_conforms_with_every_journal() {
    // At one time: the rules wait more than they compute.
    std::thread::scope(|scope| {
        for journal in ["wal", "delete", "truncate"] {
            scope.spawn(move || {
                let report = run(&SqliteSubject { journal });
                let held = report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held);
                assert!(held, "{journal}\n{report}");
            });
        }
    });
}
