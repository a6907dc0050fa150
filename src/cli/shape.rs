//! The JSON shapes that `-o json` writes. `docs/cli.md` documents them for programs.
//!
//! They are a contract: a field is added, never renamed or given another meaning. Durations are milliseconds and end in
//! `_ms`, wall times are milliseconds since 1970 and end in `_unix_ms`, and what is not there is `null`.

use ringfence::admin::{
    BalanceBy, ClusterStatus, Directive, Keyspace, Located, Node, Owner, Partition, PartitionDetail,
    PlannedMove, Takeover, Tenure, Worker,
};
use ringfence::ids::{ClusterId, Epoch, LogIndex, NodeId, SessionId, WorkerId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A keyspace and its policy.
#[derive(Debug, Serialize)]
pub(crate) struct KeyspaceShape {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    /// How many there were before, while they are being split.
    pub(crate) split_from: Option<u32>,
    pub(crate) ttl_ms: u64,
    /// `lease` or `fence`.
    pub(crate) takeover: &'static str,
    /// How long a planned move waits; the TTL, unless it was set.
    pub(crate) drain_deadline_ms: u64,
    pub(crate) lock_delay_ms: u64,
    pub(crate) max_moves_in_flight: u32,
    pub(crate) balance: bool,
    /// 0: no bound.
    pub(crate) moves_per_minute: u32,
    pub(crate) rejoin_hold_ms: u64,
    pub(crate) spread_zones: bool,
    /// What a worker's labels have to be.
    pub(crate) labels: Vec<String>,
    /// `count` or `load`.
    pub(crate) balance_by: &'static str,
}

impl From<&Keyspace> for KeyspaceShape {
    fn from(from: &Keyspace) -> KeyspaceShape {
        let policy = &from.policy;
        KeyspaceShape {
            name: from.name.to_string(),
            partitions: from.partitions.get(),
            split_from: from.split_from.map(ringfence::admin::PartitionCount::get),
            ttl_ms: ms(policy.ttl()),
            takeover: takeover(policy.takeover()),
            drain_deadline_ms: ms(policy.drain_deadline()),
            lock_delay_ms: ms(policy.lock_delay()),
            max_moves_in_flight: policy.max_moves_in_flight(),
            balance: policy.balance(),
            moves_per_minute: policy.moves_per_minute(),
            rejoin_hold_ms: ms(policy.rejoin_hold()),
            spread_zones: policy.spread_zones(),
            labels: policy.constraints().iter().map(ToString::to_string).collect(),
            balance_by: balance_by(policy.balance_by()),
        }
    }
}

/// The word for it.
pub(crate) fn takeover(takeover: Takeover) -> &'static str {
    match takeover {
        Takeover::Lease => "lease",
        Takeover::Fence => "fence",
    }
}

/// The word for it.
pub(crate) fn balance_by(by: BalanceBy) -> &'static str {
    match by {
        BalanceBy::Count => "count",
        BalanceBy::Load => "load",
    }
}

/// A partition and its owner.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionShape {
    pub(crate) keyspace: String,
    pub(crate) partition: u32,
    /// `vacant`, `cooling`, `owned` or `draining`.
    pub(crate) phase: String,
    pub(crate) worker: Option<String>,
    pub(crate) session: Option<u64>,
    pub(crate) address: Option<String>,
    pub(crate) epoch: Option<u64>,
    pub(crate) ready: bool,
    pub(crate) moving_to: Option<String>,
    #[serde(rename = "move")]
    pub(crate) move_id: Option<u64>,
    /// Why it cools.
    pub(crate) cooling: Option<String>,
    /// Owner tasks that failed in a row.
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
    /// As its owners measured it, smoothed.
    pub(crate) load: Option<u32>,
}

