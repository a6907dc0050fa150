//! A worker whose time is simulated.

use crate::clock::{Clock, Simulated, add};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The machine of a worker that runs in a simulation: the whole worker, the task that renews included, lives on the runtime
/// it joins on, and its clock is that runtime's.
///
/// With a tokio runtime that is single-threaded and paused, what a worker does is decided by the order of events alone.
/// Never for production: there the renewals have a thread of their own, which a busy executor does not hold up.
///
/// ```no_run
/// # async fn example() -> Result<(), ringfence::Error> {
/// use ringfence::testkit::SimulatedMachine;
/// use ringfence::{NotOwner, Ownership, Worker};
///
/// let machine = SimulatedMachine::new();
/// let worker = Worker::builder("w1").coordinator("http://127.0.0.1:7600").simulated(&machine);
/// let _worker = worker.own("orders", async |partition: Ownership| partition.ready().await).join().await?;
/// // The machine was suspended: timers stood still, and the lease did not.
/// machine.slept(std::time::Duration::from_secs(60));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SimulatedMachine {
    slept: Arc<AtomicU64>,
}

impl SimulatedMachine {
    /// A machine that has not slept yet.
    pub fn new() -> SimulatedMachine {
        SimulatedMachine::default()
    }

    /// The machine was suspended for this long: its timers stood still meanwhile, and the clock of leases ran on.
    pub fn slept(&self, by: Duration) {
        add(&self.slept, u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The clock of a worker that begins now, on the caller's runtime.
    pub(crate) fn clock(&self) -> Clock {
        Clock::Simulated(Simulated::new(Arc::clone(&self.slept)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn its_clock_follows_the_runtimes_and_runs_on_through_sleep() {
        let machine = SimulatedMachine::new();
        let clock = machine.clock();
        let zero = clock.now();
        tokio::time::advance(Duration::from_secs(2)).await;
        machine.slept(Duration::from_secs(60));
        assert_eq!(clock.now().since(zero), Duration::from_secs(62));
        machine.slept(Duration::MAX);
        assert!(clock.now() >= zero);
    }
}
