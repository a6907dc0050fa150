//! `State::apply`: one entry, all or nothing.

use super::answers::{Known, Request};
use super::command::{Command, Entry};
use super::keyspace::{DELETED_LEN, Deleted, Keyspace, MAX_KEYSPACES, MAX_TOTAL_PARTITIONS, Takeover};
use super::outcome::{Applied, Event, Outcome, Refusal, Refused};
use super::partition::{CoolingWhy, Partition, Phase};
use super::undo::Undo;
use super::{Cluster, State};
use crate::ids::{EpochFloor, KeyspaceId, KeyspaceName, LogIndex, PartitionId, PartitionKey};
use std::time::Duration;

/// One entry on its way through the state: what it changed, and how to take that back.
pub(super) struct Change<'a> {
    pub(super) state: &'a mut State,
    pub(super) index: LogIndex,
    pub(super) unix_ms: u64,
    pub(super) events: Vec<Event>,
    pub(super) journal: Vec<Undo>,
}

impl State {
    /// Applies the entry at `index`.
    ///
    /// Total: an entry that does not fit is refused with both sides in the refusal, and leaves the state as it was but
    /// for the index applied. An entry whose request was answered before gets that answer and changes nothing.
    pub fn apply(&mut self, index: LogIndex, entry: &Entry) -> Applied {
        self.counters.applied = index;
        match entry.request.map_or(Ok(Known::New), |request| self.look_up(request)) {
            Ok(Known::New) => {}
            Ok(Known::Answered(answer)) => return Applied { outcome: Ok(answer), events: Vec::new() },
            Ok(Known::TooOld) => return refused(0, Refused::TooOld),
            Err(why) => return refused(0, why),
        }

        let mut change = Change {
            index,
            unix_ms: entry.proposed_unix_ms,
            events: Vec::new(),
            journal: vec![Undo::Counters(self.counters)],
            state: self,
        };
        let mut outcomes = Vec::with_capacity(entry.commands.len());
        for (i, command) in entry.commands.iter().enumerate() {
            match change.run(command) {
                Ok(outcome) => outcomes.push(outcome),
                Err(why) => {
                    let journal = std::mem::take(&mut change.journal);
                    self.play_back(journal);
                    return refused(i, why);
                }
            }
        }
        let events = change.events;
        if let Some(request) = entry.request {
            self.keep(request, index, &outcomes);
        }
        Applied { outcome: Ok(outcomes), events }
    }

    /// Notes an entry that carries no commands: one of Raft's own.
    pub fn skip(&mut self, index: LogIndex) {
        self.counters.applied = index;
    }

    /// The request took effect before, and a retry of it is only answered.
    #[cfg(test)]
    pub(crate) fn is_answered(&self, request: Request) -> bool {
        matches!(self.look_up(request), Ok(Known::Answered(_)))
    }

    fn look_up(&self, request: Request) -> Result<Known, Refused> {
        match request {
            Request::Operator { id, seen } => Ok(self.answers.look_up(id, seen)),
            Request::Session { session, number, .. } => match self.sessions.get(&session) {
                Some(live) => Ok(live.answers.look_up(number)),
                None => Err(self.session_ended(session)),
            },
        }
    }

    fn keep(&mut self, request: Request, index: LogIndex, outcomes: &[Outcome]) {
        match request {
            Request::Operator { id, .. } => self.answers.keep(id, index, outcomes.to_vec()),
            // The entry may have ended its own session; then its answers are gone with it.
            Request::Session { session, number, settled_below } => {
                if let Some(live) = self.sessions.get_mut(&session) {
                    live.answers.keep(number, settled_below, outcomes.to_vec());
                }
            }
        }
    }
}

fn refused(command: usize, why: Refused) -> Applied {
    Applied { outcome: Err(Refusal { command, why }), events: Vec::new() }
}

