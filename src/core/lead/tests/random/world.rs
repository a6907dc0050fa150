//! The world: an atomic log with proposals on their way to it, nodes that apply it with a lag and some of which wrongly
//! believe that they lead, processes with the shipped lessee, clocks that differ, and messages that are late or lost.
//!
//! Raft is reduced to what it promises. A proposal of a term may be committed until an entry of a later term is; a
//! confirmation round succeeds when, at some moment after it began, no later term has been voted for.

use super::super::world::ms;
use super::holder::Holder;
use super::rules::{Profile, Rule};
use crate::ids::{Epoch, KeyspaceId, KeyspaceName, LogIndex, PartitionKey, SessionId, Term, WorkerId};
use crate::lead::{Leadership, Settings, Timers, release};
use crate::lease::Verdict;
use crate::lease::lessee::{self, Acknowledgement, Assignment, DrainLeft, Held, Lineage};
use crate::placement::{PartitionCount, Weight};
use crate::state::{
    Applied, Born, Command, Entry, GrantReason, Join, Outcome, Phase, Policy, PolicyChange, Released,
    Session, State, Takeover,
};
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
        while self.splits() {
            self.step()?;
            if self.now > split {
                return Err(Violation::G4("a split is not finished in peace".to_owned()));
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

    // Trouble.

    fn trouble(&mut self) {
        let profile = self.profile;
        if self.random.per_mille(profile.elections) {
            self.elect();
        }
        if self.random.per_mille(profile.pauses) {
            let node = self.random.below(NODES as u64) as usize;
            self.nodes[node].paused_until = self.now + self.random.between(100, TTL_MS * 3 / 2) * 1_000;
        }
        if self.random.per_mille(profile.isolations) {
            // Its majority goes on without it.
            if let Some(node) = self.a_leader() {
                self.nodes[node].isolated_until = self.now + self.random.between(500, TTL_MS * 2) * 1_000;
                self.elect();
            }
        }
        let alive: Vec<usize> =
            (0..self.processes.len()).filter(|process| self.processes[*process].alive).collect();
        let some = self.random.pick(&alive);
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.sleeps)) {
            self.processes[process].paused_until =
                self.now + self.random.between(100, TTL_MS * 3 / 2) * 1_000;
        }
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.cuts)) {
            self.cut(process);
        }
        if let Some(process) = some.filter(|_| self.random.per_mille(profile.deaths)) {
            self.kill(process);
        }
        if self.random.per_mille(profile.replacements) {
            // A second process under the name of one that may well be alive.
            let worker = self.random.below(WORKERS as u64) as usize;
            self.start(worker);
        } else if self.random.per_mille(20) {
            let missing: Vec<usize> = (0..WORKERS).filter(|worker| !self.runs(*worker)).collect();
            if let Some(worker) = self.random.pick(&missing) {
                self.start(worker);
            }
        }
        if self.random.per_mille(profile.drains) {
            self.drain();
        }
        if profile.splits > 0 && self.random.per_mille(profile.splits) {
            self.split();
        }
    }

    fn heal(&mut self) {
        self.healed = true;
        for node in &mut self.nodes {
            node.paused_until = 0;
            node.isolated_until = 0;
        }
        for process in 0..self.processes.len() {
            self.processes[process].paused_until = 0;
        }
        for worker in 0..WORKERS {
            if !self.runs(worker) {
                self.start(worker);
            }
        }
        self.elect();
    }

    fn runs(&self, worker: usize) -> bool {
        self.processes.iter().any(|process| process.alive && process.worker == name(worker))
    }

    fn start(&mut self, worker: usize) {
        let process = Process {
            worker: name(worker),
            clock: Clock::new(&mut self.random),
            nonce: u128::from(self.random.next()),
            alive: true,
            paused_until: 0,
            session: None,
            lessee: None,
            stream: None,
            todo: Vec::new(),
            next_join: self.now,
        };
        self.processes.push(process);
    }

    fn kill(&mut self, process: usize) {
        self.cut(process);
        self.processes[process].alive = false;
    }

    /// An operator moves a partition, and perhaps says so twice.
    fn drain(&mut self) {
        let Some(node) = self.a_leader() else { return };
        let (state, term) = (&self.nodes[node].state, self.nodes[node].leads.unwrap_or(0));
        let keys: Vec<PartitionKey> = state.keyspaces().flat_map(crate::state::Keyspace::keys).collect();
        let Some(partition) = self.random.pick(&keys) else { return };
        let to = name(self.random.below(WORKERS as u64) as usize);
        let again = self.random.per_mille(500);
        let Some(epoch) =
            self.nodes[node].state.partition(partition).and_then(crate::state::Partition::epoch)
        else {
            return;
        };
        let deadline = ms(self.profile.drain_deadline_ms);
        let drain = Command::Drain { partition, epoch, to, deadline, why: GrantReason::Operator };
        self.propose(term, vec![drain.clone()]);
        if again {
            // About when the first one's deadline passes.
            let later = self.random.between(0, self.profile.drain_deadline_ms);
            self.next_id += 1;
            self.messages.insert((self.now + later * 1_000, self.next_id), Message::DrainAgain(drain));
        }
    }

    /// An operator has a keyspace split, or thinks better of it.
    fn split(&mut self) {
        let Some(node) = self.a_leader() else { return };
        let ids: Vec<KeyspaceId> =
            self.nodes[node].state.keyspaces().map(crate::state::Keyspace::id).collect();
        let Some(keyspace) = self.random.pick(&ids) else { return };
        let term = self.nodes[node].leads.unwrap_or(0);
        let command = match self.random.per_mille(200) {
            true => Command::CancelSplit { keyspace },
            false => Command::StartSplit { keyspace, from: PartitionCount::new(PARTITIONS).unwrap() },
        };
        self.propose(term, vec![command]);
    }

    fn splits(&self) -> bool {
        self.truth.keyspaces().any(|keyspace| keyspace.split().is_some())
    }

    // Raft.

    fn elect(&mut self) {
        self.term += 1;
        self.stats.elections += 1;
        // Often the same one, so that a node leads, is deposed, and leads again.
        let again = self.random.per_mille(300);
        let winner = if again { 0 } else { self.random.below(NODES as u64) as usize };
        self.step_down(winner);
        let (term, now) = (self.term, self.now);
        let node = &mut self.nodes[winner];
        node.leads = Some(term);
        node.paused_until = now;
        node.isolated_until = now;
        self.propose_entry(term, None);
        if self.is(Rule::LeadsBeforeAnEntryOfItsTerm) {
            self.lead(winner);
        }
    }

    fn propose(&mut self, term: u64, commands: Vec<Command>) -> u64 {
        self.propose_entry(term, Some(Entry { request: None, proposed_unix_ms: 0, commands }))
    }

    fn propose_entry(&mut self, term: u64, entry: Option<Entry>) -> u64 {
        self.next_id += 1;
        let slow = self.random.per_mille(self.profile.slow_commits);
        let delay = if slow { self.random.between(100, 900) } else { self.random.between(1, 20) };
        let arrives = self.now + delay * 1_000;
        // A few never reach the log, although their leader goes on leading.
        if entry.is_none() || self.healed || !self.random.per_mille(10) {
            self.proposals.push(Proposal { id: self.next_id, term, entry, arrives });
        }
        self.next_id
    }

    fn commit(&mut self) -> Result<(), Violation> {
        loop {
            let last = self.log.last().map_or(0, |committed| committed.term);
            self.proposals.retain(|proposal| proposal.term >= last);
            let mut ready: Vec<usize> = Vec::new();
            let mut terms = BTreeSet::new();
            for (at, proposal) in self.proposals.iter().enumerate() {
                // In the order of its term's proposals.
                if terms.insert(proposal.term) && proposal.arrives <= self.now {
                    ready.push(at);
                }
            }
            let Some(at) = self.random.pick(&ready) else { return Ok(()) };
            let Proposal { id, term, mut entry, .. } = self.proposals.remove(at);
            let index = LogIndex::new(self.log.len() as u64 + 1);
            if let Some(entry) = entry.as_mut().filter(|_| self.rule == Some(Rule::ExpiryNamesItsSuspicion)) {
                name_the_current_suspicion(entry, index);
            }
            let applied = match &entry {
                Some(entry) => self.truth.apply(index, entry),
                None => {
                    self.truth.skip(index);
                    Applied { outcome: Ok(Vec::new()), events: Vec::new() }
                }
            };
            self.note(entry.as_ref(), &applied)?;
            self.log.push(Committed { id, term, entry, applied });
            self.check()?;
        }
    }

    /// Looks at what an entry did, as somebody who knows the truth.
    fn note(&mut self, entry: Option<&Entry>, applied: &Applied) -> Result<(), Violation> {
        let commands = entry.into_iter().flat_map(|entry| &entry.commands);
        let mut cooling = Vec::new();
        for (command, outcome) in commands.zip(applied.outcome.iter().flatten()) {
            match (command, outcome) {
                (Command::Grant { partition, .. }, Outcome::Granted(epoch)) => {
                    self.stats.grants += 1;
                    let before = self.granted.insert(*partition, *epoch);
                    if before.is_some_and(|before| before >= *epoch) {
                        return Err(Violation::G2(format!("{partition}: {before:?}, then {epoch}")));
                    }
                }
                (Command::Join(join), Outcome::Joined(session)) => {
                    if join.replaces.is_some() {
                        self.stats.replacements += 1;
                        cooling.extend(self.cooling());
                    }
                    if let Some(process) = self.processes.iter().position(|p| p.nonce == join.nonce) {
                        self.send(Message::Joined { process, session: *session });
                    }
                }
                (Command::Expire { .. }, _) => self.stats.expiries += 1,
                (Command::Clear { .. }, _) => self.stats.clears += 1,
                (Command::DrainOver { .. }, _) => self.stats.drains_over += 1,
                (Command::Split { .. }, _) => self.stats.splits += 1,
                _ => {}
            }
        }
        if self.is(Rule::ReplacedPartitionsCool) {
            for (partition, epoch) in cooling {
                self.propose(self.term, vec![Command::EndCooling { partition, epoch }]);
            }
        }
        Ok(())
    }

    fn cooling(&self) -> Vec<(PartitionKey, Epoch)> {
        let keys = self.truth.keyspaces().flat_map(crate::state::Keyspace::keys);
        let cooling = keys.filter_map(|key| {
            let partition = self.truth.partition(key)?;
            matches!(partition.phase(), Phase::Cooling(_)).then_some((key, partition.epoch()?))
        });
        cooling.collect()
    }

    /// A node applies some of what was committed.
    fn apply(&mut self, at: usize) -> Result<(), Violation> {
        while self.nodes[at].applied < self.log.len() {
            if self.random.per_mille(if self.healed { 50 } else { self.profile.lag }) {
                return Ok(());
            }
            let node = &mut self.nodes[at];
            let committed = &self.log[node.applied];
            node.applied += 1;
            let index = LogIndex::new(node.applied as u64);
            let applied = match &committed.entry {
                Some(entry) => node.state.apply(index, entry),
                None => {
                    node.state.skip(index);
                    Applied { outcome: Ok(Vec::new()), events: Vec::new() }
                }
            };
            if applied != committed.applied {
                return Err(Violation::G2(format!("node {at} applied {index} differently")));
            }
            node.outstanding.remove(&committed.id);
            let (now, term) = (node.clock.read(self.now), committed.term);
            let drained = committed.entry.iter().flat_map(|entry| &entry.commands);
            let drained = drained.into_iter().any(|command| matches!(command, Command::Drain { .. }));
            let keeps = self.rule == Some(Rule::LessorBelongsToOneTerm);
            if node.leads.is_some_and(|leads| leads < term) {
                self.step_down(at);
            }
            let node = &mut self.nodes[at];
            if let Some(leadership) = node.leadership.as_mut().filter(|_| node.leads.is_some() || keeps) {
                leadership.observe(&applied.events, now, &node.state);
                if drained && self.rule == Some(Rule::DrainIsArmedOnce) {
                    leadership.timers = Timers::new(now, &node.state, &leadership.lessor);
                }
            }
            if node.leads == Some(term) && node.leadership.is_none() {
                self.lead(at);
            }
        }
        Ok(())
    }

    fn lead(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(term) = node.leads else { return };
        let mut now = node.clock.read(self.now);
        if self.rule == Some(Rule::ArmsInFull) {
            now = now - ms(TTL_MS / 3);
        }
        node.leadership = Some(Leadership::new(Term::new(term), now, &node.state, settings()));
    }

    fn step_down(&mut self, at: usize) {
        let keeps = self.is(Rule::LessorBelongsToOneTerm);
        let node = &mut self.nodes[at];
        node.leads = None;
        if !keeps {
            node.leadership = None;
        }
        node.waiting.clear();
        node.held.clear();
        node.round = None;
        node.outstanding.clear();
    }

    /// A node that believes that it leads, and has begun to.
    fn a_leader(&mut self) -> Option<usize> {
        let leading: Vec<usize> = (0..NODES)
            .filter(|at| {
                let node = &self.nodes[*at];
                node.leads.is_some() && node.leadership.is_some() && node.paused_until <= self.now
            })
            .collect();
        self.random.pick(&leading)
    }

    /// The leader's loop. It looks when what it proposed has an outcome, or when it has waited for that long enough.
    fn look(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(term) = node.leads else { return };
        let waits = !node.outstanding.is_empty() && self.now < node.patience;
        let Some(leadership) = node.leadership.as_mut().filter(|_| !waits) else { return };
        let before = leadership.lessor.clone();
        let now = node.clock.read(self.now);
        let mut entries = leadership.due(now, &node.state);
        if self.rule == Some(Rule::MarksWhenItProposes)
            && entries.iter().flatten().any(|c| matches!(c, Command::Suspect { .. }))
        {
            leadership.lessor = before;
        }
        if self.rule == Some(Rule::UnseenDrainLastsATtl) {
            entries.extend(drains_at_their_deadline(leadership, now, &node.state));
        }
        let patience = self.random.between(50, 1_500);
        self.nodes[at].patience = self.now + patience * 1_000;
        self.nodes[at].outstanding.clear();
        for entry in entries {
            let id = self.propose(term, entry);
            self.nodes[at].outstanding.insert(id);
        }
    }

    /// The renewals' task: one round for all that wait.
    fn confirm(&mut self, at: usize) {
        let (now, term) = (self.now, self.term);
        let node = &mut self.nodes[at];
        if node.leads.is_none() || node.leadership.is_none() {
            return;
        }
        if node.round.is_none() && (!node.waiting.is_empty() || !node.held.is_empty()) {
            let mut batch = std::mem::take(&mut node.waiting);
            batch.append(&mut node.held);
            let acked_at = now + self.random.between(1, 30) * 1_000;
            node.round = Some(Round { batch, acked_at, read_at: None });
        }
        let Some(round) = node.round.as_mut().filter(|round| round.acked_at <= now) else { return };
        if round.read_at.is_none() {
            let failed = !self.healed && self.random.per_mille(self.profile.failed_rounds);
            if (node.leads != Some(term) || failed) && self.rule != Some(Rule::ConfirmsRenewals) {
                // A later term has been voted for, or there was no quorum in time.
                let batch = std::mem::take(&mut round.batch);
                node.round = None;
                for renewal in batch {
                    if let Some(leadership) = &mut self.nodes[at].leadership {
                        leadership.lessor.dropped(renewal.session);
                    }
                    self.cut(renewal.process);
                }
                return;
            }
            round.read_at = Some(if self.rule == Some(Rule::ConfirmsRenewals) { 0 } else { self.log.len() });
        }
        let early = self.rule == Some(Rule::LeadsBeforeAnEntryOfItsTerm);
        if round.read_at.is_some_and(|read_at| node.applied >= read_at) || early {
            let batch = std::mem::take(&mut round.batch);
            node.round = None;
            for renewal in batch {
                self.answer(at, renewal);
            }
        }
    }

    fn answer(&mut self, at: usize, renewal: Renewal) {
        let node = &mut self.nodes[at];
        let Some(leadership) = &mut node.leadership else { return };
        let Renewal { process, connection, session, number, arrival } = renewal;
        match leadership.lessor.answer(session, arrival) {
            Verdict::Hold if self.rule != Some(Rule::HoldsTheSuspected) => node.held.push(renewal),
            Verdict::Ended => self.send(Message::Ended { process, connection }),
            Verdict::Hold | Verdict::Acknowledge => {
                let Some(live) = node.state.session(session) else { return };
                let drains = leadership.timers.drains_of(session, node.clock.read(self.now)).into_iter();
                let drains = drains.map(|(key, epoch, left)| DrainLeft { key, epoch, left }).collect();
                let acknowledgement = Acknowledgement { number, revision: live.assignment(), drains };
                let picture = picture(&node.state, live);
                self.stats.acknowledgements += 1;
                self.send(Message::Picture { process, connection, picture });
                self.send(Message::Acknowledged { process, connection, acknowledgement });
            }
        }
    }

    // The network.

    /// Sends a message that is late, or lost; of two sent one after the other either may arrive first.
    fn send(&mut self, message: Message) {
        if !self.healed && self.random.per_mille(self.profile.losses) {
            return;
        }
        let slow = !self.healed && self.random.per_mille(self.profile.slow_messages);
        let delay = if slow { self.random.between(50, TTL_MS / 2) } else { self.random.between(0, 8) };
        self.next_id += 1;
        self.messages.insert((self.now + delay * 1_000, self.next_id), message);
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Renew { node: at, term, mut renewal } => {
                let node = &mut self.nodes[at];
                if node.paused_until > self.now {
                    return;
                }
                if let Some(leadership) = node.leadership.as_mut().filter(|_| node.leads == Some(term)) {
                    renewal.arrival = node.clock.read(self.now);
                    leadership.lessor.arrived(renewal.session);
                    node.waiting.push(renewal);
                }
            }
            Message::Picture { process, connection, picture } => {
                self.with_lessee(process, connection, |lessee, now| lessee.assign(now, picture));
            }
            Message::Acknowledged { process, connection, acknowledgement } => {
                self.with_lessee(process, connection, |lessee, now| lessee.acknowledge(now, acknowledgement));
            }
            Message::Ended { process, connection } => {
                self.with_lessee(process, connection, |lessee, _| lessee.session_ended());
            }
            Message::Joined { process: at, session } => {
                let process = &mut self.processes[at];
                if process.alive && process.session.is_none() {
                    process.session = Some(session);
                    process.lessee = Some(match self.naive {
                        true => Holder::naive(self.rule),
                        false => Holder::shipped(process.clock.read(self.now)),
                    });
                    process.todo.clear();
                }
            }
            Message::Report { process, todo } => self.report(process, todo),
            Message::DrainAgain(drain) => {
                if let Some(node) = self.a_leader() {
                    self.propose(self.nodes[node].leads.unwrap_or(0), vec![drain]);
                }
            }
        }
    }

    fn with_lessee(&mut self, at: usize, connection: u64, f: impl FnOnce(&mut Holder, Instant)) {
        let process = &mut self.processes[at];
        let open = process.stream.is_some_and(|stream| stream.connection == connection);
        // What reaches a paused process is read when it wakes up; here it is simply lost.
        if process.alive
            && process.paused_until <= self.now
            && open
            && let Some(lessee) = &mut process.lessee
        {
            f(lessee, process.clock.read(self.now));
        }
    }

    /// The stream breaks; both ends notice.
    fn cut(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let Some(stream) = process.stream.take() else { return };
        if let Some(lessee) = &mut process.lessee {
            lessee.disconnected(process.clock.read(self.now));
        }
        let node = &mut self.nodes[stream.node];
        let now = node.clock.read(self.now);
        let led = node.leadership.as_mut().filter(|_| node.leads == Some(stream.term));
        if let (Some(leadership), Some(session)) = (led, process.session) {
            leadership.presence.disconnected(session, now);
        }
    }

    // Processes.

    fn live(&mut self, at: usize) {
        if self.processes[at].session.is_none() {
            return self.join(at);
        }
        if self.processes[at].lessee.as_ref().is_some_and(Holder::is_over) {
            return self.start_over(at);
        }
        self.attach(at);
        let process = &mut self.processes[at];
        let (Some(lessee), Some(session)) = (&mut process.lessee, process.session) else { return };
        let now = process.clock.read(self.now);
        lessee.handle_timeout(now);
        if let (Some(number), Some(stream)) = (lessee.renew(now, self.random.next() as u32), process.stream) {
            let arrival = Instant::from_nanos(0);
            let renewal = Renewal { process: at, connection: stream.connection, session, number, arrival };
            self.send(Message::Renew { node: stream.node, term: stream.term, renewal });
        }
        self.hear(at);
        self.act(at);
    }

    fn join(&mut self, at: usize) {
        if self.processes[at].next_join > self.now {
            return;
        }
        self.processes[at].next_join = self.now + self.random.between(100, 500) * 1_000;
        let Some(node) = self.a_leader() else { return };
        let (process, state) = (&self.processes[at], &self.nodes[node].state);
        if state.keyspaces().count() < TAKEOVERS.len() {
            return;
        }
        let join = Join {
            worker: process.worker.clone(),
            nonce: process.nonce,
            secret_hash: [0; 32],
            address: String::new(),
            weight: Weight::ONE,
            labels: BTreeMap::new(),
            keyspaces: state.keyspaces().map(crate::state::Keyspace::id).collect(),
            replaces: state.session_of(&process.worker).map(Session::id),
            splits: true,
            ends_drain: None,
        };
        let term = self.nodes[node].leads.unwrap_or(0);
        self.propose(term, vec![Command::Join(Box::new(join))]);
    }

    /// The session is over. Another one is opened, unless another process lives under the name.
    fn start_over(&mut self, at: usize) {
        self.cut(at);
        let worker = self.processes[at].worker.clone();
        let taken = self.processes.iter().skip(at + 1).any(|other| other.alive && other.worker == worker);
        let process = &mut self.processes[at];
        process.alive = !taken;
        process.session = None;
        process.lessee = None;
        process.nonce = u128::from(self.random.next());
        process.next_join = self.now;
    }

    fn attach(&mut self, at: usize) {
        if let Some(stream) = self.processes[at].stream {
            let node = &self.nodes[stream.node];
            let serves = node.leads == Some(stream.term) && node.leadership.is_some();
            // A stream to a node that is paused looks alive for a while.
            let silent = node.paused_until > self.now && self.random.per_mille(10);
            if !serves || silent {
                self.cut(at);
            }
            return;
        }
        if !self.random.per_mille(200) {
            return;
        }
        let Some(node) = self.a_leader() else { return };
        let process = &mut self.processes[at];
        let (Some(session), Some(lessee)) = (process.session, &mut process.lessee) else { return };
        let term = self.nodes[node].leads.unwrap_or(0);
        let Some(leadership) = &mut self.nodes[node].leadership else { return };
        self.next_id += 1;
        process.stream = Some(Stream { node, term, connection: self.next_id });
        lessee.connected(process.clock.read(self.now));
        leadership.presence.connected(session);
    }

    /// Follows what the lessee tells.
    fn hear(&mut self, at: usize) {
        let now = self.now;
        let process = &mut self.processes[at];
        let Some(lessee) = &mut process.lessee else { return };
        while let Some(event) = lessee.poll_event() {
            match event {
                lessee::Event::Granted { key, epoch, .. } => {
                    let when = now + self.random.between(0, 200) * 1_000;
                    process.todo.push((when, Todo::Ready(key, epoch)));
                }
                lessee::Event::Revoked { key, epoch } => {
                    // Every other task overruns its deadline.
                    let flush = if self.random.per_mille(500) { 100 } else { 3 * TTL_MS };
                    let when = now + self.random.between(0, flush) * 1_000;
                    process.todo.push((when, Todo::Return(key, epoch)));
                }
                lessee::Event::Bounded { key, epoch, .. } => process.todo.push((now, Todo::Seen(key, epoch))),
                lessee::Event::Lost { key, epoch, .. } => {
                    process.todo.retain(|(_, todo)| *todo != Todo::Return(key, epoch));
                }
            }
        }
    }

    fn act(&mut self, at: usize) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.processes[at].todo).into_iter().partition(|(when, _)| *when <= self.now);
        self.processes[at].todo = later;
        for (_, todo) in due {
            let todo = match todo {
                Todo::Return(key, epoch) => {
                    if let Some(lessee) = &mut self.processes[at].lessee {
                        lessee.give_back(key, epoch);
                    }
                    Todo::Release(key, epoch)
                }
                other => other,
            };
            // Said again until it is known to be done.
            if !self.is_done(at, todo) {
                let again = self.now + self.random.between(200, 600) * 1_000;
                self.processes[at].todo.push((again, todo));
                self.send(Message::Report { process: at, todo });
            }
        }
    }

    fn is_done(&self, at: usize, todo: Todo) -> bool {
        let (Todo::Ready(key, epoch)
        | Todo::Seen(key, epoch)
        | Todo::Return(key, epoch)
        | Todo::Release(key, epoch)) = todo;
        let partition = self.truth.partition(key);
        let holds =
            partition.is_some_and(|p| p.epoch() == Some(epoch) && p.owner() == self.processes[at].session);
        !holds || (matches!(todo, Todo::Ready(..)) && partition.is_some_and(crate::state::Partition::ready))
    }

    fn report(&mut self, at: usize, todo: Todo) {
        let Some(node) = self.a_leader() else { return };
        let Some(session) = self.processes[at].session else { return };
        let with_grant = self.random.per_mille(800);
        let commands = match todo {
            Todo::Ready(partition, epoch) => vec![Command::Ready { partition, epoch, session }],
            Todo::Seen(partition, epoch) => vec![Command::RevokeSeen { partition, epoch, session }],
            Todo::Return(partition, epoch) | Todo::Release(partition, epoch) => {
                let state = &self.nodes[node].state;
                let (command, follows) =
                    release(state, partition, epoch, session, Released::Revoked, &BTreeSet::new());
                std::iter::once(command).chain(follows.into_iter().filter(|_| with_grant)).collect()
            }
        };
        let term = self.nodes[node].leads.unwrap_or(0);
        self.propose(term, commands);
    }

    // What must hold.

    /// G3, at its worst: the new owner might believe from the moment its grant is committed.
    fn check(&self) -> Result<(), Violation> {
        for process in self.processes.iter().filter(|process| process.alive) {
            let (Some(lessee), now) = (&process.lessee, process.clock.read(self.now)) else { continue };
            for (key, epoch) in lessee.believes(now) {
                let granted = self.granted_over(key, epoch);
                if granted.is_some() && self.keeps_g3(key.keyspace) {
                    let text = format!(
                        "{} believes in {key} at {epoch}, which is granted at {granted:?}, {} ms after the start",
                        process.worker,
                        self.now / 1_000
                    );
                    return Err(Violation::G3(text));
                }
            }
        }
        Ok(())
    }

    /// The grant by which somebody else owns what `key` was under `epoch`: its own, or that of a partition that was split
    /// from it since.
    fn granted_over(&self, key: PartitionKey, epoch: Epoch) -> Option<(PartitionKey, Epoch)> {
        let keyspace = self.truth.keyspace(key.keyspace)?;
        let of_it = |other: &PartitionKey| {
            let since = |born: &Born| born.parent == key.partition && born.epoch > epoch;
            *other == key || keyspace.ancestors(other.partition).any(|born| since(&born))
        };
        let last = |other: PartitionKey| Some((other, self.truth.partition(other)?.history().last()?.epoch));
        let granted = |(other, granted): &(PartitionKey, Epoch)| *other != key || *granted > epoch;
        keyspace.keys().filter(of_it).filter_map(last).find(granted)
    }

    fn keeps_g3(&self, keyspace: KeyspaceId) -> bool {
        self.truth.keyspace(keyspace).is_some_and(|keyspace| keyspace.policy().takeover() == Takeover::Lease)
    }

    /// G4, when trouble is over: everything has an owner that is ready, and every worker its share.
    fn settled(&self) -> Result<(), Violation> {
        let mut owned: BTreeMap<(KeyspaceId, SessionId), u32> = BTreeMap::new();
        for key in self.truth.keyspaces().flat_map(crate::state::Keyspace::keys) {
            let Some(partition) = self.truth.partition(key) else { continue };
            match partition.phase() {
                Phase::Owned { session, ready: true } => {
                    *owned.entry((key.keyspace, *session)).or_insert(0) += 1;
                }
                other => return Err(Violation::G4(format!("{key} is {other:?} in peace"))),
            }
        }
        let each = |id: KeyspaceId| self.truth.keyspace(id).map_or(0, |k| k.count().get()) / WORKERS as u32;
        if owned.iter().any(|((keyspace, _), count)| *count != each(*keyspace)) {
            return Err(Violation::G4(format!("out of balance in peace: {owned:?}")));
        }
        Ok(())
    }
}

