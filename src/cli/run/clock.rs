//! The clock that deadlines of children are told in: that of leases, which runs on through a suspend.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// On macOS this clock goes on during sleep.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Since the boot. All processes of a machine read the same.
pub(super) fn now() -> Duration {
    let time = clock_gettime(CLOCK);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
