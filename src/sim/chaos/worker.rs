//! A worker of the chaos run: an ordinary worker of the SDK that writes and reads a real database, and says on standard
//! output what happens to it, as events of a history.
//!
//! Now and then it does what a stalled process does: it stamps a write and sends it much later, when the ownership may be
//! long over. It can also be told to stop itself, with SIGSTOP, between the stamp and the write.

use super::clock::now_us;
use super::store::{self, KEYS, Store, StoreError};
use crate::history::{Call, Ending, Event, OpId, Outcome, What};
use clap::Args;
use nix::sys::signal::{Signal, raise};
use ringfence::fence::FenceError;
use ringfence::ids::{Epoch, KeyspaceName, Scope, WorkerId};
use ringfence::ownership::Phase;
use ringfence::router::Router;
use ringfence::worker::{Worker, shutdown_signal};
use ringfence::{FencingToken, Ownership};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// Between two operations on a partition.
const PACE_MS: std::ops::Range<u64> = 5..40;
/// Writes that are held back at once.
const HELD: usize = 6;
/// How often each ownership is asked whether it is valid, and how often that is said.
const LOOK: Duration = Duration::from_millis(3);
const SAY_US: u64 = 100_000;
/// Before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// What the run tells a worker, a line each.
pub(super) const STOP_AFTER_STAMPING: &str = "stop-after-stamping";
pub(super) const GO_ON: &str = "go-on";

/// Arguments of the worker.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[arg(long)]
    endpoints: String,
    #[arg(long)]
    id: WorkerId,
    /// Which process of the run this is; its operations are numbered from it.
    #[arg(long)]
    life: u32,
    /// A keyspace in which leases are promised. All of these are owned from one session.
    #[arg(long)]
    lease_keyspace: Vec<KeyspaceName>,
    /// A keyspace with `takeover = fence`: nothing is read from memory there.
    #[arg(long)]
    fence_keyspace: Vec<KeyspaceName>,
    #[arg(long)]
    stores: PathBuf,
    #[arg(long)]
    ttl_ms: u64,
    #[arg(long)]
    no_fence: bool,
}

/// What the tasks of one worker share.
struct Shared {
    args: WorkerArgs,
    actor: String,
    ops: AtomicU64,
    held: AtomicUsize,
    stop_after_stamping: AtomicBool,
    stores: Mutex<HashMap<Scope, Arc<Mutex<Option<Store>>>>>,
    watched: Mutex<Vec<Watched>>,
}

/// An ownership that is asked whether it is valid.
struct Watched {
    ownership: Ownership,
    /// When a yes was last said, and the last yes that was not.
    said: u64,
    unsaid: Option<(u64, u64)>,
}

/// What an owner knows by heart; `None` after a write of which it does not know what became.
type Cache = HashMap<String, Option<Vec<u64>>>;

/// One partition under one epoch. Dropping it says that it ended.
struct Tenure {
    shared: Arc<Shared>,
    ownership: Ownership,
    scope: Scope,
    store: Arc<Mutex<Option<Store>>>,
    /// Behind the store's lock wherever both are needed.
    cache: Arc<Mutex<Cache>>,
}

/// Runs the worker until its input ends, or by signal.
///
/// # Errors
/// What the system denied it.
pub fn run(args: WorkerArgs) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let shared = Arc::new(Shared {
        actor: format!("{}.{}", args.id, args.life),
        ops: AtomicU64::new(u64::from(args.life) << 32),
        held: AtomicUsize::new(0),
        stop_after_stamping: AtomicBool::new(false),
        stores: Mutex::default(),
        watched: Mutex::default(),
        args,
    });
    let watching = Arc::clone(&shared);
    std::thread::Builder::new().name("looks".into()).spawn(move || watching.look())?;
    runtime.block_on(work(shared));
    runtime.shutdown_background();
    Ok(())
}

