//! From plans to commands: whom a vacant partition is granted to, and which planned moves begin now.
//!
//! Vacant partitions are granted at once. Balancing waits until membership has settled, and runs within the budget of
//! the keyspace: a move is in flight until its new owner is ready. When many sessions ended together, repairs go on at
//! that budget too (the brake): it was probably not they who were ill.

use super::MAX_COMMANDS;
use crate::ids::{KeyspaceId, PartitionKey, SessionId, WorkerId};
use crate::placement::{Candidate, PartitionKeys, PlanError, Reason, Ring, Spot, View, WorkerIx, plan};
use crate::state::{Command, EndReason, Event, GrantReason, Keyspace, Partition, Phase, Session, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How a leader paces its moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Balancing waits this long after the last join or end of a session, so that workers that start together cause one
    /// round of moves; a new leader waits as long before its first.
    pub settle: Duration,
    /// A partition that an operator moved is not balanced away again for this long.
    pub cool_down: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { settle: Duration::from_millis(500), cool_down: Duration::from_secs(30) }
    }
}

/// What one leadership knows about where things should go.
#[derive(Clone, Debug)]
pub struct Placing {
    settings: Settings,
    settled_from: Instant,
    /// Keyspaces in which something may be vacant.
    vacant: BTreeSet<KeyspaceId>,
    /// Keyspaces that may be out of balance.
    unbalanced: BTreeSet<KeyspaceId>,
    /// Partitions whose task returned by itself, and since when: the same worker gets one again only after a back-off.
    resting: BTreeMap<PartitionKey, Instant>,
    /// Partitions that an operator moved, and when.
    moved: BTreeMap<PartitionKey, Instant>,
    /// When leases ran out, for the brake.
    expired: VecDeque<Instant>,
    rings: BTreeMap<KeyspaceId, (Ring, PartitionKeys)>,
    /// The first look at every keyspace is still to come.
    fresh: bool,
    /// Why a keyspace could not be planned; its assignment stands.
    errors: BTreeMap<KeyspaceId, PlanError>,
}

/// One keyspace, with its workers in the planner's order.
struct Picture<'a> {
    keyspace: &'a Keyspace,
    sessions: Vec<&'a Session>,
    candidates: Vec<Candidate>,
}

/// What is about to change and not applied yet.
struct Pending<'a> {
    expiring: &'a BTreeSet<SessionId>,
    freed: &'a BTreeSet<PartitionKey>,
}

impl Placing {
    /// A leader that has looked at nothing yet.
    pub fn new(now: Instant, settings: Settings) -> Placing {
        Placing {
            settings,
            settled_from: now,
            vacant: BTreeSet::new(),
            unbalanced: BTreeSet::new(),
            resting: BTreeMap::new(),
            moved: BTreeMap::new(),
            expired: VecDeque::new(),
            rings: BTreeMap::new(),
            fresh: true,
            errors: BTreeMap::new(),
        }
    }

