//! The state as plain data, for whoever writes it down and reads it back.
//!
//! [`StateParts`] has every field of [`State`] in the open, without what follows from the rest: which sessions hold
//! what, and who is found under which name. It is a value to encode, not one to work with.
//!
//! The rule: [`State::from_parts`] takes nothing on trust. Parts come from a file or from a peer, and a state that
//! contradicts itself would grant an epoch twice or take a partition from its owner. What `apply` can never have
//! produced is refused.

mod check;
mod directed;
mod locks;
mod splits;
mod told;

pub use check::PartsError;

use super::State;
use super::answers::OperatorAnswers;
use super::directive::{Directive, PartitionSettings, WorkerSettings};
use super::keyspace::{Deleted, Keyspace, Policy};
use super::lock::Lock;
use super::outcome::Outcome;
use super::partition::{Born, Partition, Phase, Setback, Tenure};
use super::plans::ApprovedPlan;
use super::reasserts::Reassert;
use super::refusals::RefusedWrites;
use super::session::{Ended, Session, Suspicion};
use crate::ids::{EpochFloor, KeyspaceId, KeyspaceName, LogIndex, NodeId, PartitionId, SessionId, WorkerId};
use crate::placement::{PartitionCount, Weight};
use crate::state::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Everything that a [`State`] remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateParts {
    /// The cluster's identity, once it is formed.
    pub cluster: Option<Cluster>,
    /// No epoch at or below it is minted anywhere in the cluster.
    pub floor: EpochFloor,
    /// No lock was granted an epoch above it.
    pub lock_epoch: EpochFloor,
    /// The number of the next keyspace to be created.
    pub next_keyspace: u32,
    /// The number of the next session to be opened.
    pub next_session: u64,
    /// The number of the next move to be begun.
    pub next_move: u64,
    /// The last entry that changed the map of partitions.
    pub revision: LogIndex,
    /// The last entry applied.
    pub applied: LogIndex,
    /// Every node id that was ever a member, ascending.
    pub nodes: Vec<NodeId>,
    /// The keyspaces, ascending by id.
    pub keyspaces: Vec<KeyspaceParts>,
    /// The live sessions, ascending by id.
    pub sessions: Vec<SessionParts>,
    /// The last sessions that ended, oldest first.
    pub ended: Vec<Ended>,
    /// Deleted keyspaces whose owners' leases may still run, oldest first.
    pub deleted: Vec<Deleted>,
    /// The answers to requests without a session, oldest first.
    pub answers: Vec<OperatorAnswer>,
    /// The log index of the youngest such answer that was forgotten.
    pub answers_dropped: Option<LogIndex>,
    /// What operators decided, oldest first.
    pub directives: Vec<Directive>,
    /// What operators set about workers, ascending by name.
    pub worker_settings: Vec<(WorkerId, WorkerSettings)>,
    /// No planned move begins anywhere, by this directive.
    pub frozen: Option<LogIndex>,
    /// Plans that operators approved, oldest first.
    pub plans: Vec<ApprovedPlan>,
    /// Writes that storage refused, those reported last at the end.
    pub refusals: Vec<RefusedWrites>,
    /// Orders to raise fences again, oldest first.
    pub reasserts: Vec<Reassert>,
    /// The locks that somebody holds, waits for, or may believe to hold; ascending by name.
    pub locks: Vec<Lock>,
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceParts {
    /// Its number.
    pub id: KeyspaceId,
    /// Its name.
    pub name: KeyspaceName,
    /// How it is run.
    pub policy: Policy,
    /// No epoch at or below it is minted in it.
    pub floor: EpochFloor,
    /// Its partitions, by number, all of them.
    pub partitions: Vec<PartitionParts>,
    /// How many it had when none was being split.
    pub base: PartitionCount,
    /// Its partitions are being split, by this directive.
    pub split: Option<LogIndex>,
    /// What operators set about some of them, ascending by number.
    pub settings: Vec<(PartitionId, PartitionSettings)>,
    /// No planned move begins in it, by this directive.
    pub frozen: Option<LogIndex>,
    /// Floors of partitions whose storage has seen more than was granted, ascending by number.
    pub raised: Vec<(PartitionId, EpochFloor)>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionParts {
    /// The last epoch minted: that of the last grant, or of the split since.
    pub epoch: EpochFloor,
    /// Where it is in its handoff.
    pub phase: Phase,
    /// Its last owners, oldest first.
    pub history: Vec<Tenure>,
    /// Owner tasks that ended when they should not have.
    pub setback: Option<Setback>,
    /// Where it comes from, when it was split from another.
    pub born: Option<Born>,
}

/// A live session, but for what it holds: that follows from the partitions' owners and from the locks.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionParts {
    /// Its id.
    pub id: SessionId,
    /// Its worker.
    pub worker: WorkerId,
    /// Its lease.
    pub ttl: Duration,
    /// The nonce of the process that joined.
    pub nonce: u128,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Where callers reach the worker.
    pub address: String,
    /// Its share relative to other workers.
    pub weight: Weight,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The keyspaces it serves; some may have been deleted since it joined, and one that only takes locks serves none.
    pub keyspaces: BTreeSet<KeyspaceId>,
    /// It takes nothing new.
    pub withdrawn: bool,
    /// How long it has been silent, as far as the log says.
    pub suspicion: Option<Suspicion>,
    /// The log index of the last change to what it holds.
    pub assignment: LogIndex,
    /// The entry that opened it.
    pub joined: LogIndex,
    /// The leader's wall clock then, for display.
    pub joined_unix_ms: u64,
    /// It needs no answer below this number any more.
    pub settled_below: u64,
    /// The answers to its requests, ascending by number.
    pub answers: Vec<(u64, Vec<Outcome>)>,
    /// It can own partitions that are split.
    pub splits: bool,
}

/// The nonce and the secret's hash stay out of logs.
impl std::fmt::Debug for SessionParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionParts")
            .field("id", &self.id)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// The answer to a request without a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAnswer {
    /// The request.
    pub id: u128,
    /// The entry that took effect.
    pub at: LogIndex,
    /// What it did.
    pub outcomes: Vec<Outcome>,
}

