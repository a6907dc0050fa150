//! How many partitions each worker should hold.
//!
//! A worker's *share* is the number of partitions times its weight over the sum of the weights. It should hold the
//! share's whole part, or one more when the share has a fraction; how many get one more is settled by arithmetic, and
//! who gets it is the only choice there is. Whoever holds one more already comes first: each such choice saves exactly
//! one move, and nothing else does, so the sum of what workers hold above their targets is the least possible. The rest
//! is drawn by lot.
//!
//! With zones the same holds of each zone: it gets its share, the sum of its workers' shares, rounded down or up. That
//! binds only who has the extras, see [`Zones`](super::zones::Zones).
//!
//! A bounded load as in consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016) bounds the maximum
//! alone: a worker that joins may then get nothing, for nobody is above the bound. A target binds on both sides.

use super::candidate::{Candidate, WorkerIx};
use super::hash::sip;
use super::zones::{ZoneExtras, Zones};
use crate::mutant;

/// What a worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// All partitions that count at the worker.
    pub(super) total: u32,
    /// Those among them that cannot be taken away now.
    pub(super) fixed: u32,
}

/// The workers' shares of a pool of partitions, in whole parts and fractions.
pub(super) struct Shares {
    whole: Vec<u32>,
    /// The numerator of the share's fraction; `total` is its denominator.
    fraction: Vec<u64>,
    /// The sum of the weights.
    total: u64,
}

impl Shares {
    /// The shares of the workers that `takes_part` names; nobody else has any.
    pub(super) fn new(workers: &[Candidate], takes_part: &[bool], pool: u32) -> Shares {
        let weights = || {
            workers.iter().zip(takes_part).map(|(w, part)| if *part { u64::from(w.weight.get()) } else { 0 })
        };
        // One at the least, for the sum over nobody: there everybody's share is zero whatever it is divided by.
        let total = weights().sum::<u64>().max(1);
        // A million partitions times a weight of ten thousand is far below 2^64, and no whole part exceeds the pool.
        let whole: Vec<u32> = weights().map(|weight| (u64::from(pool) * weight / total) as u32).collect();
        let fraction: Vec<u64> = weights().map(|weight| u64::from(pool) * weight % total).collect();
        Shares { whole, fraction, total }
    }

    /// The whole part of a worker's share.
    pub(super) fn whole(&self, worker: usize) -> u32 {
        self.whole[worker]
    }

    /// A worker's share rounded up.
    pub(super) fn rounded_up(&self, worker: usize) -> u32 {
        self.whole[worker] + u32::from(self.fraction[worker] > 0)
    }

    /// The whole part of each named zone's share.
    pub(super) fn whole_of_zones(&self, zones: &Zones) -> Vec<i128> {
        let mut sums = vec![(0_i128, 0_u64); zones.named()];
        for worker in 0..self.whole.len() {
            if let Some((whole, fraction)) = sums.get_mut(zones.of(worker)) {
                *whole += i128::from(self.whole[worker]);
                *fraction += self.fraction[worker];
            }
        }
        sums.into_iter().map(|(whole, fraction)| whole + i128::from(fraction / self.total)).collect()
    }

    /// The order of a worker's lot among the others; the smallest are drawn.
    ///
    /// It is the odds of the lot over the odds of the fraction (Pareto sampling, Rosén 1997). The chance to be drawn
    /// is then the fraction, nearly, so over many keyspaces everybody holds close to its share.
    fn draw(&self, worker: usize, lot: u32) -> u128 {
        let fraction = self.fraction[worker];
        let (lot, not_lot) = (u128::from(lot), u128::from((1_u64 << 32) - u64::from(lot)));
        // The sum of the weights is below 2^30 and the lot below 2^32, so 64 bits are left for precision.
        ((lot * u128::from(self.total - fraction)) << 64) / (not_lot * u128::from(fraction))
    }

