//! Real processes of the `ringfence` binary: nodes, workers and commands. A state is awaited, with a deadline; whatever
//! was started dies with the test, and says its last words when the test fails.

mod cli;
mod file;
mod nodes;
mod process;
mod workers;

pub(crate) use cli::{Ran, run, run_into, run_with};
pub(crate) use file::{Audit, SharedFile};
pub(crate) use nodes::{Cluster, Owners, free_address, owners};
pub(crate) use process::{Process, set_environment};
pub(crate) use workers::{Fleet, KEYSPACE, Write};

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No state takes longer to reach, on a busy machine either.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Asks again until there is an answer. Fails, and says what was not reached, when that takes too long.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not reached within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clusters that run at once: what they time is theirs only while the machine keeps up.
const AT_ONCE: usize = 2;
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run a cluster.
pub(crate) struct Slot;

impl Slot {
    pub(crate) fn take() -> Slot {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        while *running == AT_ONCE {
            running = ENDED.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        Slot
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
