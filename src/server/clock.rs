//! The coordinator's clock.

use ringfence_core::time::Instant;

/// A monotonic clock. Wall clocks play no part in what a coordinator decides.
pub trait Clock: Send + Sync + 'static {
    /// The time since a fixed moment of this process.
    fn now(&self) -> Instant;

    /// Milliseconds since the Unix epoch, for display only.
    fn unix_ms(&self) -> u64;
}

/// tokio's clock: the system's monotonic one, and the virtual one under a paused or simulated runtime.
pub struct TokioClock {
    zero: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that begins now.
    pub fn new() -> TokioClock {
        TokioClock { zero: tokio::time::Instant::now() }
    }
}

/// [`TokioClock::new`].
impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn unix_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}
