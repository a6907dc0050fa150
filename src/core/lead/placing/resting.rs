//! Partitions whose task returned by itself: the same worker gets one again only after a back-off.
//!
//! Only who gave a partition back can be kept from it. An owner that was lost, or from which it was taken, is replaced at
//! once, whatever its tasks did before: a setback is remembered for minutes, and would hold up a failover for as long as
//! the back-off.

use crate::ids::{KeyspaceId, PartitionKey, WorkerId};
use crate::mutant;
use crate::state::{CoolingWhy, Partition, Phase, Setback, State};
use crate::time::Instant;
use std::collections::BTreeMap;

/// How partitions without an owner came to have none, where that owner's session went on.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Resting(BTreeMap<PartitionKey, HowLost>);

/// How a partition came to have no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HowLost {
    /// Its owner gave it back then.
    Given(Instant),
    /// It was taken: at a drain's deadline, or by fence.
    Taken,
}

impl Resting {
    /// What a new leader can tell: that what cools for a lock delay was taken. Of what is vacant, without a lock delay and because
    /// nobody takes partitions, it cannot, and that waits as if it had been given back.
    pub(super) fn new(state: &State) -> Resting {
        let taken = |partition: &Partition| {
            let cools = matches!(partition.phase(), Phase::Cooling(c) if c.why == CoolingWhy::LockDelay);
            cools && partition.setback().is_some()
        };
        let partitions = state.keyspaces().flat_map(|keyspace| keyspace.keys().zip(keyspace.partitions()));
        let taken = partitions.filter(|(_, partition)| taken(partition));
        Resting(taken.map(|(key, _)| (key, HowLost::Taken)).collect())
    }

    /// It was taken from its owner, whose session goes on. When that gave it back, this is said right after.
    pub(super) fn taken(&mut self, key: PartitionKey) {
        self.0.insert(key, HowLost::Taken);
    }

    /// Its owner, whose session goes on, gave it back.
    pub(super) fn given_back(&mut self, key: PartitionKey, now: Instant) {
        self.0.insert(key, HowLost::Given(now));
    }

    /// It has an owner again.
    pub(super) fn granted(&mut self, key: PartitionKey) {
        self.0.remove(&key);
    }

    /// The keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.0.retain(|key, _| key.keyspace != id);
    }

    /// How its last owner came to have it no more, when that owner's session went on.
    pub(super) fn how(&self, key: PartitionKey) -> Option<HowLost> {
        self.0.get(&key).copied()
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
        matches!(self.0.get(&key), Some(HowLost::Given(since)) if for_all && now < *since + setback.backoff())
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
            Some(HowLost::Given(since)) => *since,
            Some(HowLost::Taken) => return None,
            None if lives => {
                self.given_back(key, now);
                now
            }
            None => return None,
        };
        let until = since + setback.backoff();
        (now < until).then_some(until)
    }
}

/// The setback of a vacant partition whose last owner's task returned by itself, then or before.
fn gave_up(partition: &Partition) -> Option<&Setback> {
    let last = partition.history().last().filter(|_| *partition.phase() == Phase::Vacant)?;
    partition.setback().filter(|setback| setback.error.is_empty() && setback.worker == last.worker)
}
