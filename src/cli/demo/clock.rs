//! One clock for all processes of the demo, for measuring: the machine's monotonic clock.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock; the same in every process.
pub(super) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
