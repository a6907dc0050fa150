//! One event, and all there is to say in one.

use super::Fact;
use super::wire;
use ringfence_core::ids::{Epoch, KeyspaceName, NodeId, Scope, SessionId, Term, WorkerId};
use serde::{Deserialize, Serialize};

/// The number of one operation of a client; one history uses each once.
pub type OpId = u64;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in microseconds of the observer's clock.
    pub at: u64,
    /// Who it happened to: a store, a node's log, one life of a worker's process. A process that is started again is another
    /// actor, `w1.2` after `w1.1`.
    pub by: String,
    /// What happened.
    pub what: What,
}

/// What happened.
///
/// What the coordinator acknowledged is recorded like any other operation, on keys of its own and without an epoch, so
/// that "nothing acknowledged is lost" is one rule for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A log of the coordinator was seen to grant. One actor is one reading of the log from front to back.
    Granted {
        /// What was granted.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// To which session.
        #[serde(with = "wire::number")]
        session: SessionId,
        /// Of which worker.
        #[serde(with = "wire::text")]
        worker: WorkerId,
        /// The entry that granted it, where the observer sees the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<u64>,
    },
    /// A log of the coordinator was seen to hold a fact, or to hold it no more. Only an observer who sees every log of it
    /// can say so, each change once.
    Holds {
        /// What.
        fact: Fact,
        /// Whether it is so from here on.
        holds: bool,
        /// The change came after this entry.
        after: u64,
        /// Entries above this one were decided by leaders who knew of it.
        known: u64,
    },
    /// A log of the coordinator was seen to begin a planned move. Each is told once.
    MoveBegan {
        /// Of what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch it is taken from its owner.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// The owner.
        #[serde(with = "wire::text")]
        from: WorkerId,
        /// Who shall have it next.
        #[serde(with = "wire::text")]
        to: WorkerId,
        /// An operator asked for this very move.
        asked: bool,
        /// Why, for people.
        why: String,
        /// It began after this entry.
        after: u64,
        /// And not after this one.
        seen: u64,
    },
    /// A log of the coordinator was seen to keep a partition for its last owner, which is being restarted.
    Held {
        /// What.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Its last epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// For whom.
        #[serde(with = "wire::text")]
        worker: WorkerId,
        /// For how long at the most, in milliseconds.
        for_ms: u64,
    },
    /// A log of the coordinator was seen to split a partition: from now on some of its keys are those of another. Each is told
    /// once.
    Split {
        /// What was split.
        #[serde(with = "wire::text")]
        parent: Scope,
        /// What has some of its keys now.
        #[serde(with = "wire::text")]
        child: Scope,
        /// The epoch of the parent that the split minted. It is granted to nobody, and whoever owns the child raises the
        /// parent's fence to it before anything else.
        #[serde(with = "wire::number")]
        epoch: Epoch,
    },
    /// A log of the coordinator was seen to take a grant back: released, expired, or ended otherwise.
    Vacated {
        /// What nobody owns now.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// The epoch that ended.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// Why, for people.
        why: String,
    },
    /// A keyspace exists from here on: each of its partitions is to have an owner.
    KeyspaceCreated {
        /// Its name.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
        /// How many partitions it has.
        partitions: u32,
    },
    /// A keyspace exists no more. Its epochs are not forgotten.
    KeyspaceDeleted {
        /// Its name.
        #[serde(with = "wire::text")]
        keyspace: KeyspaceName,
    },
    /// A node won an election.
    Elected {
        /// Of this term.
        #[serde(with = "wire::number")]
        term: Term,
        /// Which node.
        #[serde(with = "wire::number")]
        node: NodeId,
    },
    /// The SDK started an owner's task. The actor is the worker's process.
    Began {
        /// What it owns.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// Which worker.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// The owner has raised the fence, has loaded, and serves.
    Ready {
        /// What it owns.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
    },
    /// The owner was asked to stop.
    Revoked {
        /// What it owns.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
    },
    /// The owner's task ended.
    Ended {
        /// What it owned.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// How.
        why: Ending,
    },
    /// An SDK answered "I own it" throughout an interval of true time, from `from` to before `to`.
    Claims {
        /// What it owns.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// The first microsecond of it.
        from: u64,
        /// The first microsecond after it.
        to: u64,
    },
    /// An SDK answered "I own it" once, at some instant between `asked` and the time of this event.
    ///
    /// All such answers of one actor about one grant are taken together as one claim, from when the first of them was there
    /// to when the last was asked for: an SDK that has lost a grant does not own under it again.
    Believed {
        /// What it owns.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// When it was asked.
        asked: u64,
    },
    /// A store raised its fence. The actor is the store, and its events stand in its own order.
    Raised {
        /// Of what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// To which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
    },
    /// A store took a write. The actor is the store.
    Applied {
        /// Of which operation.
        op: OpId,
        /// Where.
        key: String,
        /// Stamped for what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Stamped with which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// What was written.
        value: u64,
    },
    /// A fence refused a write as stale.
    RefusedStale {
        /// Of which operation.
        op: OpId,
        /// Stamped for what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Stamped with which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// The highest that the fence said it had seen.
        #[serde(with = "wire::number")]
        highest: Epoch,
    },
    /// A fence refused an epoch that another session had used.
    RefusedSession {
        /// Stamped for what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Stamped with which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// The session that the fence had seen under it.
        #[serde(with = "wire::number")]
        holder: SessionId,
    },
    /// A client started an operation.
    Invoked {
        /// Its number.
        op: OpId,
        /// On what.
        key: String,
        /// Which.
        call: Call,
        /// As the owner of what, under which epoch; none for somebody who owns nothing. An owner reads after it has raised
        /// the fence, never before.
        #[serde(with = "wire::token", default, skip_serializing_if = "Option::is_none")]
        token: Option<(Scope, Epoch)>,
    },
    /// An operation ended, as far as its client knows. One that never returned is unknown.
    Returned {
        /// Its number.
        op: OpId,
        /// How.
        outcome: Outcome,
    },
    /// A router named an owner. The actor is the router.
    Routed {
        /// Of what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// Under which epoch.
        #[serde(with = "wire::number")]
        epoch: Epoch,
        /// Whom.
        #[serde(with = "wire::text")]
        worker: WorkerId,
    },
    /// Somebody asked for a move.
    Moved {
        /// Of what.
        #[serde(with = "wire::text")]
        scope: Scope,
        /// To whom.
        #[serde(with = "wire::text")]
        to: WorkerId,
    },
    /// A process is gone, with all that its actor owned.
    Died {
        /// The actor that it was.
        actor: String,
    },
    /// Something was broken.
    Fault {
        /// What, for people.
        text: String,
    },
    /// The last fault is over: from here on every partition is to get an owner.
    Healed,
    /// From here to the next fault, or to [`What::End`], nothing is to change hands.
    Steady,
    /// All was mended, and it never grew calm for as long as the observer waited.
    NeverCalm {
        /// By how much the observer itself was late at the most meanwhile, in microseconds: on a machine with too much to
        /// do leases run out by themselves.
        late_us: u64,
    },
    /// A remark, for people.
    Note {
        /// It.
        text: String,
    },
    /// Nothing was watched any more.
    End,
}

/// How a tenure ended, as the owner saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It was asked to stop, and did.
    Revoked,
    /// Its lease or session was gone before it stopped.
    Lost,
    /// It returned by itself.
    Returned,
    /// It failed or panicked.
    Failed,
}

/// What an operation does to a key. The content of a key is a list; most keys hold one value or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// The content is this value and nothing else.
    Write(u64),
    /// This value comes after the others.
    Append(u64),
    /// The content is read.
    Read,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It took effect. A read says what it found; a write finds nothing.
    Ok(Vec<u64>),
    /// It had no effect, and never will have.
    Refused,
    /// Nobody knows whether it took effect, or whether it will.
    Unknown,
}
