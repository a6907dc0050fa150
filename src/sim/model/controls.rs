//! The negative controls: worlds with one rule taken out, each of which must come to harm.
//!
//! They are the worlds of [`worlds`](super::worlds), or smaller ones, in which the same exploration finds nothing as
//! long as the rule is there. Rules that the shipped types keep by themselves cannot be taken out here; how the world
//! around them behaves can.

use super::lease::{self, G3, G4, Progress, Rule};
use super::split;
use super::store::{self, FENCED, G2, READ};
use super::worlds::{BROKEN_LOCK, DRAIN, Kind, LEASE, LOCK, PROGRESS, SPLIT, STORE, Small};

/// A world without a rule.
#[derive(Clone, Debug)]
pub struct Control {
    /// The world. It is named after the rule that it lacks.
    pub small: Small,
    /// What must be broken in it.
    pub breaks: &'static str,
}

/// All of them: one for each rule at the least.
pub fn all() -> Vec<Control> {
    let mut controls = leases();
    controls.extend(stores());
    controls.extend(splits());
    controls
}

fn leases() -> Vec<Control> {
    let one_renewal = lease::World { terms: 2, entries: 4, renewals: 1, ..LEASE };
    let three_entries = lease::World { entries: 3, ..one_renewal };
    let three_terms = lease::World { terms: 3, entries: 4, renewals: 1, ..LEASE };
    let untold = lease::World { untold: true, ..DRAIN };
    let impatient = lease::World { impatient: true, cuts: true, entries: 3, ..LEASE };
    let short_drain = lease::World { deadline: 1, ..DRAIN };
    let drain_twice = lease::World { drains: 2, renewals: 1, ..DRAIN };
    let replacement = lease::World { joins: 1, expiry: false, ..LEASE };
    let dead =
        lease::World { terms: 8, progress: Some(Progress { leaders_last: 5, within: 24 }), ..PROGRESS };
    let without = |rules: &'static [Rule], world, breaks| {
        let rule = rules[0];
        let kind = Kind::Lease(lease::World { without: rules, ..world });
        Control { small: Small { name: rule.name(), rules: rule.taken_out(), kind }, breaks }
    };
    // Behind a lessee that never takes back what is over, a leader could break some of its own rules unnoticed.
    vec![
        without(&[Rule::ConfirmsRenewals], three_entries, G3),
        without(&[Rule::CountsFromSending], LEASE, G3),
        without(&[Rule::RatesWithinTheBound], LEASE, G3),
        without(&[Rule::HoldsTheSuspected], one_renewal, G3),
        without(&[Rule::MarksWhenItProposes], three_entries, G3),
        without(&[Rule::ExpiryNamesItsSuspicion, Rule::WhatIsOverStaysOver], impatient, G3),
        without(&[Rule::ArmsInFull], three_entries, G3),
        without(&[Rule::LessorBelongsToOneTerm], three_terms, G3),
        without(&[Rule::LeadsAfterAnEntryOfItsTerm], three_entries, G3),
        without(&[Rule::RemembersNoAcknowledgement], LEASE, G3),
        without(&[Rule::AcknowledgementsNameTheRevision], untold, G3),
        without(&[Rule::AcknowledgementsNameDrains], DRAIN, G3),
        without(&[Rule::UnseenDrainLastsATtl], short_drain, G3),
        without(&[Rule::SaysSeenWhenBounded], short_drain, G3),
        without(&[Rule::DrainIsArmedOnce, Rule::WhatIsOverStaysOver], drain_twice, G3),
        without(&[Rule::ReplacedPartitionsCool], replacement, G3),
        without(&[Rule::GivesBackBeforeItReleases], DRAIN, G3),
        without(&[Rule::LostLocksCool], BROKEN_LOCK, G3),
        without(&[Rule::ReleasesNoLockThatItBelievesIn], LOCK, G3),
        without(&[Rule::LeadersLast], dead, G4),
        without(&[Rule::SuspicionsOutliveTheirLeader], dead, G4),
    ]
}

fn stores() -> Vec<Control> {
    use store::Rule;
    let crash = store::World { crashes: 1, ..STORE };
    let three_owners = store::World { epochs: 3, ..STORE };
    let two_stores = store::World { stores: 2, ..STORE };
    let without = |rule: Rule, world, breaks| {
        let kind = Kind::Store(store::World { without: Some(rule), ..world });
        Control { small: Small { name: rule.name(), rules: rule.taken_out(), kind }, breaks }
    };
    vec![
        without(Rule::ThereIsAFence, STORE, FENCED),
        without(Rule::ComparesByOrder, STORE, FENCED),
        without(Rule::ChecksWithTheWrite, STORE, FENCED),
        without(Rule::RaisesAreDurable, crash, FENCED),
        without(Rule::RaisesBeforeItReads, STORE, READ),
        without(Rule::RaisesAllBeforeItReads, two_stores, READ),
        without(Rule::TellsWhatIsCommitted, three_owners, G2),
    ]
}

fn splits() -> Vec<Control> {
    let without = |rule: split::Rule| {
        let kind = Kind::Split(split::World { without: Some(rule), ..SPLIT });
        let small = Small { name: rule.name(), rules: rule.taken_out(), kind };
        Control { small, breaks: split::READ }
    };
    split::Rule::ALL.map(without).into()
}

/// One by its name.
pub fn named(name: &str) -> Option<Control> {
    all().into_iter().find(|control| control.small.name == name)
}
