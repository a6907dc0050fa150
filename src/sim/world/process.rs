//! A process: a runtime with a clock of its own, which the world lets run a little at a time.
//!
//! Its tasks share one thread and one paused clock, so what it does between two ticks is decided by the events alone. A pause
//! is a time in which it is not let run; at its end its clock is where it should be, and every timer that fell due fires at
//! once. A crash drops the runtime: every task is gone at the `await` where it stood.

use super::net::Ms;
use std::time::Duration;
use tokio::runtime::{Builder, RngSeed, Runtime};
use tokio::time::{advance, sleep};

/// A process that did not run for longer than this was held up.
const ON_TIME_MS: u64 = 8;

/// The clock of a machine, against true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Faster than true time by so many millionths.
    pub ppm: i64,
}

/// A process that runs.
pub struct Process {
    runtime: Runtime,
    born: Ms,
    /// How far its own clock has come, in milliseconds.
    own: u64,
    rate: Rate,
    /// Time in which the machine was suspended: its timers stood still.
    suspended: u64,
}

impl Process {
    /// A process that begins now.
    ///
    /// # Errors
    /// When the system does not give it a runtime.
    pub fn new(born: Ms, rate: Rate, seed: u64) -> std::io::Result<Process> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
            .build()?;
        Ok(Process { runtime, born, own: 0, rate, suspended: 0 })
    }

    /// The runtime, to spawn on or to read its clock in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Lets it run until `now`.
    pub fn run_until(&mut self, now: Ms) {
        let true_time = (now - self.born).saturating_sub(self.suspended);
        let faster = i128::from(true_time) * i128::from(self.rate.ppm) / 1_000_000;
        let own = u64::try_from(i128::from(true_time) + faster).unwrap_or(0);
        let step = own.saturating_sub(self.own);
        self.own = self.own.max(own);
        self.runtime.block_on(async {
            if step <= ON_TIME_MS {
                sleep(Duration::from_millis(step)).await;
            } else {
                // It did not run for a while: what fell due meanwhile is due now.
                advance(Duration::from_millis(step)).await;
            }
        });
    }

    /// The machine was suspended for so long.
    pub fn suspended(&mut self, for_ms: u64) {
        self.suspended += for_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn clock(process: &Process) -> Instant {
        let _guard = process.runtime().enter();
        Instant::now()
    }

    #[test]
    fn its_clock_runs_at_its_rate_and_stands_still_while_it_is_suspended() {
        let mut process = Process::new(10, Rate { ppm: 10_000 }, 1).unwrap();
        let zero = clock(&process);
        let own = |process: &Process| (clock(process) - zero).as_millis();
        process.run_until(1_010);
        assert_eq!(own(&process), 1_010);
        process.suspended(500);
        process.run_until(1_510);
        assert_eq!(own(&process), 1_010);
        process.run_until(1_610);
        assert_eq!(own(&process), 1_111);
    }
}
