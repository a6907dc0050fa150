//! A worker process: the shipped SDK, and owners that read, write, think, and sometimes write much too late.

use super::dial::Dials;
use super::store::{Answer, Request, Store};
use crate::history::{Call, Ending, OpId, Outcome, Recorder, What};
use crate::world::{Host, Net, Process, Rate, TrueTime};
use fastrand::Rng;
use ringfence::testkit::SimulatedMachine;
use ringfence::{FencingToken, NotOwner, Ownership, Worker};
use ringfence_core::ids::{Epoch, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long an owner waits for the store.
const PATIENCE: Duration = Duration::from_millis(400);

/// A worker, whether it runs or not.
pub(crate) struct WorkerHost {
    /// Its name.
    pub(crate) name: String,
    /// Where it runs.
    pub(crate) host: Host,
    /// It, while it runs.
    pub(crate) process: Option<Process>,
    /// How its clock runs.
    pub(crate) rate: Rate,
    /// It is told to leave.
    leave: Arc<Notify>,
    /// Whether it was, in this life.
    told: AtomicBool,
    /// It is told to leave, and to say that it comes back.
    restart: Arc<Notify>,
    machine: SimulatedMachine,
    lives: u64,
    shared: Arc<Shared>,
}

/// What the owners of one life of a process share with the world.
struct Shared {
    actor: String,
    worker: WorkerId,
    host: Host,
    time: TrueTime,
    store: Store,
    recorder: Recorder,
    operations: Arc<AtomicU64>,
    /// False from the moment the process is killed: what is dropped then, nobody does.
    alive: AtomicBool,
    ended: AtomicBool,
    /// How much slower than in other worlds.
    pace: u64,
    /// See [`Common::keys`].
    keys: u32,
    tick: u64,
    owned: Mutex<Vec<Held>>,
}

/// What is owned, and from when to when it was answered for.
struct Held {
    partition: Ownership,
    claim: Option<(u64, u64)>,
}

/// What every life of every worker shares.
#[derive(Clone)]
pub(crate) struct Common {
    /// The network.
    pub(crate) net: Net,
    /// True time.
    pub(crate) time: TrueTime,
    /// The store.
    pub(crate) store: Store,
    /// Where it is written down.
    pub(crate) recorder: Recorder,
    /// Numbers for operations.
    pub(crate) operations: Arc<AtomicU64>,
    /// The coordinator.
    pub(crate) nodes: Vec<Host>,
    /// The keyspaces it serves.
    pub(crate) keyspaces: Vec<String>,
    /// How much slower owners work than they might.
    pub(crate) pace: u64,
    /// How many keys each keyspace has, each of which the owner of its partition writes; 0: each partition has one key of its
    /// own, and none is split.
    pub(crate) keys: u32,
    /// How long a process runs by itself, in milliseconds: it is paused between such ticks only.
    pub(crate) tick: u64,
    /// The zones of workers, by name; those of others are not known.
    pub(crate) zones: BTreeMap<String, String>,
}

impl WorkerHost {
    /// A worker that does not run yet.
    ///
    /// # Errors
    /// When its name is none.
    pub(crate) fn new(name: &str, host: Host, rate: Rate, common: &Common) -> anyhow::Result<WorkerHost> {
        Ok(WorkerHost {
            name: name.to_owned(),
            host,
            process: None,
            rate,
            leave: Arc::default(),
            told: AtomicBool::new(false),
            restart: Arc::default(),
            machine: SimulatedMachine::new(),
            lives: 0,
            shared: Arc::new(Shared::new(name, host, 0, common)?),
        })
    }

    /// Another process under the same name.
    ///
    /// # Errors
    /// When its name is none.
    pub(crate) fn twin(name: &str, host: Host, rate: Rate, common: &Common) -> anyhow::Result<WorkerHost> {
        // Its actors have numbers of their own.
        Ok(WorkerHost { lives: u64::from(host.0) * 1_000, ..WorkerHost::new(name, host, rate, common)? })
    }

    /// Starts it, the first time or again.
    ///
    /// # Errors
    /// When the system does not give it a runtime.
    pub(crate) fn start(&mut self, common: &Common, seed: u64) -> anyhow::Result<()> {
        self.lives += 1;
        common.net.begin(self.host);
        let process = Process::new(common.time.now(), self.rate, seed)?;
        self.shared = Arc::new(Shared::new(&self.name, self.host, self.lives, common)?);
        (self.leave, self.restart) = (Arc::default(), Arc::default());
        self.machine = SimulatedMachine::new();
        self.told = AtomicBool::new(false);
        let coordinator = Dials::new(&common.net, self.host).coordinator(&common.nodes)?;
        let (name, machine) = (self.name.clone(), self.machine.clone());
        let (leave, restart) = (Arc::clone(&self.leave), Arc::clone(&self.restart));
        let zone = common.zones.get(&name).cloned();
        let (shared, keyspaces) = (Arc::clone(&self.shared), common.keyspaces.clone());
        let random = Arc::new(Mutex::new(Rng::with_seed(seed)));
        process.runtime().spawn(async move {
            let mut builder = Worker::builder(&name)
                .coordinator_over(&coordinator)
                .address(&shared.host.address())
                .shutdown_limit(Some(Duration::from_secs(5)))
                .simulated(&machine);
            if let Some(zone) = &zone {
                builder = builder.label("zone", zone);
            }
            if shared.keys > 0 {
                builder = builder.splittable();
            }
            for keyspace in &keyspaces {
                let (shared, random) = (Arc::clone(&shared), Arc::clone(&random));
                builder = builder.own(keyspace, move |partition| {
                    let random = random.lock().unwrap_or_else(PoisonError::into_inner).fork();
                    Owner { shared: Arc::clone(&shared), partition, random }.run()
                });
            }
            let served = match builder.join().await {
                Ok(worker) => served(worker, &leave, &restart).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                shared.record(What::Note { text: format!("ended: {error}") });
            }
            // A supervisor starts it again.
            shared.ended.store(true, Ordering::Relaxed);
        });
        self.process = Some(process);
        Ok(())
    }

    /// Kills it, or what is left of it when it ended by itself.
    pub(crate) fn kill(&mut self, net: &Net, power: bool) {
        let Some(process) = self.process.take() else { return };
        self.shared.alive.store(false, Ordering::Relaxed);
        net.end(self.host, power);
        self.finish_claims();
        let guard = process.runtime().enter();
        self.shared.owned().clear();
        drop(guard);
        drop(process);
        self.shared.record(What::Died { actor: self.shared.actor.clone() });
    }

    /// Tells it to give everything back and end.
    pub(crate) fn leave(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Whether it was told to end, in this life.
    pub(crate) fn was_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Tells it to give everything back and end, and to say that it comes back.
    pub(crate) fn restart(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.restart.notify_one();
    }

    /// Whether it ended by itself.
    pub(crate) fn ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Its machine was suspended: its timers stood still, its lease did not.
    pub(crate) fn suspended(&mut self, for_ms: u64) {
        if let Some(process) = &mut self.process {
            process.suspended(for_ms);
            self.machine.slept(Duration::from_millis(for_ms));
        }
    }

    /// Asks what it answers for, now.
    pub(crate) fn look(&mut self, now_us: u64) {
        let Some(process) = &self.process else { return };
        let _guard = process.runtime().enter();
        for held in self.shared.owned().iter_mut() {
            if held.partition.is_valid() {
                held.claim.get_or_insert((now_us, now_us)).1 = now_us + 1;
            }
        }
    }

    /// Writes down what it answered for.
    pub(crate) fn finish_claims(&mut self) {
        for held in self.shared.owned().iter_mut() {
            self.shared.finish_claim(held);
        }
    }
}

/// Serves until it is told to leave, or to leave and come back.
async fn served(worker: Worker, leave: &Notify, restart: &Notify) -> Result<(), ringfence::Error> {
    tokio::select! {
        ended = worker.ended() => return ended,
        () = leave.notified() => {}
        () = restart.notified() => return worker.leave_to_restart().await,
    }
    worker.leave().await
}

impl Shared {
    fn new(name: &str, host: Host, life: u64, common: &Common) -> anyhow::Result<Shared> {
        Ok(Shared {
            actor: format!("{name}.{life}"),
            worker: WorkerId::new(name)?,
            host,
            time: common.time.clone(),
            store: common.store.clone(),
            recorder: common.recorder.clone(),
            operations: Arc::clone(&common.operations),
            alive: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            pace: common.pace,
            keys: common.keys,
            tick: common.tick,
            owned: Mutex::default(),
        })
    }

    fn owned(&self) -> MutexGuard<'_, Vec<Held>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish_claim(&self, held: &mut Held) {
        if let Some((from, to)) = held.claim.take() {
            let (scope, epoch) = (held.partition.token().scope().clone(), held.partition.epoch());
            self.record(What::Claims { scope, epoch, from, to });
        }
    }

    fn record(&self, what: What) {
        self.recorder.record(self.time.us(), self.actor.as_str(), what);
    }

    fn operation(&self) -> OpId {
        self.operations.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn ask(&self, request: Request) -> Option<Answer> {
        timeout(PATIENCE, self.store.ask(self.host, request)).await.ok()?.ok()
    }
}

/// Why an owner's task ended by itself.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    NotOwner(#[from] NotOwner),
    #[error("the fence has seen epoch {0:?}")]
    Fenced(Option<Epoch>),
}

/// What became of raising a fence.
enum Raise {
    Done,
    Fenced(Option<Epoch>),
    /// The partition was wanted back before there was an answer.
    Revoked,
}

/// The owner of one partition, under one epoch.
struct Owner {
    shared: Arc<Shared>,
    partition: Ownership,
    random: Rng,
}

/// Writes down that a tenure ended, however it did.
struct Tenure {
    shared: Arc<Shared>,
    partition: Ownership,
    why: Option<Ending>,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !self.shared.alive.load(Ordering::Relaxed) {
            return;
        }
        let (scope, epoch) = (self.partition.token().scope().clone(), self.partition.epoch());
        let why = self.why.unwrap_or(Ending::Lost);
        self.shared.record(What::Ended { scope, epoch, why });
        self.shared.owned().retain_mut(|held| {
            let others = held.partition.token() != self.partition.token();
            if !others {
                self.shared.finish_claim(held);
            }
            others
        });
    }
}

