//! One partition: why it is where it is, why no other worker has it, and what it would take.

use super::balance::{Balance, Yardstick};
use super::candidate::{WorkerIx, WorkerStanding};
use super::desk::Desk;
use super::error::PlanError;
use super::obstacles::Unplaced;
use super::plan::{Plan, PlannedMove, made, stand_ins, with_ring_and_keys, with_stand_ins};
use super::ring::Ring;
use super::spot::{Spot, Standing};
use super::view::View;
use crate::ids::PartitionId;
use std::fmt;

/// Of how many other workers an explanation speaks: the first clockwise from the partition.
pub const MAX_OTHERS: usize = 16;

/// Why a partition is where it is. It speaks of the keyspace as it will be once the plan is carried out, for that is
/// what a worker's room depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The partition.
    pub partition: PartitionId,
    /// The worker that it prefers; `None` when there is no worker.
    pub home: Option<WorkerIx>,
    /// Who has it, or is about to by a move under way.
    pub owner: Option<WorkerIx>,
    /// What the plan would do with it now.
    pub planned: Option<PlannedMove>,
    /// Why it is, or will be, where it is.
    pub because: Because,
    /// What keeps it there; nothing when it is about to move.
    pub holds: Vec<Hold>,
    /// Why others do not have it, in the order in which the partition prefers them.
    pub others: Vec<(WorkerIx, WhyNot)>,
}

/// Why a partition is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// It is at home.
    Home,
    /// It is pinned there.
    Pinned,
    /// Its home cannot have it, for this reason, and this worker is the next that could.
    Overflow(WhyNot),
    /// Its home cannot have it, for this reason; a worker nearer than its owner could, and the owner keeps what it has.
    KeptOverflow(WhyNot),
    /// Its home could have it, and its owner keeps what it has.
    Kept,
    /// It is frozen there, or cools down.
    Fixed,
    /// It is pinned to another worker, which may have it, and something keeps it from going there.
    PinWaits,
    /// It is on its way there.
    Arriving,
    /// Nobody takes partitions, and what has no owner goes to frozen workers then.
    StandsIn,
    /// It waits and has no owner.
    Waits,
    /// Nobody can take it.
    Unplaced(Unplaced),
}

/// What keeps a partition where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Its pin.
    Pinned,
    /// It is frozen, or cools down after a move.
    Fixed,
    /// A move is under way.
    InFlight,
    /// It waits for a lease to run out or a delay to pass.
    Waits,
    /// Its owner is cordoned.
    OwnerCordoned,
    /// Its owner is suspected, without a connection or about to leave.
    OwnerAway,
    /// Its owner is frozen.
    OwnerFrozen,
    /// Its owner is to give it up, and nobody takes it.
    NobodyTakes,
    /// The keyspace or the cluster is frozen.
    RepairsOnly,
    /// Its owner holds no more than its share.
    WithinShare,
    /// Its owner holds more than its share, and no move of this partition would make workers more even, by more than is
    /// worth one.
    NoBetterPlace {
        /// What its owner holds.
        holds: u64,
        /// Its share, rounded up.
        share: u64,
    },
    /// Its owner may hold more than its share, and nothing is evened out before the loads are known.
    LoadsUnknown,
}

/// Why a worker does not have a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyNot {
    /// The worker is cordoned.
    Cordoned,
    /// It is suspected, without a connection or about to leave.
    Away,
    /// It is drained.
    Drained,
    /// It is frozen.
    Frozen,
    /// Its labels are in the way; its standing names the constraint.
    Ineligible,
    /// The partition is pinned to another worker.
    PinnedElsewhere,
    /// The partition is to be kept from it: it failed there.
    Avoided,
    /// It holds its share without it.
    Full {
        /// What it will hold.
        holds: u64,
        /// Its share, rounded up.
        share: u64,
    },
    /// It has room and would be preferred, and whoever owns a partition keeps it.
    OwnerKeeps,
    /// It has room, and comes later in the partition's order of preference.
    FurtherRound,
    /// Nobody gets the partition while it waits.
    PartitionWaits,
    /// The partition stays where it is, whatever room there is elsewhere; [`Explanation::holds`] says why.
    PartitionStays,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hold::NoBetterPlace { holds, share } => {
                return write!(
                    f,
                    "its owner holds {holds} of a share of {share}, and to move this partition would not bring workers closer \
                     together by more than a move is worth: pin it elsewhere to move it all the same"
                );
            }
            Hold::LoadsUnknown => "nothing is evened out before the loads are known: wait",
            Hold::Pinned => "it is pinned there: take the pin away",
            Hold::Fixed => {
                "it is frozen, cools down after a move, or is being given up with nowhere to go: unfreeze it, or wait"
            }
            Hold::InFlight => "a move is under way: wait until its new owner is ready",
            Hold::Waits => "it waits for a lease to run out or a delay to pass: wait, or end the wait",
            Hold::OwnerCordoned => {
                "its owner is cordoned and keeps what it has: drain it, or pin the partition elsewhere"
            }
            Hold::OwnerAway => "its owner is suspected, without a connection or leaving: wait",
            Hold::OwnerFrozen => "its owner is frozen: unfreeze it",
            Hold::NobodyTakes => "its owner is to give it up and nobody takes it: start a worker that can",
            Hold::RepairsOnly => "the keyspace or the cluster is frozen: unfreeze it",
            Hold::WithinShare => {
                "its owner holds no more than its share: pin it elsewhere to move it all the same"
            }
        })
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyNot::Cordoned => "is cordoned: uncordon it",
            WhyNot::Away => "is suspected, without a connection or leaving: wait until it is back",
            WhyNot::Drained => "is drained: end the drain",
            WhyNot::Frozen => "is frozen: unfreeze it",
            WhyNot::Ineligible => "has the wrong labels: change them, or the keyspace's constraints",
            WhyNot::PinnedElsewhere => "is not where the pin wants it: move the pin",
            WhyNot::Avoided => "is where it failed last: it may go back when no other takes it",
            // A share has a fraction, and who holds its whole part is no less even than who holds one more.
            WhyNot::Full { holds, share } if holds < share => {
                return write!(
                    f,
                    "holds {holds}, the whole part of its share: raise its weight, or pin the partition to it"
                );
            }
            WhyNot::Full { holds, share } => {
                return write!(
                    f,
                    "holds {holds} of a share of {share}: raise its weight, or pin the partition to it"
                );
            }
            WhyNot::OwnerKeeps => "has room, and the owner keeps what it has: pin the partition to it",
            WhyNot::FurtherRound => "has room, and others are preferred: pin the partition to it",
            WhyNot::PartitionWaits => "may get it when it is not waited for any more",
            WhyNot::PartitionStays => "may get it when the partition may move: see what keeps it there",
        })
    }
}

