//! From plans to commands: whom a vacant partition is granted to, and which planned moves begin now.
//!
//! Vacant partitions are granted at once. Balancing waits until membership has settled, and runs within the budget of
//! the keyspace: a move is in flight until its new owner is ready. When many sessions ended together, repairs go on at
//! that budget too (the brake): it was probably not they who were ill.
//!
//! What is handed out may be refused, or lost on its way to the log. So a keyspace in which something was handed out is
//! looked at again until a look finds nothing to do; only then does it wait for an event.

use super::MAX_COMMANDS;
use super::agenda::Agenda;
use super::brake::{BRAKE_PACE, Brake, Losses, Share};
use super::budget::Budget;
use super::loads::{Loads, Weights};
use super::picture::{Outlook, Picture, Spots, contains_vacant, is_held};
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, SessionId, WorkerId};
use crate::placement::{Newly, PartitionKeys, PlanError, PlannedMove, Reason, Ring, Spot, View, plan};
use crate::state::{Command, EndReason, Event, GrantReason, Keyspace, Partition, Phase, Session, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A keyspace that could not be planned is tried again this often.
const ERROR_PACE: Duration = Duration::from_secs(1);
/// Members that come and go without a pause hold balancing up for this many settle delays.
const MAX_UNSETTLED: u32 = 10;

/// How a leader paces its moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Balancing waits this long after the last join or end of a session, so that workers that start together cause one
    /// round of moves; a new leader waits as long before its first.
    pub settle: Duration,
    /// A partition that an operator moved is not balanced away again for this long.
    pub cool_down: Duration,
    /// How often workers measure the loads of partitions, in keyspaces that balance by load. Loads that have changed are
    /// looked at as often.
    pub measure_every: Duration,
    /// More than this part of the sessions has to end within a TTL for the brake.
    pub brake: Share,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            settle: Duration::from_millis(500),
            cool_down: Duration::from_secs(30),
            measure_every: Duration::from_secs(5),
            brake: Share::THIRD,
        }
    }
}

/// What one leadership knows about where things should go.
#[derive(Clone, Debug)]
pub struct Placing {
    settings: Settings,
    settled_from: Instant,
    /// The first change of members since balancing last looked.
    unsettled_from: Instant,
    /// Keyspaces in which something may be vacant.
    vacant: Agenda,
    /// Keyspaces that may be out of balance.
    unbalanced: Agenda,
    /// Partitions whose task returned by itself, and since when: the same worker gets one again only after a back-off.
    resting: BTreeMap<PartitionKey, Instant>,
    /// Partitions that an operator moved, and when.
    moved: BTreeMap<PartitionKey, Instant>,
    /// The sessions that were lost, for the brake.
    losses: Losses,
    rings: BTreeMap<KeyspaceId, (Ring, PartitionKeys)>,
    /// The first look at every keyspace is still to come.
    fresh: bool,
    /// Why a keyspace could not be planned; its assignment stands.
    errors: BTreeMap<KeyspaceId, PlanError>,
    /// What is new about workers since a keyspace was last in balance.
    news: BTreeMap<KeyspaceId, BTreeMap<WorkerId, Newly>>,
}

/// By what it decides. The rings follow from the workers in the state, and errors and news are for people.
impl Hash for Placing {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Placing { settings, settled_from, unsettled_from, vacant, unbalanced, resting, .. } = self;
        (settings, settled_from, unsettled_from, vacant, unbalanced, resting).hash(hasher);
        let Placing { moved, losses, fresh, rings: _, errors: _, news: _, .. } = self;
        (moved, losses, fresh).hash(hasher);
    }
}

impl Placing {
    /// A leader that has looked at nothing yet.
    pub fn new(now: Instant, state: &State, settings: Settings) -> Placing {
        let partitions = state.keyspaces().flat_map(|keyspace| keyspace.keys().zip(keyspace.partitions()));
        let moved = partitions.filter(|(_, partition)| operators_word(partition)).map(|(key, _)| (key, now));
        Placing {
            settings,
            settled_from: now,
            unsettled_from: now,
            vacant: Agenda::default(),
            unbalanced: Agenda::default(),
            resting: BTreeMap::new(),
            moved: moved.collect(),
            losses: Losses::default(),
            rings: BTreeMap::new(),
            fresh: true,
            errors: BTreeMap::new(),
            news: BTreeMap::new(),
        }
    }

