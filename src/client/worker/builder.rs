//! What a worker is made of.

use super::drill::{self, Probe, Probed};
use super::handle::Worker;
use super::keeper::{Keeper, LivesOn};
use super::owner::Owner;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fence::{DeclaredFence, FencingToken};
use crate::net::{Coordinator, Endpoints};
use crate::ownership::Ownership;
use crate::testkit::SimulatedMachine;
use ringfence_core::ids::{KeyspaceName, WorkerId};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

/// The longest address, in bytes.
const MAX_ADDRESS_BYTES: usize = 255;
/// How many labels, and how long a key or a value may be, in bytes.
const MAX_LABELS: usize = 32;
const MAX_LABEL_BYTES: usize = 63;
/// The largest weight.
const MAX_WEIGHT: u32 = 10_000;

/// A worker to be: its name, where the coordinator is, and the keyspaces it serves.
///
/// Nothing is checked before [`Builder::join`], which names what is wrong.
#[must_use = "nothing happens before `join`"]
pub struct Builder {
    id: String,
    coordinator: Option<Result<Coordinator, Error>>,
    address: String,
    weight: u32,
    labels: BTreeMap<String, String>,
    splittable: bool,
    owners: Vec<Result<Owner, Error>>,
    probes: Vec<Result<(KeyspaceName, Probe), Error>>,
    health: Option<Health>,
    shutdown_limit: Option<Duration>,
    join_within: Duration,
    /// It only takes locks, under a lease of this length.
    only_locks: Option<Duration>,
    clock: Clock,
    simulated: Option<SimulatedMachine>,
}

/// Says whether the process deserves to be renewed for.
pub(super) type Health = Arc<dyn Fn() -> bool + Send + Sync>;

/// A worker as it joins, checked.
pub(super) struct Profile {
    pub(super) id: WorkerId,
    pub(super) address: String,
    pub(super) weight: u32,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) splittable: bool,
    pub(super) owners: BTreeMap<KeyspaceName, Owner>,
    /// The keyspaces of which drills are allowed.
    pub(super) probes: BTreeMap<KeyspaceName, Probe>,
    pub(super) health: Option<Health>,
    pub(super) shutdown_limit: Option<Duration>,
    pub(super) join_within: Duration,
    /// The longest lease that it wants.
    pub(super) ttl: Option<Duration>,
}

impl Builder {
    pub(super) fn new(id: &str) -> Builder {
        Builder {
            id: id.to_owned(),
            coordinator: None,
            address: String::new(),
            weight: 1,
            labels: BTreeMap::new(),
            splittable: false,
            owners: Vec::new(),
            probes: Vec::new(),
            health: None,
            // Kubernetes kills after 30 s; a worker that is killed makes others wait for its lease.
            shutdown_limit: Some(Duration::from_secs(25)),
            join_within: Duration::from_secs(10),
            only_locks: None,
            clock: Clock::Machine,
            simulated: None,
        }
    }

    /// Where the coordinator is: `http://HOST:PORT`, several separated by commas. One that is up is enough, the others
    /// are learnt.
    pub fn coordinator<E>(mut self, endpoints: E) -> Builder
    where
        E: TryInto<Endpoints, Error: Into<Error>>,
    {
        self.coordinator = Some(endpoints.try_into().map(Coordinator::new).map_err(Into::into));
        self
    }

    /// The coordinator over connections of your own making.
    pub fn coordinator_over(mut self, coordinator: &Coordinator) -> Builder {
        self.coordinator = Some(Ok(coordinator.with_own_connections()));
        self
    }

    /// Where callers reach this worker: shown by routers, never used by the SDK. At most 255 bytes.
    pub fn address(mut self, address: &str) -> Builder {
        address.clone_into(&mut self.address);
        self
    }

    /// The worker's share of the partitions relative to others, 1 to 10000. Default 1.
    pub fn weight(mut self, weight: u32) -> Builder {
        self.weight = weight;
        self
    }