impl Owner {
    async fn run(mut self) -> Result<(), Stopped> {
        let token = self.partition.token().clone();
        let (scope, epoch) = (token.scope().clone(), token.epoch());
        let worker = self.shared.worker.clone();
        self.shared.record(What::Began { scope: scope.clone(), epoch, worker });
        self.shared.owned().push(Held { partition: self.partition.clone(), claim: None });
        let mut tenure =
            Tenure { shared: Arc::clone(&self.shared), partition: self.partition.clone(), why: None };
        let served = self.serve(&token).await;
        tenure.why = Some(match &served {
            Ok(()) if self.partition.is_revoked() => Ending::Revoked,
            Ok(()) => Ending::Returned,
            Err(Stopped::NotOwner(_)) => Ending::Lost,
            Err(Stopped::Fenced(_)) => Ending::Failed,
        });
        served
    }

    /// Raises, reads, says ready, and writes until the partition is wanted back.
    async fn serve(&mut self, token: &FencingToken) -> Result<(), Stopped> {
        let (scope, epoch) = (token.scope().clone(), token.epoch());
        // Of two halves of a partition one may be served long before the other has fenced anybody.
        if self.shared.keys > 0 && self.random.bool() {
            let late = Duration::from_millis(self.random.u64(..2_000));
            self.partition.until_revoked(tokio::time::sleep(late)).await;
        }
        for ancestor in self.partition.ancestors().to_vec() {
            // A fence that has seen a higher epoch of that one is as good.
            match self.raise(&ancestor).await {
                Raise::Done | Raise::Fenced(Some(_)) => {}
                Raise::Fenced(None) => return Err(Stopped::Fenced(None)),
                Raise::Revoked => return Ok(()),
            }
        }
        match self.raise(token).await {
            Raise::Done => {}
            Raise::Fenced(highest) => return Err(Stopped::Fenced(highest)),
            Raise::Revoked => return Ok(()),
        }
        let keys = self.keys();
        for key in &keys {
            while !self.read(key, token).await {
                if self.partition.is_revoked() {
                    return Ok(());
                }
            }
        }
        self.partition.ready().await?;
        self.shared.record(What::Ready { scope, epoch });
        while !self.partition.is_revoked() {
            let looked = self.shared.time.us();
            // The stamp is taken when the operation starts, and carried to its end.
            let stamp = self.partition.stamp()?;
            // Where there is one only, no dice are thrown for it.
            let place = if keys.len() > 1 { self.random.usize(..keys.len()) } else { 0 };
            if let Some(key) = keys.get(place) {
                match self.random.u8(..10) {
                    0 => drop(self.read(key, &stamp).await),
                    1 => self.append_later(key, stamp),
                    _ => self.append(key, stamp).await?,
                }
            }
            let pause = Duration::from_millis(self.random.u64(10..90) * self.shared.pace);
            self.partition.until_revoked(tokio::time::sleep(pause)).await;
            if self.partition.is_revoked() && self.random.u8(..8) == 0 {
                // It takes longer than it may.
                tokio::time::sleep(Duration::from_millis(self.random.u64(100..4_000))).await;
            }
            // A look after what may have been a long pause, before anything else of this process had its turn.
            if self.shared.time.us() > looked + 500_000 && self.partition.is_valid() {
                let (scope, epoch) = (token.scope().clone(), token.epoch());
                self.shared.record(What::Believed { scope, epoch, asked: self.shared.time.us() });
            }
        }
        Ok(())
    }