    /// How it paces its moves.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A keyspace may be out of balance; it is looked at from then on.
    pub(super) fn balance_from(&mut self, keyspace: KeyspaceId, from: Instant) {
        self.unbalanced.add(keyspace, from);
    }

    /// Takes note of what an entry changed.
    pub fn observe(&mut self, event: &Event, now: Instant, state: &State) {
        match event {
            Event::Partition { key, before, after } => {
                if after.is_none() {
                    self.vacant.add(key.keyspace, now);
                }
                self.unbalanced.add(key.keyspace, now);
                let partition = state.partition(*key);
                let begins = |partition: &Partition| {
                    before != after || matches!(partition.phase(), Phase::Draining(_))
                };
                if partition.is_some_and(|partition| operators_word(partition) && begins(partition)) {
                    // Balancing would carry it back at once.
                    self.moved.insert(*key, now);
                }
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
                self.vacant.add(*id, now);
                self.unbalanced.add(*id, now);
            }
            Event::KeyspaceDeleted(id, _) => {
                self.vacant.remove(*id);
                self.unbalanced.remove(*id);
                self.rings.remove(id);
                self.errors.remove(id);
                self.news.remove(id);
                self.losses.forget(*id);
                self.resting.retain(|key, _| key.keyspace != *id);
                self.moved.retain(|key, _| key.keyspace != *id);
            }
            Event::Joined(_) | Event::Withdrawn(_) => self.workers_changed(now),
            Event::Ended { why, .. } => {
                self.workers_changed(now);
                for news in self.news.values_mut() {
                    news.retain(|worker, _| state.session_of(worker).is_some());
                }
                if *why == EndReason::Expired {
                    self.losses.lost(now);
                }
            }
            Event::WorkerSet { .. } | Event::FreezeSet(None) => self.fresh = true,
            Event::PartitionSet(PartitionKey { keyspace, .. }) | Event::FreezeSet(Some(keyspace)) => {
                self.vacant.add(*keyspace, now);
                self.unbalanced.add(*keyspace, now);
            }
            Event::Suspected(_) | Event::PlanChanged(_) | Event::Split(_) => {}
            Event::Cleared(_) => self.somebody_is_back(),
        }
    }

    /// A worker has joined.
    pub fn joined(&mut self, session: &Session) {
        for keyspace in session.keyspaces() {
            self.news.entry(*keyspace).or_default().insert(session.worker().clone(), Newly::Joined);
        }
    }

    /// An operator has given a worker another weight.
    pub fn reweighted(&mut self, session: &Session) {
        for keyspace in session.keyspaces() {
            let news = self.news.entry(*keyspace).or_default();
            news.entry(session.worker().clone()).or_insert(Newly::Reweighted);
        }
    }

    /// A worker that was passed over, because it was suspected or absent, may have something now.
    pub fn somebody_is_back(&mut self) {
        self.fresh = true;
    }

    fn workers_changed(&mut self, now: Instant) {
        if self.settled(now) {
            self.unsettled_from = now;
        }
        self.settled_from = now;
        self.fresh = true;
    }

    fn settled(&self, now: Instant) -> bool {
        now.since(self.settled_from) >= self.settings.settle
    }

    /// When a look may find something although nothing happened in between; `None` when only an event can bring it
    /// something to do. What is over when it says was not done at the last look, and waits for the next.
    pub fn next_look(&self) -> Option<Instant> {
        if self.fresh {
            return Some(self.settled_from);
        }
        let settle = self.settings.settle;
        let settled = (self.settled_from + settle).min(self.unsettled_from + settle * MAX_UNSETTLED);
        let unbalanced = self.unbalanced.next().map(|from| from.max(settled));
        self.vacant.next().into_iter().chain(unbalanced).min()
    }

    /// What is new about the workers of a keyspace.
    pub(super) fn news(&self, id: KeyspaceId) -> Option<&BTreeMap<WorkerId, Newly>> {
        self.news.get(&id)
    }

    /// Partitions that an operator moved, and when.
    pub(super) fn moved(&self) -> &BTreeMap<PartitionKey, Instant> {
        &self.moved
    }

