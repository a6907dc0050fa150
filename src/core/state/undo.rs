//! How a refused entry leaves no trace: each change notes its inverse, and a refusal plays them back.
//!
//! Copying the state before each entry would be simpler and cost a copy of every partition; a change here costs what
//! it touched.

use super::State;
use super::counters::Counters;
use super::directive::{Directive, PartitionSettings, WorkerSettings};
use super::keyspace::{Deleted, Keyspace, Policy};
use super::lock::Lock;
use super::partition::Partition;
use super::plans::{ApprovedPlan, PlanMove, PlanStage};
use super::reasserts::Reassert;
use super::refusals::RefusedWrites;
use super::session::{Ended, Session, Suspicion};
use crate::ids::{EpochFloor, KeyspaceId, LockName, LogIndex, NodeId, PartitionKey, SessionId, WorkerId};
use crate::placement::Partitioner;
use std::collections::{BTreeSet, VecDeque};

/// The inverse of one change.
pub(super) enum Undo {
    Counters(Counters),
    Unformed,
    NodeNoted(NodeId),
    KeyspaceCreated(KeyspaceId),
    KeyspaceDeleted(Box<Keyspace>),
    /// What was remembered of deleted keyspaces. Few are, and fewer change it, so it is kept whole.
    Deleted(VecDeque<Deleted>),
    Policy(KeyspaceId, Policy),
    /// A split began, ended or went on.
    Split(KeyspaceId, Partitioner, Option<LogIndex>),
    /// The last partition of a keyspace was born.
    Born(KeyspaceId),
    Joined(SessionId),
    /// The session, and what fell out of the memory of ended ones to make room.
    Ended(Box<Session>, Option<Ended>),
    Withdrawn(SessionId),
    Suspicion(SessionId, Option<Suspicion>),
    Assignment(SessionId, LogIndex),
    Held(SessionId, PartitionKey),
    Unheld(SessionId, PartitionKey),
    Partition(PartitionKey, Box<Partition>),
    /// A directive was remembered, and this one forgotten to make room.
    Directed(Option<Directive>),
    WorkerSettings(WorkerId, Option<WorkerSettings>),
    PartitionSettings(PartitionKey, Option<PartitionSettings>),
    Frozen(Option<KeyspaceId>, Option<LogIndex>),
    /// A plan was opened, in place of this one.
    PlanOpened(Option<ApprovedPlan>),
    /// A plan got moves after this many.
    PlanExtended(LogIndex, usize),
    /// A plan started: what was remembered of directives, and the plan that was forgotten to make room.
    PlanStarted(LogIndex, VecDeque<Directive>, Option<ApprovedPlan>),
    /// A plan that was being written was dropped.
    PlanDropped(ApprovedPlan),
    /// A plan's move at this place waited, and was this.
    PlanStep(LogIndex, usize, PlanMove),
    PlanStage(LogIndex, PlanStage),
    /// What was remembered of refused writes. It changes once a second at the most, so it is kept whole.
    Refusals(VecDeque<RefusedWrites>),
    Reasserts(VecDeque<Reassert>),
    /// The floor of a partition.
    Raised(PartitionKey, Option<EpochFloor>),
    /// A lock; `None` when it was idle.
    Lock(LockName, Option<Box<Lock>>),
    /// Whether a session held a lock.
    LockHeld(SessionId, LockName, bool),
    /// Whether a session waited for a lock.
    LockAwaited(SessionId, LockName, bool),
}

