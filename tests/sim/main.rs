//! The seeded world, from the outside: the same seed is the same world, and a store without a fence is found out.

#![allow(clippy::unwrap_used)]

use ringfence_sim::seeds::Report;
use std::process::Command;

fn world(seed: u64, more: &[&str]) -> Report {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence-sim"));
    let output =
        command.args(["world", "-o", "json", "--seed", &seed.to_string()]).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(output.status.success(), report.held, "the exit code says whether everything held");
    report
}

#[test]
fn the_same_seed_is_the_same_world_and_another_is_another() {
    let first = world(4, &[]);
    assert!(first.held, "{first}");
    let again = world(4, &[]);
    assert_eq!((first.history.clone(), first.events), (again.history, again.events));
    let few = |seed| world(seed, &["--faults", "1"]).history;
    assert_ne!(few(5), few(4));
}

/// The negative control: the same world, with a store that believes whoever comes.
#[test]
fn g1_t57_without_the_fence_a_stale_write_is_found() {
    let found = world(4, &["--no-fence"]);
    assert!(found.violations.iter().any(|text| text.starts_with("StaleAccepted")), "{found}");
}
