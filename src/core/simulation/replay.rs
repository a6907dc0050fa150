//! The world around the leader: entries apply at once, workers that are up renew in time, and what they take time for
//! waits on a list. Time goes from one moment in which something is due to the next.

use super::event::{Event, MIN_STEP, Setup};
use super::ledger::{Ledger, Service};
use super::report::{MAX_SAMPLES, Report, Sample, Totals};
use crate::ids::{Epoch, KeyspaceId, LogIndex, PartitionId, PartitionKey, SessionId, Term, WorkerId};
use crate::lead::{GRACE, Leadership, operators_move, release};
use crate::placement::{Candidate, Evenness, PlanError, SmoothedLoad, Weight};
use crate::state::{
    BalanceBy, Command, Entry, Event as Change, Join, Outcome, Partition, PartitionChange, Phase, Refused,
    Released, Session, State,
};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A trace without an end is replayed until nothing is left to do, for this long after its last event at most.
pub const REST_WITHIN: Duration = Duration::from_secs(86_400);

/// What a leader leaves for its next look, it looks at again after this long.
const TICK: Duration = Duration::from_millis(20);
/// A load that was told so often in a row is known, and is told no more before something changes: as workers do it.
const KNOWN_AFTER: u32 = 40;
/// Looks at one moment. One does as much as there is room for, and each further one finds less.
const MAX_LOOKS: usize = 10_000;

/// Why a replay cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// The interval of samples is zero.
    #[error("the interval of samples is zero: it is 1 ms or more")]
    NoInterval,
    /// The interval is too short for so long a trace.
    #[error("the report would have more than {MAX_SAMPLES} samples: take an interval above {}ms", .every.as_millis())]
    TooManySamples {
        /// The interval.
        every: Duration,
    },
    /// The coordinator would refuse it.
    #[error("a coordinator would refuse this: {0}")]
    Refused(#[from] Refused),
    /// The keyspace cannot be planned.
    #[error("the keyspace cannot be planned: {0}")]
    Plan(#[from] PlanError),
}

/// Something that a worker will have done.
#[derive(Clone, Debug)]
enum Task {
    Ready(PartitionId, Epoch, SessionId),
    Release(PartitionId, Epoch, SessionId),
    Leave(SessionId),
}

/// One replay.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    every: Duration,
    state: State,
    leader: Leadership,
    keyspace: KeyspaceId,
    now: Instant,
    last_event: Instant,
    ends: Option<Instant>,
    /// What workers will have done, by time and then in the order in which it began.
    tasks: BTreeMap<(Instant, u64), Task>,
    begun: u64,
    /// Moments at which the leader has to look, because time alone changes something.
    alarms: BTreeSet<Instant>,
    /// Something has happened at which it has not looked.
    look: bool,
    renewed: Instant,
    /// Workers that are dead, while their sessions live on.
    failed: BTreeSet<SessionId>,
    leaving: BTreeSet<SessionId>,
    smoothed: BTreeMap<PartitionId, SmoothedLoad>,
    /// Where owners measure: when they do so next, and how often until what they measure is known.
    measures: Option<(Instant, u32)>,
    measured: BTreeMap<PartitionId, u64>,
    ledger: Ledger,
    /// How even it is, unless something has changed since.
    even: Option<Even>,
    next_sample: Instant,
    samples: Vec<Sample>,
}

/// How even it is.
#[derive(Clone, Debug)]
struct Even {
    workers: Vec<Candidate>,
    evenness: Evenness,
    zone_violations: u64,
}

impl Even {
    fn in_balance(&self) -> bool {
        self.evenness.balance.spread <= self.evenness.tolerance && self.zone_violations == 0
    }
}

