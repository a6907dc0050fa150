//! Kinds of worlds. Most of them have a bit of everything; the others are about one thing that seldom happens by itself.

use super::choice::Choice;
use super::fault::{Fault, Timed};
use super::plan::{Plan, QUIET_MS};
use crate::world::{Host, Ms, Rate};
use fastrand::Rng;
use std::time::Duration;

/// What a world is like. The seed decides it: what is left of it divided by 16, and by 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A bit of everything.
    Mixed,
    /// Nodes come and go one after the other, and logs are compacted all the time.
    Members,
    /// At the end the leader's disk stands still, and it may reach one follower only.
    Stuck,
    /// One node forgets: an old copy of its data comes back, or its disk lies. No Raft survives that; the fences do.
    Forgetful,
    /// Clocks are as far apart as they may be, answers are late, and then the worker hears nothing more.
    Edge,
    /// Two thousand partitions, all taken over by lease, and everybody back at once.
    Large,
    /// The first node begins with the data directory of the oldest format.
    OldFormat,
    /// Operators decide all the time where partitions are to be.
    Operated,
    /// Workers are restarted one after the other, as for a new version.
    Rolling,
    /// Partitions are split while owners write keys that move with them.
    Splitting,
    /// Members stay as they are for ten minutes, whatever else happens that nobody may notice.
    Steady,
}

/// What is left of a seed divided by this decides what a world is like.
pub const KINDS: u64 = 16;
/// Clocks are at most so many millionths off true time: two of them differ by less than the bound of one percent.
const EDGE_PPM: i64 = 4_990;
/// The new nodes of a world whose members come and go.
const NEWCOMERS: u16 = 6;
/// How long all is quiet before somebody dies.
const QUIET_AT_REST_MS: u64 = 3_000;
/// How long whoever is granted a partition then may take to be ready.
const READY_MS: u64 = 2_500;
/// How much slower owners work in a large world, and in one that lasts for ten minutes.
const LARGE_PACE: u64 = 250;
/// How many keys there are in a keyspace that is split: some for each partition in the end.
const KEYS: u32 = 16;
/// How long nothing may change hands in a steady world.
const STEADY_MS: Ms = 600_000;

impl Kind {
    pub(super) fn of(seed: u64) -> Kind {
        match seed % KINDS {
            // It costs as much as several others.
            15 if seed % 256 == 255 => Kind::Steady,
            5 | 6 => Kind::Operated,
            7 => Kind::Splitting,
            15 => Kind::Rolling,
            8 | 9 => Kind::Members,
            10 => Kind::Stuck,
            11 => Kind::Forgetful,
            12 => Kind::Edge,
            13 => Kind::Large,
            14 => Kind::OldFormat,
            _ => Kind::Mixed,
        }
    }

    /// By how much fewer faults strike by themselves.
    pub(super) fn calmer(self) -> u64 {
        match self {
            Kind::Mixed | Kind::Forgetful | Kind::OldFormat | Kind::Stuck => 1,
            Kind::Members | Kind::Operated | Kind::Splitting => 2,
            Kind::Edge | Kind::Rolling => 3,
            Kind::Large | Kind::Steady => 4,
        }
    }

    /// How much longer than in others it may take until everything has an owner.
    pub(super) fn longer_ms(self) -> u64 {
        match self {
            // A leader notices that its disk stands still after three seconds, and asks another to lead; a worker that asks a
            // node that hangs gives up after a while.
            Kind::Stuck => 6_000,
            // There may be many moves to make, two at a time, and owners that take their time.
            Kind::Operated => 6_000,
            // One partition after the other, and an owner that does not give its own back is waited for.
            Kind::Splitting => 9_000,
            _ => 0,
        }
    }

    /// Whether such a fault may strike by itself in such a world.
    pub(super) fn has(self, fault: &Fault) -> bool {
        match self {
            // Its members are somebody else's business there.
            // And a leader that is stuck is as much as the rest of a cluster can do without.
            Kind::Members | Kind::OldFormat | Kind::Stuck => {
                !matches!(fault, Fault::Replace(..) | Fault::Wipe(..))
            }
            // Too much work for one second, and for nothing.
            Kind::Large => !matches!(fault, Fault::Recreate(_) | Fault::Twin(..)),
            // Created again it has as many partitions as at first, and its keys belong to others.
            Kind::Splitting => !matches!(fault, Fault::Recreate(_)),
            // A name is to stand for one process, and settings for one keyspace.
            Kind::Rolling => !matches!(fault, Fault::Recreate(_) | Fault::Twin(..)),
            Kind::Mixed | Kind::Forgetful | Kind::Edge | Kind::Operated | Kind::Steady => true,
        }
    }