impl From<&Partition> for PartitionShape {
    fn from(from: &Partition) -> PartitionShape {
        let (worker, session, address) = owner(from.owner.as_ref());
        PartitionShape {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            phase: from.phase.to_string(),
            worker,
            session,
            address,
            epoch: from.epoch.map(Epoch::get),
            ready: from.ready,
            moving_to: from.moving.as_ref().map(|(to, _)| to.to_string()),
            move_id: from.moving.as_ref().map(|(_, id)| id.get()),
            cooling: some(&from.cooling),
            failures: from.failures,
            last_error: some(&from.last_error),
            load: from.load,
        }
    }
}

/// A partition with its last owners.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionDetailShape {
    #[serde(flatten)]
    pub(crate) partition: PartitionShape,
    /// Newest first.
    pub(crate) history: Vec<TenureShape>,
}

impl From<&PartitionDetail> for PartitionDetailShape {
    fn from(from: &PartitionDetail) -> PartitionDetailShape {
        PartitionDetailShape {
            partition: (&from.partition).into(),
            history: from.history.iter().map(TenureShape::from).collect(),
        }
    }
}

/// One grant of a partition.
#[derive(Debug, Serialize)]
pub(crate) struct TenureShape {
    pub(crate) epoch: u64,
    pub(crate) worker: String,
    pub(crate) session: u64,
    pub(crate) granted_index: u64,
    pub(crate) granted_unix_ms: u64,
    pub(crate) reason: String,
    /// By whose decision; `null` when it followed from none.
    pub(crate) directive: Option<DirectiveShape>,
}

impl From<&Tenure> for TenureShape {
    fn from(from: &Tenure) -> TenureShape {
        TenureShape {
            epoch: from.epoch.get(),
            worker: from.worker.to_string(),
            session: from.session.get(),
            granted_index: from.granted.get(),
            granted_unix_ms: from.granted_unix_ms,
            reason: from.reason.clone(),
            directive: from.directive.as_ref().map(Into::into),
        }
    }
}

/// What an operator decided. Of one that was forgotten only the index is left.
#[derive(Debug, Serialize)]
pub(crate) struct DirectiveShape {
    pub(crate) index: u64,
    pub(crate) given_unix_ms: Option<u64>,
    pub(crate) by: Option<String>,
    pub(crate) what: Option<String>,
    pub(crate) reason: Option<String>,
}

impl From<&Directive> for DirectiveShape {
    fn from(from: &Directive) -> DirectiveShape {
        DirectiveShape {
            index: from.at.get(),
            given_unix_ms: Some(from.unix_ms).filter(|ms| *ms > 0),
            by: some(&from.by),
            what: some(&from.what),
            reason: some(&from.reason),
        }
    }
}

/// One move of a plan.
#[derive(Debug, Serialize)]
pub(crate) struct PlannedMoveShape {
    pub(crate) partition: u32,
    /// The epoch that the move ends; `null` when nobody ever owned the partition.
    pub(crate) epoch: Option<u64>,
    /// `null`: nobody owns it.
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) reason: String,
    /// How much the partition counts; `null` when all count alike.
    pub(crate) load: Option<u32>,
}

impl From<&PlannedMove> for PlannedMoveShape {
    fn from(from: &PlannedMove) -> PlannedMoveShape {
        PlannedMoveShape {
            partition: from.partition.get(),
            epoch: from.epoch.map(Epoch::get),
            from: from.from.as_ref().map(ToString::to_string),
            to: from.to.to_string(),
            reason: from.reason.clone(),
            load: from.load,
        }
    }
}

/// Where a key is, and as of which revision of the map.
#[derive(Debug, Serialize)]
pub(crate) struct LocatedShape {
    pub(crate) keyspace: String,
    pub(crate) partition: u32,
    pub(crate) phase: String,
    pub(crate) worker: Option<String>,
    pub(crate) session: Option<u64>,
    pub(crate) address: Option<String>,
    pub(crate) epoch: Option<u64>,
    pub(crate) ready: bool,
    pub(crate) revision: u64,
}