    /// Raises the fence, as long as it takes.
    async fn raise(&self, token: &FencingToken) -> Raise {
        loop {
            match self.shared.ask(Request::Raise(token.clone())).await {
                Some(Answer::Done) => return Raise::Done,
                Some(Answer::Fenced(highest)) => return Raise::Fenced(Some(highest)),
                Some(_) => return Raise::Fenced(None),
                None if self.partition.is_revoked() => return Raise::Revoked,
                None => {}
            }
        }
    }

    /// The keys that it writes: under one epoch they are always the same, whatever is split meanwhile.
    fn keys(&self) -> Vec<String> {
        if self.shared.keys == 0 {
            return vec![self.partition.token().scope().to_string()];
        }
        let all = (0..self.shared.keys).map(|number| format!("{}:{number}", self.partition.keyspace()));
        all.filter(|key| self.partition.covers(key)).collect()
    }

    /// Reads the list; false when no answer came.
    async fn read(&self, key: &str, token: &FencingToken) -> bool {
        let op = self.shared.operation();
        let token = Some((token.scope().clone(), token.epoch()));
        self.shared.record(What::Invoked { op, key: key.to_owned(), call: Call::Read, token });
        let found = self.shared.ask(Request::Read(key.to_owned())).await;
        let outcome = match found {
            Some(Answer::List(list)) => Outcome::Ok(list),
            _ => Outcome::Unknown,
        };
        let known = outcome != Outcome::Unknown;
        self.shared.record(What::Returned { op, outcome });
        known
    }

