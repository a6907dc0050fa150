//! What an entry did: outcomes, refusals and events.

use super::directive::{MAX_PARTITION_WEIGHT, Subject};
use super::keyspace::PolicyError;
use super::plans::PlanStage;
use super::session::{EndReason, Suspicion};
use crate::ids::{
    ClusterId, Epoch, KeyspaceId, KeyspaceName, LockName, LogIndex, MoveId, NodeId, PartitionKey, SessionId,
    WorkerId,
};

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// One outcome a command, or the one refusal that undid them all.
    pub outcome: Result<Vec<Outcome>, Refusal>,
    /// What changed, in order; empty when the entry was refused or had been answered before.
    pub events: Vec<Event>,
}

/// What one command did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// What it says.
    Done,
    /// Nothing: the state was so already, or had moved on.
    Unchanged,
    /// The keyspace was created.
    Created(KeyspaceId),
    /// The session is open; also the answer to a join repeated by the same process.
    Joined(SessionId),
    /// The partition or the lock is granted under this epoch.
    Granted(Epoch),
    /// The session to be granted the partition has gone, is about to, or takes nothing by an operator's word. It stays
    /// vacant; the entry stands.
    LeftVacant,
    /// The partition drains under this move, begun now or before.
    Draining(MoveId),
    /// The plan is open under this id.
    Planned(LogIndex),
    /// The session waits for the lock, behind this many others.
    Queued(u32),
}

/// The refusal of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the entry's commands was refused.
    pub command: usize,
    /// Why.
    pub why: Refused,
}

