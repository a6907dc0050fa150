//! Telling the coordinator of writes that a fence refused.
//!
//! A refused write means that somebody wrote after its successor had begun: it was paused, or cut off, and did not know.
//! The fence has stopped it; this is how people learn of it. `ringfence fence refusals` shows it, and `ringfence status`
//! says that there was one.
//!
//! Whoever meets a refusal can tell: the worker whose write it was, when it runs again, or a service in front of the
//! storage that is no worker and has no session. It tells by the name of the storage and by the error of the fence:
//!
//! ```no_run
//! # async fn example(fence: ringfence::fence::MemoryFence, stamp: ringfence::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence::net::{Coordinator, Endpoints};
//! use ringfence::Refusals;
//!
//! let coordinator = Coordinator::new("http://127.0.0.1:7600".parse::<Endpoints>()?);
//! let ledger = Refusals::new(&coordinator)?.of_worker("worker-1")?.of_store("ledger")?;
//!
//! if let Err(refused) = fence.check(&stamp) {
//!     ledger.note(&refused); // at once, and never an error: the write is refused all the same
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Telling never blocks, waits or fails.** What is noted is added up here, by what it is about, and sent by a task of its
//! own about once a second; a million refusals of the same write are a number in one message. What there is no room for, or
//! what no coordinator takes, is dropped: it loses a number, and nothing rests on it.

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fence::{FenceError, Fenced, Observed};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, fences};
use ringfence_api::v1::{RefusalItem, ReportRefusalsRequest};
use ringfence_core::ids::{ClusterId, Epoch, Scope, StoreName, WorkerId};
use ringfence_core::mutant;
use ringfence_core::time::Instant;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

/// How many different refusals wait to be told; the coordinator takes as many at once. What differs from all of them is
/// dropped until these are told.
pub const MAX_WAITING: usize = 256;
/// What comes up within this goes with the first message.
const GATHER: Duration = Duration::from_millis(100);
/// Between two messages.
const PACE: Duration = Duration::from_secs(1);
/// How long the last word may take when all handles are gone.
const LAST_WORD: Duration = Duration::from_secs(5);

/// What is told of refused writes, on its way to the coordinator. Cheap to clone; clones share one heap and one sender.
#[derive(Clone)]
pub struct Refusals {
    heap: Arc<Heap>,
    worker: Option<WorkerId>,
    /// It never waits: one call that is pending is enough.
    news: mpsc::Sender<()>,
}

/// The same for one storage.
#[derive(Clone, Debug)]
pub struct StoreRefusals {
    refusals: Refusals,
    store: StoreName,
}

#[derive(Default)]
struct Heap {
    told: Mutex<Told>,
    quiet: Notify,
}

#[derive(Default)]
struct Told {
    waiting: BTreeMap<What, Many>,
    /// They are being sent.
    under_way: usize,
    /// There was no room for so many.
    dropped: u64,
}

/// Refusals that agree in this are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct What {
    cluster: ClusterId,
    worker: Option<WorkerId>,
    scope: Scope,
    own: Epoch,
    highest: Epoch,
    store: StoreName,
    observed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Many {
    count: u64,
    first: Instant,
    last: Instant,
}

impl Refusals {
    /// Tells this coordinator, by a task on the runtime of this call. It needs no session and opens none.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] outside of a tokio runtime.
    pub fn new(coordinator: &Coordinator) -> Result<Refusals, Error> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Error::own(
                ErrorKind::Invalid,
                "refusals are told by a task on the tokio runtime, and there is none here",
            )
        })?;
        // More than one is no more news than one.
        let (news, heard) = mpsc::channel(1);
        let heap = Arc::new(Heap::default());
        let sender = Sender { coordinator: coordinator.with_own_connections(), heap: Arc::clone(&heap) };
        runtime.spawn(sender.run(heard));
        Ok(Refusals { heap, worker: None, news })
    }

    /// The same, told in the name of a worker, so that people know whose program met the refusal.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is not a name.
    pub fn of_worker(self, worker: &str) -> Result<Refusals, Error> {
        Ok(Refusals { worker: Some(WorkerId::new(worker)?), ..self })
    }

    /// The refusals of one storage, by the name that people know it by, such as `ledger`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is not a name.
    pub fn of_store(&self, store: &str) -> Result<StoreRefusals, Error> {
        Ok(StoreRefusals { refusals: self.clone(), store: StoreName::new(store)? })
    }

    /// How many refusals were not told, because [`MAX_WAITING`] others waited or no coordinator took them.
    pub fn dropped(&self) -> u64 {
        self.heap.told().dropped
    }

    /// Waits until what was noted so far is told, at most so long; whether it is. For a program that is about to end.
    pub async fn flush(&self, within: Duration) -> bool {
        let quiet = async {
            loop {
                let heard = self.heap.quiet.notified();
                {
                    let told = self.heap.told();
                    if told.waiting.is_empty() && told.under_way == 0 {
                        return;
                    }
                }
                heard.await;
            }
        };
        timeout(within, quiet).await.is_ok()
    }

    fn note(&self, fenced: &Fenced, store: &StoreName, observed: bool) {
        let what = What {
            cluster: fenced.token().cluster().clone(),
            worker: self.worker.clone(),
            scope: fenced.scope().clone(),
            own: fenced.own(),
            highest: fenced.highest(),
            store: store.clone(),
            observed,
        };
        let now = Clock::Machine.now();
        self.heap.told().add(what, Many { count: 1, first: now, last: now });
        // When one waits already, the sender will see this one too.
        let _ = self.news.try_send(());
    }
}