fn settings() -> Settings {
    Settings { settle: ms(300), cool_down: ms(3_000), ..Settings::default() }
}

fn name(worker: usize) -> WorkerId {
    WorkerId::new(&format!("w{worker}")).unwrap()
}

fn picture(state: &State, session: &Session) -> Assignment<PartitionKey> {
    let held = session.holds().iter().filter_map(|key| {
        let partition = state.partition(*key)?;
        Some(Held {
            key: *key,
            epoch: partition.epoch()?,
            draining: matches!(partition.phase(), Phase::Draining(_)),
            takeover: state.keyspace(key.keyspace)?.policy().takeover(),
            lineage: Lineage::read(state.keyspace(key.keyspace)?, key.partition),
        })
    });
    let held = held.collect();
    Assignment { revision: session.assignment(), complete: true, more: false, held, gone: Vec::new() }
}

/// An expiry that rests on whatever the session's suspicion is when it applies; when there is none, on a new one.
fn name_the_current_suspicion(entry: &mut Entry, index: LogIndex) {
    let Some(Command::Expire { session, suspicion }) = entry.commands.first_mut() else { return };
    *suspicion = index;
    let session = *session;
    let forget = Command::Clear { sessions: vec![session] };
    let suspect = Command::Suspect { sessions: vec![(session, 2)] };
    entry.commands.splice(0..0, [forget, suspect]);
}

/// Every drain at its deadline, whether its owner has learnt of it or not.
fn drains_at_their_deadline(leadership: &Leadership, now: Instant, state: &State) -> Vec<Vec<Command>> {
    let draining = state.keyspaces().flat_map(crate::state::Keyspace::keys).filter_map(|key| {
        match (state.partition(key)?.phase(), state.partition(key)?.epoch()) {
            (Phase::Draining(drain), Some(epoch)) => Some((key, epoch, drain.session, drain.move_id)),
            _ => None,
        }
    });
    let over = draining.filter(|(key, epoch, session, _)| {
        leadership
            .timers
            .drains_of(*session, now)
            .iter()
            .any(|(k, e, left)| k == key && e == epoch && left.is_zero())
    });
    over.map(|(partition, epoch, _, move_id)| vec![Command::DrainOver { partition, epoch, move_id }])
        .collect()
}
