//! How long lost locks wait, and who holds one for too long.
//!
//! As with partitions the state holds durations, and a leader counts them on its own clock from the moment it applied the
//! entry that began them; a new leader counts in full.

use super::MAX_COMMANDS;
use crate::ids::{Epoch, LockName, SessionId};
use crate::lease::Lessor;
use crate::mutant;
use crate::state::{Command, Lock, LockGrant, State, Takeover};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// The clocks of one leadership for locks.
#[derive(Clone, Debug, Default, Hash)]
pub struct LockTimers {
    /// What cools, and until when.
    cooling: BTreeMap<LockName, BTreeMap<Grant, Instant>>,
    /// What is held with an alert, since when under this leader; `None` when it was told of.
    alerts: BTreeMap<LockName, BTreeMap<Grant, Option<Instant>>>,
}

type Grant = (Epoch, SessionId);

/// A lock that has been held for longer than its holder said it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTooLong {
    /// The lock.
    pub lock: LockName,
    /// Its grant.
    pub grant: LockGrant,
    /// How long it is held, as far as this leader knows: at least so long.
    pub held: Duration,
}

impl LockTimers {
    /// Counts everything that waits, in full.
    pub fn new(now: Instant, state: &State, lessor: &Lessor) -> LockTimers {
        let mut timers = LockTimers::default();
        for lock in state.locks() {
            timers.observe(&lock.name, now, state, lessor);
        }
        timers
    }

    /// A lock has changed. What was counted before goes on.
    pub fn observe(&mut self, name: &LockName, now: Instant, state: &State, lessor: &Lessor) {
        let grants = state.lock(name).map_or(&[][..], |lock| &lock.grants);
        let earlier = self.cooling.remove(name).unwrap_or_default();
        let cools = grants.iter().filter_map(|grant| {
            let (key, cooling) = ((grant.epoch, grant.session), grant.cooling?);
            let lease = cooling.lease.map_or(now, |ttl| lessor.lease_end(grant.session, ttl, now));
            let until = earlier.get(&key).copied().unwrap_or(lease.max(now) + cooling.then);
            Some((key, until))
        });
        let cools: BTreeMap<Grant, Instant> = cools.collect();
        if !cools.is_empty() {
            self.cooling.insert(name.clone(), cools);
        }
        let earlier = self.alerts.remove(name).unwrap_or_default();
        let alerts =
            grants.iter().filter(|grant| grant.cooling.is_none() && grant.wish.alert_after().is_some());
        let alerts: BTreeMap<Grant, Option<Instant>> = alerts
            .map(|grant| (grant.epoch, grant.session))
            .map(|key| (key, earlier.get(&key).copied().unwrap_or(Some(now))))
            .collect();
        if !alerts.is_empty() {
            self.alerts.insert(name.clone(), alerts);
        }
    }

    /// What has waited long enough, and what is taken from those whose connection is lost.
    pub(super) fn due(&self, now: Instant, state: &State, gone: &[SessionId]) -> Vec<Vec<Command>> {
        let cooled = self.cooling.iter().flat_map(|(lock, grants)| {
            let over = grants.iter().filter(|(_, until)| now >= **until);
            over.map(|((epoch, session), _)| Command::EndLockCooling {
                lock: lock.clone(),
                epoch: *epoch,
                session: *session,
            })
        });
        let seized = gone.iter().flat_map(|id| seized(state, *id));
        let commands: Vec<Command> = cooled.chain(seized).collect();
        commands.chunks(MAX_COMMANDS).map(<[Command]>::to_vec).collect()
    }

    /// Locks that have been held for longer than their holders said, each once.
    pub fn held_too_long(&mut self, now: Instant, state: &State) -> Vec<HeldTooLong> {
        let mut told = Vec::new();
        for (name, grants) in &mut self.alerts {
            let lock = state.lock(name);
            for ((epoch, session), since) in grants {
                let Some(began) = *since else { continue };
                let held = now.since(began);
                let is_it = |grant: &&LockGrant| grant.epoch == *epoch && grant.session == *session;
                let grant = lock.and_then(|lock| lock.grants.iter().find(is_it));
                if let Some(grant) = grant.filter(|g| g.wish.alert_after().is_some_and(|after| held >= after))
                {
                    told.push(HeldTooLong { lock: name.clone(), grant: grant.clone(), held });
                    *since = None;
                }
            }
        }
        told
    }
}

/// The locks that a session holds whose holders are replaced by fence.
fn seized(state: &State, id: SessionId) -> Vec<Command> {
    let held = state.session(id).into_iter().flat_map(crate::state::Session::locks);
    let of = |lock: &Lock| {
        let grant = lock.held_by(id)?;
        let by_fence = grant.wish.takeover() == Takeover::Fence || mutant!("lock-seized-by-lease");
        by_fence.then(|| Command::SeizeLock { lock: lock.name.clone(), epoch: grant.epoch, session: id })
    };
    held.filter_map(|name| of(state.lock(name)?)).collect()
}