async fn work(shared: Arc<Shared>) {
    let leave = CancellationToken::new();
    tokio::spawn(listen(Arc::clone(&shared), leave.clone()));
    tokio::spawn(route(Arc::clone(&shared)));
    // Whatever ends a session, faults are what they are here: join again.
    while !leave.is_cancelled() {
        let mut builder = Worker::builder(shared.args.id.as_str())
            .coordinator(shared.args.endpoints.as_str())
            .address(&shared.actor)
            .shutdown_limit(Some(Duration::from_secs(5)));
        for keyspace in shared.args.keyspaces() {
            let owner = Arc::clone(&shared);
            builder = builder.own(keyspace.as_str(), move |ownership| own(ownership, Arc::clone(&owner)));
        }
        let joining = builder.join();
        let stop = async {
            tokio::select! {
                () = shutdown_signal() => leave.cancel(),
                () = leave.cancelled() => {}
            }
        };
        let ended = tokio::select! {
            joined = joining => match joined {
                Ok(worker) => worker.serve_until(stop).await,
                Err(error) => Err(error),
            },
            () = leave.cancelled() => return,
        };
        if let Err(error) = ended {
            shared.say(What::Note { text: format!("the worker ended: {error}") });
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = leave.cancelled() => {}
            }
        }
    }
}

/// Reads what the run says. When the run is gone, so is the pipe, and the worker leaves.
async fn listen(shared: Arc<Shared>, leave: CancellationToken) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.as_str() {
            STOP_AFTER_STAMPING => shared.stop_after_stamping.store(true, Ordering::SeqCst),
            GO_ON => shared.stop_after_stamping.store(false, Ordering::SeqCst),
            _ => {}
        }
    }
    leave.cancel();
}