    /// How much slower owners work than in other worlds.
    pub(super) fn pace(self) -> u64 {
        if matches!(self, Kind::Large | Kind::Steady) { LARGE_PACE } else { 1 }
    }

    /// How many keys each keyspace has, which go with their partitions when those are split; 0: each partition has one of
    /// its own.
    pub(super) fn keys(self) -> u32 {
        if self == Kind::Splitting { KEYS } else { 0 }
    }

    /// How many times as many partitions there may be in the end.
    pub(super) fn grows(self) -> u32 {
        if self == Kind::Splitting { 4 } else { 1 }
    }

    /// How often everybody is looked at, in milliseconds; 1 is as often as anything happens.
    pub(super) fn look_every(self) -> Ms {
        match self {
            Kind::Large => 40,
            Kind::Steady => 8,
            _ => 1,
        }
    }
}

impl Plan {
    /// Before any fault is drawn.
    pub(super) fn begin_as_its_kind(&mut self, random: &mut Rng) {
        match self.kind {
            Kind::Mixed | Kind::Forgetful => {}
            Kind::Members => {
                self.compaction = (random.u64(4..=24), random.u64(0..=6));
                let first = self.nodes.len() as u16 + 1;
                self.cast.extend((first..first + NEWCOMERS).map(Host));
            }
            Kind::Stuck => self.heals = 30_000,
            Kind::Edge => {
                self.beyond_drift = false;
                self.ttl = Duration::from_secs(random.u64(1..=2));
                for (host, rate) in &mut self.rates {
                    let slow = self.workers.contains(host) != (random.u8(..8) == 0);
                    *rate = Rate { ppm: if slow { -EDGE_PPM } else { EDGE_PPM } };
                }
            }
            Kind::Large => {
                self.partitions = 1_000;
                self.tick = 4;
                self.ttl = Duration::from_secs(3);
                self.drain_deadline = Some(Duration::from_secs(2));
                let first = self.workers[0].0;
                self.workers = (first..first + random.u16(5..=7)).map(Host).collect();
                self.compaction = (200, 50);
                (self.heals, self.ends) = (20_000, 48_000);
            }
            Kind::Operated | Kind::Rolling | Kind::Steady => self.begin_with_choices(random),
            Kind::Splitting => {
                self.partitions = random.u32(1..=3);
                self.ttl = Duration::from_secs(random.u64(1..=2));
                self.drain_deadline = Some(Duration::from_millis(random.u64(200..1_500)));
                self.heals = 28_000;
            }
            Kind::OldFormat => {
                self.partitions = 3;
                self.nodes = [1, 2, 3].map(Host).to_vec();
                self.cast = self.nodes.clone();
            }
        }
    }

    /// After all other faults are drawn.
    pub(super) fn strike_as_its_kind(&mut self, random: &mut Rng) {
        // The others end with something of their own, or promise no progress.
        let rests = [Kind::Mixed, Kind::Members, Kind::Edge, Kind::OldFormat, Kind::Splitting];
        if rests.contains(&self.kind) {
            self.kill_at_rest(random);
        }
        match self.kind {
            Kind::Mixed | Kind::OldFormat => {}
            Kind::Operated => self.decide(random),
            Kind::Rolling => self.roll(random),
            Kind::Splitting => self.split(random),
            Kind::Steady => self.go_unnoticed(random),
            Kind::Members => self.exchange_members(random),
            // A moment after the judge was told that everything is well: it is to be so from then on.
            Kind::Stuck => {
                let (one, worker) = (random.bool(), self.workers[random.usize(..self.workers.len())]);
                let for_ms = random.u64(100..5_000);
                self.strike(self.heals + 20, Fault::StickLeader(one, worker, for_ms), random);
            }
            Kind::Forgetful => self.forget(random),
            Kind::Edge => self.late_answers(random),
            Kind::Large => {
                let at = random.u64(QUIET_MS + 4_000..self.heals - 3_000);
                let for_ms = random.u64(200..2_000);
                let all = if random.bool() { Fault::KillWorkers(for_ms) } else { Fault::KillNodes(for_ms) };
                self.strike(at, all, random);
                let for_ms = random.u64(100..300);
                self.strike(self.steady + 1_500, Fault::RestartNodes(for_ms), random);
            }
        }
    }