/// Why a command was refused. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request's answer was forgotten.
    #[error(
        "the request is older than the oldest answer kept and may have taken effect; look before asking anew"
    )]
    TooOld,
    /// The cluster has a name already.
    #[error("this cluster is {0} already")]
    AlreadyFormed(ClusterId),
    /// The node's id was used before.
    #[error("node id {0} was used before; a node id is never used again, choose another")]
    NodeIdUsed(NodeId),
    /// No such keyspace.
    #[error("there is no keyspace {0}")]
    NoSuchKeyspace(KeyspaceId),
    /// A keyspace of that name exists.
    #[error("keyspace {0} exists already")]
    KeyspaceExists(KeyspaceName),
    /// No such partition.
    #[error("there is no partition {0}")]
    NoSuchPartition(PartitionKey),
    /// No such session.
    #[error("session {session} has ended")]
    SessionEnded {
        /// The session named.
        session: SessionId,
        /// How it ended, when that is still known.
        how: Option<EndReason>,
    },
    /// Another live process holds the worker id.
    #[error("worker {worker} is held by session {holder}")]
    DuplicateIdentity {
        /// The worker id asked for.
        worker: WorkerId,
        /// Its live session.
        holder: SessionId,
    },
    /// The expiry rests on a suspicion that is not the session's latest.
    #[error(
        "the expiry of {session} rests on the suspicion at {named:?}, and its latest is {latest:?}: it was heard from"
    )]
    SuspicionMovedOn {
        /// The session.
        session: SessionId,
        /// The suspicion named.
        named: LogIndex,
        /// The session's latest suspicion.
        latest: Option<Suspicion>,
    },
    /// The epoch named is not the partition's.
    #[error("partition {partition} is at {current:?}, not at {named:?}")]
    StaleEpoch {
        /// The partition.
        partition: PartitionKey,
        /// The epoch named.
        named: Option<Epoch>,
        /// The partition's last epoch.
        current: Option<Epoch>,
    },
    /// The session does not own the partition under that epoch.
    #[error("session {session} does not own {partition}")]
    NotOwner {
        /// The partition.
        partition: PartitionKey,
        /// The session named.
        session: SessionId,
    },
    /// The move named is not the partition's.
    #[error("partition {0} is not in that move")]
    OtherMove(PartitionKey),
    /// A grant of a partition that is not vacant.
    #[error("partition {0} is not vacant")]
    NotVacant(PartitionKey),
    /// A drain of a partition that nobody owns.
    #[error("nobody owns partition {0}")]
    NotOwned(PartitionKey),
    /// The partition does not cool.
    #[error("partition {0} does not cool")]
    NotCooling(PartitionKey),
    /// The keyspace does not take over by fence.
    #[error("keyspace {0} takes over by lease: a partition is not taken from a live session")]
    TakesOverByLease(KeyspaceId),
    /// The session did not join the keyspace.
    #[error("session {session} does not serve keyspace {keyspace}")]
    NotServing {
        /// The session.
        session: SessionId,
        /// The keyspace.
        keyspace: KeyspaceId,
    },
    /// A bound is reached.
    #[error("{what} is at its bound of {bound}")]
    Limit {
        /// What is at its bound.
        what: &'static str,
        /// The bound.
        bound: u64,
    },
    /// The join serves no keyspace, and names no lease.
    #[error(
        "a worker joins at least one keyspace, or says how long its lease is: it can only take locks then"
    )]
    NoKeyspaces,
    /// Somebody holds the lock, or waits for it, and the asker does not wait.
    #[error("lock {lock} is held{}", .by.map(|session| format!(" by session {session}")).unwrap_or_default())]
    LockHeld {
        /// The lock.
        lock: LockName,
        /// Who has held it longest; `None` when others only wait for it.
        by: Option<SessionId>,
    },
    /// The session holds the lock, or waits for it, in the other mode.
    #[error("the session holds lock {0}, or waits for it, in the other mode: release it first")]
    OtherLockMode(LockName),
    /// No lock was granted that epoch yet.
    #[error("lock {lock} was never granted under epoch {epoch}")]
    NoSuchLockEpoch {
        /// The lock.
        lock: LockName,
        /// The epoch named.
        epoch: Epoch,
    },
    /// The policy cannot work.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The worker to be forgotten has a session.
    #[error("worker {worker} is alive in session {session}: stop it first")]
    WorkerLives {
        /// The worker.
        worker: WorkerId,
        /// Its session.
        session: SessionId,
    },
    /// The directive named was never given.
    #[error("there was no directive {}", .0.get())]
    NoSuchDirective(LogIndex),
    /// A partition's weight is out of bounds.
    #[error("{0} is not the weight of a partition: that is between 1 and {MAX_PARTITION_WEIGHT}")]
    PartitionWeight(u32),
    /// Another plan is being carried out.
    #[error("plan {} is being carried out: wait for it, or cancel it", .0.get())]
    PlanRunning(LogIndex),
    /// No such plan is remembered.
    #[error(
        "plan {} is not remembered: it was given up or replaced by another before it started, or two others have started \
         since; plan again", .0.get()
    )]
    NoSuchPlan(LogIndex),
    /// The plan has all its moves already.
    #[error("plan {} takes no more moves: {}", .plan.get(), why_not_open(*.stage))]
    PlanNotOpen {
        /// The plan.
        plan: LogIndex,
        /// Where it is.
        stage: PlanStage,
    },
    /// A plan's moves do not ascend by partition, or are more than it was opened for.
    #[error("the moves of plan {} are out of order, or more than it was opened for", .0.get())]
    PlanOutOfOrder(LogIndex),
    /// A move of a plan names another owner than the partition has, or moves it to where it is.
    #[error(
        "partition {0} cannot be moved as the plan says: it names another owner, or its owner as the target"
    )]
    NoSuchMove(PartitionKey),
    /// The plan in whose name something was to be done is not being carried out.
    #[error("plan {} is not being carried out: it was cancelled, is done, or is still being written", .0.get())]
    PlanNotRunning(LogIndex),
    /// A planned move of something that is frozen.
    #[error("{0:?} is frozen: no planned move begins there; unfreeze it first")]
    Frozen(Subject),
    /// A move, that an operator asked for or approved, of a partition that is pinned to another worker.
    #[error("partition {partition} is pinned to worker {to}, which would take it back; unpin it first")]
    Pinned {
        /// The partition.
        partition: PartitionKey,
        /// The worker that it is pinned to.
        to: WorkerId,
    },
    /// The keyspace's partitions are being split already.
    #[error("the partitions of keyspace {0} are being split already")]
    SplitUnderWay(KeyspaceId),
    /// The keyspace's partitions are not being split.
    #[error("the partitions of keyspace {0} are not being split")]
    NotSplitting(KeyspaceId),
    /// A partition is split already, and what was split is not put together again.
    #[error(
        "keyspace {keyspace} has {born} new partitions already: a split that has begun is finished, never undone"
    )]
    SplitBegun {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// How many partitions were born.
        born: u32,
    },
    /// The keyspace has another number of partitions than the one that was to be doubled.
    #[error("keyspace {keyspace} has {count} partitions, not {named}")]
    OtherCount {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The number named.
        named: u32,
        /// The number it has.
        count: u32,
    },
    /// Another partition is split first.
    #[error("partition {partition} is not the next one to be split; that is {next}")]
    NotNextToSplit {
        /// The partition named.
        partition: PartitionKey,
        /// The one that is split next.
        next: PartitionKey,
    },
    /// A worker that cannot own split partitions, in a keyspace that has them or will.
    #[error(
        "worker {worker} did not say when it joined that it can own split partitions, as those of {keyspace} are"
    )]
    CannotSplit {
        /// The worker.
        worker: WorkerId,
        /// The keyspace.
        keyspace: KeyspaceId,
    },
    /// An operator's floor is so far above the partition's that fences would not take what is granted next.
    #[error(
        "partition {partition} stands at {from}, and {to} is more than 2^48 above it: no fence takes such a jump. Read from \
         the storage what it has seen"
    )]
    Implausible {
        /// The partition.
        partition: PartitionKey,
        /// What it stands at.
        from: u64,
        /// The epoch named.
        to: Epoch,
    },
    /// A suspicion is one or two thirds.
    #[error("a session is suspected for 1 or 2 thirds of its ttl, not {0}")]
    Thirds(u8),
}

