//! Commands about keyspaces: create, update, delete.

use super::State;
use super::apply::Change;
use super::keyspace::{
    DELETED_LEN, Deleted, Keyspace, MAX_KEYSPACES, MAX_TOTAL_PARTITIONS, Policy, PolicyChange, Takeover,
};
use super::outcome::{Event, Outcome, Refused};
use super::partition::{CoolingWhy, Partition, Phase};
use super::undo::Undo;
use crate::ids::{EpochFloor, KeyspaceId, KeyspaceName, PartitionId, PartitionKey};
use crate::mutant;
use crate::placement::{PartitionCount, Partitioner};
use std::collections::BTreeMap;
use std::time::Duration;

impl State {
    /// Whether a keyspace of this name and so many partitions can be created now.
    ///
    /// # Errors
    /// [`Refused`]: why it cannot.
    pub fn check_create(&self, name: &KeyspaceName, count: PartitionCount) -> Result<(), Refused> {
        if self.names.contains_key(name) {
            return Err(Refused::KeyspaceExists(name.clone()));
        }
        if self.keyspaces.len() >= MAX_KEYSPACES {
            return Err(Refused::Limit { what: "the number of keyspaces", bound: MAX_KEYSPACES as u64 });
        }
        self.room_for_partitions(count.get())
    }

    /// What a split that is under way will add counts already, so that it is never stopped by the bound.
    pub(super) fn room_for_partitions(&self, more: u32) -> Result<(), Refused> {
        let have: u64 = self.keyspaces.values().map(Keyspace::reserved).sum();
        if have + u64::from(more) > MAX_TOTAL_PARTITIONS {
            let what = "the number of partitions of all keyspaces";
            return Err(Refused::Limit { what, bound: MAX_TOTAL_PARTITIONS });
        }
        Ok(())
    }
}

impl Change<'_> {
    pub(super) fn create_keyspace(
        &mut self,
        name: &KeyspaceName,
        count: PartitionCount,
        policy: &Policy,
    ) -> Result<Outcome, Refused> {
        self.state.check_create(name, count)?;
        let id = self.state.counters.take_keyspace()?;
        // Whatever was deleted before has left its highest epoch in the cluster's floor.
        let floor = self.state.counters.floor;
        let first = match self.lease_of_deleted(name) {
            Some(lease) => Partition::after_deleted(floor, lease),
            None => Partition::new(),
        };
        self.state.names.insert(name.clone(), id);
        let partitions = vec![first; count.get() as usize];
        let keyspace = Keyspace {
            id,
            name: name.clone(),
            policy: policy.clone(),
            floor,
            partitioner: Partitioner::whole(count),
            split: None,
            partitions,
            settings: BTreeMap::new(),
            frozen: None,
            raised: BTreeMap::new(),
        };
        self.state.keyspaces.insert(id, keyspace);
        self.journal.push(Undo::KeyspaceCreated(id));
        self.touch_map(Event::Keyspace(id));
        Ok(Outcome::Created(id))
    }

    pub(super) fn update_keyspace(
        &mut self,
        id: KeyspaceId,
        change: &PolicyChange,
    ) -> Result<Outcome, Refused> {
        let keyspace = self.state.keyspaces.get_mut(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        let policy = keyspace.policy.with(change)?;
        if policy == keyspace.policy {
            return Ok(Outcome::Unchanged);
        }
        self.journal.push(Undo::Policy(id, std::mem::replace(&mut keyspace.policy, policy)));
        self.touch_map(Event::Keyspace(id));
        Ok(Outcome::Done)
    }

    /// The highest epoch of the keyspace stays behind as a floor, so that one created again under the name never
    /// repeats an epoch. The floor is the cluster's: remembering one for each name ever used would have no bound.
    pub(super) fn delete_keyspace(&mut self, id: KeyspaceId) -> Result<Outcome, Refused> {
        let keyspace = self.state.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        let floor = if mutant!("floor-forgotten") { EpochFloor::NONE } else { keyspace.highest() };
        let lease = self.lease_in(keyspace);
        let owned: Vec<_> = (0u32..)
            .zip(&keyspace.partitions)
            .filter_map(|(number, partition)| Some((PartitionId::new(number), partition.owner()?)))
            .collect();
        for (partition, owner) in owned {
            let key = PartitionKey { keyspace: id, partition };
            self.unhold(owner, key);
            self.events.push(Event::Partition { key, before: Some(owner), after: None });
        }
        if let Some(keyspace) = self.state.keyspaces.remove(&id) {
            self.state.names.remove(&keyspace.name);
            self.state.counters.floor = EpochFloor::max(self.state.counters.floor, floor);
            self.touch_map(Event::KeyspaceDeleted(id, keyspace.name.clone()));
            if self.state.reasserts.iter().any(|order| order.keyspace == id) {
                self.journal.push(Undo::Reasserts(self.state.reasserts.clone()));
                self.state.reasserts.retain(|order| order.keyspace != id);
            }
            if let Some(lease) = lease {
                self.remember_deleted(Deleted { name: keyspace.name.clone(), lease });
            }
            self.journal.push(Undo::KeyspaceDeleted(Box::new(keyspace)));
        }
        Ok(Outcome::Done)
    }

    /// The longest lease under which somebody owns, or may still believe to own, a partition of the keyspace.
    fn lease_in(&self, keyspace: &Keyspace) -> Option<Duration> {
        if keyspace.policy.takeover() == Takeover::Fence {
            return None;
        }
        let leases =
            keyspace.partitions.iter().filter_map(|partition| match (&partition.phase, partition.owner()) {
                (Phase::Cooling(cooling), _) if cooling.why == CoolingWhy::Lease => {
                    Some(cooling.lease_of.map_or(cooling.then, |(_, ttl)| ttl))
                }
                (_, Some(owner)) => self.state.sessions.get(&owner).map(|session| session.ttl),
                _ => None,
            });
        leases.max()
    }

    fn remember_deleted(&mut self, deleted: Deleted) {
        self.journal.push(Undo::Deleted(self.state.deleted.clone()));
        if self.state.deleted.len() == DELETED_LEN {
            self.state.deleted.pop_front();
        }
        self.state.deleted.push_back(deleted);
    }

    /// The lease that a keyspace of this name left behind, which is then the affair of the one created again.
    fn lease_of_deleted(&mut self, name: &KeyspaceName) -> Option<Duration> {
        let at = self.state.deleted.iter().position(|deleted| deleted.name == *name)?;
        self.journal.push(Undo::Deleted(self.state.deleted.clone()));
        self.state.deleted.remove(at).map(|deleted| deleted.lease)
    }
}
