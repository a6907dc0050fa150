//! Commands about one partition: the phases of a handoff.
//!
//! `Vacant -> Owned -> (Draining) -> Vacant | Cooling -> Vacant`. What the leader decides names (partition, epoch,
//! move); the owner's own release names (partition, epoch, session) and counts in every phase.

use super::apply::{Change, MovedBy};
use super::command::Released;
use super::keyspace::Takeover;
use super::outcome::{Event, Outcome, Refused};
use super::partition::{
    Born, Cooling, CoolingWhy, Drain, GrantReason, MAX_FAILURE_BYTES, Partition, Phase, Setback, Tenure,
};
use super::session::Session;
use super::text::cut;
use super::undo::Undo;
use crate::ids::{Epoch, EpochFloor, MoveId, PartitionKey, SessionId, WorkerId};
use crate::mutant;
use std::time::Duration;

/// How a partition lost its owner, which decides what it waits for.
pub(super) enum Freed {
    /// The owner gave it back.
    Released,
    /// The owner's task failed, for the `n`th time: it waits for the back-off.
    Failed,
    /// The owner gave it back because its worker is being restarted: it waits for that one to come back.
    Restarting,
    /// The drain's deadline passed.
    Taken,
    /// The fence keeps an owner out that was lost, and so it was taken from it before its session ended.
    Seized,
    /// The owner's session ended; its lease may still run.
    SessionEnded { lease_of: Option<(SessionId, Duration)> },
}

