//! What operators decided, who decided it and why, and what they set about workers, partitions and keyspaces.
//!
//! A directive is remembered by the log index of its entry. What it set names it, and so does every grant that follows
//! from it: that is how a history says by whose word a partition moved.

use crate::ids::{KeyspaceId, LockName, LogIndex, PartitionKey, WorkerId};
use crate::placement::Weight;

/// How many directives are remembered; the oldest is forgotten first.
pub const DIRECTIVES_LEN: usize = 1_024;
/// How much of each of a directive's texts is kept, in bytes.
pub const MAX_DIRECTIVE_BYTES: usize = 256;
/// How many workers may have settings. Those of a worker that is gone stay until it is forgotten by name.
pub const MAX_WORKER_SETTINGS: usize = 20_000;
/// How many partitions of a keyspace may have settings.
pub const MAX_PARTITION_SETTINGS: usize = 100_000;
/// The largest weight of a partition.
pub const MAX_PARTITION_WEIGHT: u32 = 1_000_000;

/// What an operator decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Directive {
    /// The entry that says so.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
    /// What it is about.
    pub subject: Subject,
    /// Who, as that person or program called itself.
    pub by: String,
    /// What was decided, in words.
    pub what: String,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
}

/// What a directive is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// All there is.
    Cluster,
    /// A keyspace, or a plan for it.
    Keyspace(KeyspaceId),
    /// A partition.
    Partition(PartitionKey),
    /// A worker, whether it has a session or not.
    Worker(WorkerId),
    /// A lock.
    Lock(LockName),
}

/// What operators set about a worker. It belongs to the name and outlives the worker's sessions. Each setting that is on
/// names the directive that turned it on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkerSettings {
    /// It gives up all it has and gets nothing.
    pub drained: Option<LogIndex>,
    /// The same until another process of its name joins, for whoever stops it to start it anew.
    pub drained_until_join: Option<LogIndex>,
    /// It keeps what it has and gets nothing.
    pub cordoned: Option<LogIndex>,
    /// Nothing is moved to it or away from it.
    pub frozen: Option<LogIndex>,
    /// Its weight, whatever it says itself, and the directive that says so.
    pub weight: Option<(Weight, LogIndex)>,
}

/// Settings of a worker to change; those left out stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkerChange {
    /// See [`WorkerSettings::drained`].
    pub drained: Option<bool>,
    /// See [`WorkerSettings::drained_until_join`].
    pub drained_until_join: Option<bool>,
    /// See [`WorkerSettings::cordoned`].
    pub cordoned: Option<bool>,
    /// See [`WorkerSettings::frozen`].
    pub frozen: Option<bool>,
    /// Its weight; `Some(None)` is again what it says itself.
    pub weight: Option<Option<Weight>>,
}

/// What operators set about a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionSettings {
    /// It belongs to this worker while that one has a session, and the directive that says so.
    pub pin: Option<(WorkerId, LogIndex)>,
    /// No planned move takes it from its owner; the directive that says so.
    pub frozen: Option<LogIndex>,
    /// How much it counts compared with the others, 1 unless set, and the directive that says so.
    pub weight: Option<(u32, LogIndex)>,
}

/// Settings of a partition to change; those left out stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionChange {
    /// The worker it belongs to; `Some(None)` for none.
    pub pin: Option<Option<WorkerId>>,
    /// See [`PartitionSettings::frozen`].
    pub frozen: Option<bool>,
    /// 1 to [`MAX_PARTITION_WEIGHT`]; `Some(None)` is 1 again.
    pub weight: Option<Option<u32>>,
}

impl WorkerSettings {
    /// It gives up all it has and gets nothing: the directive that says so.
    pub fn drain(&self) -> Option<LogIndex> {
        self.drained.or(self.drained_until_join)
    }

    /// It is granted nothing.
    pub fn takes_nothing(&self) -> bool {
        self.drain().is_some() || self.cordoned.is_some()
    }

    /// Its weight, when an operator has set one.
    pub fn weight(&self) -> Option<Weight> {
        self.weight.map(|(weight, _)| weight)
    }

    /// These settings after a change by the directive `by`. What was on already keeps naming the one that turned it on.
    pub(super) fn with(&self, change: &WorkerChange, by: LogIndex) -> WorkerSettings {
        WorkerSettings {
            drained: switched(self.drained, change.drained, by),
            drained_until_join: switched(self.drained_until_join, change.drained_until_join, by),
            cordoned: switched(self.cordoned, change.cordoned, by),
            frozen: switched(self.frozen, change.frozen, by),
            weight: weighed(self.weight, change.weight, by),
        }
    }
}

impl PartitionSettings {
    /// How much it counts, when an operator has said so.
    pub fn weight(&self) -> Option<u32> {
        self.weight.map(|(weight, _)| weight)
    }

    /// These settings after a change by the directive `by`.
    pub(super) fn with(&self, change: &PartitionChange, by: LogIndex) -> PartitionSettings {
        let same = |to: &WorkerId| self.pin.clone().filter(|(worker, _)| worker == to);
        PartitionSettings {
            pin: match &change.pin {
                None => self.pin.clone(),
                Some(pin) => pin.as_ref().map(|to| same(to).unwrap_or_else(|| (to.clone(), by))),
            },
            frozen: switched(self.frozen, change.frozen, by),
            weight: weighed(self.weight, change.weight, by),
        }
    }
}

/// A weight that is the same already goes on naming the directive that set it.
fn weighed<W: Copy + PartialEq>(
    now: Option<(W, LogIndex)>,
    change: Option<Option<W>>,
    by: LogIndex,
) -> Option<(W, LogIndex)> {
    match change {
        None => now,
        Some(to) => to.map(|to| now.filter(|(weight, _)| *weight == to).unwrap_or((to, by))),
    }
}

pub(super) fn switched(now: Option<LogIndex>, on: Option<bool>, by: LogIndex) -> Option<LogIndex> {
    match on {
        None => now,
        Some(true) => now.or(Some(by)),
        Some(false) => None,
    }
}