    /// A label, such as `zone`. At most 32, keys and values of at most 63 bytes.
    pub fn label(mut self, key: &str, value: &str) -> Builder {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The partitions of the worker's keyspaces may be split: its owner functions ask [`Ownership::covers`] of every key that
    /// they are called with, and one that opens stores itself raises them to each of [`Ownership::ancestors`] too.
    ///
    /// A caller whose map is old sends a key to the partition that had it before. An owner that does not ask would write it
    /// beside the key's new owner, under a token that is good. So a keyspace is split only when every worker that serves it
    /// has said this, and none that has not said it can join one that was.
    pub fn splittable(mut self) -> Builder {
        self.splittable = true;
        self
    }

    /// Serves a keyspace: `owner` is called for each partition that is granted, and owns it until it returns.
    ///
    /// It opens its store under [`Ownership::token`], which raises the store's fence before anything is read, says
    /// [`Ownership::ready`], works, and returns when [`Ownership::revoked`]. How it ends decides what is next:
    ///
    /// | it | the partition |
    /// |---|---|
    /// | returns after it was revoked | goes to the next owner at once |
    /// | returns by itself | is released; this worker gets it again after a back-off |
    /// | fails, or panics | is released as failed: the next grant waits 1 s, doubled up to 60 s, and goes to another worker |
    /// | is lost | is gone; the task is aborted at its next `await` |
    ///
    /// Never two tasks of one partition run at once in a worker. Blocking work belongs on a thread; a task that
    /// blocks its executor for half a TTL stops the renewals.
    ///
    /// The keyspace is the one of that name when the session is opened. When it is deleted and created again, a worker
    /// that runs must be restarted (or join anew) to serve the new one. The same goes for its rule of takeover: a
    /// session keeps the one it joined with.
    pub fn own<F, Fut, E>(self, keyspace: &str, owner: F) -> Builder
    where
        F: Fn(Ownership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.own_fenced(keyspace, [], owner)
    }

    /// [`Builder::own`], and all of these fences are raised to the new epoch before `owner` is called. Declare every
    /// storage that the owner reads or writes, unless it raises them itself before it reads any.
    pub fn own_fenced<F, Fut, E>(
        mut self,
        keyspace: &str,
        fences: impl IntoIterator<Item = DeclaredFence>,
        owner: F,
    ) -> Builder
    where
        F: Fn(Ownership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let fences = fences.into_iter().collect();
        let name = KeyspaceName::new(keyspace).map_err(Error::from);
        self.owners.push(name.map(|name| Owner::new(name, fences, owner)));
        self
    }

    /// Allows drills of a keyspace that the worker serves: `ringfence drill` then replaces an owner on purpose, and sends
    /// a write that it had stamped before, to see your storage refuse it.
    ///
    /// `probe` makes one harmless write with the token it is given, where and how the owner writes, and says what the
    /// storage answered. A drill calls it twice: once under the current epoch, which must be accepted, and once when a
    /// newer owner is ready, which must be refused. It has 10 s, and runs on the runtime of [`Builder::join`]. An error
    /// means that nobody knows what became of the write.
    ///
    /// Without this the worker takes part in no drill. With it, whoever may operate the cluster may have a partition
    /// moved from this worker, or with `--stall` have the worker lose its lease.
    ///
    /// ```
    /// use ringfence::Worker;
    /// use ringfence::fence::MemoryFence;
    /// use ringfence::worker::Probed;
    /// # use ringfence::ids::ClusterId;
    /// # let fence = MemoryFence::new(ClusterId::new("test")?);
    ///
    /// let worker = Worker::builder("worker-1")
    ///     .coordinator("http://127.0.0.1:7600")
    ///     .own("orders", |partition| async move { partition.ready().await })
    ///     .allow_drill("orders", move |stamp| {
    ///         let fence = fence.clone();
    ///         async move { Probed::from_fence(fence.guarded(&stamp, || { /* one row in a table of its own */ })) }
    ///     });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_drill<F, Fut, E>(mut self, keyspace: &str, probe: F) -> Builder
    where
        F: Fn(FencingToken) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Probed, E>> + Send + 'static,
        E: Display,
    {
        let name = KeyspaceName::new(keyspace).map_err(Error::from);
        self.probes.push(name.map(|name| (name, drill::boxed(probe))));
        self
    }

    /// A health check of the application: while it says no, the lease is not renewed, and a worker that stays ill loses
    /// its partitions to others. Called before each renewal, six times a TTL, on the SDK's own thread; one that blocks
    /// counts as no.
    pub fn health(mut self, healthy: impl Fn() -> bool + Send + Sync + 'static) -> Builder {
        self.health = Some(Arc::new(healthy));
        self
    }

    /// How long owners may take to end when the worker is shut down; then their tasks are aborted. Default 25 s.
    /// `None` waits without a limit.
    ///
    /// A coordinator that cannot be reached is waited for no longer than that either: the shutdown ends at most about
    /// two seconds after the limit, with [`ErrorKind::NotReleased`] when something could not be told.
    pub fn shutdown_limit(mut self, limit: Option<Duration>) -> Builder {
        self.shutdown_limit = limit;
        self
    }

    /// How long [`Builder::join`] looks for a coordinator before it fails. Default 10 s.
    pub fn join_within(mut self, within: Duration) -> Builder {
        self.join_within = within;
        self
    }

    /// Runs the worker in a simulation: see [`SimulatedMachine`].
    pub fn simulated(mut self, machine: &SimulatedMachine) -> Builder {
        self.simulated = Some(machine.clone());
        self
    }

    /// A worker that serves no keyspace.
    pub(crate) fn only_locks(mut self, ttl: Duration) -> Builder {
        self.only_locks = Some(ttl);
        self
    }

    #[cfg(test)]
    pub(crate) fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Opens a session. From here on partitions are granted and owners run, on the runtime of this call.
    ///
    /// An earlier session of the same worker id is replaced when its process looks gone; its partitions come back with
    /// higher epochs when its lease has run out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] names the setting and its bound. [`ErrorKind::DuplicateIdentity`] when a live process
    /// holds the worker id: [`Error::identities`] has both addresses. [`ErrorKind::NotFound`] when a keyspace does not
    /// exist. Otherwise as any call to the coordinator.
    pub async fn join(self) -> Result<Worker, Error> {
        let (clock, lives_on) = match &self.simulated {
            Some(machine) => (machine.clock(), LivesOn::Runtime),
            None => (self.clock.clone(), LivesOn::Thread),
        };
        let (profile, coordinator) = self.check()?;
        Keeper::start(Arc::new(profile), coordinator, clock, lives_on).await
    }

    fn check(self) -> Result<(Profile, Coordinator), Error> {
        let invalid = |why: String| Error::own(ErrorKind::Invalid, why);
        let id = WorkerId::new(&self.id)?;
        let coordinator = self.coordinator.unwrap_or_else(|| {
            Err(invalid("a worker needs a coordinator: give its endpoints, http://HOST:PORT".to_owned()))
        })?;
        if self.address.len() > MAX_ADDRESS_BYTES || self.address.chars().any(char::is_control) {
            return Err(invalid(format!(
                "address: it has at most {MAX_ADDRESS_BYTES} bytes and no control character"
            )));
        }
        if !(1..=MAX_WEIGHT).contains(&self.weight) {
            return Err(invalid(format!("weight {} is out of bounds: it is 1 to {MAX_WEIGHT}", self.weight)));
        }
        let fits = |text: &str| text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control);
        let good = |(key, value): (&String, &String)| !key.is_empty() && fits(key) && fits(value);
        if self.labels.len() > MAX_LABELS || !self.labels.iter().all(good) {
            return Err(invalid(format!(
                "labels: there are at most {MAX_LABELS}, and a key or a value has at most {MAX_LABEL_BYTES} bytes and \
                 no control character"
            )));
        }
        let mut owners = BTreeMap::new();
        for owner in self.owners {
            let owner = owner?;
            if let Some(twice) = owners.insert(owner.keyspace.clone(), owner) {
                return Err(invalid(format!(
                    "keyspace {} has two owner functions: give it one",
                    twice.keyspace
                )));
            }
        }
        if owners.is_empty() && self.only_locks.is_none() {
            return Err(invalid("a worker serves at least one keyspace: call `own`".to_owned()));
        }
        let mut probes = BTreeMap::new();
        for probe in self.probes {
            let (keyspace, probe) = probe?;
            if !owners.contains_key(&keyspace) {
                return Err(invalid(format!(
                    "drills of keyspace {keyspace} are allowed, and the worker does not serve it: call `own` for it"
                )));
            }
            if probes.insert(keyspace.clone(), probe).is_some() {
                return Err(invalid(format!("keyspace {keyspace} has two probes for drills: give it one")));
            }
        }
        let profile = Profile {
            id,
            address: self.address,
            weight: self.weight,
            labels: self.labels,
            splittable: self.splittable,
            owners,
            probes,
            health: self.health,
            shutdown_limit: self.shutdown_limit,
            join_within: self.join_within,
            ttl: self.only_locks,
        };
        Ok((profile, coordinator))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("id", &self.id).finish_non_exhaustive()
    }
}
