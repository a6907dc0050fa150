//! Locks: how one is asked for, who holds it, who waits.

use super::keyspace::{takeover_from_wire, takeover_to_wire};
use super::{InvalidField, checked};
use crate::text::shown;
use crate::v1;
use ringfence_core::ids::{Epoch, LockName, LogIndex, SessionId, WorkerId};
use ringfence_core::state::{self, LockCooling, LockMode, LockWish, State, Takeover};
use std::time::Duration;

/// How many of those who hold a lock, or wait for it, one message names. All of a bound fit into a message.
pub const MAX_LOCK_TOLD: usize = 1_000;

/// A lock that a session holds, as its stream tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldLock {
    /// The lock.
    pub lock: LockName,
    /// Its epoch.
    pub epoch: Epoch,
    /// Alone or together.
    pub mode: LockMode,
    /// When the next one gets it if the holder is silent.
    pub takeover: Takeover,
    /// The session's request that it was granted to.
    pub number: u64,
}

/// A grant of a lock, as people and programs are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockHolder {
    /// The holder's worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// Where its worker is reached; may be empty, as when its session has ended.
    pub address: String,
    /// Its epoch.
    pub epoch: Epoch,
    /// How it was asked for.
    pub wish: LockWish,
    /// The entry that granted it.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
    /// It has lost the lock, and those whom it excludes wait for this.
    pub cooling: Option<LockCooling>,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockWaiter {
    /// Its worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// How it asked.
    pub wish: LockWish,
    /// The leader's wall clock when it began to wait, for display.
    pub since_unix_ms: u64,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Its name.
    pub name: LockName,
    /// Who holds it, and who has lost it and may still believe to hold it, in the order of their grants; at most
    /// [`MAX_LOCK_TOLD`] of them.
    pub holders: Vec<LockHolder>,
    /// How many they are in all.
    pub held: u32,
    /// How many wait.
    pub waiting: u32,
}

impl HeldLock {
    /// What the session holds of the lock.
    pub fn read(state: &State, session: SessionId, lock: &LockName) -> Option<HeldLock> {
        let grant = state.lock(lock)?.held_by(session)?;
        let (mode, takeover, number) = (grant.wish.mode(), grant.wish.takeover(), grant.request);
        Some(HeldLock { lock: lock.clone(), epoch: grant.epoch, mode, takeover, number })
    }
}

impl LockHolder {
    /// A grant, with what its session says of itself.
    pub fn read(state: &State, grant: &state::LockGrant) -> LockHolder {
        LockHolder {
            worker: grant.worker.clone(),
            session: grant.session,
            address: state.session(grant.session).map_or_else(String::new, |s| s.address().to_owned()),
            epoch: grant.epoch,
            wish: grant.wish,
            at: grant.at,
            unix_ms: grant.unix_ms,
            cooling: grant.cooling,
        }
    }
}

impl LockWaiter {
    /// A waiter; `None` when its session has ended.
    pub fn read(state: &State, waiter: &state::LockWaiter) -> Option<LockWaiter> {
        let worker = state.session(waiter.session)?.worker().clone();
        let (session, wish, since_unix_ms) = (waiter.session, waiter.wish, waiter.unix_ms);
        Some(LockWaiter { worker, session, wish, since_unix_ms })
    }
}

impl Lock {
    /// A lock with those who hold it.
    pub fn read(state: &State, lock: &state::Lock) -> Lock {
        Lock {
            name: lock.name.clone(),
            holders: lock
                .grants
                .iter()
                .take(MAX_LOCK_TOLD)
                .map(|grant| LockHolder::read(state, grant))
                .collect(),
            held: u32::try_from(lock.grants.len()).unwrap_or(u32::MAX),
            waiting: u32::try_from(lock.queue.len()).unwrap_or(u32::MAX),
        }
    }

    /// One that nobody holds or waits for.
    pub fn idle(name: LockName) -> Lock {
        Lock { name, holders: Vec::new(), held: 0, waiting: 0 }
    }
}

fn mode_to_wire(mode: LockMode) -> i32 {
    let wire = match mode {
        LockMode::Exclusive => v1::LockMode::Exclusive,
        LockMode::Shared => v1::LockMode::Shared,
    };
    wire.into()
}

/// A mode that is left out is an error and never a default: it decides whether two may hold the lock.
fn mode_from_wire(field: &str, number: i32) -> Result<LockMode, InvalidField> {
    match v1::LockMode::try_from(number) {
        Ok(v1::LockMode::Exclusive) => Ok(LockMode::Exclusive),
        Ok(v1::LockMode::Shared) => Ok(LockMode::Shared),
        Ok(v1::LockMode::Unspecified) | Err(_) => Err(checked::unknown_value(field, number)),
    }
}

/// How a lock is asked for.
pub fn wish_to_wire(wish: LockWish) -> v1::LockWish {
    v1::LockWish {
        mode: mode_to_wire(wish.mode()),
        takeover: takeover_to_wire(wish.takeover()).into(),
        lock_delay_ms: checked::millis(wish.lock_delay()),
        alert_after_ms: wish.alert_after().map_or(0, checked::millis),
    }
}

