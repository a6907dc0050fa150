//! The workers of a plan: who they are, what each may be given and must give up, and where they stand.

use super::labels::Constraint;
use super::weight::Weight;
use crate::ids::WorkerId;

/// A worker's place in the list of a [`View`](super::View). It means nothing beside that list.
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

/// A zone: workers that are likely to be lost together. The number is the caller's own, and only whether two are equal
/// counts: numbered otherwise, the plan is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneIx(u32);

impl ZoneIx {
    /// The zone with this number.
    pub const fn new(number: u32) -> ZoneIx {
        ZoneIx(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a plan may do with a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerStanding {
    /// It has a share.
    Takes,
    /// It keeps what it has and gets nothing, because an operator wants it so. What it has counts in nobody's share.
    Cordoned,
    /// The same because it is suspected, without a connection, or about to leave: nobody can tell whether it would
    /// let go of anything, so not even a pin takes something from it.
    Away,
    /// It gives up all that can be moved, and gets nothing.
    Drained,
    /// No planned move goes to it or comes from it. What has no owner goes to it when no worker takes partitions, and
    /// only then: a freeze is about balance, and must not keep partitions down.
    Frozen,
    /// The same of one that is drained or cordoned besides, or whose labels are in the way: it gets nothing at all.
    FrozenOut,
    /// Its labels forbid it this keyspace: as with a drain it gives up what it has. The constraint that is not met.
    Ineligible(Constraint),
}

impl WorkerStanding {
    /// Whether it may be given partitions.
    pub fn takes(&self) -> bool {
        *self == WorkerStanding::Takes
    }

    /// Whether an operator froze it.
    pub fn is_frozen(&self) -> bool {
        matches!(self, WorkerStanding::Frozen | WorkerStanding::FrozenOut)
    }

    /// Whether it is to end up with nothing.
    pub fn gives_up(&self) -> bool {
        matches!(self, WorkerStanding::Drained | WorkerStanding::Ineligible(_))
    }
}

/// What is new about a worker since the keyspace was last balanced. It decides nothing; it is for the reasons of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Newly {
    /// It was not there.
    Joined,
    /// It had another weight.
    Reweighted,
}

/// A worker in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its stable name.
    pub worker: WorkerId,
    /// Its share compared with the others.
    pub weight: Weight,
    /// What may be done with it.
    pub standing: WorkerStanding,
    /// Its zone. A worker without one is bound by no zone, as if it were alone in its own.
    pub zone: Option<ZoneIx>,
    /// What is new about it.
    pub newly: Option<Newly>,
}

impl Candidate {
    /// A worker that takes its share, in no zone.
    pub const fn new(worker: WorkerId, weight: Weight) -> Candidate {
        Candidate { worker, weight, standing: WorkerStanding::Takes, zone: None, newly: None }
    }
}
