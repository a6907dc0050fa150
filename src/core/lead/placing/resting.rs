//! Partitions whose task returned by itself: the same worker gets one again only after a back-off.

use crate::ids::{KeyspaceId, PartitionKey, WorkerId};
use crate::mutant;
use crate::state::Partition;
use crate::time::Instant;
use std::collections::BTreeMap;

/// Partitions that were given up, and since when.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Resting(BTreeMap<PartitionKey, Instant>);

impl Resting {
    /// Its owner has lost it.
    pub(super) fn freed(&mut self, key: PartitionKey, now: Instant) {
        self.0.insert(key, now);
    }

    /// It has an owner again.
    pub(super) fn granted(&mut self, key: PartitionKey) {
        self.0.remove(&key);
    }

    /// The keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.0.retain(|key, _| key.keyspace != id);
    }

    /// Whether a vacant partition waits for a back-off, whoever of so many workers would get it.
    pub(super) fn rests(
        &self,
        key: PartitionKey,
        partition: &Partition,
        takers: usize,
        now: Instant,
    ) -> bool {
        let Some(setback) = partition.setback().filter(|setback| setback.error.is_empty()) else {
            return false;
        };
        let for_all = setback.count >= 2 || takers < 2;
        self.0.get(&key).is_some_and(|since| for_all && now < *since + setback.backoff())
    }

    /// A worker whose task returned by itself gets the partition again only after the back-off, and from the second time
    /// in a row on so does anybody: two workers would pass it to and fro as fast as the log allows. A task that failed
    /// has waited while the partition cooled. A new leader counts in full.
    pub(super) fn until(
        &mut self,
        key: PartitionKey,
        partition: &Partition,
        target: &WorkerId,
        now: Instant,
    ) -> Option<Instant> {
        let setback = partition.setback().filter(|setback| setback.error.is_empty())?;
        if (setback.worker != *target && setback.count < 2) || mutant!("rest-forgotten") {
            return None;
        }
        let until = *self.0.entry(key).or_insert(now) + setback.backoff();
        (now < until).then_some(until)
    }
}
