//! A small world of a split: how it begins, what can happen, and what a step does.
//!
//! One partition, and an owner that sleeps through everything: no lease stops it, no message that its partition was taken,
//! split and granted ever reaches it. When it wakes it goes on, with the keys and under the epoch from before. What anybody
//! sends is late, lost, comes twice, and overtakes. Of the keys two are followed: one that goes to the child of each split,
//! and one that stays.

use super::properties;
use super::rules::Rule;
use crate::model::check::Story;
use crate::model::setting::{self, entry, partition};
use ringfence_core::ids::{ClusterId, Epoch, LogIndex, PartitionId, PartitionKey, Scope, SessionId};
use ringfence_core::placement::{PartitionCount, Partitioner, Share};
use ringfence_core::state::{Command, GrantReason, Keyspace, Outcome, Partition, Phase, State};
use ringfence_fence::{FenceError, FencingToken, HighWater};
use stateright::{Model, Property};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A world in which a partition is split.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// So often a partition is split: once in two, or three times in four.
    pub splits: u8,
    /// So many grants follow the one that the world begins with.
    pub grants: u8,
    /// So many messages are under way at once.
    pub messages: usize,
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
    /// Everybody who was ever granted something, and goes on.
    pub owners: Vec<Owner>,
    /// What the storage's fences remember, by partition.
    pub fences: BTreeMap<PartitionId, HighWater>,
    /// What is under way.
    pub network: Vec<Message>,
    /// How often something was split.
    pub splits: u8,
    /// What must never happen has happened.
    pub broken: Option<Broken>,
    /// A write of a key that was split away since was refused.
    pub refused: bool,
}

/// One tenure of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Of which.
    pub partition: PartitionId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Of which session.
    pub session: SessionId,
    /// The keys that it takes for its own.
    pub share: Share,
    /// Which of the keys were its partition's when it was granted.
    pub rightful: [bool; 2],
    /// What its partition was split from, the nearest first.
    pub ancestors: Vec<(PartitionId, Epoch)>,
    /// Which fences have answered its raise: those of its ancestors, and then its own.
    pub raised: Vec<bool>,
    /// Whether it has read.
    pub read: bool,
}

/// What is under way, by the number of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    from: usize,
    what: Sent,
}

/// What is sent to the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sent {
    /// A raise, by the place of the fence in [`Owner::raised`].
    Raise(usize),
    /// A write of this key.
    Write(usize),
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A write took effect below what its fence had seen.
    BelowTheFence,
    /// A write took effect that the next owner of its key had not read.
    AfterTheNextOwnerRead,
}

/// A step. Owners are numbered by their grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next partition is taken from whoever owns it, and split.
    Split,
    /// A partition is taken from whoever owns it, and granted.
    Grant(PartitionId),
    /// An owner sends a raise, perhaps again.
    SendRaise(usize, usize),
    /// An owner reads.
    Read(usize),
    /// An owner sends a write.
    SendWrite(usize, usize),
    /// A message arrives.
    Arrive(Message),
    /// A message arrives, and once more later.
    ArriveOnce(Message),
}

/// The partition that the first key belongs to when so much is split.
pub(super) fn ends_at(splits: u8) -> PartitionId {
    PartitionId::new(if splits < 3 { 1 } else { 3 })
}

/// A key that goes to the child of each split, and one that stays where it is.
fn keys() -> [[u8; 1]; 2] {
    let four = PartitionCount::new(4).expect("a number of partitions");
    [3, 0].map(|number| {
        let share = Share { partition: PartitionId::new(number), of: four };
        (0..=u8::MAX).map(|byte| [byte]).find(|key| share.contains(key)).expect("one in four is")
    })
}

fn key(number: PartitionId) -> PartitionKey {
    PartitionKey { partition: number, ..partition() }
}

impl Scene {
    fn keyspace(&self) -> Option<&Keyspace> {
        self.state.keyspace(partition().keyspace)
    }

    /// Nobody owns it.
    pub fn is_vacant(&self, number: PartitionId) -> bool {
        self.state.partition(key(number)).is_some_and(|partition| *partition.phase() == Phase::Vacant)
    }

    fn apply(&mut self, commands: Vec<Command>) -> Option<Vec<Outcome>> {
        self.entries += 1;
        self.state.apply(LogIndex::new(self.entries), &entry(commands)).outcome.ok()
    }

    /// Takes a partition from its owner, who hears nothing of it. What follows is the same entry.
    fn taken(&mut self, number: PartitionId) -> Option<Vec<Command>> {
        let found = self.state.partition(key(number))?;
        let (Some(epoch), Some(owner)) = (found.epoch(), found.owner()) else { return Some(Vec::new()) };
        let owner = self.state.session(owner)?.worker().clone();
        let to = setting::name(usize::from(owner == setting::name(0)));
        let (partition, why) = (key(number), GrantReason::Operator);
        self.apply(vec![Command::Drain { partition, epoch, to, deadline: Duration::from_secs(1), why }])?;
        match self.state.partition(partition)?.phase() {
            Phase::Draining(drain) => {
                Some(vec![Command::DrainOver { partition, epoch, move_id: drain.move_id }])
            }
            _ => None,
        }
    }

