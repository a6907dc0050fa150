//! Everything that runs, and one round of it: faults, then calm, then the judge.

use super::clock::now_us;
use super::fleet::{Fleet, Plan};
use super::mend::Broken;
use super::network::Network;
use super::nodes::Nodes;
use super::operator::Operator;
use super::report::{Figures, Report};
use super::store::{self, KEYS, Store};
use super::tools::Tools;
use super::{Options, Progress};
use crate::checker::{self, Rules};
use crate::history::{Call, Event, History, OpId, Outcome, Recorder, What};
use crate::ledger::LEDGER;
use anyhow::{Context as _, bail};
use fastrand::Rng;
use ringfence::ErrorKind;
use ringfence::admin::{Admin, Partition, PolicyChange, Takeover};
use ringfence::ids::{KeyspaceName, NodeId, PartitionId, Scope, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// What the workers own, all of them in both.
pub(super) const KEYSPACES: [Keyspace; 2] = [
    Keyspace { name: "orders", partitions: 12, by_fence: false },
    // G3 is given up here, and nothing else.
    Keyspace { name: "carts", partitions: 8, by_fence: true },
];
pub(super) const WORKERS: [&str; 4] = ["w1", "w2", "w3", "w4"];
/// Short, so that much changes hands; not so short that a busy machine alone ends leases all the time.
pub(super) const TTL: Duration = Duration::from_secs(2);
/// A state that the run waits for is reached sooner, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a partition may be without an owner after the last fault: far above what is promised, since the processes share
/// the machine with others.
const PROGRESS: Duration = Duration::from_secs(30);
/// How long an owner that was replaced may go on after the last fault: until its lease is over, and as long again for the
/// machine's sake.
const ENDS: Duration = Duration::from_secs(4);
/// Nothing changed for so long: all is steady. And how long it is to stay so.
const SETTLED: Duration = Duration::from_millis(2_500);
const QUIET: Duration = Duration::from_millis(1_500);
/// Faults at once.
const AT_ONCE: usize = 2;
const TICK: Duration = Duration::from_millis(50);
/// Operations that the run itself makes are numbered from here: workers' numbers are below.
const OWN_OPS: OpId = 1 << 63;

/// A keyspace that is served.
pub(super) struct Keyspace {
    pub(super) name: &'static str,
    pub(super) partitions: u32,
    /// `takeover = fence`; otherwise `lease`.
    pub(super) by_fence: bool,
}

impl Keyspace {
    fn policy(&self) -> PolicyChange {
        let takeover = if self.by_fence { Takeover::Fence } else { Takeover::Lease };
        PolicyChange { ttl: Some(TTL), takeover: Some(takeover), ..PolicyChange::default() }
    }
}

/// Every partition that is served.
pub(super) fn scopes() -> impl Iterator<Item = (&'static Keyspace, PartitionId)> {
    KEYSPACES.iter().flat_map(|keyspace| {
        (0..keyspace.partitions).map(move |partition| (keyspace, PartitionId::new(partition)))
    })
}

/// Everything that runs.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) tools: Tools,
    pub(super) network: Network,
    pub(super) nodes: Nodes,
    pub(super) fleet: Fleet,
    pub(super) runtime: Handle,
    pub(super) broken: Vec<Broken>,
    pub(super) report: Report,
    /// Gives up soon: a fault is not waited for.
    pub(super) hasty: Admin,
    pub(super) dir: PathBuf,
    operator: Option<Operator>,
    recorder: Recorder,
    /// The last row of each partition's journal that was judged.
    judged: BTreeMap<Scope, i64>,
    /// By how much a tick of the run was late at the most, since it began to wait for calm.
    late: Duration,
    stop: Arc<AtomicBool>,
    progress: Progress,
    keep: bool,
    next_op: OpId,
}

