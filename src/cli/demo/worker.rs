//! A worker of the demo: numbered records into a shared file, through the SDK like any other worker.
//!
//! It can be told over a pipe to stop itself, with SIGSTOP, after it has stamped a write and before it sends it. It then
//! holds its own store's lock, so that no transaction of the file is open while it is stopped: a process that is stopped
//! inside one would block all writers, which is SQLite's affair and not ours.

use super::messages::{Tell, Told};
use super::store::{self, Fenced, Record, Store, StoreError, Unfenced};
use crate::exit::{Exit, Failed, Outcome};
use clap::Args;
use nix::sys::signal::{Signal, raise};
use ringfence::fence::FenceError;
use ringfence::ids::WorkerId;
use ringfence::net::{Coordinator, Endpoints};
use ringfence::worker::{Probed, Worker, shutdown_signal};
use ringfence::{FencingToken, Ownership, Refusals, StoreRefusals};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// Between two writes of a partition: three workers and twelve partitions then make about a thousand a second.
const PACE: Duration = Duration::from_millis(10);

/// What the file is called where its refusals are told.
const STORE: &str = "sqlite";

/// Arguments of the worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    endpoints: String,
    #[arg(long)]
    id: WorkerId,
    #[arg(long)]
    keyspace: String,
    #[arg(long)]
    database: PathBuf,
    /// Nobody calls a worker of the demo: it tells two processes with one id apart.
    #[arg(long, default_value = "")]
    address: String,
    #[arg(long)]
    no_fence: bool,
}

/// What the tasks of one worker share.
struct Shared {
    id: WorkerId,
    database: PathBuf,
    fenced: bool,
    /// Opened by the first owner: the fence belongs to the cluster, and its token says which.
    store: Mutex<Option<Box<dyn Store>>>,
    stop_after_stamping: AtomicBool,
    /// Writes that the fence refused: `ringfence fence refusals` shows them.
    refusals: StoreRefusals,
}

/// Runs the worker until it is told to leave, or by signal.
pub(crate) async fn run_worker(args: WorkerArgs) -> Outcome {
    match work(args).await {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(Failed::refused(format!("{error:#}"))),
    }
}

async fn work(args: WorkerArgs) -> anyhow::Result<()> {
    let coordinator = Coordinator::new(args.endpoints.parse::<Endpoints>()?);
    let refusals = Refusals::new(&coordinator)?.of_worker(args.id.as_str())?.of_store(STORE)?;
    let shared = Arc::new(Shared {
        id: args.id,
        database: args.database,
        fenced: !args.no_fence,
        store: Mutex::new(None),
        stop_after_stamping: AtomicBool::new(false),
        refusals,
    });
    let leave = CancellationToken::new();
    tokio::spawn(listen(Arc::clone(&shared), leave.clone()));

    let (owner, prober) = (Arc::clone(&shared), Arc::clone(&shared));
    let worker = Worker::builder(shared.id.as_str())
        .coordinator_over(&coordinator)
        .address(&args.address)
        // Nobody sends it keys: what it writes under a partition is that partition's.
        .splittable()
        .own(&args.keyspace, move |ownership| own(ownership, Arc::clone(&owner)))
        .allow_drill(&args.keyspace, move |stamp| probe(stamp, Arc::clone(&prober)))
        .join()
        .await;
    let worker = match worker {
        Ok(worker) => worker,
        Err(error) => {
            tell(&Told::Failed { error: error.to_string() });
            return Err(error.into());
        }
    };
    let stop = async {
        tokio::select! {
            () = shutdown_signal() => {}
            () = leave.cancelled() => {}
        }
    };
    Ok(worker.serve_until(stop).await?)
}

/// Reads what the demo says. When the demo is gone, so is its pipe, and the worker leaves.
async fn listen(shared: Arc<Shared>, leave: CancellationToken) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Tell::StopAfterStamping) => shared.stop_after_stamping.store(true, Ordering::SeqCst),
            Ok(Tell::Leave) | Err(_) => break,
        }
    }
    leave.cancel();
}

