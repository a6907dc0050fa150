//! A session's lease, as every thread of the process sees it.
//!
//! The lessee decides and publishes here; callers compare. What is published only grows, until it is over.

use crate::clock::Clock;
use crate::fork::Birth;
use ringfence_core::mutant;
use ringfence_core::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lease is over, for good. Every moment is past it.
const OVER: u64 = 0;
/// No renewal was acknowledged yet. Every moment is past it, too.
const NOT_YET: u64 = 1;
/// The connection is there: no grace runs.
const NO_GRACE: u64 = u64::MAX;

/// One session's lease. Shared by the ownerships of the session.
#[derive(Debug)]
pub(crate) struct SessionLease {
    pub(crate) clock: Clock,
    birth: Birth,
    /// Nanoseconds of `clock`.
    until: AtomicU64,
    /// Nanoseconds of `clock`: where keyspaces that are taken over by fence stop believing.
    grace_until: AtomicU64,
}

/// What a look at the lease found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Valid,
    Over,
    Disconnected,
    Forked,
}

impl SessionLease {
    /// A session without a lease.
    pub(crate) fn new(clock: Clock) -> SessionLease {
        SessionLease {
            clock,
            birth: Birth::here(),
            until: AtomicU64::new(NOT_YET),
            grace_until: AtomicU64::new(NO_GRACE),
        }
    }

    /// True when the lease holds at `now`. The reading must have been taken before this call: what is loaded then is
    /// as old as `now` or younger, and what is younger only holds longer.
    #[inline]
    pub(super) fn holds(&self, now: Instant, by_fence: bool) -> bool {
        let now = if mutant!("flag-instead-of-clock") { NOT_YET } else { now.as_nanos() };
        now < self.until.load(Ordering::Acquire)
            && (!by_fence || now < self.grace_until.load(Ordering::Acquire))
            && (!self.birth.is_elsewhere() || mutant!("forked-child-owns"))
    }

    /// The same with a reason. Whoever finds the lease at its end makes that final: an acknowledgement that is being
    /// published in this instant does not bring it back after somebody was told no.
    pub(super) fn look(&self, now: Instant, by_fence: bool) -> Look {
        if self.birth.is_elsewhere() {
            return Look::Forked;
        }
        let mut until = self.until.load(Ordering::Acquire);
        while until != OVER && now.as_nanos() >= until {
            if until == NOT_YET {
                return Look::Over;
            }
            match self.until.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => until = OVER,
                Err(other) => until = other,
            }
        }
        if until == OVER {
            Look::Over
        } else if by_fence && now.as_nanos() >= self.grace_until.load(Ordering::Acquire) {
            Look::Disconnected
        } else {
            Look::Valid
        }
    }

    /// Publishes the end of the lease, and of the grace while the connection is gone.
    ///
    /// # Errors
    /// The lease is over: a caller found it at its end. It stays so.
    pub(crate) fn publish(
        &self,
        until: Option<Instant>,
        grace_until: Option<Instant>,
    ) -> Result<(), LeaseOver> {
        // The grace first, or a lease that was made longer would show for an instant without it.
        self.grace_until.store(grace_until.map_or(NO_GRACE, Instant::as_nanos), Ordering::Release);
        let Some(until) = until.map(Instant::as_nanos) else { return Ok(()) };
        let mut now = self.until.load(Ordering::Acquire);
        loop {
            if now == OVER && !mutant!("refusal-taken-back") {
                return Err(LeaseOver);
            }
            if now >= until {
                return Ok(());
            }
            match self.until.compare_exchange(now, until, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        self.until.store(OVER, Ordering::Release);
    }

    /// This is a child of the process that joined.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.birth.is_elsewhere()
    }

    /// The end of the lease as published; `None` when it is over, or has not begun.
    pub(crate) fn until(&self) -> Option<Instant> {
        Some(self.until.load(Ordering::Acquire)).filter(|nanos| *nanos > NOT_YET).map(Instant::from_nanos)
    }
}

/// The lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseOver;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn lease() -> SessionLease {
        SessionLease::new(Clock::Manual(Arc::new(AtomicU64::new(100))))
    }

    #[test]
    fn nothing_holds_before_the_first_acknowledgement_and_that_is_not_the_end() {
        let lease = lease();
        assert!(!lease.holds(at(100), false));
        assert_eq!(lease.look(at(100), false), Look::Over);
        lease.publish(Some(at(200)), None).unwrap();
        assert!(lease.holds(at(199), false) && !lease.holds(at(200), false));
    }

    #[test]
    fn a_refusal_is_final_even_against_an_acknowledgement_published_just_then() {
        let lease = lease();
        lease.publish(Some(at(200)), None).unwrap();
        assert_eq!(lease.look(at(199), false), Look::Valid);
        assert_eq!(lease.look(at(200), false), Look::Over);
        assert_eq!(lease.publish(Some(at(300)), None), Err(LeaseOver));
        assert!(!lease.holds(at(150), false));
    }

    #[test]
    fn what_is_published_only_grows() {
        let lease = lease();
        lease.publish(Some(at(300)), None).unwrap();
        lease.publish(Some(at(200)), None).unwrap();
        lease.publish(None, None).unwrap();
        assert_eq!(lease.until(), Some(at(300)));
    }

    #[test]
    fn the_grace_counts_only_where_a_keyspace_is_taken_over_by_fence_and_passes() {
        let lease = lease();
        lease.publish(Some(at(900)), Some(at(300))).unwrap();
        assert_eq!(lease.look(at(400), false), Look::Valid);
        assert_eq!(lease.look(at(400), true), Look::Disconnected);
        assert!(!lease.holds(at(400), true) && lease.holds(at(299), true));
        lease.publish(Some(at(900)), None).unwrap();
        assert!(lease.holds(at(400), true));
    }

    #[test]
    fn f016_a_jump_of_the_clock_is_seen_by_the_very_next_look() {
        let lease = lease();
        lease.publish(Some(at(1_000)), None).unwrap();
        assert!(lease.holds(lease.clock.now(), false));
        lease.clock.advance(Duration::from_nanos(900));
        assert!(!lease.holds(lease.clock.now(), false));
    }
}
