//! `State::apply`: one entry, all or nothing.

use super::answers::{Known, Request};
use super::command::{Command, Entry};
use super::locks::Asker;
use super::outcome::{Applied, Event, Outcome, Refusal, Refused};
use super::undo::Undo;
use super::{Cluster, State};
use crate::ids::{ClusterId, LogIndex, NodeId, PartitionKey, WorkerId};
use crate::mutant;
use std::collections::BTreeMap;

/// One entry on its way through the state: what it changed, and how to take that back.
pub(super) struct Change<'a> {
    pub(super) state: &'a mut State,
    pub(super) index: LogIndex,
    pub(super) unix_ms: u64,
    /// In whose name the commands are carried out.
    pub(super) directive: Option<LogIndex>,
    /// Partitions whose move by a directive this entry has ended: the grant that follows is part of it.
    pub(super) moved_by: BTreeMap<PartitionKey, MovedBy>,
    pub(super) events: Vec<Event>,
    pub(super) journal: Vec<Undo>,
}

/// A move by a directive that has just ended.
pub(super) struct MovedBy {
    pub(super) directive: LogIndex,
    /// The worker that the directive brings it to; any, when `None`.
    pub(super) to: Option<WorkerId>,
}

impl State {
    /// Applies the entry at `index`.
    ///
    /// Total: an entry that does not fit is refused with both sides in the refusal, and leaves the state as it was but
    /// for the index applied. An entry whose request was answered before gets that answer and changes nothing. A directive
    /// by which nothing changes is not remembered, and its outcome is [`Outcome::Unchanged`].
    pub fn apply(&mut self, index: LogIndex, entry: &Entry) -> Applied {
        self.counters.applied = index;
        match entry.request.map_or(Ok(Known::New), |request| self.look_up(request)) {
            Ok(Known::Answered(_)) if mutant!("no-dedup") => {}
            Ok(Known::New) => {}
            Ok(Known::Answered(answer)) => return Applied { outcome: Ok(answer), events: Vec::new() },
            Ok(Known::TooOld) => return refused(0, Refused::TooOld),
            Err(why) => return refused(0, why),
        }

        let mut change = Change {
            index,
            unix_ms: entry.proposed_unix_ms,
            directive: None,
            moved_by: BTreeMap::new(),
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
                    if !mutant!("refused-entry-leaves-a-trace") {
                        self.play_back(journal);
                    }
                    return refused(i, why);
                }
            }
        }
        if change.is_only_said(&entry.commands) {
            let journal = std::mem::take(&mut change.journal);
            self.play_back(journal);
            let said = entry.commands.iter().map(|command| matches!(command, Command::Direct { .. }));
            outcomes
                .iter_mut()
                .zip(said)
                .filter(|(_, said)| *said)
                .for_each(|(o, _)| *o = Outcome::Unchanged);
            if let Some(request) = entry.request {
                self.keep(request, index, &outcomes);
            }
            return Applied { outcome: Ok(outcomes), events: Vec::new() };
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
    /// A directive was given, and what it was to change is so already. One that stands alone is its own effect.
    fn is_only_said(&self, commands: &[Command]) -> bool {
        let directed = self.journal.iter().any(|undo| matches!(undo, Undo::Directed(_)));
        let nothing_else = || self.journal.iter().all(|u| matches!(u, Undo::Counters(_) | Undo::Directed(_)));
        directed && nothing_else() && !commands.iter().all(|c| matches!(c, Command::Direct { .. }))
    }

    fn run(&mut self, command: &Command) -> Result<Outcome, Refused> {
        match command {
            Command::FormCluster { cluster, lineage } => self.form_cluster(cluster, *lineage),
            Command::NoteNode { node } => self.note_node(*node),
            Command::CreateKeyspace { keyspace, partitions, policy } => {
                self.create_keyspace(keyspace, *partitions, policy)
            }
            Command::UpdateKeyspace { keyspace, change } => self.update_keyspace(*keyspace, change),
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
            Command::Forgive { partition, epoch } => Ok(self.forgive(*partition, *epoch)),
            Command::Direct { subject, by, what, reason } => Ok(self.direct(subject, by, what, reason)),
            Command::Under { directive } => self.under(*directive),
            Command::SetWorker { worker, change } => self.set_worker(worker, change),
            Command::ForgetWorker { worker } => self.forget_worker(worker),
            Command::SetPartition { partition, change } => self.set_partition(*partition, change),
            Command::Freeze { keyspace, frozen } => self.freeze(*keyspace, *frozen),
            Command::OpenPlan { size, map, undoes } => self.open_plan(*size, *map, *undoes),
            Command::ExtendPlan { plan, moves } => self.extend_plan(*plan, moves),
            Command::SkipPlanned { plan, partition, why } => Ok(self.skip_planned(*plan, *partition, *why)),
            Command::CancelPlan { plan, only_open } => self.cancel_plan(*plan, *only_open),
            Command::Evict { session } => Ok(self.evict(*session)),
            Command::StartSplit { keyspace, from } => self.start_split(*keyspace, *from),
            Command::CancelSplit { keyspace } => self.cancel_split(*keyspace),
            Command::Split { partition, epoch } => self.split(*partition, *epoch),
            Command::NoteRefusals { notes } => Ok(self.note_refusals(notes)),
            Command::Reassert { keyspace, partition } => self.reassert(*keyspace, *partition),
            Command::EndReassert { order, keyspace, partition } => {
                Ok(self.end_reassert(*order, *keyspace, *partition))
            }
            Command::RaiseAbove { partition, above } => self.raise_above(*partition, *above),
            Command::AcquireLock { lock, session, request, wish, waits } => {
                self.acquire(lock, Asker { session: *session, request: *request, wish: *wish }, *waits)
            }
            Command::ReleaseLock { lock, epoch, session } => self.release_lock(lock, *epoch, *session),
            Command::AbandonLock { lock, session, request } => {
                Ok(self.abandon_lock(lock, *session, *request))
            }
            Command::SeizeLock { lock, epoch, session } => Ok(self.seize_lock(lock, *epoch, *session)),
            Command::BreakLock { lock, epoch, at_once } => Ok(self.break_lock(lock, *epoch, *at_once)),
            Command::EndLockCooling { lock, epoch, session } => {
                Ok(self.end_lock_cooling(lock, *epoch, *session))
            }
        }
    }

    fn form_cluster(&mut self, cluster: &ClusterId, lineage: u64) -> Result<Outcome, Refused> {
        match &self.state.cluster {
            Some(formed) if formed.id == *cluster => Ok(Outcome::Unchanged),
            Some(formed) => Err(Refused::AlreadyFormed(formed.id.clone())),
            None => {
                self.journal.push(Undo::Unformed);
                self.state.cluster = Some(Cluster { id: cluster.clone(), lineage });
                Ok(Outcome::Done)
            }
        }
    }

    fn note_node(&mut self, node: NodeId) -> Result<Outcome, Refused> {
        if !self.state.nodes.insert(node) && !mutant!("node-id-used-twice") {
            return Err(Refused::NodeIdUsed(node));
        }
        self.journal.push(Undo::NodeNoted(node));
        Ok(Outcome::Done)
    }

    pub(super) fn touch_map(&mut self, event: Event) {
        self.state.counters.revision = self.index;
        self.events.push(event);
    }
}
