//! The machines of a simulated world: network, disks, and processes with clocks of their own.
//!
//! Nothing here knows the product. Its rule: whatever happens is decided by the seed and by the order of events, so there is
//! no thread, no real clock and no hash order in it. Why not a library: those that simulate hosts under tokio cannot pause
//! a process, run its clock at another rate, or hold back what was sent over a way that is closed, and pauses are what this
//! project is about.

pub mod disk;
pub mod net;
pub mod process;
pub mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use disk::{Copied, Disk};
pub use net::{Host, Ms, Net, Weather};
pub use process::{Process, Rate};

/// True time, which no actor can read. A clone is the same.
#[derive(Clone, Default)]
pub struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    /// Now.
    pub fn now(&self) -> Ms {
        self.0.load(Ordering::Relaxed)
    }

    /// Now, in microseconds.
    pub fn us(&self) -> u64 {
        self.now() * 1_000
    }

    /// Moves it on.
    pub fn set(&self, now: Ms) {
        self.0.store(now, Ordering::Relaxed);
    }
}