/// Owns one partition: raises and loads, says ready, stamps and writes, returns when revoked.
async fn own(ownership: Ownership, shared: Arc<Shared>) -> anyhow::Result<()> {
    let (partition, epoch) = (ownership.partition().get(), ownership.epoch().get());
    let (token, ancestors) = (ownership.token().clone(), ownership.ancestors().to_vec());
    let mut seq = blocking(&shared, move |shared| shared.open_partition(&token, &ancestors)).await?;
    ownership.ready().await?;
    tell(&Told::Ready { partition, epoch });
    // The stamp is taken when the operation starts. Whatever happens from there on, it is the old one.
    while let Ok(token) = ownership.stamp() {
        if !blocking(&shared, move |shared| shared.write(&token, partition, seq)).await? {
            break;
        }
        seq += 1;
        if ownership.until_revoked(tokio::time::sleep(PACE)).await.is_none() {
            break;
        }
    }
    tell(&Told::Ended { partition, epoch });
    Ok(())
}

/// The probe write of a drill.
async fn probe(stamp: FencingToken, shared: Arc<Shared>) -> anyhow::Result<Probed> {
    match blocking(&shared, move |shared| shared.with_store(&stamp, |store| store.probe(&stamp))).await {
        Ok(()) => Ok(Probed::Accepted),
        Err(StoreError::Fence(FenceError::Fenced(_))) => Ok(Probed::Refused),
        Err(error) => Err(error.into()),
    }
}

/// SQLite blocks, and so does a stop: neither belongs on the executor.
async fn blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let shared = Arc::clone(shared);
    match tokio::task::spawn_blocking(move || work(&shared)).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

impl Shared {
    fn with_store<T>(
        &self,
        token: &FencingToken,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match &mut *slot {
            Some(store) => store,
            empty => {
                let conn = store::open(&self.database)?;
                let made: Box<dyn Store> = if self.fenced {
                    Box::new(Fenced::new(conn, token.cluster())?)
                } else {
                    Box::new(Unfenced::new(conn))
                };
                empty.insert(made)
            }
        };
        work(store.as_mut())
    }

    fn open_partition(&self, token: &FencingToken, ancestors: &[FencingToken]) -> Result<u64, StoreError> {
        self.with_store(token, |store| store.open_partition(token, ancestors))
    }

    /// Writes one record, and says on the spot what became of it: the task that asked may have been aborted meanwhile,
    /// and the write is not undone by that. False when the fence refused it.
    fn write(&self, token: &FencingToken, partition: u32, seq: u64) -> Result<bool, StoreError> {
        if self.stop_after_stamping.swap(false, Ordering::SeqCst) {
            self.stop_here(token, partition, seq);
        }
        let epoch = token.epoch().get();
        let record = Record { partition, seq, worker: self.id.as_str() };
        match self.with_store(token, |store| store.write(token, &record)) {
            Ok(()) => {
                tell(&Told::Acked { partition, epoch, seq });
                Ok(true)
            }
            Err(StoreError::Fence(FenceError::Fenced(fenced))) => {
                self.refusals.note_fenced(&fenced);
                tell(&Told::Refused { partition, epoch, seq, highest: fenced.highest().get() });
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Stops this process, all threads of it, until somebody sends SIGCONT.
    fn stop_here(&self, token: &FencingToken, partition: u32, seq: u64) {
        let _no_transaction_is_open = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = token.epoch().get();
        tell(&Told::Stopping { partition, epoch, seq });
        // To this very thread, so that it is stopped before the call returns, and the whole process with it.
        if let Err(error) = raise(Signal::SIGSTOP) {
            tell(&Told::Failed { error: format!("stopping itself: {error}") });
        }
        tell(&Told::Resumed { partition, epoch, seq });
    }
}

/// One line to the demo. When the demo has gone there is nobody to tell.
fn tell(told: &Told) {
    if let Ok(mut line) = serde_json::to_string(told) {
        line.push('\n');
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}