impl Simulation {
    /// A keyspace without workers, at time zero.
    ///
    /// # Errors
    /// [`SimulationError::NoInterval`].
    pub fn new(setup: Setup, every: Duration) -> Result<Simulation, SimulationError> {
        if every.is_zero() {
            return Err(SimulationError::NoInterval);
        }
        let (now, mut state) = (Instant::from_nanos(0), State::new());
        let command = Command::CreateKeyspace {
            keyspace: setup.keyspace.clone(),
            partitions: setup.partitions,
            policy: setup.policy.clone(),
        };
        let entry = Entry { request: None, proposed_unix_ms: 0, commands: vec![command] };
        let created = state.apply(LogIndex::new(1), &entry).outcome.map_err(|refusal| refusal.why)?;
        let keyspace = match created.first() {
            Some(Outcome::Created(id)) => *id,
            other => unreachable!("a keyspace that is created has a number: {other:?}"),
        };
        Ok(Simulation {
            leader: Leadership::new(Term::new(1), now, &state, setup.pacing),
            ledger: Ledger::new(setup.partitions.get()),
            setup,
            every,
            state,
            keyspace,
            now,
            last_event: now,
            ends: None,
            tasks: BTreeMap::new(),
            begun: 0,
            alarms: BTreeSet::new(),
            look: true,
            renewed: now,
            failed: BTreeSet::new(),
            leaving: BTreeSet::new(),
            smoothed: BTreeMap::new(),
            measures: None,
            measured: BTreeMap::new(),
            even: None,
            next_sample: now,
            samples: Vec::new(),
        })
    }

    /// Lets time pass until then, and has the event happen. Events come in the order of time; one that is late happens
    /// now. Those of one moment are there before the leader looks.
    ///
    /// # Errors
    /// [`SimulationError`]; the replay is no good after it.
    pub fn happen(&mut self, at_ms: u64, event: Event) -> Result<(), SimulationError> {
        let at = Instant::from_nanos(at_ms.saturating_mul(1_000_000)).max(self.now);
        self.advance(at, false)?;
        (self.last_event, self.look, self.even) = (at, true, None);
        match event {
            Event::Join { worker, weight, labels } => self.join(&worker, weight, labels)?,
            Event::Leave(worker) => self.leave(&worker)?,
            Event::Fail(worker) => self.fail(&worker),
            Event::Worker(worker, change) => {
                self.apply(vec![Command::SetWorker { worker, change }])?;
            }
            Event::Partition(partition, change) => {
                let partition = self.key(partition);
                self.apply(vec![Command::SetPartition { partition, change }])?;
            }
            Event::Freeze(frozen) => {
                self.apply(vec![Command::Freeze { keyspace: Some(self.keyspace), frozen }])?;
            }
            Event::Move(partition, to) => self.move_by_operator(partition, &to)?,
            Event::Load(loads) => self.measure(loads)?,
            Event::End => self.ends = Some(at),
        }
        Ok(())
    }

