//! The handle of a worker that has joined.

use super::builder::Builder;
use super::tasks::Registry;
use crate::error::{Error, ErrorKind};
use crate::lock::Locks;
use crate::ownership::Ownership;
use ringfence_core::ids::{SessionId, WorkerId};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// What the handle wants of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Serve,
    /// Revoke all, wait for every task, release, leave.
    Leave,
    /// To give everything back, and to come back.
    Restart,
}

/// How it ended; `None` before.
pub(super) type Ending = Option<Result<(), Error>>;

/// A worker that has joined: it is granted partitions, and runs your owner function for each.
///
/// It keeps the lease of all its partitions on a thread of its own, joins anew when a session was lost, and ends only
/// when it is told to, or when going on makes no sense ([`Worker::serve_until`] says why).
///
/// **Dropping it** stops the renewals and nothing else: its tasks are revoked, and aborted when the lease runs out;
/// their partitions go to others after that. To give them back at once use [`Worker::serve_until`] or
/// [`Worker::leave`].
#[must_use = "dropping a worker gives its partitions up; call `serve_until`"]
pub struct Worker {
    id: WorkerId,
    registry: Arc<Registry>,
    wish: watch::Sender<Wish>,
    ending: watch::Receiver<Ending>,
    locks: Locks,
}

impl Worker {
    /// A worker of this stable name, such as its host or its pod. Two processes may not have one name at the same time.
    pub fn builder(id: &str) -> Builder {
        Builder::new(id)
    }

    pub(super) fn new(
        id: WorkerId,
        registry: Arc<Registry>,
        wish: watch::Sender<Wish>,
        ending: watch::Receiver<Ending>,
        locks: Locks,
    ) -> Worker {
        Worker { id, registry, wish, ending, locks }
    }

    /// Its name.
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// The session it has now; `None` between two. For display.
    pub fn session(&self) -> Option<SessionId> {
        self.registry.session()
    }

    /// What its owner functions hold now, in order. An ownership in it may end at any moment, like every other.
    pub fn owned(&self) -> Vec<Ownership> {
        self.registry.owned()
    }

    /// Named locks on this worker's session: its lease is theirs too. They may be used by its owner functions and by anything
    /// else in the process, and are given back when the worker leaves, after its owner functions have returned.
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }

    /// Serves until `signal` is done, then gives everything back: revokes all ownerships, waits for every owner
    /// function to return, releases each partition as its own function returns, and leaves. It never waits for a TTL,
    /// and the lease is renewed all the while. Owners that take longer than [`Builder::shutdown_limit`] are aborted.
    ///
    /// # Errors
    /// Before the signal: [`ErrorKind::DuplicateIdentity`] when another process took the worker's name, or another
    /// reason why a lost session cannot be followed by a new one. After it: [`ErrorKind::NotReleased`] when a task did
    /// not end, the session was lost meanwhile, or the coordinator could not be told; what was not released is left to
    /// the lease.
    pub async fn serve_until(self, signal: impl Future) -> Result<(), Error> {
        tokio::select! {
            _ = signal => self.leave().await,
            ended = ended(self.ending.clone()) => ended,
        }
    }

    /// Waits until it has ended by itself, for whoever decides later how it is to leave:
    ///
    /// ```
    /// # async fn of(worker: ringfence::Worker) -> Result<(), ringfence::Error> {
    /// tokio::select! {
    ///     ended = worker.ended() => return ended,
    ///     _ = ringfence::shutdown_signal() => {}
    /// }
    /// worker.leave_to_restart().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Worker::serve_until`] before its signal.
    pub async fn ended(&self) -> Result<(), Error> {
        ended(self.ending.clone()).await
    }

    /// Gives everything back, now, and says that this worker is about to come back: its process is being restarted.
    ///
    /// Where a keyspace has a `rejoin_hold`, its partitions wait for that long for a worker of this name to join again, and
    /// are granted to it, at a higher epoch; nobody else takes them meanwhile, and nothing else moves. Without one it is
    /// [`Worker::leave`].
    ///
    /// # Errors
    /// As [`Worker::serve_until`].
    pub async fn leave_to_restart(self) -> Result<(), Error> {
        self.wish.send_replace(Wish::Restart);
        ended(self.ending.clone()).await
    }

    /// Gives everything back, now. See [`Worker::serve_until`].
    ///
    /// # Errors
    /// As there.
    pub async fn leave(self) -> Result<(), Error> {
        self.leave_now().await
    }

    /// For a session that several handles have: they all leave with it.
    pub(crate) async fn leave_now(&self) -> Result<(), Error> {
        self.wish.send_replace(Wish::Leave);
        ended(self.ending.clone()).await
    }
}

async fn ended(mut ending: watch::Receiver<Ending>) -> Result<(), Error> {
    match ending.wait_for(Option::is_some).await {
        Ok(ended) => ended.clone().unwrap_or(Ok(())),
        Err(_) => {
            let message = "the worker's own thread ended unexpectedly; its partitions are left to the lease";
            Err(Error::own(ErrorKind::NotReleased, message))
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.id)
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
