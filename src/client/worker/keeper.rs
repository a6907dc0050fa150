//! What keeps a worker's session, on a thread of its own: joins, and joins anew after a loss.

use super::builder::Profile;
use super::drill::Drilling;
use super::handle::{Ending, Wish, Worker};
use super::host::Host;
use super::life::{Caller, End, Life, Return};
use super::outbox::{Item, Outbox, Sent};
use super::session::{JoinKey, Session, join};
use super::tasks::{Registry, Tasks};
use super::wire::{LockKey, Place};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::lock::Locks;
use crate::lock::desk::{Command, LockDesk};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, worker};
use crate::ownership::{Desk, Tenure, Why};
use ringfence_api::v1::LeaveRequest;
use ringfence_core::ids::{ClusterId, Epoch};
use ringfence_core::mutant;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

/// How long a task that was aborted may take to end before it counts as stuck. An async task ends at its next `await`.
pub(super) const ABORT_GRACE: Duration = Duration::from_secs(1);

/// How long a coordinator that may not be there is given for the last word of a worker that is not wanted any more.
pub(super) const LAST_WORD: Duration = Duration::from_secs(1);

/// What lives as long as the worker, across its sessions.
pub(super) struct Keeper {
    pub(super) profile: Arc<Profile>,
    pub(super) coordinator: Coordinator,
    pub(super) clock: Clock,
    pub(super) host: Host,
    pub(super) tasks: Tasks,
    pub(super) registry: Arc<Registry>,
    /// Owners that said they are ready. Each ownership says it once, so what waits is bounded by what is owned.
    pub(super) ready: mpsc::UnboundedReceiver<(Place, Epoch)>,
    pub(super) desk: Arc<ReadyDesk>,
    /// What is wanted of locks; also between two sessions, for the next one.
    pub(super) lock_commands: mpsc::UnboundedReceiver<Command>,
    pub(super) lock_desk: LockDesk,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) drilling: Drilling,
}

/// Where a keeper runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LivesOn {
    /// On a thread of its own, which a busy executor does not hold up.
    Thread,
    /// On the runtime of the owners: in a simulation, where threads would not be deterministic.
    Runtime,
}

/// Where owners say that they are ready.
pub(super) struct ReadyDesk(mpsc::UnboundedSender<(Place, Epoch)>);

impl Desk for ReadyDesk {
    fn say_ready(&self, tenure: &Tenure) {
        let place = Place { keyspace: tenure.keyspace().clone(), partition: tenure.partition() };
        // When the keeper has gone, the ownership has ended or ends with its lease; whoever waits learns it so.
        let _ = self.0.send((place, tenure.token().epoch()));
    }
}

/// A session that is over.
pub(super) struct Lost {
    pub(super) session: Session,
    /// The coordinator has said so. Otherwise the lease ran out here, and the session may live on there.
    pub(super) confirmed: bool,
    /// Releases of what was held when the lease ran out, and what else was given back and not told.
    pub(super) owed: Vec<Item>,
    /// The same of locks.
    pub(super) owed_locks: Vec<(LockKey, Return)>,
    /// How many partitions were lost with it, or given back without the coordinator's knowing.
    pub(super) partitions: usize,
}

impl Keeper {
    /// Joins, on a thread of its own unless it is simulated; returns when the session is open.
    pub(super) async fn start(
        profile: Arc<Profile>,
        coordinator: Coordinator,
        clock: Clock,
        lives_on: LivesOn,
    ) -> Result<Worker, Error> {
        let runtime = Handle::try_current().map_err(|_| {
            let message = "owners run on the tokio runtime in which a worker joins, and there is none here";
            Error::own(ErrorKind::Invalid, message)
        })?;
        let (lock_desk, lock_commands) = LockDesk::new(clock.clone(), runtime.clone());
        let host = Host::new(runtime, clock.clone(), profile.health.clone());
        let registry = Arc::new(Registry::default());
        let (wish, wishes) = watch::channel(Wish::Serve);
        let (ended, ending) = watch::channel(None);
        let (joined, answer) = oneshot::channel();
        let (said, ready) = mpsc::unbounded_channel();
        let keeper = Keeper {
            profile: Arc::clone(&profile),
            // A connection belongs to the runtime that made it.
            coordinator: coordinator.with_own_connections(),
            clock,
            host,
            tasks: Tasks::new(Arc::clone(&registry)),
            registry: Arc::clone(&registry),
            ready,
            desk: Arc::new(ReadyDesk(said)),
            lock_commands,
            lock_desk: lock_desk.clone(),
            wish: wishes,
            drilling: Drilling::default(),
        };
        match lives_on {
            LivesOn::Thread => run_on_thread(keeper, joined, ended).map_err(|error| no_thread(&error))?,
            LivesOn::Runtime => drop(tokio::spawn(async move { keeper.run(joined, &ended).await })),
        }
        match answer.await {
            Ok(joined) => joined?,
            Err(_) => {
                return Err(Error::own(ErrorKind::NotReleased, "the worker's own thread ended unexpectedly"));
            }
        }
        let locks = Locks::of_worker(lock_desk, coordinator.with_own_connections());
        Ok(Worker::new(profile.id.clone(), registry, wish, ending, locks))
    }