    fn split(&mut self) -> Option<()> {
        let keyspace = self.keyspace()?;
        let (id, from) = (keyspace.id(), keyspace.count());
        if keyspace.split().is_none() {
            self.apply(vec![Command::StartSplit { keyspace: id, from }])?;
        }
        let parent = self.keyspace()?.next_to_split()?;
        let mut commands = self.taken(parent)?;
        let epoch = self.state.partition(key(parent)).and_then(Partition::epoch);
        commands.push(Command::Split { partition: key(parent), epoch });
        self.apply(commands)?;
        self.splits += 1;
        Some(())
    }

    fn grant(&mut self, world: &World, number: PartitionId) -> Option<()> {
        let partition = key(number);
        let mut commands = self.taken(number)?;
        let replaces = self.state.partition(partition)?.epoch();
        // To the other one of the two, each time.
        let to = self.state.session_of(&setting::name(self.owners.len() % 2))?.id();
        commands.push(Command::Grant { partition, replaces, to, why: GrantReason::Operator });
        let Some(Outcome::Granted(epoch)) = self.apply(commands)?.pop() else { return None };
        let owner = self.owner(world, number, epoch, to)?;
        self.owners.push(owner);
        Some(())
    }

    fn owner(&self, world: &World, number: PartitionId, epoch: Epoch, session: SessionId) -> Option<Owner> {
        let keyspace = self.keyspace()?;
        let partitioner = keyspace.partitioner();
        let share = match world.without {
            Some(Rule::CoversItsShare) if number == partition().partition => {
                Partitioner::whole(PartitionCount::new(1).ok()?).share(number)
            }
            _ => partitioner.share(number),
        };
        let ancestors: Vec<(PartitionId, Epoch)> =
            keyspace.ancestors(number).map(|born| (born.parent, born.epoch)).collect();
        let raised = vec![false; ancestors.len() + 1];
        let rightful = keys().map(|key| partitioner.partition_of(&key) == number);
        Some(Owner { partition: number, epoch, session, share, rightful, ancestors, raised, read: false })
    }
}

impl Owner {
    /// The place of its own fence among those it raises.
    fn own(&self) -> usize {
        self.ancestors.len()
    }

    /// The token to which it raises a fence.
    fn token(&self, world: &World, fence: usize) -> Option<FencingToken> {
        let cluster = ClusterId::new("model").ok()?;
        let scope =
            |number: PartitionId| -> Option<Scope> { format!("orders/{}", number.get()).parse().ok() };
        match self.ancestors.get(fence) {
            Some((number, minted)) => {
                let epoch = match world.without {
                    // There was one, or nothing would have been to fence.
                    Some(Rule::MintsAnEpoch) => Epoch::new(minted.get() - 1).ok()?,
                    _ => *minted,
                };
                Some(FencingToken::new(cluster, scope(*number)?, epoch))
            }
            None => {
                Some(FencingToken::new(cluster, scope(self.partition)?, self.epoch).held_by(self.session))
            }
        }
    }

    fn fence(&self, fence: usize) -> PartitionId {
        self.ancestors.get(fence).map_or(self.partition, |(number, _)| *number)
    }
}

impl World {
    fn may_raise(&self, owner: &Owner, fence: usize) -> bool {
        match self.without {
            Some(Rule::RaisesTheParent) => fence == owner.own(),
            Some(Rule::RaisesTheParentFirst) => true,
            // Its own comes last.
            _ => owner.raised[..fence].iter().all(|raised| *raised),
        }
    }

    fn may_read(&self, owner: &Owner) -> bool {
        match self.without {
            Some(Rule::RaisesTheParent | Rule::RaisesTheParentFirst) => owner.raised[owner.own()],
            _ => owner.raised.iter().all(|raised| *raised),
        }
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
        match message.what {
            Sent::Raise(fence) => {
                let (of, token) = (owner.fence(fence), owner.token(self, fence)?);
                let as_good = match HighWater::raise(scene.fences.get(&of).copied(), &token) {
                    Ok(row) => {
                        scene.fences.insert(of, row);
                        true
                    }
                    // Whoever has raised an ancestor's fence higher has fenced the same owners.
                    Err(FenceError::Fenced(_)) => fence != owner.own(),
                    Err(_) => false,
                };
                scene.owners[message.from].raised[fence] |= as_good;
            }
            Sent::Write(number) => {
                let (of, token) = (owner.partition, owner.token(self, owner.own())?);
                let row = scene.fences.get(&of).copied();
                match HighWater::check(row, &token) {
                    Ok(after) => {
                        if row.is_some_and(|row| owner.epoch < row.epoch()) {
                            scene.broken.get_or_insert(Broken::BelowTheFence);
                        }
                        scene.fences.insert(of, after);
                        effect(scene, message.from, number);
                    }
                    Err(_) => {
                        let now = scene.keyspace()?.partitioner().partition_of(&keys()[number]);
                        scene.refused |= now != of;
                    }
                }
            }
        }
        Some(())
    }
}