/// Why a partition is where it is. It costs as much as a plan.
///
/// # Errors
/// [`PlanError`] as for [`plan`](super::plan), and when there is no such partition.
pub fn explain(view: &View<'_>, partition: PartitionId) -> Result<Explanation, PlanError> {
    let number = partition.get() as usize;
    with_ring_and_keys(view, |ring, keys| {
        let Some(spot) = view.partitions.get(number) else {
            return Err(PlanError::NoSuchPartition { partition, partitions: view.partitions.len() });
        };
        let plan = made(view, ring, keys);
        let standing_in = stand_ins(view);
        let worked = standing_in.as_deref().map_or(*view, |workers| with_stand_ins(view, workers));
        let desk = Desk::new(&worked, ring, keys);
        let yardstick = match view.loads {
            Some(loads) => Yardstick::of_loads(&desk, loads),
            None => Yardstick::of_counts(&desk),
        };
        let at = plan.moves.iter().position(|m| m.partition == partition);
        let planned = at.map(|at| plan.moves[at]);
        let place = planned.map(|m| m.to).or(spot.counts_at());
        let Plan { after, .. } = plan;
        Ok(Asked { view, ring, spot, key: keys[number], planned, place, after, yardstick }
            .explanation(partition))
    })?
}

struct Asked<'a> {
    view: &'a View<'a>,
    ring: &'a Ring,
    spot: &'a Spot,
    key: u64,
    planned: Option<PlannedMove>,
    /// Where it will be.
    place: Option<WorkerIx>,
    after: Balance,
    yardstick: Yardstick,
}