    async fn run(mut self, joined: oneshot::Sender<Result<(), Error>>, ended: &watch::Sender<Ending>) {
        let session = match self.first_join().await {
            Ok(session) => session,
            Err(error) => return drop(joined.send(Err(error))),
        };
        self.registry.set_session(Some(session.id));
        if joined.send(Ok(())).is_err() {
            // Whoever joined has given up meanwhile.
            let _ = self.leave(&session, Duration::from_secs(5)).await;
            return;
        }
        let result = self.keep(session).await;
        self.registry.set_session(None);
        if let Err(error) = &result {
            tracing::error!(worker = %self.profile.id, %error, "the worker has ended");
        }
        ended.send_replace(Some(result));
    }

    async fn first_join(&self) -> Result<Session, Error> {
        join(&self.profile, &self.coordinator, &JoinKey::draw()?, None, true).await
    }

    /// One session after the other.
    async fn keep(&mut self, mut session: Session) -> Result<(), Error> {
        loop {
            tracing::info!(worker = %self.profile.id, session = %session.id, ttl = ?session.timing.ttl(), "joined");
            self.registry.set_session(Some(session.id));
            let lost = match Life::new(self, session).run().await {
                End::Left(result) => return result,
                End::Abandoned => return Ok(()),
                End::Lost(lost) => lost,
            };
            self.registry.set_session(None);
            self.stand_still().await;
            let (cluster, partitions) = (lost.session.cluster.clone(), lost.partitions);
            self.bury(lost).await;
            if !self.serves() && partitions + self.tasks.running().len() == 0 {
                return Ok(());
            }
            if !self.serves() {
                return self.not_released("the session was lost while tasks were ending");
            }
            session = match self.rejoin(&cluster).await {
                Some(result) => result?,
                None => return Ok(()),
            };
        }
    }

    /// A drill that plays a process which stands still: nothing is told and no session opened before it is over, as far
    /// as the worker is wanted.
    async fn stand_still(&mut self) {
        let now = self.clock.now();
        let mut wish = self.wish.clone();
        tokio::select! {
            () = self.drilling.stall_over(now) => return,
            // An error, too, says so: the handle was dropped.
            _ = wish.wait_for(|wish| *wish != Wish::Serve) => {}
        }
        self.drilling.cancel();
    }

    /// Ends what is left of a session that was lost: its tasks, which were aborted, and its record at the
    /// coordinator, so that what can be released need not wait for a lease, and a rejoin never stands against a live
    /// session. As long as it takes while the worker serves; a shutdown does not wait for it.
    async fn bury(&mut self, lost: Lost) {
        // A task of an earlier session that is stuck must not hold this up longer than the grace.
        let ending = async {
            while self.tasks.running().len() > 0 {
                self.tasks.next().await.tenure.end(Why::Expired);
            }
        };
        let _ = timeout(ABORT_GRACE, ending).await;
        if lost.confirmed || self.is_abandoned() {
            return;
        }
        let Lost { session, owed, owed_locks, .. } = lost;
        let owed: Vec<Item> =
            owed.into_iter().filter(|item| !self.tasks.runs(&item.place, item.epoch)).collect();
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let mut told = owed.is_empty() && owed_locks.is_empty();
        loop {
            let last_words = async {
                let told = told
                    || (self.tell(&session, owed.clone()).await
                        && self.tell_of_locks(&session, &owed_locks).await);
                (told, told && self.leave(&session, session.timing.ttl()).await.is_ok())
            };
            let Some((now_told, left)) = self.while_wanted(last_words).await else { return };
            told = now_told;
            if left || !self.serves() || self.pause(backoff.wait()).await.is_break() {
                return;
            }
        }
    }

