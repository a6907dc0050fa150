//! Raising fences again: an operator's order after a storage was restored, and the floor of one partition whose storage has
//! seen more than the coordinator has granted.
//!
//! A fence that was restored from a copy has forgotten newer owners. The order takes each partition from its owner and
//! grants it to the same worker anew, by the steps of any handoff: the task ends, the epoch grows, and the fences are raised
//! to it before anything is read. Whoever was deposed before is refused again from then on, whatever the storage forgot.
//! What it did between the restore and the raise is done; so the storage stays closed until then.
//!
//! A partition needs nothing more when it was granted after the order's entry. So the order is remembered and its progress
//! is not: that follows from the partitions.

use super::State;
use super::apply::Change;
use super::directive::Subject;
use super::keyspace::Keyspace;
use super::outcome::{Outcome, Refused};
use super::partition::{Partition, Phase};
use super::undo::Undo;
use crate::ids::{Epoch, EpochFloor, KeyspaceId, LogIndex, PartitionId, PartitionKey, SessionId};
use crate::mutant;

/// How many orders to raise fences again are remembered.
pub const REASSERTS_LEN: usize = 64;
/// By how much a partition's floor may be raised because its owner says that storage has seen a higher epoch: 2^20, the jump
/// of a restore. Each raise costs a grant, so no broken worker comes near the end of the epochs.
pub const MAX_SEEN_JUMP: u64 = 1 << 20;
/// By how much an operator may raise it at once: 2^48. Fences refuse what jumps further as implausible.
pub const MAX_ABOVE_JUMP: u64 = 1 << 48;

/// An order to raise the fences of a partition, or of all partitions of a keyspace, again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reassert {
    /// The entry that gave it. A partition that was granted after it has been raised, or is about to be.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
    /// The directive by which it was given.
    pub by: LogIndex,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// One partition of it; all, when `None`.
    pub partition: Option<PartitionId>,
    /// Every partition was taken from whoever had it when the order was given.
    pub handed_out: bool,
}

/// What an order has come to for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reasserted {
    /// Its owner was granted it after the order, and has raised its fences.
    Done,
    /// Its owner has it since before the order.
    Held(SessionId),
    /// The same, and something that an operator froze keeps it from being taken.
    Frozen(SessionId, Subject),
    /// Its owner was told to give it back.
    Ending(SessionId),
    /// It was granted anew, and its owner is not ready yet.
    Raising(SessionId),
    /// Nobody has it. Whoever gets it raises first.
    Ownerless,
}

impl Reassert {
    /// The partitions it is about.
    pub fn partitions(&self, keyspace: &Keyspace) -> std::ops::Range<u32> {
        match self.partition {
            Some(one) => one.get()..one.get().saturating_add(1).min(keyspace.count().get()),
            None => 0..keyspace.count().get(),
        }
    }

    /// Whether this partition is still owned, or being given back, under a grant from before the order.
    pub(crate) fn waits_for(&self, partition: &Partition) -> bool {
        let owned = matches!(partition.phase, Phase::Owned { .. } | Phase::Draining(_));
        owned && partition.history.last().is_some_and(|last| last.at <= self.at)
    }

    fn is_about(&self, keyspace: KeyspaceId, partition: Option<PartitionId>) -> bool {
        self.keyspace == keyspace && (partition.is_none() || self.partition == partition)
    }
}

impl State {
    /// Orders to raise fences again, oldest first.
    pub fn reasserts(&self) -> impl DoubleEndedIterator<Item = &Reassert> {
        self.reasserts.iter()
    }

    /// What an order has come to for one of its partitions.
    pub fn reasserted(&self, order: &Reassert, key: PartitionKey) -> Reasserted {
        let Some(partition) = self.partition(key) else { return Reasserted::Ownerless };
        let waits = order.waits_for(partition);
        match &partition.phase {
            Phase::Vacant | Phase::Cooling(_) => Reasserted::Ownerless,
            Phase::Owned { ready: true, .. } if !waits => Reasserted::Done,
            Phase::Owned { session, .. } if !waits => Reasserted::Raising(*session),
            // It was raised, and is moved on: whoever gets it raises again.
            Phase::Draining(_) if !waits => Reasserted::Done,
            Phase::Draining(drain) => Reasserted::Ending(drain.session),
            Phase::Owned { session, .. } => {
                let owner = self.sessions.get(session).map(|owner| &owner.worker);
                match owner.and_then(|worker| self.freeze_of_move(key, worker)) {
                    Some(frozen) => Reasserted::Frozen(*session, frozen),
                    None => Reasserted::Held(*session),
                }
            }
        }
    }

    /// No epoch at or below it is minted for the partition.
    pub(crate) fn floor_of(&self, key: PartitionKey) -> Option<EpochFloor> {
        let keyspace = self.keyspaces.get(&key.keyspace)?;
        let partition = keyspace.partitions.get(key.partition.get() as usize)?;
        let raised = keyspace.raised.get(&key.partition).copied().unwrap_or(EpochFloor::NONE);
        Some(partition.epoch.max(raised).max(keyspace.floor).max(self.counters.floor))
    }