impl World {
    /// Starts the nodes and makes the keyspaces.
    pub(super) fn start(
        options: &Options,
        dir: &Path,
        runtime: &Handle,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<World> {
        let tools = Tools::find(dir)?;
        let (network, recorder) = (Network::new(), Recorder::new());
        let mut nodes = Nodes::start(&options.ringfence, dir, &tools, &network, runtime)?;
        let _inside = runtime.enter();
        let admin = Admin::at(nodes.endpoints.as_str())?;
        nodes.led(&admin, runtime)?;
        for keyspace in &KEYSPACES {
            create(&admin, runtime, keyspace.name, keyspace.partitions, &keyspace.policy())?;
        }
        create(&admin, runtime, LEDGER, 1, &PolicyChange::default())?;
        let plan =
            Plan { endpoints: nodes.endpoints.clone(), dir: dir.to_owned(), ttl: TTL, fence: options.fence };
        let report = Report {
            seed: options.seed,
            fence: options.fence,
            skipped: tools.skipped.clone(),
            keyspaces: KEYSPACES
                .iter()
                .map(|one| (one.name.to_owned(), Figures { by_fence: one.by_fence, ..Figures::default() }))
                .collect(),
            ..Report::default()
        };
        Ok(World {
            rng: Rng::with_seed(options.seed),
            fleet: Fleet::new(plan, recorder.clone()),
            operator: Some(Operator::new(admin.clone(), recorder.clone())),
            hasty: admin.within(Duration::from_secs(2)),
            runtime: runtime.clone(),
            broken: Vec::new(),
            judged: BTreeMap::new(),
            late: Duration::ZERO,
            dir: dir.to_owned(),
            progress: Progress::new(options.quiet),
            keep: options.keep,
            next_op: OWN_OPS,
            tools,
            network,
            nodes,
            report,
            recorder,
            stop,
        })
    }

    pub(super) fn record(&self, what: What) {
        self.recorder.record(now_us(), "run", what);
    }

    /// Who leads, if that can be told now.
    pub(super) fn leader(&self) -> Option<u64> {
        let status = self.runtime.block_on(self.hasty.cluster_status()).ok()?;
        status.leader.map(NodeId::get)
    }

    /// One worker leaves in good order.
    pub(super) fn leave(&mut self, name: &str) -> anyhow::Result<()> {
        if !self.fleet.leave(name)? {
            self.record(What::Note { text: format!("{name} did not leave, and was killed") });
        }
        Ok(())
    }

    /// Runs one round of faults of this length, and judges it.
    pub(super) fn round(&mut self, length: Duration) -> anyhow::Result<()> {
        self.open()?;
        let mut operator = self.operator.take().context("the operator is at work elsewhere")?;
        let (told, mut asked) = tokio::sync::oneshot::channel::<()>();
        self.patiently(|runtime| runtime.block_on(operator.open()))?;
        let working = self.runtime.spawn(async move {
            tokio::select! {
                () = operator.work() => {}
                _ = &mut asked => {}
            }
            operator
        });
        for name in WORKERS {
            self.start_worker(name)?;
        }
        self.until_ready("every partition has an owner that is ready")?;

        let end = Instant::now() + length;
        let mut next = Instant::now();
        while Instant::now() < end {
            self.tick()?;
            self.mend(false)?;
            if Instant::now() >= next && self.broken.len() < AT_ONCE && self.break_something()? {
                next = Instant::now() + Duration::from_millis(self.rng.u64(50..900));
            }
        }
        self.mend(true)?;
        self.record(What::Healed);
        let _ = told.send(());
        let mut operator = self.runtime.block_on(working)?;
        // Grants are noted when they are seen: none of before is to be seen when all is calm.
        self.patiently(|runtime| runtime.block_on(operator.look_at_grants()))?;
        self.operator = Some(operator);
        self.until_calm()?;
        self.record(What::End);
        let stuck = self.fleet.leave_all()?;
        anyhow::ensure!(stuck.is_empty(), "with nothing broken, these workers did not leave: {stuck:?}");
        self.judge()
    }

    /// Asks the coordinator again until it answers. One that does not for so long has no leader although nothing is broken.
    fn patiently<T>(
        &mut self,
        mut ask: impl FnMut(&Handle) -> Result<T, ringfence::Error>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask(&self.runtime) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_retryable() && Instant::now() < deadline => self.tick()?,
                Err(error) => {
                    return Err(error).context(format!(
                        "nothing is broken, and the coordinator did not answer for {PATIENCE:?}"
                    ));
                }
            }
        }
    }

    /// A moment passes. What ended by itself, where nothing is broken, is a failure of the run.
    fn tick(&mut self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::SeqCst) {
            bail!("interrupted");
        }
        let slept = Instant::now();
        std::thread::sleep(TICK);
        self.late = self.late.max(slept.elapsed().saturating_sub(TICK));
        self.progress.show(&self.report, self.recorder.len());
        for (node, words) in self.nodes.fallen() {
            anyhow::ensure!(!self.is_free(node), "node {node} has ended by itself; {words}");
        }
        let broken: Vec<&String> = self.broken.iter().flat_map(|broken| &broken.targets).collect();
        for (name, life) in &mut self.fleet.alive {
            if broken.contains(&name) {
                continue;
            }
            if let Some(status) = life.process.has_ended() {
                bail!("{name} has ended by itself ({status}); {}", life.process.last_words());
            }
            // It was told to stop itself, and did so after it had been told to go on.
            if life.process.is_stopped() {
                life.process.resume()?;
            }
        }
        Ok(())
    }

    fn partitions(&self) -> Option<Vec<Partition>> {
        let of = |keyspace: &Keyspace| self.runtime.block_on(self.hasty.partitions(keyspace.name)).ok();
        let all: Option<Vec<Vec<Partition>>> = KEYSPACES.iter().map(of).collect();
        all.map(|all| all.concat())
    }

    fn until_ready(&mut self, what: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.partitions().is_some_and(|all| all.iter().all(|partition| partition.ready)) {
            self.tick()?;
            anyhow::ensure!(Instant::now() < deadline, "not reached within {PATIENCE:?}: {what}");
        }
        Ok(())
    }

    /// Waits until every worker has a session and nothing moves any more, and then for a while in which nothing is to move.
    /// On a machine that is too busy for the TTL leases run out by themselves, and then calm is not owed: it is waited for
    /// again. Whether the machine was that busy is measured: the run's own ticks come late then.
    fn until_calm(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        self.late = Duration::ZERO;
        while Instant::now() < deadline {
            let (mut since, mut before) = (Instant::now(), None);
            while since.elapsed() < SETTLED {
                self.tick()?;
                anyhow::ensure!(Instant::now() < deadline + PATIENCE, "nothing settles after the last fault");
                let now = self.partitions().zip(self.sessions());
                let well = |(all, sessions): &(Vec<Partition>, BTreeSet<SessionId>)| {
                    sessions.len() == WORKERS.len() && all.iter().all(|one| one.ready && one.moving.is_none())
                };
                if now != before || !now.as_ref().is_some_and(well) {
                    (since, before) = (Instant::now(), now);
                }
            }
            let (steady, calm) = (now_us(), Instant::now());
            while calm.elapsed() < QUIET {
                self.tick()?;
            }
            if self.sessions() == before.map(|(_, sessions)| sessions) {
                self.recorder.record(steady, "run", What::Steady);
                return Ok(());
            }
        }
        self.record(What::NeverCalm { late_us: u64::try_from(self.late.as_micros())? });
        self.report.rounds_never_calm += 1;
        Ok(())
    }

    /// The sessions that workers have, if that can be told now.
    fn sessions(&self) -> Option<BTreeSet<SessionId>> {
        let workers = self.runtime.block_on(self.hasty.workers()).ok()?;
        Some(workers.into_iter().map(|worker| worker.session).collect())
    }

    fn scopes() -> anyhow::Result<Vec<Scope>> {
        let scope = |(keyspace, partition): (&Keyspace, PartitionId)| {
            Ok(Scope::Partition(KeyspaceName::new(keyspace.name)?, partition))
        };
        scopes().map(scope).collect()
    }

    /// The store of a partition as the judge opens it; `None` when nobody has written yet.
    fn store(&self, scope: &Scope) -> anyhow::Result<Option<Store>> {
        let path = store::path(self.fleet.stores(), scope);
        if !path.exists() { Ok(None) } else { Ok(Some(Store::open(&path, None)?)) }
    }

    /// Starts a new history with what earlier rounds have left.
    fn open(&mut self) -> anyhow::Result<()> {
        drop(self.recorder.take());
        for Keyspace { name, partitions, .. } in KEYSPACES {
            self.record(What::KeyspaceCreated { keyspace: name.parse()?, partitions });
        }
        for scope in World::scopes()? {
            let Some(store) = self.store(&scope)? else { continue };
            for number in 0..KEYS {
                let key = store::key(&scope, number);
                if let Some(value) = store.read(&key)? {
                    let call = Call::Write(value);
                    self.own_op(&key, call, Outcome::Ok(vec![]));
                }
            }
        }
        Ok(())
    }

    fn own_op(&mut self, key: &str, call: Call, outcome: Outcome) {
        let op = self.next_op;
        self.next_op += 1;
        self.record(What::Invoked { op, key: key.to_owned(), call, token: None });
        self.record(What::Returned { op, outcome });
    }

    /// Reads every key once more, puts what the stores took into the history, and judges all of it.
    fn judge(&mut self) -> anyhow::Result<()> {
        let mut taken: Vec<Event> = Vec::new();
        for scope in World::scopes()? {
            let store = self.store(&scope)?.with_context(|| format!("nobody ever wrote {scope}"))?;
            for number in 0..KEYS {
                let key = store::key(&scope, number);
                let found = store.read(&key)?.into_iter().collect();
                self.own_op(&key, Call::Read, Outcome::Ok(found));
            }
            let after = self.judged.get(&scope).copied().unwrap_or(0);
            if let Some(epoch) = store.highest_until(after)? {
                let by = store::actor(&scope);
                taken.push(Event { at: 0, by, what: What::Raised { scope: scope.clone(), epoch } });
            }
            let (events, last) = store.journal(&scope, after)?;
            taken.extend(events);
            self.judged.insert(scope, last);
        }
        let mut history = self.recorder.take();
        // The first thing that a round says is when it began.
        let start = history.events.first().map_or(0, |event| event.at);
        taken.iter_mut().for_each(|event| event.at = event.at.max(start));
        history.events.extend(taken);
        let verdict = checker::check(&history, &rules()?);
        self.report.rounds += 1;
        count(&mut self.report, &history, &verdict);
        if self.keep || (!verdict.held() && self.report.fence) {
            self.write(&history, &verdict.to_string())?;
            self.report.kept = Some(self.dir.display().to_string());
        }
        self.report.violations.extend(verdict.violations);
        Ok(())
    }

    fn write(&self, history: &History, verdict: &str) -> anyhow::Result<()> {
        let file = |what: &str| self.dir.join(format!("round-{}.{what}", self.report.rounds));
        history.write_jsonl(std::io::BufWriter::new(std::fs::File::create(file("jsonl"))?))?;
        std::fs::write(file("transcript"), history.to_string())?;
        Ok(std::fs::write(file("verdict"), verdict)?)
    }

    /// Writes down a round that did not get to its end.
    pub(super) fn give_up(&mut self, why: &anyhow::Error) -> anyhow::Result<()> {
        self.progress.clear();
        self.report.rounds += 1;
        self.write(&self.recorder.take(), &format!("it did not get to its end: {why:#}\n"))
    }

    /// Takes the report; whatever is left ends when the world is dropped.
    pub(super) fn report(&mut self) -> Report {
        self.progress.clear();
        std::mem::take(&mut self.report)
    }
}

