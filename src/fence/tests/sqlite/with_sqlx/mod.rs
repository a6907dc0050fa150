//! The same fence through sqlx: the conformance suite, what is particular to it, and both clients on one file.

mod cases;
mod stale;
mod subject;
mod together;

use ringfence_fence::conformance::{Outcome, Rule, run, run_rule};
use subject::{SqlxSubject, Way};

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_sqlite_conforms_with_sqlx() {
    // At one time: the rules wait more than they compute.
    std::thread::scope(|scope| {
        for (journal, way) in [
            ("wal", Way::Helper),
            // As people write it who do not use the helper, and do not say IMMEDIATE.
            ("wal", Way::Deferred),
            ("delete", Way::Deferred),
        ] {
            scope.spawn(move || {
                let report = run(&SqlxSubject { journal, way });
                let held = report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held);
                assert!(held, "{journal} {way:?}\n{report}");
            });
        }
    });
}

#[test]
fn t57_a_check_that_takes_no_lock_is_found_with_sqlx_too() {
    let flawed = SqlxSubject { journal: "wal", way: Way::LooksOnly };
    let outcome = run_rule(&flawed, Rule::OneStep);
    assert!(matches!(outcome, Outcome::Broken(_)), "{outcome:?}");
    // It looks right where no gap is tried.
    assert_eq!(run_rule(&flawed, Rule::OlderRefused), Outcome::Held);
}
