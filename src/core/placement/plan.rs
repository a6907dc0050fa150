//! The plan: the moves from what is to what should be, why each, and what could not be done.

use super::balance::{Balance, Yardstick};
use super::candidate::{Candidate, WorkerIx, WorkerStanding};
use super::desk::Desk;
use super::error::PlanError;
use super::keys::PartitionKeys;
use super::obstacles::{Overfull, Takers, UnmetPin, Unplaced, overfull, unmet_pins};
use super::reason::Reason;
use super::ring::Ring;
use super::spot::{Spot, Standing};
use super::view::{Rules, View};
use super::{counts, weighed};
use crate::ids::PartitionId;

/// What should change. It consists of moves alone, each to a worker: no plan takes a partition from its owner without
/// naming the next.
///
/// The moves may be carried out in any order, and a part of them with a new plan after it. Without loads, what remains
/// is then exactly what was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The changes. Vacant partitions come first, then what pins, drains and labels demand, then balancing; each in the
    /// order of the partitions' numbers, and balancing by load in the order in which it is to be done.
    pub moves: Vec<PlannedMove>,
    /// Vacant partitions that nobody can take, in the order of their numbers.
    pub unplaced: Vec<(PartitionId, Unplaced)>,
    /// Pins whose worker does not have the partition, and will not with this plan, in the order of the partitions.
    pub unmet_pins: Vec<UnmetPin>,
    /// Workers that hold more than they should even when all moves are done, in the order of the workers.
    pub overfull: Vec<Overfull>,
    /// How many workers take partitions, and what keeps the others from it.
    pub takers: Takers,
    /// Each worker's share rounded up: partitions, or with loads the sum of loads. Zero for who takes none.
    pub shares: Vec<u64>,
    /// What the workers hold now.
    pub before: Balance,
    /// What they hold once all moves are done.
    pub after: Balance,
}

impl Plan {
    /// How many of its moves have this reason.
    pub fn count(&self, reason: Reason) -> usize {
        self.moves.iter().filter(|planned| planned.reason == reason).count()
    }

    /// Each reason there is, with the number of its moves, in the order of [`Reason::ALL`].
    pub fn counts(&self) -> Vec<(Reason, usize)> {
        let counts = Reason::ALL.map(|reason| (reason, self.count(reason)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// One partition that should change hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlannedMove {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it now, if anybody does.
    pub from: Option<WorkerIx>,
    /// Who should own it.
    pub to: WorkerIx,
    /// Why.
    pub reason: Reason,
}

/// The plan for a keyspace. Without loads: the fewest moves after which every worker that takes partitions holds its
/// share, rounded down or up, and so does every zone. With loads: see the module `weighed`.
///
/// It is a function of the view alone. Where the bounds leave a choice, a partition goes to its home, then to the first
/// worker clockwise with room; an owner above its share gives up first what would go home, and last what is at home;
/// and between equals, hashes and then ids and numbers decide.
///
/// # Errors
/// [`PlanError`] when the view contradicts itself. Nothing is to be changed then.
pub fn plan(view: &View<'_>) -> Result<Plan, PlanError> {
    with_ring_and_keys(view, |ring, keys| made(view, ring, keys))
}

/// Checks the view, and lends what the caller did not bring.
pub(super) fn with_ring_and_keys<T>(
    view: &View<'_>,
    use_them: impl FnOnce(&Ring, &[u64]) -> T,
) -> Result<T, PlanError> {
    let count = view.check()?;
    let (built_ring, built_keys);
    let ring = match view.ring {
        Some(ring) => ring,
        None => {
            built_ring = Ring::new(view.workers)?;
            &built_ring
        }
    };
    let keys = match view.keys {
        Some(keys) => keys,
        None => {
            built_keys = PartitionKeys::new(view.keyspace, count);
            &built_keys
        }
    };
    Ok(use_them(ring, keys.as_slice()))
}

/// The workers of a view in which something has no owner and nobody takes partitions, with those that are only frozen in
/// the place of takers. `None` in any other view.
pub(super) fn stand_ins(view: &View<'_>) -> Option<Vec<Candidate>> {
    let standings = || view.workers.iter().map(|worker| &worker.standing);
    let vacant = |spot: &Spot| matches!(spot.standing, Standing::Vacant(_));
    let needed = !standings().any(WorkerStanding::takes)
        && standings().any(|standing| *standing == WorkerStanding::Frozen)
        && view.partitions.iter().any(vacant);
    let stand_in = |worker: &Candidate| match worker.standing {
        WorkerStanding::Frozen => Candidate { standing: WorkerStanding::Takes, ..worker.clone() },
        _ => worker.clone(),
    };
    needed.then(|| view.workers.iter().map(stand_in).collect())
}

/// The view as its repairs are planned: where frozen workers stand in, nothing moves that has an owner.
pub(super) fn with_stand_ins<'a>(view: &View<'a>, workers: &'a [Candidate]) -> View<'a> {
    View { workers, rules: Rules { repairs_only: true, ..view.rules }, ..*view }
}

/// The plan for a view that was checked.
pub(super) fn made(view: &View<'_>, ring: &Ring, keys: &[u64]) -> Plan {
    match stand_ins(view) {
        Some(workers) => made_from(&with_stand_ins(view, &workers), view, ring, keys),
        None => made_from(view, view, ring, keys),
    }
}

/// The plan for a view, with what is said of the workers as they stand in `told`.
fn made_from(view: &View<'_>, told: &View<'_>, ring: &Ring, keys: &[u64]) -> Plan {
    let mut desk = Desk::new(view, ring, keys);
    let yardstick = match view.loads {
        Some(loads) => {
            let yardstick = Yardstick::of_loads(&desk, loads);
            weighed::place(&mut desk, loads);
            yardstick
        }
        None => {
            let yardstick = Yardstick::of_counts(&desk);
            counts::place(&mut desk);
            yardstick
        }
    };
    let Desk { zones, stances, mut moves, unplaced, .. } = desk;
    // Stable sorts, because they are quick with the few sorted runs that these are. Moves by load keep their order.
    match view.loads {
        Some(_) => moves.sort_by_key(|m| m.reason.class()),
        None => moves.sort_by_key(|m| (m.reason.class(), m.partition)),
    }

    let before = Balance::before(view, &zones, &yardstick);
    let after = before.once_done(view, &zones, &yardstick, &moves);
    Plan {
        overfull: overfull(told, &moves, &after, &yardstick),
        unmet_pins: unmet_pins(told, &stances),
        unplaced: {
            let why = Unplaced::because_of(told.workers);
            unplaced.into_iter().map(|partition| (PartitionId::new(partition), why)).collect()
        },
        takers: Takers::among(told.workers),
        shares: yardstick.shares,
        moves,
        before,
        after,
    }
}