    /// Who holds one more than the whole part: the workers that cannot give it up, then those that would have to, then
    /// by lot; as far as the zones allow.
    fn extras(&self, zones: &Zones, loads: &[Load], lots: &[u32]) -> (Vec<usize>, Vec<ZoneExtras>) {
        let rank = |worker: usize| match loads[worker] {
            load if load.fixed > self.whole[worker] => 0,
            load if load.total > self.whole[worker] => 1,
            _ => 2_u8,
        };
        let with_fraction = (0..self.fraction.len()).filter(|worker| self.fraction[*worker] > 0);
        let order: Vec<_> =
            with_fraction.map(|worker| (rank(worker), self.draw(worker, lots[worker]), worker)).collect();
        zones.extras(order, &self.fraction, self.total)
    }
}

/// How many partitions each worker should hold, given what each holds.
pub(super) struct Quota {
    shares: Shares,
    targets: Vec<u32>,
    zones: Vec<ZoneExtras>,
    zone_of: Vec<u32>,
    /// How many zones have an extra that another zone could have at no cost.
    lenders: u32,
}

impl Quota {
    /// The quota that costs the fewest moves. `pool` is the number of partitions to share out among the workers that
    /// take part; `seed` makes keyspaces differ in whom the lot hits.
    pub(super) fn new(workers: &[Candidate], zones: &Zones, loads: &[Load], pool: u32, seed: u64) -> Quota {
        let mut lots: Vec<u32> = workers.iter().map(|candidate| lot(seed, candidate)).collect();
        if mutant!("ties-by-number") {
            lots.iter_mut().zip(1..).for_each(|(lot, number)| *lot = number);
        }
        let mut targets: Vec<u32> = loads.iter().map(|load| load.total).collect();
        let mut takes_part: Vec<bool> = workers.iter().map(|candidate| candidate.standing.takes()).collect();
        let mut pool = pool;
        loop {
            let shares = Shares::new(workers, &takes_part, pool);
            let part = || (0..workers.len()).filter(|worker| takes_part[*worker]);
            part().for_each(|worker| targets[worker] = shares.whole(worker));
            let (extras, mut by_zone) = shares.extras(zones, loads, &lots);
            extras.iter().for_each(|worker| targets[*worker] += 1);

            if part().all(|worker| loads[worker].fixed <= targets[worker]) {
                for worker in extras.into_iter().filter(|w| loads[*w].total <= shares.whole(*w)) {
                    by_zone[zones.of(worker)].free += 1;
                }
                let lenders = by_zone.iter().filter(|zone| zone.can_lend()).count() as u32;
                return Quota { shares, targets, zones: by_zone, zone_of: zones.numbers().to_vec(), lenders };
            }
            // Somebody cannot come down to the target. Whoever cannot come down to the whole part of its share holds
            // what it holds, and the others share the rest. Each round lowers the shares of those who remain, so few
            // rounds do; only pins, freezes and moves in flight make for a second one.
            let stuck: Vec<usize> =
                part().filter(|worker| loads[*worker].fixed > shares.whole(*worker)).collect();
            for worker in stuck {
                takes_part[worker] = false;
                targets[worker] = loads[worker].fixed;
                pool -= loads[worker].fixed;
            }
        }
    }

    /// How many partitions the worker should hold.
    pub(super) fn target(&self, worker: WorkerIx) -> u32 {
        self.targets[worker.get()]
    }

    /// Whether the worker could take one more without anybody having to move for it: it is below its whole part, or at
    /// it with an extra to be had, which is one of its zone, or one of another zone when its own may have one more.
    pub(super) fn could_take(&self, worker: WorkerIx, load: Load) -> bool {
        let (whole, fraction) = (self.shares.whole[worker.get()], self.shares.fraction[worker.get()]);
        let zone = &self.zones[self.zone_of[worker.get()] as usize];
        let extra = || zone.free > 0 || (zone.can_borrow() && self.lenders > 0);
        load.total < whole || (load.total == whole && fraction > 0 && extra())
    }

    /// The worker takes one more, which uses up an extra when it is above its whole part then.
    pub(super) fn take(&mut self, worker: WorkerIx, load: &mut Load) {
        if load.total == self.shares.whole[worker.get()] {
            let zone = self.zone_of[worker.get()] as usize;
            if self.zones[zone].free > 0 {
                self.use_up(zone, |zone| zone.free -= 1);
            } else if let Some(lender) = self.zones.iter().position(ZoneExtras::can_lend) {
                self.use_up(lender, |lender| {
                    lender.free -= 1;
                    lender.given -= 1;
                });
                self.zones[zone].given += 1;
            }
        }
        load.total += 1;
        load.fixed += 1;
    }