    /// Lets time pass until the end.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn finish(mut self) -> Result<Report, SimulationError> {
        match self.ends {
            // What is due at the end is done. No moment is shorter than a nanosecond.
            Some(end) => self.advance(end + Duration::from_nanos(1), false)?,
            None => self.advance(self.last_event + REST_WITHIN, true)?,
        }
        let end = self.ends.unwrap_or(self.now);
        if self.samples.last().is_none_or(|last| last.at_ms < millis(end)) {
            self.sample()?;
        }
        let ledger = &self.ledger;
        let totals = Totals {
            end_ms: millis(end),
            at_rest: self.next_moment().is_none() && ledger.in_flight() == 0,
            moves: ledger.moves.clone(),
            moves_refused: ledger.refused,
            max_in_flight: ledger.max_in_flight,
            out_of_balance_ms: ledger.out_of_balance_ms(),
            ownerless_partition_ms: ledger.ownerless_partition_ms(),
            loading_partition_ms: ledger.loading_partition_ms(),
            max_moves_of_a_partition: ledger.max_moves_of_a_partition(),
        };
        Ok(Report { samples: self.samples, totals })
    }

    /// Does everything that is due before `to`, and samples on the way. With `rest` it stops where nothing is due.
    fn advance(&mut self, to: Instant, rest: bool) -> Result<(), SimulationError> {
        loop {
            let moment = self.next_moment();
            let next = moment.unwrap_or(self.next_sample).min(self.next_sample);
            if (rest && moment.is_none()) || next >= to {
                break;
            }
            self.pass(next)?;
            if moment == Some(next) {
                self.step();
            } else {
                self.sample()?;
                self.next_sample = next + self.every;
            }
        }
        if !rest {
            self.pass(to)?;
        }
        Ok(())
    }

    /// When something is due next, now at the earliest.
    fn next_moment(&self) -> Option<Instant> {
        if self.look {
            return Some(self.now);
        }
        let task = self.tasks.keys().next().map(|(at, _)| *at);
        let alarm = self.alarms.first().copied();
        let timer = self.leader.timers.next_due(&self.state);
        // What it has left although it was due waits for something that does not show here, such as the brake.
        let placing = self.leader.placing.next_look();
        let soon = |at: Instant| if at > self.now { at } else { self.now + TICK };
        let measures = self.measures.map(|(at, _)| at);
        [task, alarm, measures, timer.map(soon), placing.map(soon)].into_iter().flatten().min()
    }

    fn pass(&mut self, to: Instant) -> Result<(), SimulationError> {
        if to > self.now {
            let in_balance = self.even()?.in_balance();
            self.ledger.pass(to.since(self.now), in_balance);
            self.now = to;
        }
        Ok(())
    }

    /// Everything that is due now.
    fn step(&mut self) {
        self.look = false;
        let later = self.alarms.split_off(&(self.now + Duration::from_nanos(1)));
        if !std::mem::replace(&mut self.alarms, later).is_empty() {
            // Who is silent for long enough takes no more.
            self.even = None;
        }
        let later = self.tasks.split_off(&(self.now, u64::MAX));
        for task in std::mem::replace(&mut self.tasks, later).into_values() {
            self.carry_out(&task);
        }
        self.renew();
        self.tell_loads();
        for _ in 0..MAX_LOOKS {
            let entries = self.leader.due(self.now, &self.state);
            if entries.is_empty() {
                return;
            }
            for entry in entries {
                // What a leader proposes from the state it has applied is not refused; if it were, it would come again.
                let applied = self.apply(entry);
                debug_assert!(applied.is_ok(), "{applied:?}");
            }
        }
    }

    /// A worker renews each sixth of its TTL. Nobody looks between two moments, so it is enough that it has done so
    /// before the leader does.
    fn renew(&mut self) {
        if self.now.since(self.renewed) < self.setup.policy.ttl() / 6 {
            return;
        }
        self.renewed = self.now;
        let sessions: Vec<SessionId> = self.state.sessions().map(Session::id).collect();
        for session in sessions {
            if !self.failed.contains(&session) {
                self.renew_one(session);
            }
        }
    }

    fn renew_one(&mut self, session: SessionId) {
        self.leader.lessor.arrived(session);
        self.leader.lessor.answer(session, self.now);
    }

    fn carry_out(&mut self, task: &Task) {
        let at = |partition: &PartitionId, epoch: &Epoch, session: &SessionId| {
            let key = PartitionKey { keyspace: self.keyspace, partition: *partition };
            let current = self.state.partition(key).filter(|p| p.epoch() == Some(*epoch))?;
            (current.owner() == Some(*session) && !self.failed.contains(session)).then_some(key)
        };
        let commands = match task {
            Task::Ready(partition, epoch, session) => at(partition, epoch, session)
                .map(|partition| vec![Command::Ready { partition, epoch: *epoch, session: *session }]),
            Task::Release(partition, epoch, session) => {
                at(partition, epoch, session).map(|key| self.released(key, *epoch, *session))
            }
            Task::Leave(session) => self.state.session(*session).map(|live| {
                let held =
                    live.holds().iter().filter_map(|key| Some((*key, self.state.partition(*key)?.epoch()?)));
                let mut commands: Vec<Command> =
                    held.flat_map(|(key, epoch)| self.released(key, epoch, *session)).collect();
                commands.push(Command::Leave { session: *session });
                commands
            }),
        };
        if let Some(commands) = commands {
            let applied = self.apply(commands);
            debug_assert!(applied.is_ok(), "{task:?}: {applied:?}");
        }
    }

    /// A partition is given back, and with it goes the grant that completes a planned move.
    fn released(&self, key: PartitionKey, epoch: Epoch, session: SessionId) -> Vec<Command> {
        let absent = self.leader.presence.absent(self.now);
        let (released, grant) = release(&self.state, key, epoch, session, Released::Revoked, &absent);
        std::iter::once(released).chain(grant).collect()
    }

    fn join(
        &mut self,
        worker: &WorkerId,
        weight: Weight,
        labels: BTreeMap<String, String>,
    ) -> Result<(), SimulationError> {
        // One that is on its way out has left before it comes back.
        let earlier = self.state.session_of(worker).map(Session::id);
        if let Some(earlier) = earlier.filter(|earlier| self.leaving.contains(earlier)) {
            self.carry_out(&Task::Leave(earlier));
        }
        let join = Join {
            worker: worker.clone(),
            nonce: self.state.applied().get().into(),
            secret_hash: [0; 32],
            address: String::new(),
            weight,
            labels,
            keyspaces: BTreeSet::from([self.keyspace]),
            replaces: self.state.session_of(worker).map(Session::id),
            splits: false,
            ends_drain: None,
            ttl: None,
        };
        self.apply(vec![Command::Join(Box::new(join))])?;
        if let Some(session) = self.state.session_of(worker).map(Session::id) {
            self.leader.presence.connected(session);
        }
        Ok(())
    }

    fn leave(&mut self, worker: &WorkerId) -> Result<(), SimulationError> {
        if let Some(session) = self.state.session_of(worker).map(Session::id) {
            self.apply(vec![Command::Withdraw { session }])?;
            self.leaving.insert(session);
            self.begin(self.setup.release, Task::Leave(session));
        }
        Ok(())
    }

    /// Its last renewal was a moment ago, so its lease runs for a whole TTL.
    fn fail(&mut self, worker: &WorkerId) {
        let Some(session) = self.state.session_of(worker) else { return };
        let (session, ttl, held) = (session.id(), session.ttl(), session.holds().clone());
        self.renew_one(session);
        self.leader.presence.disconnected(session, self.now);
        self.failed.insert(session);
        for key in held {
            // A move whose target dies before it is ready has come to nothing. The leader sees no more than that it takes long.
            let loading =
                |partition: &Partition| matches!(partition.phase(), Phase::Owned { ready: false, .. });
            if self.state.partition(key).is_some_and(loading) {
                self.ledger.ended(key.partition);
            }
            self.ledger.serve(key.partition, Service::Ownerless);
        }
        // It is suspected after each third, and its lease ends; where fences take over, it is not waited for so long, but
        // not in the first third of a leader either.
        let third = ttl / 3;
        let waits = [GRACE, third, third * 2, ttl];
        self.alarms.extend(waits.map(|wait| self.now + wait));
        self.alarms.insert((Instant::from_nanos(0) + third).max(self.now));
    }

    fn move_by_operator(&mut self, partition: PartitionId, to: &WorkerId) -> Result<(), SimulationError> {
        let key = self.key(partition);
        let absent = self.leader.presence.absent(self.now);
        match operators_move(&self.state, &absent, key, to) {
            Ok(step) => self.apply(step.into_iter().collect()),
            Err(_) => {
                self.ledger.refused += 1;
                Ok(())
            }
        }
    }

    fn by_load(&self) -> bool {
        self.setup.policy.balance_by() == BalanceBy::Load
    }

    /// Something about loads may have changed: owners measure, and go on until what they measure is known.
    fn measure_anew(&mut self) {
        let every = self.setup.pacing.measure_every;
        let next = self.measures.map_or(self.now + every, |(at, _)| at);
        self.measures = Some((next, KNOWN_AFTER));
    }

    /// Each owner that is ready tells what it measures: what the trace said last, and nothing is no load.
    fn tell_loads(&mut self) {
        let Some((at, left)) = self.measures.filter(|(at, _)| *at <= self.now) else { return };
        self.measures = (left > 1).then(|| (at + self.setup.pacing.measure_every, left - 1));
        let Some(keyspace) = self.state.keyspace(self.keyspace) else { return };
        let mut told = Vec::new();
        for (key, partition) in keyspace.keys().zip(keyspace.partitions()) {
            if let (true, Some(owner)) = (partition.ready(), partition.owner())
                && !self.failed.contains(&owner)
            {
                told.push((owner, key, self.measured.get(&key.partition).copied().unwrap_or(0)));
            }
        }
        for (owner, key, units) in told {
            self.leader.measure(self.now, &self.state, owner, key, units);
        }
        self.even = None;
    }

    /// In a keyspace that balances by load, owners measure it and the leader smooths it. In any other the loads are weights:
    /// only a smoothed load that has changed is set.
    fn measure(&mut self, loads: Vec<(PartitionId, u64)>) -> Result<(), SimulationError> {
        if self.by_load() {
            self.measured.extend(loads);
            self.measure_anew();
            return Ok(());
        }
        let mut changed = Vec::new();
        for (partition, measured) in loads {
            self.measured.insert(partition, measured);
            let before = self.smoothed.get(&partition).copied();
            let after = before.map_or_else(|| SmoothedLoad::new(measured), |load| load.with(measured));
            self.smoothed.insert(partition, after);
            if before.map(SmoothedLoad::load) != Some(after.load()) {
                let change = PartitionChange { weight: Some(Some(after.load())), ..Default::default() };
                changed.push(Command::SetPartition { partition: self.key(partition), change });
            }
        }
        if !changed.is_empty() {
            self.apply(changed)?;
        }
        Ok(())
    }

    fn key(&self, partition: PartitionId) -> PartitionKey {
        PartitionKey { keyspace: self.keyspace, partition }
    }

    fn begin(&mut self, takes: Duration, task: Task) {
        self.begun += 1;
        self.tasks.insert((self.now + takes.max(MIN_STEP), self.begun), task);
    }

    fn apply(&mut self, commands: Vec<Command>) -> Result<(), SimulationError> {
        self.even = None;
        let index = LogIndex::new(self.state.applied().get() + 1);
        let entry = Entry { request: None, proposed_unix_ms: 0, commands };
        let applied = self.state.apply(index, &entry);
        let outcomes = applied.outcome.map_err(|refusal| refusal.why)?;
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            match (command, outcome) {
                (Command::Grant { partition, to, why, .. }, Outcome::Granted(_)) => {
                    if let Some(session) = self.state.session(*to) {
                        self.ledger.granted(partition.partition, session.worker(), *why);
                    }
                }
                (Command::Drain { partition, to, why, .. }, Outcome::Draining(_)) => {
                    self.ledger.planned(partition.partition, to, *why);
                }
                _ => {}
            }
        }
        self.leader.observe(&applied.events, self.now, &self.state);
        let mut changed = BTreeSet::new();
        for event in &applied.events {
            match event {
                Change::Partition { key, .. } => {
                    changed.insert(*key);
                }
                Change::Ended { session, .. } => {
                    self.failed.remove(session);
                    self.leaving.remove(session);
                }
                _ => {}
            }
        }
        changed.into_iter().for_each(|key| self.changed(key));
        Ok(())
    }

    /// What an owner does about a partition that has changed, and what that is good for meanwhile.
    fn changed(&mut self, key: PartitionKey) {
        let Some(partition) = self.state.partition(key) else { return };
        let number = key.partition;
        let (owner, draining, ready) = match (partition.phase(), partition.epoch()) {
            (Phase::Owned { session, ready }, Some(epoch)) => (Some((*session, epoch)), false, *ready),
            (Phase::Draining(drain), Some(epoch)) => (Some((drain.session, epoch)), true, true),
            _ => (None, false, false),
        };
        if owner.is_none() {
            self.ledger.ended(number);
        }
        let Some((session, epoch)) = owner.filter(|(session, _)| !self.failed.contains(session)) else {
            return self.ledger.serve(number, Service::Ownerless);
        };
        if draining {
            self.begin(self.setup.release, Task::Release(number, epoch, session));
        } else if ready {
            self.ledger.ended(number);
            if self.by_load() {
                self.measure_anew();
            }
        } else {
            self.begin(self.setup.load, Task::Ready(number, epoch, session));
        }
        self.ledger.serve(number, if ready { Service::Served } else { Service::Loading });
    }

    fn even(&mut self) -> Result<&Even, SimulationError> {
        let even = match self.even.take() {
            Some(even) => even,
            None => {
                let even = self.leader.evenness(self.now, &self.state, self.keyspace);
                let Some(even) = even else { unreachable!("no trace deletes the keyspace") };
                let (workers, evenness) = even?;
                let slack = if self.measured.is_empty() && !self.by_load() { 0 } else { evenness.tolerance };
                let zone_violations = zone_violations(&workers, &evenness.balance.loads, slack);
                Even { workers, evenness, zone_violations }
            }
        };
        Ok(self.even.insert(even))
    }

    fn sample(&mut self) -> Result<(), SimulationError> {
        if self.samples.len() >= MAX_SAMPLES {
            return Err(SimulationError::TooManySamples { every: self.every });
        }
        let even = self.even()?.clone();
        let sample = Sample {
            at_ms: millis(self.now),
            workers: self.state.sessions().count() - self.failed.len(),
            ownerless: self.ledger.ownerless,
            loading: self.ledger.loading,
            spread: even.evenness.balance.spread,
            zone_spread: even.evenness.balance.zone_spread,
            zone_violations: even.zone_violations,
            imbalance_permille: self.imbalance_permille(&even.workers),
            in_flight: self.ledger.in_flight(),
            moves: std::mem::take(&mut self.ledger.since_sample),
        };
        self.samples.push(sample);
        Ok(())
    }

    /// By what was measured, not by what the leader was told of it.
    fn imbalance_permille(&self, workers: &[Candidate]) -> Option<u64> {
        let held = |worker: &Candidate| {
            let holds = self.state.session_of(&worker.worker).map(Session::holds);
            let loads = holds.into_iter().flatten().map(|key| match self.measured.get(&key.partition) {
                _ if self.measured.is_empty() => 1,
                measured => measured.copied().unwrap_or(0).into(),
            });
            loads.sum::<u128>()
        };
        let takers = workers.iter().filter(|worker| worker.standing.takes());
        let (held, weights): (Vec<u128>, Vec<u128>) =
            takers.map(|worker| (held(worker), u128::from(worker.weight.get()))).unzip();
        let (all, weight): (u128, u128) = (held.iter().sum(), weights.iter().sum());
        let parts = held.iter().zip(&weights).map(|(held, of)| (held * weight * 1_000).checked_div(all * of));
        parts.max().flatten().map(|permille| u64::try_from(permille).unwrap_or(u64::MAX))
    }
}

/// Zones that hold more than their share, rounded up, of what the workers that take partitions hold.
fn zone_violations(workers: &[Candidate], loads: &[u64], slack: u64) -> u64 {
    let mut zones: BTreeMap<u32, (u128, u128)> = BTreeMap::new();
    let (mut all, mut weights) = (0_u128, 0_u128);
    for (worker, load) in workers.iter().zip(loads).filter(|(worker, _)| worker.standing.takes()) {
        let (load, weight) = (u128::from(*load), u128::from(worker.weight.get()));
        (all, weights) = (all + load, weights + weight);
        if let Some(zone) = worker.zone {
            let sums = zones.entry(zone.get()).or_default();
            *sums = (sums.0 + load, sums.1 + weight);
        }
    }
    let above = |(load, weight): &&(u128, u128)| *load > (all * weight).div_ceil(weights) + u128::from(slack);
    zones.values().filter(above).count() as u64
}

fn millis(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}
