//! What operators set, and who is there to take partitions: one fact at a time, as a log holds it.

use super::wire;
use ringfence_core::ids::{KeyspaceName, Scope, SessionId, WorkerId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that is so until it is not so any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// No planned move begins anywhere.
    ClusterFrozen,
    /// No planned move begins in a keyspace.
    KeyspaceFrozen {
        /// Which.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
    },
    /// No planned move takes a partition from its owner.
    PartitionFrozen {
        /// Which.
        #[serde(with = "wire::text")]
        scope: Scope,
    },
    /// Nothing is moved to a worker or away from it.
    WorkerFrozen {
        /// Which.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// A worker gives up all it has and gets nothing.
    Drained {
        /// Which.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// A worker keeps what it has and gets nothing.
    Cordoned {
        /// Which.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// A partition belongs to a worker while that one takes partitions.
    Pinned {
        /// Which.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// To whom.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// A worker has a session in which it serves a keyspace, and is not about to leave.
    Serves {
        /// Which.
        #[serde(with = "wire::text")]
        worker: WorkerId,
        /// The session.
        #[serde(with = "wire::number")]
        session: SessionId,
        /// What it serves.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
    },
    /// The partitions of a keyspace are being split.
    Splitting {
        /// Which.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
    },
    /// A plan that an operator approved is being carried out.
    PlanRuns {
        /// Which: the entry that approved it.
        plan: u64,
        /// For what.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
    },
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::ClusterFrozen => write!(f, "the cluster is frozen"),
            Fact::KeyspaceFrozen { keyspace } => write!(f, "keyspace {keyspace} is frozen"),
            Fact::PartitionFrozen { scope } => write!(f, "{scope} is frozen"),
            Fact::WorkerFrozen { worker } => write!(f, "{worker} is frozen"),
            Fact::Drained { worker } => write!(f, "{worker} is drained"),
            Fact::Cordoned { worker } => write!(f, "{worker} is cordoned"),
            Fact::Pinned { scope, worker } => write!(f, "{scope} is pinned to {worker}"),
            Fact::Serves { worker, session, keyspace } => write!(f, "{worker} serves {keyspace} ({session})"),
            Fact::Splitting { keyspace } => write!(f, "keyspace {keyspace} is being split"),
            Fact::PlanRuns { plan, keyspace } => write!(f, "plan {plan} for {keyspace} is carried out"),
        }
    }
}
