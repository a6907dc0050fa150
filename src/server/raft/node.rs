//! The handle of a running node.

use super::applier::Applier;
use super::campaigns::Switch;
use super::config::RaftConfig;
use super::dir;
use super::disk::Disk;
use super::error::{Leader, MembersError, NotLeader, ProposeError, StartError};
use super::health::Health;
use super::limits;
use super::log::LogStore;
use super::machine::{Machine, Position};
use super::net::{Contact, Dialer, Identity, Peers, PeersConfig, RaftService, ServiceParts, Stores};
use super::snapshot::SnapshotStore;
use super::status::RaftStatus;
use super::types::{self, Committed, Data, LogId, Peer, Runtime, Types};
use super::upkeep;
use super::watcher::Watcher;
use bytes::Bytes;
use openraft::Instant as _;
use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{
    ClientWriteError, ForwardReason, ForwardToLeader, InitializeError, LinearizableReadError, RaftError,
};
use openraft::impls::ProgressResponder;
use ringfence_core::ids::{LogIndex, NodeId, Term};
use ringfence_core::mutant;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

/// How often a proposal that came before the new leader's first round with a quorum is tried again.
const FIRST_ROUND: Duration = Duration::from_millis(5);

/// A handle of a running node. A clone is the same node.
pub struct RaftNode<A> {
    inner: Arc<Inner>,
    answer: PhantomData<fn() -> A>,
}

impl<A> Clone for RaftNode<A> {
    fn clone(&self) -> Self {
        RaftNode { inner: Arc::clone(&self.inner), answer: PhantomData }
    }
}

/// The parts of a node that do not depend on what its machine answers.
pub(super) struct Inner {
    pub(super) raft: openraft::Raft<Types, Applier>,
    pub(super) config: RaftConfig,
    pub(super) identity: Identity,
    pub(super) log: LogStore,
    pub(super) health: Arc<Health>,
    pub(super) stores: Stores,
    pub(super) dialer: Arc<dyn Dialer>,
    pub(super) status: watch::Sender<RaftStatus>,
    /// Held while members change: one change at a time.
    pub(super) changing: Arc<Mutex<()>>,
    applied: watch::Receiver<Option<Position>>,
    contact: Contact,
    seed: u64,
}

