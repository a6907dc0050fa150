//! Every flaw is found by the rule that names it, and breaks no other rule than those that are written down.

use ringfence_fence::conformance::broken::{Broken, Flaw};
use ringfence_fence::conformance::{Outcome, Report, Rule, run};
use std::collections::BTreeSet;
use std::thread;

/// Runs the suite against each, at one time: the rules wait more than they compute.
fn reports(flaws: &[Flaw]) -> Vec<(Flaw, Report)> {
    thread::scope(|scope| {
        let running: Vec<_> =
            flaws.iter().map(|flaw| scope.spawn(move || (*flaw, run(&Broken::with(*flaw))))).collect();
        running.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

#[test]
fn the_storage_without_a_flaw_conforms_so_that_it_is_the_flaw_that_is_found() {
    let report = run(&Broken::without_a_flaw());
    assert!(report.outcomes().all(|(_, outcome)| *outcome == Outcome::Held), "{report}");
}

/// The negative control of the suite.
#[test]
fn t57_a_broken_storage_is_found_by_the_rule_that_is_there_for_it_and_breaks_no_rule_that_is_not_listed() {
    let mut wrong = Vec::new();
    for group in Flaw::ALL.chunks(7) {
        for (flaw, report) in reports(group) {
            let broken: BTreeSet<Rule> = report.broken().collect();
            let listed: BTreeSet<Rule> = flaw.breaks().collect();
            if broken != listed {
                wrong.push(format!("{flaw:?} breaks {broken:?}, and listed is {listed:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn t57_every_rule_is_there_for_a_flaw() {
    let found: BTreeSet<Rule> = Flaw::ALL.iter().map(|flaw| flaw.found_by()).collect();
    let without: Vec<&Rule> = Rule::ALL.iter().filter(|rule| !found.contains(rule)).collect();
    assert!(without.is_empty(), "nothing is known that {without:?} finds, so it may find nothing");
}
