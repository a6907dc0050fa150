//! The replicated state and the one function that changes it, [`State::apply`].
//!
//! `apply` is total and deterministic: no clock, no random number, no hash-map order. A command that does not fit the
//! state it meets is a [`Refused`] value that carries both sides, and changes nothing. Everything bounded is bounded by
//! count or log index; a wall time is for display and is never compared.
//!
//! It is not the lease: renewals are no log entries, and what the state knows of time is durations that a leader
//! counts on its own clock (see [`crate::lease`]).

mod answers;
mod apply;
mod command;
mod counters;
mod course;
mod directive;
mod directives;
mod handoff;
mod keyspace;
mod keyspaces;
mod lock;
mod locks;
mod outcome;
mod partition;
mod parts;
mod plans;
mod reasserts;
mod refusals;
mod session;
mod sessions;
mod splits;
mod text;
mod undo;

#[cfg(test)]
mod tests;

pub use answers::{OPERATOR_ANSWERS, OperatorAnswers, Request, SESSION_ANSWERS, SessionAnswers};
pub use command::{Command, Entry, Join, Released};
pub use course::Course;
pub use directive::{
    DIRECTIVES_LEN, Directive, MAX_DIRECTIVE_BYTES, MAX_PARTITION_SETTINGS, MAX_PARTITION_WEIGHT,
    MAX_WORKER_SETTINGS, PartitionChange, PartitionSettings, Subject, WorkerChange, WorkerSettings,
};
pub use keyspace::{
    BalanceBy, DEFAULT_TTL, DELETED_LEN, Deleted, Keyspace, MAX_CONSTRAINT_BYTES, MAX_CONSTRAINTS,
    MAX_DRAIN_DEADLINE, MAX_KEYSPACES, MAX_LOCK_DELAY, MAX_MOVES_PER_MINUTE, MAX_REJOIN_HOLD,
    MAX_TOTAL_PARTITIONS, MAX_TTL, MIN_TTL, Policy, PolicyChange, PolicyError, Takeover,
};
pub use lock::{
    Lock, LockCooling, LockGrant, LockMode, LockWaiter, LockWish, LockWishError, MAX_LOCK_ALERT,
    MAX_LOCK_WAITERS, MAX_LOCKS, MAX_SESSION_LOCKS,
};
pub use outcome::{Applied, Event, Outcome, Refusal, Refused};
pub use partition::{
    Born, Cooling, CoolingWhy, Drain, GrantReason, HISTORY_LEN, MAX_FAILURE_BYTES, Partition, Phase, Setback,
    Tenure,
};
pub use parts::{KeyspaceParts, OperatorAnswer, PartitionParts, PartsError, SessionParts, StateParts};
pub use plans::{ApprovedPlan, MAX_PLAN_MOVES, PLANS_LEN, PlanMove, PlanStage, PlanStep, SkipReason};
pub use reasserts::{MAX_ABOVE_JUMP, MAX_SEEN_JUMP, REASSERTS_LEN, Reassert, Reasserted};
pub use refusals::{Holder, MAX_REFUSALS_NOTED, REFUSALS_LEN, RefusalNote, RefusedWrite, RefusedWrites};
pub use session::{
    ENDED_LEN, EndReason, Ended, Life, MAX_ADDRESS_BYTES, MAX_LABELS, MAX_SESSIONS, Session, Suspicion,
};
pub use text::cut;

use counters::Counters;

use crate::ids::{
    ClusterId, Epoch, EpochFloor, KeyspaceId, KeyspaceName, LockName, LogIndex, NodeId, PartitionKey,
    Revision, SessionId, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything the coordinator replicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) cluster: Option<Cluster>,
    pub(crate) counters: Counters,
    /// Every node id that was ever a member: none is used again.
    pub(crate) nodes: BTreeSet<NodeId>,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, Keyspace>,
    pub(crate) names: BTreeMap<KeyspaceName, KeyspaceId>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) workers: BTreeMap<WorkerId, SessionId>,
    pub(crate) ended: VecDeque<Ended>,
    /// Deleted keyspaces whose owners' leases may still run, oldest first; each name once.
    pub(crate) deleted: VecDeque<Deleted>,
    pub(crate) answers: OperatorAnswers,
    /// What operators decided, oldest first.
    pub(crate) directives: VecDeque<Directive>,
    pub(crate) worker_settings: BTreeMap<WorkerId, WorkerSettings>,
    /// No planned move begins anywhere, by this directive.
    pub(crate) frozen: Option<LogIndex>,
    /// Plans that operators approved, oldest first.
    pub(crate) plans: VecDeque<ApprovedPlan>,
    /// Writes that storage refused, those reported last at the end.
    pub(crate) refusals: VecDeque<RefusedWrites>,
    /// Orders to raise fences again, oldest first.
    pub(crate) reasserts: VecDeque<Reassert>,
    /// The locks that somebody holds, waits for, or may believe to hold.
    pub(crate) locks: BTreeMap<LockName, Lock>,
}

