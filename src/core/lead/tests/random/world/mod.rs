//! The world: an atomic log with proposals on their way to it, nodes that apply it with a lag and some of which wrongly
//! believe that they lead, processes with the shipped lessee, clocks that differ, and messages that are late or lost.
//!
//! | module | what it is |
//! |---|---|
//! | `coordinator` | the log, the nodes that apply it, and their leaders |
//! | `processes` | the workers, and the network |
//! | `trouble` | what goes wrong, and what operators ask for |
//! | `judge` | what must hold |
//!
//! Raft is reduced to what it promises. A proposal of a term may be committed until an entry of a later term is; a
//! confirmation round succeeds when, at some moment after it began, no later term has been voted for.

mod coordinator;
mod judge;
mod processes;
mod trouble;

use super::super::world::ms;
use super::holder::Holder;
use super::rules::{Profile, Rule};
use crate::ids::{Epoch, KeyspaceName, PartitionKey, SessionId, WorkerId};
use crate::lead::Leadership;
use crate::lease::lessee::{Acknowledgement, Assignment};
use crate::placement::PartitionCount;
use crate::state::{Applied, Command, Entry, Policy, PolicyChange, State, Takeover};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Real time, in microseconds; no clock in this world shows it.
type Time = u64;

pub(super) const TTL_MS: u64 = 3_000;
const NODES: usize = 3;
const WORKERS: usize = 3;
const PARTITIONS: u32 = 3;
const TAKEOVERS: [(&str, Takeover); 2] = [("ledger", Takeover::Lease), ("orders", Takeover::Fence)];

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True so many times in a thousand.
    fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1_000) < chance
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len() as u64) as usize].clone()) }
    }
}

/// A clock with an offset and a rate of its own. Any two differ in rate by less than the drift bound.
#[derive(Clone, Copy)]
struct Clock {
    offset: u64,
    per_million: u64,
}

impl Clock {
    fn new(random: &mut Random) -> Clock {
        let per_million = match random.below(3) {
            0 => 995_100,
            1 => 1_004_900,
            _ => random.between(995_100, 1_004_900),
        };
        Clock { offset: random.below(1_000_000_000), per_million }
    }

    fn read(self, now: Time) -> Instant {
        Instant::from_nanos((self.offset + now) * self.per_million / 1_000)
    }
}

struct Node {
    clock: Clock,
    state: State,
    applied: usize,
    /// It hears nothing of the others, and they nothing of it; workers may reach it.
    isolated_until: Time,
    /// It believes that it leads in this term.
    leads: Option<u64>,
    leadership: Option<Leadership>,
    paused_until: Time,
    waiting: Vec<Renewal>,
    round: Option<Round>,
    held: Vec<Renewal>,
    /// Proposals whose outcome it waits for, and for how long.
    outstanding: BTreeSet<u64>,
    patience: Time,
}

#[derive(Clone, Copy)]
struct Renewal {
    process: usize,
    connection: u64,
    session: SessionId,
    number: u64,
    arrival: Instant,
}

struct Round {
    batch: Vec<Renewal>,
    acked_at: Time,
    /// What has to be applied before the answer; `None` until a quorum has answered.
    read_at: Option<usize>,
}

struct Proposal {
    id: u64,
    term: u64,
    entry: Option<Entry>,
    arrives: Time,
}

struct Committed {
    id: u64,
    term: u64,
    entry: Option<Entry>,
    applied: Applied,
}

/// One life of a worker's process.
struct Process {
    worker: WorkerId,
    clock: Clock,
    nonce: u128,
    alive: bool,
    paused_until: Time,
    session: Option<SessionId>,
    lessee: Option<Holder>,
    stream: Option<Stream>,
    todo: Vec<(Time, Todo)>,
    next_join: Time,
}

#[derive(Clone, Copy)]
struct Stream {
    node: usize,
    term: u64,
    connection: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Todo {
    Ready(PartitionKey, Epoch),
    Seen(PartitionKey, Epoch),
    /// The task has returned; not yet given back.
    Return(PartitionKey, Epoch),
    Release(PartitionKey, Epoch),
}

enum Message {
    Renew { node: usize, term: u64, renewal: Renewal },
    Picture { process: usize, connection: u64, picture: Assignment<PartitionKey> },
    Acknowledged { process: usize, connection: u64, acknowledgement: Acknowledgement<PartitionKey> },
    Ended { process: usize, connection: u64 },
    Joined { process: usize, session: SessionId },
    Report { process: usize, todo: Todo },
    DrainAgain(Command),
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    G2(String),
    G3(String),
    G4(String),
}

pub(super) struct World {
    rule: Option<Rule>,
    /// Holders do what the protocol asks of them, and no more.
    naive: bool,
    profile: Profile,
    random: Random,
    now: Time,
    log: Vec<Committed>,
    /// The state as of the whole log: the truth.
    truth: State,
    term: u64,
    proposals: Vec<Proposal>,
    next_id: u64,
    nodes: Vec<Node>,
    processes: Vec<Process>,
    messages: BTreeMap<(Time, u64), Message>,
    granted: BTreeMap<PartitionKey, Epoch>,
    healed: bool,
    pub(super) stats: Stats,
}

/// What happened, so that a run that exercises nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stats {
    pub(super) elections: u32,
    pub(super) grants: u32,
    pub(super) expiries: u32,
    pub(super) clears: u32,
    pub(super) drains_over: u32,
    pub(super) splits: u32,
    pub(super) reasserts: u32,
    pub(super) replacements: u32,
    pub(super) acknowledgements: u32,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.elections += other.elections;
        self.grants += other.grants;
        self.expiries += other.expiries;
        self.clears += other.clears;
        self.drains_over += other.drains_over;
        self.splits += other.splits;
        self.reasserts += other.reasserts;
        self.replacements += other.replacements;
        self.acknowledgements += other.acknowledgements;
    }
}