/// How a lock is asked for.
///
/// # Errors
/// [`InvalidField`] when something is missing or out of bounds.
pub fn wish_from_wire(field: &str, wire: Option<v1::LockWish>) -> Result<LockWish, InvalidField> {
    let wire = wire.ok_or_else(|| InvalidField::missing(field))?;
    let mode = mode_from_wire("mode", wire.mode).map_err(|e| e.within(field))?;
    let takeover = takeover_from_wire("takeover", wire.takeover).map_err(|e| e.within(field))?;
    let alert = Some(wire.alert_after_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
    let wish = LockWish::new(mode).with(takeover, Duration::from_millis(wire.lock_delay_ms), alert);
    wish.map_err(|why| InvalidField::new(field, why))
}

impl From<HeldLock> for v1::HeldLock {
    fn from(from: HeldLock) -> v1::HeldLock {
        v1::HeldLock {
            lock: from.lock.to_string(),
            epoch: from.epoch.get(),
            mode: mode_to_wire(from.mode),
            takeover: takeover_to_wire(from.takeover).into(),
            number: from.number,
        }
    }
}

impl TryFrom<v1::HeldLock> for HeldLock {
    type Error = InvalidField;

    fn try_from(wire: v1::HeldLock) -> Result<HeldLock, InvalidField> {
        Ok(HeldLock {
            lock: checked::lock_name("lock", &wire.lock)?,
            epoch: checked::epoch("epoch", wire.epoch)?,
            mode: mode_from_wire("mode", wire.mode)?,
            takeover: takeover_from_wire("takeover", wire.takeover)?,
            number: Some(wire.number).filter(|n| *n > 0).ok_or_else(|| InvalidField::missing("number"))?,
        })
    }
}

impl From<LockHolder> for v1::LockHolder {
    fn from(from: LockHolder) -> v1::LockHolder {
        let cooling = from.cooling.map(|cooling| v1::LockCooling {
            lease_ms: cooling.lease.map_or(0, checked::millis),
            then_ms: checked::millis(cooling.then),
        });
        v1::LockHolder {
            worker: from.worker.to_string(),
            session: from.session.get(),
            address: from.address,
            epoch: from.epoch.get(),
            wish: Some(wish_to_wire(from.wish)),
            granted_index: from.at.get(),
            granted_unix_ms: from.unix_ms,
            cooling,
        }
    }
}

impl TryFrom<v1::LockHolder> for LockHolder {
    type Error = InvalidField;

    fn try_from(wire: v1::LockHolder) -> Result<LockHolder, InvalidField> {
        let cooling = wire.cooling.map(|cooling| LockCooling {
            lease: Some(cooling.lease_ms).filter(|ms| *ms > 0).map(Duration::from_millis),
            then: Duration::from_millis(cooling.then_ms),
        });
        Ok(LockHolder {
            worker: checked::worker_id("worker", &wire.worker)?,
            session: checked::session("session", wire.session)?,
            address: shown(&wire.address),
            epoch: checked::epoch("epoch", wire.epoch)?,
            wish: wish_from_wire("wish", wire.wish)?,
            at: LogIndex::new(wire.granted_index),
            unix_ms: wire.granted_unix_ms,
            cooling,
        })
    }
}

impl From<LockWaiter> for v1::LockWaiter {
    fn from(from: LockWaiter) -> v1::LockWaiter {
        v1::LockWaiter {
            worker: from.worker.to_string(),
            session: from.session.get(),
            wish: Some(wish_to_wire(from.wish)),
            since_unix_ms: from.since_unix_ms,
        }
    }
}

impl TryFrom<v1::LockWaiter> for LockWaiter {
    type Error = InvalidField;

    fn try_from(wire: v1::LockWaiter) -> Result<LockWaiter, InvalidField> {
        Ok(LockWaiter {
            worker: checked::worker_id("worker", &wire.worker)?,
            session: checked::session("session", wire.session)?,
            wish: wish_from_wire("wish", wire.wish)?,
            since_unix_ms: wire.since_unix_ms,
        })
    }
}

impl From<Lock> for v1::Lock {
    fn from(from: Lock) -> v1::Lock {
        v1::Lock {
            name: from.name.to_string(),
            holders: from.holders.into_iter().map(v1::LockHolder::from).collect(),
            held: from.held,
            waiting: from.waiting,
        }
    }
}

impl TryFrom<v1::Lock> for Lock {
    type Error = InvalidField;

    fn try_from(wire: v1::Lock) -> Result<Lock, InvalidField> {
        let holders = wire.holders.into_iter().enumerate();
        let holders =
            holders.map(|(at, holder)| LockHolder::try_from(holder).map_err(|e| e.at("holders", at)));
        Ok(Lock {
            name: checked::lock_name("name", &wire.name)?,
            holders: holders.collect::<Result<_, _>>()?,
            held: wire.held,
            waiting: wire.waiting,
        })
    }
}