impl State {
    pub(super) fn play_back(&mut self, journal: Vec<Undo>) {
        for undo in journal.into_iter().rev() {
            match undo {
                Undo::Counters(before) => self.counters = before,
                Undo::Unformed => self.cluster = None,
                Undo::NodeNoted(node) => {
                    self.nodes.remove(&node);
                }
                Undo::KeyspaceCreated(id) => {
                    if let Some(keyspace) = self.keyspaces.remove(&id) {
                        self.names.remove(&keyspace.name);
                    }
                }
                Undo::KeyspaceDeleted(keyspace) => {
                    self.names.insert(keyspace.name.clone(), keyspace.id);
                    self.keyspaces.insert(keyspace.id, *keyspace);
                }
                Undo::Deleted(before) => self.deleted = before,
                Undo::Policy(id, before) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                        keyspace.policy = before;
                    }
                }
                Undo::Split(id, partitioner, split) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                        (keyspace.partitioner, keyspace.split) = (partitioner, split);
                    }
                }
                Undo::Born(id) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                        keyspace.partitions.pop();
                    }
                }
                Undo::Joined(id) => {
                    if let Some(session) = self.sessions.remove(&id) {
                        self.workers.remove(&session.worker);
                    }
                }
                Undo::Ended(session, forgotten) => {
                    self.ended.pop_back();
                    self.ended.extend(forgotten.clone());
                    self.ended.rotate_right(usize::from(forgotten.is_some()));
                    self.workers.insert(session.worker.clone(), session.id);
                    self.sessions.insert(session.id, *session);
                }
                Undo::Withdrawn(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.withdrawn = false;
                    }
                }
                Undo::Suspicion(id, before) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.suspicion = before;
                    }
                }
                Undo::Assignment(id, before) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.assignment = before;
                    }
                }
                Undo::Held(id, key) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.holds.remove(&key);
                    }
                }
                Undo::Unheld(id, key) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.holds.insert(key);
                    }
                }
                Undo::Partition(key, before) => {
                    if let Some(slot) = self.partition_mut(key) {
                        *slot = *before;
                    }
                }
                Undo::Directed(forgotten) => {
                    self.directives.pop_back();
                    forgotten.into_iter().for_each(|directive| self.directives.push_front(directive));
                }
                Undo::WorkerSettings(worker, before) => match before {
                    Some(before) => drop(self.worker_settings.insert(worker, before)),
                    None => drop(self.worker_settings.remove(&worker)),
                },
                Undo::PartitionSettings(key, before) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&key.keyspace) {
                        match before {
                            Some(before) => drop(keyspace.settings.insert(key.partition, before)),
                            None => drop(keyspace.settings.remove(&key.partition)),
                        }
                    }
                }
                Undo::Frozen(None, before) => self.frozen = before,
                Undo::Frozen(Some(id), before) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                        keyspace.frozen = before;
                    }
                }
                Undo::PlanOpened(gone) => self.unopen_plan(gone),
                Undo::PlanExtended(id, before) => self.unextend_plan(id, before),
                Undo::PlanStarted(id, directives, oldest) => {
                    self.directives = directives;
                    self.unstart_plan(id, oldest);
                }
                Undo::PlanDropped(plan) => self.plans.push_back(plan),
                Undo::PlanStep(id, place, before) => self.unstep_plan(id, place, before),
                Undo::PlanStage(id, before) => {
                    if let Some(plan) = self.plan_mut(id) {
                        plan.stage = before;
                    }
                }
                Undo::Refusals(before) => self.refusals = before,
                Undo::Reasserts(before) => self.reasserts = before,
                Undo::Raised(key, before) => {
                    if let Some(keyspace) = self.keyspaces.get_mut(&key.keyspace) {
                        match before {
                            Some(before) => drop(keyspace.raised.insert(key.partition, before)),
                            None => drop(keyspace.raised.remove(&key.partition)),
                        }
                    }
                }
                Undo::Lock(name, before) => match before {
                    Some(before) => drop(self.locks.insert(name, *before)),
                    None => drop(self.locks.remove(&name)),
                },
                Undo::LockHeld(id, name, before) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        set(&mut session.locks, name, before);
                    }
                }
                Undo::LockAwaited(id, name, before) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        set(&mut session.waits, name, before);
                    }
                }
            }
        }
    }
}

fn set(names: &mut BTreeSet<LockName>, name: LockName, there: bool) {
    if there {
        names.insert(name);
    } else {
        names.remove(&name);
    }
}