impl World {
    pub(super) fn new(seed: u64, naive: bool, rule: Option<Rule>, profile: Profile) -> World {
        let mut random = Random(seed);
        let node = |random: &mut Random| Node {
            clock: Clock::new(random),
            state: State::new(),
            applied: 0,
            isolated_until: 0,
            leads: None,
            leadership: None,
            paused_until: 0,
            waiting: Vec::new(),
            round: None,
            held: Vec::new(),
            outstanding: BTreeSet::new(),
            patience: 0,
        };
        let nodes = (0..NODES).map(|_| node(&mut random)).collect();
        let mut world = World {
            rule,
            naive,
            profile,
            random,
            now: 1_000_000,
            log: Vec::new(),
            truth: State::new(),
            term: 0,
            proposals: Vec::new(),
            next_id: 0,
            nodes,
            processes: Vec::new(),
            messages: BTreeMap::new(),
            granted: BTreeMap::new(),
            // Its keyspaces are created in peace.
            healed: true,
            stats: Stats::default(),
        };
        world.elect();
        for (name, takeover) in TAKEOVERS {
            let change = PolicyChange {
                ttl: Some(ms(TTL_MS)),
                takeover: Some(takeover),
                drain_deadline: Some(ms(profile.drain_deadline_ms)),
                ..Default::default()
            };
            let create = Command::CreateKeyspace {
                keyspace: KeyspaceName::new(name).unwrap(),
                partitions: PartitionCount::new(PARTITIONS).unwrap(),
                policy: Policy::default().with(&change).unwrap(),
            };
            world.propose(world.term, vec![create]);
        }
        while world.truth.keyspaces().count() < TAKEOVERS.len() {
            world.step().unwrap();
        }
        world.healed = false;
        for worker in 0..WORKERS {
            world.start(worker);
        }
        world
    }

    /// Runs so long, in trouble, and then as long as it takes in peace.
    pub(super) fn run(&mut self, trouble_ms: u64) -> Result<(), Violation> {
        let end = self.now + trouble_ms * 1_000;
        while self.now < end {
            self.step()?;
        }
        if self.rule.is_some() {
            return Ok(());
        }
        self.heal();
        // Each partition may have to be waited for, in each keyspace.
        let split = self.now + u64::from(PARTITIONS) * 6 * TTL_MS * 1_000;
        while self.splits() || self.reasserts() {
            self.step()?;
            if self.now > split {
                let text =
                    "a split is not finished in peace, or an order to raise fences again not carried out";
                return Err(Violation::G4(text.to_owned()));
            }
        }
        let settled = self.now + 5 * TTL_MS * 1_000;
        while self.now < settled {
            self.step()?;
        }
        let before = self.stats.grants;
        while self.now < settled + TTL_MS * 1_000 {
            self.step()?;
        }
        self.settled()?;
        if self.stats.grants != before {
            return Err(Violation::G4(format!("{} grants in peace", self.stats.grants - before)));
        }
        Ok(())
    }

    fn is(&self, rule: Rule) -> bool {
        self.rule == Some(rule)
    }

    fn step(&mut self) -> Result<(), Violation> {
        let until = self.now + self.random.between(2_000, 14_000);
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= until) {
            self.now = self.now.max(entry.key().0);
            let message = entry.remove();
            self.deliver(message);
        }
        self.now = until;
        self.commit()?;
        for node in 0..NODES {
            if self.nodes[node].paused_until <= self.now {
                if self.nodes[node].isolated_until <= self.now {
                    self.apply(node)?;
                }
                self.look(node);
                self.confirm(node);
            }
        }
        for process in 0..self.processes.len() {
            if self.processes[process].alive && self.processes[process].paused_until <= self.now {
                self.live(process);
            }
        }
        if !self.healed {
            self.trouble();
        }
        self.check()
    }
}

fn name(worker: usize) -> WorkerId {
    WorkerId::new(&format!("w{worker}")).unwrap()
}
