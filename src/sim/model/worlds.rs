//! The small worlds.

use super::check::{Report, explore};
use super::lease::{self, Progress};
use super::{split, store};
use std::time::Duration;

/// A world by its name.
#[derive(Clone, Debug)]
pub struct Small {
    /// Its name.
    pub name: &'static str,
    /// What happens in it.
    pub rules: &'static str,
    /// The world.
    pub kind: Kind,
}

/// Which kind of world it is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Leases and handoffs.
    Lease(lease::World),
    /// Storage and its fences.
    Store(store::World),
    /// A partition that is split.
    Split(split::World),
}

impl Small {
    /// Explores it.
    pub fn explore(&self, limit: Option<Duration>) -> Report {
        match &self.kind {
            Kind::Lease(world) => explore(self.name, *world, limit),
            Kind::Store(world) => explore(self.name, *world, limit),
            Kind::Split(world) => explore(self.name, *world, limit),
        }
    }
}

pub(super) const LEASE: lease::World = lease::World::SMALLEST;
pub(super) const DRAIN: lease::World = lease::World { expiry: false, drains: 1, entries: 3, ..LEASE };
pub(super) const LOCK: lease::World = lease::World { lock: true, ..LEASE };
pub(super) const BROKEN_LOCK: lease::World = lease::World { lock: true, ..DRAIN };
pub(super) const PROGRESS: lease::World = lease::World { ttl: 12, entries: 40, renewals: 0, ..LEASE };
pub(super) const STORE: store::World =
    store::World { epochs: 2, stores: 1, messages: 2, crashes: 0, without: None, until: None };

pub(super) const SPLIT: split::World =
    split::World { splits: 1, grants: 2, messages: 2, without: None, until: None };

/// All of them.
pub fn all() -> Vec<Small> {
    let mut all = leases();
    all.extend(stores());
    all.extend(splits());
    all
}

/// One by its name.
pub fn named(name: &str) -> Option<Small> {
    all().into_iter().find(|small| small.name == name)
}

fn leases() -> Vec<Small> {
    let world = |name, rules, world| Small { name, rules, kind: Kind::Lease(world) };
    let two_terms = lease::World { terms: 2, entries: 5, ..LEASE };
    let drained = lease::World { terms: 2, entries: 4, ..DRAIN };
    let lenient: &[lease::Rule] = &[lease::Rule::WhatIsOverStaysOver];
    let progress = |leaders_last, within| Some(Progress { leaders_last, within });
    let elections = lease::World { terms: 8, progress: progress(5, 24), ..PROGRESS };
    vec![
        world("expiry", "one leader, leases run out", LEASE),
        world("elections", "two terms, leases run out", two_terms),
        world("drift", "two terms, clocks as wrong as allowed", lease::World { drift: true, ..two_terms }),
        world(
            "impatient",
            "a leader does not wait for what it proposed",
            lease::World { impatient: true, entries: 5, ..LEASE },
        ),
        world("cuts", "one leader, streams break", lease::World { cuts: true, ..LEASE }),
        world(
            "lenient",
            "two terms, holders do what they must and no more",
            lease::World { without: lenient, terms: 2, entries: 4, renewals: 1, ..LEASE },
        ),
        world("drain", "two terms, a drain as long as the TTL", drained),
        world(
            "short-drain",
            "two terms, a drain shorter than the TTL",
            lease::World { deadline: 1, entries: 5, ..drained },
        ),
        world(
            "drain-twice",
            "one leader, a drain that is asked for twice",
            lease::World { drains: 2, entries: 4, ..DRAIN },
        ),
        world(
            "lenient-drain",
            "one leader, a drain, holders do what they must and no more",
            lease::World { without: lenient, renewals: 1, ..DRAIN },
        ),
        world(
            "late-word",
            "one leader, a drain, the holder learns late of its grant",
            lease::World { untold: true, ..DRAIN },
        ),
        world(
            "there-and-back",
            "one leader, two holders, drained to and fro",
            lease::World { both: true, drains: 2, renewals: 0, entries: 4, ..DRAIN },
        ),
        world(
            "replacement",
            "one leader, another process under the same name",
            lease::World { joins: 1, expiry: false, ..LEASE },
        ),
        world("lock", "one leader, a lock and somebody who waits for it", LOCK),
        world("lock-elections", "two terms, the same", lease::World { terms: 2, ..LOCK }),
        world("broken-lock", "one leader, a lock that is broken", BROKEN_LOCK),
        world("broken-lock-elections", "two terms, the same", lease::World { terms: 2, ..BROKEN_LOCK }),
        world(
            "lock-replaced",
            "one leader, another process under the name of the holder",
            lease::World { joins: 1, expiry: false, ..LOCK },
        ),
        world(
            "progress",
            "a dead worker, one leader",
            lease::World { progress: progress(0, 12), ..PROGRESS },
        ),
        world(
            "lock-progress",
            "a dead holder of a lock, one leader",
            lease::World { lock: true, progress: progress(0, 12), ..PROGRESS },
        ),
        world("progress-elections", "a dead worker, leaders last longer than a third of a TTL", elections),
    ]
}

fn stores() -> Vec<Small> {
    let world = |name, rules, world| Small { name, rules, kind: Kind::Store(world) };
    let two = store::World { stores: 2, ..STORE };
    let three_owners = store::World { epochs: 3, messages: 4, crashes: 2, ..STORE };
    vec![
        world("fence", "two owners, a storage that crashes", store::World { crashes: 1, ..STORE }),
        world("fence-of-three", "three owners, a storage that crashes twice", three_owners),
        world(
            "fences",
            "two owners, two storages that crash",
            store::World { crashes: 1, messages: 3, ..two },
        ),
        world(
            "fences-of-three",
            "three owners, two storages",
            store::World { epochs: 3, messages: 3, ..two },
        ),
    ]
}

fn splits() -> Vec<Small> {
    let world = |name, rules, world| Small { name, rules, kind: Kind::Split(world) };
    vec![
        world("split", "a partition is split in two while its owner sleeps", SPLIT),
        world(
            "split-again",
            "the same, and what was split is granted again",
            split::World { grants: 3, ..SPLIT },
        ),
        world(
            "split-twice",
            "a partition is split in two, and both in two again",
            split::World { splits: 3, ..SPLIT },
        ),
    ]
}
