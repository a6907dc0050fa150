//! The coordinator's nodes, as one of them sees them.

use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, LogIndex, NodeId, Term};
use std::fmt;

/// The nodes, the leader and the term, as the node that answered sees them. A node that is cut off from the others
/// answers too, so what it says of the leader may be old.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The cluster's identity; `None` while the cluster forms.
    pub cluster: Option<ClusterId>,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Raft's number for the leadership.
    pub term: Term,
    /// The node that answered.
    pub answered_by: Option<NodeId>,
    /// The members.
    pub nodes: Vec<Node>,
    /// What the node waits for while the cluster forms; empty otherwise.
    pub forming: String,
    /// The last log entry that it has applied.
    pub applied: LogIndex,
    /// The node that answered was removed from the cluster, in words, with what to do: what it says of the others is old. Empty
    /// otherwise.
    pub removed: String,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// `HOST:PORT`.
    pub address: String,
    /// What it is.
    pub role: NodeRole,
    /// How far its log is known to match the leader's; only the leader knows.
    pub matched: Option<LogIndex>,
    /// Whether the leader has heard from it lately; only the leader knows.
    pub reachable: Option<bool>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeRole {
    /// It leads.
    Leader,
    /// It votes.
    Follower,
    /// It does not vote yet: it catches up.
    Learner,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NodeRole::Leader => "leader",
            NodeRole::Follower => "follower",
            NodeRole::Learner => "learner",
        })
    }
}

impl TryFrom<v1::ClusterStatusResponse> for ClusterStatus {
    type Error = InvalidField;

    fn try_from(wire: v1::ClusterStatusResponse) -> Result<ClusterStatus, InvalidField> {
        let cluster = match wire.cluster.as_str() {
            "" => None,
            id => Some(ClusterId::new(id).map_err(|why| InvalidField::new("cluster", why))?),
        };
        let node = |(place, node): (usize, v1::Node)| Node::try_from(node).map_err(|e| e.at("nodes", place));
        Ok(ClusterStatus {
            cluster,
            // Zero is nobody.
            leader: NodeId::new(wire.leader).ok(),
            term: Term::new(wire.term),
            answered_by: NodeId::new(wire.answered_by).ok(),
            nodes: wire.nodes.into_iter().enumerate().map(node).collect::<Result<_, _>>()?,
            forming: wire.forming,
            applied: LogIndex::new(wire.applied_index),
            removed: checked::text(&wire.removed),
        })
    }
}

impl TryFrom<v1::Node> for Node {
    type Error = InvalidField;

    fn try_from(wire: v1::Node) -> Result<Node, InvalidField> {
        let role = match wire.role() {
            v1::NodeRole::Leader => NodeRole::Leader,
            v1::NodeRole::Follower => NodeRole::Follower,
            v1::NodeRole::Learner => NodeRole::Learner,
            v1::NodeRole::Unspecified => return Err(InvalidField::missing("role")),
        };
        Ok(Node {
            id: checked::node_id("node", wire.node)?,
            address: wire.address,
            role,
            matched: wire.matched_index.map(LogIndex::new),
            reachable: wire.reachable,
        })
    }
}
