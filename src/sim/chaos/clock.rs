//! One clock for all processes of a run, for measuring: the machine's monotonic clock. No wall clock that jumps moves it.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of the machine's monotonic clock; the same in every process.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}