    /// Some ticks may pass between the stamp and the write, so that a pause can begin there: nothing looks at the lease again.
    async fn append(&mut self, key: &str, stamp: FencingToken) -> Result<(), Stopped> {
        let op = self.begin_append(key, &stamp);
        let ticks = self.random.u64(0..=3);
        if ticks > 0 {
            tokio::time::sleep(Duration::from_millis(ticks * self.shared.tick)).await;
        }
        match self.shared.finish_append(op, key, stamp).await {
            Some(Answer::Fenced(highest)) => Err(Stopped::Fenced(Some(highest))),
            _ => Ok(()),
        }
    }

    /// A slow hand: an operation that was stamped in time and is sent much later, by nobody who looks at the lease again.
    fn append_later(&mut self, key: &str, stamp: FencingToken) {
        let op = self.begin_append(key, &stamp);
        let late = Duration::from_millis(self.random.u64(100..6_000));
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(late).await;
            shared.finish_append(op, &key, stamp).await;
        });
    }

    fn begin_append(&self, key: &str, stamp: &FencingToken) -> OpId {
        let op = self.shared.operation();
        let token = Some((stamp.scope().clone(), stamp.epoch()));
        self.shared.record(What::Invoked { op, key: key.to_owned(), call: Call::Append(op), token });
        op
    }
}

impl Shared {
    async fn finish_append(&self, op: OpId, key: &str, stamp: FencingToken) -> Option<Answer> {
        let answer = self.ask(Request::Append { op, stamp, key: key.to_owned() }).await;
        let outcome = match &answer {
            Some(Answer::Done) => Outcome::Ok(Vec::new()),
            Some(Answer::Fenced(_) | Answer::Refused) => Outcome::Refused,
            Some(Answer::List(_)) | None => Outcome::Unknown,
        };
        self.record(What::Returned { op, outcome });
        answer
    }
}
