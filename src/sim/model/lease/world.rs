//! A small world of leases: how it begins, and how far it goes.
//!
//! One partition, or one lock, which worker `a` holds at the start under epoch 1. `b` is taken for granted unless the world says
//! otherwise: a worker whose renewals always arrive, so that whatever is taken from `a` has somewhere to go.

use super::action::Action;
use super::clock::{Clocks, Rate, TICK};
use super::leader::Leader;
use super::log::{Log, Proposal};
use super::properties;
use super::rules::Rule;
use super::scene::Scene;
use super::worker::Worker;
use crate::model::setting::{self, entry, name};
use ringfence_core::ids::{SessionId, Term};
use ringfence_core::lead::{Leadership, Settings};
use ringfence_core::lease::lessee::{Acknowledgement, Lessee, Timing};
use ringfence_core::state::{Command, State};
use ringfence_core::time::Instant;
use stateright::{Model, Property};
use std::sync::Arc;
use std::time::Duration;

/// A world of leases. The first four numbers bound it, the rest is what happens in it.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The TTL, in ticks.
    pub ttl: u32,
    /// Elections go up to this term; the world begins in term 1.
    pub terms: u64,
    /// So many entries at the most follow those that the world begins with.
    pub entries: usize,
    /// So many renewals each worker sends, after the one that the world begins with.
    pub renewals: u8,
    /// Operators ask so often to drain what a worker holds.
    pub drains: u8,
    /// A drain's deadline, in ticks.
    pub deadline: u32,
    /// So many processes join under the name of the first worker.
    pub joins: u8,
    /// `b` is not taken for granted either.
    pub both: bool,
    /// It is about a lock instead of the partition. `b` waits for it, and instead of drains operators ask to break it.
    pub lock: bool,
    /// Leases run out. Otherwise no leader suspects anybody, which keeps a world of drains small.
    pub expiry: bool,
    /// A leader looks again although the outcome of what it proposed is not known.
    pub impatient: bool,
    /// A stream may break, and the worker opens another one to the same leader.
    pub cuts: bool,
    /// At the start `a` has not been told of what it holds.
    pub untold: bool,
    /// A clock may be as wrong as the bound allows.
    pub drift: bool,
    /// `a` is dead, and what is due is done before time passes.
    pub progress: Option<Progress>,
    /// The rules that are taken out.
    pub without: &'static [Rule],
    /// Nobody explores it any further from then on.
    pub until: Option<std::time::Instant>,
}

/// How a world of progress runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Each leader lasts so many ticks at the least.
    pub leaders_last: u8,
    /// After so many ticks the dead worker's partition has been granted again.
    pub within: u8,
}

impl World {
    /// A world in which nothing happens but leases and elections.
    pub const SMALLEST: World = World {
        ttl: 3,
        terms: 1,
        entries: 4,
        renewals: 2,
        drains: 0,
        deadline: 3,
        joins: 0,
        both: false,
        lock: false,
        expiry: true,
        impatient: false,
        cuts: false,
        untold: false,
        drift: false,
        progress: None,
        without: &[],
        until: None,
    };

    /// Is this rule taken out?
    pub fn lacks(&self, rule: Rule) -> bool {
        self.without.contains(&rule)
    }

    /// The TTL.
    pub fn ttl(&self) -> Duration {
        TICK * self.ttl
    }

    /// A drain's deadline.
    pub fn deadline(&self) -> Duration {
        TICK * self.deadline
    }

    /// How long each leader lasts in a world of progress.
    pub fn leaders_last(&self) -> u8 {
        let short = u8::try_from(self.ttl / 3 - 1).unwrap_or(u8::MAX);
        let last = self.progress.map_or(0, |progress| progress.leaders_last);
        if self.lacks(Rule::LeadersLast) { last.min(short) } else { last }
    }

    fn clocks(&self) -> Clocks {
        let (mut leaders, mut workers) = ([Rate::TRUE; 2], Rate::TRUE);
        if self.drift {
            (leaders, workers) = ([Rate::FAST, Rate::SLOW], Rate::SLOW);
        }
        if self.lacks(Rule::RatesWithinTheBound) {
            workers = Rate::BROKEN;
        }
        Clocks { leaders, workers, longest: TICK * (self.ttl.max(self.deadline) + 2) }
    }

