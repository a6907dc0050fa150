//! What a lessee is told, and what it tells.

use crate::ids::{Epoch, LogIndex, PartitionId};
use crate::placement::PartitionCount;
use crate::state::{Born, Keyspace, Takeover};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// What the session holds, as the coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Assignment<K> {
    /// The log index of the session's last change that this includes.
    pub revision: LogIndex,
    /// `held` is the whole picture; what is not named is gone. Otherwise it is what changed.
    pub complete: bool,
    /// More pieces of the same picture follow; it counts when the last has arrived.
    pub more: bool,
    /// What the session holds.
    pub held: Vec<Held<K>>,
    /// What it does not hold any more.
    pub gone: Vec<Gone<K>>,
}

/// A partition that the session holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held<K> {
    /// The partition.
    pub key: K,
    /// The epoch it was granted under.
    pub epoch: Epoch,
    /// The coordinator wants it back.
    pub draining: bool,
    /// How its keyspace is taken over.
    pub takeover: Takeover,
    /// Where it comes from.
    pub lineage: Lineage,
}

/// What a grant says of a partition that was split, or may be. The lessee passes it on; it is fixed for the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lineage {
    /// Its keys are those whose hash, divided by this, leaves its number. `None` when the coordinator does not say.
    pub of: Option<PartitionCount>,
    /// The partitions that it was split from, the nearest first, each with the epoch to which its fences are raised.
    pub ancestors: Arc<[Born]>,
}

impl Lineage {
    /// That of a partition as the state has it.
    pub fn read(keyspace: &Keyspace, partition: PartitionId) -> Lineage {
        let of = Some(keyspace.partitioner().share(partition).of);
        // Who ordered the splits is not the owner's affair.
        let ancestors = keyspace.ancestors(partition).map(|born| Born { by: None, ..born });
        Lineage { of, ancestors: ancestors.collect() }
    }
}

/// A partition that the session holds no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gone<K> {
    /// The partition.
    pub key: K,
    /// The epoch under which it was held.
    pub epoch: Epoch,
}

/// The answer to one renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acknowledgement<K> {
    /// Which renewal of this connection it answers.
    pub number: u64,
    /// The revision of the session's assignment when it was answered.
    pub revision: LogIndex,
    /// Every drain in progress.
    pub drains: Vec<DrainLeft<K>>,
}

/// What is left of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DrainLeft<K> {
    /// The partition.
    pub key: K,
    /// The epoch that is drained.
    pub epoch: Epoch,
    /// What was left when the acknowledgement was written.
    pub left: Duration,
}

/// What a lessee tells its shell. For one (key, epoch): one `Granted`, then at most one `Revoked`, then at most one
/// `Lost`; a partition that was given back is not lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<K> {
    /// The session holds a partition that it did not hold under this epoch before.
    Granted {
        /// The partition.
        key: K,
        /// The epoch of the grant.
        epoch: Epoch,
        /// How its keyspace is taken over.
        takeover: Takeover,
        /// Where it comes from.
        lineage: Lineage,
    },
    /// The coordinator wants a partition back: stop taking work, flush, give it back.
    Revoked {
        /// The partition.
        key: K,
        /// The epoch that is to end.
        epoch: Epoch,
    },
    /// An acknowledgement has named a drain: from now on the partition is valid until then at most. Comes again when a
    /// later acknowledgement names an earlier end.
    Bounded {
        /// The partition.
        key: K,
        /// The epoch that is drained.
        epoch: Epoch,
        /// The end of its validity.
        until: Instant,
    },
    /// A partition is not the session's any more, under this epoch, for good.
    Lost {
        /// The partition.
        key: K,
        /// The epoch that was lost.
        epoch: Epoch,
        /// Why.
        why: Loss,
    },
}

/// Why a partition was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The coordinator does not list it for this session any more: it took it, or granted it anew.
    Taken,
    /// The drain deadline passed before it was given back.
    DrainOver,
    /// The lease ran out: no renewal was acknowledged in time.
    Expired,
    /// The coordinator said, confirmed by a quorum, that the session has ended.
    SessionEnded,
}
