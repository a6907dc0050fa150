//! Who holds one lock, now and whenever that changes.
//!
//! Nothing is queued: a stream is woken when something was applied, looks at the lock, and sends what is there now if it is
//! not what it sent last. So whoever does not read costs nobody anything, and finds the latest.

use super::Locks;
use crate::admin::Pieces;
use crate::contact::Contact;
use crate::replica::Local;
use futures_util::stream;
use ringfence_api::Failure;
use ringfence_api::convert::{LockHolder, MAX_LOCK_TOLD, checked};
use ringfence_api::v1::{self, ObserveLockRequest, ObserveLockResponse};
use ringfence_core::ids::{Epoch, LockName, LogIndex, SessionId};
use tokio::sync::watch;

/// Opens the stream, when this node hears of a leader.
pub(super) fn observe(
    locks: &Locks,
    request: &ObserveLockRequest,
) -> Result<Pieces<ObserveLockResponse>, Failure> {
    let name = checked::lock_name("lock", &request.lock)?;
    let applied = locks.context.replica.applied();
    let observer =
        Observer { locks: locks.clone(), contact: locks.contact.clone(), applied, name, told: None };
    observer.in_touch()?;
    Ok(Box::pin(stream::unfold(Some(observer), |observer| async {
        let mut observer = observer?;
        match observer.next().await {
            Ok(response) => Some((Ok(response), Some(observer))),
            Err(failure) => Some((Err(failure.into()), None)),
        }
    })))
}

struct Observer {
    locks: Locks,
    contact: Contact,
    applied: watch::Receiver<LogIndex>,
    name: LockName,
    /// Who was said to hold it.
    told: Option<Vec<(Epoch, SessionId)>>,
}

impl Observer {
    /// The next message. It waits until there is one.
    async fn next(&mut self) -> Result<ObserveLockResponse, Failure> {
        loop {
            self.in_touch()?;
            self.applied.mark_unchanged();
            let context = self.locks.context.clone();
            if let Some(response) = self.look(&context.replica.lock()) {
                return Ok(response);
            }
            tokio::select! {
                () = self.locks.stop.cancelled() => {}
                changed = self.applied.changed() => if changed.is_err() { return Err(stopping()) },
                () = self.contact.lost() => {}
            }
        }
    }

    /// What there is to say now.
    fn look(&mut self, local: &Local) -> Option<ObserveLockResponse> {
        let holders =
            || local.state.lock(&self.name).into_iter().flat_map(ringfence_core::state::Lock::holders);
        let same = |told: &Vec<(Epoch, SessionId)>| {
            told.iter().copied().eq(holders().map(|grant| (grant.epoch, grant.session)))
        };
        if self.told.as_ref().is_some_and(same) {
            return None;
        }
        self.told = Some(holders().map(|grant| (grant.epoch, grant.session)).collect());
        let holders = holders().take(MAX_LOCK_TOLD).map(|grant| LockHolder::read(&local.state, grant));
        let holders = holders.map(v1::LockHolder::from).collect();
        Some(ObserveLockResponse { index: local.state.applied().get(), holders })
    }

    /// Ends the stream of a node that stops, or that may know nothing new because nobody talks to it.
    fn in_touch(&self) -> Result<(), Failure> {
        if self.locks.stop.is_cancelled() {
            return Err(stopping());
        }
        if self.contact.is_kept() { Ok(()) } else { Err(Failure::no_leader()) }
    }
}

fn stopping() -> Failure {
    Failure::unavailable("this node stops; go on at another")
}
