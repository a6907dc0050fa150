//! What workers and zones hold beside their shares: how far from balance a keyspace is.

use super::candidate::{Candidate, WorkerIx};
use super::desk::{Desk, Stance};
use super::error::PlanError;
use super::plan::PlannedMove;
use super::quota::Shares;
use super::ring::Ring;
use super::view::View;
use super::zones::Zones;

/// What the workers of a keyspace hold, and how even that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// How far apart the workers that take partitions are: the largest less the smallest of what each holds above the
    /// whole part of its share. With equal weights that is the most less the fewest partitions; with any weights,
    /// workers are balanced when it is 0 or 1. With loads: the largest less the smallest of what each holds above its
    /// exact share, rounded down.
    pub spread: u64,
    /// The same of the zones that are named, each compared with the sum of its workers' shares; 0 with fewer than two.
    pub zone_spread: u64,
    /// How many partitions each worker holds.
    pub partitions: Vec<u32>,
    /// What each worker holds: the sum of its partitions' loads, where each is 1 when no loads are given.
    pub loads: Vec<u64>,
}

/// How even a keyspace is as it stands, without a plan for it, and how even it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evenness {
    /// What the workers hold.
    pub balance: Balance,
    /// The largest spread of workers that no plan would change: 1, or with loads the sum of loads at which balancing
    /// begins.
    pub tolerance: u64,
}

impl Evenness {
    /// That of a view.
    ///
    /// # Errors
    /// [`PlanError`] when the view contradicts itself.
    pub fn of(view: &View<'_>) -> Result<Evenness, PlanError> {
        view.check()?;
        // Nothing is placed, so nobody looks at the ring or the keys.
        let ring = Ring::new(&[])?;
        let desk = Desk::new(view, &ring, &[]);
        let (yardstick, tolerance) = match view.loads {
            Some(loads) => {
                let yardstick = Yardstick::of_loads(&desk, loads);
                let tolerance = yardstick.slack;
                (yardstick, tolerance)
            }
            None => (Yardstick::of_counts(&desk), 1),
        };
        Ok(Evenness { balance: Balance::before(view, &desk.zones, &yardstick), tolerance })
    }
}

/// The shares against which loads are measured, as numerators over one denominator.
pub(super) struct Yardstick {
    share: Vec<i128>,
    zone_share: Vec<i128>,
    denominator: i128,
    takes: Vec<bool>,
    /// Each worker's share rounded up.
    pub(super) shares: Vec<u64>,
    /// How much more a worker may hold than its share before that is worth a report.
    pub(super) slack: u64,
}

impl Yardstick {
    /// Shares of the number of partitions, in whole parts.
    pub(super) fn of_counts(desk: &Desk<'_>) -> Yardstick {
        let takes = takes(desk.workers);
        let shares = Shares::new(desk.workers, &takes, desk.pool(&desk.counted()));
        let share: Vec<i128> = (0..takes.len()).map(|worker| shares.whole(worker).into()).collect();
        let zone_share = shares.whole_of_zones(&desk.zones);
        let rounded_up = (0..takes.len()).map(|worker| shares.rounded_up(worker).into()).collect();
        Yardstick { share, zone_share, denominator: 1, takes, shares: rounded_up, slack: 0 }
    }

    /// Exact shares of the sum of the loads.
    pub(super) fn of_loads(desk: &Desk<'_>, loads: &[u32]) -> Yardstick {
        let takes = takes(desk.workers);
        let shared = shared_load(desk, loads);
        let weight =
            |worker: usize| if takes[worker] { desk.workers[worker].weight.get().into() } else { 0_i128 };
        let weights: i128 = (0..takes.len()).map(weight).sum::<i128>().max(1);
        let share: Vec<i128> = (0..takes.len()).map(|worker| i128::from(shared) * weight(worker)).collect();
        let mut zone_share = vec![0; desk.zones.named()];
        for (worker, share) in share.iter().enumerate() {
            if let Some(sum) = zone_share.get_mut(desk.zones.of(worker)) {
                *sum += share;
            }
        }
        let shares = share.iter().map(|share| ((share + weights - 1) / weights) as u64).collect();
        let count = takes.iter().filter(|takes| **takes).count();
        let slack = tolerance(desk, loads, shared, count);
        Yardstick { share, zone_share, denominator: weights, takes, shares, slack }
    }

    fn above(&self, worker: usize, load: u64) -> i128 {
        i128::from(load) * self.denominator - self.share[worker]
    }