    /// Why keyspaces could not be planned.
    pub fn errors(&self) -> impl Iterator<Item = (KeyspaceId, &PlanError)> {
        self.errors.iter().map(|(id, error)| (*id, error))
    }

    /// More than a third of the sessions (or what the settings say), and more than two, ran out within the last TTL.
    pub fn braked(&self, now: Instant, state: &State) -> bool {
        self.brake(now, state).is_some()
    }

    /// Why repairs are slowed down, if they are.
    pub fn brake(&self, now: Instant, state: &State) -> Option<Brake> {
        self.brake_with(now, state, 0)
    }

    /// The same when so many more are about to run out.
    pub(super) fn brake_with(&self, now: Instant, state: &State, expiring: usize) -> Option<Brake> {
        self.losses.brake(now, state, expiring, self.settings.brake)
    }

    /// Lets the brake go: an operator has looked, and the workers are gone. It is the losses until now that are meant, so
    /// the brake is there again for the next ones, and when another node begins to lead.
    pub fn release_brake(&mut self) {
        self.losses.meant();
        self.fresh = true;
    }

    #[cfg(test)]
    pub(super) fn set_brake(&mut self, share: Share) {
        self.settings.brake = share;
    }

    /// The brake, when it has come on since the last call: for an alarm that sounds once each time.
    pub fn brake_to_tell(&mut self, now: Instant, state: &State) -> Option<Brake> {
        let brake = self.brake(now, state);
        self.losses.news(brake)
    }

    /// The grants to propose now, by partition: of those that are vacant, and of those that are about to be.
    pub fn grants(
        &mut self,
        now: Instant,
        state: &State,
        outlook: Outlook<'_>,
        loads: &Loads,
        budget: &mut Budget,
    ) -> BTreeMap<PartitionKey, Command> {
        self.losses.forget_old(now);
        if std::mem::take(&mut self.fresh) {
            for keyspace in state.keyspaces() {
                self.vacant.add(keyspace.id(), now);
                self.unbalanced.add(keyspace.id(), now);
            }
        }
        let mut look = self.vacant.take(now);
        look.extend(outlook.freed.iter().map(|key| key.keyspace));
        if look.is_empty() {
            return BTreeMap::new();
        }

        let braked = self.brake_with(now, state, outlook.expiring.len()).is_some();
        let expired = state.ended.iter().filter(|ended| ended.why == EndReason::Expired);
        let expired = expired.map(|ended| ended.session).collect();
        let (freed, commands) = (outlook.freed, BTreeMap::new());
        let mut grants = Grants { now, state, braked, expired, freed, budget, commands };
        for id in look {
            let Some(picture) = Picture::to_fill(state, id, outlook) else { continue };
            let Spots { spots, handed_on } = picture.spots(&self.moved, outlook);
            let before = grants.commands.len();
            for (key, to) in handed_on {
                grants.add(key, picture.sessions[to.get()].id());
            }
            if contains_vacant(&spots) {
                let weights = loads.weights(now, self.settings.measure_every, picture.keyspace);
                self.fill(now, &picture, &spots, &weights, &mut grants);
            }
            if grants.commands.len() > before {
                self.vacant.add(id, now);
            }
        }
        grants.commands
    }

    /// Grants what is vacant in one keyspace, as far as the brake allows.
    fn fill(
        &mut self,
        now: Instant,
        picture: &Picture<'_>,
        spots: &[Spot],
        weights: &Weights,
        grants: &mut Grants<'_>,
    ) {
        let id = picture.keyspace.id();
        let Some(moves) = self.plan(picture, spots, weights) else {
            return self.vacant.add(id, now + ERROR_PACE);
        };
        let mut room = if grants.braked { grants.budget.flights(picture.keyspace, now) } else { usize::MAX };
        if room == 0 && self.losses.lets_one_through(id, now) {
            room = 1;
        }
        for planned in moves.iter().filter(|m| m.reason.is_repair()) {
            let key = PartitionKey { keyspace: id, partition: planned.partition };
            let Some(partition) = grants.state.partition(key) else { continue };
            let target = picture.sessions[planned.to.get()];
            if let Some(until) = self.rests_until(key, partition, target.worker(), now) {
                self.vacant.add(id, until);
            } else if room == 0 {
                self.vacant.add(id, now + BRAKE_PACE);
                break;
            } else {
                grants.add(key, target.id());
                room -= 1;
            }
        }
    }