    /// Takes note of what an entry changed.
    pub fn observe(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Partition { key, before, after } => {
                self.vacant.insert(key.keyspace);
                self.unbalanced.insert(key.keyspace);
                match (before, after) {
                    (Some(_), None) => {
                        self.resting.insert(*key, now);
                    }
                    (None, Some(_)) => {
                        self.resting.remove(key);
                    }
                    _ => {}
                }
            }
            Event::Keyspace(id) => {
                self.vacant.insert(*id);
                self.unbalanced.insert(*id);
            }
            Event::KeyspaceDeleted(id, _) => {
                self.vacant.remove(id);
                self.unbalanced.remove(id);
                self.rings.remove(id);
                self.errors.remove(id);
                self.resting.retain(|key, _| key.keyspace != *id);
                self.moved.retain(|key, _| key.keyspace != *id);
            }
            Event::Joined(_) | Event::Withdrawn(_) => self.members_changed(now),
            Event::Ended { why, .. } => {
                self.members_changed(now);
                if *why == EndReason::Expired {
                    self.expired.push_back(now);
                }
            }
            Event::Suspected(_) => {}
            // A worker that was passed over while suspected may have something now.
            Event::Cleared(_) => self.fresh = true,
        }
    }

    fn members_changed(&mut self, now: Instant) {
        self.settled_from = now;
        self.fresh = true;
    }

    /// An operator has moved this partition: balancing leaves it alone for a while.
    pub fn moved_by_operator(&mut self, key: PartitionKey, now: Instant) {
        self.moved.insert(key, now);
    }

    /// Why keyspaces could not be planned.
    pub fn errors(&self) -> impl Iterator<Item = (KeyspaceId, &PlanError)> {
        self.errors.iter().map(|(id, error)| (*id, error))
    }

    /// More than a third of the sessions, and more than two, ran out within the last TTL.
    pub fn braked(&self, now: Instant, state: &State) -> bool {
        let window = state.sessions().map(Session::ttl).max().unwrap_or(crate::state::DEFAULT_TTL);
        let ended = self.expired.iter().rev().take_while(|at| now.since(**at) <= window).count();
        ended > 2 && ended * 3 > state.sessions.len() + ended
    }

    /// The grants to propose now, by partition: of those that are vacant, and of those that `freed` is about to make so.
    pub fn grants(
        &mut self,
        now: Instant,
        state: &State,
        expiring: &BTreeSet<SessionId>,
        freed: &BTreeSet<PartitionKey>,
    ) -> BTreeMap<PartitionKey, Command> {
        let window = crate::state::MAX_TTL;
        while self.expired.front().is_some_and(|at| now.since(*at) > window) {
            self.expired.pop_front();
        }
        if std::mem::take(&mut self.fresh) {
            self.vacant.extend(state.keyspaces().map(Keyspace::id));
            self.unbalanced.extend(state.keyspaces().map(Keyspace::id));
        }
        let mut look: BTreeSet<KeyspaceId> = std::mem::take(&mut self.vacant);
        look.extend(freed.iter().map(|key| key.keyspace));

        let pending = Pending { expiring, freed };
        let braked = self.braked(now, state);
        let how_ended: BTreeMap<SessionId, EndReason> =
            state.ended.iter().map(|ended| (ended.session, ended.why)).collect();
        let mut grants = BTreeMap::new();
        for id in look {
            let Some(picture) = Picture::of(state, id, expiring) else { continue };
            let spots = self.spots(&picture, &pending);
            if !spots.contains_vacant() {
                continue;
            }
            let Some(moves) = self.plan(&picture, &spots.0) else {
                self.vacant.insert(id);
                continue;
            };
            let budget = if braked { picture.room_for_moves().max(1) } else { usize::MAX };
            let vacant = moves.iter().filter(|m| m.reason == Reason::Vacant).take(budget);
            for planned in vacant {
                let key = PartitionKey { keyspace: id, partition: planned.partition };
                let Some(partition) = state.partition(key) else { continue };
                let target = picture.sessions[planned.to.get()];
                if self.rests(key, partition, target.worker(), now) {
                    self.vacant.insert(id);
                    continue;
                }
                let why = match partition.history().last() {
                    None => GrantReason::First,
                    Some(_) if freed.contains(&key) => GrantReason::Failover,
                    Some(last) if how_ended.get(&last.session) == Some(&EndReason::Expired) => {
                        GrantReason::Failover
                    }
                    Some(_) => GrantReason::Vacated,
                };
                let command =
                    Command::Grant { partition: key, replaces: partition.epoch(), to: target.id(), why };
                grants.insert(key, command);
            }
            // Whatever was granted shows as an event; what could not be stays to be looked at again when somebody joins.
            if braked {
                self.vacant.insert(id);
            }
        }
        grants
    }

    /// The moves to begin now, within each keyspace's budget.
    pub fn moves(&mut self, now: Instant, state: &State) -> Vec<Vec<Command>> {
        if now.since(self.settled_from) < self.settings.settle || self.braked(now, state) {
            return Vec::new();
        }
        self.moved.retain(|_, at| now.since(*at) < self.settings.cool_down);
        let (nobody, nothing) = (BTreeSet::new(), BTreeSet::new());
        let pending = Pending { expiring: &nobody, freed: &nothing };
        let mut drains = Vec::new();
        for id in std::mem::take(&mut self.unbalanced) {
            let Some(picture) = Picture::of(state, id, &nobody) else { continue };
            if !picture.keyspace.policy().balance() {
                continue;
            }
            let room = picture.room_for_moves();
            let spots = self.spots(&picture, &pending);
            if room == 0 || spots.contains_vacant() {
                self.unbalanced.insert(id);
                continue;
            }
            let Some(moves) = self.plan(&picture, &spots.0) else { continue };
            let cooling_down = self.moved.keys().any(|key| key.keyspace == id);
            if cooling_down || moves.len() > room {
                self.unbalanced.insert(id);
            }
            for planned in moves.iter().filter(|m| m.reason == Reason::Balance).take(room) {
                let key = PartitionKey { keyspace: id, partition: planned.partition };
                let Some(epoch) = state.partition(key).and_then(Partition::epoch) else { continue };
                drains.push(Command::Drain {
                    partition: key,
                    epoch,
                    to: picture.sessions[planned.to.get()].worker().clone(),
                    deadline: picture.keyspace.policy().drain_deadline(),
                    why: GrantReason::Balance,
                });
            }
        }
        drains.chunks(MAX_COMMANDS).map(<[Command]>::to_vec).collect()
    }

    /// A planning error leaves the assignment as it is, and is shown until a plan succeeds.
    fn plan(&mut self, picture: &Picture<'_>, spots: &[Spot]) -> Option<Vec<crate::placement::PlannedMove>> {
        let id = picture.keyspace.id();
        let cached = self.rings.remove(&id);
        let made = self.plan_with(picture, spots, cached);
        match made {
            Ok((moves, cache)) => {
                self.rings.insert(id, cache);
                self.errors.remove(&id);
                Some(moves)
            }
            Err(error) => {
                self.errors.insert(id, error);
                None
            }
        }
    }

    fn plan_with(
        &self,
        picture: &Picture<'_>,
        spots: &[Spot],
        cached: Option<(Ring, PartitionKeys)>,
    ) -> Result<(Vec<crate::placement::PlannedMove>, (Ring, PartitionKeys)), PlanError> {
        let keyspace = picture.keyspace;
        let (ring, keys) = match cached {
            Some((ring, keys)) if ring.is_of(&picture.candidates) => (ring, keys),
            Some((_, keys)) => (Ring::new(&picture.candidates)?, keys),
            None => (Ring::new(&picture.candidates)?, PartitionKeys::new(keyspace.name(), keyspace.count())),
        };
        let view = View::new(keyspace.name(), &picture.candidates, spots).with_ring(&ring).with_keys(&keys);
        let moves = plan(&view)?.moves;
        Ok((moves, (ring, keys)))
    }

    /// A worker whose task returned by itself gets the partition again only after the back-off. A new leader counts it
    /// in full.
    fn rests(&mut self, key: PartitionKey, partition: &Partition, target: &WorkerId, now: Instant) -> bool {
        let Some(setback) = partition.setback().filter(|setback| setback.worker == *target) else {
            return false;
        };
        let since = *self.resting.entry(key).or_insert(now);
        now.since(since) < setback.backoff()
    }

    fn spots(&self, picture: &Picture<'_>, pending: &Pending<'_>) -> Spots {
        let lock_delay = !picture.keyspace.policy().lock_delay().is_zero();
        let place = |at: usize| u32::try_from(at).ok().map(WorkerIx::new);
        let places = picture.sessions.iter().enumerate();
        let by_id: BTreeMap<SessionId, WorkerIx> =
            places.filter_map(|(at, session)| Some((session.id(), place(at)?))).collect();
        let by_name: BTreeMap<&WorkerId, WorkerIx> =
            picture.sessions.iter().filter_map(|s| Some((s.worker(), *by_id.get(&s.id())?))).collect();
        let suspected =
            |id: SessionId| by_id.get(&id).is_some_and(|ix| picture.sessions[ix.get()].suspicion().is_some());

        let spot = |(key, partition): (PartitionKey, &Partition)| {
            let standing = match partition.phase() {
                Phase::Vacant => Spot::VACANT,
                Phase::Cooling(_) if pending.freed.contains(&key) => Spot::VACANT,
                Phase::Cooling(_) => Spot::HELD,
                // With a lock delay what is freed cools before it is granted.
                Phase::Owned { session, .. } if pending.gone(key, *session) && lock_delay => Spot::HELD,
                Phase::Owned { session, .. } if pending.gone(key, *session) => Spot::VACANT,
                Phase::Draining(drain) if pending.gone(key, drain.session) && lock_delay => Spot::HELD,
                Phase::Draining(drain) if pending.gone(key, drain.session) => Spot::VACANT,
                Phase::Owned { session, ready } => match by_id.get(session) {
                    Some(by) if *ready && !self.moved.contains_key(&key) && !suspected(*session) => {
                        Spot::owned(*by)
                    }
                    Some(by) => Spot::fixed(*by),
                    None => Spot::HELD,
                },
                Phase::Draining(drain) => match (by_name.get(&drain.to), by_id.get(&drain.session)) {
                    (Some(to), _) => Spot::in_flight(*to),
                    (None, Some(by)) => Spot::fixed(*by),
                    (None, None) => Spot::HELD,
                },
            };
            match partition.setback().and_then(|setback| by_name.get(&setback.worker)) {
                Some(worker) => standing.avoiding(*worker),
                None => standing,
            }
        };
        Spots(picture.keyspace.keys().zip(picture.keyspace.partitions()).map(spot).collect())
    }
}

