//! The brief worlds hold, and each rule is needed. The long worlds are explored by the verb `model`.

use super::{controls, lease, split, store, worlds};
use std::collections::BTreeSet;
use std::time::Duration;

fn holds(name: &str) {
    let report = worlds::named(name).unwrap().explore(None);
    println!("{report}");
    assert!(report.proves(), "{report}");
}

/// The same world with the rule is one of those that hold, or a part of one.
fn comes_to_harm(name: &str) {
    let control = controls::named(name).unwrap();
    let report = control.small.explore(None);
    println!("{report}");
    let violation = report.violation.as_ref().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(violation.property, control.breaks);
    println!("in {} steps", violation.steps.len());
}

#[test]
fn g2_g3_model_a_lease_that_runs_out() {
    holds("expiry");
}

#[test]
fn g3_p04_model_holders_that_do_what_they_must_and_no_more() {
    holds("lenient-drain");
}

#[test]
fn g2_g3_p05_model_a_replacement() {
    holds("replacement");
}

#[test]
fn g2_g3_model_a_lock_that_somebody_waits_for() {
    holds("lock");
}

#[test]
fn g2_g3_model_a_lock_that_is_broken() {
    holds("broken-lock");
}

#[test]
fn g3_model_a_lock_whose_holder_is_replaced() {
    holds("lock-replaced");
}

#[test]
fn g4_model_a_dead_holder_of_a_lock() {
    holds("lock-progress");
}

#[test]
fn g4_model_a_dead_worker_under_one_leader() {
    holds("progress");
}

#[test]
fn g4_p13_f027_model_a_dead_worker_under_leaders_that_last_longer_than_a_third() {
    holds("progress-elections");
}

#[test]
fn g1_model_one_storage_that_crashes() {
    holds("fence");
    holds("fence-of-three");
}

#[test]
fn g1_p12_model_two_storages() {
    holds("fences");
}

#[test]
fn g1_p09_model_a_partition_that_is_split_while_its_owner_sleeps() {
    holds("split");
}

/// The states that there are, and the few that are looked at before the checker looks up.
#[test]
fn a_world_that_is_cut_off_proves_nothing_and_says_so() {
    for name in ["lenient-drain", "fences"] {
        let report = worlds::named(name).unwrap().explore(Some(Duration::ZERO));
        assert!(report.is_cut_off() && !report.proves() && report.states < 6_000, "{report}");
        let said = report.to_string();
        assert!(said.contains("CUT OFF, proves nothing") && !said.contains("holds"), "{said}");
    }
    // A limit that is not reached changes nothing.
    let report = worlds::named("progress").unwrap().explore(Some(Duration::from_secs(3600)));
    assert!(report.proves(), "{report}");
}

macro_rules! controls {
    ($list:ident: $($(#[$attribute:meta])? $test:ident: $world:literal,)*) => {
        $(#[test]
        $(#[$attribute])?
        fn $test() {
            comes_to_harm($world);
        })*

        const $list: &[&str] = &[$($world),*];
    };
}

controls! {
    TESTED:
    p06_t30_control_model_renewals_without_a_round: "without-confirms-renewals",
    t24_control_model_a_lease_from_the_receipt: "without-counts-from-sending",
    t25_control_model_a_clock_beyond_the_bound: "without-rates-within-the-bound",
    p01_control_model_the_suspected_are_answered: "without-holds-the-suspected",
    p02_control_model_marked_when_it_applies: "without-marks-when-it-proposes",
    p02_t28_control_model_armed_short: "without-arms-in-full",
    p08_control_model_acknowledged_from_memory: "without-remembers-no-acknowledgement",
    p03_control_model_no_revision: "without-acknowledgements-name-the-revision",
    p04_control_model_no_word_of_drains: "without-acknowledgements-name-drains",
    p04_control_model_an_unseen_drain_ends_early: "without-unseen-drain-lasts-a-ttl",
    p04_control_model_seen_and_not_bounded: "without-says-seen-when-bounded",
    p05_control_model_replaced_at_once: "without-replaced-partitions-cool",
    g3_control_model_released_and_believed: "without-gives-back-before-it-releases",
    g3_control_model_a_lost_lock_does_not_cool: "without-lost-locks-cool",
    g3_control_model_a_lock_released_and_believed_in: "without-releases-no-lock-that-it-believes-in",
    p13_control_model_leaders_that_do_not_last: "without-leaders-last",
    p13_control_model_suspicions_forgotten: "without-suspicions-outlive-their-leader",
    t01_control_model_no_fence: "without-there-is-a-fence",
    t01_control_model_equality: "without-compares-by-order",
    t03_control_model_check_then_write: "without-checks-with-the-write",
    t09_control_model_a_raise_that_is_lost: "without-raises-are-durable",
    t04_control_model_read_before_raise: "without-raises-before-it-reads",
    p12_control_model_one_fence_after_the_other: "without-raises-all-before-it-reads",
    g2_control_model_told_before_committed: "without-tells-what-is-committed",
    p09_control_model_the_parent_is_not_fenced: "without-raises-the-parent",
    p09_control_model_the_parent_is_fenced_too_late: "without-raises-the-parent-first",
    p09_control_model_a_split_mints_no_epoch: "without-mints-an-epoch",
    p09_control_model_keys_by_the_old_number: "without-covers-its-share",
}

controls! {
    TESTED_ON_REQUEST:
    #[ignore = "long in a debug build; `ringfence-sim model --controls` explores it too"]
    p06_control_model_led_before_its_own_term: "without-leads-after-an-entry-of-its-term",
    #[ignore = "long in a debug build; `ringfence-sim model --controls` explores it too"]
    p06_control_model_a_lessor_kept: "without-lessor-belongs-to-one-term",
    #[ignore = "long in a debug build; `ringfence-sim model --controls` explores it too"]
    p04_control_model_a_drain_armed_again: "without-drain-is-armed-once",
    #[ignore = "long in a debug build; `ringfence-sim model --controls` explores it too"]
    p01_control_model_an_expiry_by_any_suspicion: "without-expiry-names-its-suspicion",
}

#[test]
fn every_rule_that_can_be_taken_out_is_and_every_control_is_a_test() {
    let names: BTreeSet<&str> = controls::all().iter().map(|control| control.small.name).collect();
    let rules = lease::Rule::ALL.map(lease::Rule::name).into_iter();
    let rules = rules.chain(store::Rule::ALL.map(store::Rule::name));
    let rules = rules.chain(split::Rule::ALL.map(split::Rule::name));
    // The second of a pair in which each makes up for the other.
    let alone = rules.filter(|rule| *rule != lease::Rule::WhatIsOverStaysOver.name());
    assert_eq!(alone.collect::<BTreeSet<_>>(), names);
    assert_eq!(TESTED.iter().chain(TESTED_ON_REQUEST).copied().collect::<BTreeSet<_>>(), names);
}
