//! The actors, and what a fault does to them.

use super::Figures;
use super::fault::Fault;
use super::kinds::Kind;
use super::panics;
use super::plan::{OPERATOR, Plan, ROUTER};
use super::witness::Witness;
use crate::actors::golden;
use crate::actors::node::{Beginning, DATA_DIR, Node};
use crate::actors::operator::{Done, Operator, Order};
use crate::actors::router::RouterHost;
use crate::actors::store::{self, Store};
use crate::actors::worker::{Common, WorkerHost};
use crate::history::{History, Recorder, What};
use crate::world::disk::Trouble;
use crate::world::{Copied, Disk, Host, Ms, Net, Rate, TrueTime, Weather};
use fastrand::Rng;
use ringfence::admin::PolicyChange;
use ringfence::ids::{NodeId, PartitionId, WorkerId};
use ringfence_server::raft::RaftStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a supervisor waits before it starts a process again that ended by itself.
const RESTART_MS: u64 = 300;
/// How often it looks.
const SUPERVISED_MS: u64 = 20;
/// How long an operator tries to exchange a member.
const EXCHANGE_MS: u64 = 8_000;

/// Everything, while it runs.
pub(super) struct Stage {
    plan: Plan,
    random: Rng,
    now: Ms,
    common: Common,
    nodes: BTreeMap<Host, Node>,
    workers: BTreeMap<Host, WorkerHost>,
    router: RouterHost,
    operator: Operator,
    witness: Witness,
    /// Processes that do not run until then.
    paused: BTreeMap<Host, Ms>,
    /// Processes that are not started again.
    gone: BTreeSet<Host>,
    /// Nodes that lost their data, and must not come back.
    wiped: BTreeSet<Host>,
    taken_in: BTreeSet<Host>,
    /// Nodes whose disk lies, or that were given an old copy of their data.
    forgetful: BTreeSet<Host>,
    /// Copies of data directories.
    copies: BTreeMap<Host, Copied>,
    /// The leader whose disk stands still for good.
    stuck: Option<Host>,
    later: BTreeMap<(Ms, u64), Later>,
    /// When faults are really over: of two of one kind that overlap, the one that lasts longer decides.
    until: BTreeMap<Later, Ms>,
    /// When a machine that loses power by itself is back.
    back: BTreeMap<Host, u64>,
    next_fault: usize,
    number: u64,
    starts: BTreeMap<Host, u64>,
    broken: Vec<String>,
}

/// What happens later, at the end of a fault above all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    Open(Host, Host),
    Fair(Host, Host),
    Start(Host),
    HasRoom(Host),
    Fast(Host),
    StoreFair(Host),
    Leave(Host),
    /// It is not started again.
    Gone(Host),
    /// Whoever leads is stuck from then on.
    Stick(bool, Host, u64),
}