/// Where every partition of a keyspace stands.
struct Spots(Vec<Spot>);

impl Spots {
    fn contains_vacant(&self) -> bool {
        self.0.iter().any(|spot| spot.standing == crate::placement::Standing::Vacant)
    }
}

impl Pending<'_> {
    fn gone(&self, key: PartitionKey, owner: SessionId) -> bool {
        self.expiring.contains(&owner) || self.freed.contains(&key)
    }
}

impl<'a> Picture<'a> {
    /// The keyspace and those of its workers that are not about to end. One that is suspected, or about to leave, keeps
    /// what it has and gets nothing.
    fn of(state: &'a State, id: KeyspaceId, expiring: &BTreeSet<SessionId>) -> Option<Picture<'a>> {
        let keyspace = state.keyspace(id)?;
        // By name, which is the planner's order.
        let sessions = state.workers.values().filter_map(|session| state.session(*session));
        let sessions: Vec<&Session> =
            sessions.filter(|s| s.keyspaces().contains(&id) && !expiring.contains(&s.id())).collect();
        let candidates = sessions.iter().map(|session| Candidate {
            worker: session.worker().clone(),
            weight: session.weight(),
            accepting: !session.withdrawn() && session.suspicion().is_none(),
        });
        let candidates = candidates.collect();
        Some(Picture { keyspace, sessions, candidates })
    }

    /// How many more moves the budget allows. A move is in flight until its new owner is ready.
    fn room_for_moves(&self) -> usize {
        let in_flight = |partition: &&Partition| match partition.phase() {
            Phase::Draining(_) | Phase::Owned { ready: false, .. } => true,
            Phase::Owned { ready: true, .. } | Phase::Vacant | Phase::Cooling(_) => false,
        };
        let budget = self.keyspace.policy().max_moves_in_flight() as usize;
        budget.saturating_sub(self.keyspace.partitions().iter().filter(in_flight).count())
    }
}