    /// One worker dies when all has been quiet for a while, and the world is watched for long enough to tell.
    fn kill_at_rest(&mut self, random: &mut Rng) {
        let at = self.steady + QUIET_AT_REST_MS + random.u64(..500);
        let worker = self.workers[random.usize(..self.workers.len())];
        self.strike(at, Fault::KillAtRest(worker), random);
        self.ends = self.ends.max(at + self.granted_ms() + READY_MS);
    }

    fn strike(&mut self, at: Ms, fault: Fault, random: &mut Rng) {
        let seed = random.u64(..);
        self.faults.push(Timed { at, fault, seed });
    }

    /// From three to five members and back, one at a time, under whatever else goes wrong. One of the first stays: callers
    /// know no other address.
    fn exchange_members(&mut self, random: &mut Rng) {
        let stays = self.nodes[random.usize(..self.nodes.len())];
        let mut members = self.nodes.clone();
        let new: Vec<Host> = self.cast[self.nodes.len()..].into();
        let mut new = new.into_iter();
        let mut at = QUIET_MS;
        loop {
            at += random.u64(500..6_000);
            if at + 1_000 > self.heals {
                return;
            }
            let leaves = (members.len() > 3 || random.bool())
                .then(|| members[random.usize(..members.len())])
                .filter(|leaves| *leaves != stays);
            let comes = if members.len() < 5 { new.next() } else { None };
            let leaves = leaves.filter(|_| comes.is_some() || members.len() > 3);
            if comes.is_none() && leaves.is_none() {
                continue;
            }
            members.retain(|member| Some(*member) != leaves);
            members.extend(comes);
            self.strike(at, Fault::Exchange(comes, leaves), random);
        }
    }

    fn forget(&mut self, random: &mut Rng) {
        let node = self.nodes[random.usize(..self.nodes.len())];
        let begins = random.u64(QUIET_MS + 1..self.heals / 2);
        let ends = random.u64(begins + 500..self.heals - 2_000);
        let for_ms = random.u64(20..1_500);
        if random.bool() {
            self.strike(begins, Fault::CopyDisk(node), random);
            self.strike(ends, Fault::OldCopy(node, for_ms), random);
        } else {
            self.strike(begins, Fault::DiskLies(node), random);
            self.strike(ends, Fault::PowerLoss(node, for_ms), random);
        }
    }

    /// A worker's renewals are answered late; then it hears nothing any more, and may stand still as well. A holder that
    /// counts its lease from a moment too late holds it for too long.
    fn late_answers(&mut self, random: &mut Rng) {
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let mut at = QUIET_MS + 500;
        while at + 6 * ttl < self.heals {
            let worker = self.workers[random.usize(..self.workers.len())];
            let late = random.u64(20..ttl / 4);
            let hears = random.u64(ttl / 2..ttl);
            self.strike(at, Fault::LateAnswers(worker, late, hears), random);
            self.strike(at + hears - 1, Fault::Isolate(worker, 3 * ttl), random);
            if random.u8(..3) == 0 {
                let after = at + hears + random.u64(..ttl / 2);
                self.strike(after, Fault::Pause(worker, random.u64(20..ttl)), random);
            }
            at += hears + 3 * ttl + random.u64(500..3_000);
        }
    }
    /// Zones, budgets, and what else an operator chooses before anything happens.
    fn begin_with_choices(&mut self, random: &mut Rng) {
        self.partitions = random.u32(3..=12);
        let first = self.workers[0].0;
        self.workers = (first..first + random.u16(3..=5)).map(Host).collect();
        self.zones = if random.bool() { random.u8(2..=3) } else { 0 };
        self.max_moves_in_flight = [None, Some(2), Some(5)][random.usize(..3)];
        self.rejoin_hold = Duration::from_millis(if random.bool() { random.u64(1_000..6_000) } else { 0 });
        match self.kind {
            Kind::Operated => self.heals = 30_000,
            Kind::Steady => {
                self.beyond_drift = false;
                self.rates.clear();
                self.tick = 8;
                self.lock_delay = Duration::ZERO;
                self.heals = QUIET_MS + 4_000;
                self.ends = self.heals + self.progress_ms() + STEADY_MS + 2_000;
            }
            _ => {}
        }
    }