impl Switch for Inner {
    fn may_stand(&self, may: bool) {
        self.raft.runtime_config().elect(may);
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
    /// [`initialize`](RaftNode::initialize), or for a leader that adds it. It must be shut down to free its files.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start<M: Machine<Answer = A>>(
        config: RaftConfig,
        disk: Disk,
        machine: M,
        dialer: impl Dialer,
    ) -> Result<RaftNode<A>, StartError> {
        let settings = Arc::new(config.to_openraft()?);
        let health = Arc::new(Health::new());
        let identity = Identity {
            cluster: config.cluster.clone(),
            node: config.node,
            store: disk.store,
            secret: config.secret.clone(),
        };
        let seed = match config.seed {
            Some(seed) => seed,
            None => dir::new_store().map_err(|e| StartError::of_file(Path::new("/dev/urandom"), e))?,
        };
        let (log, snapshots, newest) = open(disk, Arc::clone(&health)).await?;
        let (applier, applied) = Applier::new(machine, snapshots, newest, Arc::clone(&health));
        let (stores, contact) = (Stores::default(), Contact::default());
        let dialer: Arc<dyn Dialer> = Arc::new(dialer);
        let peers = Peers::new(PeersConfig {
            identity: identity.clone(),
            stores: stores.clone(),
            dialer: Arc::clone(&dialer),
            append_patience: config.timings.election_max,
            vote_patience: config.slow_disk,
        });
        let started = openraft::Raft::new(config.node.get(), settings, peers, log.clone(), applier);
        let raft = match Box::pin(Runtime::scope(seed, started)).await {
            Ok(raft) => raft,
            Err(fatal) => {
                log.close().await;
                return Err(StartError::Raft(health.stopped().unwrap_or_else(|| fatal.to_string())));
            }
        };

        let status = watch::Sender::new(RaftStatus::unknown(config.node));
        let watcher = Watcher {
            metrics: raft.metrics(),
            applied: applied.clone(),
            health: Arc::clone(&health),
            stores: stores.clone(),
            status: status.clone(),
        };
        tokio::spawn(watcher.run());
        let changing = Arc::new(Mutex::new(()));
        let inner = Arc::new(Inner {
            raft,
            config,
            identity,
            log,
            health,
            stores,
            dialer,
            status,
            changing,
            applied,
            contact,
            seed,
        });
        let switch: Weak<dyn Switch> = Arc::<Inner>::downgrade(&inner);
        inner.log.campaigns().govern(switch, inner.config.timings, seed);
        tokio::spawn(upkeep::run(Arc::downgrade(&inner)));
        tokio::spawn(upkeep::run_slow(Arc::downgrade(&inner)));
        Ok(RaftNode { inner, answer: PhantomData })
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Makes the first cluster of these members, this node among them. Any or all of them may be told the same, at any
    /// time and again: once the node belongs to a cluster this does nothing.
    ///
    /// # Errors
    /// [`MembersError::Invalid`] when this node is not among the members or an address is none.
    pub async fn initialize(&self, members: BTreeMap<NodeId, String>) -> Result<(), MembersError> {
        let inner = &self.inner;
        if members.len() > limits::MEMBERS {
            return Err(MembersError::Invalid(format!("a cluster has at most {} members", limits::MEMBERS)));
        }
        for (node, address) in &members {
            inner.check_address(*node, address)?;
        }
        let nodes: BTreeMap<u64, Peer> =
            members.into_iter().map(|(id, address)| (id.get(), Peer { address, store: None })).collect();
        match inner.raft.initialize(nodes).await {
            // Not allowed where there is a log or a vote already.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(InitializeError::NotInMembers(_))) => {
                Err(MembersError::Invalid(format!("{} is not among the members", inner.config.node)))
            }
            Err(RaftError::Fatal(fatal)) => Err(MembersError::Stopped(inner.why_stopped(&fatal))),
        }
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
        let inner = &self.inner;
        if payload.len() > limits::ENTRY_BYTES {
            return Err(ProposeError::TooLarge { bytes: payload.len(), limit: limits::ENTRY_BYTES });
        }
        let began = Instant::now();
        // A new leader refuses writes until a quorum has answered its first heartbeat; one round trip away, unless it has
        // no quorum.
        let first_round = began + inner.config.timings.election_max * 2;
        loop {
            if let Some(why) = inner.health.stopped() {
                return Err(ProposeError::Stopped(why));
            }
            match inner.propose_once(payload.clone(), only_in, began + inner.config.request_timeout).await {
                Err(Refusal::NoQuorumYet)
                    if Instant::now() < first_round && inner.status.borrow().leads() =>
                {
                    tokio::time::sleep(FIRST_ROUND).await;
                }
                Err(Refusal::NoQuorumYet) => {
                    return Err(ProposeError::NotLeader { leader: None, term: only_in });
                }
                Err(Refusal::Other(error)) => return Err(error),
                Ok((at, answer)) => {
                    // The machine was given together with `A`, so this is always what it answered.
                    let mistyped =
                        || ProposeError::Unknown("the machine answered with another type".to_string());
                    return Ok((at, answer.take().ok_or_else(mistyped)?));
                }
            }
        }
    }

