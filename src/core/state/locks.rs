//! Commands about locks.
//!
//! Who asks gets the lock at once or joins its queue, and every command that frees a lock grants it to the next in the same
//! step: a release wakes one, and no grant waits for a leader's look. Only sessions that are in the state hold or wait, so a
//! grant never goes to a session that has ended.
//!
//! A lock is lost when its holder's session ends, is taken by fence, or is broken by an operator. Until the lease that its
//! holder may still believe in has run out, and a lock delay after it, the grant stays as one that cools. Whoever lost it and
//! knows it may release it, and then it cools no longer.

use super::State;
use super::apply::Change;
use super::keyspace::Takeover;
use super::lock::{
    Lock, LockCooling, LockGrant, LockMode, LockWaiter, LockWish, MAX_LOCK_WAITERS, MAX_LOCKS,
    MAX_SESSION_LOCKS,
};
use super::outcome::{Event, Outcome, Refused};
use super::session::EndReason;
use super::undo::Undo;
use crate::ids::{Epoch, LockName, SessionId};
use crate::mutant;
use std::time::Duration;

impl State {
    /// All locks that somebody holds, waits for, or may believe to hold; by name.
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.values()
    }

    /// Those of a name and after it; by name.
    pub fn locks_from(&self, name: &LockName) -> impl Iterator<Item = &Lock> {
        self.locks.range(name..).map(|(_, lock)| lock)
    }

    /// One lock; `None` when it is idle.
    pub fn lock(&self, name: &LockName) -> Option<&Lock> {
        self.locks.get(name)
    }

    /// No lock was granted an epoch above it.
    pub fn lock_epoch(&self) -> crate::ids::EpochFloor {
        self.counters.lock_epoch
    }
}

/// Who asks for a lock.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) session: SessionId,
    pub(super) request: u64,
    pub(super) wish: LockWish,
}

