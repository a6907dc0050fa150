//! What goes wrong when. The whole plan is drawn from the seed before the world begins, so that a world can be run again
//! with less going wrong in it.

use super::fault::{Fault, Timed};
use super::kinds::Kind;
use crate::world::{Host, Ms, Rate};
use fastrand::Rng;
use ringfence::admin::Takeover;
use ringfence_core::ids::KeyspaceName;
use std::time::Duration;

/// Hosts of workers begin here; those of nodes are their ids.
const FIRST_WORKER: u16 = 101;
/// Hosts of second processes under one name begin here.
const FIRST_TWIN: u16 = 151;
/// The router's.
pub(super) const ROUTER: Host = Host(201);
/// The operator's.
pub(super) const OPERATOR: Host = Host(202);
/// Faults begin when the world has found itself.
pub(super) const QUIET_MS: Ms = 4_000;

/// A world to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where everything comes from.
    pub seed: u64,
    /// What it is like.
    pub kind: Kind,
    /// The nodes that form the cluster, or are its first ones.
    pub nodes: Vec<Host>,
    /// The nodes that faults strike: these, and those that come later.
    pub cast: Vec<Host>,
    /// A log is compacted after so many entries, and keeps so many of them.
    pub compaction: (u64, u64),
    /// How long every process runs by itself before the next has its turn, in milliseconds: messages take that long at
    /// least.
    pub tick: Ms,
    /// The workers.
    pub workers: Vec<Host>,
    /// How fast the clocks run, by host.
    pub(super) rates: Vec<(Host, Rate)>,
    /// The rates differ by more than the bound: leases are not promised.
    pub beyond_drift: bool,
    /// The lease of both keyspaces.
    pub ttl: Duration,
    /// Partitions of each.
    pub partitions: u32,
    /// How long an owner may take to give a partition back.
    pub drain_deadline: Option<Duration>,
    /// How long a partition cools after its owner failed.
    pub lock_delay: Duration,
    /// Over how many zones the workers are spread; 0: nobody says in which zone it is.
    pub zones: u8,
    /// How many planned moves run at once, when that is not as usual.
    pub max_moves_in_flight: Option<u32>,
    /// How long the partitions of a worker that announced its restart wait for it.
    pub rejoin_hold: Duration,
    /// What goes wrong, in order.
    pub faults: Vec<Timed>,
    /// The last fault is over.
    pub heals: Ms,
    /// From here on nothing is to change hands.
    pub steady: Ms,
    /// The end.
    pub ends: Ms,
    /// The store checks tokens.
    pub fenced: bool,
}

