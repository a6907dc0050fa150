//! What a plan cannot do, and what stands in the way.

use super::balance::{Balance, Yardstick};
use super::candidate::{Candidate, WorkerIx, WorkerStanding};
use super::desk::Stance;
use super::labels::Constraint;
use super::plan::PlannedMove;
use super::spot::{Pin, Spot, Standing};
use super::view::View;
use crate::ids::PartitionId;
use std::collections::BTreeMap;
use std::fmt;

/// How many workers there are of each standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takers {
    /// Those that take partitions.
    pub taking: usize,
    /// Those that are cordoned.
    pub cordoned: usize,
    /// Those that are suspected, without a connection or about to leave.
    pub away: usize,
    /// Those that are drained.
    pub drained: usize,
    /// Those that are frozen.
    pub frozen: usize,
    /// Those whose labels are in the way, by the constraint that is not met.
    pub ineligible: BTreeMap<Constraint, usize>,
}

impl Takers {
    pub(super) fn among(workers: &[Candidate]) -> Takers {
        let mut takers = Takers::default();
        for worker in workers {
            *match &worker.standing {
                WorkerStanding::Takes => &mut takers.taking,
                WorkerStanding::Cordoned => &mut takers.cordoned,
                WorkerStanding::Away => &mut takers.away,
                WorkerStanding::Drained => &mut takers.drained,
                WorkerStanding::Frozen | WorkerStanding::FrozenOut => &mut takers.frozen,
                WorkerStanding::Ineligible(constraint) => match takers.ineligible.get_mut(constraint) {
                    Some(count) => count,
                    None => takers.ineligible.entry(constraint.clone()).or_default(),
                },
            } += 1;
        }
        takers
    }
}

/// As `2 cordoned, 1 ineligible (disk=ssd)`.
impl fmt::Display for Takers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standings = [
            (self.taking, "taking"),
            (self.cordoned, "cordoned"),
            (self.away, "away"),
            (self.drained, "drained"),
            (self.frozen, "frozen"),
        ];
        let mut parts: Vec<String> =
            standings.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        parts.extend(self.ineligible.iter().map(|(constraint, n)| format!("{n} ineligible ({constraint})")));
        f.write_str(if parts.is_empty() { "no workers" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Why nobody can take a partition. It is the same for all of a keyspace: whoever takes partitions can take any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unplaced {
    /// There is no worker.
    NoWorkers,
    /// All are cordoned.
    AllCordoned,
    /// All are suspected, without a connection or about to leave.
    AllAway,
    /// All are drained.
    AllDrained,
    /// All are frozen, and drained or cordoned besides, or their labels are in the way. One that is only frozen takes what
    /// nobody else may.
    AllFrozen,
    /// The labels of all are in the way; [`Takers`] names the constraints.
    AllIneligible,
    /// Some of this and some of that; [`Takers`] has the numbers.
    NoneTakes,
}

impl Unplaced {
    /// Why none of these workers takes what has no owner; `None` when one does.
    pub fn among(workers: &[Candidate]) -> Option<Unplaced> {
        let takes = |worker: &Candidate| worker.standing.takes() || worker.standing == WorkerStanding::Frozen;
        (!workers.iter().any(takes)).then(|| Unplaced::because_of(workers))
    }

    /// Why none of these workers takes what another has to give up; `None` when one does.
    pub fn of_what_is_owned(workers: &[Candidate]) -> Option<Unplaced> {
        let nobody = !workers.iter().any(|worker| worker.standing.takes());
        nobody.then(|| Unplaced::because_of(workers))
    }

    pub(super) fn because_of(workers: &[Candidate]) -> Unplaced {
        let one = |worker: &Candidate| match worker.standing {
            WorkerStanding::Cordoned => Unplaced::AllCordoned,
            WorkerStanding::Away => Unplaced::AllAway,
            WorkerStanding::Drained => Unplaced::AllDrained,
            WorkerStanding::Frozen | WorkerStanding::FrozenOut => Unplaced::AllFrozen,
            WorkerStanding::Ineligible(_) => Unplaced::AllIneligible,
            WorkerStanding::Takes => Unplaced::NoneTakes,
        };
        match workers {
            [] => Unplaced::NoWorkers,
            [first, rest @ ..] if rest.iter().all(|worker| one(worker) == one(first)) => one(first),
            _ => Unplaced::NoneTakes,
        }
    }
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unplaced::NoWorkers => "no worker serves the keyspace: start one, and restart those that joined before it was created",
            Unplaced::AllCordoned => "all workers are cordoned: uncordon one, or start another",
            Unplaced::AllAway => "all workers are suspected, without a connection or leaving: wait, or start another",
            Unplaced::AllDrained => "all workers are drained: end a drain, or start another",
            Unplaced::AllFrozen => {
                "all workers are frozen, and drained, cordoned or without the right labels besides: end that of one, or start another"
            }
            Unplaced::AllIneligible => {
                "the labels of all workers are in the way: change the keyspace's constraints, or start a worker that meets them"
            }
            Unplaced::NoneTakes => "no worker takes partitions: uncordon, undrain or unfreeze one, or start another",
        })
    }
}

