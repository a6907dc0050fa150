//! Judges a history by what ringfence promises. It knows no product code beyond the ids, and asks nobody: what it says
//! follows from the events alone.
//!
//! | rules | what | where |
//! |---|---|---|
//! | G2, I2, I3 | epochs grow, each is granted once and names one owner everywhere | `epochs` |
//! | G3 | no two processes both own | `claims` |
//! | G1, I1, I7, I8 | what a store takes | `store` |
//! | I1 | what it takes is what somebody asked, and one process asks under one epoch | `asked` |
//! | G5, I4 | nothing acknowledged is lost, or hidden from the next owner | `operations`, `linear` |
//! | I9 | a tenure begins once and ends once | `tenures` |
//! | G4, I6 | owners come back after the last fault, and then all is quiet | `progress` |
//! | G4 | what an owner left when all was well is granted again within the promised bound | `takeover` |
//! | G1, G2 | over a split, the child's owner fences whoever owned the parent, and the split's own epoch is nobody's | `splits` |
//! | | there was something to judge | `inert` |
//! | | what operators decided is done, and nothing that they forbade | `placement` |
//!
//! I5, how long a handle is valid, is judged by G3: it shows when a handle outlives it. A history that cannot be judged, for
//! instance because it ends before a bound that it is to be held against, is a violation and not a pass.

mod asked;
mod claims;
mod epochs;
mod inert;
mod linear;
mod operations;
mod placement;
mod progress;
mod splits;
mod store;
mod takeover;
mod tenures;
#[cfg(test)]
mod tests;
mod timeline;
mod verdict;

use crate::history::History;
use ringfence_core::ids::{KeyspaceName, Scope};
use std::collections::{BTreeMap, BTreeSet};

pub use verdict::{Rule, Verdict, Violation};

/// What a history is held against. The default holds everything that needs no number from the caller.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Holds G3. Switch it off for worlds in which clocks' rates differ by more than the drift bound.
    pub leases: bool,
    /// Keyspaces with `takeover = fence`: G3 is not promised there.
    pub fence_takeover: BTreeSet<KeyspaceName>,
    /// How long after the last fault a partition may be without a live, ready owner, in microseconds. `None` does not ask.
    pub progress_us: Option<u64>,
    /// Within which time a partition is granted again when its owner died or gave it back while all was steady, under one
    /// leader and with another worker there, in microseconds. `None` does not ask.
    pub granted_us: Option<u64>,
    /// How long an owner's task may go on after its partition was granted anew and all was well again, in microseconds.
    pub ends_us: u64,
    /// The keyspaces that are to be there, with their partitions: one that never came is no excuse for having no owners,
    /// and a world in which nothing happens at all is none that held. Empty: whatever the history says.
    pub expected: BTreeMap<KeyspaceName, u32>,
    /// An observer that was itself late by more than this could not have seen calm, in microseconds.
    pub busy_us: u64,
    /// The history has every grant that was made, so that whoever owns without one is found out. An observer who looks at
    /// the coordinator from time to time misses some.
    pub all_grants: bool,
    /// A node's log may forget what it had acknowledged: a lying disk, an old copy of its data. Then no log promises anything,
    /// an epoch may be granted twice, and the cluster may come to a halt. Only what the fences hold is demanded: what a store
    /// takes, and that nothing it acknowledged is lost or hidden from a later epoch's owner.
    pub only_fences: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            leases: true,
            fence_takeover: BTreeSet::new(),
            progress_us: None,
            granted_us: None,
            ends_us: 0,
            expected: BTreeMap::new(),
            busy_us: 0,
            all_grants: true,
            only_fences: false,
        }
    }
}

impl Rules {
    fn exclusive(&self, scope: &Scope) -> bool {
        self.leases
            && !matches!(scope, Scope::Partition(keyspace, _) if self.fence_takeover.contains(keyspace))
    }
}

/// Judges a history.
pub fn check(history: &History, rules: &Rules) -> Verdict {
    let mut verdict = Verdict::default();
    store::check(history, &mut verdict);
    asked::check(history, rules, &mut verdict);
    splits::stores(history, &mut verdict);
    operations::check(history, &mut verdict);
    inert::check(history, rules, &mut verdict);
    if rules.only_fences {
        return verdict;
    }
    epochs::check(history, rules, &mut verdict);
    splits::grants(history, &mut verdict);
    claims::check(history, rules, &mut verdict);
    tenures::check(history, rules, &mut verdict);
    progress::check(history, rules, &mut verdict);
    takeover::check(history, rules, &mut verdict);
    placement::check(history, &mut verdict);
    verdict
}
