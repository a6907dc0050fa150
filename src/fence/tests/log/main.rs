//! Logs in files: the conformance suite, then case by case, with real files and real processes.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod cases;
mod damaged;
mod flawed;
mod page;
mod processes;
mod property;
mod segments;
#[path = "../shared/storm.rs"]
mod shared_storm;
mod storm;
mod subject;

use ringfence_fence::conformance::{Outcome, run};
use subject::LogSubject;

#[test]
fn t01_t02_t03_t07_t09_the_fence_of_a_log_conforms() {
    let report = run(&LogSubject);
    let broken = |outcome: &Outcome| matches!(outcome, Outcome::Broken(_));
    assert!(report.outcomes().all(|(_, outcome)| !broken(outcome)), "{report}");
    // A log deletes nothing, so it has no clean-up that could take a fence along.
    let held = report.outcomes().filter(|(_, outcome)| **outcome == Outcome::Held).count();
    assert_eq!(held + 1, report.outcomes().count(), "{report}");
}
