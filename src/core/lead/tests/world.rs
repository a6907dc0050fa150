//! One log, one leader after the other, and workers with the shipped lessee. Messages take no time here, unless a story
//! takes them into its own hands; the world in `random` is the one where they do.

use crate::ids::{
    Epoch, KeyspaceId, KeyspaceName, LogIndex, PartitionId, PartitionKey, SessionId, Term, WorkerId,
};
use crate::lead::{Leadership, MAX_COMMANDS, Settings, release};
use crate::lease::Verdict;
use crate::lease::lessee::{Acknowledgement, Assignment, DrainLeft, Held, Lessee, Lineage, Timing};
use crate::placement::{PartitionCount, Weight};
use crate::state::{
    Applied, Command, Entry, GrantReason, Join, Outcome, Phase, Policy, PolicyChange, Released, Session,
    State, Takeover,
};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A third of it is 2 s, and a worker renews each second.
pub(super) const TTL: u64 = 6_000;
const STEP: u64 = 50;

pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) struct World {
    pub(super) state: State,
    pub(super) now: u64,
    pub(super) leader: Leadership,
    pub(super) workers: BTreeMap<String, Worker>,
    /// Every entry applied, with the time.
    pub(super) log: Vec<(u64, Vec<Command>)>,
    term: u64,
    epochs: BTreeMap<PartitionKey, Epoch>,
    /// Renewals that were held.
    held: Vec<(String, u64, u64)>,
}

pub(super) struct Worker {
    pub(super) session: SessionId,
    pub(super) lessee: Lessee<PartitionKey>,
    /// It renews, and takes part in what follows.
    pub(super) up: bool,
    /// It learns what it is assigned, and that it is to give something back.
    pub(super) hears: bool,
    /// It gives back what it is told to.
    pub(super) releases: bool,
    /// It says ready.
    pub(super) says_ready: bool,
}

/// A policy with the world's TTL.
pub(super) fn policy() -> PolicyChange {
    PolicyChange { ttl: Some(ms(TTL)), ..Default::default() }
}

pub(super) fn by_fence() -> PolicyChange {
    PolicyChange { takeover: Some(Takeover::Fence), ..policy() }
}

