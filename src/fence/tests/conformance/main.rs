//! The suite against the fence in memory, and against stores with one known flaw each.

#![allow(clippy::unwrap_used, reason = "a set-up that fails is a test that fails")]

mod flawed;

use flawed::{Flaw, Flawed};
use ringfence_fence::conformance::{MemorySubject, Outcome, Rule, run, run_rule};

#[test]
fn t01_t02_t03_t07_t09_the_fence_in_memory_conforms() {
    let report = run(&MemorySubject);
    assert!(report.conforms(), "{report}");
    let not_held: Vec<Rule> =
        report.outcomes().filter(|(_, o)| **o != Outcome::Held).map(|(r, _)| r).collect();
    assert_eq!(not_held, [Rule::SurvivesCrash], "{report}");
}

#[test]
fn the_store_without_a_flaw_conforms_so_that_it_is_the_flaw_that_is_found() {
    let report = run(&Flawed(None));
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}

/// The negative control: every flaw is found, by the rule that names it.
#[test]
fn t57_every_known_flaw_is_found_by_its_rule() {
    let expected = [
        (Flaw::NoFence, Rule::OlderRefused),
        (Flaw::NoFence, Rule::RaiseFences),
        (Flaw::Equality, Rule::ForwardOnly),
        (Flaw::Strict, Rule::EqualAccepted),
        (Flaw::TellsOneNumber, Rule::OlderRefused),
        (Flaw::PerRow, Rule::UntouchedRowsFenced),
        (Flaw::PerRow, Rule::RaiseFences),
        (Flaw::CheckApart, Rule::OneStep),
        (Flaw::RaiseDoesNothing, Rule::RaiseFences),
        (Flaw::AcceptsWithoutRow, Rule::NeverRaisedRefused),
        (Flaw::AnyJump, Rule::ImplausibleRefused),
        (Flaw::SinglePrecision, Rule::Width),
        (Flaw::KeyspaceWide, Rule::ScopesApart),
        (Flaw::IgnoresSession, Rule::OneSession),
        (Flaw::AnyCluster, Rule::OtherClusterRefused),
        (Flaw::WritesFirst, Rule::RefusalChangesNothing),
        (Flaw::UnstampedPasses, Rule::UnstampedRefused),
        (Flaw::AppliesInPart, Rule::SeveralScopesAllOrNothing),
        (Flaw::RemembersOne, Rule::SeveralScopesAllOrNothing),
        (Flaw::LocksAsNamed, Rule::NoDeadlock),
        (Flaw::ForgetsAtCrash, Rule::SurvivesCrash),
    ];
    for (flaw, rule) in expected {
        let outcome = run_rule(&Flawed(Some(flaw)), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{flaw:?} was not found by \"{rule}\": {outcome:?}");
    }
    let covered: std::collections::BTreeSet<Rule> = expected.iter().map(|(_, rule)| *rule).collect();
    assert_eq!(covered.len(), Rule::ALL.len(), "a rule that no flaw breaks is not known to test anything");
}