impl State {
    /// Everything the state remembers, as plain data.
    pub fn to_parts(&self) -> StateParts {
        StateParts {
            cluster: self.cluster.clone(),
            floor: self.counters.floor,
            lock_epoch: self.counters.lock_epoch,
            next_keyspace: self.counters.next_keyspace,
            next_session: self.counters.next_session,
            next_move: self.counters.next_move,
            revision: self.counters.revision,
            applied: self.counters.applied,
            nodes: self.nodes.iter().copied().collect(),
            keyspaces: self.keyspaces.values().map(KeyspaceParts::of).collect(),
            sessions: self.sessions.values().map(SessionParts::of).collect(),
            ended: self.ended.iter().cloned().collect(),
            deleted: self.deleted.iter().cloned().collect(),
            answers: OperatorAnswer::all(&self.answers),
            answers_dropped: self.answers.dropped,
            directives: self.directives.iter().cloned().collect(),
            worker_settings: pairs(&self.worker_settings),
            frozen: self.frozen,
            plans: self.plans.iter().cloned().collect(),
            refusals: self.refusals.iter().cloned().collect(),
            reasserts: self.reasserts.iter().cloned().collect(),
            locks: self.locks.values().cloned().collect(),
        }
    }
}

impl KeyspaceParts {
    fn of(keyspace: &Keyspace) -> KeyspaceParts {
        KeyspaceParts {
            id: keyspace.id,
            name: keyspace.name.clone(),
            policy: keyspace.policy.clone(),
            floor: keyspace.floor,
            partitions: keyspace.partitions.iter().map(PartitionParts::of).collect(),
            base: keyspace.partitioner.base(),
            split: keyspace.split,
            settings: pairs(&keyspace.settings),
            frozen: keyspace.frozen,
            raised: pairs(&keyspace.raised),
        }
    }
}

fn pairs<K: Clone, V: Clone>(map: &BTreeMap<K, V>) -> Vec<(K, V)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl PartitionParts {
    fn of(partition: &Partition) -> PartitionParts {
        PartitionParts {
            epoch: partition.epoch,
            phase: partition.phase.clone(),
            history: partition.history.clone(),
            setback: partition.setback.as_deref().cloned(),
            born: partition.born,
        }
    }
}

impl SessionParts {
    fn of(session: &Session) -> SessionParts {
        SessionParts {
            id: session.id,
            worker: session.worker.clone(),
            ttl: session.ttl,
            nonce: session.nonce,
            secret_hash: session.secret_hash,
            address: session.address.clone(),
            weight: session.weight,
            labels: session.labels.clone(),
            keyspaces: session.keyspaces.clone(),
            withdrawn: session.withdrawn,
            suspicion: session.suspicion,
            assignment: session.assignment,
            joined: session.joined,
            joined_unix_ms: session.joined_unix_ms,
            settled_below: session.answers.settled_below,
            answers: session.answers.kept.iter().map(|(number, answer)| (*number, answer.clone())).collect(),
            splits: session.splits,
        }
    }
}

impl OperatorAnswer {
    fn all(answers: &OperatorAnswers) -> Vec<OperatorAnswer> {
        let in_order = answers.order.iter().filter_map(|id| Some((id, answers.kept.get(id)?)));
        in_order
            .map(|(id, (at, outcomes))| OperatorAnswer { id: *id, at: *at, outcomes: outcomes.clone() })
            .collect()
    }
}