    /// Confirms, by one round to a quorum that begins after this call, that this node leads; returns when its machine has
    /// applied everything committed before the call, an entry of its own term among it.
    ///
    /// Many callers at once share rounds. That the entry is of the node's *own term* is checked by its term: an index
    /// alone proves nothing, because another leader may have put another entry there.
    ///
    /// # Errors
    /// [`NotLeader`].
    pub async fn confirm(&self) -> Result<Confirmed, NotLeader> {
        let inner = &self.inner;
        let cut_off = || NotLeader::Elsewhere { leader: None };
        let deadline = Instant::now() + inner.config.request_timeout;
        if let Some(why) = inner.health.stopped() {
            return Err(NotLeader::Stopped(why));
        }
        if mutant!("confirmed-without-a-round")
            && let Some(at) = *inner.applied.borrow()
        {
            return Ok(Confirmed { term: at.term, applied: at.index });
        }
        let round = inner.raft.get_read_linearizer(ReadPolicy::ReadIndex);
        let read = match timeout_at(deadline, round).await {
            Ok(Ok(linearizer)) => *linearizer.read_log_id(),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                return Err(NotLeader::Elsewhere { leader: inner.leader_of(&forward) });
            }
            Ok(Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) | Err(_) => {
                return Err(cut_off());
            }
            Ok(Err(RaftError::Fatal(fatal))) => return Err(NotLeader::Stopped(inner.why_stopped(&fatal))),
        };
        // The library names the read by the term that was confirmed.
        let (term, index) = (read.committed_leader_id().term, read.index());
        let mut applied = inner.applied.clone();
        let reached = applied.wait_for(|at| {
            at.is_some_and(|at| at.term.get() > term || (at.term.get() == term && at.index.get() >= index))
        });
        match timeout_at(deadline, reached).await {
            Ok(Ok(at)) => match *at {
                Some(at) if at.term.get() == term => Ok(Confirmed { term: at.term, applied: at.index }),
                _ => Err(NotLeader::Elsewhere { leader: inner.status.borrow().leader.clone() }),
            },
            Ok(Err(closed)) => Err(NotLeader::Stopped(inner.why_stopped(&closed))),
            Err(_) => Err(cut_off()),
        }
    }

    /// The node's status, now and whenever it changes.
    pub fn status(&self) -> watch::Receiver<RaftStatus> {
        self.inner.status.subscribe()
    }

    /// How long ago this node last knew to be in contact with its cluster: as the leader, since a quorum acknowledged
    /// it; otherwise since it accepted a leader's message. `None` before the first contact.
    pub fn since_contact(&self) -> Option<Duration> {
        let (leads, acked, alone) = {
            let status = self.inner.status.borrow();
            let voters = status.members.values().filter(|m| m.voter).count();
            (status.leads(), status.quorum_acked, voters == 1)
        };
        match (leads, alone) {
            (true, true) => Some(Duration::ZERO),
            (true, false) => acked.map(|at| at.elapsed()),
            (false, _) => self.inner.contact.last().map(|at| at.elapsed()),
        }
    }

    /// As the leader: how long each other member has not answered. A member that never did is left out.
    pub fn silent_for(&self) -> BTreeMap<NodeId, Duration> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let answered = metrics.heartbeat.iter().flatten();
        answered.filter_map(|(id, at)| Some((NodeId::new(*id).ok()?, (*at)?.elapsed()))).collect()
    }

    /// The service that answers peers, to be mounted on the node's port.
    pub fn service(&self) -> RaftService {
        RaftService::new(ServiceParts {
            raft: self.inner.raft.clone(),
            identity: self.inner.identity.clone(),
            contact: self.inner.contact.clone(),
            health: Arc::clone(&self.inner.health),
            seed: self.inner.seed,
        })
    }

    /// Whether the node has stopped because its log lacks what it had acknowledged: its directory must not be used again.
    pub fn has_log_gone_back(&self) -> bool {
        self.inner.health.has_log_gone_back()
    }

    /// Asks for a snapshot now; the status shows when it is there.
    ///
    /// # Errors
    /// [`NotLeader::Stopped`].
    pub async fn trigger_snapshot(&self) -> Result<(), NotLeader> {
        let asked = self.inner.raft.trigger().snapshot().await;
        asked.map_err(|fatal| NotLeader::Stopped(self.inner.why_stopped(&fatal)))
    }

    /// Stops the node; when it returns, its files are closed and its lock is free. A leader should hand over first.
    pub async fn shutdown(&self) {
        self.inner.health.close();
        // An error means that the core did not end by itself; it has ended all the same.
        let _ = self.inner.raft.shutdown().await;
        self.inner.log.close().await;
    }
}