    /// The moves to begin now, within each keyspace's budget and its bound on moves in a minute.
    ///
    /// What an operator demands, by a drain, a pin or a label, is done also where balancing is not. Nothing is done where
    /// it is frozen.
    pub fn moves(
        &mut self,
        now: Instant,
        state: &State,
        absent: &BTreeSet<SessionId>,
        loads: &Loads,
        budget: &mut Budget,
    ) -> Vec<Vec<Command>> {
        let for_too_long = now.since(self.unsettled_from) >= self.settings.settle * MAX_UNSETTLED;
        if !self.settled(now) && !for_too_long {
            return Vec::new();
        }
        let look = self.unbalanced.take(now);
        if look.is_empty() {
            return Vec::new();
        }
        self.unsettled_from = now;
        self.moved.retain(|_, at| now.since(*at) < self.settings.cool_down);
        let (nobody, nothing) = (BTreeSet::new(), BTreeSet::new());
        let outlook = Outlook { absent, expiring: &nobody, freed: &nothing };
        let mut drains: BTreeMap<Option<LogIndex>, Vec<Command>> = BTreeMap::new();
        for id in look {
            let Some(picture) = Picture::of(state, id, outlook) else { continue };
            let policy = picture.keyspace.policy();
            // Else what is in flight changes by an event, which brings the keyspace back here.
            if let Some(opens) = budget.opens(picture.keyspace, now) {
                self.unbalanced.add(id, opens);
            }
            let room = budget.moves(picture.keyspace, now);
            if room == 0 {
                continue;
            }
            let picture = picture.with_news(self.news.get(&id));
            let Spots { spots, .. } = picture.spots(&self.moved, outlook);
            let weights = loads.weights(now, self.settings.measure_every, picture.keyspace);
            if let Some(until) = weights.waits_until {
                self.unbalanced.add(id, until);
            }
            let Some(moves) = self.plan(&picture, &spots, &weights) else {
                self.unbalanced.add(id, now + ERROR_PACE);
                continue;
            };
            let cooled_down = self.moved.iter().filter(|(key, _)| key.keyspace == id);
            if let Some(at) = cooled_down.map(|(_, at)| *at + self.settings.cool_down).min() {
                self.unbalanced.add(id, at);
            }
            if !moves.iter().any(|planned| planned.reason.is_balance()) && weights.waits_until.is_none() {
                self.news.remove(&id);
            }
            let wanted =
                |m: &&PlannedMove| !m.reason.is_repair() && (policy.balance() || !m.reason.is_balance());
            for planned in moves.iter().filter(wanted).take(room) {
                let key = PartitionKey { keyspace: id, partition: planned.partition };
                let Some(epoch) = state.partition(key).and_then(Partition::epoch) else { continue };
                self.unbalanced.add(id, now);
                budget.begins(picture.keyspace, now);
                let directive = directive(state, picture.keyspace, key, planned.reason);
                drains.entry(directive).or_default().push(Command::Drain {
                    partition: key,
                    epoch,
                    to: picture.sessions[planned.to.get()].worker().clone(),
                    deadline: policy.drain_deadline(),
                    why: grant_reason(planned.reason),
                });
            }
        }
        let mut entries = Vec::new();
        for (directive, drains) in drains {
            let under = directive.map(|directive| Command::Under { directive });
            for part in drains.chunks(MAX_COMMANDS - usize::from(under.is_some())) {
                entries.push(under.iter().chain(part).cloned().collect());
            }
        }
        entries
    }

