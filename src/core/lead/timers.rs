//! How long handoffs wait: what is left of a drain, and until when a partition cools.
//!
//! The state holds durations; a leader counts them on its own clock from the moment it applied the entry that began
//! them. A new leader counts in full: that waits longer than needed and is never too short. A drain's clock is set once
//! for an epoch; a second drain of the same epoch finds it running.

use crate::ids::{Epoch, KeyspaceId, MoveId, PartitionKey, SessionId};
use crate::lease::Lessor;
use crate::mutant;
use crate::state::{Command, Cooling, CoolingWhy, Keyspace, Phase, State, Takeover};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The clocks of one leadership.
#[derive(Clone, Debug, Default, Hash)]
pub struct Timers {
    drains: BTreeMap<PartitionKey, DrainTimer>,
    /// Each acknowledgement names the drains of its session: they are found without walking those of all.
    by_session: BTreeMap<SessionId, BTreeSet<PartitionKey>>,
    cooling: BTreeMap<PartitionKey, (Epoch, Instant)>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct DrainTimer {
    epoch: Epoch,
    move_id: MoveId,
    session: SessionId,
    applied: Instant,
    deadline: Duration,
}

impl Timers {
    /// Counts everything that waits, in full.
    pub fn new(now: Instant, state: &State, lessor: &Lessor) -> Timers {
        let mut timers = Timers::default();
        for keyspace in state.keyspaces() {
            for key in keyspace.keys() {
                timers.observe(key, now, state, lessor);
            }
        }
        timers
    }

    /// A partition has changed.
    pub fn observe(&mut self, key: PartitionKey, now: Instant, state: &State, lessor: &Lessor) {
        let partition = state.partition(key);
        let epoch = partition.and_then(crate::state::Partition::epoch);
        match (partition.map(crate::state::Partition::phase), epoch) {
            (Some(Phase::Draining(drain)), Some(epoch)) => {
                self.cooling.remove(&key);
                let other = |running: &DrainTimer| running.epoch != epoch || mutant!("drain-rearmed");
                if self.drains.get(&key).is_none_or(other) {
                    self.forget_drain(key);
                    let (move_id, session, deadline) = (drain.move_id, drain.session, drain.deadline);
                    self.drains.insert(key, DrainTimer { epoch, move_id, session, applied: now, deadline });
                    self.by_session.entry(session).or_default().insert(key);
                }
            }
            (Some(Phase::Cooling(cooling)), Some(epoch)) => {
                self.forget_drain(key);
                // A split mints an epoch while the partition cools, and the same cooling goes on.
                let granted = partition.and_then(|p| p.history().last()).map(|last| last.epoch);
                let running = self.cooling.get(&key).filter(|(running, _)| Some(*running) >= granted);
                let until = running.map_or_else(|| cool_until(cooling, now, lessor), |(_, until)| *until);
                self.cooling.insert(key, (epoch, until));
            }
            _ => {
                self.forget_drain(key);
                self.cooling.remove(&key);
            }
        }
    }

    /// A keyspace was deleted. What cooled there says nothing of its own any more.
    pub fn keyspace_deleted(&mut self, id: KeyspaceId) {
        let drains: Vec<PartitionKey> =
            self.drains.keys().copied().filter(|key| key.keyspace == id).collect();
        drains.into_iter().for_each(|key| self.forget_drain(key));
        self.cooling.retain(|key, _| key.keyspace != id);
    }

    /// What cools.
    pub(super) fn cooling(&self) -> impl Iterator<Item = PartitionKey> {
        self.cooling.keys().copied()
    }

    fn forget_drain(&mut self, key: PartitionKey) {
        let Some(drain) = self.drains.remove(&key) else { return };
        if let Some(keys) = self.by_session.get_mut(&drain.session) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_session.remove(&drain.session);
            }
        }
    }

    /// Every drain of a session, with what is left of it, for an acknowledgement that is answered now.
    pub fn drains_of(&self, session: SessionId, now: Instant) -> Vec<(PartitionKey, Epoch, Duration)> {
        let keys = self.by_session.get(&session).into_iter().flatten().filter(|_| !mutant!("drain-untold"));
        let drains = keys.filter_map(|key| Some((*key, self.drains.get(key)?)));
        drains
            .map(|(key, drain)| (key, drain.epoch, drain.deadline.saturating_sub(now.since(drain.applied))))
            .collect()
    }

    /// When something has waited long enough next.
    pub fn next_due(&self, state: &State) -> Option<Instant> {
        let cooled = self.cooling.values().map(|(_, until)| *until);
        cooled.chain(self.drains.iter().map(|(key, drain)| drain.over(*key, state))).min()
    }

    /// What has waited long enough.
    pub fn due(&self, now: Instant, state: &State) -> Vec<Command> {
        let cooled = self.cooling.iter().filter(|(_, (_, until))| now >= *until);
        let cooled = cooled.map(|(key, (epoch, _))| Command::EndCooling { partition: *key, epoch: *epoch });
        let over = self.drains.iter().filter(|(key, drain)| now >= drain.over(**key, state));
        let over = over.map(|(key, drain)| Command::DrainOver {
            partition: *key,
            epoch: drain.epoch,
            move_id: drain.move_id,
        });
        cooled.chain(over).collect()
    }
}

impl DrainTimer {
    /// When the next owner may be granted although the old one has not released.
    ///
    /// By fence: at the deadline. By lease: at the deadline too when the owner's SDK has learnt of it, for then its
    /// validity ended with it; otherwise at the later of the deadline and a TTL, after which no lease that was
    /// acknowledged before the drain can still run, and none acknowledged since outlives the deadline it was told.
    fn over(&self, key: PartitionKey, state: &State) -> Instant {
        let takeover = state.keyspace(key.keyspace).map(|keyspace| keyspace.policy().takeover());
        let seen = match state.partition(key).map(crate::state::Partition::phase) {
            Some(Phase::Draining(drain)) => drain.revoke_seen,
            _ => false,
        };
        if seen || takeover == Some(Takeover::Fence) || mutant!("unseen-drain-over-at-deadline") {
            return self.applied + self.deadline;
        }
        let ttl = state.session(self.session).map_or(Duration::ZERO, crate::state::Session::ttl);
        self.applied + self.deadline.max(ttl)
    }
}

fn cool_until(cooling: &Cooling, now: Instant, lessor: &Lessor) -> Instant {
    let lease = cooling.lease_of.map_or(now, |(session, ttl)| lessor.lease_end(session, ttl, now));
    if cooling.why == CoolingWhy::Hold && mutant!("hold-forgotten") {
        return now;
    }
    lease.max(now) + cooling.then
}

impl Keyspace {
    /// The keys of its partitions, in order.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + use<> {
        let id = self.id();
        (0..self.count().get())
            .map(move |number| PartitionKey { keyspace: id, partition: crate::ids::PartitionId::new(number) })
    }
}
