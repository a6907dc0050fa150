//! The clock that leases are read on.
//!
//! It runs while the machine sleeps: a laptop that was closed, or a virtual machine that was suspended, finds its
//! lease over at its first look. (`std::time::Instant` and tokio's timers stand still meanwhile, so they only decide
//! when to look, never what is true.) No clock helps while a *hypervisor* stops a guest without telling it; only the
//! fence does.
//!
//! Its rule: everything that compares with a lease's end reads this clock, on the caller's own path.

use ringfence_core::time::Instant;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
const SUSPEND_AWARE: ClockId = ClockId::Boottime;
/// On macOS this clock goes on during sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SUSPEND_AWARE: ClockId = ClockId::Monotonic;

/// Which clock is read. An enum rather than a trait: the read is all that a stamp costs, and a branch is cheaper than a
/// call through a table.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Machine,
    /// One that stands still until it is moved: the test kit's.
    Manual(Arc<AtomicU64>),
    /// That of a runtime whose time is simulated.
    Simulated(Simulated),
    /// The machine's, moved on by what a test says.
    #[cfg(test)]
    Shifted(Arc<AtomicU64>),
}

impl Clock {
    /// Now.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::Machine => machine(),
            Clock::Manual(nanos) => Instant::from_nanos(nanos.load(Ordering::Acquire)),
            Clock::Simulated(clock) => clock.now(),
            #[cfg(test)]
            Clock::Shifted(by) => machine() + Duration::from_nanos(by.load(Ordering::Acquire)),
        }
    }

    /// Moves it on. The machine's clock cannot be moved; that call does nothing.
    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Clock::Machine => {}
            Clock::Manual(nanos) => add(nanos, by),
            Clock::Simulated(clock) => add(&clock.slept, by),
            #[cfg(test)]
            Clock::Shifted(nanos) => add(nanos, by),
        }
    }
}

/// A clock that follows tokio's and runs on through what the machine slept.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    zero: tokio::time::Instant,
    slept: Arc<AtomicU64>,
}

impl Simulated {
    /// One that begins now, for the runtime of the caller.
    pub(crate) fn new(slept: Arc<AtomicU64>) -> Simulated {
        Simulated { zero: tokio::time::Instant::now(), slept }
    }

    fn now(&self) -> Instant {
        let ran = Instant::from_nanos(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX));
        ran + Duration::from_nanos(self.slept.load(Ordering::Acquire))
    }
}

#[inline]
fn machine() -> Instant {
    let time = clock_gettime(SUSPEND_AWARE);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Saturating: a clock that wrapped would bring an old lease back.
pub(crate) fn add(nanos: &AtomicU64, by: u64) {
    let mut now = nanos.load(Ordering::Acquire);
    while let Err(other) =
        nanos.compare_exchange(now, now.saturating_add(by), Ordering::AcqRel, Ordering::Acquire)
    {
        now = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f036_t27_the_machines_clock_is_the_one_that_counts_suspend() {
        let boottime = || {
            let boot = clock_gettime(ClockId::Boottime);
            Duration::new(boot.tv_sec as u64, boot.tv_nsec as u32)
        };
        let (before, ours, after) = (boottime(), Clock::Machine.now(), boottime());
        assert!((before..=after).contains(&ours.since(Instant::from_nanos(0))));
    }

    #[test]
    fn a_manual_clock_stands_still_and_never_wraps() {
        let clock = Clock::Manual(Arc::new(AtomicU64::new(5)));
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Instant::from_nanos(u64::MAX));
        Clock::Machine.advance(Duration::from_secs(3_600));
        assert!(Clock::Machine.now() < Instant::from_nanos(u64::MAX));
    }
}
