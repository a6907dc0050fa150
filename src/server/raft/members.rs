//! Who is a member: one change at a time, each only on top of the membership it was decided on.

use super::error::{Leader, MembersError};
use super::limits;
use super::node::{Inner, RaftNode};
use super::types::{LogId, Peer, Types};
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, ForwardToLeader, RaftError};
use openraft::raft::Precondition;
use ringfence_core::ids::{LogIndex, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{Instant, timeout_at};

/// A new member may be this many entries behind when it becomes a voter: what it lacks then takes milliseconds.
const CAUGHT_UP: u64 = 64;

/// How long a change waits for its turn.
const TURN: Duration = Duration::from_secs(1);

impl<A: Send + 'static> RaftNode<A> {
    /// Adds a voter: first as a learner, then, when it has caught up within `patience`, as a voter. When it does not
    /// catch up, or this future is dropped, the learner is taken out again. One change at a time. Adding a member that is
    /// a voter at this address already succeeds.
    ///
    /// A second voter does not make a cluster safer: both must then be up. Go from one to three.
    ///
    /// # Errors
    /// [`MembersError`].
    pub async fn add_member(
        &self,
        node: NodeId,
        address: String,
        patience: Duration,
    ) -> Result<(), MembersError> {
        let inner = self.inner();
        let (turn, base) = inner.turn().await?;
        inner.check_address(node, &address)?;
        match inner.member(node) {
            Some((known, true)) if known == address => return Ok(()),
            Some((known, _)) => {
                let why =
                    format!("{node} is a member at {known} already: remove it first, or choose another id");
                return Err(MembersError::Invalid(why));
            }
            None if inner.status.borrow().members.len() >= limits::MEMBERS => {
                let why = format!("a cluster has at most {} members: remove one first", limits::MEMBERS);
                return Err(MembersError::Invalid(why));
            }
            None => {}
        }

        // In a task of its own, which outlives a caller that gives up and cleans up after it.
        let (_waiting, given_up) = oneshot::channel();
        let joining = Joining { inner: Arc::clone(inner), node, address, patience, _turn: turn };
        match tokio::spawn(joining.run(base, given_up)).await {
            Ok(result) => result,
            Err(error) => Err(MembersError::Unknown(error.to_string())),
        }
    }

    /// Removes a member. The leader may remove itself; it then hands over. Removing what is no member succeeds.
    ///
    /// # Errors
    /// [`MembersError`]; [`MembersError::Invalid`] for the last voter.
    pub async fn remove_member(&self, node: NodeId) -> Result<(), MembersError> {
        let inner = self.inner();
        let (_turn, base) = inner.turn().await?;
        let Some((_, voter)) = inner.member(node) else { return Ok(()) };
        if voter && inner.status.borrow().members.values().filter(|m| m.voter).count() == 1 {
            return Err(MembersError::Invalid(format!(
                "{node} is the last voter: without it there is no cluster"
            )));
        }
        let gone = BTreeSet::from([node.get()]);
        let change = if voter { ChangeMembers::RemoveVoters(gone) } else { ChangeMembers::RemoveNodes(gone) };
        inner.change(change, false, base).await.map(drop)
    }

    /// The voter beside this one whose log is furthest.
    ///
    /// # Errors
    /// [`MembersError::Invalid`]: there is no other.
    pub fn heir(&self) -> Result<NodeId, MembersError> {
        let heir = furthest_voter(self.inner()).and_then(|id| NodeId::new(id).ok());
        heir.ok_or_else(|| MembersError::Invalid("there is no other voter to lead".to_owned()))
    }

    /// Hands leadership to this voter, or to the one whose log is furthest, and returns who leads then.
    ///
    /// # Errors
    /// [`MembersError`]; [`MembersError::NotTransferred`] when nobody else leads in time.
    pub async fn transfer_leadership(&self, to: Option<NodeId>) -> Result<NodeId, MembersError> {
        let inner = self.inner();
        inner.leads()?;
        let to = match to {
            Some(node) if node == inner.config.node => return Ok(node),
            Some(node) => match inner.member(node) {
                Some((_, true)) => node,
                _ => return Err(MembersError::Invalid(format!("{node} is not a voter"))),
            },
            None => self.heir()?,
        };
        let mut status = inner.status.subscribe();
        let term = status.borrow().term;
        let stopped = |e: &dyn std::fmt::Display| MembersError::Stopped(inner.why_stopped(e));
        inner.raft.trigger().transfer_leader(to.get()).await.map_err(|e| stopped(&e))?;
        let moved = status.wait_for(|s| s.stopped.is_some() || (s.term > term && s.leader.is_some()));
        match tokio::time::timeout(inner.config.request_timeout, moved).await {
            Ok(Ok(status)) => match (&status.leader, &status.stopped) {
                (Some((leader, _)), None) => Ok(*leader),
                (_, why) => Err(MembersError::Stopped(why.clone().unwrap_or_default())),
            },
            Ok(Err(closed)) => Err(stopped(&closed)),
            Err(_) => {
                let waited_ms = u64::try_from(inner.config.request_timeout.as_millis()).unwrap_or(u64::MAX);
                Err(MembersError::NotTransferred { to, waited_ms })
            }
        }
    }
}