impl StoreRefusals {
    /// Notes what the fence has answered, when that is a refusal of a replaced owner; whether it is. Anything else a fence
    /// can say is not, and is not told.
    pub fn note(&self, error: &FenceError) -> bool {
        let FenceError::Fenced(fenced) = error else { return false };
        self.note_fenced(fenced);
        true
    }

    /// Notes a refusal.
    pub fn note_fenced(&self, fenced: &Fenced) {
        tracing::warn!(
            token = %fenced.token().short(), own = fenced.own().get(), highest = fenced.highest().get(), store = %self.store,
            "the storage refused a write of an owner that was replaced"
        );
        self.refusals.note(fenced, &self.store, false);
    }

    /// Notes what a fence that only observes would have refused; whether it would. The write goes through.
    pub fn note_observed(&self, observed: &Observed) -> bool {
        let Observed::WouldRefuse(FenceError::Fenced(fenced)) = observed else { return false };
        tracing::warn!(
            token = %fenced.token().short(), own = fenced.own().get(), highest = fenced.highest().get(), store = %self.store,
            "the storage only observes, and took a write of an owner that was replaced"
        );
        self.refusals.note(fenced, &self.store, true);
        true
    }
}

impl Told {
    fn add(&mut self, what: What, many: Many) {
        let full = self.waiting.len() >= MAX_WAITING && !mutant!("refusals-pile-up");
        match self.waiting.get_mut(&what) {
            Some(known) => {
                known.count = known.count.saturating_add(many.count);
                known.first = known.first.min(many.first);
                known.last = known.last.max(many.last);
            }
            None if full => {
                self.dropped = self.dropped.saturating_add(many.count);
            }
            None => drop(self.waiting.insert(what, many)),
        }
    }
}

impl Heap {
    /// It is plain data, and whole after every statement: a panic elsewhere does not spoil it.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that tells.
struct Sender {
    coordinator: Coordinator,
    heap: Arc<Heap>,
}

impl Sender {
    async fn run(self, mut heard: mpsc::Receiver<()>) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut open = true;
        while open {
            // What is noted while this task sleeps waits in the heap, and in the channel for its next look.
            open = heard.recv().await.is_some();
            sleep(GATHER).await;
            while open && !self.heap.told().waiting.is_empty() {
                let wait = if self.tell().await {
                    backoff.reset();
                    PACE
                } else {
                    backoff.wait()
                };
                // Whoever drops the last handle does not wait for the next message.
                tokio::select! {
                    () = sleep(wait) => {}
                    () = closed(&mut heard) => open = false,
                }
            }
        }
        // All handles are gone. What they noted last is told when a coordinator is there.
        let _ = timeout(LAST_WORD, self.tell()).await;
    }

    /// Tells what waits. What no coordinator took goes back; what one may have taken does not.
    async fn tell(&self) -> bool {
        let waiting = {
            let mut told = self.heap.told();
            told.under_way = told.waiting.len();
            std::mem::take(&mut told.waiting)
        };
        let mut by_name: BTreeMap<_, Vec<(What, Many)>> = BTreeMap::new();
        for (what, many) in waiting {
            by_name.entry((what.cluster.clone(), what.worker.clone())).or_default().push((what, many));
        }
        let mut all_told = true;
        for ((cluster, worker), items) in by_name {
            all_told &= self.send(&cluster, worker.as_ref(), items).await;
        }
        self.heap.told().under_way = 0;
        self.heap.quiet.notify_waiters();
        all_told
    }

