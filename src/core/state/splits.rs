//! Splitting the partitions of a keyspace in two, one after the other.
//!
//! A partition is split while nobody owns it. The split mints an epoch of the parent that nobody is ever granted, and
//! every owner of the child, for ever, raises the parent's fence to it before it reads: whoever owned the parent before
//! holds a lower one, and is refused for the keys of both. That is never forgotten. An owner raises the fences that it
//! declares, and the next one may declare another; storage that was raised once may not be the storage that is asked next.

use super::State;
use super::apply::{Change, MovedBy};
use super::keyspace::Keyspace;
use super::outcome::{Event, Outcome, Refused};
use super::partition::{Born, Partition, Phase};
use super::undo::Undo;
use crate::ids::{Epoch, EpochFloor, KeyspaceId, LogIndex, PartitionId, PartitionKey};
use crate::mutant;
use crate::placement::{PartitionCount, Partitioner};

impl Keyspace {
    /// The directive by which its partitions are being split, when they are.
    pub fn split(&self) -> Option<LogIndex> {
        self.split
    }

    /// The partition that is split next, when they are being split.
    pub fn next_to_split(&self) -> Option<PartitionId> {
        self.split.map(|_| self.partitioner.next_parent())
    }

    /// Partitions of it are split, or are going to be: its workers have to know what that means.
    pub fn needs_splits(&self) -> bool {
        self.split.is_some() || self.partitions.last().is_some_and(|last| last.born.is_some())
    }

    /// Those that a partition was split from, the nearest first: whoever owns it raises their fences too.
    pub fn ancestors(&self, partition: PartitionId) -> impl Iterator<Item = Born> {
        let born = |partition: PartitionId| self.partitions.get(partition.get() as usize)?.born;
        std::iter::successors(born(partition), move |from| born(from.parent))
    }

    /// How many partitions it has, or will have when they are split.
    pub(super) fn reserved(&self) -> u64 {
        let whole = u64::from(self.partitioner.base().get());
        if self.split.is_some() { 2 * whole } else { self.partitions.len() as u64 }
    }
}

impl State {
    /// Whether the partitions of a keyspace that has so many can be split now.
    ///
    /// # Errors
    /// [`Refused`]: why they cannot.
    pub fn check_split(&self, id: KeyspaceId, from: PartitionCount) -> Result<Partitioner, Refused> {
        let keyspace = self.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        if keyspace.split.is_some() {
            return Err(Refused::SplitUnderWay(id));
        }
        let partitioner = keyspace.partitioner;
        if partitioner.count() != from {
            let (named, count) = (from.get(), partitioner.count().get());
            return Err(Refused::OtherCount { keyspace: id, named, count });
        }
        if partitioner.doubled().is_none() {
            let bound = u64::from(crate::placement::MAX_PARTITIONS);
            return Err(Refused::Limit { what: "the number of partitions of a keyspace", bound });
        }
        self.room_for_partitions(from.get())?;
        let mut serving = self.sessions.values().filter(|session| session.keyspaces.contains(&id));
        if let Some(old) = serving.find(|session| !session.splits) {
            return Err(Refused::CannotSplit { worker: old.worker.clone(), keyspace: id });
        }
        Ok(partitioner)
    }

    /// Whether the beginning of a split can be taken back now.
    ///
    /// # Errors
    /// [`Refused`]: why it cannot.
    pub fn check_cancel_split(&self, id: KeyspaceId) -> Result<Partitioner, Refused> {
        let keyspace = self.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        if keyspace.split.is_none() {
            return Err(Refused::NotSplitting(id));
        }
        let partitioner = keyspace.partitioner;
        if partitioner.is_midway() {
            return Err(Refused::SplitBegun { keyspace: id, born: partitioner.next_parent().get() });
        }
        Ok(partitioner)
    }
}

impl Change<'_> {
    pub(super) fn start_split(&mut self, id: KeyspaceId, from: PartitionCount) -> Result<Outcome, Refused> {
        let partitioner = self.state.check_split(id, from)?;
        let by = self.directive.unwrap_or(self.index);
        self.set_split(id, partitioner, Some(by));
        Ok(Outcome::Done)
    }

    pub(super) fn cancel_split(&mut self, id: KeyspaceId) -> Result<Outcome, Refused> {
        let partitioner = self.state.check_cancel_split(id)?;
        self.set_split(id, partitioner, None);
        Ok(Outcome::Done)
    }

    pub(super) fn split(&mut self, key: PartitionKey, named: Option<Epoch>) -> Result<Outcome, Refused> {
        let partition = self.find(key)?;
        if partition.epoch() != named {
            return Err(Refused::StaleEpoch { partition: key, named, current: partition.epoch() });
        }
        let PartitionKey { keyspace: id, partition: parent } = key;
        let keyspace = self.state.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        let (partitioner, Some(by)) = (keyspace.partitioner, keyspace.split) else {
            return Err(Refused::NotSplitting(id));
        };
        if partitioner.next_parent() != parent && !mutant!("split-out-of-turn") {
            let next = PartitionKey { keyspace: id, partition: partitioner.next_parent() };
            return Err(Refused::NotNextToSplit { partition: key, next });
        }
        let owned = matches!(partition.phase, Phase::Owned { .. } | Phase::Draining(_));
        if owned && !mutant!("split-under-its-owner") {
            return Err(Refused::NotVacant(key));
        }
        // The beginning of a split was checked against the bound.
        let full = Refused::SplitUnderWay(id);
        let grown = partitioner.grown().ok_or(full)?;
        let epoch = match named {
            Some(last) if mutant!("split-mints-no-epoch") => last,
            _ => self.mint(key)?,
        };
        let child = Partition::split_from(parent, epoch, by, &partition.phase);
        let child_key = PartitionKey { keyspace: id, partition: partitioner.next_child() };
        if !mutant!("split-epoch-granted") {
            self.change(key, |partition| partition.epoch = EpochFloor::of(epoch));
            self.forget_floor(key);
        }
        if let Some(keyspace) = self.state.keyspaces.get_mut(&id) {
            keyspace.partitions.push(child);
            self.journal.push(Undo::Born(id));
        }
        self.set_split(id, grown, Some(by).filter(|_| grown.is_midway()));
        self.touch_map(Event::Partition { key: child_key, before: None, after: None });
        // The grants that follow in this entry are part of it.
        for key in [key, child_key] {
            self.moved_by.entry(key).or_insert(MovedBy { directive: by, to: None });
        }
        Ok(Outcome::Done)
    }

    fn set_split(&mut self, id: KeyspaceId, partitioner: Partitioner, split: Option<LogIndex>) {
        let Some(keyspace) = self.state.keyspaces.get_mut(&id) else { return };
        self.journal.push(Undo::Split(id, keyspace.partitioner, keyspace.split));
        (keyspace.partitioner, keyspace.split) = (partitioner, split);
        self.touch_map(Event::Split(id));
    }
}
