//! A small world of storage: how it begins, what can happen, and what a step does.
//!
//! It has no clock. Whoever was granted a partition once goes on for ever as if it owned it: no lease stops it, no
//! message that it was replaced ever reaches it. What it sends is late, lost, comes twice, and overtakes.

use super::properties;
use super::rules::Rule;
use crate::model::check::Story;
use crate::model::setting::{self, entry, partition};
use ringfence_core::ids::{ClusterId, Epoch, LogIndex, Scope, SessionId};
use ringfence_core::state::{Command, Entry, GrantReason, Outcome, State};
use ringfence_fence::{FencingToken, HighWater};
use stateright::{Model, Property};
use std::time::{Duration, Instant};

/// A world of storage.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Grants go up to this epoch.
    pub epochs: u64,
    /// How many storages the partition has, each with a fence of its own.
    pub stores: usize,
    /// So many messages are under way at once.
    pub messages: usize,
    /// So often a storage crashes.
    pub crashes: u8,
    /// The rule that is taken out.
    pub without: Option<Rule>,
    /// Nobody explores it any further from then on.
    pub until: Option<Instant>,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    /// The coordinator's, as of the last entry.
    pub state: State,
    /// The last entry.
    pub entries: u64,
    /// Everybody who was ever granted the partition, and goes on.
    pub owners: Vec<Owner>,
    /// The storages.
    pub stores: Vec<Store>,
    /// What is under way.
    pub network: Vec<Message>,
    /// How often a storage crashes yet.
    pub crashes: u8,
    /// What must never happen has happened.
    pub broken: Option<Broken>,
    /// A write was refused.
    pub refused: bool,
}

/// One tenure of the partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Under which epoch.
    pub epoch: Epoch,
    /// Of which session.
    pub session: SessionId,
    /// Which fences have answered its raise.
    pub raised: Vec<bool>,
    /// Which storages it has read.
    pub read: Vec<bool>,
}

/// One storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// What its fence remembers.
    pub row: Option<HighWater>,
    /// The same as it would be after a crash.
    pub durable: Option<HighWater>,
    /// The highest epoch that it was raised to, or accepted.
    pub seen: Option<Epoch>,
    /// A write that was checked and has not taken effect, where that is two steps.
    pub checked: Option<Epoch>,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    to: usize,
    from: usize,
    write: bool,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A write took effect below what the fence had seen.
    BelowTheFence,
    /// A write took effect that a later owner had not read.
    AfterALaterOwnerRead,
}

/// A step. Owners are numbered by their grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The partition is granted to the other worker, whatever its owner does.
    HandOver,
    /// A leader tells the other worker of a grant that is not committed, and never will be.
    TellUncommitted,
    /// An owner sends a raise, perhaps again.
    SendRaise(usize, usize),
    /// An owner reads.
    Read(usize, usize),
    /// An owner sends a write.
    SendWrite(usize, usize),
    /// A message arrives.
    Arrive(Message),
    /// A message arrives, and once more later.
    ArriveOnce(Message),
    /// A write that was checked takes effect.
    TakeEffect(usize),
    /// A storage crashes and comes back.
    Crash(usize),
}

impl World {
    /// Is this rule taken out?
    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn may_read(&self, owner: &Owner, store: usize) -> bool {
        match self.without {
            Some(Rule::RaisesBeforeItReads) => true,
            Some(Rule::RaisesAllBeforeItReads) => owner.raised[store],
            _ => owner.raised.iter().all(|raised| *raised),
        }
    }

