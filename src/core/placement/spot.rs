//! The partitions of a plan: where each stands now, and what an operator wants for it.

use super::candidate::WorkerIx;

/// Where one partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nobody owns it and it may be granted now. A partition whose owner is no candidate any more is vacant, too.
    Vacant(Vacancy),
    /// A worker owns it.
    Owned {
        /// Its owner.
        by: WorkerIx,
        /// Whether a plan may take it away; no for one that is frozen or cooling down after a move.
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

/// Why nobody owns a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vacancy {
    /// Nobody ever did.
    First,
    /// Its owner left.
    Left,
    /// Its owner's lease ran out, or its task failed.
    Failed,
    /// Its owner gave it back by itself.
    Returned,
}

/// The worker that an operator wants for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// One of the candidates.
    To(WorkerIx),
    /// One that is not there. Until it comes, the partition is placed by the rules.
    Absent,
}

/// One partition in a [`View`](super::View).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spot {
    /// Where it stands.
    pub standing: Standing,
    /// A worker that shall not get it while another can, such as the one where it failed last. This goes before
    /// balance: it may cost one move more than the least. A pin goes before this.
    pub avoid: Option<WorkerIx>,
    /// The worker that shall have it, as soon as and as long as that one takes partitions.
    pub pin: Option<Pin>,
}

impl Spot {
    /// A partition that was never owned, to be granted.
    pub const VACANT: Spot = Spot::vacant(Vacancy::First);

    /// A partition that waits.
    pub const HELD: Spot = Spot::standing(Standing::Held);

    /// A partition to be granted.
    pub const fn vacant(why: Vacancy) -> Spot {
        Spot::standing(Standing::Vacant(why))
    }

    /// A partition with an owner, from whom a plan may take it.
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
        Spot { avoid: Some(worker), ..self }
    }

    /// The same partition, pinned.
    pub const fn pinned(self, pin: Pin) -> Spot {
        Spot { pin: Some(pin), ..self }
    }

    const fn standing(standing: Standing) -> Spot {
        Spot { standing, avoid: None, pin: None }
    }

    /// The worker that its pin names, if that is a candidate.
    pub(super) const fn pinned_to(&self) -> Option<WorkerIx> {
        match self.pin {
            Some(Pin::To(worker)) => Some(worker),
            Some(Pin::Absent) | None => None,
        }
    }

    /// The worker at which it counts.
    pub(super) const fn counts_at(&self) -> Option<WorkerIx> {
        match self.standing {
            Standing::Owned { by, .. } => Some(by),
            Standing::InFlight { to } => Some(to),
            Standing::Vacant(_) | Standing::Held => None,
        }
    }
}