/// Follows the map as a caller would, over the same bad network.
async fn route(shared: Arc<Shared>) {
    let keyspaces: Vec<&str> = shared.args.keyspaces().map(KeyspaceName::as_str).collect();
    let router = loop {
        match Router::connect(shared.args.endpoints.as_str(), keyspaces.iter().copied()).await {
            Ok(router) => break router,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    };
    let by = format!("router of {}", shared.actor);
    let mut told: HashMap<Scope, Epoch> = HashMap::new();
    let mut view = router.view();
    loop {
        let known = shared.args.keyspaces().filter_map(|name| Some((name, view.keyspace(name.as_str())?)));
        for (name, partition) in known.flat_map(|(name, all)| all.partitions().map(move |one| (name, one))) {
            let Some(owner) = partition.owner() else { continue };
            let scope = Scope::Partition(name.clone(), owner.partition());
            if told.insert(scope.clone(), owner.epoch()) != Some(owner.epoch()) {
                let what = What::Routed { scope, epoch: owner.epoch(), worker: owner.worker().clone() };
                say(&Event { at: now_us(), by: by.clone(), what });
            }
        }
        view = router.changed_since(&view).await;
    }
}

/// Owns one partition: raises and loads, says ready, writes and reads, returns when revoked. It never fails by itself:
/// a partition whose owner failed would be kept back, and a fault of the run is not the partition's.
async fn own(ownership: Ownership, shared: Arc<Shared>) -> Result<(), Infallible> {
    let tenure = Tenure::begin(ownership, shared);
    let ownership = &tenure.ownership;
    while let Err(error) = tenure.blocking(Tenure::load).await {
        if matches!(error, StoreError::Fence(FenceError::Fenced(_))) {
            ownership.lost().await;
            return Ok(());
        }
        if ownership.until_revoked(tokio::time::sleep(RETRY)).await.is_none() {
            return Ok(());
        }
    }
    if ownership.ready().await.is_err() {
        return Ok(());
    }
    tenure.say(|scope, epoch| What::Ready { scope, epoch });
    let leases = tenure.shared.args.lease_keyspace.contains(ownership.keyspace());
    loop {
        // The stamp is taken when the operation starts. Whatever happens from there on, it is the old one.
        let token = match ownership.stamp() {
            Ok(token) => token,
            Err(over) if over.is_final() => break,
            // Where a keyspace is taken over by fence, a lost connection may come back.
            Err(_) => match ownership.until_revoked(tokio::time::sleep(RETRY)).await {
                Some(()) => continue,
                None => break,
            },
        };
        let (op, key) = (tenure.shared.op(), store::key(&tenure.scope, fastrand::u64(..KEYS)));
        match fastrand::u32(..100) {
            0 | 1 => tenure.hold_back(token, op, key),
            2..20 if leases => tenure.blocking(move |tenure| tenure.leased_read(op, &key)).await,
            2..30 => tenure.blocking(move |tenure| tenure.read(op, &key)).await,
            _ => tenure.blocking(move |tenure| tenure.write(&token, op, &key, true)).await,
        }
        let pace = Duration::from_millis(fastrand::u64(PACE_MS));
        if ownership.until_revoked(tokio::time::sleep(pace)).await.is_none() {
            tenure.say(|scope, epoch| What::Revoked { scope, epoch });
            break;
        }
    }
    Ok(())
}

impl Tenure {
    fn begin(ownership: Ownership, shared: Arc<Shared>) -> Tenure {
        let scope = scope_of(&ownership);
        let store = Arc::clone(lock(&shared.stores).entry(scope.clone()).or_default());
        let tenure = Tenure { shared, ownership, scope, store, cache: Arc::default() };
        let worker = tenure.shared.args.id.clone();
        tenure.say(|scope, epoch| What::Began { scope, epoch, worker });
        let watched = Watched { ownership: tenure.ownership.clone(), said: 0, unsaid: None };
        lock(&tenure.shared.watched).push(watched);
        tenure
    }

    fn say(&self, what: impl FnOnce(Scope, Epoch) -> What) {
        self.shared.say(what(self.scope.clone(), self.ownership.epoch()));
    }

    /// SQLite blocks, and so does a stop: neither belongs on the executor. What runs here goes on, and says what became
    /// of it, when the owner's task has been aborted.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Part) -> T + Send + 'static) -> T {
        let part = self.part();
        match tokio::task::spawn_blocking(move || work(&part)).await {
            Ok(done) => done,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    fn part(&self) -> Part {
        Part {
            shared: Arc::clone(&self.shared),
            ownership: self.ownership.clone(),
            scope: self.scope.clone(),
            store: Arc::clone(&self.store),
            cache: Arc::clone(&self.cache),
        }
    }

    /// Stamps a write now and sends it later, whatever has become of the ownership.
    fn hold_back(&self, token: FencingToken, op: OpId, key: String) {
        let (part, shared) = (self.part(), Arc::clone(&self.shared));
        if shared.held.fetch_add(1, Ordering::SeqCst) >= HELD {
            shared.held.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        part.invoked(op, &key, Call::Write(op));
        let wait = Duration::from_millis(fastrand::u64(..shared.args.ttl_ms * 3));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = tokio::task::spawn_blocking(move || part.write(&token, op, &key, false)).await;
            shared.held.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn load(part: &Part) -> Result<(), StoreError> {
        part.load()
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let why = match self.ownership.phase() {
            Phase::Revoked => Ending::Revoked,
            Phase::Ended => Ending::Lost,
            _ => Ending::Returned,
        };
        self.say(|scope, epoch| What::Ended { scope, epoch, why });
    }
}

/// What an operation of a tenure needs; it may outlive the tenure.
struct Part {
    shared: Arc<Shared>,
    ownership: Ownership,
    scope: Scope,
    store: Arc<Mutex<Option<Store>>>,
    cache: Arc<Mutex<Cache>>,
}

impl Part {
    fn invoked(&self, op: OpId, key: &str, call: Call) {
        let token = Some((self.scope.clone(), self.ownership.epoch()));
        self.shared.say(What::Invoked { op, key: key.to_owned(), call, token });
    }

    fn returned(&self, op: OpId, outcome: Outcome) {
        self.shared.say(What::Returned { op, outcome });
    }

    /// Runs something on the partition's store, which is opened at first use.
    fn with_store<T>(
        &self,
        work: impl FnOnce(&mut Store, &mut Cache) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = lock(&self.store);
        let args = &self.shared.args;
        let store = match &mut *slot {
            Some(store) => store,
            empty => {
                let path = store::path(&args.stores, &self.scope);
                empty.insert(Store::open(&path, (!args.no_fence).then(|| self.ownership.token()))?)
            }
        };
        work(store, &mut lock(&self.cache))
    }

    /// Raises first, reads then: whatever an older owner sends after this is refused.
    fn load(&self) -> Result<(), StoreError> {
        self.with_store(|store, _| store.raise(self.ownership.token()))?;
        for number in 0..KEYS {
            let key = store::key(&self.scope, number);
            self.invoked_read(self.shared.op(), &key)?;
        }
        Ok(())
    }

    fn read(&self, op: OpId, key: &str) {
        // It was said what became of it.
        let _ = self.invoked_read(op, key);
    }

    fn invoked_read(&self, op: OpId, key: &str) -> Result<(), StoreError> {
        self.invoked(op, key, Call::Read);
        let found = self.with_store(|store, cache| {
            let found: Vec<u64> = store.read(key)?.into_iter().collect();
            cache.insert(key.to_owned(), Some(found.clone()));
            Ok(found)
        });
        match found {
            Ok(found) => {
                self.returned(op, Outcome::Ok(found));
                Ok(())
            }
            Err(error) => {
                self.returned(op, Outcome::Unknown);
                Err(error)
            }
        }
    }

    /// Answers from memory, under the lease.
    fn leased_read(&self, op: OpId, key: &str) {
        self.invoked(op, key, Call::Read);
        // Nobody changes the data through this process while the store is locked.
        let _no_write_is_under_way = lock(&self.store);
        let known = self.ownership.read(|| lock(&self.cache).get(key).cloned().flatten());
        self.returned(op, known.ok().flatten().map_or(Outcome::Unknown, Outcome::Ok));
    }

    fn write(&self, token: &FencingToken, op: OpId, key: &str, starts: bool) {
        if starts {
            self.invoked(op, key, Call::Write(op));
        }
        if starts && self.shared.stop_after_stamping.swap(false, Ordering::SeqCst) {
            // To this very thread, so that it is stopped before the call returns, and the whole process with it.
            if let Err(error) = raise(Signal::SIGSTOP) {
                self.shared.say(What::Note { text: format!("stopping itself: {error}") });
            }
        }
        let done = self.with_store(|store, cache| {
            let done = store.write(token, op, key);
            match &done {
                Ok(()) => drop(cache.insert(key.to_owned(), Some(vec![op]))),
                Err(StoreError::Fence(FenceError::Fenced(_))) => {}
                Err(_) => drop(cache.insert(key.to_owned(), None)),
            }
            done
        });
        let outcome = match done {
            Ok(()) => Outcome::Ok(vec![]),
            Err(StoreError::Fence(FenceError::Fenced(fenced))) => {
                let (scope, epoch, highest) = (self.scope.clone(), fenced.own(), fenced.highest());
                self.shared.say(What::RefusedStale { op, scope, epoch, highest });
                Outcome::Refused
            }
            Err(_) => Outcome::Unknown,
        };
        self.returned(op, outcome);
    }
}

impl Shared {
    fn op(&self) -> OpId {
        self.ops.fetch_add(1, Ordering::SeqCst)
    }

    fn say(&self, what: What) {
        say(&Event { at: now_us(), by: self.actor.clone(), what });
    }

    /// Asks every ownership, all the time, whether it is valid.
    fn look(&self) {
        loop {
            std::thread::sleep(LOOK);
            lock(&self.watched).retain_mut(|watched| {
                let asked = now_us();
                let valid = watched.ownership.is_valid();
                let at = now_us();
                if valid {
                    watched.unsaid = Some((asked, at));
                }
                let due = !valid || at - watched.said >= SAY_US;
                if let Some((asked, at)) = watched.unsaid.filter(|_| due) {
                    let scope = scope_of(&watched.ownership);
                    let what = What::Believed { scope, epoch: watched.ownership.epoch(), asked };
                    say(&Event { at, by: self.actor.clone(), what });
                    (watched.said, watched.unsaid) = (at, None);
                }
                valid || watched.ownership.phase() < Phase::Ended
            });
        }
    }
}

impl WorkerArgs {
    fn keyspaces(&self) -> impl Iterator<Item = &KeyspaceName> {
        self.lease_keyspace.iter().chain(&self.fence_keyspace)
    }
}

fn scope_of(ownership: &Ownership) -> Scope {
    Scope::Partition(ownership.keyspace().clone(), ownership.partition())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line to the run. When the run has gone there is nobody to tell.
fn say(event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}
