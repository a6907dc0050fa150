//! One leader among several candidates.

use super::{Leaders, LockGuard, Locks};
use crate::error::Error;
use ringfence_core::ids::LockName;
use std::ops::Deref;

/// An election: a lock whose holder leads.
///
/// ```no_run
/// # async fn lead(_: &ringfence::lock::Leadership) {}
/// # async fn example(locks: ringfence::lock::Locks) -> Result<(), ringfence::Error> {
/// use ringfence::lock::Election;
///
/// let election = Election::new(&locks, "scheduler");
/// loop {
///     let leadership = election.campaign().await?; // waits until this process leads
///     tokio::select! {
///         lost = leadership.lost() => eprintln!("{lost}"),
///         () = lead(&leadership) => return leadership.resign().await,
///     }
/// }
/// # }
/// ```
///
/// **One leader, and its stamp.** A leader may be replaced while it is paused, and not know it: what it writes carries
/// [`stamp`](LockGuard::stamp), and the storage refuses a deposed one.
#[derive(Clone, Debug)]
pub struct Election {
    locks: Locks,
    name: String,
}

impl Election {
    /// The election of this name. Nothing is asked yet. It is the lock of the same name.
    pub fn new(locks: &Locks, name: &str) -> Election {
        Election { locks: locks.clone(), name: name.to_owned() }
    }

    /// Waits until this process leads, behind the candidates that came before. Dropping the future withdraws the candidature.
    ///
    /// # Errors
    /// As [`LockRequest::acquire`](super::LockRequest::acquire).
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.locks.lock(&self.name).acquire().await.map(Leadership)
    }

    /// Follows who leads, from now on and across failures, whether or not this process is a candidate.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the name is none.
    pub fn observe(&self) -> Result<Leaders, Error> {
        Ok(Leaders::follow(self.locks.coordinator.with_own_connections(), LockName::new(&self.name)?))
    }
}

/// This process leads, until the lock is lost or it resigns. It has all that a [`LockGuard`] has.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership(LockGuard);

impl Leadership {
    /// Leads no longer; returns when the coordinator knows, and the next candidate leads then.
    ///
    /// # Errors
    /// As [`LockGuard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.0
    }
}
