//! Sessions: the lives of workers.

use super::answers::SessionAnswers;
use crate::ids::{KeyspaceId, LockName, LogIndex, PartitionKey, SessionId, WorkerId};
use crate::placement::Weight;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many sessions there may be at once.
pub const MAX_SESSIONS: usize = 20_000;
/// How many ended sessions are remembered, so that a replaced process learns that it was replaced.
pub const ENDED_LEN: usize = 1_024;
/// The longest address, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 255;
/// How many labels a worker may have.
pub const MAX_LABELS: usize = 32;

/// One life of a worker: it covers all the partitions the worker owns with one lease.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) worker: WorkerId,
    pub(crate) ttl: Duration,
    pub(crate) nonce: u128,
    pub(crate) secret_hash: [u8; 32],
    pub(crate) address: String,
    pub(crate) weight: Weight,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) keyspaces: BTreeSet<KeyspaceId>,
    pub(crate) withdrawn: bool,
    pub(crate) suspicion: Option<Suspicion>,
    pub(crate) assignment: LogIndex,
    pub(crate) holds: BTreeSet<PartitionKey>,
    pub(crate) joined: LogIndex,
    pub(crate) joined_unix_ms: u64,
    pub(crate) answers: SessionAnswers,
    pub(crate) splits: bool,
    pub(crate) locks: BTreeSet<LockName>,
    pub(crate) waits: BTreeSet<LockName>,
}

/// The nonce and the secret's hash stay out of logs.
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("worker", &self.worker)
            .field("ttl", &self.ttl)
            .field("suspicion", &self.suspicion)
            .field("holds", &self.holds.len())
            .finish_non_exhaustive()
    }
}

/// How long a session has been silent, as far as the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suspicion {
    /// Thirds of its TTL: 1 or 2.
    pub thirds: u8,
    /// The entry that says so. An expiry names it.
    pub at: LogIndex,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The worker left.
    Left,
    /// Its lease ran out.
    Expired,
    /// The same worker id joined again.
    Replaced,
    /// An operator gave it up.
    Evicted,
}

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    /// The session.
    pub session: SessionId,
    /// Its worker.
    pub worker: WorkerId,
    /// How it ended.
    pub why: EndReason,
    /// The entry that ended it.
    pub at: LogIndex,
    /// When it began and ended, for display.
    pub life: Option<Life>,
}

/// What histories say of a session that has ended.
///
/// It is kept from the cluster's first directive on. A state without any is one that the format before directives can
/// say, and has to stay so for nodes that read no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// The entry that opened it.
    pub joined: LogIndex,
    /// The leader's wall clock then.
    pub joined_unix_ms: u64,
    /// Where callers reached the worker; empty when it had no address.
    pub address: String,
    /// The leader's wall clock when it ended.
    pub ended_unix_ms: u64,
}

impl Session {
    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Its worker.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Its lease: the shortest TTL of the keyspaces it joined and of what it asked for, fixed for its life.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The nonce of the process that joined.
    pub fn nonce(&self) -> u128 {
        self.nonce
    }

    /// SHA-256 of its secret.
    pub fn secret_hash(&self) -> &[u8; 32] {
        &self.secret_hash
    }

    /// Where callers reach the worker.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its share relative to other workers.
    pub fn weight(&self) -> Weight {
        self.weight
    }

    /// Free labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The keyspaces it serves.
    pub fn keyspaces(&self) -> &BTreeSet<KeyspaceId> {
        &self.keyspaces
    }

    /// It takes no more grants: its worker is about to leave.
    pub fn withdrawn(&self) -> bool {
        self.withdrawn
    }

    /// It can own partitions that are split; see [`Join::splits`](super::Join::splits).
    pub fn splits(&self) -> bool {
        self.splits
    }

    /// How long it has been silent, as far as the log says.
    pub fn suspicion(&self) -> Option<Suspicion> {
        self.suspicion
    }

    /// The log index of the last change to what it holds.
    pub fn assignment(&self) -> LogIndex {
        self.assignment
    }

    /// What it holds.
    pub fn holds(&self) -> &BTreeSet<PartitionKey> {
        &self.holds
    }

    /// The locks that it holds.
    pub fn locks(&self) -> &BTreeSet<LockName> {
        &self.locks
    }

    /// The locks that it waits for.
    pub fn waits(&self) -> &BTreeSet<LockName> {
        &self.waits
    }

    /// The entry that opened it.
    pub fn joined(&self) -> LogIndex {
        self.joined
    }

    /// The leader's wall clock then, for display.
    pub fn joined_unix_ms(&self) -> u64 {
        self.joined_unix_ms
    }
}
