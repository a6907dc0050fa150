//! Time as an argument.
//!
//! The core never asks what time it is. Whoever calls it reads one clock, names the reading an [`Instant`], and passes
//! it in. Which clock that is, is the caller's business: the coordinator passes its monotonic clock, a worker a clock
//! that runs on during suspend, the simulator a virtual one. Wall clocks play no part.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of one clock of one process: the time since an arbitrary, fixed moment. Readings of different clocks say
/// nothing about each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The reading this many nanoseconds after the clock's own zero.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's own zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is before.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturating: a reading past the end of the clock stays at its end.
impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, by: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Saturating: a reading before the clock's zero stays at zero.
impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, by: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
