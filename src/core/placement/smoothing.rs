//! From measured loads to loads that a plan can rest on.
//!
//! What a worker measures of a partition is never twice the same, and a plan that followed every measurement would move
//! partitions for nothing. So a measurement counts for an eighth of a running average, and the load that plans see
//! changes only when that average has gone away from it by more than a third. Noise of 10 % around a steady load stays
//! within that whatever it does: both the average and the load are within 10 % of it then, so they are less than a
//! third apart. A load that doubles is seen after four measurements.
//!
//! All of it is done in integers, so that it is the same everywhere.

use super::view::MAX_LOAD;
use crate::mutant;

/// A measurement's part in the average: one in so many.
const MEMORY: i64 = 8;
/// The average has so many bits after the point, or it would stand still a little below what is measured.
const FRACTION_BITS: u32 = 16;
/// Loads differ by this much, whatever they are, before that counts as a change.
const LEAST_CHANGE: u64 = 2;

/// The load of one partition, as measured again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SmoothedLoad {
    average: i64,
    load: u32,
}

impl SmoothedLoad {
    /// A partition that was measured once. The unit is the caller's own, the same for all partitions of a keyspace, and
    /// best such that a usual load has two digits or more; what is above [`MAX_LOAD`] counts as that.
    pub fn new(measured: u64) -> SmoothedLoad {
        let average = fixed(measured);
        SmoothedLoad { average, load: quantised(average) }
    }

    /// The same after another measurement.
    #[must_use]
    pub fn with(self, measured: u64) -> SmoothedLoad {
        if mutant!("loads-not-smoothed") {
            return SmoothedLoad::new(measured);
        }
        let average = self.average + (fixed(measured) - self.average) / MEMORY;
        let apart = average.abs_diff(i64::from(self.load) << FRACTION_BITS);
        let load = u64::from(self.load);
        // Compared in thirds, so that no division rounds.
        let changed = apart * 3 > load.max(3 * LEAST_CHANGE) << FRACTION_BITS;
        SmoothedLoad { average, load: if changed { quantised(average) } else { self.load } }
    }

    /// The load for [`View::with_loads`](super::View::with_loads): 1 to [`MAX_LOAD`].
    pub fn load(self) -> u32 {
        self.load
    }
}

fn fixed(measured: u64) -> i64 {
    (measured.min(MAX_LOAD.into()) << FRACTION_BITS) as i64
}

fn quantised(average: i64) -> u32 {
    about(((average + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS).max(1) as u64)
}

/// Rounded to six leading bits, which is within 2 %: loads that are about equal are equal, and move no partition. From 1
/// to [`MAX_LOAD`].
pub(crate) fn about(load: u64) -> u32 {
    let whole = load.clamp(1, MAX_LOAD.into()) as u32;
    let dropped = (u32::BITS - whole.leading_zeros()).saturating_sub(6);
    let half = (1_u32 << dropped) >> 1;
    ((whole + half) >> dropped << dropped).clamp(1, MAX_LOAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_load_that_doubles_is_seen_after_four_measurements_and_then_stays() {
        let mut load = SmoothedLoad::new(1_000);
        let seen: Vec<u32> = (0..60)
            .map(|_| {
                load = load.with(2_000);
                load.load()
            })
            .collect();
        assert_eq!(seen[..3], [1_008; 3]);
        assert!(seen[3] > 1_300, "{seen:?}");
        let mut changes = seen.clone();
        changes.dedup();
        assert!(changes.len() <= 3 && (1_600..=2_400).contains(&seen[59]), "{changes:?}");
    }

    #[test]
    fn the_average_reaches_what_is_measured_again_and_again() {
        for (from, to) in [(0, 1_000_000), (1_000_000, 0), (50, 51)] {
            let mut load = SmoothedLoad::new(from);
            (0..400).for_each(|_| load = load.with(to));
            let away = load.average.abs_diff(fixed(to));
            assert!(away <= MEMORY as u64, "{from} to {to}: {away}");
        }
    }

    #[test]
    fn a_load_is_between_1_and_the_largest() {
        assert_eq!(SmoothedLoad::new(0).load(), 1);
        assert_eq!(SmoothedLoad::new(u64::MAX).load(), 999_424, "the largest with six leading bits");
        let ends = [0, u64::MAX].map(|measured| SmoothedLoad::new(measured).with(u64::MAX - measured).load());
        assert!(ends.iter().all(|load| (1..=MAX_LOAD).contains(load)), "{ends:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn noise_of_a_tenth_changes_no_load(
            steady in 0..=1_100_000_u64,
            noise in prop::collection::vec(-100..=100_i64, 1..200),
        ) {
            let measured = |noise: i64| (steady as i64 * (1_000 + noise) / 1_000) as u64;
            let mut load = SmoothedLoad::new(measured(noise[0]));
            let first = load.load();
            for noise in noise {
                load = load.with(measured(noise));
                prop_assert_eq!(load.load(), first);
            }
        }

        #[test]
        fn about_equal_loads_are_equal_within_two_in_a_hundred(measured in 1..=1_000_000_u64) {
            let load = u64::from(SmoothedLoad::new(measured).load());
            prop_assert!(load.abs_diff(measured) * 50 <= measured, "{measured} became {load}");
        }
    }
}