    /// A planning error leaves the assignment as it is, and is shown until a plan succeeds.
    fn plan(&mut self, picture: &Picture<'_>, spots: &[Spot], weights: &Weights) -> Option<Vec<PlannedMove>> {
        let id = picture.keyspace.id();
        let cached = self.rings.remove(&id);
        let made = Self::plan_with(picture, spots, weights, cached);
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
        picture: &Picture<'_>,
        spots: &[Spot],
        weights: &Weights,
        cached: Option<(Ring, PartitionKeys)>,
    ) -> Result<(Vec<PlannedMove>, (Ring, PartitionKeys)), PlanError> {
        let keyspace = picture.keyspace;
        let (ring, keys) = match cached {
            Some((ring, keys)) if ring.is_of(&picture.candidates) => (ring, Some(keys)),
            Some((_, keys)) => (Ring::new(&picture.candidates)?, Some(keys)),
            None => (Ring::new(&picture.candidates)?, None),
        };
        // A split has made them more.
        let keys = keys.filter(|keys| keys.are_of(keyspace.name(), spots.len()));
        let keys = keys.unwrap_or_else(|| PartitionKeys::new(keyspace.name(), keyspace.count()));
        let view = View::new(keyspace.name(), &picture.candidates, spots).with_ring(&ring).with_keys(&keys);
        let view = view.with_rules(picture.rules(weights));
        let moves = match &weights.loads {
            Some(loads) => plan(&view.with_loads(loads))?.moves,
            None => plan(&view)?.moves,
        };
        Ok((moves, (ring, keys)))
    }

    /// A worker whose task returned by itself gets the partition again only after the back-off, and from the second time
    /// in a row on so does anybody: two workers would pass it to and fro as fast as the log allows. A task that failed
    /// has waited while the partition cooled. A new leader counts in full.
    fn rests_until(
        &mut self,
        key: PartitionKey,
        partition: &Partition,
        target: &WorkerId,
        now: Instant,
    ) -> Option<Instant> {
        let setback = partition.setback().filter(|setback| setback.error.is_empty())?;
        if setback.worker != *target && setback.count < 2 {
            return None;
        }
        let until = *self.resting.entry(key).or_insert(now) + setback.backoff();
        (now < until).then_some(until)
    }
}

/// Whether an operator moved the partition where it is, or where it is on its way to.
fn operators_word(partition: &Partition) -> bool {
    let why = match partition.phase() {
        Phase::Draining(drain) => Some(drain.why),
        Phase::Owned { .. } => partition.history().last().map(|tenure| tenure.why),
        Phase::Vacant | Phase::Cooling(_) => None,
    };
    why == Some(GrantReason::Operator)
}

/// The directive that a planned move follows from.
fn directive(state: &State, keyspace: &Keyspace, key: PartitionKey, why: Reason) -> Option<LogIndex> {
    match why {
        Reason::Pin => keyspace.settings().get(&key.partition)?.pin.as_ref().map(|(_, by)| *by),
        Reason::Drain => {
            let owner = state.session(state.partition(key)?.owner()?)?;
            state.worker_settings().get(owner.worker())?.drain()
        }
        _ => None,
    }
}

/// What the history says of a planned move.
fn grant_reason(why: Reason) -> GrantReason {
    match why {
        Reason::Pin => GrantReason::Pin,
        Reason::Drain => GrantReason::Drain,
        Reason::Label => GrantReason::Label,
        Reason::Join => GrantReason::Join,
        Reason::Weight => GrantReason::Weight,
        Reason::Zone => GrantReason::Zone,
        Reason::Load => GrantReason::Load,
        Reason::Balance => GrantReason::Balance,
        // Repairs are no planned moves, and have their reasons from the history.
        Reason::First | Reason::Leave | Reason::Failure | Reason::Returned => GrantReason::Vacated,
    }
}

/// The grants of one look.
struct Grants<'a> {
    now: Instant,
    state: &'a State,
    braked: bool,
    expired: BTreeSet<SessionId>,
    freed: &'a BTreeSet<PartitionKey>,
    budget: &'a mut Budget,
    commands: BTreeMap<PartitionKey, Command>,
}

impl Grants<'_> {
    fn add(&mut self, key: PartitionKey, to: SessionId) {
        let found = self.state.keyspace(key.keyspace).zip(self.state.partition(key));
        let Some((keyspace, partition)) = found else { return };
        self.budget.granted(keyspace, key, self.now);
        let failed = |last: SessionId| self.freed.contains(&key) || self.expired.contains(&last);
        let why = match partition.history().last() {
            None if partition.born().is_some() => GrantReason::Split,
            None => GrantReason::First,
            Some(_) if is_held(partition) => GrantReason::Returned,
            Some(last) if failed(last.session) => GrantReason::Failover,
            Some(_) => GrantReason::Vacated,
        };
        self.commands.insert(key, Command::Grant { partition: key, replaces: partition.epoch(), to, why });
    }
}