    fn use_up(&mut self, zone: usize, change: impl Fn(&mut ZoneExtras)) {
        self.lenders -= u32::from(self.zones[zone].can_lend());
        change(&mut self.zones[zone]);
        self.lenders += u32::from(self.zones[zone].can_lend());
    }
}

/// A worker's lot: a tag, the keyspace's seed and the hash of the worker's name in one buffer of fixed width, hashed;
/// the upper half of that.
fn lot(seed: u64, candidate: &Candidate) -> u32 {
    let mut buffer = [0_u8; 17];
    buffer[0] = b'x';
    buffer[1..9].copy_from_slice(&seed.to_le_bytes());
    buffer[9..].copy_from_slice(&sip(candidate.worker.as_str().as_bytes()).to_le_bytes());
    (sip(&buffer) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkerId;
    use crate::placement::Weight;

    fn workers(weights: &[u32]) -> Vec<Candidate> {
        let candidate = |(i, &weight): (usize, &u32)| {
            Candidate::new(WorkerId::new(&format!("w{i}")).unwrap(), Weight::new(weight).unwrap())
        };
        weights.iter().enumerate().map(candidate).collect()
    }

    fn loads(loads: &[(u32, u32)]) -> Vec<Load> {
        loads.iter().map(|&(total, fixed)| Load { total, fixed }).collect()
    }

    fn targets(weights: &[u32], held: &[(u32, u32)], pool: u32) -> Vec<u32> {
        let workers = workers(weights);
        Quota::new(&workers, &Zones::in_view(&workers), &loads(held), pool, 7).targets
    }

    #[test]
    fn the_extra_stays_with_those_who_hold_it() {
        assert_eq!(targets(&[1, 1, 1], &[(3, 0), (4, 0), (3, 0)], 10), [3, 4, 3]);
        assert_eq!(targets(&[1, 1, 1], &[(3, 0), (3, 0), (9, 0)], 15), [5, 5, 5]);
    }

    #[test]
    fn who_cannot_give_the_extra_up_comes_before_who_would_have_to() {
        assert_eq!(targets(&[1, 1, 1], &[(4, 0), (4, 4), (2, 0)], 10), [3, 4, 3]);
    }

    #[test]
    fn the_rest_is_shared_when_a_worker_is_stuck_above_its_share() {
        assert_eq!(targets(&[1, 1, 1], &[(9, 8), (0, 0), (0, 0)], 12), [8, 2, 2]);
        // The second round leaves the second worker stuck as well.
        assert_eq!(targets(&[1, 1, 1, 1], &[(9, 9), (4, 4), (2, 0), (1, 0)], 18), [9, 4, 3, 2]);
    }

    #[test]
    fn the_lot_follows_the_fraction_over_many_keyspaces() {
        // Shares 1.5, 1.25 and 1.25: one extra, due to the first in half of the keyspaces.
        let workers = workers(&[6, 5, 5]);
        let held = loads(&[(0, 0); 3]);
        let mut extras = [0_u32; 3];
        for keyspace in 0..4_000 {
            let seed = sip(&u32::to_le_bytes(keyspace));
            let quota = Quota::new(&workers, &Zones::in_view(&workers), &held, 4, seed);
            (0..3).for_each(|worker| extras[worker] += quota.targets[worker] - 1);
        }
        assert_eq!(extras.iter().sum::<u32>(), 4_000);
        assert!((1_850..2_150).contains(&extras[0]) && (850..1_150).contains(&extras[1]), "{extras:?}");
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let weights = [Weight::MAX; 3];
        assert_eq!(
            targets(&weights, &[(0, 0), (1_000_000, 1_000_000), (0, 0)], 1_000_000),
            [0, 1_000_000, 0]
        );
        assert_eq!(targets(&weights, &[(0, 0), (0, 0), (0, 0)], 999_999), [333_333; 3]);
    }
}
