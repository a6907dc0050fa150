//! What a plan is made from, and the checks that refuse it.

use super::hash::{PartitionCount, PartitionCountError};
use super::keys::PartitionKeys;
use super::ring::Ring;
use super::weight::Weight;
use crate::ids::{KeyspaceName, PartitionId, WorkerId};

/// The most workers that a plan is made for.
pub const MAX_WORKERS: usize = 100_000;

/// A worker's place in [`View::new`]'s list. It means nothing beside that list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIx(u32);

impl WorkerIx {
    /// The place with this index.
    pub const fn new(index: u32) -> WorkerIx {
        WorkerIx(index)
    }

    /// The index into the list of workers.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// A worker that takes part in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its stable name.
    pub worker: WorkerId,
    /// Its share compared with the others.
    pub weight: Weight,
    /// Whether it may get partitions. One that may not keeps what it has: it receives nothing and is not balanced away
    /// from, and what it has counts in nobody's share.
    pub accepting: bool,
}

/// Where one partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nobody owns it and it may be granted now. A partition whose owner is no candidate any more is vacant, too.
    Vacant,
    /// A worker owns it.
    Owned {
        /// Its owner.
        by: WorkerIx,
        /// Whether balancing may take it away; no for one that is pinned, frozen or cooling down after a move.
        movable: bool,
    },
    /// A move is under way. It counts at the target and is not moved again.
    InFlight {
        /// The worker that will own it.
        to: WorkerIx,
    },
    /// It waits: for a lease to run out, a delay to pass or an owner to come back. It gets nothing now. It counts at no
    /// worker, but it does count in the shares: somebody is going to hold it, and without it the shares of all would
    /// sink and rise again with every wait, and move partitions that had no part in it.
    Held,
}

/// One partition in a [`View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spot {
    /// Where it stands.
    pub standing: Standing,
    /// A worker that shall not get it while another can, such as the one where it failed last. This goes before
    /// balance: it may cost one move more than the least.
    pub avoid: Option<WorkerIx>,
}

impl Spot {
    /// A partition to be granted.
    pub const VACANT: Spot = Spot::standing(Standing::Vacant);

    /// A partition that waits.
    pub const HELD: Spot = Spot::standing(Standing::Held);

    /// A partition with an owner, from whom balancing may take it.
    pub const fn owned(by: WorkerIx) -> Spot {
        Spot::standing(Standing::Owned { by, movable: true })
    }

    /// A partition with an owner, who keeps it.
    pub const fn fixed(by: WorkerIx) -> Spot {
        Spot::standing(Standing::Owned { by, movable: false })
    }

    /// A partition on its way to a worker.
    pub const fn in_flight(to: WorkerIx) -> Spot {
        Spot::standing(Standing::InFlight { to })
    }

    /// The same partition, to be kept from a worker.
    pub const fn avoiding(self, worker: WorkerIx) -> Spot {
        Spot { standing: self.standing, avoid: Some(worker) }
    }

    const fn standing(standing: Standing) -> Spot {
        Spot { standing, avoid: None }
    }

    /// The worker at which it counts.
    pub(super) const fn counts_at(&self) -> Option<WorkerIx> {
        match self.standing {
            Standing::Owned { by, .. } => Some(by),
            Standing::InFlight { to } => Some(to),
            Standing::Vacant | Standing::Held => None,
        }
    }

    /// The worker from which balancing may take it.
    pub(super) const fn movable_from(&self) -> Option<WorkerIx> {
        match self.standing {
            Standing::Owned { by, movable: true } => Some(by),
            _ => None,
        }
    }
}

/// One keyspace as a plan sees it: its partitions, and the workers that may own them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) keyspace: &'a KeyspaceName,
    pub(super) workers: &'a [Candidate],
    pub(super) partitions: &'a [Spot],
    pub(super) ring: Option<&'a Ring>,
    pub(super) keys: Option<&'a PartitionKeys>,
}

