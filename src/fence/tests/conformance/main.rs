//! The suite against the fence in memory, and against storages with one known flaw each.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod flaws;
mod page;

use ringfence_fence::conformance::{MemorySubject, Outcome, Rule, run};

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_memory_conforms() {
    let report = run(&MemorySubject);
    assert!(report.conforms(), "{report}");
    let not_held: Vec<Rule> =
        report.outcomes().filter(|(_, o)| **o != Outcome::Held).map(|(r, _)| r).collect();
    assert_eq!(not_held, [Rule::SurvivesCrash, Rule::CrashKeepsBinding], "{report}");
}