impl From<&Located> for LocatedShape {
    fn from(from: &Located) -> LocatedShape {
        let entry = &from.entry;
        let (worker, session, address) = owner(entry.owner.as_ref());
        LocatedShape {
            keyspace: entry.keyspace.to_string(),
            partition: entry.partition.get(),
            phase: entry.phase.to_string(),
            worker,
            session,
            address,
            epoch: entry.epoch.map(Epoch::get),
            ready: entry.ready,
            revision: from.revision.get(),
        }
    }
}

/// A worker and its session.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerShape {
    pub(crate) worker: String,
    pub(crate) session: u64,
    pub(crate) address: Option<String>,
    pub(crate) weight: u32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) keyspaces: Vec<String>,
    pub(crate) ttl_ms: u64,
    /// How many thirds of its TTL it was silent, 0 to 2.
    pub(crate) suspicion_thirds: u32,
    pub(crate) partitions: u32,
    pub(crate) ready: u32,
    /// How many it holds.
    pub(crate) locks: u32,
    /// For how many it waits.
    pub(crate) awaited_locks: u32,
    pub(crate) joined_unix_ms: u64,
}

impl From<&Worker> for WorkerShape {
    fn from(from: &Worker) -> WorkerShape {
        WorkerShape {
            worker: from.worker.to_string(),
            session: from.session.get(),
            address: some(&from.address),
            weight: from.weight,
            labels: from.labels.clone(),
            keyspaces: from.keyspaces.iter().map(ToString::to_string).collect(),
            ttl_ms: ms(from.ttl),
            suspicion_thirds: from.suspicion_thirds,
            partitions: from.partitions,
            ready: from.ready,
            locks: from.locks,
            awaited_locks: from.awaited_locks,
            joined_unix_ms: from.joined_unix_ms,
        }
    }
}

/// The nodes as one of them sees them.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterShape {
    /// `null` while the cluster forms.
    pub(crate) cluster_id: Option<String>,
    /// `null` when nobody is known to lead.
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    /// The node that answered.
    pub(crate) answered_by: Option<u64>,
    pub(crate) applied_index: u64,
    /// What it waits for while the cluster forms.
    pub(crate) forming: Option<String>,
    /// The node that answered is no member any more: what it says of the others is old.
    pub(crate) removed: Option<String>,
    pub(crate) nodes: Vec<NodeShape>,
}

impl From<&ClusterStatus> for ClusterShape {
    fn from(from: &ClusterStatus) -> ClusterShape {
        ClusterShape {
            cluster_id: from.cluster.as_ref().map(ClusterId::to_string),
            leader: from.leader.map(NodeId::get),
            term: from.term.get(),
            answered_by: from.answered_by.map(NodeId::get),
            applied_index: from.applied.get(),
            forming: some(&from.forming),
            removed: some(&from.removed),
            nodes: from.nodes.iter().map(NodeShape::from).collect(),
        }
    }
}

/// A node.
#[derive(Debug, Serialize)]
pub(crate) struct NodeShape {
    pub(crate) id: u64,
    pub(crate) address: String,
    /// `leader`, `follower` or `learner`.
    pub(crate) role: String,
    /// `null` unless the leader answered.
    pub(crate) matched_index: Option<u64>,
    /// `null` unless the leader answered.
    pub(crate) reachable: Option<bool>,
}

impl From<&Node> for NodeShape {
    fn from(from: &Node) -> NodeShape {
        NodeShape {
            id: from.id.get(),
            address: from.address.clone(),
            role: from.role.to_string(),
            matched_index: from.matched.map(LogIndex::get),
            reachable: from.reachable,
        }
    }
}

fn owner(owner: Option<&Owner>) -> (Option<String>, Option<u64>, Option<String>) {
    let Some(owner) = owner else { return (None, None, None) };
    (Some(WorkerId::to_string(&owner.worker)), Some(SessionId::get(owner.session)), some(&owner.address))
}

/// The text, unless it is empty.
pub(crate) fn some(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The milliseconds of a duration that the coordinator bounds far below what fits.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