    /// Whether a worker with this load holds its share.
    pub(super) fn is_full(&self, worker: usize, load: u64) -> bool {
        self.above(worker, load) >= 0
    }

    fn spread(&self, loads: &[u64]) -> u64 {
        let takes = (0..loads.len()).filter(|worker| self.takes[*worker]);
        self.range(takes.map(|worker| self.above(worker, loads[worker])))
    }

    fn zone_spread(&self, zones: &Zones, loads: &[u64]) -> u64 {
        let mut above: Vec<i128> = self.zone_share.iter().map(|share| -share).collect();
        let mut takes = vec![false; above.len()];
        for (worker, load) in loads.iter().enumerate().filter(|(worker, _)| self.takes[*worker]) {
            if let Some(above) = above.get_mut(zones.of(worker)) {
                *above += i128::from(*load) * self.denominator;
                takes[zones.of(worker)] = true;
            }
        }
        self.range(above.into_iter().zip(takes).filter(|(_, takes)| *takes).map(|(above, _)| above))
    }

    fn range(&self, above: impl Iterator<Item = i128>) -> u64 {
        let (least, most) =
            above.fold((i128::MAX, i128::MIN), |(least, most), x| (least.min(x), most.max(x)));
        if most < least { 0 } else { ((most - least) / self.denominator) as u64 }
    }
}

fn takes(workers: &[Candidate]) -> Vec<bool> {
    workers.iter().map(|worker| worker.standing.takes()).collect()
}

/// The sum of the loads that the workers which take partitions have to share.
pub(super) fn shared_load(desk: &Desk<'_>, loads: &[u32]) -> u64 {
    let kept = |stance: &Stance| stance.counts_at().is_some_and(|(worker, _)| !desk.takes(worker));
    let shared = desk.stances.iter().zip(loads).filter(|(stance, _)| !kept(stance));
    shared.map(|(_, load)| u64::from(*load)).sum()
}

/// How far apart loads may be before balancing begins: a part of the mean load, and the largest partition at the least,
/// for a worker that holds it and another that does not are hardly brought closer together. A partition of more than
/// half the mean load does not count here: it would excuse that its worker has many others beside it.
pub(super) fn tolerance(desk: &Desk<'_>, loads: &[u32], shared: u64, takers: usize) -> u64 {
    let permille = u64::from(desk.rules.tolerance_permille);
    let takers = (takers as u64).max(1);
    // At most 10^12 times 2^16.
    let of_mean = shared * permille / (1_000 * takers);
    let usual = loads.iter().map(|load| u64::from(*load)).filter(|load| load * 2 * takers <= shared);
    of_mean.max(usual.max().unwrap_or(0))
}

impl Balance {
    /// What the view says.
    pub(super) fn before(view: &View<'_>, zones: &Zones, yardstick: &Yardstick) -> Balance {
        let mut partitions = vec![0; view.workers.len()];
        let mut loads = vec![0; view.workers.len()];
        for (number, spot) in view.partitions.iter().enumerate() {
            if let Some(worker) = spot.counts_at() {
                partitions[worker.get()] += 1;
                loads[worker.get()] += load_of(view, number);
            }
        }
        Balance::new(zones, yardstick, partitions, loads)
    }

    /// The same once these moves are done.
    pub(super) fn once_done(
        &self,
        view: &View<'_>,
        zones: &Zones,
        yardstick: &Yardstick,
        moves: &[PlannedMove],
    ) -> Balance {
        let (mut partitions, mut loads) = (self.partitions.clone(), self.loads.clone());
        for m in moves {
            let load = load_of(view, m.partition.get() as usize);
            if let Some(from) = m.from.map(WorkerIx::get) {
                partitions[from] -= 1;
                loads[from] -= load;
            }
            partitions[m.to.get()] += 1;
            loads[m.to.get()] += load;
        }
        Balance::new(zones, yardstick, partitions, loads)
    }

    fn new(zones: &Zones, yardstick: &Yardstick, partitions: Vec<u32>, loads: Vec<u64>) -> Balance {
        let (spread, zone_spread) = (yardstick.spread(&loads), yardstick.zone_spread(zones, &loads));
        Balance { spread, zone_spread, partitions, loads }
    }
}

fn load_of(view: &View<'_>, partition: usize) -> u64 {
    view.loads.map_or(1, |loads| loads[partition].into())
}
