//! What every service of a node works with: the replica, the log, and the clock.

use crate::clock::Clock;
use crate::drills::Drills;
use crate::fences::Gathered;
use crate::formation::Removal;
use crate::raft::{NotLeader, ProposeError, RaftNode};
use crate::replica::Replica;
use ringfence_api::convert::NodeAddress;
use ringfence_api::state::encode_entry;
use ringfence_api::{ErrorKind, Failure};
use ringfence_core::ids::{LogIndex, NodeId, Term};
use ringfence_core::state::{Applied, Command, Entry, Event, Outcome, Refusal, Request};
use std::sync::Arc;

/// One running node, for its services. A clone is the same node.
#[derive(Clone)]
pub struct Context {
    /// The state as applied here.
    pub replica: Replica,
    /// The replicated log.
    pub raft: RaftNode<Applied>,
    /// The node's clock.
    pub clock: Arc<dyn Clock>,
    /// The drills of this node, while it leads.
    pub drills: Drills,
    /// Refused writes that this node was told of, while it leads.
    pub gathered: Gathered,
}

/// An entry that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where it stands.
    pub at: LogIndex,
    /// What it changed; empty when the request had been answered before.
    pub events: Vec<Event>,
    /// One outcome a command.
    pub outcomes: Vec<Outcome>,
}

impl Context {
    /// Proposes one entry and waits until it is applied here. With `only_in` it counts only in that term.
    ///
    /// # Errors
    /// The outer one: it was not committed, or its fate is unknown. The inner one: it was committed and refused.
    pub async fn propose(
        &self,
        request: Option<Request>,
        commands: Vec<Command>,
        only_in: Option<Term>,
    ) -> Result<Result<Committed, Refusal>, Failure> {
        let entry = Entry { request, proposed_unix_ms: self.clock.unix_ms(), commands };
        let proposed = self.raft.propose(encode_entry(&entry), only_in).await;
        let (position, applied) = proposed.map_err(|error| self.failure(propose_failure(error)))?;
        let Applied { outcome, events } = applied;
        Ok(outcome.map(|outcomes| Committed { at: position.index, events, outcomes }))
    }

    /// Confirms, by a quorum, that this node leads, and that it has applied what was committed before the call.
    ///
    /// # Errors
    /// [`Failure`] of the kind "not leader" or "no leader": nothing was done, ask elsewhere.
    pub async fn confirm(&self) -> Result<(Term, LogIndex), Failure> {
        let confirmed = self.raft.confirm().await.map_err(|error| self.failure(not_leader(error)))?;
        Ok((confirmed.term, confirmed.applied))
    }

    /// Of a node that was removed: that no leader is known is no wonder, and no word about the cluster. One that knows a leader
    /// that is another node names it all the same.
    fn failure(&self, failure: Failure) -> Failure {
        let me = self.raft.status().borrow().node;
        let elsewhere = failure.leader().is_some_and(|leader| leader.node != me);
        let leaderless = matches!(failure.kind(), ErrorKind::NoLeader | ErrorKind::NotLeader) && !elsewhere;
        // Looked at only then: followers answer most calls, and each look takes the replica's lock.
        let removal = if leaderless { Removal::of(self, true) } else { None };
        match removal {
            Some(removal) => Failure::no_member(removal, removal == Removal::Certain),
            None => failure,
        }
    }
}

/// The failure to tell a client that asked a node which cannot answer as the leader.
pub fn not_leader(error: NotLeader) -> Failure {
    match error {
        NotLeader::Elsewhere { leader } => elsewhere(leader),
        NotLeader::Stopped(why) => Failure::unavailable(format!("this node has stopped: {why}; ask another")),
    }
}

fn elsewhere(leader: Option<(NodeId, String)>) -> Failure {
    match leader {
        Some((node, address)) => Failure::not_leader(Some(NodeAddress { node, address })),
        None => Failure::no_leader(),
    }
}

fn propose_failure(error: ProposeError) -> Failure {
    match error {
        ProposeError::NotLeader { leader, .. } => elsewhere(leader),
        ProposeError::TooLarge { bytes, limit } => Failure::limit(format!(
            "the request needs a log entry of {bytes} bytes, and one has at most {limit}"
        )),
        ProposeError::Unknown(_) => Failure::unknown_outcome(),
        ProposeError::Stopped(why) => {
            Failure::unavailable(format!("this node has stopped: {why}; ask another"))
        }
    }
}