    fn decide(&mut self, random: &mut Rng) {
        let every = random.u64(150..1_500);
        let mut at = QUIET_MS;
        loop {
            at += random.u64(1..=every * 2);
            if at + 1_000 > self.heals {
                return;
            }
            if random.u8(..12) == 0 {
                let worker = self.workers[random.usize(..self.workers.len())];
                let fault = self.restart(worker, random);
                self.strike(at, fault, random);
            }
            let choice = Choice::draw(self, random);
            self.strike(at, Fault::Decide(choice), random);
        }
    }

    fn restart(&self, worker: Host, random: &mut Rng) -> Fault {
        let hold = u64::try_from(self.rejoin_hold.as_millis()).unwrap_or(u64::MAX);
        // Most are back in time.
        let in_time = if random.u8(..4) == 0 { hold + 3_000 } else { (hold * 2 / 3).max(1_000) };
        Fault::Restart(worker, random.u64(20..in_time))
    }

    /// One worker after the other, either drained before, or with a word that it comes back.
    fn roll(&mut self, random: &mut Rng) {
        let drained = random.bool();
        if !drained {
            self.rejoin_hold = Duration::from_millis(random.u64(2_000..6_000));
        }
        let mut at = QUIET_MS;
        for worker in self.workers.clone() {
            at += random.u64(500..1_500);
            let fault = if drained {
                Fault::Roll(worker, random.u64(20..2_000))
            } else {
                self.restart(worker, random)
            };
            self.strike(at, fault, random);
            at += random.u64(3_000..5_000);
        }
    }

    /// Each keyspace is split, and one of them a second time. In the midst of it somebody is paused, dies, or takes it back.
    fn split(&mut self, random: &mut Rng) {
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let (first, last) = (QUIET_MS + 1..self.heals / 2, self.heals / 2..self.heals - 5_000);
        let again = random.usize(..2);
        for (keyspace, when) in [(0, first.clone()), (1, first), (again, last)] {
            let at = random.u64(when);
            self.strike(at, Fault::Split(keyspace), random);
            for _ in 0..random.u8(..4) {
                let worker = self.workers[random.usize(..self.workers.len())];
                let (fault, soon) = match random.u8(..8) {
                    0 => (Fault::CancelSplit(keyspace), 20),
                    1..=3 => (Fault::KillLeader(random.u64(50..3_000)), 600),
                    4 => (Fault::Kill(worker, random.u64(20..2 * ttl)), 600),
                    5 => (Fault::KillNodes(random.u64(50..1_000)), 600),
                    // It sleeps through it, and its lease is over when it wakes or is not.
                    _ => (Fault::Pause(worker, random.u64(ttl / 3..3 * ttl)), 200),
                };
                self.strike(at + random.u64(1..soon), fault, random);
            }
        }
    }

    /// Operators decide; then, when all that is done, nothing that happens may make a difference to anybody.
    fn go_unnoticed(&mut self, random: &mut Rng) {
        for _ in 0..random.u32(0..8) {
            let choice = Choice::draw(self, random);
            let at = random.u64(QUIET_MS + 1..self.heals);
            self.strike(at, Fault::Decide(choice), random);
        }
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let mut at = self.steady + 1_000;
        loop {
            at += random.u64(500..40_000);
            if at + 5_000 > self.ends {
                return;
            }
            let (node, worker) = (random.usize(..self.nodes.len()), random.usize(..self.workers.len()));
            let (node, worker) = (self.nodes[node], self.workers[worker]);
            let fault = match random.u8(..7) {
                0 => Fault::Transfer,
                // It is suspected, and heard of again.
                1 | 2 => Fault::Pause(worker, random.u64(20..ttl / 2)),
                3 => Fault::Pause(node, random.u64(20..2_000)),
                4 => Fault::Kill(node, random.u64(50..2_000)),
                5 => Fault::WallJump(node, random.i64(-3_600_000..3_600_000)),
                _ => Fault::Reset(worker, node),
            };
            self.strike(at, Fault::Unnoticed(Box::new(fault)), random);
        }
    }
}