/// What a round is held against.
///
/// # Errors
/// When a name is none.
pub fn rules() -> anyhow::Result<Rules> {
    let us = |span: Duration| u64::try_from(span.as_micros());
    let mut rules = Rules {
        progress_us: Some(us(PROGRESS)?),
        ends_us: us(ENDS)?,
        busy_us: us(TTL / 3)?,
        all_grants: false,
        ..Rules::default()
    };
    for keyspace in &KEYSPACES {
        rules.expected.insert(keyspace.name.parse()?, keyspace.partitions);
        if keyspace.by_fence {
            rules.fence_takeover.insert(keyspace.name.parse()?);
        }
    }
    Ok(rules)
}

/// Creates a keyspace, however often it has to be asked for.
fn create(
    admin: &Admin,
    runtime: &Handle,
    name: &str,
    partitions: u32,
    policy: &PolicyChange,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match runtime.block_on(admin.create_keyspace(name, partitions, policy)) {
            Ok(_) => return Ok(()),
            // By an earlier asking, of which nobody knew.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context(format!("creating the keyspace {name}"));
            }
            Err(_) => std::thread::sleep(TICK),
        }
    }
}

fn count(report: &mut Report, history: &History, verdict: &checker::Verdict) {
    let mut calls: BTreeMap<OpId, (bool, &Scope)> = BTreeMap::new();
    report.events += history.events.len() as u64;
    for event in &history.events {
        match &event.what {
            What::Began { scope, .. } => {
                report.tenures += 1;
                report.of(scope, |figures| figures.tenures += 1);
            }
            What::RefusedStale { scope, .. } => {
                report.stale_writes_refused += 1;
                report.of(scope, |figures| figures.stale_writes_refused += 1);
            }
            What::Invoked { op, call, token: Some((scope, _)), .. } => {
                calls.insert(*op, (*call != Call::Read, scope));
            }
            What::Returned { op, outcome } => match (calls.remove(op), outcome) {
                (Some((true, scope)), Outcome::Ok(_)) => {
                    report.writes_acknowledged += 1;
                    report.of(scope, |figures| figures.writes_acknowledged += 1);
                }
                (Some((true, _)), Outcome::Unknown) => report.writes_unknown += 1,
                (Some((false, _)), Outcome::Ok(_)) => report.reads += 1,
                _ => {}
            },
            _ => {}
        }
    }
    report.writes_unknown += calls.values().filter(|(write, _)| *write).count() as u64;
    report.stale_writes_accepted += verdict.count(checker::Rule::StaleAccepted) as u64;
}
