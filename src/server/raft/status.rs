//! What a node says about itself.

use super::machine::Position;
use ringfence_core::ids::{LogIndex, NodeId, Term};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads. Whether it still does is only known to a confirmation.
    Leader,
    /// It follows, or waits for a leader.
    Follower,
    /// It stands for election.
    Candidate,
    /// It receives the log and has no vote.
    Learner,
    /// It has stopped.
    Stopped,
}

/// A node's view of itself and of the cluster. Two leaderships may be seen as one when they follow quickly: key what
/// depends on a leadership on `term`, never on `role` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaftStatus {
    /// This node.
    pub node: NodeId,
    /// The term it is in.
    pub term: Term,
    /// What it is in that term.
    pub role: Role,
    /// Who leads that term, as far as it knows, and where.
    pub leader: Option<(NodeId, String)>,
    /// The last entry in its log.
    pub last_log: Option<LogIndex>,
    /// The last entry it knows to be committed.
    pub committed: Option<LogIndex>,
    /// The last entry its machine has applied.
    pub applied: Option<Position>,
    /// The last entry in its newest snapshot.
    pub snapshot: Option<LogIndex>,
    /// The last entry compacted away.
    pub purged: Option<LogIndex>,
    /// Every member; empty on a node that belongs to no cluster yet.
    pub members: BTreeMap<NodeId, Member>,
    /// A change of members is not finished.
    pub members_changing: bool,
    /// The node cannot go on, and why; it needs a restart, or a repair first.
    pub stopped: Option<String>,
    /// The node works, but badly, and why (a disk that takes seconds to flush).
    pub sick: Option<String>,
    /// As the leader: when a quorum last acknowledged it. It moves without waking those who watch.
    pub quorum_acked: Option<Instant>,
}

impl RaftStatus {
    /// How long ago a quorum acknowledged this leader, in milliseconds. `None` when it does not lead or never heard one.
    pub fn millis_since_quorum_ack(&self) -> Option<u64> {
        self.quorum_acked.map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// True when this node leads in its `term`, as far as it knows.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    /// A node that has heard nothing yet.
    pub(super) fn unknown(node: NodeId) -> RaftStatus {
        RaftStatus {
            node,
            term: Term::new(0),
            role: Role::Follower,
            leader: None,
            last_log: None,
            committed: None,
            applied: None,
            snapshot: None,
            purged: None,
            members: BTreeMap::new(),
            members_changing: false,
            stopped: None,
            sick: None,
            quorum_acked: None,
        }
    }
}

/// One member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `host:port`.
    pub address: String,
    /// It has a vote.
    pub voter: bool,
    /// How far its log is known to equal the leader's. Only a leader knows.
    pub matched: Option<LogIndex>,
}