    async fn send(&self, cluster: &ClusterId, worker: Option<&WorkerId>, items: Vec<(What, Many)>) -> bool {
        let now = Clock::Machine.now();
        let request = ReportRefusalsRequest {
            cluster: cluster.to_string(),
            worker: worker.map(ToString::to_string).unwrap_or_default(),
            items: items.iter().map(|(what, many)| to_wire(what, *many, now)).collect(),
        };
        let call = Call::new(Route::Leader, Effect::Once);
        let sent = self.coordinator.call(call, |channel| {
            let request = request.clone();
            async move { fences(channel).report_refusals(request).await }
        });
        let Err(error) = sent.await else { return true };
        let mut told = self.heap.told();
        if error.is_retryable() || error.kind() == ErrorKind::Limit {
            tracing::debug!(%error, different = items.len(), "refusals could not be told yet");
            for (what, many) in items {
                told.add(what, many);
            }
            return false;
        }
        // Told twice counts twice, so what may have arrived is not said again.
        told.dropped = items.iter().fold(told.dropped, |sum, (_, many)| sum.saturating_add(many.count));
        tracing::debug!(%error, different = items.len(), "refusals are not told");
        true
    }
}

/// Returns when all handles are gone. What is noted meanwhile waits in the heap, which is looked at next.
async fn closed(heard: &mut mpsc::Receiver<()>) {
    while heard.recv().await.is_some() {}
}