/// A pin whose worker does not have the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnmetPin {
    /// The partition.
    pub partition: PartitionId,
    /// The worker, when it is there at all.
    pub worker: Option<WorkerIx>,
    /// Why.
    pub why: PinObstacle,
}

/// Why a pin is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinObstacle {
    /// Its worker is not there.
    WorkerAbsent,
    /// Its worker is there and takes no partitions; its standing says why.
    WorkerTakesNone,
    /// The partition is frozen, or cools down after a move.
    PartitionFixed,
    /// The partition's owner is frozen or away.
    OwnerKeeps,
    /// It is on its way to another worker.
    InFlight,
    /// It waits for a lease to run out or a delay to pass.
    Waits,
    /// The keyspace or the cluster is frozen: only repairs are planned.
    RepairsOnly,
}

pub(super) fn unmet_pins(view: &View<'_>, stances: &[Stance]) -> Vec<UnmetPin> {
    let pins = (0..).zip(view.partitions).zip(stances).filter(|((_, spot), _)| spot.pin.is_some());
    pins.filter_map(|((partition, spot), stance)| {
        let worker = spot.pinned_to();
        let why = obstacle(view, spot, *stance)?;
        Some(UnmetPin { partition: PartitionId::new(partition), worker, why })
    })
    .collect()
}

fn obstacle(view: &View<'_>, spot: &Spot, stance: Stance) -> Option<PinObstacle> {
    let pin = match spot.pin? {
        Pin::Absent => return Some(PinObstacle::WorkerAbsent),
        Pin::To(worker) => worker,
    };
    match stance {
        Stance::Ordered { .. } => None,
        Stance::Fixed(at) if at == pin => None,
        _ if !view.workers[pin.get()].standing.takes() => Some(PinObstacle::WorkerTakesNone),
        Stance::Waits => Some(PinObstacle::Waits),
        _ => Some(match spot.standing {
            Standing::InFlight { .. } => PinObstacle::InFlight,
            Standing::Owned { movable: false, .. } => PinObstacle::PartitionFixed,
            _ if view.rules.repairs_only => PinObstacle::RepairsOnly,
            _ => PinObstacle::OwnerKeeps,
        }),
    }
}

/// A worker that holds more than it should even when a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overfull {
    /// The worker.
    pub worker: WorkerIx,
    /// What it will hold: partitions, or with loads the sum of loads.
    pub holds: u64,
    /// What it should hold at the most: its share rounded up, and nothing when it is to give up everything. With loads
    /// it is reported only when it is above that by more than the tolerance.
    pub share: u64,
    /// What keeps its partitions there.
    pub kept: Kept,
}

/// How many of a worker's partitions stay with it, by what keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kept {
    /// Pinned to it.
    pub pinned: u32,
    /// Frozen, or cooling down after a move.
    pub fixed: u32,
    /// On their way to it.
    pub in_flight: u32,
    /// Free to go, and the keyspace or the cluster is frozen.
    pub by_rules: u32,
    /// Free to go, and nobody takes them, or none of them would bring loads closer together.
    pub no_better_place: u32,
}

pub(super) fn overfull(
    view: &View<'_>,
    moves: &[PlannedMove],
    after: &Balance,
    yardstick: &Yardstick,
) -> Vec<Overfull> {
    let is_overfull = |worker: usize| {
        let standing = &view.workers[worker].standing;
        let bound = if standing.takes() { yardstick.shares[worker] + yardstick.slack } else { 0 };
        (standing.takes() || standing.gives_up()) && after.loads[worker] > bound
    };
    let mut kept: BTreeMap<WorkerIx, Kept> = (0..view.workers.len())
        .filter(|worker| is_overfull(*worker))
        .map(|worker| (WorkerIx::new(worker as u32), Kept::default()))
        .collect();
    if kept.is_empty() {
        return Vec::new();
    }
    let mut places: Vec<Option<WorkerIx>> = view.partitions.iter().map(Spot::counts_at).collect();
    moves.iter().for_each(|m| places[m.partition.get() as usize] = Some(m.to));
    for (spot, at) in view.partitions.iter().zip(places) {
        let Some((at, kept)) = at.and_then(|at| Some((at, kept.get_mut(&at)?))) else { continue };
        *match spot.standing {
            Standing::InFlight { .. } => &mut kept.in_flight,
            Standing::Owned { movable: false, .. } => &mut kept.fixed,
            _ if spot.pinned_to() == Some(at) && view.workers[at.get()].standing.takes() => &mut kept.pinned,
            _ if view.rules.repairs_only => &mut kept.by_rules,
            _ => &mut kept.no_better_place,
        } += 1;
    }
    let overfull = kept.into_iter().map(|(worker, kept)| Overfull {
        worker,
        holds: after.loads[worker.get()],
        share: yardstick.shares[worker.get()],
        kept,
    });
    overfull.collect()
}