impl Change<'_> {
    pub(super) fn find(&self, key: PartitionKey) -> Result<&Partition, Refused> {
        self.state.partition(key).ok_or(Refused::NoSuchPartition(key))
    }

    fn find_at(&self, key: PartitionKey, epoch: Epoch) -> Result<&Partition, Refused> {
        let partition = self.find(key)?;
        if partition.epoch() != Some(epoch) {
            return Err(Refused::StaleEpoch {
                partition: key,
                named: Some(epoch),
                current: partition.epoch(),
            });
        }
        Ok(partition)
    }

    /// Changes a partition: notes what it was, marks the map as changed, and tells whoever watches.
    pub(super) fn change(&mut self, key: PartitionKey, f: impl FnOnce(&mut Partition)) {
        let Some(slot) = self.state.partition_mut(key) else { return };
        let old = slot.clone();
        f(slot);
        let (before, after) = (old.owner(), slot.owner());
        self.journal.push(Undo::Partition(key, Box::new(old)));
        self.touch_map(Event::Partition { key, before, after });
        if before != after {
            if let Some(session) = before {
                self.unhold(session, key);
            }
            if let Some(session) = after {
                self.hold(session, key);
            }
        } else if let Some(session) = after {
            self.touch_assignment(session);
        }
    }

    pub(super) fn touch_assignment(&mut self, id: SessionId) {
        if mutant!("assignment-keeps-its-revision") {
            return;
        }
        if let Some(session) = self.state.sessions.get_mut(&id) {
            self.journal.push(Undo::Assignment(id, session.assignment));
            session.assignment = self.index;
        }
    }

    fn hold(&mut self, id: SessionId, key: PartitionKey) {
        if let Some(session) = self.state.sessions.get_mut(&id) {
            session.holds.insert(key);
            self.journal.push(Undo::Held(id, key));
        }
        self.touch_assignment(id);
    }

    pub(super) fn unhold(&mut self, id: SessionId, key: PartitionKey) {
        if let Some(session) = self.state.sessions.get_mut(&id) {
            session.holds.remove(&key);
            self.journal.push(Undo::Unheld(id, key));
        }
        self.touch_assignment(id);
    }

    /// The one place that mints an epoch: above the partition's last, the keyspace's floor and the cluster's floor.
    pub(super) fn mint(&self, key: PartitionKey) -> Result<Epoch, Refused> {
        self.state
            .next_epoch(key)
            .ok_or(Refused::Limit { what: "the epochs of a partition", bound: Epoch::MAX.get() })
    }

    pub(super) fn grant(
        &mut self,
        key: PartitionKey,
        replaces: Option<Epoch>,
        to: SessionId,
        why: GrantReason,
    ) -> Result<Outcome, Refused> {
        let partition = self.find(key)?;
        if partition.epoch() != replaces && !mutant!("epoch-minted-when-proposed") {
            return Err(Refused::StaleEpoch { partition: key, named: replaces, current: partition.epoch() });
        }
        if partition.phase != Phase::Vacant && !mutant!("owned-granted-again") {
            return Err(Refused::NotVacant(key));
        }
        // What was decided before an operator took the worker out must not reach it after: whoever asked may have been
        // told that it can be stopped.
        let settings = |session: &Session| self.state.worker_settings.get(&session.worker);
        let keeps = |session: &Session| self.is_granted_again(key, session, why);
        let taken_out = |session: &Session| {
            settings(session)
                .is_some_and(|set| set.drain().is_some() || set.takes_nothing() && !keeps(session))
        };
        let target = self.state.sessions.get(&to).filter(|session| !session.withdrawn && !taken_out(session));
        let Some(session) = target else { return Ok(Outcome::LeftVacant) };
        if !session.keyspaces.contains(&key.keyspace) {
            return Err(Refused::NotServing { session: to, keyspace: key.keyspace });
        }
        let epoch = match (partition.history.last(), replaces) {
            (Some(last), _) if mutant!("epoch-kept-on-regrant") && last.worker == session.worker => {
                last.epoch
            }
            (_, Some(e)) if mutant!("epoch-minted-when-proposed") => EpochFloor::of(e).next().unwrap_or(e),
            _ => self.mint(key)?,
        };
        let worker = session.worker.clone();
        // Who was to have it by somebody's word may be gone, and then another one's grant does not follow from it.
        let moved_by = self.moved_by.get(&key).filter(|by| by.to.as_ref().is_none_or(|to| *to == worker));
        let born = partition.born.filter(|_| partition.history.is_empty()).and_then(|born| born.by);
        let directive = moved_by.map(|by| by.directive).or(self.directive).or(born);
        let tenure =
            Tenure { epoch, session: to, worker, at: self.index, unix_ms: self.unix_ms, why, directive };
        self.change(key, |partition| {
            partition.epoch = EpochFloor::of(epoch);
            partition.phase = Phase::Owned { session: to, ready: false };
            partition.remember(tenure);
        });
        self.forget_floor(key);
        Ok(Outcome::Granted(epoch))
    }

    /// It had the partition, or the one that this was split from, and gets it anew without having lost it: one that is
    /// cordoned keeps what it has.
    fn is_granted_again(&self, key: PartitionKey, session: &Session, why: GrantReason) -> bool {
        let last_was =
            |partition: &Partition| partition.history.last().is_some_and(|last| last.session == session.id);
        let parent = |born: Born| self.state.partition(PartitionKey { partition: born.parent, ..key });
        matches!(why, GrantReason::Split | GrantReason::Reassert | GrantReason::Behind)
            && self.state.partition(key).is_some_and(|partition| match partition.history.last() {
                Some(_) => last_was(partition),
                None => partition.born.and_then(parent).is_some_and(last_was),
            })
    }

    /// A move that a leader planned may meet another state than it was planned for: its partition has moved on, or was
    /// frozen or pinned meanwhile. It is passed over then, and those beside it begin. An operator's move is refused and says why.
    pub(super) fn drain(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        to: &WorkerId,
        deadline: Duration,
        why: GrantReason,
    ) -> Result<Outcome, Refused> {
        match self.begin_drain(key, epoch, to, deadline, why) {
            Err(Refused::Limit { what, bound }) => Err(Refused::Limit { what, bound }),
            Err(_) if why.is_planned() => Ok(Outcome::Unchanged),
            other => other,
        }
    }

    fn begin_drain(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        to: &WorkerId,
        deadline: Duration,
        why: GrantReason,
    ) -> Result<Outcome, Refused> {
        let session = match &self.find_at(key, epoch)?.phase {
            Phase::Owned { session, .. } => *session,
            Phase::Draining(drain) if mutant!("drain-rearmed") => drain.session,
            Phase::Draining(drain) => return Ok(Outcome::Draining(drain.move_id)),
            Phase::Vacant | Phase::Cooling(_) => return Err(Refused::NotOwned(key)),
        };
        if let Some(frozen) = self.state.freeze_of_move(key, to) {
            return Err(Refused::Frozen(frozen));
        }
        // Its pin would take it back. Balancing goes by the pins itself, and repairs nothing that has an owner.
        let by_name = matches!(why, GrantReason::Operator | GrantReason::Plan);
        let pin = self.state.pin_of(key).filter(|pin| by_name && *pin != to);
        if let Some(pin) = pin.filter(|_| !mutant!("moved-from-its-pin")) {
            return Err(Refused::Pinned { partition: key, to: pin.clone() });
        }
        let move_id = self.state.counters.take_move()?;
        let (to, directive) = (to.clone(), self.directive);
        self.change(key, |partition| {
            let drain = Drain { session, move_id, to, deadline, why, revoke_seen: false, directive };
            partition.phase = Phase::Draining(Box::new(drain));
        });
        if let Some(directive) = directive {
            self.begun(directive, key, epoch);
        }
        Ok(Outcome::Draining(move_id))
    }

    /// Said again, or said late, it changes nothing.
    pub(super) fn revoke_seen(&mut self, key: PartitionKey, epoch: Epoch, session: SessionId) -> Outcome {
        match self.find_at(key, epoch).map(|p| &p.phase) {
            Ok(Phase::Draining(drain)) if drain.session == session && !drain.revoke_seen => {}
            _ => return Outcome::Unchanged,
        }
        // Nobody who watches the map or the assignment is told: it is between the owner and the leader's timer.
        if let Some(slot) = self.state.partition_mut(key) {
            let old = slot.clone();
            if let Phase::Draining(drain) = &mut slot.phase {
                drain.revoke_seen = true;
            }
            self.journal.push(Undo::Partition(key, Box::new(old)));
        }
        Outcome::Done
    }

    pub(super) fn drain_over(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        move_id: MoveId,
    ) -> Result<Outcome, Refused> {
        match &self.find_at(key, epoch)?.phase {
            Phase::Draining(drain) if drain.move_id == move_id || mutant!("drain-over-of-any-move") => {}
            _ => return Err(Refused::OtherMove(key)),
        }
        self.vacate(key, Freed::Taken);
        Ok(Outcome::Done)
    }

    pub(super) fn seize(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        session: SessionId,
    ) -> Result<Outcome, Refused> {
        if self.find_at(key, epoch)?.owner() != Some(session) {
            return Err(Refused::NotOwner { partition: key, session });
        }
        let by_fence =
            self.state.keyspaces.get(&key.keyspace).is_some_and(|k| k.policy.takeover() == Takeover::Fence);
        if !by_fence && !mutant!("seized-by-lease") {
            return Err(Refused::TakesOverByLease(key.keyspace));
        }
        self.vacate(key, Freed::Seized);
        Ok(Outcome::Done)
    }

    /// A release of an epoch that is over, or by a session that is not the owner's any more, answers success and
    /// changes nothing: the retry of a release whose answer was lost must not free a newer grant (nor be an error).
    pub(super) fn release(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        session: SessionId,
        how: &Released,
    ) -> Result<Outcome, Refused> {
        let Ok(partition) = self.find(key) else { return Ok(Outcome::Unchanged) };
        if partition.epoch().is_none_or(|current| current < epoch) {
            return Err(Refused::StaleEpoch {
                partition: key,
                named: Some(epoch),
                current: partition.epoch(),
            });
        }
        let current = partition.epoch() == Some(epoch) && partition.owner() == Some(session);
        if !current && !mutant!("release-by-name") {
            if let Released::Behind(seen) = how
                && mutant!("seen-of-anyone")
            {
                self.believe(key, *seen);
            }
            return Ok(Outcome::Unchanged);
        }
        let believed = match how {
            Released::Behind(seen) => Some(self.believe(key, *seen)),
            _ => None,
        };
        let Ok(partition) = self.find(key) else { return Ok(Outcome::Unchanged) };
        let worker = self.state.sessions.get(&session).map(|s| s.worker.clone());
        let setback = match (how, worker) {
            (Released::Revoked | Released::Restarting, _) | (_, None) => None,
            (Released::Returned, Some(worker)) => Some((worker, String::new())),
            (Released::Failed(error), Some(worker)) => {
                Some((worker, cut(error, MAX_FAILURE_BYTES).to_owned()))
            }
            (Released::Behind(seen), Some(worker)) => {
                Some((worker, behind(epoch, *seen, believed == Some(true))))
            }
        };
        let moving = matches!(partition.phase, Phase::Draining(_));
        let count = partition.setback.as_ref().map_or(0, |s| s.count).saturating_add(1);
        if let Some(slot) = self.state.partition_mut(key) {
            self.journal.push(Undo::Partition(key, Box::new(slot.clone())));
            slot.setback = setback.map(|(worker, error)| Box::new(Setback { count, worker, error }));
        }
        let freed = match how {
            Released::Failed(_) => Freed::Failed,
            // Once may be a restore. What says so again and again waits longer each time.
            Released::Behind(_) if believed == Some(true) && count == 1 => Freed::Released,
            Released::Behind(_) => Freed::Failed,
            // Where it was on its way to another worker, it goes on there.
            Released::Restarting if moving => Freed::Released,
            Released::Restarting => Freed::Restarting,
            Released::Revoked | Released::Returned => Freed::Released,
        };
        self.vacate(key, freed);
        self.events.push(Event::GivenBack { key, session });
        Ok(Outcome::Done)
    }

    pub(super) fn ready(
        &mut self,
        key: PartitionKey,
        epoch: Epoch,
        session: SessionId,
    ) -> Result<Outcome, Refused> {
        let Ok(partition) = self.find(key) else { return Ok(Outcome::Unchanged) };
        if partition.epoch().is_none_or(|current| current < epoch) {
            return Err(Refused::StaleEpoch {
                partition: key,
                named: Some(epoch),
                current: partition.epoch(),
            });
        }
        match partition.phase {
            Phase::Owned { session: owner, ready: false }
                if owner == session && partition.epoch() == Some(epoch) => {}
            Phase::Draining(_) if mutant!("draining-back-to-owned") => {}
            _ => return Ok(Outcome::Unchanged),
        }
        self.change(key, |partition| {
            if mutant!("epoch-raised-by-its-owner") {
                partition.epoch = partition.epoch.next().map_or(partition.epoch, EpochFloor::of);
            }
            partition.phase = Phase::Owned { session, ready: true };
        });
        Ok(Outcome::Done)
    }

    pub(super) fn end_cooling(&mut self, key: PartitionKey, epoch: Epoch) -> Result<Outcome, Refused> {
        if !matches!(self.find_at(key, epoch)?.phase, Phase::Cooling(_)) {
            return Err(Refused::NotCooling(key));
        }
        self.change(key, |partition| partition.phase = Phase::Vacant);
        Ok(Outcome::Done)
    }

    /// Its owner works: what failed before it is forgotten.
    pub(super) fn forgive(&mut self, key: PartitionKey, epoch: Epoch) -> Outcome {
        let works = |partition: &&Partition| partition.ready() && partition.setback.is_some();
        if self.find_at(key, epoch).ok().filter(works).is_none() {
            return Outcome::Unchanged;
        }
        // Whoever watches the map or the assignment sees nothing of it.
        if let Some(slot) = self.state.partition_mut(key) {
            self.journal.push(Undo::Partition(key, Box::new(slot.clone())));
            slot.setback = None;
        }
        Outcome::Done
    }

    /// Takes the partition from its owner. What it waits for before the next grant follows from how it was lost.
    pub(super) fn vacate(&mut self, key: PartitionKey, how: Freed) {
        let Some(policy) = self.state.keyspaces.get(&key.keyspace).map(|k| &k.policy) else { return };
        let (lock_delay, takeover, hold) = (policy.lock_delay(), policy.takeover(), policy.rejoin_hold());
        let backoff =
            self.state.partition(key).and_then(Partition::setback).map_or(Duration::ZERO, Setback::backoff);
        let lost = matches!(how, Freed::Seized | Freed::SessionEnded { .. });
        let (lease_of, then, why) = match how {
            Freed::Released => (None, Duration::ZERO, CoolingWhy::Backoff),
            Freed::Failed => (None, backoff, CoolingWhy::Backoff),
            Freed::Restarting => (None, hold, CoolingWhy::Hold),
            Freed::Taken | Freed::Seized => (None, lock_delay, CoolingWhy::LockDelay),
            Freed::SessionEnded { lease_of } => {
                let lease_of = lease_of.filter(|_| takeover == Takeover::Lease);
                let why = if lease_of.is_some() { CoolingWhy::Lease } else { CoolingWhy::LockDelay };
                (lease_of, lock_delay, why)
            }
        };
        // An owner that was lost would have been replaced in any case, by nobody's word.
        if let Some(Phase::Draining(drain)) = self.state.partition(key).map(Partition::phase)
            && let Some(directive) = drain.directive.filter(|_| !lost)
        {
            let to = Some(drain.to.clone());
            self.moved_by.insert(key, MovedBy { directive, to });
        }
        self.change(key, |partition| {
            partition.phase = if lease_of.is_none() && then.is_zero() {
                Phase::Vacant
            } else {
                Phase::Cooling(Cooling { lease_of, then, why })
            };
        });
    }
}

/// What is told of an owner whose storage has seen a higher epoch than its own.
fn behind(own: Epoch, seen: Epoch, believed: bool) -> String {
    let what = if believed {
        "the next grant is above that"
    } else {
        "too far above to be believed: if it is right, ringfence fence reassert KEYSPACE/PARTITION --above"
    };
    format!("a raise to {own} was refused, storage has seen {seen}; {what}")
}