    fn hand_over(&self, scene: &mut Scene, commits: bool) -> Option<()> {
        let mut state = scene.state.clone();
        let found = state.partition(partition())?;
        let (epoch, owner) = (found.epoch()?, state.session(found.owner()?)?);
        let next = setting::name(usize::from(*owner.worker() == setting::name(0)));
        let to = state.session_of(&next)?.id();
        let (partition, why) = (partition(), GrantReason::Operator);
        let drain = Command::Drain { partition, epoch, to: next, deadline: Duration::from_secs(1), why };
        state.apply(LogIndex::new(scene.entries + 1), &entry(vec![drain]));
        let move_id = match state.partition(partition)?.phase() {
            ringfence_core::state::Phase::Draining(drain) => drain.move_id,
            _ => return None,
        };
        let over = Command::DrainOver { partition, epoch, move_id };
        let grant = Command::Grant { partition, replaces: Some(epoch), to, why };
        let applied = state.apply(LogIndex::new(scene.entries + 2), &entry(vec![over, grant]));
        let Some(Outcome::Granted(epoch)) = applied.outcome.ok()?.pop() else { return None };
        let nothing = vec![false; self.stores];
        scene.owners.push(Owner { epoch, session: to, raised: nothing.clone(), read: nothing });
        if commits {
            (scene.state, scene.entries) = (state, scene.entries + 2);
        }
        Some(())
    }

    fn send(&self, scene: &mut Scene, message: Message) -> Option<()> {
        if scene.network.len() == self.messages || scene.network.contains(&message) {
            return None;
        }
        scene.network.push(message);
        scene.network.sort_unstable();
        Some(())
    }

    fn arrive(&self, scene: &mut Scene, message: Message) -> Option<()> {
        let owner = &scene.owners[message.from];
        let token = token(owner);
        let store = &mut scene.stores[message.to];
        let decided = match self.without {
            Some(Rule::ThereIsAFence) => Some(HighWater::new(owner.epoch, None)),
            Some(Rule::ComparesByOrder) => by_equality(store.row, owner, message.write),
            _ if message.write => HighWater::check(store.row, &token).ok(),
            _ => HighWater::raise(store.row, &token).ok(),
        };
        let Some(row) = decided else {
            scene.refused |= message.write;
            return Some(());
        };
        store.row = Some(row);
        if message.write || !self.lacks(Rule::RaisesAreDurable) {
            store.durable = Some(row);
        }
        if message.write && self.lacks(Rule::ChecksWithTheWrite) {
            store.checked = Some(owner.epoch);
        } else if message.write {
            effect(scene, message.to, scene.owners[message.from].epoch);
        } else {
            store.seen = store.seen.max(Some(owner.epoch));
            scene.owners[message.from].raised[message.to] = true;
        }
        Some(())
    }
}

/// A write takes effect: the moment that everything is about.
fn effect(scene: &mut Scene, at: usize, epoch: Epoch) {
    let store = &mut scene.stores[at];
    if store.seen.is_some_and(|seen| epoch < seen) {
        scene.broken.get_or_insert(Broken::BelowTheFence);
    }
    store.seen = store.seen.max(Some(epoch));
    let later = |owner: &Owner| owner.epoch > epoch && owner.read.contains(&true);
    if scene.owners.iter().any(later) {
        scene.broken.get_or_insert(Broken::AfterALaterOwnerRead);
    }
}

fn by_equality(row: Option<HighWater>, owner: &Owner, write: bool) -> Option<HighWater> {
    let same = row.is_some_and(|row| row.epoch() == owner.epoch);
    (!write || same).then(|| HighWater::new(owner.epoch, Some(owner.session)))
}

fn token(owner: &Owner) -> FencingToken {
    let cluster = ClusterId::new("model").expect("a name");
    let scope: Scope = "orders/0".parse().expect("a scope");
    FencingToken::new(cluster, scope, owner.epoch).held_by(owner.session)
}