impl Stage {
    pub(super) fn open(plan: &Plan) -> anyhow::Result<Stage> {
        let mut random = Rng::with_seed(plan.seed ^ 0x5eed);
        let (time, recorder) = (TrueTime::default(), Recorder::new());
        let common = Common {
            net: Net::new(random.fork()),
            time: time.clone(),
            store: Store::new(random.fork(), &time, &recorder, plan.fenced),
            recorder,
            operations: Arc::new(AtomicU64::new(0)),
            nodes: plan.nodes.clone(),
            keyspaces: Plan::keyspaces().map(str::to_owned).to_vec(),
            pace: plan.kind.pace(),
        };
        let rate =
            |host| plan.rates.iter().find(|(of, _)| *of == host).map_or(Rate::default(), |(_, rate)| *rate);
        let mut nodes = BTreeMap::new();
        for host in &plan.nodes {
            let disk = Disk::new(random.fork());
            nodes.insert(*host, Node::new(*host, disk, rate(*host), plan.compaction));
        }
        let mut workers = BTreeMap::new();
        for (host, number) in plan.workers.iter().zip(1..) {
            let worker = WorkerHost::new(&format!("w{number}"), *host, rate(*host), &common)?;
            workers.insert(*host, worker);
        }
        let router = RouterHost::start(ROUTER, &common, plan.partitions, random.u64(..))?;
        let operator = Operator::start(OPERATOR, &common, random.u64(..))?;
        let mut stage = Stage {
            plan: plan.clone(),
            random,
            now: 0,
            common,
            nodes,
            workers,
            router,
            operator,
            witness: Witness::default(),
            paused: BTreeMap::new(),
            gone: BTreeSet::new(),
            wiped: BTreeSet::new(),
            taken_in: BTreeSet::new(),
            forgetful: BTreeSet::new(),
            copies: BTreeMap::new(),
            stuck: None,
            later: BTreeMap::new(),
            until: BTreeMap::new(),
            back: BTreeMap::new(),
            next_fault: 0,
            number: 0,
            starts: BTreeMap::new(),
            broken: Vec::new(),
        };
        if plan.kind == Kind::OldFormat {
            stage.begin_on_the_oldest_format()?;
        }
        (0..2).for_each(|keyspace| stage.create(keyspace));
        let nodes: Vec<Host> = stage.nodes.keys().copied().collect();
        for host in nodes {
            stage.start(host)?;
        }
        let workers: Vec<Host> = stage.workers.keys().copied().collect();
        for host in workers {
            // They fail to join until their keyspaces exist, and are started again.
            let at = stage.random.u64(1..1_500);
            stage.later(at, Later::Start(host));
        }
        Ok(stage)
    }

    /// The first node has the data of a cluster of its own, and the others are added to it.
    fn begin_on_the_oldest_format(&mut self) -> anyhow::Result<()> {
        let mut nodes = self.plan.nodes.iter();
        if let Some(node) = nodes.next().and_then(|first| self.nodes.get(first)) {
            node.disk.put_back(golden::data_dir(Path::new(DATA_DIR))?);
            self.common.net.alias(golden::ADDRESS, node.host);
        }
        for host in nodes {
            self.operator.order(Order::Exchange(Some((id(*host)?, *host)), None, self.plan.heals));
        }
        Ok(())
    }

    fn later(&mut self, after: u64, what: Later) {
        self.number += 1;
        self.later.insert((self.now + after, self.number), what);
    }

    /// Ends a fault after so long, or when a longer one of its kind does.
    fn undo(&mut self, after: u64, what: Later) {
        let until = self.until.entry(what.clone()).or_default();
        *until = (*until).max(self.now + after);
        self.later(after, what);
    }

    fn record(&self, what: What) {
        self.common.recorder.record(self.common.time.us(), "world", what);
    }