impl<'a> View<'a> {
    /// A view. `workers` are in the order of their ids, each once; `partitions` are indexed by their numbers.
    ///
    /// Nothing is checked before the plan is made, which then refuses what is wrong.
    pub const fn new(
        keyspace: &'a KeyspaceName,
        workers: &'a [Candidate],
        partitions: &'a [Spot],
    ) -> View<'a> {
        View { keyspace, workers, partitions, ring: None, keys: None }
    }

    /// The view with a ring that was built before, for the same workers at the same weights.
    #[must_use]
    pub const fn with_ring(self, ring: &'a Ring) -> View<'a> {
        View { ring: Some(ring), ..self }
    }

    /// The view with keys that were computed before, for the same keyspace.
    #[must_use]
    pub const fn with_keys(self, keys: &'a PartitionKeys) -> View<'a> {
        View { keys: Some(keys), ..self }
    }

    /// Refuses a view from which no plan can be trusted to come out.
    pub(super) fn check(&self) -> Result<PartitionCount, PlanError> {
        let count = PartitionCount::new(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX))?;
        if self.workers.len() > MAX_WORKERS {
            return Err(PlanError::TooManyWorkers { workers: self.workers.len() });
        }
        if let Some(pair) = self.workers.windows(2).find(|pair| pair[0].worker >= pair[1].worker) {
            let [before, after] = [&pair[0], &pair[1]].map(|candidate| candidate.worker.clone());
            return Err(PlanError::Unsorted { before, after });
        }
        for (number, spot) in (0..).zip(self.partitions) {
            let named = [spot.counts_at(), spot.avoid].into_iter().flatten();
            if let Some(unknown) = named.map(WorkerIx::get).find(|index| *index >= self.workers.len()) {
                let partition = PartitionId::new(number);
                return Err(PlanError::NoSuchWorker {
                    partition,
                    index: unknown,
                    workers: self.workers.len(),
                });
            }
        }
        if self.ring.is_some_and(|ring| !ring.is_of(self.workers)) {
            return Err(PlanError::ForeignRing);
        }
        if self.keys.is_some_and(|keys| !keys.are_of(self.keyspace, self.partitions.len())) {
            return Err(PlanError::ForeignKeys { keyspace: self.keyspace.clone() });
        }
        Ok(count)
    }
}

/// Why no plan could be made. Whoever asked keeps the assignment there is: a plan consists of moves alone, so not even
/// an empty one takes anything from anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No partitions, or more than a keyspace may have.
    #[error(transparent)]
    Partitions(#[from] PartitionCountError),
    /// More workers than a plan is made for.
    #[error("{workers} workers: a plan is made for at most {MAX_WORKERS}")]
    TooManyWorkers {
        /// How many there are.
        workers: usize,
    },
    /// The workers are not in the order of their ids, or one is there twice. Ties between workers are decided by this
    /// order, so another one would be another plan.
    #[error("workers are not in the order of their ids, each once: {before} is followed by {after}")]
    Unsorted {
        /// The worker that comes first.
        before: WorkerId,
        /// The worker right after it.
        after: WorkerId,
    },
    /// A partition names a worker that is not in the list.
    #[error(
        "partition {partition} names worker number {index} of {workers}, counted from 0; a partition whose owner is no \
         candidate is vacant"
    )]
    NoSuchWorker {
        /// The partition.
        partition: PartitionId,
        /// The index it names.
        index: usize,
        /// How many workers there are.
        workers: usize,
    },
    /// The ring that was passed in is one of other workers or other weights.
    #[error(
        "the ring is not of these workers at these weights: build it again when a worker or a weight changes"
    )]
    ForeignRing,
    /// The keys that were passed in are of another keyspace or of another number of partitions.
    #[error("the partition keys are not those of keyspace {keyspace} with this number of partitions")]
    ForeignKeys {
        /// The keyspace of the view.
        keyspace: KeyspaceName,
    },
}
