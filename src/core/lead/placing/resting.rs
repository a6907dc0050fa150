//! Partitions whose task returned by itself: the same worker gets one again only after a back-off.
//!
//! Only who gave a partition back can be kept from it. An owner that was lost is replaced at once, whatever its tasks did
//! before: a setback is remembered for minutes, and would hold up a failover for as long as the back-off.

use crate::ids::{KeyspaceId, PartitionKey, WorkerId};
use crate::mutant;
use crate::state::{Partition, Phase, Setback};
use crate::time::Instant;
use std::collections::BTreeMap;

/// Partitions that were given up by owners whose sessions went on, and since when.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Resting(BTreeMap<PartitionKey, Instant>);

impl Resting {
    /// Its owner, whose session goes on, has it no more.
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

    /// Its last owner's session went on when that had it no more.
    pub(super) fn was_freed(&self, key: PartitionKey) -> bool {
        self.0.contains_key(&key)
    }

    /// Whether a vacant partition waits for a back-off, whoever of so many workers would get it.
    pub(super) fn rests(
        &self,
        key: PartitionKey,
        partition: &Partition,
        takers: usize,
        now: Instant,
    ) -> bool {
        let Some(setback) = gave_up(partition) else { return false };
        let for_all = setback.count >= 2 || takers < 2;
        self.0.get(&key).is_some_and(|since| for_all && now < *since + setback.backoff())
    }

    /// A worker whose task returned by itself gets the partition again only after the back-off, and from the second time
    /// in a row on so does anybody: two workers would pass it to and fro as fast as the log allows. A task that failed
    /// has waited while the partition cooled. A new leader counts in full, when the session of the last owner `lives`; of
    /// one that is gone it cannot tell whether it gave the partition back.
    pub(super) fn until(
        &mut self,
        key: PartitionKey,
        partition: &Partition,
        target: &WorkerId,
        lives: bool,
        now: Instant,
    ) -> Option<Instant> {
        let setback = gave_up(partition)?;
        if (setback.worker != *target && setback.count < 2) || mutant!("rest-forgotten") {
            return None;
        }
        let since = match self.0.get(&key) {
            Some(since) => *since,
            None if lives => *self.0.entry(key).or_insert(now),
            None => return None,
        };
        let until = since + setback.backoff();
        (now < until).then_some(until)
    }
}

/// The setback of a vacant partition whose last owner's task returned by itself.
fn gave_up(partition: &Partition) -> Option<&Setback> {
    let last = partition.history().last().filter(|_| *partition.phase() == Phase::Vacant)?;
    partition.setback().filter(|setback| setback.error.is_empty() && setback.worker == last.worker)
}
