//! Which workers hold one more than the whole part of their share, when they stand in zones.
//!
//! A zone's share is the sum of its workers' shares. Its workers hold their whole parts anyway, so what a zone binds is
//! how many of its workers have an extra: the sum of their fractions, rounded down or up. The number of all extras is
//! what it would be without zones.
//!
//! Sets of workers that keep to this are the bases of a matroid, so the best one is found greedily: each zone gives as
//! many extras as its sum rounded down to the first of its workers, and what is left goes to the first of those that
//! are next in their zones. "First" is an order in which those whose extra saves a move come before those whose does
//! not, so the extras save as many moves as any choice within the zones could.
//!
//! A worker without a zone is one by itself. Its fraction is below one, so that binds nothing: without zones the
//! greedy choice is simply the first of all workers.

use super::candidate::Candidate;
use crate::mutant;

/// Each worker's zone, numbered from 0 without gaps.
pub(super) struct Zones {
    of: Vec<u32>,
    /// How many zones the candidates name; the numbers after them are of workers by themselves.
    named: usize,
    count: usize,
}

/// The extras of one zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneExtras {
    least: u32,
    most: u32,
    /// How many it has.
    pub(super) given: u32,
    /// How many of them are at workers that do not hold theirs yet, so that another worker could have them at no cost.
    pub(super) free: u32,
}

impl ZoneExtras {
    /// Whether it could have one less at no cost.
    pub(super) fn can_lend(&self) -> bool {
        self.free > 0 && self.given > self.least
    }

    /// Whether it may have one more.
    pub(super) fn can_borrow(&self) -> bool {
        self.given < self.most
    }
}

impl Zones {
    /// The zones of these workers.
    pub(super) fn in_view(workers: &[Candidate]) -> Zones {
        if mutant!("zones-ignored") {
            return Zones::none(workers.len());
        }
        let mut names: Vec<_> = workers.iter().filter_map(|worker| worker.zone).collect();
        names.sort_unstable();
        names.dedup();
        let named = names.len();
        let mut count = named;
        let number = |worker: &Candidate| match worker.zone.map(|zone| names.binary_search(&zone)) {
            Some(Ok(number)) => number as u32,
            Some(Err(_)) | None => {
                count += 1;
                count as u32 - 1
            }
        };
        let of = workers.iter().map(number).collect();
        Zones { of, named, count }
    }

    /// Every worker by itself, whatever zone it names.
    pub(super) fn none(workers: usize) -> Zones {
        Zones { of: (0..workers as u32).collect(), named: 0, count: workers }
    }

    /// How many zones the candidates name.
    pub(super) fn named(&self) -> usize {
        self.named
    }

    /// A worker's zone; from [`Zones::named`] on it is the worker by itself.
    pub(super) fn of(&self, worker: usize) -> usize {
        self.of[worker] as usize
    }

    /// All of them.
    pub(super) fn numbers(&self) -> &[u32] {
        &self.of
    }

    /// Chooses the extras. `order` has the workers with a fraction, with what ranks them, the worker last; `fraction`
    /// are the numerators over `total`.
    pub(super) fn extras<R: Ord + Copy>(
        &self,
        order: Vec<(u8, R, usize)>,
        fraction: &[u64],
        total: u64,
    ) -> (Vec<usize>, Vec<ZoneExtras>) {
        let mut sums = vec![0_u64; self.count];
        order.iter().for_each(|&(_, _, worker)| sums[self.of(worker)] += fraction[worker]);
        let zone_of_sum = |sum: &u64| {
            let least = (sum / total) as u32;
            ZoneExtras { least, most: least + u32::from(!sum.is_multiple_of(total)), given: 0, free: 0 }
        };
        let mut zones: Vec<ZoneExtras> = sums.iter().map(zone_of_sum).collect();
        let mut left = (sums.iter().sum::<u64>() / total) as usize;

        let mut order: Vec<_> = order.into_iter().map(|ranked| (self.of(ranked.2), ranked)).collect();
        order.sort_unstable();
        let (mut chosen, mut next) = (Vec::with_capacity(left), Vec::new());
        for in_zone in order.chunk_by(|a, b| a.0 == b.0) {
            let zone = &mut zones[in_zone[0].0];
            let least = zone.least as usize;
            chosen.extend(in_zone[..least].iter().map(|(_, (_, _, worker))| *worker));
            zone.given = zone.least;
            left -= least;
            if zone.can_borrow() {
                next.push(in_zone[least].1);
            }
        }
        if left < next.len() {
            next.select_nth_unstable(left);
            next.truncate(left);
        }
        for (_, _, worker) in next {
            zones[self.of(worker)].given += 1;
            chosen.push(worker);
        }
        (chosen, zones)
    }
}
