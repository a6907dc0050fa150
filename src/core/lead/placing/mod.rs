//! From plans to commands: whom a vacant partition is granted to, and which planned moves begin now.
//!
//! Vacant partitions are granted at once. Balancing waits until membership has settled, and runs within the budget of
//! the keyspace: a move is in flight until its new owner is ready. When many sessions ended together, repairs go on at
//! that budget too (the brake): it was probably not they who were ill.
//!
//! What is handed out may be refused, or lost on its way to the log. So a keyspace in which something was handed out is
//! looked at again until a look finds nothing to do; only then does it wait for an event.
//!
//! | module | idea |
//! |---|---|
//! | `grants` | the grants of what has no owner, and why |
//! | `moves` | the planned moves that begin now |
//! | `planner` | a keyspace's plan, and what is kept from one to the next |
//! | `resting` | partitions whose task returned by itself |
//! | `settings` | how a leader paces its moves |

mod grants;
mod moves;
mod planner;
mod resting;
mod settings;

pub use settings::Settings;

use super::agenda::Agenda;
#[cfg(test)]
use super::brake::Share;
use super::brake::{Brake, Losses};
use crate::ids::{KeyspaceId, PartitionKey, WorkerId};
use crate::mutant;
use crate::placement::{Newly, PlanError};
use crate::state::{EndReason, Event, GrantReason, Partition, Phase, Session, State};
use crate::time::Instant;
use planner::Planner;
use resting::Resting;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A keyspace that could not be planned is tried again this often.
const ERROR_PACE: Duration = Duration::from_secs(1);
/// Members that come and go without a pause hold balancing up for this many settle delays.
const MAX_UNSETTLED: u32 = 10;

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
    resting: Resting,
    /// Partitions that an operator moved, and when.
    moved: BTreeMap<PartitionKey, Instant>,
    /// The sessions that were lost, for the brake.
    losses: Losses,
    planner: Planner,
    /// The first look at every keyspace is still to come.
    fresh: bool,
    /// What is new about workers since a keyspace was last in balance.
    news: BTreeMap<KeyspaceId, BTreeMap<WorkerId, Newly>>,
}

/// By what it decides. The planner's rings follow from the workers in the state, and its errors and the news are for people.
impl Hash for Placing {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Placing { settings, settled_from, unsettled_from, vacant, unbalanced, resting, .. } = self;
        (settings, settled_from, unsettled_from, vacant, unbalanced, resting).hash(hasher);
        let Placing { moved, losses, fresh, planner: _, news: _, .. } = self;
        (moved, losses, fresh).hash(hasher);
    }
}

impl Placing {
    /// A leader that has looked at nothing yet.
    pub fn new(now: Instant, state: &State, settings: Settings) -> Placing {
        let partitions = state.keyspaces().flat_map(|keyspace| keyspace.keys().zip(keyspace.partitions()));
        let moved = partitions
            .filter(|(_, partition)| operators_word(partition) && !mutant!("cool-down-ends-with-its-leader"))
            .map(|(key, _)| (key, now));
        Placing {
            settings,
            settled_from: now,
            unsettled_from: now,
            vacant: Agenda::default(),
            unbalanced: Agenda::default(),
            resting: Resting::new(state),
            moved: moved.collect(),
            losses: Losses::default(),
            planner: Planner::default(),
            fresh: true,
            news: BTreeMap::new(),
        }
    }

    /// How it paces its moves.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A keyspace may be out of balance; it is looked at from then on.
    pub(in crate::lead) fn balance_from(&mut self, keyspace: KeyspaceId, from: Instant) {
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
                    (Some(owner), None) if state.session(*owner).is_some() => self.resting.taken(*key),
                    (None, Some(_)) => self.resting.granted(*key),
                    _ => {}
                }
            }
            Event::GivenBack { key, session } => {
                if state.session(*session).is_some() {
                    self.resting.given_back(*key, now);
                }
            }
            Event::Keyspace(id) => {
                self.vacant.add(*id, now);
                self.unbalanced.add(*id, now);
            }
            Event::KeyspaceDeleted(id, _) => {
                self.vacant.remove(*id);
                self.unbalanced.remove(*id);
                self.planner.forget(*id);
                self.news.remove(id);
                self.losses.forget(*id);
                self.resting.forget(*id);
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
            Event::Suspected(_)
            | Event::PlanChanged(_)
            | Event::Split(_)
            | Event::Lock(_)
            | Event::LockOf { .. } => {}
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
        now.since(self.settled_from) >= self.settings.settle || mutant!("settle-delay-off")
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
    pub(in crate::lead) fn news(&self, id: KeyspaceId) -> Option<&BTreeMap<WorkerId, Newly>> {
        self.news.get(&id)
    }

    /// Partitions that an operator moved, and when.
    pub(in crate::lead) fn moved(&self) -> &BTreeMap<PartitionKey, Instant> {
        &self.moved
    }

    /// Whether a vacant partition waits for a back-off, whoever of so many workers would get it.
    pub(in crate::lead) fn rests(
        &self,
        key: PartitionKey,
        partition: &Partition,
        takers: usize,
        now: Instant,
    ) -> bool {
        self.resting.rests(key, partition, takers, now)
    }

    /// Why keyspaces could not be planned.
    pub fn errors(&self) -> impl Iterator<Item = (KeyspaceId, &PlanError)> {
        self.planner.errors()
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
    pub(in crate::lead) fn brake_with(&self, now: Instant, state: &State, expiring: usize) -> Option<Brake> {
        self.losses.brake(now, state, expiring, self.settings.brake)
    }

    /// Lets the brake go: an operator has looked, and the workers are gone. It is the losses until now that are meant, so
    /// the brake is there again for the next ones, and when another node begins to lead.
    pub fn release_brake(&mut self) {
        self.losses.meant();
        self.fresh = true;
    }

    #[cfg(test)]
    pub(in crate::lead) fn set_brake(&mut self, share: Share) {
        self.settings.brake = share;
    }

    /// The brake, when it has come on since the last call: for an alarm that sounds once each time.
    pub fn brake_to_tell(&mut self, now: Instant, state: &State) -> Option<Brake> {
        let brake = self.brake(now, state);
        self.losses.news(brake)
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