/// Opens log and snapshots, and checks that nothing is missing between them.
async fn open(
    disk: Disk,
    health: Arc<Health>,
) -> Result<(LogStore, Arc<dyn SnapshotStore>, Option<LogId>), StartError> {
    let blocks = disk.log.blocks() || disk.snapshots.blocks();
    let work = move || {
        let snapshots: Arc<dyn SnapshotStore> = Arc::from(disk.snapshots);
        let newest = snapshots.newest().map_err(|e| StartError::of_file(&snapshots.place(), e))?;
        let newest = newest.map(|snapshot| types::log_id(snapshot.at));
        let log = LogStore::open(disk.log, health, |purged| match purged {
            Some(purged) if newest.is_none_or(|newest| newest.index() < purged.index()) => {
                let why =
                    format!("the snapshot that replaced the log up to entry {} is missing", purged.index());
                Err(StartError::Corrupt { path: snapshots.place(), why })
            }
            _ => Ok(()),
        })?;
        Ok((log, snapshots, newest))
    };
    if !blocks {
        return work();
    }
    tokio::task::spawn_blocking(work).await.map_err(|e| StartError::Raft(e.to_string()))?
}

enum Refusal {
    /// This node leads and has not heard of a quorum lately.
    NoQuorumYet,
    Other(ProposeError),
}

impl Inner {
    async fn propose_once(
        &self,
        payload: Bytes,
        only_in: Option<Term>,
        deadline: Instant,
    ) -> Result<(Position, types::Answer), Refusal> {
        let unknown = |why: String| Refusal::Other(ProposeError::Unknown(why));
        let late = || unknown(format!("no answer within {:?}", self.config.request_timeout));
        let (responder, answer) = ProgressResponder::complete_only();
        let mut write = self.raft.write(Data(payload)).responder(responder);
        if let Some(term) = only_in.filter(|_| !mutant!("proposal-of-any-term")) {
            write = write.with_leader(Committed::new(term.get()));
        }
        match timeout_at(deadline, write.into_future()).await {
            Ok(Ok(())) => {}
            Ok(Err(fatal)) => return Err(Refusal::Other(ProposeError::Stopped(self.why_stopped(&fatal)))),
            Err(_) => return Err(late()),
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(response))) => Ok((types::position(&response.log_id), response.data)),
            Ok(Ok(Err(ClientWriteError::ForwardToLeader(forward)))) => match forward.reason {
                ForwardReason::LeaseExpired => Err(Refusal::NoQuorumYet),
                ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                    let leader = self.leader_of(&forward);
                    Err(Refusal::Other(ProposeError::NotLeader { leader, term: only_in }))
                }
            },
            Ok(Ok(Err(ClientWriteError::LogEntryDiscarded(_)))) => {
                Err(unknown("leadership was lost meanwhile".to_string()))
            }
            Ok(Ok(Err(other))) => Err(unknown(other.to_string())),
            Ok(Err(closed)) => Err(unknown(self.why_stopped(&closed))),
            Err(_) => Err(late()),
        }
    }

    /// Refuses an address that could never be dialled, before it becomes part of the membership.
    pub(super) fn check_address(&self, node: NodeId, address: &str) -> Result<(), MembersError> {
        if address.len() > limits::ADDRESS_BYTES {
            let limit = limits::ADDRESS_BYTES;
            return Err(MembersError::Invalid(format!("the address of {node} is longer than {limit} bytes")));
        }
        self.dialer.dial(node, address).map(drop).map_err(|e| MembersError::Invalid(e.to_string()))
    }

    /// The leader that the library points at, unless it is this node itself.
    pub(super) fn leader_of(&self, forward: &ForwardToLeader<Types>) -> Option<Leader> {
        let node = NodeId::new(forward.leader_id?).ok().filter(|node| *node != self.config.node)?;
        Some((node, forward.leader_node.as_ref()?.address.clone()))
    }

    /// The reason of a stop: the first one noted, which is better than its consequence.
    pub(super) fn why_stopped(&self, consequence: &(impl Display + ?Sized)) -> String {
        self.health.stopped().unwrap_or_else(|| consequence.to_string())
    }
}
