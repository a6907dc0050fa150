//! One task for each ownership, from grant to release.
//!
//! Tasks run on the application's runtime and are watched from here. They outlive sessions when they must: a task that
//! does not end is waited for before another of the same partition starts.

use super::owner::{Ended, Owner};
use super::wire::Place;
use crate::ownership::{Ownership, Phase, Tenure, Why};
use ringfence_core::ids::{Epoch, SessionId};
use ringfence_core::mutant;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// What the worker's handle shows: the session, and what has a task. Written by the keeper.
#[derive(Default)]
pub(super) struct Registry {
    session: Mutex<Option<SessionId>>,
    owned: Mutex<BTreeMap<Place, Arc<Tenure>>>,
}

impl Registry {
    pub(super) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_session(&self, session: Option<SessionId>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// What the owner functions have been given, and still hold.
    pub(super) fn owned(&self) -> Vec<Ownership> {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = |tenure: &&Arc<Tenure>| (Phase::Loading..Phase::Ended).contains(&tenure.phase());
        owned.values().filter(begun).map(|tenure| Ownership::new(Arc::clone(tenure))).collect()
    }
}

/// The tasks of a worker.
pub(super) struct Tasks {
    registry: Arc<Registry>,
    set: JoinSet<Result<(), Ended>>,
    running: HashMap<Id, Running>,
    by_place: BTreeMap<Place, Id>,
}

struct Running {
    place: Place,
    tenure: Arc<Tenure>,
    abort: AbortHandle,
    /// It was aborted from here.
    aborted: bool,
}

/// A task that has ended.
pub(super) struct Finished {
    pub(super) place: Place,
    pub(super) tenure: Arc<Tenure>,
    pub(super) how: How,
}

/// How a task ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum How {
    Returned,
    /// With an error.
    Failed(String),
    /// It was not called: storage has seen this epoch, which is above its own.
    Behind(Epoch, String),
    /// With a panic.
    Panicked(String),
    /// It was aborted from here.
    Aborted,
    /// It was dropped by somebody else: the runtime was shut down.
    Dropped,
}

impl Tasks {
    pub(super) fn new(registry: Arc<Registry>) -> Tasks {
        Tasks { registry, set: JoinSet::new(), running: HashMap::new(), by_place: BTreeMap::new() }
    }

    /// Starts the task of a tenure. There must be none of its partition.
    pub(super) fn start(&mut self, runtime: &Handle, place: Place, tenure: Arc<Tenure>, owner: Owner) {
        let ownership = Ownership::new(Arc::clone(&tenure));
        let own = Arc::clone(&tenure);
        let task = async move {
            // Every fence before anything is read.
            own.enter(Phase::Fencing);
            if mutant!("raise-after-read") {
                own.enter(Phase::Loading);
                return tokio::try_join!(owner.run(ownership), owner.raise(own.token())).map(drop);
            }
            if mutant!("parent-raised-after-read") {
                own.enter(Phase::Loading);
                let late = owner.raise_ancestors(own.ancestors());
                return tokio::try_join!(owner.run(ownership), late).map(drop);
            }
            if !mutant!("read-before-raise") {
                owner.raise_ancestors(own.ancestors()).await?;
                owner.raise(own.token()).await?;
            }
            own.enter(Phase::Loading);
            owner.run(ownership).await
        };
        let abort = self.set.spawn_on(task, runtime);
        let mut owned = self.registry.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.insert(place.clone(), Arc::clone(&tenure));
        drop(owned);
        self.by_place.insert(place.clone(), abort.id());
        self.running.insert(abort.id(), Running { place, tenure, abort, aborted: false });
    }

    /// The epoch of the task that runs for a partition, if one does.
    pub(super) fn epoch_of(&self, place: &Place) -> Option<Epoch> {
        let running = self.running.get(self.by_place.get(place)?)?;
        Some(running.tenure.token().epoch())
    }

    /// Whether the task of this tenure runs.
    pub(super) fn runs(&self, place: &Place, epoch: Epoch) -> bool {
        self.epoch_of(place) == Some(epoch)
    }

    /// What has not ended.
    pub(super) fn running(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.by_place.keys()
    }

    /// Aborts a task at its next `await`. One that blocks goes on; it is not taken for ended before it has.
    pub(super) fn abort(&mut self, place: &Place) {
        if let Some(running) = self.by_place.get(place).and_then(|id| self.running.get_mut(id)) {
            running.aborted = true;
            running.abort.abort();
        }
    }

    /// Aborts them all.
    pub(super) fn abort_all(&mut self) {
        for running in self.running.values_mut() {
            running.aborted = true;
            running.abort.abort();
        }
    }

    /// Tells all of them to end.
    pub(super) fn revoke_all(&self) {
        for running in self.running.values() {
            running.tenure.enter(Phase::Revoked);
        }
    }

    /// Waits for a task to end; for ever when there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Finished {
        loop {
            let Some(ended) = self.set.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let (id, result) = match ended {
                Ok((id, result)) => (id, Ok(result)),
                Err(error) => (error.id(), Err(error)),
            };
            let Some(Running { place, tenure, aborted, .. }) = self.running.remove(&id) else { continue };
            self.by_place.remove(&place);
            self.registry.owned.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
            return Finished { place, tenure, how: how(result, aborted) };
        }
    }
}

/// The thread that watches is going. Its tasks are dropped with it, and what they own is over: nobody will renew it.
impl Drop for Tasks {
    fn drop(&mut self) {
        for running in self.running.values() {
            running.tenure.end(Why::Expired);
        }
    }
}

fn how(result: Result<Result<(), Ended>, JoinError>, aborted: bool) -> How {
    match result {
        Ok(Ok(())) => How::Returned,
        Ok(Err(Ended::Failed(error))) => How::Failed(error),
        Ok(Err(Ended::Behind(seen, error))) => How::Behind(seen, error),
        Err(error) if error.is_panic() => {
            let payload = error.into_panic();
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or(payload.downcast_ref::<String>().map(String::as_str));
            How::Panicked(format!("panicked: {}", text.unwrap_or("without a message")))
        }
        Err(_) if aborted => How::Aborted,
        Err(_) => How::Dropped,
    }
}