impl Model for World {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        let mut state = State::new();
        let mut entries = 0;
        for command in setting::founding(&setting::policy(Duration::from_secs(3), Duration::from_secs(1))) {
            entries += 1;
            let founding: Entry = entry(vec![command]);
            state.apply(LogIndex::new(entries), &founding).outcome.expect("a founding entry fits");
        }
        let found = state.partition(partition()).expect("it was created");
        let (epoch, session) = (found.epoch().expect("granted"), found.owner().expect("granted"));
        let nothing = vec![false; self.stores];
        let owner = Owner { epoch, session, raised: nothing.clone(), read: nothing };
        let store = Store { row: None, durable: None, seen: None, checked: None };
        vec![Scene {
            state,
            entries,
            owners: vec![owner],
            stores: vec![store; self.stores],
            network: Vec::new(),
            crashes: self.crashes,
            broken: None,
            refused: false,
        }]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if (scene.owners.len() as u64) < self.epochs {
            actions.push(Action::HandOver);
            if self.lacks(Rule::TellsWhatIsCommitted) {
                actions.push(Action::TellUncommitted);
            }
        }
        for (at, owner) in scene.owners.iter().enumerate() {
            for store in 0..self.stores {
                actions.push(Action::SendRaise(at, store));
                if !owner.read[store] && self.may_read(owner, store) {
                    actions.push(Action::Read(at, store));
                }
                if owner.read[store] {
                    actions.push(Action::SendWrite(at, store));
                }
            }
        }
        for message in &scene.network {
            actions.push(Action::Arrive(*message));
            actions.push(Action::ArriveOnce(*message));
        }
        for (at, store) in scene.stores.iter().enumerate() {
            if store.checked.is_some() {
                actions.push(Action::TakeEffect(at));
            }
            if scene.crashes > 0 {
                actions.push(Action::Crash(at));
            }
        }
    }

    fn next_state(&self, before: &Scene, action: Action) -> Option<Scene> {
        let mut scene = before.clone();
        match action {
            Action::HandOver => self.hand_over(&mut scene, true)?,
            Action::TellUncommitted => self.hand_over(&mut scene, false)?,
            Action::SendRaise(from, to) => self.send(&mut scene, Message { to, from, write: false })?,
            Action::SendWrite(from, to) => self.send(&mut scene, Message { to, from, write: true })?,
            Action::Read(owner, store) => scene.owners[owner].read[store] = true,
            Action::Arrive(message) => {
                scene.network.retain(|other| *other != message);
                self.arrive(&mut scene, message)?;
            }
            Action::ArriveOnce(message) => self.arrive(&mut scene, message)?,
            Action::TakeEffect(at) => {
                let epoch = scene.stores[at].checked.take()?;
                effect(&mut scene, at, epoch);
            }
            Action::Crash(at) => {
                let store = &mut scene.stores[at];
                (store.row, store.checked) = (store.durable, None);
                scene.crashes -= 1;
            }
        }
        Some(scene)
    }

    fn properties(&self) -> Vec<Property<World>> {
        properties::of(self)
    }
}

impl Story for World {
    fn tell(&self, before: &Scene, action: &Action, after: &Scene) -> String {
        let owner = |at: usize| format!("the owner of {}", after.owners[at].epoch);
        let message = |message: Message| {
            let what = if message.write { "write" } else { "raise" };
            let taken =
                if message.write && after.refused && !before.refused { ", and is refused" } else { "" };
            format!("a {what} of {} arrives at store {}{taken}", owner(message.from), message.to)
        };
        match *action {
            Action::HandOver => {
                format!("the partition is granted under {}", after.owners[after.owners.len() - 1].epoch)
            }
            Action::TellUncommitted => {
                format!(
                    "a grant under {} is told and not committed",
                    after.owners[after.owners.len() - 1].epoch
                )
            }
            Action::SendRaise(from, to) => format!("{} sends a raise to store {to}", owner(from)),
            Action::SendWrite(from, to) => format!("{} sends a write to store {to}", owner(from)),
            Action::Read(from, to) => format!("{} reads store {to}", owner(from)),
            Action::Arrive(what) => message(what),
            Action::ArriveOnce(what) => format!("{}, and will again", message(what)),
            Action::TakeEffect(at) => format!("the write that store {at} has checked takes effect"),
            Action::Crash(at) => format!("store {at} crashes and comes back"),
        }
    }

    fn until(self, at: Instant) -> World {
        World { until: Some(at), ..self }
    }
}
