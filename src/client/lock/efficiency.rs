//! The other kind of lock: it saves work, and protects nothing.

use super::Takeover;
use super::desk::Refusal;
use super::hold::Hold;
use super::request::{Terms, terms};
use crate::error::Error;
use ringfence_core::ids::LockName;
use ringfence_core::state::LockMode;
use std::fmt;
use std::time::Duration;

/// A request for an efficiency lock. The terms are those of [`LockRequest`](super::LockRequest).
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before `acquire`, `acquire_within` or `try_acquire`"]
pub struct EfficiencyRequest {
    pub(super) terms: Terms,
    pub(super) fail_open: bool,
}

impl EfficiencyRequest {
    terms!();

    /// When no coordinator answers in time, go on without the lock: the guard says [`EfficiencyGuard::is_protected`] `false`.
    /// Default: fail. A correctness lock has no such choice.
    pub fn fail_open(mut self, fail_open: bool) -> Self {
        self.fail_open = fail_open;
        self
    }

    /// As [`LockRequest::acquire`](super::LockRequest::acquire). It waits for a coordinator for as long as the session lasts, so
    /// `fail_open` takes effect when the lease has run out; to decide when, use [`EfficiencyRequest::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub async fn acquire(self) -> Result<EfficiencyGuard, Error> {
        let had = self.terms.acquire(true, None).await;
        self.guard(had)
    }

    /// As [`LockRequest::acquire_within`](super::LockRequest::acquire_within).
    ///
    /// # Errors
    /// As there; with `fail_open` not when no coordinator answered.
    pub async fn acquire_within(self, within: Duration) -> Result<EfficiencyGuard, Error> {
        let had = self.terms.acquire(true, Some(within)).await;
        self.guard(had)
    }

    /// As [`LockRequest::try_acquire`](super::LockRequest::try_acquire).
    ///
    /// # Errors
    /// As there; with `fail_open` not when no coordinator answered.
    pub async fn try_acquire(self) -> Result<EfficiencyGuard, Error> {
        let had = self.terms.try_acquire().await;
        self.guard(had)
    }

    fn guard(&self, had: Result<Hold, Refusal>) -> Result<EfficiencyGuard, Error> {
        match had {
            Ok(hold) => Ok(EfficiencyGuard { hold: Some(hold) }),
            Err(refusal) if self.fail_open && refusal.is_outage() => {
                let error = Error::from(refusal);
                tracing::warn!(lock = self.terms.name, %error, "going on without the lock");
                Ok(EfficiencyGuard::unprotected())
            }
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// An efficiency lock that is held: others who ask for it most likely do not do the same work now.
///
/// Two may hold it at once for a while, when one of them is paused or the network fails, and what they do then has to be harmless
/// when it is done twice. So it has no token and no stamp. Where a second run does harm, take [`Locks::lock`](super::Locks::lock)
/// and let the storage check the stamp.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct EfficiencyGuard {
    hold: Option<Hold>,
}

impl EfficiencyGuard {
    /// The guard of somebody who goes on without the lock, because no coordinator could be reached at all:
    /// [`Builder::connect`](super::Builder::connect) has failed.
    pub fn unprotected() -> EfficiencyGuard {
        EfficiencyGuard { hold: None }
    }

    /// The lock; `None` when it goes on without.
    pub fn name(&self) -> Option<&LockName> {
        self.hold.as_ref().map(|hold| &hold.tenure().particulars().lock)
    }

    /// Whether the lock is held, as far as this process can tell. False when no coordinator could be reached, and when it was
    /// lost.
    pub fn is_protected(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.check().is_ok())
    }

    /// Waits until the lock is lost; for ever when it never was held. Cancel safe.
    pub async fn lost(&self) {
        match &self.hold {
            Some(hold) => drop(hold.lost().await),
            None => std::future::pending().await,
        }
    }

    /// How long it has been held; `None` when it never was.
    pub fn held_for(&self) -> Option<Duration> {
        self.hold.as_ref().map(Hold::held_for)
    }

    /// Gives it back and returns when the coordinator knows. Of a lock that never was held it does nothing.
    ///
    /// # Errors
    /// As [`LockGuard::release`](super::LockGuard::release).
    pub async fn release(self) -> Result<(), Error> {
        match self.hold {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for EfficiencyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().map(LockName::as_str);
        f.debug_struct("EfficiencyGuard")
            .field("lock", &name)
            .field("protected", &self.is_protected())
            .finish()
    }
}
