//! Locks, as parts.

use super::check::{Check, PartsError, Sessions, ascending, bound};
use crate::ids::{EpochFloor, LockName};
use crate::state::lock::{Lock, LockMode, MAX_LOCK_WAITERS, MAX_LOCKS, MAX_SESSION_LOCKS};
use std::collections::{BTreeMap, BTreeSet};

impl Check {
    pub(super) fn locks(
        &self,
        parts: Vec<Lock>,
        sessions: &mut Sessions,
    ) -> Result<BTreeMap<LockName, Lock>, PartsError> {
        bound("the number of locks", parts.len(), MAX_LOCKS)?;
        ascending("the locks", parts.iter().map(|lock| &lock.name))?;
        for lock in &parts {
            self.lock(lock, sessions)?;
        }
        for session in sessions.values() {
            let both = session.locks.len() + session.waits.len();
            bound("the number of locks that a session holds or waits for", both, MAX_SESSION_LOCKS)?;
        }
        Ok(parts.into_iter().map(|lock| (lock.name.clone(), lock)).collect())
    }

    fn lock(&self, lock: &Lock, sessions: &mut Sessions) -> Result<(), PartsError> {
        let wrong = |why| Err(PartsError::Lock { lock: lock.name.clone(), why });
        bound("the number of those who wait for a lock", lock.queue.len(), MAX_LOCK_WAITERS)?;
        if lock.grants.is_empty() {
            return wrong("nobody holds it");
        }
        self.grants(lock, sessions)?;
        let mut waiting = BTreeSet::new();
        for waiter in &lock.queue {
            self.applied("the request for a lock", waiter.at)?;
            let Some(session) = sessions.get_mut(&waiter.session) else {
                return wrong("a session that is not there waits for it");
            };
            if session.locks.contains(&lock.name) || !waiting.insert(waiter.session) {
                return wrong("a session waits for it twice, or holds it and waits for it");
            }
            session.waits.insert(lock.name.clone());
        }
        if lock.queue.front().is_some_and(|next| lock.admits(next.wish.mode())) {
            return wrong("it is free for whoever is next, who was not granted it");
        }
        Ok(())
    }

    /// Those who hold it at the same time hold it together and under one epoch, and no epoch is above the counter.
    fn grants(&self, lock: &Lock, sessions: &mut Sessions) -> Result<(), PartsError> {
        let wrong = |why| Err(PartsError::Lock { lock: lock.name.clone(), why });
        let alone = lock.grants.iter().any(|grant| grant.wish.mode() == LockMode::Exclusive);
        if alone && lock.grants.len() > 1 {
            return wrong("one holds it alone, and others hold it");
        }
        if !lock.grants.is_sorted_by_key(|grant| (grant.epoch, grant.at)) {
            return wrong("its grants are out of order");
        }
        let held: BTreeSet<_> = lock.holders().map(|grant| grant.epoch).collect();
        let mut known = BTreeSet::new();
        for grant in &lock.grants {
            self.given_session(grant.session)?;
            self.applied("the grant of a lock", grant.at)?;
            if EpochFloor::of(grant.epoch) > self.0.lock_epoch || held.len() > 1 {
                return wrong("its epoch was never granted, or those who hold it together have two");
            }
            if !known.insert((grant.epoch, grant.session)) {
                return wrong("it was granted to a session twice under one epoch");
            }
            let session = sessions.get_mut(&grant.session);
            match (grant.cooling, session) {
                (None, Some(session)) if session.worker == grant.worker => {
                    if !session.locks.insert(lock.name.clone()) {
                        return wrong("a session holds it twice");
                    }
                }
                (None, _) => return wrong("a session that is not there, or is another worker's, holds it"),
                (Some(cooling), _) => {
                    if cooling.lease.is_none() && cooling.then.is_zero() {
                        return wrong("it cools, and waits for nothing");
                    }
                }
            }
        }
        Ok(())
    }
}
