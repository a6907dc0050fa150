//! Where nodes and owners are reached.

use super::checked;
use super::field::InvalidField;
use crate::v1;
use ringfence_core::ids::{NodeId, SessionId, WorkerId};
use std::fmt;

/// A coordinator node and where it is reached, `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// The node.
    pub node: NodeId,
    /// `HOST:PORT`.
    pub address: String,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.address)
    }
}

impl From<NodeAddress> for v1::NodeAddress {
    fn from(from: NodeAddress) -> v1::NodeAddress {
        v1::NodeAddress { node: from.node.get(), address: from.address }
    }
}

impl TryFrom<v1::NodeAddress> for NodeAddress {
    type Error = InvalidField;

    fn try_from(wire: v1::NodeAddress) -> Result<NodeAddress, InvalidField> {
        let node = checked::node_id("node", wire.node)?;
        Ok(NodeAddress { node, address: checked::address("address", &wire.address)? })
    }
}

/// Who owns a partition, for callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// What the worker gave at join, unchecked; may be empty. One worker with a strange address must not cost callers
    /// the map of all the others.
    pub address: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.worker, self.session)
    }
}

impl From<Owner> for v1::Owner {
    fn from(from: Owner) -> v1::Owner {
        v1::Owner {
            worker: from.worker.as_str().to_owned(),
            session: from.session.get(),
            address: from.address,
        }
    }
}

impl TryFrom<v1::Owner> for Owner {
    type Error = InvalidField;

    fn try_from(wire: v1::Owner) -> Result<Owner, InvalidField> {
        let worker = checked::worker_id("worker", &wire.worker)?;
        let session = checked::session("session", wire.session)?;
        Ok(Owner { worker, session, address: wire.address })
    }
}
