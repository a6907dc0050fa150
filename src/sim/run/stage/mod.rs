//! The actors, and the time that passes for them.
//!
//! | module | what it is |
//! |---|---|
//! | `ends` | what happens later: the ends of faults |
//! | `strike` | what a fault does |
//! | `watch` | who looks at what the actors do, and starts again what ended |

mod ends;
mod strike;
mod watch;

use super::Figures;
use super::kinds::Kind;
use super::panics;
use super::plan::{OPERATOR, Plan, ROUTER};
use super::witness::Witness;
use crate::actors::golden;
use crate::actors::node::{Beginning, DATA_DIR, Node};
use crate::actors::operator::{Operator, Order};
use crate::actors::router::RouterHost;
use crate::actors::store::Store;
use crate::actors::worker::{Common, WorkerHost};
use crate::history::{History, Recorder, What};
use crate::world::disk::Trouble;
use crate::world::{Copied, Disk, Host, Ms, Net, Rate, TrueTime};
use ends::Later;
use fastrand::Rng;
use ringfence::admin::PolicyChange;
use ringfence::ids::NodeId;
use ringfence_server::raft::RaftStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How often a supervisor looks.
const SUPERVISED_MS: u64 = 20;

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

impl Stage {
    pub(super) fn open(plan: &Plan) -> anyhow::Result<Stage> {
        let mut random = Rng::with_seed(plan.seed ^ 0x5eed);
        let (time, recorder) = (TrueTime::default(), Recorder::new());
        let common = Common {
            net: Net::new(random.fork()),
            time: time.clone(),
            store: Store::new(random.fork(), &time, &recorder, plan.fenced)
                .among_logs_that_forget(plan.kind == Kind::Forgetful),
            recorder,
            operations: Arc::new(AtomicU64::new(0)),
            nodes: plan.nodes.clone(),
            keyspaces: Plan::keyspaces().map(str::to_owned).to_vec(),
            pace: plan.kind.pace(),
            keys: plan.kind.keys(),
            tick: plan.tick,
            zones: (0..plan.workers.len()).filter_map(|w| Some((name(w), plan.zone(w)?))).collect(),
        };
        let rate =
            |host| plan.rates.iter().find(|(of, _)| *of == host).map_or(Rate::default(), |(_, rate)| *rate);
        let mut nodes = BTreeMap::new();
        for host in &plan.nodes {
            let disk = Disk::new(random.fork());
            nodes.insert(*host, Node::new(*host, disk, rate(*host), plan.compaction));
        }
        let mut workers = BTreeMap::new();
        for (host, number) in plan.workers.iter().zip(0..) {
            let worker = WorkerHost::new(&name(number), *host, rate(*host), &common)?;
            workers.insert(*host, worker);
        }
        let router = RouterHost::start(ROUTER, &common, plan.partitions * plan.kind.grows(), random.u64(..))?;
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
        // Of logs that may forget, what they acknowledged is not demanded.
        if plan.kind != Kind::Forgetful {
            stage.operator.keep_ledger(OPERATOR, &stage.common)?;
        }
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

    /// Who leads the latest term.
    fn leader(&mut self) -> Option<Host> {
        let leads = |node: &mut Node| node.status().filter(RaftStatus::leads).map(|s| (s.term, node.host));
        self.nodes.values_mut().filter_map(leads).max().map(|(_, host)| host)
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

    fn disk(&self, host: Host, change: impl FnOnce(&mut Trouble)) {
        if let Some(node) = self.nodes.get(&host) {
            node.disk.trouble(change);
        }
    }

    fn create(&self, keyspace: usize) {
        let policy = PolicyChange {
            ttl: Some(self.plan.ttl),
            takeover: Some(self.plan.takeovers()[keyspace]),
            drain_deadline: self.plan.drain_deadline,
            lock_delay: Some(self.plan.lock_delay),
            max_moves_in_flight: self.plan.max_moves_in_flight,
            rejoin_hold: Some(self.plan.rejoin_hold).filter(|hold| !hold.is_zero()),
            ..PolicyChange::default()
        };
        let name = Plan::keyspaces()[keyspace].to_owned();
        self.operator.order(Order::Create(name, self.plan.partitions, policy));
    }

    pub(super) fn close_down(mut self) -> (History, Figures, Vec<String>) {
        // What workers have told since the last look has its grants.
        self.look();
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

/// The name of a worker, by its number.
fn name(worker: usize) -> String {
    format!("w{}", worker + 1)
}

/// A node's id is the number of its host.
fn id(host: Host) -> anyhow::Result<NodeId> {
    Ok(NodeId::new(u64::from(host.0))?)
}
