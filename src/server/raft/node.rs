//! The handle of a running node.

use super::config::RaftConfig;
use super::disk::Disk;
use super::error::{MembersError, NotLeader, ProposeError, StartError};
use super::machine::{Machine, Position};
use super::net::{Dialer, RaftService};
use super::status::RaftStatus;
use bytes::Bytes;
use ringfence_core::ids::{LogIndex, NodeId, Term};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A handle of a running node. A clone is the same node.
pub struct RaftNode<A> {
    inner: Arc<watch::Sender<RaftStatus>>,
    answer: PhantomData<fn() -> A>,
}

impl<A> Clone for RaftNode<A> {
    fn clone(&self) -> Self {
        RaftNode { inner: Arc::clone(&self.inner), answer: PhantomData }
    }
}

/// The answer to [`RaftNode::confirm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The term this node leads.
    pub term: Term,
    /// The last entry applied when it was confirmed; the state is at least as new.
    pub applied: LogIndex,
}

impl<A: Send + 'static> RaftNode<A> {
    /// Starts a node on what its disk holds. A node that belongs to no cluster yet waits: for
    /// [`initialize`](RaftNode::initialize), or for a leader that adds it.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start<M: Machine<Answer = A>>(
        config: RaftConfig,
        disk: Disk,
        machine: M,
        dialer: impl Dialer,
    ) -> Result<RaftNode<A>, StartError> {
        let _ = (config.to_openraft()?, disk.log, disk.snapshots, machine, dialer);
        let status = RaftStatus::unknown(config.node);
        Ok(RaftNode { inner: Arc::new(watch::Sender::new(status)), answer: PhantomData })
    }

    /// Makes the first cluster of these members, this node among them. Any or all of them may be told the same, at any
    /// time and again: once the node belongs to a cluster this does nothing.
    ///
    /// # Errors
    /// [`MembersError::Invalid`] when this node is not among the members or an address is none.
    pub async fn initialize(&self, members: BTreeMap<NodeId, String>) -> Result<(), MembersError> {
        let _ = members;
        Err(MembersError::Stopped("not built yet".to_string()))
    }

    /// Replicates an entry and returns where it stands and what applying it answered. With `only_in`, it is proposed
    /// only while this node leads that very term: what a leader decides must not be committed by itself as a later one.
    ///
    /// # Errors
    /// [`ProposeError`]; only [`ProposeError::Unknown`] leaves open whether the entry takes effect.
    pub async fn propose(
        &self,
        payload: Bytes,
        only_in: Option<Term>,
    ) -> Result<(Position, A), ProposeError> {
        let _ = (payload, only_in);
        Err(ProposeError::Stopped("not built yet".to_string()))
    }

    /// Confirms, by one round to a quorum that begins after this call, that this node leads; returns when its machine has
    /// applied everything committed before the call, an entry of its own term among it.
    ///
    /// # Errors
    /// [`NotLeader`].
    pub async fn confirm(&self) -> Result<Confirmed, NotLeader> {
        Err(NotLeader::Stopped("not built yet".to_string()))
    }

    /// The node's status, now and whenever it changes.
    pub fn status(&self) -> watch::Receiver<RaftStatus> {
        self.inner.subscribe()
    }

    /// How long ago this node last knew to be in contact with its cluster: as the leader, since a quorum acknowledged
    /// it; otherwise since it accepted a leader's message. `None` before the first contact.
    pub fn since_contact(&self) -> Option<Duration> {
        None
    }

    /// The service that answers peers, to be mounted on the node's port.
    pub fn service(&self) -> RaftService {
        RaftService {}
    }

    /// Adds a voter: first as a learner, then, when it has caught up within `patience`, as a voter. When it does not
    /// catch up, or this future is dropped, the learner is taken out again. One change at a time.
    ///
    /// # Errors
    /// [`MembersError`].
    pub async fn add_member(
        &self,
        node: NodeId,
        address: String,
        patience: Duration,
    ) -> Result<(), MembersError> {
        let _ = (node, address, patience);
        Err(MembersError::Stopped("not built yet".to_string()))
    }

    /// Removes a member. The leader may remove itself; it then hands over.
    ///
    /// # Errors
    /// [`MembersError`].
    pub async fn remove_member(&self, node: NodeId) -> Result<(), MembersError> {
        let _ = node;
        Err(MembersError::Stopped("not built yet".to_string()))
    }

    /// Hands leadership to this voter, or to the one whose log is furthest, and returns who leads then.
    ///
    /// # Errors
    /// [`MembersError`].
    pub async fn transfer_leadership(&self, to: Option<NodeId>) -> Result<NodeId, MembersError> {
        let _ = to;
        Err(MembersError::Stopped("not built yet".to_string()))
    }

    /// Asks for a snapshot now; the status shows when it is there.
    ///
    /// # Errors
    /// [`NotLeader::Stopped`].
    pub async fn trigger_snapshot(&self) -> Result<(), NotLeader> {
        Err(NotLeader::Stopped("not built yet".to_string()))
    }

    /// Stops the node; when it returns, its files are closed and its lock is free.
    pub async fn shutdown(&self) {}
}
