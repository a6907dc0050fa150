//! The gateway in front of files: the conformance suite, then case by case, and over HTTP.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]
#![cfg(unix)]

mod cases;
mod full;
mod http;
mod storm;
mod subject;

use ringfence_fence::conformance::{Outcome, Rule, run, run_rule};
use subject::{Fenced, FileSubject};

#[test]
fn t01_t02_t03_t07_t09_a_gateway_in_front_of_files_conforms() {
    let report = run(&FileSubject(Fenced::Yes));
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}

/// The folder without a gateway, and one whose program compares first and writes then.
#[test]
fn t57_without_the_gateway_and_with_a_check_before_the_write_the_suite_finds_it() {
    for (fenced, rule) in [
        (Fenced::No, Rule::OlderRefused),
        (Fenced::No, Rule::RaiseFences),
        (Fenced::CheckedBefore, Rule::OneStep),
    ] {
        let outcome = run_rule(&FileSubject(fenced), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{fenced:?} was not found by \"{rule}\": {outcome:?}");
    }
    assert_eq!(run_rule(&FileSubject(Fenced::CheckedBefore), Rule::OlderRefused), Outcome::Held);
}