/// The cluster's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// What fences and peers compare.
    pub id: ClusterId,
    /// The history that watch revisions belong to. A restored cluster has another.
    pub lineage: u64,
}

impl State {
    /// The state before the first entry.
    pub fn new() -> State {
        State {
            cluster: None,
            counters: Counters::new(),
            nodes: BTreeSet::new(),
            keyspaces: BTreeMap::new(),
            names: BTreeMap::new(),
            sessions: BTreeMap::new(),
            workers: BTreeMap::new(),
            ended: VecDeque::new(),
            deleted: VecDeque::new(),
            answers: OperatorAnswers::default(),
            directives: VecDeque::new(),
            worker_settings: BTreeMap::new(),
            frozen: None,
            plans: VecDeque::new(),
            refusals: VecDeque::new(),
            reasserts: VecDeque::new(),
            locks: BTreeMap::new(),
        }
    }

    /// The cluster's identity, once it is formed.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Every node id that was ever a member.
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    /// The last entry applied.
    pub fn applied(&self) -> LogIndex {
        self.counters.applied
    }

    /// The last entry that changed the map of partitions.
    pub fn revision(&self) -> Revision {
        Revision::new(self.counters.revision.get())
    }

    /// No epoch at or below it is minted anywhere in the cluster.
    pub fn floor(&self) -> EpochFloor {
        self.counters.floor
    }

    /// All keyspaces, by number.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.keyspaces.values()
    }

    /// One keyspace.
    pub fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.keyspaces.get(&id)
    }

    /// One keyspace by name.
    pub fn keyspace_named(&self, name: &KeyspaceName) -> Option<&Keyspace> {
        self.keyspaces.get(self.names.get(name)?)
    }

    /// One partition.
    pub fn partition(&self, key: PartitionKey) -> Option<&Partition> {
        self.keyspaces.get(&key.keyspace)?.partitions.get(key.partition.get() as usize)
    }

    /// All live sessions, by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// One live session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// The live session of a worker.
    pub fn session_of(&self, worker: &WorkerId) -> Option<&Session> {
        self.sessions.get(self.workers.get(worker)?)
    }

    /// How a session ended, when that is still known.
    pub fn ended(&self, session: SessionId) -> Option<&Ended> {
        self.ended.iter().rev().find(|ended| ended.session == session)
    }

    /// The answer given before to an operator's request under this id, while it is remembered.
    pub fn answer_to(&self, id: u128) -> Option<&[Outcome]> {
        self.answers.kept.get(&id).map(|(_, answer)| answer.as_slice())
    }

    /// What operators decided, oldest first.
    pub fn directives(&self) -> impl DoubleEndedIterator<Item = &Directive> {
        self.directives.iter()
    }

    /// Whether something was used already that nodes from before directives cannot read: a directive, a worker that splits
    /// or takes locks, or a write that storage refused. Only then may a leader write what they cannot read without being told to.
    pub fn has_what_is_new(&self) -> bool {
        let told = || self.sessions.values().any(|session| session.splits) || !self.refusals.is_empty();
        !self.directives.is_empty() || self.counters.lock_epoch != EpochFloor::NONE || told()
    }

    /// One directive, while it is remembered; that of a plan as long as the plan is.
    pub fn directive(&self, at: LogIndex) -> Option<&Directive> {
        let place = self.directives.binary_search_by_key(&at, |directive| directive.at).ok();
        let of_plan = || self.plans.iter().find(|plan| plan.id == at)?.given.as_deref();
        place.and_then(|place| self.directives.get(place)).or_else(of_plan)
    }

    /// What operators set about workers, by name; those without settings are left out.
    pub fn worker_settings(&self) -> &BTreeMap<WorkerId, WorkerSettings> {
        &self.worker_settings
    }

    /// The directive by which no planned move begins anywhere, if there is one.
    pub fn frozen(&self) -> Option<LogIndex> {
        self.frozen
    }

    /// The last sessions that ended, oldest first.
    pub fn all_ended(&self) -> impl DoubleEndedIterator<Item = &Ended> {
        self.ended.iter()
    }

    /// The epoch that a grant or a split of the partition would mint now; `None` when its epochs are used up.
    pub(crate) fn next_epoch(&self, key: PartitionKey) -> Option<Epoch> {
        self.floor_of(key)?.next()
    }

    fn partition_mut(&mut self, key: PartitionKey) -> Option<&mut Partition> {
        self.keyspaces.get_mut(&key.keyspace)?.partitions.get_mut(key.partition.get() as usize)
    }
}

/// [`State::new`].
impl Default for State {
    fn default() -> State {
        State::new()
    }
}
