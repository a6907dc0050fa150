//! What a plan is made from, and the checks that refuse it.

use super::candidate::{Candidate, WorkerIx};
use super::error::PlanError;
use super::hash::PartitionCount;
use super::keys::PartitionKeys;
use super::ring::Ring;
use super::spot::Spot;
use crate::ids::{KeyspaceName, PartitionId};

/// The most workers that a plan is made for.
pub const MAX_WORKERS: usize = 100_000;

/// The largest load of a partition. With it the sum of all loads times the largest weight stays below 2^64.
pub const MAX_LOAD: u32 = 1_000_000;

/// What an operator has decided for the whole keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Nothing that has an owner moves; only vacant partitions are placed. It is what a frozen keyspace and a frozen
    /// cluster have.
    pub repairs_only: bool,
    /// Partitions move to even out what workers hold. Without loads it means nothing.
    pub even_out: bool,
    /// How far apart the loads of two workers may be before balancing by load begins, in thousandths of the mean load;
    /// 100 by default. It then goes on until half of that. Without loads it means nothing.
    pub tolerance_permille: u16,
}

impl Rules {
    const DEFAULT: Rules = Rules { repairs_only: false, even_out: true, tolerance_permille: 100 };
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::DEFAULT
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
    pub(super) loads: Option<&'a [u32]>,
    pub(super) rules: Rules,
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
        View { keyspace, workers, partitions, ring: None, keys: None, loads: None, rules: Rules::DEFAULT }
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

    /// The view with a load for each partition, from 1 to [`MAX_LOAD`], in the order of their numbers. The unit is the
    /// caller's own. With loads a worker's share is one of the sum of all loads, and no longer of their number.
    #[must_use]
    pub const fn with_loads(self, loads: &'a [u32]) -> View<'a> {
        View { loads: Some(loads), ..self }
    }

    /// The view under other rules than the default ones.
    #[must_use]
    pub const fn with_rules(self, rules: Rules) -> View<'a> {
        View { rules, ..self }
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
            let named = [spot.counts_at(), spot.avoid, spot.pinned_to()].into_iter().flatten();
            if let Some(unknown) = named.map(WorkerIx::get).find(|index| *index >= self.workers.len()) {
                let partition = PartitionId::new(number);
                return Err(PlanError::NoSuchWorker {
                    partition,
                    index: unknown,
                    workers: self.workers.len(),
                });
            }
        }
        if let Some(loads) = self.loads {
            if loads.len() != self.partitions.len() {
                let partitions = self.partitions.len();
                return Err(PlanError::LoadCount { loads: loads.len(), partitions });
            }
            let wrong = (0..).zip(loads).find(|(_, load)| !(1..=MAX_LOAD).contains(*load));
            if let Some((partition, &load)) = wrong {
                return Err(PlanError::Load { partition: PartitionId::new(partition), load });
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
