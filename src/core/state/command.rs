//! What a log entry asks of the state.

use super::answers::Request;
use super::directive::{PartitionChange, Subject, WorkerChange};
use super::keyspace::{Policy, PolicyChange};
use super::lock::LockWish;
use super::partition::GrantReason;
use super::plans::{PlanMove, SkipReason};
use super::refusals::RefusalNote;
use crate::ids::{
    ClusterId, Epoch, KeyspaceId, KeyspaceName, LockName, LogIndex, MoveId, NodeId, PartitionId,
    PartitionKey, Revision, SessionId, WorkerId,
};
use crate::placement::{PartitionCount, Weight};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One log entry: a small list of commands, all or nothing, under at most one request id.
///
/// What a leader decided for several partitions at once must not fail for one of them. So there are two exceptions to
/// "all or nothing": a grant whose target has gone or takes nothing any more, which leaves the partition vacant, and a
/// planned drain that was overtaken, which changes nothing. The outcome says so, and the rest of the entry stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Whose retry takes effect once.
    pub request: Option<Request>,
    /// The leader's wall clock when it proposed the entry, for display; it is never compared.
    pub proposed_unix_ms: u64,
    /// What to do, in order.
    pub commands: Vec<Command>,
}

/// One change to the state. A command that does not fit the state it meets is refused and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Names the cluster; the first entry of its life.
    FormCluster {
        /// The cluster's identity.
        cluster: ClusterId,
        /// The history that watch revisions belong to.
        lineage: u64,
    },
    /// Notes that a node joined the cluster's membership under this id.
    NoteNode {
        /// Its id, which nobody may have used before.
        node: NodeId,
    },
    /// Creates a keyspace.
    CreateKeyspace {
        /// Its name.
        keyspace: KeyspaceName,
        /// How many partitions.
        partitions: PartitionCount,
        /// How it is run.
        policy: Policy,
    },
    /// Changes how a keyspace is run.
    UpdateKeyspace {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// What changes.
        change: PolicyChange,
    },
    /// Deletes a keyspace; its owners lose their partitions.
    DeleteKeyspace {
        /// The keyspace.
        keyspace: KeyspaceId,
    },
    /// Opens a session.
    Join(Box<Join>),
    /// Notes that a session takes no more grants: its worker is about to leave.
    Withdraw {
        /// The session.
        session: SessionId,
    },
    /// Ends a session that its worker gave up.
    Leave {
        /// The session.
        session: SessionId,
    },
    /// Notes how long sessions have been silent under this leader. Sessions that are gone are passed over.
    Suspect {
        /// Each session, and how many thirds of its TTL it has been silent: 1 or 2.
        sessions: Vec<(SessionId, u8)>,
    },
    /// Takes suspicions back. Sessions that are gone are passed over.
    Clear {
        /// The sessions heard from again.
        sessions: Vec<SessionId>,
    },
    /// Ends a session whose lease has run out.
    Expire {
        /// The session.
        session: SessionId,
        /// The log index of the suspicion this rests on. Refused when it is not the session's latest: the session was
        /// heard from in between.
        suspicion: LogIndex,
    },
    /// Grants a vacant partition. Mints its next epoch.
    Grant {
        /// The partition.
        partition: PartitionKey,
        /// The partition's last epoch, `None` when it never had one. Refused when it has moved on.
        replaces: Option<Epoch>,
        /// Who gets it. Stays vacant when that session has gone, or its worker is drained or cordoned.
        to: SessionId,
        /// Why, for the history.
        why: GrantReason,
    },
    /// Begins a planned move. Draining again changes nothing, the deadline included. At another epoch, of a partition
    /// without an owner, or where something is frozen, an operator's is refused and any other passed over.
    Drain {
        /// The partition.
        partition: PartitionKey,
        /// The epoch to end.
        epoch: Epoch,
        /// Who shall have it next.
        to: WorkerId,
        /// How long the owner has.
        deadline: Duration,
        /// Why, for the history of the grant that follows.
        why: GrantReason,
    },
    /// The owner knows of the drain and of its deadline.
    RevokeSeen {
        /// The partition.
        partition: PartitionKey,
        /// The epoch that is drained.
        epoch: Epoch,
        /// The owner.
        session: SessionId,
    },
    /// The drain's time is up, and by the rules of the keyspace the old owner's validity has ended.
    DrainOver {
        /// The partition.
        partition: PartitionKey,
        /// The epoch that was drained.
        epoch: Epoch,
        /// The move.
        move_id: MoveId,
    },
    /// Takes a partition from a session that goes on living, in a keyspace that takes over by fence.
    Seize {
        /// The partition.
        partition: PartitionKey,
        /// The epoch to end.
        epoch: Epoch,
        /// Its owner.
        session: SessionId,
    },
    /// The owner gives the partition back. Counts in every phase; about an older epoch it changes nothing.
    Release {
        /// The partition.
        partition: PartitionKey,
        /// The epoch that ends.
        epoch: Epoch,
        /// The owner.
        session: SessionId,
        /// How its task ended.
        how: Released,
    },
    /// The owner has raised its fences and loaded its state.
    Ready {
        /// The partition.
        partition: PartitionKey,
        /// Its epoch.
        epoch: Epoch,
        /// The owner.
        session: SessionId,
    },
    /// A cooling partition has cooled.
    EndCooling {
        /// The partition.
        partition: PartitionKey,
        /// Its last epoch.
        epoch: Epoch,
    },
    /// Its owner has been ready for long enough: the next failure is a first one again. Of another epoch, or of an owner that
    /// is not ready, it changes nothing.
    Forgive {
        /// The partition.
        partition: PartitionKey,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Remembers what an operator decided. The rest of the entry is done in the name of this directive.
    Direct {
        /// What it is about.
        subject: Subject,
        /// Who.
        by: String,
        /// What, in words.
        what: String,
        /// Why, in the operator's words.
        reason: String,
    },
    /// The rest of the entry is done in the name of an earlier directive; of a plan, only while it is carried out.
    Under {
        /// The directive.
        directive: LogIndex,
    },
    /// Changes what is set about a worker, which need not have a session.
    SetWorker {
        /// The worker.
        worker: WorkerId,
        /// What changes.
        change: WorkerChange,
    },
    /// Forgets what is set about a worker. Refused while it has a session.
    ForgetWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// Changes what is set about a partition.
    SetPartition {
        /// The partition.
        partition: PartitionKey,
        /// What changes.
        change: PartitionChange,
    },
    /// Stops, or lets go on, planned moves. Vacant partitions are granted all the same.
    Freeze {
        /// In this keyspace, or in all.
        keyspace: Option<KeyspaceId>,
        /// Whether they stop.
        frozen: bool,
    },
    /// Opens a plan, named by the index of this entry.
    OpenPlan {
        /// How many moves it will have.
        size: u32,
        /// The map that it was made from: it does not start when a partition of its keyspace was granted since. `None`:
        /// only the partitions that it moves have to be where it says.
        map: Option<Revision>,
        /// The plan that it undoes.
        undoes: Option<LogIndex>,
    },
    /// Adds moves to an open plan; with the last one it starts.
    ExtendPlan {
        /// The plan.
        plan: LogIndex,
        /// The moves, ascending by partition. What they say of their step is not looked at: they wait.
        moves: Vec<PlanMove>,
    },
    /// Passes over a plan's move that cannot be made any more.
    SkipPlanned {
        /// The plan.
        plan: LogIndex,
        /// The partition.
        partition: PartitionKey,
        /// Why.
        why: SkipReason,
    },
    /// Stops a plan; what has begun goes on. One that is still being written is dropped, and leaves nothing.
    CancelPlan {
        /// The plan.
        plan: LogIndex,
        /// Only while it is being written: one that has started meanwhile goes on.
        only_open: bool,
    },
    /// Ends a session that an operator gave up.
    Evict {
        /// The session.
        session: SessionId,
    },
    /// Begins to split every partition of a keyspace in two.
    StartSplit {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// How many partitions it has. Refused when it has another number.
        from: PartitionCount,
    },
    /// Takes the beginning of a split back. Refused when a partition is split already.
    CancelSplit {
        /// The keyspace.
        keyspace: KeyspaceId,
    },
    /// Splits the keyspace's next partition, which nobody owns. Mints an epoch of it that is granted to nobody.
    Split {
        /// The partition.
        partition: PartitionKey,
        /// Its last epoch, `None` when it never had one. Refused when it has moved on.
        epoch: Option<Epoch>,
    },
    /// Notes writes that storage refused, or would have refused.
    NoteRefusals {
        /// At most [`MAX_REFUSALS_NOTED`](super::MAX_REFUSALS_NOTED); more are passed over.
        notes: Vec<RefusalNote>,
    },
    /// Orders the fences of a partition, or of all of a keyspace, to be raised again: owners are granted what they have anew.
    Reassert {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// One partition; all, when `None`.
        partition: Option<PartitionId>,
    },
    /// Every partition of such an order was taken from whoever had it. Changes nothing while one was not.
    EndReassert {
        /// The order's entry.
        order: LogIndex,
        /// Its keyspace.
        keyspace: KeyspaceId,
        /// Its partition.
        partition: Option<PartitionId>,
    },
    /// An operator's word that storage has seen this epoch: the next one is above it.
    RaiseAbove {
        /// The partition.
        partition: PartitionKey,
        /// Refused when it is more than [`MAX_ABOVE_JUMP`](super::MAX_ABOVE_JUMP) above the partition's.
        above: Epoch,
    },
    /// Asks for a lock. Who holds it, or waits for it, is answered so again.
    AcquireLock {
        /// The lock.
        lock: LockName,
        /// Who asks.
        session: SessionId,
        /// The session's number for it, by which it can be abandoned.
        request: u64,
        /// Alone or together, and what counts while it is held.
        wish: LockWish,
        /// Joins the queue when somebody else holds the lock or waits for it. Refused then, when false.
        waits: bool,
    },
    /// Gives a lock back. At an older epoch than that of the session's grant it changes nothing.
    ReleaseLock {
        /// The lock.
        lock: LockName,
        /// The epoch it was granted under.
        epoch: Epoch,
        /// Who held it.
        session: SessionId,
    },
    /// Ends a request for a lock, whether it waits or was granted.
    AbandonLock {
        /// The lock.
        lock: LockName,
        /// Who asked.
        session: SessionId,
        /// The request.
        request: u64,
    },
    /// Takes a lock from a session that asked to be taken from by fence, and whose connection is lost. Changes nothing when
    /// the lock has moved on.
    SeizeLock {
        /// The lock.
        lock: LockName,
        /// The epoch that ends.
        epoch: Epoch,
        /// Who loses it.
        session: SessionId,
    },
    /// An operator takes a lock from whoever holds it.
    BreakLock {
        /// The lock.
        lock: LockName,
        /// Only from whoever holds it under this epoch; from all, when `None`.
        epoch: Option<Epoch>,
        /// Waits for no lease and no delay: two may believe to hold it then, and a fence alone tells them apart.
        at_once: bool,
    },
    /// A lost lock has cooled. Changes nothing when it has moved on.
    EndLockCooling {
        /// The lock.
        lock: LockName,
        /// The epoch that was lost.
        epoch: Epoch,
        /// Who lost it.
        session: SessionId,
    },
}

