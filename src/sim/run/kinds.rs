//! Kinds of worlds. Most of them have a bit of everything; the others are about one thing that seldom happens by itself.

use super::fault::{Fault, Timed};
use super::plan::{Plan, QUIET_MS};
use crate::world::{Host, Ms, Rate};
use fastrand::Rng;
use std::time::Duration;

/// What a world is like. The seed decides it: what is left of it divided by 16.
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
/// How much slower owners work in a large world.
const LARGE_PACE: u64 = 250;

impl Kind {
    pub(super) fn of(seed: u64) -> Kind {
        match seed % KINDS {
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
            Kind::Members => 2,
            Kind::Edge => 3,
            Kind::Large => 4,
        }
    }

    /// How much longer than in others it may take until everything has an owner.
    pub(super) fn longer_ms(self) -> u64 {
        match self {
            // A leader notices that its disk stands still after three seconds, and asks another to lead; a worker that asks a
            // node that hangs gives up after a while.
            Kind::Stuck => 6_000,
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
            Kind::Mixed | Kind::Forgetful | Kind::Edge => true,
        }
    }

    /// How much slower owners work than in other worlds.
    pub(super) fn pace(self) -> u64 {
        if self == Kind::Large { LARGE_PACE } else { 1 }
    }

    /// How often everybody is looked at, in milliseconds; 1 is as often as anything happens.
    pub(super) fn look_every(self) -> Ms {
        if self == Kind::Large { 40 } else { 1 }
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
        if matches!(self.kind, Kind::Mixed | Kind::Members | Kind::Edge | Kind::OldFormat) {
            self.kill_at_rest(random);
        }
        match self.kind {
            Kind::Mixed | Kind::OldFormat => {}
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
}