    /// Lets a millisecond pass.
    pub(super) fn tick(&mut self, now: Ms) -> anyhow::Result<()> {
        self.now = now;
        self.common.time.set(now);
        while let Some(timed) = self.plan.faults.get(self.next_fault).filter(|timed| timed.at <= now).cloned()
        {
            self.next_fault += 1;
            let text = timed.fault.to_string();
            self.record(if timed.fault.is_no_excuse() { What::Note { text } } else { What::Fault { text } });
            self.strike(timed.fault, &mut Rng::with_seed(timed.seed))?;
        }
        let passed = |at: Ms| (now - self.plan.tick..now).contains(&at);
        let (heals, steady) = (passed(self.plan.heals), passed(self.plan.steady));
        if heals {
            self.heal()?;
        }
        if steady {
            if self.plan.kind != Kind::Forgetful {
                self.all_are_back();
                self.members_agree();
            }
            self.witness.steady = true;
            self.record(What::Steady);
        }
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let what = entry.remove();
            if self.until.get(&what).is_none_or(|until| *until <= now) {
                self.end_of_fault(what)?;
            }
        }
        self.common.store.run(now);
        self.common.net.deliver(now);
        self.run_processes(now);
        self.darken();
        for text in panics::take().into_iter().chain(self.common.store.take_wrong()) {
            self.record(What::Note { text: text.clone() });
            self.broken.push(text);
        }
        if now % self.plan.kind.look_every() < self.plan.tick {
            self.look();
        }
        if now % SUPERVISED_MS < self.plan.tick {
            self.supervise();
        }
        Ok(())
    }

    fn run_processes(&mut self, now: Ms) {
        let paused = |host: &Host| self.paused.get(host).is_some_and(|until| *until > now);
        for node in self.nodes.values_mut().filter(|node| !paused(&node.host)) {
            if let Some(process) = &mut node.process {
                process.run_until(now);
            }
        }
        for worker in self.workers.values_mut().filter(|worker| !paused(&worker.host)) {
            if let Some(process) = &mut worker.process {
                process.run_until(now);
            }
        }
        self.router.process.run_until(now);
        self.operator.process.run_until(now);
    }

    fn look(&mut self) {
        let (at, now) = (self.common.time.us(), self.now);
        for node in self.nodes.values_mut() {
            if self.wiped.contains(&node.host) && node.belongs() && self.taken_in.insert(node.host) {
                self.broken.push(format!("node {} came back without its data and was taken in", node.host.0));
            }
            self.witness.look(node, at, &self.common.recorder);
        }
        let paused = |host: &Host| self.paused.get(host).is_some_and(|until| *until > now);
        for worker in self.workers.values_mut().filter(|worker| !paused(&worker.host)) {
            worker.look(at);
        }
    }

    /// Starts again what ended by itself.
    fn supervise(&mut self) {
        let mut again = Vec::new();
        for node in self.nodes.values_mut() {
            if let Some(error) = node.process.as_ref().and_then(|_| node.ended()) {
                let host = node.host;
                let text = format!("{} ended: {error}", host.0);
                let excused = self.wiped.contains(&host) || self.forgetful.contains(&host);
                if error.has_forgotten() && excused {
                    self.gone.insert(host);
                } else if (error.is_damage() || error.has_forgotten())
                    && !excused
                    && !self.gone.contains(&host)
                {
                    self.broken.push(text.clone());
                }
                self.common.recorder.record(self.common.time.us(), "world", What::Note { text });
                node.kill(&self.common.net, false);
                again.push((host, RESTART_MS));
            }
        }
        for worker in self.workers.values_mut() {
            if worker.process.is_some() && worker.ended() {
                worker.kill(&self.common.net, false);
                again.push((worker.host, self.back.remove(&worker.host).unwrap_or(RESTART_MS)));
            }
        }
        for (host, after) in again {
            self.later(after, Later::Start(host));
        }
        for done in self.operator.take_done() {
            match done {
                Done::Removed(host) => {
                    // It runs on for a while, as one that does not know it yet.
                    let after = self.random.u64(1..5_000);
                    self.later(after, Later::Gone(host));
                }
                Done::Recreated => {
                    // A session serves the keyspaces that were there when it was opened, so the workers are started anew;
                    // earlier they would find the old one again where its end takes its time.
                    let workers: Vec<Host> = self.workers.keys().copied().collect();
                    for host in workers {
                        let after = self.random.u64(1..3_000);
                        self.later(after, Later::Leave(host));
                    }
                }
            }
        }
    }

    /// Machines whose disk lost power in the middle of a write are off from that very moment.
    fn darken(&mut self) {
        let dark = self.nodes.values().filter(|node| node.process.is_some() && node.disk.is_dark());
        let dark: Vec<Host> = dark.map(|node| node.host).collect();
        for host in dark {
            self.kill(host, true);
            let after = self.back.remove(&host).unwrap_or(RESTART_MS);
            self.undo(after, Later::Start(host));
        }
    }

    /// When all is steady every founder that nobody let go of belongs to the cluster.
    fn all_are_back(&mut self) {
        for host in self.plan.nodes.clone() {
            let excused = self.gone.contains(&host) || self.wiped.contains(&host);
            if let Some(node) = self.nodes.get_mut(&host).filter(|_| !excused)
                && node.context().is_none()
            {
                self.broken.push(format!("node {} did not come back after the last fault", host.0));
            }
        }
    }

    /// When all is steady, everybody who is a member knows the same members.
    fn members_agree(&mut self) {
        let Some(leader) = self.leader() else {
            return self.broken.push("nobody leads although all is steady".to_owned());
        };
        let stuck = self.stuck;
        let voters = |node: &mut Node| {
            let members = node.status()?.members;
            Some(members.into_iter().map(|(id, member)| (id, member.voter)).collect::<Vec<_>>())
        };
        let Some(told) = self.nodes.get_mut(&leader).and_then(voters) else { return };
        for node in self.nodes.values_mut() {
            let member = told.iter().any(|(id, _)| id.get() == node.id);
            if member
                && Some(node.host) != stuck
                && let Some(known) = voters(node)
                && known != told
            {
                let (id, leader) = (node.id, leader.0);
                self.broken.push(format!(
                    "to node {id} the members are {known:?}, to {leader}, who leads, {told:?}"
                ));
            }
        }
    }

    /// Who leads the latest term.
    fn leader(&mut self) -> Option<Host> {
        let leads = |node: &mut Node| node.status().filter(RaftStatus::leads).map(|s| (s.term, node.host));
        self.nodes.values_mut().filter_map(leads).max().map(|(_, host)| host)
    }

    /// The disk of the leader stands still for good, and it may reach one follower only; a worker is killed, so that there is
    /// something to decide. Without a leader it waits for one.
    fn stick(&mut self, one: bool, worker: Host, for_ms: u64) {
        let Some(leader) = self.leader() else {
            return self.later(5, Later::Stick(one, worker, for_ms));
        };
        self.kill(worker, false);
        self.undo(for_ms, Later::Start(worker));
        self.stuck = Some(leader);
        let forever = (self.common.time.clone(), self.plan.ends * 2);
        self.disk(leader, |trouble| trouble.frozen = Some(forever));
        let mut others: Vec<Host> = self.nodes.keys().copied().filter(|host| *host != leader).collect();
        if one {
            others.remove(self.random.usize(..others.len()));
            for other in others {
                for (from, to) in [(leader, other), (other, leader)] {
                    self.common.net.change(from, to, |weather| weather.closed = true);
                }
            }
        }
        self.record(What::Note { text: format!("node {} is stuck, one: {one}", leader.0) });
    }

    fn start(&mut self, host: Host) -> anyhow::Result<()> {
        let down = self.nodes.get(&host).is_some_and(|node| node.process.is_none())
            || self.workers.get(&host).is_some_and(|worker| worker.process.is_none());
        if !down || self.gone.contains(&host) {
            return Ok(());
        }
        self.paused.remove(&host);
        let starts = self.starts.entry(host).or_default();
        *starts += 1;
        // Whatever else does not happen, the same start of the same process draws the same.
        let seed = Rng::with_seed(self.plan.seed ^ u64::from(host.0) << 32 ^ *starts).u64(..);
        if let Some(node) = self.nodes.get_mut(&host) {
            let all = &self.plan.nodes;
            let founders = if self.plan.kind == Kind::OldFormat { &all[..1] } else { &all[..] };
            let beginning = if founders.contains(&host) {
                Beginning::Founds(founders.to_vec())
            } else {
                Beginning::Joins
            };
            node.start(&self.common.net, &self.common.time, &beginning, seed)?;
            self.witness.restarted(node.id);
        }
        if let Some(worker) = self.workers.get_mut(&host) {
            worker.start(&self.common, seed)?;
        }
        Ok(())
    }

    fn kill(&mut self, host: Host, power: bool) {
        if let Some(node) = self.nodes.get_mut(&host) {
            node.kill(&self.common.net, power);
        }
        if let Some(worker) = self.workers.get_mut(&host) {
            worker.kill(&self.common.net, power);
        }
    }

    fn everybody(&self) -> Vec<Host> {
        self.nodes.keys().chain(self.workers.keys()).copied().chain([ROUTER, OPERATOR]).collect()
    }

    fn close(&mut self, from: Host, to: Host, for_ms: u64) {
        self.common.net.change(from, to, |weather| weather.closed = true);
        self.undo(for_ms, Later::Open(from, to));
    }

    fn strike(&mut self, fault: Fault, random: &mut Rng) -> anyhow::Result<()> {
        match fault {
            Fault::Pause(host, for_ms) => drop(self.pause(host, for_ms)),
            Fault::Suspend(host, for_ms) => {
                let more = self.pause(host, for_ms);
                self.suspended(host, more);
            }
            Fault::Kill(host, for_ms) => {
                self.kill(host, false);
                self.undo(for_ms, Later::Start(host));
            }
            Fault::PowerLoss(host, for_ms) => {
                self.kill(host, true);
                self.undo(for_ms, Later::Start(host));
            }
            Fault::PowerLossInWrite(host, writes, for_ms) => {
                self.back.insert(host, for_ms);
                self.disk(host, |trouble| trouble.power_lost_after = Some(writes));
            }
            Fault::KillNodes(for_ms) | Fault::NodesLosePower(for_ms) => {
                let power = matches!(fault, Fault::NodesLosePower(_));
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for host in nodes {
                    self.kill(host, power);
                    let apart = random.u64(0..200);
                    self.undo(for_ms + apart, Later::Start(host));
                }
            }
            Fault::OneWay(from, to, for_ms) => self.close(from, to, for_ms),
            Fault::Cut(a, b, for_ms) => {
                self.close(a, b, for_ms);
                self.close(b, a, for_ms);
            }
            Fault::Isolate(host, for_ms) => {
                for other in self.everybody().into_iter().filter(|other| *other != host) {
                    self.close(host, other, for_ms);
                    self.close(other, host, for_ms);
                }
            }
            Fault::LostReplies(host, for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for node in nodes {
                    self.close(node, host, for_ms);
                }
            }
            Fault::Slow(a, b, for_ms) => {
                let most = random.u64(10..300);
                let loss = random.u8(..40);
                for (from, to) in [(a, b), (b, a)] {
                    self.common.net.change(from, to, |weather| {
                        *weather = Weather { latency: 1..=most, loss, ..weather.clone() };
                    });
                    self.undo(for_ms, Later::Fair(from, to));
                }
            }
            Fault::Reset(a, b) => self.common.net.reset(a, b),
            Fault::DiskFull(host, for_ms) => {
                self.disk(host, |trouble| trouble.full = true);
                self.undo(for_ms, Later::HasRoom(host));
            }
            Fault::FlushFails(host) => self.disk(host, |trouble| trouble.fails_flush = true),
            Fault::SlowDisk(host, for_ms) => {
                let most = random.u64(5_000..900_000);
                self.disk(host, |trouble| trouble.takes_us = most / 4..=most);
                self.undo(for_ms, Later::Fast(host));
            }
            Fault::WallJump(host, by) => {
                if let Some(node) = self.nodes.get(&host) {
                    node.wall.fetch_add(by, Ordering::Relaxed);
                }
            }
            Fault::StoreWeather(host, for_ms) => {
                let most = random.u64(20..1_500);
                let (loss, twice) = (random.u8(..50), random.u8(..30));
                let weather = store::Weather { latency: 1..=most, loss, twice };
                self.common.store.change(host, Some(weather));
                self.undo(for_ms, Later::StoreFair(host));
            }
            Fault::Leave(host, for_ms) => {
                self.back.insert(host, for_ms);
                if let Some(worker) = self.workers.get(&host) {
                    worker.leave();
                }
            }
            Fault::Move(keyspace, partition, to) => {
                let name = Plan::keyspaces()[keyspace].to_owned();
                if let Some(worker) = self.workers.get(&to) {
                    let to = WorkerId::new(&worker.name)?;
                    self.operator.order(Order::Move(name, PartitionId::new(partition), to));
                }
            }
            Fault::Transfer => self.operator.order(Order::Transfer(None)),
            Fault::Replace(new, old) => {
                self.add_node(new, random)?;
                self.operator.order(Order::Add(id(new)?, new));
                self.operator.order(Order::Remove(id(old)?));
                self.later(6_000, Later::Gone(old));
            }
            Fault::Wipe(host, new) => {
                self.kill(host, true);
                if let Some(node) = self.nodes.get(&host) {
                    node.disk.wipe();
                }
                self.wiped.insert(host);
                self.undo(500, Later::Start(host));
                self.add_node(new, random)?;
                self.operator.order(Order::Remove(id(host)?));
                self.operator.order(Order::Add(id(new)?, new));
            }
            Fault::Recreate(keyspace) => {
                self.operator.order(Order::Delete(Plan::keyspaces()[keyspace].to_owned()));
                self.create(keyspace);
                self.operator.order(Order::SayRecreated);
            }
            Fault::FreezeDisk(host, for_ms) => {
                let until = self.now + for_ms;
                let time = self.common.time.clone();
                self.disk(host, |trouble| {
                    let until = trouble.frozen.take().map_or(until, |(_, longer)| longer.max(until));
                    trouble.frozen = Some((time, until));
                });
            }
            Fault::StickLeader(one, worker, for_ms) => self.stick(one, worker, for_ms),
            Fault::Exchange(comes, leaves) => {
                if let Some(host) = comes {
                    self.add_node(host, random)?;
                }
                let until = (self.now + EXCHANGE_MS).min(self.plan.heals);
                let named = |host: Option<Host>| host.map(|host| Ok::<_, anyhow::Error>((id(host)?, host)));
                let (comes, leaves) = (named(comes).transpose()?, named(leaves).transpose()?);
                self.operator.order(Order::Exchange(comes, leaves, until));
            }
            Fault::CopyDisk(host) => {
                if let Some(node) = self.nodes.get(&host) {
                    self.copies.insert(host, node.disk.copied());
                }
            }
            Fault::OldCopy(host, for_ms) => {
                self.kill(host, false);
                if let (Some(node), Some(copy)) = (self.nodes.get(&host), self.copies.remove(&host)) {
                    node.disk.put_back(copy);
                    self.forgetful.insert(host);
                }
                self.undo(for_ms, Later::Start(host));
            }
            Fault::DiskLies(host) => {
                self.forgetful.insert(host);
                self.disk(host, |trouble| trouble.lies = true);
            }
            Fault::LateAnswers(host, late, for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for node in nodes {
                    self.common.net.change(node, host, |weather| weather.latency = late..=late + 5);
                    self.undo(for_ms, Later::Fair(node, host));
                }
            }
            Fault::KillWorkers(for_ms) => {
                let workers: Vec<Host> = self.workers.keys().copied().collect();
                for host in workers {
                    self.kill(host, false);
                    self.undo(for_ms, Later::Start(host));
                }
            }
            Fault::RestartNodes(for_ms) => {
                let nodes: Vec<Host> = self.nodes.keys().copied().collect();
                for host in nodes {
                    self.kill(host, false);
                    self.undo(for_ms, Later::Start(host));
                }
            }
            Fault::Twin(of, host, for_ms) => {
                let Some(name) = self.workers.get(&of).map(|worker| worker.name.clone()) else {
                    return Ok(());
                };
                let twin = WorkerHost::twin(&name, host, Rate::default(), &self.common)?;
                self.workers.entry(host).or_insert(twin);
                self.start(host)?;
                self.later(for_ms, Later::Gone(host));
            }
        }
        Ok(())
    }

    fn add_node(&mut self, host: Host, random: &mut Rng) -> anyhow::Result<()> {
        let disk = Disk::new(random.fork());
        self.nodes.insert(host, Node::new(host, disk, Rate::default(), self.plan.compaction));
        self.start(host)
    }

    fn create(&self, keyspace: usize) {
        let policy = PolicyChange {
            ttl: Some(self.plan.ttl),
            takeover: Some(self.plan.takeovers()[keyspace]),
            drain_deadline: self.plan.drain_deadline,
            lock_delay: Some(self.plan.lock_delay),
            ..PolicyChange::default()
        };
        let name = Plan::keyspaces()[keyspace].to_owned();
        self.operator.order(Order::Create(name, self.plan.partitions, policy));
    }

    fn disk(&self, host: Host, change: impl FnOnce(&mut Trouble)) {
        if let Some(node) = self.nodes.get(&host) {
            node.disk.trouble(change);
        }
    }

    /// Stops a process for so long. Returns by how much longer it stands still than it would have.
    fn pause(&mut self, host: Host, for_ms: u64) -> u64 {
        let until = self.paused.entry(host).or_insert(self.now);
        let before = (*until).max(self.now);
        *until = before.max(self.now + for_ms);
        *until - before
    }

    fn end_of_fault(&mut self, what: Later) -> anyhow::Result<()> {
        match what {
            Later::Open(from, to) => self.common.net.change(from, to, |weather| weather.closed = false),
            Later::Fair(from, to) => self.common.net.change(from, to, |weather| {
                *weather = Weather { closed: weather.closed, ..Weather::default() };
            }),
            Later::Start(host) => self.start(host)?,
            Later::HasRoom(host) => self.disk(host, |trouble| trouble.full = false),
            Later::Fast(host) => self.disk(host, |trouble| trouble.takes_us = Trouble::default().takes_us),
            Later::StoreFair(host) => self.common.store.change(host, None),
            Later::Stick(one, worker, for_ms) => self.stick(one, worker, for_ms),
            // Whether it was removed or not, an operator has let go of it: it is not started again.
            Later::Gone(host) => {
                self.gone.insert(host);
                self.kill(host, false);
            }
            Later::Leave(host) => {
                if let Some(worker) = self.workers.get(&host) {
                    worker.leave();
                }
            }
        }
        Ok(())
    }

    fn suspended(&mut self, host: Host, for_ms: u64) {
        if let Some(process) = self.nodes.get_mut(&host).and_then(|node| node.process.as_mut()) {
            process.suspended(for_ms);
        }
        if let Some(worker) = self.workers.get_mut(&host) {
            worker.suspended(for_ms);
        }
    }

    /// The last fault is over.
    fn heal(&mut self) -> anyhow::Result<()> {
        self.common.net.heal();
        self.common.store.heal();
        for node in self.nodes.values() {
            node.disk.trouble(|trouble| *trouble = Default::default());
        }
        self.paused.clear();
        self.until.clear();
        self.back.clear();
        for host in self.everybody() {
            self.start(host)?;
        }
        self.record(What::Healed);
        Ok(())
    }

    pub(super) fn close_down(mut self) -> (History, Figures, Vec<String>) {
        for worker in self.workers.values_mut() {
            worker.finish_claims();
        }
        self.record(What::End);
        let history = self.common.recorder.history();
        let figures = Figures { simulated_ms: self.now, elections: self.witness.elections() };
        for node in self.nodes.values_mut() {
            node.kill(&self.common.net, true);
        }
        for worker in self.workers.values_mut() {
            worker.kill(&self.common.net, true);
        }
        let mut broken = self.broken;
        // Where a node forgot, an entry may have been replaced after it was applied.
        if self.plan.kind != Kind::Forgetful {
            broken.append(&mut self.witness.diverged);
        }
        (history, figures, broken)
    }
}

/// A node's id is the number of its host.
fn id(host: Host) -> anyhow::Result<NodeId> {
    Ok(NodeId::new(u64::from(host.0))?)
}