impl World {
    pub(super) fn new() -> World {
        let state = State::new();
        let leader = Leadership::new(Term::new(1), at(0), &state, Settings::default());
        World {
            state,
            now: 0,
            leader,
            workers: BTreeMap::new(),
            log: Vec::new(),
            term: 1,
            epochs: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// A keyspace `orders` of so many partitions, all granted and ready, and these workers.
    pub(super) fn of(partitions: u32, workers: &[&str], policy: PolicyChange) -> World {
        let mut world = World::new();
        let keyspace = world.create("orders", partitions, policy);
        for worker in workers {
            world.join(worker, &[keyspace]);
        }
        world.pass(2_000);
        world
    }

    pub(super) fn create(&mut self, name: &str, partitions: u32, change: PolicyChange) -> KeyspaceId {
        let keyspace = KeyspaceName::new(name).unwrap();
        let partitions = PartitionCount::new(partitions).unwrap();
        let policy = Policy::default().with(&change).unwrap();
        self.apply(vec![Command::CreateKeyspace { keyspace: keyspace.clone(), partitions, policy }]);
        self.state.keyspace_named(&keyspace).unwrap().id()
    }

    /// Joins, replacing an earlier session of the name, and connects.
    pub(super) fn join(&mut self, name: &str, keyspaces: &[KeyspaceId]) -> SessionId {
        let session = self.join_unconnected(name, keyspaces);
        self.connect(name);
        session
    }

    /// Joins with labels, and connects.
    pub(super) fn join_labelled(
        &mut self,
        name: &str,
        keyspaces: &[KeyspaceId],
        labels: &[(&str, &str)],
    ) -> SessionId {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let session = self.join_as(name, keyspaces, labels.collect());
        self.connect(name);
        session
    }

    pub(super) fn join_unconnected(&mut self, name: &str, keyspaces: &[KeyspaceId]) -> SessionId {
        self.join_as(name, keyspaces, BTreeMap::new())
    }

    fn join_as(
        &mut self,
        name: &str,
        keyspaces: &[KeyspaceId],
        labels: BTreeMap<String, String>,
    ) -> SessionId {
        if let Some(earlier) = self.workers.remove(name) {
            self.workers.insert(format!("{name}, replaced"), earlier);
        }
        let worker = WorkerId::new(name).unwrap();
        let join = Join {
            worker: worker.clone(),
            nonce: u128::from(self.state.applied().get()),
            secret_hash: [0; 32],
            address: format!("{name}:1"),
            weight: Weight::ONE,
            labels,
            keyspaces: keyspaces.iter().copied().collect::<BTreeSet<_>>(),
            replaces: self.state.session_of(&worker).map(Session::id),
            splits: true,
            ends_drain: None,
            ttl: None,
        };
        self.apply(vec![Command::Join(Box::new(join))]);
        let session = self.state.session_of(&worker).unwrap();
        let (id, timing) = (session.id(), Timing::new(session.ttl()).unwrap());
        let lessee = Lessee::new(timing, at(self.now));
        let worker = Worker { session: id, lessee, up: true, hears: true, releases: true, says_ready: true };
        self.workers.insert(name.to_string(), worker);
        id
    }

    pub(super) fn connect(&mut self, name: &str) {
        let (now, worker) = (at(self.now), self.workers.get_mut(name).unwrap());
        worker.lessee.connected(now);
        self.leader.presence.connected(worker.session);
    }

    /// The process has died: it neither renews nor is connected.
    pub(super) fn kill(&mut self, name: &str) {
        self.silence(name);
        let session = self.session(name);
        self.leader.presence.disconnected(session, at(self.now));
    }

    /// The process is paused, or cut off in a way that its connection does not show.
    pub(super) fn silence(&mut self, name: &str) {
        self.worker(name).up = false;
    }

    pub(super) fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.get_mut(name).unwrap()
    }

    pub(super) fn session(&self, name: &str) -> SessionId {
        self.workers[name].session
    }

    pub(super) fn lives(&self, name: &str) -> bool {
        self.state.session(self.session(name)).is_some()
    }

    pub(super) fn orders(&self) -> KeyspaceId {
        self.state.keyspace_named(&KeyspaceName::new("orders").unwrap()).unwrap().id()
    }

    /// A partition of `orders`.
    pub(super) fn key(&self, partition: u32) -> PartitionKey {
        PartitionKey { keyspace: self.orders(), partition: PartitionId::new(partition) }
    }

    pub(super) fn keys(&self) -> Vec<PartitionKey> {
        self.state.keyspaces().flat_map(crate::state::Keyspace::keys).collect()
    }

    pub(super) fn phase(&self, key: PartitionKey) -> &Phase {
        self.state.partition(key).unwrap().phase()
    }

    pub(super) fn epoch(&self, key: PartitionKey) -> Epoch {
        self.state.partition(key).unwrap().epoch().unwrap()
    }

    /// The worker that owns the partition.
    pub(super) fn owner(&self, key: PartitionKey) -> Option<&str> {
        let session = self.state.partition(key).unwrap().owner()?;
        Some(self.state.session(session)?.worker().as_str())
    }

    /// How many partitions each worker owns.
    pub(super) fn spread(&self) -> BTreeMap<&str, usize> {
        let mut spread: BTreeMap<&str, usize> = self.workers.keys().map(|name| (name.as_str(), 0)).collect();
        for name in self.keys().into_iter().filter_map(|key| self.owner(key)) {
            *spread.get_mut(name).unwrap() += 1;
        }
        spread
    }

    pub(super) fn owned_by(&self, name: &str) -> Vec<PartitionKey> {
        self.keys().into_iter().filter(|key| self.owner(*key) == Some(name)).collect()
    }

    pub(super) fn believes(&self, name: &str, key: PartitionKey) -> bool {
        let lessee = &self.workers[name].lessee;
        let epoch = lessee.holds().find(|(held, _)| **held == key).map(|(_, epoch)| epoch);
        epoch.and_then(|epoch| lessee.valid_until(&key, epoch)).is_some_and(|until| at(self.now) < until)
    }

    pub(super) fn apply(&mut self, commands: Vec<Command>) -> Applied {
        let index = LogIndex::new(self.state.applied().get() + 1);
        let entry = Entry { request: None, proposed_unix_ms: 0, commands };
        let applied = self.state.apply(index, &entry);
        for (command, outcome) in entry.commands.iter().zip(applied.outcome.iter().flatten()) {
            if let (Command::Grant { partition, .. }, Outcome::Granted(epoch)) = (command, outcome) {
                let before = self.epochs.insert(*partition, *epoch);
                assert!(before.is_none_or(|before| before < *epoch), "G2: {partition} {before:?} {epoch}");
            }
        }
        self.leader.observe(&applied.events, at(self.now), &self.state);
        self.log.push((self.now, entry.commands));
        applied
    }

    /// What the leader decides now; nothing of it is applied.
    pub(super) fn due(&mut self) -> Vec<Vec<Command>> {
        let entries = self.leader.due(at(self.now), &self.state);
        for entry in &entries {
            assert!(!entry.is_empty() && entry.len() <= MAX_COMMANDS, "{}", entry.len());
        }
        entries
    }

    /// The leader's loop: looks, has everything applied, and looks again until nothing is due.
    pub(super) fn work(&mut self) {
        for _ in 0..1_000 {
            let entries = self.due();
            if entries.is_empty() {
                return;
            }
            for entry in entries {
                let applied = self.apply(entry);
                assert!(
                    applied.outcome.is_ok(),
                    "with one leader and no delays nothing is refused: {applied:?}"
                );
            }
        }
        panic!("the leader does not come to rest: {:?}", &self.log[self.log.len() - 4..]);
    }

    /// A leader of the next term, after an election of so many milliseconds. Everybody has to connect again.
    pub(super) fn elect(&mut self, gap: u64) {
        self.term += 1;
        self.held.clear();
        let end = self.now + gap;
        while self.now < end {
            self.now = end.min(self.now + STEP);
            self.check();
        }
        self.leader = Leadership::new(Term::new(self.term), at(self.now), &self.state, Settings::default());
        let names: Vec<String> = self.workers.keys().cloned().collect();
        for name in names {
            if self.workers[&name].up {
                self.connect(&name);
            }
        }
    }

    /// Time passes: workers renew, the leader works, owners get ready and give back.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        loop {
            self.renew();
            self.work();
            self.answer();
            while self.react() {
                self.work();
            }
            self.check();
            if self.now >= end {
                return;
            }
            self.now = end.min(self.now + STEP);
        }
    }

    fn renew(&mut self) {
        for (name, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.up) {
            if let Some(number) = worker.lessee.renew(at(self.now), 0) {
                self.leader.lessor.arrived(worker.session);
                self.held.push((name.clone(), number, self.now));
            }
        }
    }

    /// Answers every renewal that waits, as if a round had just confirmed this leader.
    fn answer(&mut self) {
        for (name, number, arrival) in std::mem::take(&mut self.held) {
            let session = self.session(&name);
            match self.leader.lessor.answer(session, at(arrival)) {
                Verdict::Hold => self.held.push((name, number, arrival)),
                Verdict::Ended => self.worker(&name).lessee.session_ended(),
                Verdict::Acknowledge => self.acknowledge(&name, number),
            }
        }
    }

    fn acknowledge(&mut self, name: &str, number: u64) {
        let (now, session) = (at(self.now), self.session(name));
        let drains = self.leader.timers.drains_of(session, now).into_iter();
        let drains = drains.map(|(key, epoch, left)| DrainLeft { key, epoch, left }).collect();
        let revision = self.state.session(session).unwrap().assignment();
        if self.workers[name].hears {
            let picture = self.picture(session);
            self.worker(name).lessee.assign(now, picture);
        }
        self.worker(name).lessee.acknowledge(now, Acknowledgement { number, revision, drains });
    }

    fn picture(&self, session: SessionId) -> Assignment<PartitionKey> {
        let live = self.state.session(session).unwrap();
        let held = live.holds().iter().map(|key| Held {
            key: *key,
            epoch: self.epoch(*key),
            draining: matches!(self.phase(*key), Phase::Draining(_)),
            takeover: self.state.keyspace(key.keyspace).unwrap().policy().takeover(),
            lineage: Lineage::default(),
        });
        Assignment {
            revision: live.assignment(),
            complete: true,
            more: false,
            held: held.collect(),
            gone: Vec::new(),
        }
    }

    /// Workers get ready and give back. True when one of them did something.
    fn react(&mut self) -> bool {
        let mut reports = Vec::new();
        for worker in self.workers.values().filter(|worker| worker.up && worker.hears) {
            let Some(session) = self.state.session(worker.session) else { continue };
            for key in session.holds() {
                match self.phase(*key) {
                    Phase::Owned { ready: false, .. } if worker.says_ready => {
                        reports.push((*key, session.id(), true));
                    }
                    Phase::Draining(_) if worker.releases => reports.push((*key, session.id(), false)),
                    _ => {}
                }
            }
        }
        for (partition, session, ready) in &reports {
            let (partition, session, epoch) = (*partition, *session, self.epoch(*partition));
            if *ready {
                self.apply(vec![Command::Ready { partition, epoch, session }]);
            } else {
                self.give_back(partition, Released::Revoked);
            }
        }
        !reports.is_empty()
    }

    /// The owner's task has ended, and the partition is released.
    pub(super) fn give_back(&mut self, partition: PartitionKey, how: Released) {
        let owner = self.owner(partition).unwrap().to_string();
        let (session, epoch) = (self.session(&owner), self.epoch(partition));
        self.worker(&owner).lessee.give_back(&partition, epoch);
        let (release, grant) = release(&self.state, partition, epoch, session, how, &BTreeSet::new());
        let applied = self.apply(std::iter::once(release).chain(grant).collect());
        assert!(applied.outcome.is_ok(), "{applied:?}");
    }

    /// An operator moves a partition.
    pub(super) fn drain(&mut self, partition: PartitionKey, to: &str, deadline: u64) {
        let (to, epoch) = (WorkerId::new(to).unwrap(), self.epoch(partition));
        let (deadline, why) = (ms(deadline), GrantReason::Operator);
        let applied = self.apply(vec![Command::Drain { partition, epoch, to, deadline, why }]);
        assert!(applied.outcome.is_ok(), "{applied:?}");
    }

    pub(super) fn revoke_seen(&mut self, partition: PartitionKey) {
        let owner = self.owner(partition).unwrap().to_string();
        let (session, epoch) = (self.session(&owner), self.epoch(partition));
        self.apply(vec![Command::RevokeSeen { partition, epoch, session }]);
    }

    /// Passes time until the partition has this owner; returns how long it took.
    pub(super) fn until_owner(&mut self, key: PartitionKey, owner: &str, within: u64) -> u64 {
        let began = self.now;
        self.pass(0);
        while self.owner(key) != Some(owner) {
            assert!(self.now - began <= within, "{key} is {:?} after {within} ms", self.phase(key));
            self.pass(STEP);
        }
        self.now - began
    }

    /// Everything applied since, of one kind.
    pub(super) fn commands_since<T>(&self, since: u64, pick: impl Fn(&Command) -> Option<T>) -> Vec<T> {
        let log = self.log.iter().filter(|(when, _)| *when >= since);
        log.flat_map(|(_, commands)| commands).filter_map(pick).collect()
    }

    pub(super) fn grants_since(&self, since: u64) -> Vec<PartitionKey> {
        self.commands_since(since, |command| match command {
            Command::Grant { partition, .. } => Some(*partition),
            _ => None,
        })
    }

    pub(super) fn drains_since(&self, since: u64) -> Vec<PartitionKey> {
        self.commands_since(since, |command| match command {
            Command::Drain { partition, .. } => Some(*partition),
            _ => None,
        })
    }

    /// G3: no two workers believe, where the keyspace did not give that up.
    fn check(&self) {
        let mut believers: BTreeMap<PartitionKey, &str> = BTreeMap::new();
        for (name, worker) in &self.workers {
            for (key, epoch) in worker.lessee.holds() {
                let fence = self
                    .state
                    .keyspace(key.keyspace)
                    .is_none_or(|keyspace| keyspace.policy().takeover() == Takeover::Fence);
                let valid = worker.lessee.valid_until(key, epoch).is_some_and(|until| at(self.now) < until);
                if valid && !fence {
                    let other = believers.insert(*key, name);
                    assert_eq!(other, None, "G3: {name} believes in {key}, too, at {} ms", self.now);
                }
            }
        }
    }
}