/// What a worker says of itself when it joins, and what the leader decided about an earlier session of its name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Join {
    /// The worker's stable name.
    pub worker: WorkerId,
    /// One value for each life of a process; a repeated join finds its session by it.
    pub nonce: u128,
    /// SHA-256 of the session's secret.
    pub secret_hash: [u8; 32],
    /// Where callers reach the worker.
    pub address: String,
    /// Its share relative to other workers.
    pub weight: Weight,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// The keyspaces it serves.
    pub keyspaces: BTreeSet<KeyspaceId>,
    /// The session this join may end: the leader found it old enough, or was shown its secret.
    pub replaces: Option<SessionId>,
    /// It can own partitions that are split: it raises the fences of those that they come from, and asks of each key
    /// whether it is its partition's.
    pub splits: bool,
    /// Its process was started anew, and this drain until the next join, by its directive, stood when it was taken in: it
    /// ends. `None`: none stood, or the process had a session before.
    pub ends_drain: Option<LogIndex>,
    /// The longest lease that it wants; `None`: as its keyspaces say. A session that joins none needs one, and can only take
    /// locks.
    pub ttl: Option<Duration>,
}

/// The secret's hash and the nonce stay out of logs: who knows a nonce may take the session over.
impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join")
            .field("worker", &self.worker)
            .field("address", &self.address)
            .field("weight", &self.weight)
            .field("labels", &self.labels)
            .field("keyspaces", &self.keyspaces)
            .field("replaces", &self.replaces)
            .finish_non_exhaustive()
    }
}

/// How an owner's task ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// It was revoked and returned.
    Revoked,
    /// It returned by itself.
    Returned,
    /// It failed or panicked; the text is shown to operators.
    Failed(String),
    /// It was revoked and returned, and its worker is being restarted.
    Restarting,
    /// It was never called: storage has seen this epoch, which is above the owner's, and refused to be raised.
    Behind(Epoch),
}
