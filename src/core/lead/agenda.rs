//! Which keyspaces a leader looks at, and from when on.

use crate::ids::KeyspaceId;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Keyspaces to look at, and from when on.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Agenda(BTreeMap<KeyspaceId, Instant>);

impl Agenda {
    pub(super) fn add(&mut self, keyspace: KeyspaceId, from: Instant) {
        let when = self.0.entry(keyspace).or_insert(from);
        *when = from.min(*when);
    }

    pub(super) fn remove(&mut self, keyspace: KeyspaceId) {
        self.0.remove(&keyspace);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    pub(super) fn take(&mut self, now: Instant) -> BTreeSet<KeyspaceId> {
        let due = self.0.iter().filter(|(_, from)| now >= **from).map(|(id, _)| *id).collect();
        self.0.retain(|_, from| now < *from);
        due
    }
}