    /// Makes a call, which is given up a moment after the worker is not wanted any more.
    async fn while_wanted<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let mut wish = self.wish.clone();
        let mut call = std::pin::pin!(call);
        tokio::select! {
            done = &mut call => return Some(done),
            // An error, too, says so: the handle was dropped.
            _ = wish.wait_for(|wish| *wish != Wish::Serve) => {}
        }
        timeout(LAST_WORD, call).await.ok()
    }

    /// Releases what a lost session held, as far as its tasks have ended. True when the coordinator knows.
    async fn tell(&self, session: &Session, owed: Vec<Item>) -> bool {
        let mut outbox = Outbox::new(self.coordinator.clone(), session);
        owed.into_iter().for_each(|item| outbox.push(item));
        while !outbox.is_empty() {
            match outbox.next().await {
                Sent::Known(_) => {}
                Sent::SessionOver { .. } => return true,
                Sent::Delayed => return false,
            }
        }
        true
    }

    /// Gives the locks of a lost session back. True when the coordinator knows.
    async fn tell_of_locks(&self, session: &Session, owed: &[(LockKey, Return)]) -> bool {
        let caller = Caller::new(self.coordinator.clone(), session);
        for (key, how) in owed {
            match caller.give_back(key, *how).await {
                Err(error) if error.is_retryable() || error.kind() == ErrorKind::UnknownOutcome => {
                    return false;
                }
                // What the coordinator refuses it would refuse again.
                Ok(()) | Err(_) => {}
            }
        }
        true
    }

    /// Joins anew, as long as it takes; `None` when the worker is not wanted any more.
    async fn rejoin(&mut self, cluster: &ClusterId) -> Option<Result<Session, Error>> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        // One for all tries: a try whose answer was lost has opened a session, and the next must not stand against it.
        let key = match JoinKey::draw() {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        while self.serves() {
            let replace = mutant!("rejoin-replaces");
            let joining = join(&self.profile, &self.coordinator, &key, Some(cluster), replace);
            let error = match self.while_wanted(joining).await? {
                Ok(session) => return Some(Ok(session)),
                Err(error) => error,
            };
            // A session that an earlier try opened may have ended before this one found it.
            let passes = error.is_retryable()
                || matches!(
                    error.kind(),
                    ErrorKind::UnknownOutcome | ErrorKind::Limit | ErrorKind::SessionEnded
                );
            if !passes {
                return Some(Err(error));
            }
            tracing::warn!(%error, "no new session yet");
            if self.pause(backoff.wait()).await.is_break() {
                return None;
            }
        }
        None
    }

    /// Waits, unless the worker is not wanted any more.
    async fn pause(&mut self, wait: Duration) -> std::ops::ControlFlow<()> {
        tokio::select! {
            () = sleep(wait) => std::ops::ControlFlow::Continue(()),
            _ = self.wish.changed() => std::ops::ControlFlow::Break(()),
        }
    }

    /// The worker is wanted: its handle is there and has not said otherwise.
    pub(super) fn serves(&self) -> bool {
        self.wish.has_changed().is_ok() && *self.wish.borrow() == Wish::Serve
    }

    /// The handle was dropped, or the runtime of the tasks is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.host.is_gone() || (self.wish.has_changed().is_err() && *self.wish.borrow() == Wish::Serve)
    }

    /// Ends the session at the coordinator. A session that has ended already is left.
    pub(super) async fn leave(&self, session: &Session, within: Duration) -> Result<(), Error> {
        let request = LeaveRequest { session: session.id.get(), secret: session.secret.bytes().into() };
        let call = Call::new(Route::Leader, Effect::Repeatable).within(within);
        let answer = self
            .coordinator
            .call(call, |channel| {
                let request = request.clone();
                async move { worker(channel).leave(request).await }
            })
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::SessionEnded | ErrorKind::WrongSecret) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The outcome of a shutdown that could not give everything back.
    pub(super) fn not_released(&self, why: &str) -> Result<(), Error> {
        const SHOWN: usize = 8;
        let stuck: Vec<String> = self.tasks.running().take(SHOWN).map(ToString::to_string).collect();
        let more = self.tasks.running().len() - stuck.len();
        let mut message =
            format!("{why}; what was not released is left to the lease and goes to others after it");
        if !stuck.is_empty() {
            message.push_str(&format!(" (tasks that did not end: {}", stuck.join(", ")));
            message.push_str(&if more > 0 { format!(" and {more} more)") } else { ")".to_owned() });
        }
        Err(Error::own(ErrorKind::NotReleased, message))
    }
}

fn run_on_thread(
    keeper: Keeper,
    joined: oneshot::Sender<Result<(), Error>>,
    ended: watch::Sender<Ending>,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("ringfence".to_owned());
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(keeper.run(joined, &ended)),
        Err(error) => drop(joined.send(Err(no_thread(&error)))),
    };
    thread.spawn(run).map(drop)
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::own(ErrorKind::Refused, format!("the thread that renews the lease could not be started: {error}"))
}