impl Change<'_> {
    fn run(&mut self, command: &Command) -> Result<Outcome, Refused> {
        match command {
            Command::FormCluster { cluster, lineage } => match &self.state.cluster {
                Some(formed) if formed.id == *cluster => Ok(Outcome::Unchanged),
                Some(formed) => Err(Refused::AlreadyFormed(formed.id.clone())),
                None => {
                    self.journal.push(Undo::Unformed);
                    self.state.cluster = Some(Cluster { id: cluster.clone(), lineage: *lineage });
                    Ok(Outcome::Done)
                }
            },
            Command::NoteNode { node } => {
                if !self.state.nodes.insert(*node) {
                    return Err(Refused::NodeIdUsed(*node));
                }
                self.journal.push(Undo::NodeNoted(*node));
                Ok(Outcome::Done)
            }
            Command::CreateKeyspace { keyspace, partitions, policy } => {
                if self.state.names.contains_key(keyspace) {
                    return Err(Refused::KeyspaceExists(keyspace.clone()));
                }
                self.room_for_keyspace(partitions.get())?;
                let id = self.state.counters.take_keyspace()?;
                // Whatever was deleted before has left its highest epoch in the cluster's floor.
                let floor = self.state.counters.floor;
                let first = match self.lease_of_deleted(keyspace) {
                    Some(lease) => Partition::after_deleted(floor, lease),
                    None => Partition::new(),
                };
                self.state.names.insert(keyspace.clone(), id);
                self.state.keyspaces.insert(
                    id,
                    Keyspace {
                        id,
                        name: keyspace.clone(),
                        policy: policy.clone(),
                        floor,
                        count: *partitions,
                        partitions: vec![first; partitions.get() as usize],
                    },
                );
                self.journal.push(Undo::KeyspaceCreated(id));
                self.touch_map(Event::Keyspace(id));
                Ok(Outcome::Created(id))
            }
            Command::UpdateKeyspace { keyspace, change } => {
                let slot =
                    self.state.keyspaces.get_mut(keyspace).ok_or(Refused::NoSuchKeyspace(*keyspace))?;
                let policy = slot.policy.with(change)?;
                if policy == slot.policy {
                    return Ok(Outcome::Unchanged);
                }
                self.journal.push(Undo::Policy(*keyspace, std::mem::replace(&mut slot.policy, policy)));
                self.touch_map(Event::Keyspace(*keyspace));
                Ok(Outcome::Done)
            }
            Command::DeleteKeyspace { keyspace } => self.delete_keyspace(*keyspace),
            Command::Join(join) => self.join(join),
            Command::Withdraw { session } => self.withdraw(*session),
            Command::Leave { session } => self.leave(*session),
            Command::Suspect { sessions } => self.suspect(sessions),
            Command::Clear { sessions } => Ok(self.clear(sessions)),
            Command::Expire { session, suspicion } => self.expire(*session, *suspicion),
            Command::Grant { partition, replaces, to, why } => self.grant(*partition, *replaces, *to, *why),
            Command::Drain { partition, epoch, to, deadline, why } => {
                self.drain(*partition, *epoch, to, *deadline, *why)
            }
            Command::RevokeSeen { partition, epoch, session } => {
                Ok(self.revoke_seen(*partition, *epoch, *session))
            }
            Command::DrainOver { partition, epoch, move_id } => self.drain_over(*partition, *epoch, *move_id),
            Command::Seize { partition, epoch, session } => self.seize(*partition, *epoch, *session),
            Command::Release { partition, epoch, session, how } => {
                self.release(*partition, *epoch, *session, how)
            }
            Command::Ready { partition, epoch, session } => self.ready(*partition, *epoch, *session),
            Command::EndCooling { partition, epoch } => self.end_cooling(*partition, *epoch),
        }
    }

    fn room_for_keyspace(&self, partitions: u32) -> Result<(), Refused> {
        if self.state.keyspaces.len() >= MAX_KEYSPACES {
            return Err(Refused::Limit { what: "the number of keyspaces", bound: MAX_KEYSPACES as u64 });
        }
        let have: u64 = self.state.keyspaces.values().map(|k| k.partitions.len() as u64).sum();
        if have + u64::from(partitions) > MAX_TOTAL_PARTITIONS {
            let what = "the number of partitions of all keyspaces";
            return Err(Refused::Limit { what, bound: MAX_TOTAL_PARTITIONS });
        }
        Ok(())
    }

    /// The highest epoch of the keyspace stays behind as a floor, so that one created again under the name never
    /// repeats an epoch. The floor is the cluster's: remembering one for each name ever used would have no bound.
    fn delete_keyspace(&mut self, id: KeyspaceId) -> Result<Outcome, Refused> {
        let keyspace = self.state.keyspaces.get(&id).ok_or(Refused::NoSuchKeyspace(id))?;
        let floor = keyspace.highest();
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

    pub(super) fn touch_map(&mut self, event: Event) {
        self.state.counters.revision = self.index;
        self.events.push(event);
    }
}
