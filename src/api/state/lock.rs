//! Locks in entries and snapshots.

use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked, wish_from_wire, wish_to_wire};
use crate::v1;
use crate::v1::{log_command, state_lock as wire};
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{Command, Lock, LockCooling, LockGrant, LockWaiter};
use std::time::Duration;

pub(super) fn to_wire(lock: &Lock, workers: &mut Places) -> v1::StateLock {
    v1::StateLock {
        name: lock.name.to_string(),
        grants: lock.grants.iter().map(|grant| grant_to_wire(grant, workers)).collect(),
        queue: lock.queue.iter().map(waiter_to_wire).collect(),
    }
}

pub(super) fn from_wire(lock: v1::StateLock, workers: &Names) -> Result<Lock, InvalidField> {
    let grants = lock.grants.into_iter().enumerate();
    let queue = lock.queue.into_iter().enumerate();
    Ok(Lock {
        name: checked::lock_name("name", &lock.name)?,
        grants: grants
            .map(|(place, grant)| grant_from_wire(grant, workers).map_err(|e| e.at("grants", place)))
            .collect::<Result<_, _>>()?,
        queue: queue
            .map(|(place, waiter)| waiter_from_wire(waiter).map_err(|e| e.at("queue", place)))
            .collect::<Result<_, _>>()?,
    })
}

fn grant_to_wire(grant: &LockGrant, workers: &mut Places) -> wire::Grant {
    let cooling = grant.cooling.map(|cooling| wire::Cooling {
        lease_ms: cooling.lease.map(checked::millis),
        then_ms: checked::millis(cooling.then),
    });
    wire::Grant {
        epoch: grant.epoch.get(),
        session: grant.session.get(),
        worker: workers.of(&grant.worker),
        number: grant.request,
        wish: Some(wish_to_wire(grant.wish)),
        granted_index: grant.at.get(),
        granted_unix_ms: grant.unix_ms,
        cooling,
    }
}

fn grant_from_wire(wire: wire::Grant, workers: &Names) -> Result<LockGrant, InvalidField> {
    let cooling = wire.cooling.map(|cooling| LockCooling {
        lease: cooling.lease_ms.map(Duration::from_millis),
        then: Duration::from_millis(cooling.then_ms),
    });
    Ok(LockGrant {
        epoch: checked::epoch("epoch", wire.epoch)?,
        session: checked::session("session", wire.session)?,
        worker: workers.at("worker", wire.worker)?,
        request: wire.number,
        wish: wish_from_wire("wish", wire.wish)?,
        at: LogIndex::new(wire.granted_index),
        unix_ms: wire.granted_unix_ms,
        cooling,
    })
}

fn waiter_to_wire(waiter: &LockWaiter) -> wire::Waiter {
    wire::Waiter {
        session: waiter.session.get(),
        number: waiter.request,
        wish: Some(wish_to_wire(waiter.wish)),
        since_index: waiter.at.get(),
        since_unix_ms: waiter.unix_ms,
    }
}

fn waiter_from_wire(wire: wire::Waiter) -> Result<LockWaiter, InvalidField> {
    Ok(LockWaiter {
        session: checked::session("session", wire.session)?,
        request: wire.number,
        wish: wish_from_wire("wish", wire.wish)?,
        at: LogIndex::new(wire.since_index),
        unix_ms: wire.since_unix_ms,
    })
}

pub(super) fn acquire(c: log_command::AcquireLock) -> Result<Command, InvalidField> {
    Ok(Command::AcquireLock {
        lock: checked::lock_name("lock", &c.lock)?,
        session: checked::session("session", c.session)?,
        request: c.number,
        wish: wish_from_wire("wish", c.wish)?,
        waits: c.wait,
    })
}

pub(super) fn release(c: &log_command::ReleaseLock) -> Result<Command, InvalidField> {
    Ok(Command::ReleaseLock {
        lock: checked::lock_name("lock", &c.lock)?,
        epoch: checked::epoch("epoch", c.epoch)?,
        session: checked::session("session", c.session)?,
    })
}

pub(super) fn abandon(c: &log_command::AbandonLock) -> Result<Command, InvalidField> {
    Ok(Command::AbandonLock {
        lock: checked::lock_name("lock", &c.lock)?,
        session: checked::session("session", c.session)?,
        request: c.number,
    })
}

pub(super) fn seize(c: &log_command::SeizeLock) -> Result<Command, InvalidField> {
    Ok(Command::SeizeLock {
        lock: checked::lock_name("lock", &c.lock)?,
        epoch: checked::epoch("epoch", c.epoch)?,
        session: checked::session("session", c.session)?,
    })
}

pub(super) fn break_(c: &log_command::BreakLock) -> Result<Command, InvalidField> {
    Ok(Command::BreakLock {
        lock: checked::lock_name("lock", &c.lock)?,
        epoch: checked::epoch_or_none("epoch", c.epoch)?,
        at_once: c.at_once,
    })
}

pub(super) fn end_cooling(c: &log_command::EndLockCooling) -> Result<Command, InvalidField> {
    Ok(Command::EndLockCooling {
        lock: checked::lock_name("lock", &c.lock)?,
        epoch: checked::epoch("epoch", c.epoch)?,
        session: checked::session("session", c.session)?,
    })
}
