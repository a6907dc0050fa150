//! The one drill that a worker takes part in, and whether it stalls the renewals.

use ringfence_core::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The drills of a worker: at most one runs.
#[derive(Default)]
pub(in crate::worker) struct Drilling {
    running: Option<Running>,
}

struct Running {
    id: Vec<u8>,
    task: JoinHandle<()>,
    stall: Arc<Stall>,
}

/// Until when no renewal is sent; whoever renews compares it with the clock, so that it ends whatever became of the
/// drill.
#[derive(Default)]
pub(in crate::worker) struct Stall(AtomicU64);

impl Stall {
    pub(super) fn until(&self, until: Instant) {
        self.0.store(until.as_nanos(), Ordering::Release);
    }

    pub(super) fn lift(&self) {
        self.0.store(0, Ordering::Release);
    }

    fn end(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Acquire))
    }
}

impl Drilling {
    /// The id of the drill that runs.
    pub(in crate::worker) fn id(&self) -> Option<&[u8]> {
        self.running.as_ref().filter(|running| !running.task.is_finished()).map(|running| &running.id[..])
    }

    /// A drill was begun: its task, and its hold on the renewals.
    pub(in crate::worker) fn began(&mut self, id: Vec<u8>, task: JoinHandle<()>, stall: Arc<Stall>) {
        self.running = Some(Running { id, task, stall });
    }

    /// Whether renewals are held back.
    pub(in crate::worker) fn stalls(&self, now: Instant) -> bool {
        let stalled = |running: &Running| !running.task.is_finished() && now < running.stall.end();
        self.running.as_ref().is_some_and(stalled)
    }

    /// Waits until nothing is held back any more.
    pub(in crate::worker) async fn stall_over(&mut self, now: Instant) {
        if !self.stalls(now) {
            return;
        }
        let Some(running) = &mut self.running else { return };
        let left = running.stall.end().since(now);
        tokio::select! {
            _ = &mut running.task => self.running = None,
            () = sleep(left) => {}
        }
    }

    /// Ends the drill. What it holds is dropped, unsent.
    pub(in crate::worker) fn cancel(&mut self) {
        if let Some(running) = self.running.take() {
            running.task.abort();
        }
    }
}

/// Nothing is drilled without a worker.
impl Drop for Drilling {
    fn drop(&mut self) {
        self.cancel();
    }
}
