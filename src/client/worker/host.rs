//! Whether this process deserves to be renewed for.
//!
//! Renewals run on a thread of their own, so they would go on while the application is wedged: a lease that outlives
//! the work it protects. So a probe runs on the application's runtime, and when it has not been run for half a TTL,
//! or the application's own health check says no, renewals stop and the partitions go to others.

use super::builder::Health;
use crate::clock::Clock;
use futures_util::FutureExt;
use ringfence_core::mutant;
use ringfence_core::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The application's runtime, seen from the thread that renews.
pub(super) struct Host {
    pub(super) runtime: Handle,
    clock: Clock,
    health: Option<Health>,
    probe: Option<JoinHandle<()>>,
    /// When the probe last ran, in nanoseconds of the clock.
    seen: Arc<AtomicU64>,
    ran: Arc<Notify>,
    /// The runtime was shut down.
    gone: bool,
    /// The last verdict, so that a change is logged once.
    fit: bool,
}

impl Host {
    pub(super) fn new(runtime: Handle, clock: Clock, health: Option<Health>) -> Host {
        let seen = Arc::new(AtomicU64::new(clock.now().as_nanos()));
        Host { runtime, clock, health, probe: None, seen, ran: Arc::default(), gone: false, fit: true }
    }

    /// Sends a probe when the last one came back and is older than `every`.
    pub(super) fn probe(&mut self, now: Instant, every: Duration) {
        if let Some(probe) = self.probe.take_if(|probe| probe.is_finished()) {
            // A probe does not panic; it is cancelled when its runtime is shut down.
            self.gone |= probe.now_or_never().is_some_and(|ended| ended.is_err());
        }
        if self.gone || self.probe.is_some() || now.since(self.last_seen()) < every {
            return;
        }
        let (clock, seen, ran) = (self.clock.clone(), Arc::clone(&self.seen), Arc::clone(&self.ran));
        self.probe = Some(self.runtime.spawn(async move {
            seen.store(clock.now().as_nanos(), Ordering::Release);
            ran.notify_one();
        }));
    }

    /// Waits until a probe has run. Cancel safe.
    pub(super) async fn ran(&self) {
        self.ran.notified().await;
    }

    /// The runtime was shut down, and every task on it with it.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// A task was cancelled that nobody here cancelled.
    pub(super) fn has_gone(&mut self) {
        self.gone = true;
    }

    /// Whether to renew. Says so in the log when it changes.
    pub(super) fn is_fit(&mut self, now: Instant, ttl: Duration) -> bool {
        let silent = now.since(self.last_seen());
        let why = if self.gone {
            Some("the runtime was shut down")
        } else if silent > ttl / 2 && !mutant!("wedged-worker-renews") {
            Some("the runtime has not run the SDK's probe for half a ttl: something blocks its threads")
        } else if !self.is_healthy() && !mutant!("ill-worker-renews") {
            Some("the application's health check says no")
        } else {
            None
        };
        let fit = why.is_none();
        if fit != self.fit {
            self.fit = fit;
            match why {
                Some(why) => {
                    tracing::error!(why, ?silent, "renewals stop; the partitions will go to other workers");
                }
                None => tracing::info!("renewals go on"),
            }
        }
        fit
    }

    fn last_seen(&self) -> Instant {
        Instant::from_nanos(self.seen.load(Ordering::Acquire))
    }

    /// A health check that panics is no sign of health.
    fn is_healthy(&self) -> bool {
        let Some(health) = &self.health else { return true };
        catch_unwind(AssertUnwindSafe(|| health())).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn clock() -> Clock {
        Clock::Manual(Arc::new(AtomicU64::new(1)))
    }

    #[tokio::test]
    async fn f058_a_runtime_that_does_not_run_the_probe_is_not_renewed_for() {
        let clock = clock();
        let mut host = Host::new(Handle::current(), clock.clone(), None);
        clock.advance(TTL / 2);
        assert!(host.is_fit(clock.now(), TTL));
        clock.advance(Duration::from_nanos(1));
        // Sent, and this thread, the only one of the runtime, does not run it.
        host.probe(clock.now(), TTL / 12);
        assert!(!host.is_fit(clock.now(), TTL));
        host.ran().await;
        assert!(host.is_fit(clock.now(), TTL));
    }

    #[tokio::test]
    async fn t36_the_applications_own_check_counts_and_a_panic_in_it_is_a_no() {
        let mut ill = Host::new(Handle::current(), clock(), Some(Arc::new(|| false)));
        assert!(!ill.is_fit(Instant::from_nanos(1), TTL));
        let mut broken =
            Host::new(Handle::current(), clock(), Some(Arc::new(|| panic!("the check itself broke"))));
        assert!(!broken.is_fit(Instant::from_nanos(1), TTL));
    }

    #[test]
    fn a_runtime_that_was_shut_down_is_noticed() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let mut host = Host::new(runtime.handle().clone(), clock(), None);
        drop(runtime);
        for _ in 0..1_000 {
            host.probe(Instant::from_nanos(u64::MAX), Duration::ZERO);
            if host.is_gone() {
                break;
            }
            std::thread::yield_now();
        }
        assert!(host.is_gone() && !host.is_fit(Instant::from_nanos(1), TTL));
    }
}