    /// How many entries a world begins with.
    pub fn founding(&self) -> usize {
        5
    }

    /// Where the world has nothing more to show: nobody believes or could come to believe in what was granted on.
    fn is_over(&self, scene: &Scene) -> bool {
        let granted_on = scene.log.grants().nth(1).is_some();
        let lost = |worker: &Worker| {
            worker.lessee.is_over() || !self.untold && worker.lessee.holds().next().is_none()
        };
        let hears = |(at, worker): (usize, &Worker)| {
            let waits = scene.leaders.iter().any(|leader| leader.inbox[at].is_some());
            waits || worker.renewals > 0 || worker.request.is_some() || worker.answer.is_some()
        };
        let comes_back = self.lacks(Rule::WhatIsOverStaysOver) && scene.workers.iter().enumerate().any(hears);
        let over = scene.workers.iter().all(lost) && !self.both && !comes_back;
        granted_on && (self.progress.is_some() || over)
    }
}

impl Model for World {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        vec![begin(self)]
    }

    fn actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if !self.is_over(scene) {
            self.list_actions(scene, actions);
        }
    }

    fn next_state(&self, scene: &Scene, action: Action) -> Option<Scene> {
        self.take(scene, action)
    }

    fn properties(&self) -> Vec<Property<World>> {
        properties::of(self)
    }
}

/// Nothing here waits for balance to settle: nothing is balanced.
pub(super) fn settings() -> Settings {
    Settings { settle: TICK, cool_down: TICK, ..Settings::default() }
}

fn begin(world: &World) -> Scene {
    let clocks = world.clocks();
    let policy = setting::policy(world.ttl(), world.deadline());
    let mut log = Log::default();
    let founding =
        if world.lock { setting::founding_of_a_lock(world.ttl()) } else { setting::founding(&policy) };
    let founding = founding.into_iter().map(|command| Some(entry(vec![command])));
    for entry in std::iter::once(None).chain(founding) {
        log.commit(Arc::new(Proposal { term: 1, entry, awaited: false }));
    }
    debug_assert_eq!(log.len(), world.founding());

    let now = clocks.leader(1, 0);
    let mut led = Leadership::new(Term::new(1), now, log.truth(), settings());
    let shown = log.state(log.len() - usize::from(world.untold));
    let names = if world.both { 0..2 } else { 0..1 };
    let workers = names.map(|worker| {
        let session = log.truth().session_of(&name(worker)).expect("it has joined").id();
        led.presence.connected(session);
        worker_with_a_lease(world, &mut led, shown, session, clocks.worker(0), now)
    });
    let workers: Vec<Worker> = workers.collect();
    // Its first look at everything finds nothing to do.
    assert_eq!(led.due(now, log.truth()), Vec::<Vec<Command>>::new());
    let mut leader = Leader::new(1, log.len(), workers.len());
    leader.led = Some(Arc::new(led));
    leader.acknowledged.fill(true);
    let (drains, joins) = (world.drains, world.joins);
    let (pending, leaders) = (Vec::new(), vec![leader]);
    Scene { tick: 0, clocks, term: 1, log, pending, leaders, workers, drains, joins, kept: 0 }
}

/// A worker whose first renewal was answered at once.
fn worker_with_a_lease(
    world: &World,
    led: &mut Leadership,
    shown: &State,
    session: SessionId,
    worker_now: Instant,
    now: Instant,
) -> Worker {
    let timing = Timing::new(world.ttl()).expect("a ttl that works");
    let mut lessee = Lessee::new(timing, worker_now);
    lessee.connected(worker_now);
    let number = lessee.renew(worker_now, 0).expect("the first is due at once");
    led.lessor.arrived(session);
    led.lessor.answer(session, now);
    let picture = super::step::picture(shown, session).expect("it lives");
    let told = picture.revision;
    let mut worker = Worker {
        session,
        lessee: Arc::new(lessee),
        stream: 1,
        renewals: world.renewals,
        request: None,
        answer: None,
        told,
        holds_a_lock: world.lock,
        revoked: None,
        bounded: false,
        said_seen: false,
        sent: Vec::new(),
    };
    worker.with(|lessee| lessee.assign(worker_now, picture));
    worker.with(|lessee| {
        lessee.acknowledge(worker_now, Acknowledgement { number, revision: told, drains: Vec::new() });
    });
    worker
}
