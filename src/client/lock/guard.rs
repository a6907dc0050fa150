//! A lock that is held.

use super::hold::{self, Hold};
use super::{LockStamps, NotHeld};
use crate::error::Error;
use crate::fence::FencingToken;
use ringfence_core::ids::{Epoch, LockName, SessionId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A lock, held under one epoch.
///
/// It is bound to its epoch for good: when the lock is lost and had again, that is another guard with a higher epoch, and an
/// operation that began under this one can never be stamped with it.
///
/// | to | use |
/// |---|---|
/// | write | [`stamp`](LockGuard::stamp) when the operation *starts*; the storage checks the token |
/// | read from memory | [`read`](LockGuard::read) or [`guard`](LockGuard::guard) |
/// | know when to stop | [`lost`](LockGuard::lost), [`on_lost`](LockGuard::on_lost) |
/// | give it back and know that it is | [`release`](LockGuard::release) |
///
/// **Dropping it** asks for the release in the background and never blocks. While no coordinator can be reached that goes on
/// until one knows, or the lease is over.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    pub(super) fn new(hold: Hold) -> LockGuard {
        LockGuard { hold }
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.hold.tenure().particulars().lock
    }

    /// The epoch under which it is held. Those who share a lock at the same time have one.
    pub fn epoch(&self) -> Epoch {
        self.token().epoch()
    }

    /// The session that it was granted to.
    pub fn session(&self) -> SessionId {
        self.hold.tenure().session()
    }

    /// The token, whether the lock is held or not: to open a store, which raises its fence to this epoch, and to name this
    /// guard in logs. To stamp a write take [`LockGuard::stamp`].
    pub fn token(&self) -> &FencingToken {
        self.hold.tenure().token()
    }

    /// The token for an operation that starts now. Take it at the start and pass it on to the storage, which refuses it when
    /// somebody who got the lock later has come; never take one at the moment of sending for work that began before.
    ///
    /// Costs one clock read and a few comparisons.
    ///
    /// # Errors
    /// [`NotHeld`] when the lock is not held on this clock, now. See [`NotHeld::is_final`].
    #[inline]
    pub fn stamp(&self) -> Result<FencingToken, NotHeld> {
        self.hold.check()?;
        Ok(self.token().clone())
    }

    /// What stamps for this guard elsewhere: see [`LockStamps`].
    pub fn stamps(&self) -> LockStamps {
        LockStamps::new(Arc::clone(self.hold.tenure()))
    }

    /// Whether the lock is held, now. True only until the next instant: it protects nothing that is done after it.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.hold.check().is_ok()
    }

    /// Answers a read from memory under the lease: checks, computes, and checks again.
    ///
    /// # Errors
    /// [`NotHeld`] when the lock was not held before, or is not after: the answer is dropped.
    pub fn read<T>(&self, answer: impl FnOnce() -> T) -> Result<T, NotHeld> {
        let guard = self.guard()?;
        guard.confirm(answer())
    }

    /// The same for an answer that takes an `await`, or more than a closure: begin here, compute, and give the answer out with
    /// [`LockRead::confirm`].
    ///
    /// # Errors
    /// [`NotHeld`] when the lock is not held.
    #[inline]
    pub fn guard(&self) -> Result<LockRead<'_>, NotHeld> {
        self.hold.check().map(|()| LockRead { guard: self })
    }

    /// How long it is held if nothing is heard of the coordinator any more; zero when it is lost. A renewal makes it longer.
    ///
    /// It is for whoever has to end something elsewhere in time, such as a process that works under this lock: look again before it
    /// is over, and act on what is left then. Where the lock is taken over by fence, another may have it before: there it bounds
    /// nothing.
    pub fn time_left(&self) -> Duration {
        self.hold.tenure().time_left()
    }

    /// How long it has been held, from when it was granted to this process. It runs on through a suspend of the machine.
    pub fn held_for(&self) -> Duration {
        self.hold.held_for()
    }

    /// Waits until the lock is lost, and says why.
    ///
    /// Cancel safe, and any number may wait. When it returns every check has begun to refuse; a check may refuse a moment
    /// before it returns.
    pub async fn lost(&self) -> NotHeld {
        self.hold.lost().await
    }

    /// Calls `then` when the lock is lost; never when it is given back. Any number may be asked for.
    ///
    /// It is called on the runtime in which the session was opened, so a busy executor delays it: to be safe from a late write
    /// let the storage check the stamp.
    pub fn on_lost(&self, then: impl FnOnce(NotHeld) + Send + 'static) {
        let tenure = Arc::clone(self.hold.tenure());
        self.hold.desk().runtime.spawn(async move {
            let lost = hold::lost(&tenure).await;
            if lost.why() != super::Why::Released {
                then(lost);
            }
        });
    }

    /// Gives the lock back and returns when the coordinator knows; the next one has it then. Dropping the future takes nothing
    /// back: the coordinator is told all the same.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) when the lock had been lost before: what was done under it may have
    /// met another holder's work. [`ErrorKind::NotReleased`](crate::ErrorKind::NotReleased) when the lease ran out before a
    /// coordinator could be told; then the lock is free by that.
    pub async fn release(self) -> Result<(), Error> {
        self.hold.release().await
    }
}

/// The short token and whether it is held: `@locks/nightly@42 (held)`.
impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.hold.tenure().ended().is_some() { "over" } else { "held" };
        write!(f, "{} ({held})", self.token().short())
    }
}

/// A leased read in progress: the lock was held when it began. An answer counts only when it is *still* held, since the process
/// may be paused while it computes: [`LockRead::confirm`] looks again.
#[derive(Debug)]
#[must_use = "an answer counts only after `confirm`"]
pub struct LockRead<'a> {
    guard: &'a LockGuard,
}

impl LockRead<'_> {
    /// Gives the answer out when the lock is still held, one clock read after it was computed.
    ///
    /// # Errors
    /// [`NotHeld`] when it is not: the answer may be out of date, and is dropped.
    pub fn confirm<T>(self, answer: T) -> Result<T, NotHeld> {
        self.guard.hold.check().map(|()| answer)
    }
}
