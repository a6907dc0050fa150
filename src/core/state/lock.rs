//! Named locks: what is remembered of one.
//!
//! A lock is there while somebody holds it, waits for it, or may still believe in it. When none does it is forgotten, and
//! nothing of its order is lost: the epochs of all locks come from one counter.

use super::keyspace::{MAX_LOCK_DELAY, Takeover};
use crate::ids::{Epoch, LockName, LogIndex, SessionId, WorkerId};
use std::collections::VecDeque;
use std::time::Duration;

/// How many locks there may be at once.
pub const MAX_LOCKS: usize = 100_000;
/// How many may wait for one lock.
pub const MAX_LOCK_WAITERS: usize = 10_000;
/// How many locks one session may hold or wait for.
pub const MAX_SESSION_LOCKS: usize = 1_000;
/// The longest time after which a lock that is held is told of as held too long.
pub const MAX_LOCK_ALERT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Whether a lock is held alone or together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// By one.
    Exclusive,
    /// By any number, while nobody holds it alone. Those who hold it at the same time have one epoch.
    Shared,
}

/// How a lock is asked for. It is the asker's choice, as in Chubby, and counts for as long as the asker holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockWish {
    mode: LockMode,
    takeover: Takeover,
    lock_delay: Duration,
    alert_after: Option<Duration>,
}

/// A wish that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockWishError {
    /// The lock delay is out of bounds.
    #[error("lock_delay {}ms is out of bounds: it is 0 to 60s", .0.as_millis())]
    LockDelay(Duration),
    /// The alert threshold is out of bounds.
    #[error("alert_after {}ms is out of bounds: it is 1ms to 30 days", .0.as_millis())]
    AlertAfter(Duration),
}

impl LockWish {
    /// Alone or together, by lease, without a delay and without an alert.
    pub const fn new(mode: LockMode) -> LockWish {
        LockWish { mode, takeover: Takeover::Lease, lock_delay: Duration::ZERO, alert_after: None }
    }

    /// The same, with these times in whole milliseconds.
    ///
    /// # Errors
    /// [`LockWishError`] when one of them is out of bounds.
    pub fn with(
        self,
        takeover: Takeover,
        lock_delay: Duration,
        alert_after: Option<Duration>,
    ) -> Result<LockWish, LockWishError> {
        let whole =
            |time: Duration| Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let (lock_delay, alert_after) = (whole(lock_delay), alert_after.map(whole));
        if lock_delay > MAX_LOCK_DELAY {
            return Err(LockWishError::LockDelay(lock_delay));
        }
        if let Some(out) = alert_after.filter(|after| after.is_zero() || *after > MAX_LOCK_ALERT) {
            return Err(LockWishError::AlertAfter(out));
        }
        Ok(LockWish { takeover, lock_delay, alert_after, ..self })
    }

    /// Alone or together.
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// When the next one gets it if this holder is silent.
    pub fn takeover(&self) -> Takeover {
        self.takeover
    }

    /// How long the lock rests after this holder has lost it; nothing when it was released.
    pub fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// How long it may be held before that is told of.
    pub fn alert_after(&self) -> Option<Duration> {
        self.alert_after
    }
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Its name.
    pub name: LockName,
    /// Who holds it, and who has lost it and may still believe to hold it, in the order of their grants.
    pub grants: Vec<LockGrant>,
    /// Who waits, the next one first.
    pub queue: VecDeque<LockWaiter>,
}

/// A grant of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockGrant {
    /// Its epoch.
    pub epoch: Epoch,
    /// The session that it was granted to.
    pub session: SessionId,
    /// The session's worker.
    pub worker: WorkerId,
    /// The session's request that asked for it.
    pub request: u64,
    /// How it was asked for.
    pub wish: LockWish,
    /// The entry that granted it.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
    /// Its holder has lost it, and nobody whom it excludes gets it before this has passed.
    pub cooling: Option<LockCooling>,
}

/// What a lost lock waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockCooling {
    /// First, that the holder's lease of that length has run out. When its session lives, no lease that it is granted from
    /// now on speaks of the lock.
    pub lease: Option<Duration>,
    /// Then, so long.
    pub then: Duration,
}

/// Somebody who waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockWaiter {
    /// The session.
    pub session: SessionId,
    /// Its request.
    pub request: u64,
    /// How it asked.
    pub wish: LockWish,
    /// The entry since which it waits.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
}

impl Lock {
    pub(super) fn new(name: LockName) -> Lock {
        Lock { name, grants: Vec::new(), queue: VecDeque::new() }
    }

    /// Nobody holds it, waits for it, or may believe to hold it.
    pub fn is_idle(&self) -> bool {
        self.grants.is_empty() && self.queue.is_empty()
    }

    /// The grants whose holders have not lost them.
    pub fn holders(&self) -> impl Iterator<Item = &LockGrant> {
        self.grants.iter().filter(|grant| grant.cooling.is_none())
    }

    /// What the session holds of it.
    pub fn held_by(&self, session: SessionId) -> Option<&LockGrant> {
        self.holders().find(|grant| grant.session == session)
    }

    /// Whoever has held it, and may still believe in it, stands in nobody's way that asks so.
    pub fn admits(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Exclusive => self.grants.is_empty(),
            LockMode::Shared => self.grants.iter().all(|grant| grant.wish.mode == LockMode::Shared),
        }
    }
}