impl Asked<'_> {
    fn explanation(&self, partition: PartitionId) -> Explanation {
        Explanation {
            partition,
            home: self.ring.home(self.key),
            owner: self.spot.counts_at(),
            planned: self.planned,
            because: self.because(),
            holds: self.holds(),
            others: self.others(),
        }
    }

    fn standing(&self, worker: WorkerIx) -> &WorkerStanding {
        &self.view.workers[worker.get()].standing
    }

    /// The pin, where it has an effect.
    fn pin(&self) -> Option<WorkerIx> {
        self.spot.pinned_to().filter(|worker| self.standing(*worker).takes())
    }

    fn because(&self) -> Because {
        let Some(place) = self.place else {
            return match self.spot.standing {
                Standing::Held => Because::Waits,
                _ => Because::Unplaced(Unplaced::because_of(self.view.workers)),
            };
        };
        match (self.spot.standing, self.ring.home(self.key)) {
            _ if self.planned.is_some() && self.standing(place).is_frozen() => Because::StandsIn,
            _ if self.pin() == Some(place) => Because::Pinned,
            (Standing::InFlight { .. }, _) => Because::Arriving,
            _ if self.pin().is_some() => Because::PinWaits,
            (_, Some(home)) if home == place => Because::Home,
            (Standing::Owned { movable: false, .. }, _) => Because::Fixed,
            (_, Some(home)) => match self.no_room(home) {
                None => Because::Kept,
                Some(why) if self.nearer_has_room(place) => Because::KeptOverflow(why),
                Some(why) => Because::Overflow(why),
            },
            (_, None) => Because::Kept,
        }
    }

    fn holds(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        let Some(owner) = self.spot.counts_at() else {
            holds.extend((self.spot.standing == Standing::Held).then_some(Hold::Waits));
            return holds;
        };
        if self.planned.is_some() {
            return holds;
        }
        holds.extend((self.pin() == Some(owner)).then_some(Hold::Pinned));
        holds.extend(match self.spot.standing {
            Standing::InFlight { .. } => Some(Hold::InFlight),
            Standing::Owned { movable: false, .. } => Some(Hold::Fixed),
            _ => None,
        });
        holds.extend(self.view.rules.repairs_only.then_some(Hold::RepairsOnly));
        let anybody = self.view.workers.iter().any(|worker| worker.standing.takes());
        holds.extend(match self.standing(owner) {
            WorkerStanding::Cordoned => Some(Hold::OwnerCordoned),
            WorkerStanding::Away => Some(Hold::OwnerAway),
            WorkerStanding::Frozen | WorkerStanding::FrozenOut => Some(Hold::OwnerFrozen),
            WorkerStanding::Drained | WorkerStanding::Ineligible(_) => {
                (!anybody).then_some(Hold::NobodyTakes)
            }
            WorkerStanding::Takes => holds.is_empty().then(|| self.evenness_holds(owner)),
        });
        holds
    }

    /// What balance has to do with it that it stays.
    fn evenness_holds(&self, owner: WorkerIx) -> Hold {
        let (holds, share) = (self.after.loads[owner.get()], self.yardstick.shares[owner.get()]);
        if holds <= share {
            Hold::WithinShare
        } else if self.view.rules.even_out {
            Hold::NoBetterPlace { holds, share }
        } else {
            Hold::LoadsUnknown
        }
    }

    /// Whether it stays with whoever has it, however even that is.
    fn stays(&self) -> bool {
        let kept = |owner: WorkerIx| {
            let standing = self.standing(owner);
            standing.is_frozen() || *standing == WorkerStanding::Away
        };
        let fixed =
            matches!(self.spot.standing, Standing::InFlight { .. } | Standing::Owned { movable: false, .. });
        let owned = self.spot.counts_at().filter(|_| self.planned.is_none());
        owned.is_some_and(|owner| fixed || self.view.rules.repairs_only || kept(owner))
    }

    fn others(&self) -> Vec<(WorkerIx, WhyNot)> {
        let mut others = Vec::new();
        let mut with_room = match self.place {
            Some(_) => WhyNot::OwnerKeeps,
            None => WhyNot::PartitionWaits,
        };
        for worker in self.in_order() {
            if others.len() == MAX_OTHERS {
                break;
            }
            if self.place == Some(worker) {
                with_room = WhyNot::FurtherRound;
            } else {
                others.push((worker, self.why_not(worker, with_room)));
            }
        }
        others
    }

    /// Why a worker does not have it. What room it has is beside the point where the partition goes nowhere.
    fn why_not(&self, worker: WorkerIx, with_room: WhyNot) -> WhyNot {
        match self.no_room(worker) {
            None | Some(WhyNot::Full { .. } | WhyNot::Avoided) if self.stays() => WhyNot::PartitionStays,
            Some(WhyNot::Full { .. } | WhyNot::Avoided) if self.spot.standing == Standing::Held => {
                WhyNot::PartitionWaits
            }
            why => why.unwrap_or(with_room),
        }
    }

    /// Whether a worker that the partition would prefer to this one could have it.
    fn nearer_has_room(&self, place: WorkerIx) -> bool {
        self.in_order().take_while(|worker| *worker != place).any(|worker| self.no_room(worker).is_none())
    }

    /// All workers, in the order in which the partition prefers them.
    fn in_order(&self) -> impl Iterator<Item = WorkerIx> {
        let start = self.ring.position(self.key);
        let mut seen = vec![false; self.view.workers.len()];
        let round = (start..self.ring.len()).chain(0..start).map(|position| self.ring.owner(position));
        round.filter(move |worker| !std::mem::replace(&mut seen[worker.get()], true))
    }

    /// Why a worker could not have it, whoever has it now.
    fn no_room(&self, worker: WorkerIx) -> Option<WhyNot> {
        let load = self.after.loads[worker.get()];
        match self.standing(worker) {
            WorkerStanding::Cordoned => Some(WhyNot::Cordoned),
            WorkerStanding::Away => Some(WhyNot::Away),
            WorkerStanding::Drained => Some(WhyNot::Drained),
            WorkerStanding::Frozen | WorkerStanding::FrozenOut => Some(WhyNot::Frozen),
            WorkerStanding::Ineligible(_) => Some(WhyNot::Ineligible),
            WorkerStanding::Takes if self.pin().is_some_and(|pin| pin != worker) => {
                Some(WhyNot::PinnedElsewhere)
            }
            WorkerStanding::Takes if self.spot.avoid == Some(worker) => Some(WhyNot::Avoided),
            WorkerStanding::Takes if self.yardstick.is_full(worker.get(), load) => {
                Some(WhyNot::Full { holds: load, share: self.yardstick.shares[worker.get()] })
            }
            WorkerStanding::Takes => None,
        }
    }
}