impl Plan {
    /// The world of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = Rng::with_seed(seed);
        let kind = Kind::of(seed);
        let nodes: Vec<Host> = (1..=if random.u8(..5) == 0 { 5 } else { 3 }).map(Host).collect();
        let workers: Vec<Host> = (0..random.u16(2..=4)).map(|n| Host(FIRST_WORKER + n)).collect();
        let beyond_drift = random.u8(..12) == 0;
        let most = if beyond_drift { 60_000 } else { 4_500 };
        let all = nodes.iter().chain(&workers);
        let rates = all.map(|host| (*host, Rate { ppm: random.i64(-most..=most) })).collect();
        let ttl = match (kind, random.u64(1..=3)) {
            // An election and a connection to the next leader have to fit into a lease, or a killed leader is noticed.
            (Kind::Steady, _) => Duration::from_secs(3),
            (_, seconds) => Duration::from_secs(seconds),
        };
        let heals = 36_000;
        let mut plan = Plan {
            seed,
            kind,
            cast: nodes.clone(),
            nodes,
            // Often enough that every world compacts its log and catches a node up with a snapshot.
            compaction: (60, 20),
            tick: [1, 2, 2, 4][random.usize(..4)],
            workers,
            rates,
            beyond_drift,
            ttl,
            partitions: random.u32(1..=6),
            drain_deadline: [None, Some(Duration::from_millis(200)), Some(Duration::from_secs(2))]
                [random.usize(..3)],
            lock_delay: Duration::from_millis(if random.u8(..4) == 0 { random.u64(1..1_500) } else { 0 }),
            zones: 0,
            max_moves_in_flight: None,
            rejoin_hold: Duration::ZERO,
            faults: Vec::new(),
            heals,
            steady: 0,
            ends: 60_000,
            fenced: true,
        };
        // From dice of its own: what one kind draws changes no world of another.
        let mut own = Rng::with_seed(seed ^ 0x6b69_6e64);
        plan.begin_as_its_kind(&mut own);
        plan.steady = plan.heals + plan.progress_ms() + 1_000;
        plan.draw_faults(&mut random);
        plan.strike_as_its_kind(&mut own);
        plan.faults.sort_by_key(|timed| timed.at);
        plan
    }

    /// How long after the last fault every partition must have a ready owner: a worker may have to notice that its session
    /// is lost and back off (5 s) before it joins anew, sessions of the dead have to run out, the lead to be found.
    pub fn progress_ms(&self) -> u64 {
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let delay = u64::try_from(self.lock_delay.as_millis()).unwrap_or(u64::MAX);
        2 * ttl + delay + 11_000 + self.kind.longer_ms()
    }

    /// Within which time under one leader a partition is granted again whose owner died, when all else is well.
    pub(super) fn granted_ms(&self) -> u64 {
        let wait = self.ttl + self.lock_delay;
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) + 1_000
    }

    /// The keyspaces: one taken over by lease, one by fence unless the world is large or steady.
    pub(super) fn keyspaces() -> [&'static str; 2] {
        ["orders", "fast"]
    }

    /// The zone of a worker, by its number.
    pub(super) fn zone(&self, worker: usize) -> Option<String> {
        (self.zones > 0).then(|| format!("z{}", worker % usize::from(self.zones)))
    }

    /// The one in which leases are not promised, if there is one.
    pub(super) fn fast_keyspace(&self) -> Option<KeyspaceName> {
        // Its owners end when they are without connection for a moment: all connections of a large world break at once, and
        // in a steady one nobody may notice that.
        (!matches!(self.kind, Kind::Large | Kind::Steady)).then(|| Plan::keyspaces()[1].parse().ok())?
    }

    /// How each of them is taken over.
    pub(super) fn takeovers(&self) -> [Takeover; 2] {
        [Takeover::Lease, if self.fast_keyspace().is_some() { Takeover::Fence } else { Takeover::Lease }]
    }

    fn draw_faults(&mut self, random: &mut Rng) {
        // Some worlds are calm, some are stormy, and most have one kind of trouble more than others.
        let every = random.u64(150..4_000) * self.kind.calmer();
        let taste = random.u8(..FAULTS);
        let mut at = QUIET_MS;
        let (mut replaced, mut recreated) = (false, false);
        loop {
            at += random.u64(1..=every * 2);
            if at >= self.heals {
                break;
            }
            let kind = if random.u8(..3) == 0 { taste } else { random.u8(..FAULTS) };
            let fault = self.draw(random, kind, at);
            let fits = self.kind.has(&fault);
            let seed = random.u64(..);
            // Once a world: each leaves less of the cluster, or more to do for the workers.
            let done = match fault {
                Fault::Replace(..) | Fault::Wipe(..) => std::mem::replace(&mut replaced, true),
                Fault::Recreate(_) => std::mem::replace(&mut recreated, true),
                _ => false,
            };
            if fits && !done {
                self.faults.push(Timed { at, fault, seed });
            }
        }
    }

    fn draw(&self, random: &mut Rng, kind: u8, at: Ms) -> Fault {
        let node = |random: &mut Rng| self.cast[random.usize(..self.cast.len())];
        let worker = |random: &mut Rng| self.workers[random.usize(..self.workers.len())];
        let any = |random: &mut Rng| if random.bool() { node(random) } else { worker(random) };
        let ttl = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        // From a hiccup to well beyond a lease, and never beyond the time of trouble.
        let most = (self.heals - at).max(2);
        let span = |random: &mut Rng| {
            let bound = if random.bool() { ttl / 2 } else { ttl * 5 / 2 };
            random.u64(20..=bound).min(most - 1)
        };
        let other = |random: &mut Rng, host: Host| loop {
            let peer = node(random);
            if peer != host {
                return peer;
            }
        };
        let newcomer = Host(self.nodes.len() as u16 + 1);
        match kind {
            0 | 1 => Fault::Pause(worker(random), span(random)),
            2 => Fault::Pause(node(random), span(random)),
            3 => Fault::Suspend(any(random), span(random)),
            4 => Fault::Kill(worker(random), span(random)),
            5 => Fault::Kill(node(random), span(random)),
            6 => Fault::PowerLoss(any(random), span(random)),
            7 => Fault::PowerLossInWrite(node(random), random.u32(1..60), span(random)),
            8 if random.bool() => Fault::KillNodes(span(random)),
            8 => Fault::NodesLosePower(span(random)),
            9 => {
                let (a, for_ms) = (any(random), span(random));
                let b = other(random, a);
                if random.bool() { Fault::OneWay(a, b, for_ms) } else { Fault::OneWay(b, a, for_ms) }
            }
            10 => {
                let (a, for_ms) = (any(random), span(random));
                Fault::Cut(a, other(random, a), for_ms)
            }
            11 => Fault::Isolate(any(random), span(random)),
            12 => Fault::LostReplies(worker(random), span(random)),
            13 => {
                let (a, for_ms) = (any(random), span(random));
                Fault::Slow(a, other(random, a), for_ms)
            }
            14 => {
                let a = any(random);
                Fault::Reset(a, other(random, a))
            }
            15 => Fault::DiskFull(node(random), span(random)),
            16 => Fault::FlushFails(node(random)),
            17 => Fault::SlowDisk(node(random), span(random)),
            18 => Fault::WallJump(node(random), random.i64(-3_600_000..3_600_000)),
            19 => Fault::StoreWeather(worker(random), span(random)),
            20 => Fault::Leave(worker(random), span(random)),
            21 | 22 => Fault::Move(random.usize(..2), random.u32(..self.partitions), worker(random)),
            23 => Fault::Transfer,
            24 => Fault::Replace(newcomer, node(random)),
            25 => Fault::Wipe(node(random), newcomer),
            26 => Fault::Recreate(random.usize(..2)),
            27 => Fault::FreezeDisk(node(random), span(random)),
            _ => Fault::Twin(worker(random), Host(FIRST_TWIN + at as u16 % 50), span(random)),
        }
    }
}

/// How many kinds there are to draw from.
const FAULTS: u8 = 29;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_fault_is_drawn_in_order_and_within_the_time_of_trouble() {
        let mut kinds = BTreeSet::new();
        for plan in (0..512).map(Plan::of) {
            assert!(plan.faults.is_sorted_by_key(|timed| timed.at));
            assert!(plan.heals < plan.steady && plan.steady < plan.ends, "{plan:?}");
            for timed in &plan.faults {
                let in_time = timed.at > QUIET_MS && timed.at < plan.heals;
                assert!(in_time || timed.fault.is_for_good() || timed.fault.is_no_excuse(), "{timed:?}");
                kinds.extend(timed.fault.to_string().split('(').next().map(str::to_owned));
            }
        }
        assert_eq!(kinds.len(), Fault::KINDS, "{kinds:?}");
    }
}
