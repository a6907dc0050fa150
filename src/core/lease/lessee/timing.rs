//! The arithmetic of a lease: what a TTL is worth to its holder.

use crate::mutant;
use crate::time::Instant;
use std::time::Duration;

/// By how much the rates of two clocks may differ, in percent. Quartz is within 0.02 %; a virtual machine that is being
/// migrated may be off by more for a while, and a whole percent costs a holder one percent of its lease.
pub const DRIFT_PERCENT: u32 = 1;
/// What a holder gives up at the end of its lease: the granularity of both clocks and of a timer.
pub const MARGIN: Duration = Duration::from_millis(20);
/// Under `takeover = fence`: how long a holder goes on after its connection was lost. The coordinator waits as long.
pub const CONNECTION_GRACE: Duration = Duration::from_millis(200);
/// How many renewals a holder sends in a TTL. A session is suspected after a third of its TTL, so one renewal may be
/// lost without a word in the log.
pub const RENEWALS_PER_TTL: u32 = 6;

/// The times of one lease, from its TTL. A session keeps its TTL for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    ttl: Duration,
}

/// A TTL that leaves no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a ttl of {}ms leaves a holder no time: three renewals, {DRIFT_PERCENT} % drift and a margin of {}ms must fit into \
     it, so it is at least {}ms",
    .0.as_millis(), MARGIN.as_millis(), Timing::MIN_TTL.as_millis()
)]
pub struct TtlTooShort(Duration);

impl Timing {
    /// The shortest TTL that a lessee accepts. Coordinators ask for a second; tests may go lower.
    pub const MIN_TTL: Duration = Duration::from_millis(100);

    /// The times of a lease with this TTL.
    ///
    /// # Errors
    /// [`TtlTooShort`] when it is below [`Timing::MIN_TTL`].
    pub fn new(ttl: Duration) -> Result<Timing, TtlTooShort> {
        if ttl < Timing::MIN_TTL { Err(TtlTooShort(ttl)) } else { Ok(Timing { ttl }) }
    }

    /// The TTL: what the coordinator waits on its own clock.
    pub fn ttl(self) -> Duration {
        self.ttl
    }

    /// How often to renew, at the longest.
    pub fn renew_every(self) -> Duration {
        self.ttl / RENEWALS_PER_TTL
    }

    /// The end of the lease that a renewal sent at `sent` is worth, by the holder's own clock.
    pub fn lease_from(self, sent: Instant) -> Instant {
        self.deadline(sent, self.ttl)
    }

    /// When a holder stops believing, by its own clock: `sent + span * (1 - drift) - margin`, where `span` is what the
    /// coordinator gave when it answered. Counted from the *sending* of the question, because the coordinator began to
    /// count after that; the moment of the answer's arrival says nothing.
    pub(super) fn deadline(self, sent: Instant, span: Duration) -> Instant {
        if mutant!("no-drift-margin") {
            return sent + span;
        }
        sent + (span - span * DRIFT_PERCENT / 100).saturating_sub(MARGIN)
    }

    /// When to renew after a renewal at `now`: between 7/8 of the interval and the whole of it, so that ten thousand
    /// holders that met one restarted coordinator at one moment drift apart.
    pub(super) fn next_renewal(self, now: Instant, random: u32) -> Instant {
        let every = self.renew_every();
        let spread = every / 8;
        // A fraction of the spread, by the highest bits of the product.
        let part = (spread.as_nanos() * u128::from(random)) >> 32;
        now + (every - spread) + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f032_t25_a_holder_whose_clock_runs_one_percent_slow_still_stops_before_the_coordinator_grants() {
        for ttl_ms in [100, 1_000, 10_000, 600_000] {
            let ttl = Duration::from_millis(ttl_ms);
            let deadline = Timing::new(ttl).unwrap().deadline(Instant::from_nanos(0), ttl);
            let held_for = deadline.since(Instant::from_nanos(0)).as_nanos();
            // A clock that shows 100 for every 101 that pass.
            assert!(held_for * 101 / 100 < ttl.as_nanos(), "{ttl:?}");
        }
    }

    #[test]
    fn t25_b02_two_renewals_and_an_answer_fit_into_the_lease() {
        for ttl_ms in [1_000, 10_000, 600_000] {
            let timing = Timing::new(Duration::from_millis(ttl_ms)).unwrap();
            let lease = timing.deadline(Instant::from_nanos(0), timing.ttl()).since(Instant::from_nanos(0));
            assert!(timing.renew_every() * 2 + timing.ttl() / 4 < lease);
        }
        assert!(Timing::new(Duration::from_millis(99)).is_err());
    }

    /// What 300 holders that met a restarted coordinator in one moment ask of it: the most renewals within 100 ms, in
    /// their fourth TTL.
    fn busiest(mut random: impl FnMut() -> u32) -> usize {
        let timing = Timing::new(Duration::from_secs(6)).unwrap();
        let mut per_100_ms = [0; 60];
        for _ in 0..300 {
            let mut now = Instant::from_nanos(0);
            while now < Instant::from_nanos(24_000_000_000) {
                if let Some(since) = now.since(Instant::from_nanos(0)).checked_sub(Duration::from_secs(18)) {
                    per_100_ms[since.as_millis() as usize / 100] += 1;
                }
                now = timing.next_renewal(now, random());
            }
        }
        per_100_ms.into_iter().max().unwrap()
    }

    #[test]
    fn f070_holders_that_began_in_one_moment_do_not_stay_in_step() {
        // The high half of a linear congruential generator: fixed, and spread well enough.
        let mut state = 7u64;
        let lot = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        // Evenly spread there would be about 32.
        assert!(busiest(lot) <= 5 * 32, "in step");
        assert_eq!(busiest(|| 1 << 31), 300, "control: they stay in step without the lot");
    }

    #[test]
    fn f070_renewals_are_spread_and_never_later_than_a_sixth_of_the_ttl() {
        let timing = Timing::new(Duration::from_secs(6)).unwrap();
        let after =
            |random| timing.next_renewal(Instant::from_nanos(0), random).since(Instant::from_nanos(0));
        assert_eq!(after(0), Duration::from_millis(875));
        assert!(after(u32::MAX) <= Duration::from_secs(1) && after(u32::MAX) > Duration::from_millis(999));
    }
}
