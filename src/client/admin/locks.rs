//! Named locks, as an operator sees them.

use super::handle::{Admin, CHANGE, READ, READ_ALL, gather};
use crate::error::Error;
use ringfence_api::convert::{InvalidField, Lock, LockHolder, LockWaiter};
use ringfence_api::v1;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use ringfence_core::ids::{Epoch, LockName};
use std::time::Duration;
use tonic::transport::Channel;

type Client = LockServiceClient<Channel>;

/// The locks that somebody holds, waits for, or may still believe to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockList {
    /// By name.
    pub locks: Vec<Lock>,
    /// The leader's wall clock at the answer, in milliseconds since 1970; 0 when there are none.
    pub now_unix_ms: u64,
}

/// One lock with its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockDetail {
    /// The lock. Without holders and waiters it is idle, and there is no other trace of it.
    pub lock: Lock,
    /// Who waits, the next one first; at most 1000 of them.
    pub queue: Vec<LockWaiter>,
    /// The leader's wall clock at the answer, in milliseconds since 1970.
    pub now_unix_ms: u64,
}

/// What became of a lock that was to be broken, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenLock {
    /// Whom it was taken from, at most 1000 of them.
    pub holders: Vec<LockHolder>,
    /// An earlier try of this very call had taken effect, and its answer was lost: whom it was taken from is not known.
    pub before: bool,
}

/// How long a lock has been held by the leader's wall clock, when `now_unix_ms` came with the holder. `None` when the holder
/// has lost it.
pub fn held_for(holder: &LockHolder, now_unix_ms: u64) -> Option<Duration> {
    holder.cooling.is_none().then(|| Duration::from_millis(now_unix_ms.saturating_sub(holder.unix_ms)))
}

/// It is held for longer than its holder said it would be.
pub fn is_over_alert(holder: &LockHolder, now_unix_ms: u64) -> bool {
    let held = held_for(holder, now_unix_ms);
    holder.wish.alert_after().zip(held).is_some_and(|(after, held)| held >= after)
}

impl LockList {
    /// A list of your own, for tests of what shows one.
    pub fn new(locks: Vec<Lock>, now_unix_ms: u64) -> LockList {
        LockList { locks, now_unix_ms }
    }
}

impl LockDetail {
    /// A lock of your own, for tests of what shows one.
    pub fn new(lock: Lock, queue: Vec<LockWaiter>, now_unix_ms: u64) -> LockDetail {
        LockDetail { lock, queue, now_unix_ms }
    }
}

impl Admin {
    /// The locks whose names begin with the prefix, which may be empty; by name. Idle ones are not remembered, and not told.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when no name can begin so.
    pub async fn locks(&self, prefix: &str) -> Result<LockList, Error> {
        if !prefix.is_empty() {
            LockName::new(prefix)?;
        }
        let request = v1::ListLocksRequest { prefix: prefix.to_owned() };
        let list = async |mut c: Client, r| gather(c.list(r).await?, |piece| vec![piece]).await;
        let pieces = self.ask_locks(READ_ALL, request, list).await?;
        let now_unix_ms = pieces.last().map_or(0, |piece| piece.now_unix_ms);
        let locks = pieces.into_iter().flat_map(|piece| piece.locks).enumerate();
        let one = |(place, lock): (usize, v1::Lock)| {
            Lock::try_from(lock).map_err(|e| Error::malformed(e.at("locks", place)))
        };
        Ok(LockList { locks: locks.map(one).collect::<Result<_, _>>()?, now_unix_ms })
    }

    /// One lock with those who wait for it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid). A lock that nobody knows is idle, and no error.
    pub async fn lock(&self, name: &str) -> Result<LockDetail, Error> {
        let request = v1::GetLockRequest { lock: LockName::new(name)?.to_string() };
        let answer = self.ask_locks(READ, request, async |mut c, r| c.get(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// Takes the lock from whoever holds it; with an epoch, only from who holds it under that one.
    ///
    /// The next one waits until the lease that the holder may still believe in has run out (at most its TTL), or until the
    /// holder has said that it knows, and then for the lock delay that the holder asked for. With `at_once` nobody waits for
    /// anything: **two may believe to hold the lock for a while**, and only a fence at what it guards tells them apart.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) when nobody holds it, or not under that epoch.
    pub async fn break_lock(
        &self,
        name: &str,
        epoch: Option<Epoch>,
        at_once: bool,
    ) -> Result<BrokenLock, Error> {
        let request = v1::BreakLockRequest {
            request: Some(self.request_id().await?),
            directive: self.said(),
            ..breaking(name, epoch, at_once)?
        };
        let answer = self.ask_locks(CHANGE, request, async |mut c, r| c.r#break(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// What [`Admin::break_lock`] would do, as the coordinator would decide it now. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::break_lock`].
    pub async fn plan_break_lock(
        &self,
        name: &str,
        epoch: Option<Epoch>,
        at_once: bool,
    ) -> Result<BrokenLock, Error> {
        let request = v1::BreakLockRequest { dry_run: true, ..breaking(name, epoch, at_once)? };
        let answer = self.ask_locks(READ, request, async |mut c, r| c.r#break(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }
}

fn breaking(name: &str, epoch: Option<Epoch>, at_once: bool) -> Result<v1::BreakLockRequest, Error> {
    let (lock, epoch) = (LockName::new(name)?.to_string(), epoch.map_or(0, Epoch::get));
    Ok(v1::BreakLockRequest { lock, epoch, at_once, ..v1::BreakLockRequest::default() })
}

fn holders(wire: Vec<v1::LockHolder>) -> Result<Vec<LockHolder>, InvalidField> {
    let holders = wire.into_iter().enumerate();
    holders.map(|(place, one)| LockHolder::try_from(one).map_err(|e| e.at("holders", place))).collect()
}

impl TryFrom<v1::BreakLockResponse> for BrokenLock {
    type Error = InvalidField;

    fn try_from(wire: v1::BreakLockResponse) -> Result<BrokenLock, InvalidField> {
        Ok(BrokenLock { holders: holders(wire.holders)?, before: wire.before })
    }
}

impl TryFrom<v1::GetLockResponse> for LockDetail {
    type Error = InvalidField;

    fn try_from(wire: v1::GetLockResponse) -> Result<LockDetail, InvalidField> {
        let lock = wire.lock.ok_or_else(|| InvalidField::missing("lock"))?;
        let queue = wire.queue.into_iter().enumerate();
        let queue = queue.map(|(place, one)| LockWaiter::try_from(one).map_err(|e| e.at("queue", place)));
        Ok(LockDetail {
            lock: Lock::try_from(lock).map_err(|e| e.within("lock"))?,
            queue: queue.collect::<Result<_, _>>()?,
            now_unix_ms: wire.now_unix_ms,
        })
    }
}