/// A node on its way to becoming a voter. Until its fate is decided nothing else changes the members; and a learner that
/// does not become a voter is taken out again, because a member that never answers costs every later change.
struct Joining {
    inner: Arc<Inner>,
    node: NodeId,
    address: String,
    patience: Duration,
    _turn: OwnedMutexGuard<()>,
}

impl Joining {
    async fn run(self, base: Option<LogId>, given_up: oneshot::Receiver<()>) -> Result<(), MembersError> {
        let peer = Peer { address: self.address.clone(), store: None };
        let learner = ChangeMembers::AddNodes(BTreeMap::from([(self.node.get(), peer)]));
        let joined = self.inner.change(learner, true, base).await?;
        let caught_up = tokio::select! {
            // Nobody sends: it ends when the caller is gone.
            _ = given_up => Ok(false),
            caught_up = self.inner.caught_up(self.node, joined.index(), self.patience) => caught_up,
        };
        if caught_up != Ok(true) {
            let gone = ChangeMembers::RemoveNodes(BTreeSet::from([self.node.get()]));
            if let Err(error) = self.inner.change(gone, false, Some(joined)).await {
                let node = self.node;
                tracing::warn!(%node, %error, "it did not catch up and may still be a member: remove it");
            }
        }
        if !caught_up? {
            let waited_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
            return Err(MembersError::NotCaughtUp { node: self.node, address: self.address, waited_ms });
        }
        // From here on the outcome is the cluster's: to take it out now could undo what has been committed.
        let voter = ChangeMembers::AddVoterIds(BTreeSet::from([self.node.get()]));
        self.inner.change(voter, true, Some(joined)).await.map(drop)
    }
}

/// The other voter with the longest log, if any.
pub(super) fn furthest_voter(node: &Inner) -> Option<u64> {
    let status = node.status.borrow();
    (status.members.iter())
        .filter(|(id, member)| member.voter && **id != node.config.node)
        .max_by_key(|(_, member)| member.matched)
        .map(|(id, _)| id.get())
}

/// As the leader, writes the stores that members answered with into the membership, so that a member that comes back
/// without its store is known for what it is.
pub(super) async fn note_stores(node: &Arc<Inner>) {
    if node.leads().is_err() || node.changing.try_lock().is_err() {
        return;
    }
    let news: BTreeMap<u64, Peer> = {
        let metrics = node.raft.metrics();
        let metrics = metrics.borrow_watched();
        let own = node.config.node.get();
        (metrics.membership_config.membership().nodes())
            .filter(|(_, peer)| peer.store.is_none())
            .filter_map(|(id, peer)| {
                let store = if *id == own { Some(node.identity.store) } else { node.stores.learnt(*id) }?;
                Some((*id, Peer { address: peer.address.clone(), store: Some(store) }))
            })
            .collect()
    };
    if news.is_empty() {
        return;
    }
    let Ok((_turn, base)) = node.turn().await else { return };
    // It is tried again by whoever leads then.
    if let Err(error) = node.change(ChangeMembers::SetNodes(news), true, base).await {
        tracing::debug!(%error, "the members' stores are not written down yet");
    }
}

impl Inner {
    fn known_leader(&self) -> Option<Leader> {
        self.status.borrow().leader.clone().filter(|(node, _)| *node != self.config.node)
    }

