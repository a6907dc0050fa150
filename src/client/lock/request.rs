//! How a lock is asked for.

use super::desk::{LockDesk, Refusal};
use super::hold::Hold;
use super::{LockGuard, Takeover};
use crate::error::{Error, ErrorKind};
use ringfence_core::ids::LockName;
use ringfence_core::state::{LockMode, LockWish};
use std::time::Duration;

/// How long a request that does not wait for the lock waits for the coordinator.
const TRY_WITHIN: Duration = Duration::from_secs(10);

/// A request for a lock: on which terms, and then [`acquire`](LockRequest::acquire), [`acquire_within`](LockRequest::acquire_within)
/// or [`try_acquire`](LockRequest::try_acquire). The terms count for as long as the lock is held.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before `acquire`, `acquire_within` or `try_acquire`"]
pub struct LockRequest {
    pub(super) terms: Terms,
}

/// What both kinds of requests have.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) desk: LockDesk,
    pub(super) name: String,
    pub(super) mode: LockMode,
    pub(super) takeover: Takeover,
    pub(super) lock_delay: Duration,
    pub(super) alert_after: Option<Duration>,
}

impl Terms {
    pub(super) fn new(desk: LockDesk, name: &str) -> Terms {
        Terms {
            desk,
            name: name.to_owned(),
            mode: LockMode::Exclusive,
            takeover: Takeover::Lease,
            lock_delay: Duration::ZERO,
            alert_after: None,
        }
    }

    pub(super) async fn acquire(&self, waits: bool, within: Option<Duration>) -> Result<Hold, Refusal> {
        let name = LockName::new(&self.name).map_err(|error| Refusal::Error(error.into()))?;
        let wish = LockWish::new(self.mode).with(self.takeover, self.lock_delay, self.alert_after);
        let wish = wish.map_err(|error| Refusal::Error(Error::own(ErrorKind::Invalid, error.to_string())))?;
        self.desk.acquire(name, wish, waits, within).await
    }

    pub(super) async fn try_acquire(&self) -> Result<Hold, Refusal> {
        self.acquire(false, Some(TRY_WITHIN)).await
    }
}

/// What may be asked on either kind of lock.
macro_rules! terms {
    () => {
        /// Together with others who share it, while nobody holds it alone.
        pub fn shared(mut self) -> Self {
            self.terms.mode = LockMode::Shared;
            self
        }

        /// How long the lock rests after this holder has lost it without giving it back, 0 to 60 s; default none. It is for
        /// resources that check no tokens: a late write of the holder may arrive meanwhile.
        pub fn lock_delay(mut self, delay: Duration) -> Self {
            self.terms.lock_delay = delay;
            self
        }

        /// When the next one gets it if this holder is silent: when its lease has run out ([`Takeover::Lease`], the default), or
        /// 200 ms after its connection was lost ([`Takeover::Fence`]), where the storage's fence makes that safe.
        pub fn takeover(mut self, takeover: Takeover) -> Self {
            self.terms.takeover = takeover;
            self
        }

        /// How long it may be held before operators are told of it, 1 ms to 30 days; default however long. Nothing else comes of
        /// it.
        pub fn alert_after(mut self, after: Duration) -> Self {
            self.terms.alert_after = Some(after);
            self
        }
    };
}
pub(super) use terms;

impl LockRequest {
    terms!();

    /// Waits for the lock, for ever. Dropping the future abandons the request: it leaves the queue, and what it was granted in
    /// that moment is given back.
    ///
    /// # Errors
    /// [`ErrorKind::SessionEnded`] when the session was lost meanwhile: the place in the queue is gone, and nothing was asked
    /// again. [`ErrorKind::Invalid`] names what is out of bounds; [`ErrorKind::Limit`] the coordinator's bound.
    pub async fn acquire(self) -> Result<LockGuard, Error> {
        Ok(LockGuard::new(self.terms.acquire(true, None).await?))
    }

    /// Waits for the lock at most so long. What is granted in the moment of the deadline is either had or given back.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when it was not free in time; [`Error::busy`] says more. [`ErrorKind::Unreachable`] and its like when
    /// no coordinator answered; otherwise as [`LockRequest::acquire`].
    pub async fn acquire_within(self, within: Duration) -> Result<LockGuard, Error> {
        Ok(LockGuard::new(self.terms.acquire(true, Some(within)).await?))
    }

    /// Takes the lock when it is free, and does not wait for it; for a coordinator it waits at most 10 s.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when it is not free: [`Error::busy`] names the holder. Otherwise as [`LockRequest::acquire_within`].
    pub async fn try_acquire(self) -> Result<LockGuard, Error> {
        Ok(LockGuard::new(self.terms.try_acquire().await?))
    }
}
