//! A session to take locks on.

use super::desk::LockDesk;
use super::efficiency::EfficiencyRequest;
use super::request::{LockRequest, Terms};
use crate::error::{Error, ErrorKind};
use crate::net::{Coordinator, Endpoints};
use crate::testkit::SimulatedMachine;
use crate::worker::Worker;
use ringfence_core::ids::{SessionId, WorkerId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The lease of a session that only takes locks, unless it is told otherwise.
const TTL: Duration = Duration::from_secs(10);

/// Takes named locks, on a worker's session ([`Worker::locks`]) or on one of its own ([`Locks::builder`]).
///
/// Cheap to clone; clones have the session together. **Dropping the last** of a session of its own stops the renewals and nothing
/// else: what is held is held until the lease runs out. To give everything back at once call [`Locks::close`].
#[derive(Clone)]
pub struct Locks {
    desk: LockDesk,
    pub(super) coordinator: Coordinator,
    /// The session, when it is for locks only.
    own: Option<Arc<Worker>>,
}

impl Locks {
    /// A session of its own: where the coordinator is, `http://HOST:PORT`, several separated by commas.
    pub fn builder<E>(endpoints: E) -> Builder
    where
        E: TryInto<Endpoints, Error: Into<Error>>,
    {
        Builder::new(endpoints.try_into().map(Coordinator::new).map_err(Into::into))
    }

    /// The same over connections of your own making.
    pub fn builder_over(coordinator: &Coordinator) -> Builder {
        Builder::new(Ok(coordinator.with_own_connections()))
    }

    pub(crate) fn of_worker(desk: LockDesk, coordinator: Coordinator) -> Locks {
        Locks { desk, coordinator, own: None }
    }

    /// A correctness lock: its guard has a fencing token, and what it guards is safe where the storage checks it. Lock names
    /// match `[a-z0-9][a-z0-9._-]{0,62}`.
    pub fn lock(&self, name: &str) -> LockRequest {
        LockRequest { terms: Terms::new(self.desk.clone(), name) }
    }

    /// An efficiency lock: it saves doing the same work twice, and protects nothing.
    ///
    /// It is the same lock as [`Locks::lock`] of that name, to everybody who asks for it.
    pub fn efficiency(&self, name: &str) -> EfficiencyRequest {
        EfficiencyRequest { terms: Terms::new(self.desk.clone(), name), fail_open: false }
    }

    /// The name under which a session of its own was opened; `None` for a worker's locks.
    pub fn id(&self) -> Option<&WorkerId> {
        self.own.as_ref().map(|own| own.id())
    }

    /// The present session, of a session of its own; `None` between two, and for a worker's locks. For display.
    pub fn session(&self) -> Option<SessionId> {
        self.own.as_ref().and_then(|own| own.session())
    }

    /// Gives everything back that is held on this session, by whichever clone, and leaves. Guards that are there say
    /// [`Why::Released`](super::Why::Released) from here on, and whoever waits for a lock gets an error.
    ///
    /// A worker's locks are closed with the worker; then this does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotReleased`] when the coordinator could not be told: what is left is free when the lease has run out.
    pub async fn close(self) -> Result<(), Error> {
        match &self.own {
            Some(own) => own.leave_now().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("own", &self.own).finish_non_exhaustive()
    }
}

/// A session for locks to be. Nothing is checked before [`Builder::connect`], which names what is wrong.
#[must_use = "nothing happens before `connect`"]
pub struct Builder {
    coordinator: Result<Coordinator, Error>,
    id: Option<String>,
    ttl: Duration,
    worker: Box<dyn FnOnce(crate::worker::Builder) -> crate::worker::Builder + Send>,
}

impl Builder {
    fn new(coordinator: Result<Coordinator, Error>) -> Builder {
        Builder { coordinator, id: None, ttl: TTL, worker: Box::new(|worker| worker) }
    }

    /// The name under which it is shown to operators. Default: `locks-` and 16 random hex digits. Two processes may not have one
    /// name at the same time; the second takes the place of the first when that looks gone.
    pub fn id(mut self, id: &str) -> Builder {
        self.id = Some(id.to_owned());
        self
    }

    /// The lease, 1 s to 10 min; default 10 s. So long at most somebody waits for a holder that has died, and so long a holder
    /// goes on while no coordinator can be reached.
    pub fn ttl(mut self, ttl: Duration) -> Builder {
        self.ttl = ttl;
        self
    }

    /// Where this process is reached: shown to those who find a lock held, and to those who follow an election. At most 255
    /// bytes.
    pub fn address(self, address: &str) -> Builder {
        let address = address.to_owned();
        self.with(move |worker| worker.address(&address))
    }

    /// A health check of the application: while it says no, the lease is not renewed. See
    /// [`worker::Builder::health`](crate::worker::Builder::health).
    pub fn health(self, healthy: impl Fn() -> bool + Send + Sync + 'static) -> Builder {
        self.with(|worker| worker.health(healthy))
    }

    /// How long [`Builder::connect`] looks for a coordinator before it fails. Default 10 s.
    pub fn connect_within(self, within: Duration) -> Builder {
        self.with(move |worker| worker.join_within(within))
    }

    /// Runs it in a simulation: see [`SimulatedMachine`].
    pub fn simulated(self, machine: &SimulatedMachine) -> Builder {
        let machine = machine.clone();
        self.with(move |worker| worker.simulated(&machine))
    }

    #[cfg(test)]
    pub(crate) fn clock(self, clock: crate::clock::Clock) -> Builder {
        self.with(move |worker| worker.clock(clock))
    }

    fn with(
        mut self,
        more: impl FnOnce(crate::worker::Builder) -> crate::worker::Builder + Send + 'static,
    ) -> Builder {
        let before = self.worker;
        self.worker = Box::new(move |worker| more(before(worker)));
        self
    }

    /// Opens the session. Renewals run on a thread of their own.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] names the setting and its bound. [`ErrorKind::DuplicateIdentity`] when a live process has the
    /// name. Otherwise as any call to the coordinator.
    pub async fn connect(self) -> Result<Locks, Error> {
        let id = match self.id {
            Some(id) => id,
            None => random_id()?,
        };
        let worker = Worker::builder(&id).coordinator_over(&self.coordinator?).only_locks(self.ttl);
        let worker = (self.worker)(worker).join().await?;
        let locks = worker.locks();
        Ok(Locks { own: Some(Arc::new(worker)), ..locks })
    }
}

fn random_id() -> Result<String, Error> {
    let number = getrandom::u64().map_err(|error| {
        let message =
            format!("the system gave no random bytes ({error}) to make a name of; give one with `id`");
        Error::own(ErrorKind::Refused, message)
    })?;
    Ok(format!("locks-{number:016x}"))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("id", &self.id).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