fn why_not_open(stage: PlanStage) -> &'static str {
    match stage {
        PlanStage::Open => "it is being written",
        PlanStage::Running => "it is complete and being carried out",
        PlanStage::Done => "every move of it has begun",
        PlanStage::Cancelled => "it was cancelled",
    }
}

/// Something that changed, for those who serve watches, streams and timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A partition's phase, owner, epoch or readiness changed.
    Partition {
        /// The partition.
        key: PartitionKey,
        /// Its owner before.
        before: Option<SessionId>,
        /// Its owner now.
        after: Option<SessionId>,
    },
    /// Its owner released a partition, in whatever way; nobody took it away. It follows the event that the partition has changed.
    GivenBack {
        /// The partition.
        key: PartitionKey,
        /// The owner's session.
        session: SessionId,
    },
    /// A keyspace was created or its policy changed.
    Keyspace(KeyspaceId),
    /// A split of a keyspace began, was taken back, or went on by a partition.
    Split(KeyspaceId),
    /// A keyspace was deleted.
    KeyspaceDeleted(KeyspaceId, KeyspaceName),
    /// A session was opened.
    Joined(SessionId),
    /// A session takes no more grants.
    Withdrawn(SessionId),
    /// A session ended.
    Ended {
        /// The session.
        session: SessionId,
        /// How.
        why: EndReason,
    },
    /// A session is suspected.
    Suspected(SessionId),
    /// A suspicion was taken back, or there was none.
    Cleared(SessionId),
    /// What is set about a worker has changed.
    WorkerSet {
        /// The worker.
        worker: WorkerId,
        /// Its weight is among it.
        weight: bool,
    },
    /// What is set about a partition has changed.
    PartitionSet(PartitionKey),
    /// Planned moves were stopped or let go on, in a keyspace or in all.
    FreezeSet(Option<KeyspaceId>),
    /// A plan started, went on or ended.
    PlanChanged(LogIndex),
    /// Who holds a lock, or may believe to hold it, has changed.
    Lock(LockName),
    /// A session was granted a lock, or holds it no longer.
    LockOf {
        /// The lock.
        lock: LockName,
        /// The session.
        session: SessionId,
    },
}