impl Change<'_> {
    /// A session that holds the lock is answered with its grant, and one that waits keeps its place: whoever lost an answer
    /// asks again, and is never granted a second epoch for it.
    pub(super) fn acquire(&mut self, name: &LockName, asker: Asker, waits: bool) -> Result<Outcome, Refused> {
        let Asker { session, request, wish } = asker;
        let Some(live) = self.state.sessions.get(&session) else {
            return Err(self.state.session_ended(session));
        };
        let (held, waiting) = (live.locks.contains(name), live.waits.contains(name));
        let in_all = live.locks.len() + live.waits.len();
        if let Some(lock) = self.state.locks.get(name) {
            let other_mode = Err(Refused::OtherLockMode(name.clone()));
            if let Some(grant) = lock.held_by(session).filter(|_| held && !mutant!("lock-granted-twice")) {
                return if grant.wish.mode() == wish.mode() {
                    Ok(Outcome::Granted(grant.epoch))
                } else {
                    other_mode
                };
            }
            let place = lock.queue.iter().position(|waiter| waiter.session == session).filter(|_| waiting);
            if let Some((place, waiter)) = place.and_then(|place| Some((place, lock.queue.get(place)?))) {
                return if waiter.wish.mode() == wish.mode() { Ok(queued(place)) } else { other_mode };
            }
        }
        if in_all >= MAX_SESSION_LOCKS {
            return Err(limit("the number of locks that a session holds or waits for", MAX_SESSION_LOCKS));
        }
        let waiter = LockWaiter { session, request, wish, at: self.index, unix_ms: self.unix_ms };
        match self.state.locks.get(name) {
            None if self.state.locks.len() >= MAX_LOCKS => Err(limit("the number of locks", MAX_LOCKS)),
            None => self.admit(name, waiter),
            Some(lock) => {
                let first = lock.queue.is_empty() || mutant!("lock-queue-jumped");
                let (free, waiters) = (first && lock.admits(wish.mode()), lock.queue.len());
                if free {
                    self.admit(name, waiter)
                } else if !waits {
                    Err(Refused::LockHeld {
                        lock: name.clone(),
                        by: lock.grants.first().map(|grant| grant.session),
                    })
                } else if waiters >= MAX_LOCK_WAITERS {
                    Err(limit("the number of those who wait for a lock", MAX_LOCK_WAITERS))
                } else {
                    self.change_lock(name, |lock| lock.queue.push_back(waiter));
                    self.note_wait(session, name, true);
                    Ok(queued(waiters))
                }
            }
        }
    }

    /// The one place that mints a lock's epoch: above every epoch that any lock was granted, and the cluster's floor. Those
    /// who hold a lock together have one epoch, or the fence would take each of them for the successor of the other.
    fn admit(&mut self, name: &LockName, waiter: LockWaiter) -> Result<Outcome, Refused> {
        let LockWaiter { session, request, wish, .. } = waiter;
        let shared = |lock: &Lock| {
            (wish.mode() == LockMode::Shared)
                .then(|| lock.holders().last().map(|grant| grant.epoch))
                .flatten()
        };
        let worker = match self.state.sessions.get(&session) {
            Some(live) => live.worker.clone(),
            None => return Err(self.state.session_ended(session)),
        };
        let counters = &mut self.state.counters;
        let floor = if mutant!("lock-epoch-of-its-own") {
            let last = self.state.locks.get(name).and_then(|lock| lock.grants.last());
            last.map_or(crate::ids::EpochFloor::NONE, |grant| crate::ids::EpochFloor::of(grant.epoch))
        } else {
            counters.lock_epoch.max(counters.floor)
        };
        let epoch = match self.state.locks.get(name).and_then(shared) {
            Some(epoch) => epoch,
            None => {
                let bound = Epoch::MAX.get();
                let minted = floor.next().ok_or(Refused::Limit { what: "the epochs of locks", bound })?;
                counters.lock_epoch = counters.lock_epoch.max(crate::ids::EpochFloor::of(minted));
                minted
            }
        };
        let (at, unix_ms) = (self.index, self.unix_ms);
        let grant = LockGrant { epoch, session, worker, request, wish, at, unix_ms, cooling: None };
        self.change_lock(name, |lock| {
            // Where it had lost it, and is granted the same epoch beside the others who hold it, that is over.
            lock.grants.retain(|lost| (lost.epoch, lost.session) != (epoch, session));
            lock.grants.push(grant);
        });
        self.note_hold(session, name, true);
        self.events.push(Event::Lock(name.clone()));
        Ok(Outcome::Granted(epoch))
    }

    /// Grants the lock to whoever is next, for as long as it admits the next one.
    fn grant_next(&mut self, name: &LockName) {
        loop {
            let lock = self.state.locks.get(name);
            let next = lock.and_then(|lock| lock.queue.front().filter(|next| lock.admits(next.wish.mode())));
            let Some(next) = next.copied() else { break };
            self.change_lock(name, |lock| lock.queue.pop_front());
            self.note_wait(next.session, name, false);
            // Where it cannot be granted, because its session has gone or all epochs are used up, the next one is looked at.
            drop(self.admit(name, next));
            if mutant!("lock-wakes-them-all") {
                let all: Vec<SessionId> = self.state.locks[name].queue.iter().map(|w| w.session).collect();
                all.into_iter().for_each(|session| self.touch_assignment(session));
            }
        }
        if self.state.locks.get(name).is_some_and(Lock::is_idle) {
            self.journal.push(Undo::Lock(name.clone(), self.state.locks.remove(name).map(Box::new)));
        }
        self.events.push(Event::Lock(name.clone()));
    }

    /// A release of what the session does not hold under that epoch answers success and changes nothing: a repeated release
    /// must not free a newer grant. Of what it has lost, it says that it knows.
    pub(super) fn release_lock(
        &mut self,
        name: &LockName,
        epoch: Epoch,
        session: SessionId,
    ) -> Result<Outcome, Refused> {
        if self.state.counters.lock_epoch.epoch().is_none_or(|last| last < epoch) {
            return Err(Refused::NoSuchLockEpoch { lock: name.clone(), epoch });
        }
        let by_name = mutant!("lock-released-by-name");
        let is_it = |grant: &LockGrant| grant.session == session && (grant.epoch == epoch || by_name);
        Ok(self.end_grants(name, is_it))
    }

    /// Ends a request, whatever has become of it: it waits no longer, or what it was granted is released. Another request of
    /// the session for the same lock is left alone.
    pub(super) fn abandon_lock(&mut self, name: &LockName, session: SessionId, request: u64) -> Outcome {
        let Some(lock) = self.state.locks.get(name) else { return Outcome::Unchanged };
        let place =
            lock.queue.iter().position(|waiter| waiter.session == session && waiter.request == request);
        match place {
            Some(place) => {
                self.change_lock(name, |lock| lock.queue.remove(place));
                self.note_wait(session, name, false);
                self.grant_next(name);
                Outcome::Done
            }
            None => self.end_grants(name, |grant| grant.session == session && grant.request == request),
        }
    }

    /// Its holder's connection is lost, and it has asked to be replaced by fence then.
    pub(super) fn seize_lock(&mut self, name: &LockName, epoch: Epoch, session: SessionId) -> Outcome {
        let held = self.state.locks.get(name).and_then(|lock| lock.held_by(session));
        let by_fence =
            |grant: &&LockGrant| grant.wish.takeover() == Takeover::Fence || mutant!("lock-seized-by-lease");
        if held.filter(|grant| grant.epoch == epoch).filter(by_fence).is_none() {
            return Outcome::Unchanged;
        }
        self.lose(name, session, None);
        self.grant_next(name);
        Outcome::Done
    }

    /// An operator takes the lock from whoever holds it. A holder that lives may believe in it for as long as its lease; a
    /// lease that it is granted from now on does not speak of it. `at_once` waits for none of that, and ends what cools.
    pub(super) fn break_lock(&mut self, name: &LockName, epoch: Option<Epoch>, at_once: bool) -> Outcome {
        let named = |grant: &LockGrant| epoch.is_none_or(|epoch| epoch == grant.epoch);
        let Some(lock) = self.state.locks.get(name) else { return Outcome::Unchanged };
        if at_once {
            return self.end_grants(name, named);
        }
        let lost: Vec<SessionId> =
            lock.holders().filter(|grant| named(grant)).map(|grant| grant.session).collect();
        if lost.is_empty() {
            return Outcome::Unchanged;
        }
        for session in lost {
            let ttl = self.state.sessions.get(&session).map_or(Duration::ZERO, super::session::Session::ttl);
            self.lose(name, session, Some(ttl));
        }
        self.grant_next(name);
        Outcome::Done
    }

    /// What was waited for has passed. The state may have moved on while the leader decided it, and then nothing is to do.
    pub(super) fn end_lock_cooling(&mut self, name: &LockName, epoch: Epoch, session: SessionId) -> Outcome {
        let is_it = |grant: &LockGrant| {
            grant.session == session
                && grant.epoch == epoch
                && (grant.cooling.is_some() || mutant!("lock-cooled-while-held"))
        };
        self.end_grants(name, is_it)
    }

    /// A session has ended: it waits for nothing, and has lost what it held.
    pub(super) fn end_locks(&mut self, gone: &super::session::Session, why: EndReason) {
        let lease = match why {
            EndReason::Expired => None,
            EndReason::Left | EndReason::Replaced | EndReason::Evicted => Some(gone.ttl),
        };
        for name in &gone.waits {
            if mutant!("lock-granted-to-the-dead") {
                continue;
            }
            self.change_lock(name, |lock| lock.queue.retain(|waiter| waiter.session != gone.id));
            self.grant_next(name);
        }
        for name in &gone.locks {
            self.lose(name, gone.id, lease);
            self.grant_next(name);
        }
    }

    /// The session has lost the lock, and may believe in it for as long as that lease runs.
    fn lose(&mut self, name: &LockName, session: SessionId, lease: Option<Duration>) {
        self.change_lock(name, |lock| {
            let held = |grant: &&mut LockGrant| grant.session == session && grant.cooling.is_none();
            let Some(grant) = lock.grants.iter_mut().find(held) else { return };
            let lease = lease.filter(|_| grant.wish.takeover() == Takeover::Lease);
            let then = if mutant!("lock-delay-forgotten") { Duration::ZERO } else { grant.wish.lock_delay() };
            grant.cooling = Some(LockCooling { lease, then });
            lock.grants.retain(|grant| {
                grant.cooling.is_none_or(|cooling| cooling.lease.is_some() || !cooling.then.is_zero())
            });
        });
        self.note_hold(session, name, false);
    }

    /// Ends grants without a wait.
    fn end_grants(&mut self, name: &LockName, which: impl Fn(&LockGrant) -> bool) -> Outcome {
        let Some(lock) = self.state.locks.get(name) else { return Outcome::Unchanged };
        let ends = lock.grants.iter().filter(|grant| which(grant));
        let ends: Vec<(SessionId, bool)> =
            ends.map(|grant| (grant.session, grant.cooling.is_none())).collect();
        if ends.is_empty() {
            return Outcome::Unchanged;
        }
        self.change_lock(name, |lock| lock.grants.retain(|grant| !which(grant)));
        for (session, _) in ends.into_iter().filter(|(_, held)| *held) {
            self.note_hold(session, name, false);
        }
        self.grant_next(name);
        Outcome::Done
    }

    /// Changes a lock, which is there from now on, and notes what it was.
    fn change_lock<T>(&mut self, name: &LockName, f: impl FnOnce(&mut Lock) -> T) {
        let before = self.state.locks.get(name).cloned().map(Box::new);
        self.journal.push(Undo::Lock(name.clone(), before));
        f(self.state.locks.entry(name.clone()).or_insert_with(|| Lock::new(name.clone())));
    }

    fn note_hold(&mut self, id: SessionId, name: &LockName, holds: bool) {
        if let Some(session) = self.state.sessions.get_mut(&id) {
            let changed = if holds { session.locks.insert(name.clone()) } else { session.locks.remove(name) };
            if changed {
                self.journal.push(Undo::LockHeld(id, name.clone(), !holds));
            }
        }
        self.touch_assignment(id);
        self.events.push(Event::LockOf { lock: name.clone(), session: id });
    }

    fn note_wait(&mut self, id: SessionId, name: &LockName, waits: bool) {
        if let Some(session) = self.state.sessions.get_mut(&id) {
            let changed = if waits { session.waits.insert(name.clone()) } else { session.waits.remove(name) };
            if changed {
                self.journal.push(Undo::LockAwaited(id, name.clone(), !waits));
            }
        }
    }
}

fn queued(place: usize) -> Outcome {
    Outcome::Queued(u32::try_from(place).unwrap_or(u32::MAX))
}

fn limit(what: &'static str, bound: usize) -> Refused {
    Refused::Limit { what, bound: bound as u64 }
}