/// A write takes effect: the moment that everything is about.
fn effect(scene: &mut Scene, from: usize, number: usize) {
    let writer = &scene.owners[from];
    // Whoever writes a key that is not its own any more has been followed by all who own it now.
    let follows = |at: usize, owner: &Owner| match writer.rightful[number] {
        true => at > from,
        false => owner.partition != writer.partition,
    };
    let next = |(at, owner): (usize, &Owner)| owner.read && owner.rightful[number] && follows(at, owner);
    if scene.owners.iter().enumerate().any(next) {
        scene.broken.get_or_insert(Broken::AfterTheNextOwnerRead);
    }
}

impl Model for World {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        let mut scene = Scene {
            state: State::new(),
            entries: 0,
            owners: Vec::new(),
            fences: BTreeMap::new(),
            network: Vec::new(),
            splits: 0,
            broken: None,
            refused: false,
        };
        for command in setting::founding(&setting::policy(Duration::from_secs(3), Duration::from_secs(1))) {
            scene.apply(vec![command]).expect("a founding entry fits");
        }
        let found = scene.state.partition(partition()).expect("it was created");
        let (epoch, session) = (found.epoch().expect("granted"), found.owner().expect("granted"));
        let owner = scene.owner(self, partition().partition, epoch, session).expect("it is there");
        // It has long begun.
        let token = owner.token(self, owner.own()).expect("a token");
        let row = HighWater::raise(None, &token).expect("the first raise");
        scene.fences.insert(owner.partition, row);
        scene.owners.push(Owner { raised: vec![true], read: true, ..owner });
        vec![scene]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if scene.splits < self.splits {
            actions.push(Action::Split);
        }
        if scene.owners.len() <= usize::from(self.grants) {
            let all = scene.keyspace().into_iter().flat_map(|keyspace| keyspace.count().partitions());
            actions.extend(all.map(Action::Grant));
        }
        for (at, owner) in scene.owners.iter().enumerate() {
            let raises = (0..owner.raised.len()).filter(|fence| self.may_raise(owner, *fence));
            actions.extend(raises.map(|fence| Action::SendRaise(at, fence)));
            if !owner.read && self.may_read(owner) {
                actions.push(Action::Read(at));
            }
            if owner.read {
                let covered = keys().into_iter().enumerate().filter(|(_, key)| owner.share.contains(key));
                actions.extend(covered.map(|(number, _)| Action::SendWrite(at, number)));
            }
        }
        for message in &scene.network {
            actions.push(Action::Arrive(*message));
            actions.push(Action::ArriveOnce(*message));
        }
    }

    fn next_state(&self, before: &Scene, action: Action) -> Option<Scene> {
        let mut scene = before.clone();
        match action {
            Action::Split => scene.split()?,
            Action::Grant(number) => scene.grant(self, number)?,
            Action::SendRaise(from, fence) => {
                self.send(&mut scene, Message { from, what: Sent::Raise(fence) })?;
            }
            Action::SendWrite(from, number) => {
                self.send(&mut scene, Message { from, what: Sent::Write(number) })?;
            }
            Action::Read(owner) => scene.owners[owner].read = true,
            Action::Arrive(message) => {
                scene.network.retain(|other| *other != message);
                self.arrive(&mut scene, message)?;
            }
            Action::ArriveOnce(message) => self.arrive(&mut scene, message)?,
        }
        Some(scene)
    }

    fn properties(&self) -> Vec<Property<World>> {
        properties::of(self)
    }
}

impl Story for World {
    fn tell(&self, before: &Scene, action: &Action, after: &Scene) -> String {
        let owner = |at: usize| {
            let Owner { partition, epoch, .. } = &after.owners[at];
            format!("the owner of {partition} under {epoch}")
        };
        let raise = |from: usize, fence: usize| {
            let of = after.owners[from].fence(fence);
            format!("a raise of the fence of {of}")
        };
        let write = |number: usize| {
            if number == 0 { "a write of the key that goes" } else { "a write of the key that stays" }
        };
        let arrives = |Message { from, what }: Message| match what {
            Sent::Raise(fence) => format!("{} by {} arrives", raise(from, fence), owner(from)),
            Sent::Write(number) => {
                let refused = if after.refused && !before.refused { ", and is refused" } else { "" };
                format!("{} by {} arrives{refused}", write(number), owner(from))
            }
        };
        match *action {
            Action::Split => {
                let count = after.keyspace().map_or(0, |keyspace| keyspace.count().get());
                format!("a partition is split, and there are {count}")
            }
            Action::Grant(_) => format!("there is {}", owner(after.owners.len() - 1)),
            Action::SendRaise(from, fence) => format!("{} sends {}", owner(from), raise(from, fence)),
            Action::SendWrite(from, number) => format!("{} sends {}", owner(from), write(number)),
            Action::Read(from) => format!("{} reads", owner(from)),
            Action::Arrive(message) => arrives(message),
            Action::ArriveOnce(message) => format!("{}, and will again", arrives(message)),
        }
    }

    fn until(self, at: Instant) -> World {
        World { until: Some(at), ..self }
    }
}
