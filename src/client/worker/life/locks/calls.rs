//! The calls about locks: each is made until it is answered, or stopped.

use super::super::super::session::Session;
use super::super::super::wire::LockKey;
use super::table::{Answer, Return};
use crate::error::{Error, ErrorKind};
use crate::lock::Holder;
use crate::lock::desk::{Standing, Stands};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, locks};
use futures_util::future::{AbortHandle, BoxFuture, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use ringfence_api::convert::{LockHolder, wish_to_wire};
use ringfence_api::v1::{self, acquire_lock_response::What};
use ringfence_core::ids::SessionId;
use ringfence_core::state::LockWish;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// What came of a call.
pub(super) enum Done {
    Acquired(LockKey, Result<Answer, Error>),
    Returned(LockKey, Result<(), Error>),
    /// It was stopped.
    Stopped,
}

/// Who asks.
#[derive(Clone)]
pub(in crate::worker) struct Caller {
    coordinator: Coordinator,
    session: SessionId,
    secret: Vec<u8>,
    ttl: Duration,
}

pub(super) struct Calls {
    caller: Caller,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Of the requests.
    stops: HashMap<u64, AbortHandle>,
}

impl Calls {
    pub(super) fn new(caller: Caller) -> Calls {
        Calls { caller, under_way: FuturesUnordered::new(), stops: HashMap::new() }
    }

    pub(super) fn acquire(
        &mut self,
        key: LockKey,
        settled_below: u64,
        wish: LockWish,
        waits: bool,
        standing: Arc<Standing>,
    ) {
        let number = key.number;
        let request = v1::AcquireLockRequest {
            session: self.caller.session.get(),
            secret: self.caller.secret.clone().into(),
            lock: key.lock.to_string(),
            number,
            settled_below,
            wish: Some(wish_to_wire(wish)),
            wait: waits,
        };
        let caller = self.caller.clone();
        let (asking, stop) = abortable(async move {
            let answer = until_answered(
                |error| standing.set(Stands::Troubled(error.clone())),
                || caller.acquire(&request),
            );
            Done::Acquired(key, answer.await)
        });
        self.stops.insert(number, stop);
        self.under_way.push(Box::pin(async move { asking.await.unwrap_or(Done::Stopped) }));
    }

    /// A request is not made any longer. It may have arrived.
    pub(super) fn stop(&mut self, number: u64) {
        if let Some(stop) = self.stops.remove(&number) {
            stop.abort();
        }
    }

    pub(super) fn give_back(&mut self, key: LockKey, how: Return) {
        let caller = self.caller.clone();
        self.under_way.push(Box::pin(async move {
            let told = until_answered(|_| {}, || caller.give_back(&key, how)).await;
            Done::Returned(key, told)
        }));
    }

    /// Drives the calls; waits for ever while there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Done {
        match self.under_way.next().await {
            Some(done) => {
                if let Done::Acquired(key, _) = &done {
                    self.stops.remove(&key.number);
                }
                done
            }
            None => std::future::pending().await,
        }
    }
}

impl Caller {
    pub(in crate::worker) fn new(coordinator: Coordinator, session: &Session) -> Caller {
        Caller { coordinator, session: session.id, secret: session.secret.bytes(), ttl: session.timing.ttl() }
    }

    fn call(&self) -> Call {
        Call::new(Route::Leader, Effect::Repeatable).within(self.ttl / 2).patience(self.ttl / 4)
    }

    async fn acquire(&self, request: &v1::AcquireLockRequest) -> Result<Answer, Error> {
        let answer = self
            .coordinator
            .call(self.call(), |channel| {
                let request = request.clone();
                async move { locks(channel).acquire(request).await }
            })
            .await?;
        match answer.what {
            Some(What::Granted(_)) => Ok(Answer::Granted),
            Some(What::Queued(behind)) => Ok(Answer::Queued(behind)),
            Some(What::Held(held)) => {
                let by = held.by.map(LockHolder::try_from).transpose().map_err(Error::malformed)?;
                Ok(Answer::Held(by.map(Holder::from)))
            }
            None => Err(Error::malformed("it does not say what became of the lock")),
        }
    }

    /// Tells the coordinator once that something was given back.
    pub(in crate::worker) async fn give_back(&self, key: &LockKey, how: Return) -> Result<(), Error> {
        let (session, secret, lock) = (self.session.get(), self.secret.clone(), key.lock.to_string());
        match how {
            Return::Release(epoch) => {
                let request =
                    v1::ReleaseLockRequest { session, secret: secret.into(), lock, epoch: epoch.get() };
                let release = |channel| {
                    let request = request.clone();
                    async move { locks(channel).release(request).await }
                };
                self.coordinator.call(self.call(), release).await.map(drop)
            }
            Return::Abandon => {
                let request =
                    v1::AbandonLockRequest { session, secret: secret.into(), lock, number: key.number };
                let abandon = |channel| {
                    let request = request.clone();
                    async move { locks(channel).abandon(request).await }
                };
                self.coordinator.call(self.call(), abandon).await.map(drop)
            }
        }
    }
}

/// The same call until somebody answers it.
async fn until_answered<T, Fut>(trouble: impl Fn(&Error), call: impl Fn() -> Fut) -> Result<T, Error>
where
    Fut: Future<Output = Result<T, Error>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        match call().await {
            Err(error) if error.is_retryable() || error.kind() == ErrorKind::UnknownOutcome => {
                tracing::debug!(%error, "a call about a lock is made again");
                trouble(&error);
                sleep(backoff.wait()).await;
            }
            result => return result,
        }
    }
}