    fn leads(&self) -> Result<(), MembersError> {
        let status = self.status.borrow();
        match &status.stopped {
            Some(why) => Err(MembersError::Stopped(why.clone())),
            None if status.leads() => Ok(()),
            None => {
                drop(status);
                Err(MembersError::NotLeader(self.known_leader()))
            }
        }
    }

    /// The turn to change the members, and the entry of the membership in force. It waits a moment for what ends by
    /// itself: a change of the leader's own, or the first entry of its term.
    async fn turn(&self) -> Result<(OwnedMutexGuard<()>, Option<LogId>), MembersError> {
        self.leads()?;
        let deadline = Instant::now() + TURN;
        let turn = timeout_at(deadline, Arc::clone(&self.changing).lock_owned());
        let turn = turn.await.map_err(|_| MembersError::Busy)?;
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|s| {
            !s.leads() || (!s.members_changing && s.applied.is_some_and(|at| at.term == s.term))
        });
        // When the status ends, so has the node, which the next line says.
        let _ = timeout_at(deadline, settled).await.map_err(|_| MembersError::Busy)?;
        self.leads()?;
        let metrics = self.raft.metrics();
        let membership = metrics.borrow_watched().membership_config.clone();
        // A leader that was removed leads on for a moment, so that the others have its last entries. It changes nothing
        // any more: the library takes it for a bug.
        if !membership.membership().voter_ids().any(|id| id == self.config.node.get()) {
            return Err(MembersError::NotLeader(self.known_leader()));
        }
        Ok((turn, *membership.log_id()))
    }

    /// A member's address, and whether it has a vote.
    fn member(&self, node: NodeId) -> Option<(String, bool)> {
        self.status.borrow().members.get(&node).map(|m| (m.address.clone(), m.voter))
    }

    /// Makes one change on top of the membership at `base`, and returns the entry of the new one.
    async fn change(
        &self,
        change: ChangeMembers<u64, Peer>,
        retain: bool,
        base: Option<LogId>,
    ) -> Result<LogId, MembersError> {
        let on_top = [Precondition::LastMembershipLogId { last_membership_log_id: base }];
        let changed = self.raft.change_membership_if(change, retain, on_top);
        match tokio::time::timeout(self.config.request_timeout, changed).await {
            Ok(Ok(response)) => Ok(response.log_id),
            Ok(Err(error)) => Err(self.refused(error)),
            Err(_) => {
                Err(MembersError::Unknown(format!("no answer within {:?}", self.config.request_timeout)))
            }
        }
    }

    fn refused(&self, error: RaftError<Types, ClientWriteError<Types>>) -> MembersError {
        let leader = |forward: ForwardToLeader<Types>| self.leader_of(&forward);
        match error {
            RaftError::Fatal(fatal) => MembersError::Unknown(self.why_stopped(&fatal)),
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
                MembersError::NotLeader(leader(forward))
            }
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => {
                MembersError::Unknown("leadership was lost meanwhile".to_string())
            }
            RaftError::APIError(ClientWriteError::PreconditionFailed(_)) => MembersError::Changed,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
                ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_) => {
                    MembersError::Busy
                }
                other => MembersError::Invalid(other.to_string()),
            },
        }
    }

    /// Waits until a learner's log has come close to this leader's. False when it did not in time.
    async fn caught_up(&self, node: NodeId, joined: u64, patience: Duration) -> Result<bool, MembersError> {
        let mut status = self.status.subscribe();
        let term = status.borrow().term;
        let close = status.wait_for(|s| {
            let gone = !s.leads() || s.term != term;
            let matched = s.members.get(&node).and_then(|m| m.matched).map(LogIndex::get);
            let last = s.last_log.map_or(0, LogIndex::get);
            gone || matched.is_some_and(|m| m >= joined && m + CAUGHT_UP >= last)
        });
        match timeout_at(Instant::now() + patience, close).await {
            Ok(Ok(status)) if status.leads() && status.term == term => Ok(true),
            Ok(Ok(status)) => match &status.stopped {
                Some(why) => Err(MembersError::Stopped(why.clone())),
                None => Err(MembersError::NotLeader(status.leader.clone())),
            },
            Ok(Err(closed)) => Err(MembersError::Stopped(self.why_stopped(&closed))),
            Err(_) => Ok(false),
        }
    }
}