fn to_wire(what: &What, many: Many, now: Instant) -> RefusalItem {
    let ago = |then: Instant| u64::try_from(now.since(then).as_millis()).unwrap_or(u64::MAX);
    RefusalItem {
        scope: what.scope.to_string(),
        own_epoch: what.own.get(),
        highest_epoch: what.highest.get(),
        store: what.store.to_string(),
        observed: what.observed,
        count: many.count,
        first_ago_ms: ago(many.first),
        last_ago_ms: ago(many.last),
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.heap.told();
        f.debug_struct("Refusals")
            .field("waiting", &told.waiting.len())
            .field("dropped", &told.dropped)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{FencingToken, MemoryFence, ObserveOnly};
    use crate::net::Endpoints;
    use crate::net::fake::{Answered, Asked, Fake};
    use ringfence_api::Failure;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tonic::Status;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn coordinator(fake: &Fake) -> Coordinator {
        Coordinator::new(Endpoints::from(fake.endpoint.clone()))
    }

    fn token(text: &str) -> FencingToken {
        text.parse().unwrap()
    }

    fn refused(own: u64) -> FenceError {
        Fenced::new(token(&format!("test/orders/3@{own}")), Epoch::new(own + 1).unwrap()).into()
    }

    fn reports(fake: &Fake) -> Vec<ReportRefusalsRequest> {
        let of = |asked: Asked| match asked {
            Asked::Refusals(request) => Some(request),
            _ => None,
        };
        fake.asked().into_iter().filter_map(of).collect()
    }

    fn counts(fake: &Fake) -> u64 {
        reports(fake).iter().flat_map(|request| &request.items).map(|item| item.count).sum()
    }

    #[tokio::test]
    async fn a_storm_of_refusals_costs_a_few_messages_and_no_time_of_the_writer() {
        let fake = Fake::start(|_| Ok(Answered::Noted)).await;
        let refusals = Refusals::new(&coordinator(&fake)).unwrap().of_worker("w1").unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        let error = refused(41);
        // Not one await in between: whoever writes is not held up by the network.
        for _ in 0..100_000 {
            assert!(ledger.note(&error));
        }
        assert!(refusals.flush(PATIENCE).await);
        let told = reports(&fake);
        assert!(told.len() <= 2, "{}", told.len());
        let item = &told[0].items[0];
        assert_eq!((told[0].cluster.as_str(), told[0].worker.as_str()), ("test", "w1"));
        assert_eq!((item.scope.as_str(), item.store.as_str(), item.observed), ("orders/3", "ledger", false));
        assert_eq!((item.own_epoch, item.highest_epoch), (41, 42));
        assert!(item.first_ago_ms >= item.last_ago_ms);
        assert_eq!(counts(&fake), 100_000);
        assert_eq!(refusals.dropped(), 0);
    }

    #[tokio::test]
    async fn what_is_no_refusal_of_a_replaced_owner_is_not_told() {
        let fake = Fake::start(|_| Ok(Answered::Noted)).await;
        let refusals = Refusals::new(&coordinator(&fake)).unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        let gone = || std::io::Error::other("gone");
        for error in [
            FenceError::store("checking", gone()),
            FenceError::busy("raising", gone()),
            FenceError::Unstamped,
        ] {
            assert!(!ledger.note(&error));
        }
        assert!(!ledger.note_observed(&Observed::Accepted));
        assert!(refusals.flush(PATIENCE).await);
        assert!(reports(&fake).is_empty());
        for name in ["", "Ledger", "a b", &"x".repeat(64)] {
            assert_eq!(refusals.of_store(name).unwrap_err().kind(), ErrorKind::Invalid);
            assert_eq!(refusals.clone().of_worker(name).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    /// The first rung of adoption: nothing is refused, and everybody can see what would have been.
    #[tokio::test]
    async fn what_a_fence_only_observes_is_told_as_that() {
        let fake = Fake::start(|_| Ok(Answered::Noted)).await;
        let refusals = Refusals::new(&coordinator(&fake)).unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        let observing = ObserveOnly::without_refusing(MemoryFence::new(ClusterId::new("test").unwrap()));
        observing.fence().raise(&token("test/orders/3@8")).unwrap();
        for epoch in [7, 8] {
            let late = token(&format!("test/orders/3@{epoch}"));
            let seen = observing.observe(|fence| fence.check(&late)).unwrap();
            assert_eq!(ledger.note_observed(&seen), epoch == 7);
        }
        assert!(refusals.flush(PATIENCE).await);
        let told = reports(&fake);
        assert_eq!(told.len(), 1);
        let item = &told[0].items[0];
        assert_eq!((item.observed, item.own_epoch, item.highest_epoch, item.count), (true, 7, 8, 1));
        assert!(told[0].worker.is_empty());
    }

    #[tokio::test]
    async fn what_nobody_took_is_told_later_and_what_may_have_arrived_is_not_told_twice() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let fake = Fake::start(move |asked| match asked {
            Asked::Refusals(_) => match seen.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Failure::limit("too many").into()),
                1 => Ok(Answered::Noted),
                2 => Err(Failure::unknown_outcome().into()),
                _ => Ok(Answered::Noted),
            },
            _ => Err(Status::unimplemented("")),
        })
        .await;
        let refusals = Refusals::new(&coordinator(&fake)).unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        ledger.note(&refused(1));
        let told = async |calls: usize| {
            while reports(&fake).len() < calls {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, told(2)).await.expect("it is told again");
        assert!(refusals.flush(PATIENCE).await);
        assert_eq!((counts(&fake), refusals.dropped()), (2, 0), "refused, and told again");
        ledger.note(&refused(2));
        assert!(refusals.flush(PATIENCE).await);
        timeout(PATIENCE, told(3)).await.expect("it is told");
        assert!(refusals.flush(PATIENCE).await);
        assert_eq!((reports(&fake).len(), refusals.dropped()), (3, 1));
    }

    #[tokio::test]
    async fn without_a_coordinator_the_heap_has_a_bound_and_the_rest_is_counted() {
        let nobody = Coordinator::new("http://127.0.0.1:1".parse::<Endpoints>().unwrap());
        let refusals = Refusals::new(&nobody).unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        let most = u64::try_from(MAX_WAITING).unwrap();
        for own in 1..=most + 10 {
            ledger.note(&refused(own));
        }
        ledger.note(&refused(1));
        assert_eq!(refusals.heap.told().waiting.len(), MAX_WAITING);
        assert_eq!(refusals.dropped(), 10);
        assert!(!refusals.flush(Duration::from_millis(1)).await);
    }

    #[tokio::test]
    async fn what_was_noted_last_is_told_when_all_handles_are_gone() {
        let fake = Fake::start(|_| Ok(Answered::Noted)).await;
        let ledger = Refusals::new(&coordinator(&fake)).unwrap().of_store("ledger").unwrap();
        ledger.note(&refused(1));
        drop(ledger);
        let told = async {
            while counts(&fake) < 1 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, told).await.expect("it is told");
    }

    #[test]
    fn without_a_runtime_it_says_so() {
        let nobody = Coordinator::new("http://127.0.0.1:1".parse::<Endpoints>().unwrap());
        assert_eq!(Refusals::new(&nobody).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