    /// Whether an operator may raise this partition's floor to this epoch.
    ///
    /// # Errors
    /// [`Refused`]: why not.
    pub fn check_raise_above(&self, key: PartitionKey, above: Epoch) -> Result<(), Refused> {
        let floor = self.floor_of(key).ok_or(Refused::NoSuchPartition(key))?;
        let jump = above.get().saturating_sub(floor.get());
        if jump > MAX_ABOVE_JUMP && !mutant!("operator-raises-anywhere") {
            return Err(Refused::Implausible { partition: key, from: floor.get(), to: above });
        }
        if EpochFloor::of(above).next().is_none() {
            return Err(Refused::Limit { what: "the epochs of a partition", bound: Epoch::MAX.get() });
        }
        Ok(())
    }

    /// Whether an order to raise fences again can be given now.
    ///
    /// # Errors
    /// [`Refused`]: why not.
    pub fn check_reassert(&self, id: KeyspaceId, one: Option<PartitionId>) -> Result<(), Refused> {
        let keyspace = self.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        if let Some(partition) = one {
            let key = PartitionKey { keyspace: id, partition };
            self.partition(key).ok_or(Refused::NoSuchPartition(key))?;
            if keyspace.settings.get(&partition).is_some_and(|set| set.frozen.is_some()) {
                return Err(Refused::Frozen(Subject::Partition(key)));
            }
        }
        if self.frozen.is_some() {
            return Err(Refused::Frozen(Subject::Cluster));
        }
        if keyspace.frozen.is_some() {
            return Err(Refused::Frozen(Subject::Keyspace(id)));
        }
        let kept = |order: &&Reassert| !order.handed_out && !order.is_about(id, one);
        if self.reasserts.iter().filter(kept).count() >= REASSERTS_LEN {
            let what = "the number of orders to raise fences again that are under way";
            return Err(Refused::Limit { what, bound: REASSERTS_LEN as u64 });
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Gives the order. It takes the place of earlier ones about the same.
    pub(super) fn reassert(
        &mut self,
        keyspace: KeyspaceId,
        partition: Option<PartitionId>,
    ) -> Result<Outcome, Refused> {
        self.state.check_reassert(keyspace, partition)?;
        let by = self.directive.unwrap_or(self.index);
        let (at, unix_ms) = (self.index, self.unix_ms);
        self.journal.push(Undo::Reasserts(self.state.reasserts.clone()));
        self.state.reasserts.retain(|order| !order.is_about(keyspace, partition));
        if self.state.reasserts.len() >= REASSERTS_LEN {
            let over = self.state.reasserts.iter().position(|order| order.handed_out);
            over.and_then(|place| self.state.reasserts.remove(place));
        }
        let order = Reassert { at, unix_ms, by, keyspace, partition, handed_out: false };
        self.state.reasserts.push_back(order);
        Ok(Outcome::Done)
    }

    /// Every partition of the order was taken from whoever had it. Refused by silence while one was not.
    pub(super) fn end_reassert(
        &mut self,
        at: LogIndex,
        keyspace: KeyspaceId,
        partition: Option<PartitionId>,
    ) -> Outcome {
        let same = |order: &&Reassert| {
            order.at == at && order.keyspace == keyspace && order.partition == partition && !order.handed_out
        };
        let Some(order) = self.state.reasserts.iter().find(same) else { return Outcome::Unchanged };
        let waits = self.state.keyspaces.get(&keyspace).is_some_and(|keyspace| {
            let of_it = order.partitions(keyspace).filter_map(|n| keyspace.partitions.get(n as usize));
            of_it.into_iter().any(|partition| order.waits_for(partition))
        });
        if waits {
            return Outcome::Unchanged;
        }
        let order = order.clone();
        self.journal.push(Undo::Reasserts(self.state.reasserts.clone()));
        self.state
            .reasserts
            .iter_mut()
            .filter(|kept| **kept == order)
            .for_each(|kept| kept.handed_out = true);
        Outcome::Done
    }

    /// An operator's word: the partition's next epoch is above this one.
    pub(super) fn raise_above(&mut self, key: PartitionKey, above: Epoch) -> Result<Outcome, Refused> {
        self.state.check_raise_above(key, above)?;
        Ok(if self.raise_floor(key, above) { Outcome::Done } else { Outcome::Unchanged })
    }

    /// The owner of the partition says that storage has seen this epoch, and that its raise was refused for it. Whether that
    /// is believed: then the next epoch is above it.
    pub(super) fn believe(&mut self, key: PartitionKey, seen: Epoch) -> bool {
        let Some(floor) = self.state.floor_of(key) else { return false };
        if seen.get().saturating_sub(floor.get()) > MAX_SEEN_JUMP && !mutant!("seen-without-bound") {
            return false;
        }
        // Above the last epoch nothing can be granted.
        if EpochFloor::of(seen).next().is_none() {
            return false;
        }
        self.raise_floor(key, seen);
        true
    }

    fn raise_floor(&mut self, key: PartitionKey, above: Epoch) -> bool {
        let to = EpochFloor::of(above);
        if self.state.floor_of(key).is_none_or(|floor| floor >= to) {
            return false;
        }
        let Some(keyspace) = self.state.keyspaces.get_mut(&key.keyspace) else { return false };
        let before = keyspace.raised.insert(key.partition, to);
        self.journal.push(Undo::Raised(key, before));
        true
    }

    /// An epoch above the floor was minted: from now on the partition says it itself.
    pub(super) fn forget_floor(&mut self, key: PartitionKey) {
        let Some(keyspace) = self.state.keyspaces.get_mut(&key.keyspace) else { return };
        if let Some(before) = keyspace.raised.remove(&key.partition) {
            self.journal.push(Undo::Raised(key, Some(before)));
        }
    }
}
