//! What the partitions of a session count for, told to the coordinator that asks for it.
//!
//! Nothing is measured before an acknowledgement has asked, and nothing is waited for: a message that is lost is made
//! good by the next. Partitions are told of in turns of at most a thousand, spread over the time between two measurements
//! of one, so that a worker of many partitions sends many small messages and never a burst.

use super::wire::Place;
use crate::ownership::Tenure;
use ringfence_api::v1::Measure;
use ringfence_api::v1::attach_request::Loads;
use ringfence_api::v1::attach_request::loads::OfKeyspace;
use ringfence_core::ids::Epoch;
use ringfence_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many partitions one message tells of; the coordinator takes no more.
const MAX_TOLD: usize = 1_000;
/// A load that was told so often in a row has arrived in the coordinator's average, and is not told again before it
/// changes: what is idle costs nothing.
const KNOWN_AFTER: u8 = 40;
/// The least between two messages; the coordinator passes over what comes faster than a quarter of this.
const LEAST_TURN: Duration = Duration::from_millis(20);
/// What may be asked for: a coordinator that asks for more or less gets this.
const LEAST_EVERY: Duration = Duration::from_millis(50);
const MOST_EVERY: Duration = Duration::from_secs(3_600);

/// What is measured, and what was told of it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    asked: Option<Asked>,
    seen: BTreeMap<Place, Seen>,
    next: Option<Instant>,
    /// The last partition of the last turn, when more follow.
    after: Option<Place>,
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    keyspaces: BTreeSet<String>,
    every: Duration,
}

#[derive(Debug)]
struct Seen {
    epoch: Epoch,
    at: Instant,
    operations: u64,
    told: Option<u64>,
    times: u8,
}

impl Meter {
    /// A connection is new, perhaps to another leader, which knows nothing.
    pub(super) fn connected(&mut self) {
        self.asked = None;
        self.next = None;
        self.after = None;
        self.seen.values_mut().for_each(|seen| seen.times = 0);
    }

    /// What an acknowledgement asks for.
    pub(super) fn asked(&mut self, now: Instant, measure: Option<Measure>) {
        let asked = measure.filter(|measure| !measure.keyspaces.is_empty()).map(|measure| Asked {
            keyspaces: measure.keyspaces.into_iter().collect(),
            every: Duration::from_millis(measure.every_ms).clamp(LEAST_EVERY, MOST_EVERY),
        });
        match &asked {
            None => *self = Meter::default(),
            // A first look now, to measure from.
            Some(_) if self.asked != asked => self.next = Some(now),
            Some(_) => {}
        }
        self.asked = asked;
    }

    /// When the next turn is.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// What is to be told now, of what the session owns, in the order of the places.
    pub(super) fn due<'a>(
        &mut self,
        now: Instant,
        owned: impl Iterator<Item = (&'a Place, &'a Tenure)>,
    ) -> Option<Loads> {
        let asked = self.asked.as_ref().filter(|_| self.next.is_some_and(|next| now >= next))?;
        let serves = |(place, tenure): &(&Place, &Tenure)| {
            asked.keyspaces.contains(place.keyspace.as_str()) && tenure.is_noted()
        };
        let mut all = 0_usize;
        let mut turn = Vec::new();
        for (place, tenure) in owned.filter(serves) {
            all += 1;
            if turn.len() < MAX_TOLD && self.after.as_ref().is_none_or(|after| place > after) {
                turn.push((place, tenure));
            }
        }
        let more = turn.len() == MAX_TOLD;
        self.after = turn.last().filter(|_| more).map(|(place, _)| (*place).clone());
        let turns = u32::try_from(all / MAX_TOLD).unwrap_or(u32::MAX).saturating_add(1);
        self.next = Some(now + (asked.every / turns).max(LEAST_TURN));

        let mut loads = Loads::default();
        for (place, tenure) in turn {
            let load = self.seen.get_mut(place).map(|seen| seen.measure(now, asked.every, tenure));
            match load {
                Some(load) => load.into_iter().for_each(|load| add(&mut loads, place, load)),
                None => {
                    self.seen.insert(place.clone(), Seen::from(now, tenure));
                }
            }
        }
        if self.after.is_none() {
            // What was not looked at for so long is not owned any more.
            let gone = asked.every * 4;
            self.seen.retain(|_, seen| now.since(seen.at) < gone);
        }
        (!loads.keyspaces.is_empty()).then_some(loads)
    }
}

impl Seen {
    fn from(now: Instant, tenure: &Tenure) -> Seen {
        let (epoch, operations) = (tenure.token().epoch(), tenure.operations());
        Seen { epoch, at: now, operations, told: None, times: 0 }
    }

    /// The load to tell, if it is to be told: what the application says, or else the operations a second since it was
    /// looked at last.
    fn measure(&mut self, now: Instant, every: Duration, tenure: &Tenure) -> Option<u64> {
        if self.epoch != tenure.token().epoch() {
            *self = Seen::from(now, tenure);
            return None;
        }
        let elapsed = now.since(self.at);
        if elapsed < every / 2 {
            return None;
        }
        let operations = tenure.operations();
        let load = tenure
            .reported_load()
            .unwrap_or_else(|| per_second(operations.wrapping_sub(self.operations), elapsed));
        (self.at, self.operations) = (now, operations);
        self.times = if self.told == Some(load) { self.times.saturating_add(1) } else { 0 };
        self.told = Some(load);
        (self.times < KNOWN_AFTER).then_some(load)
    }
}

/// Rounded to the nearest.
fn per_second(operations: u64, elapsed: Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    let rate = (u128::from(operations) * 1_000_000_000 + nanos / 2) / nanos;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn add(loads: &mut Loads, place: &Place, load: u64) {
    let of_another = |last: &&mut OfKeyspace| last.keyspace != place.keyspace.as_str();
    if loads.keyspaces.last_mut().as_ref().is_none_or(of_another) {
        let keyspace = place.keyspace.to_string();
        loads.keyspaces.push(OfKeyspace { keyspace, ..Default::default() });
    }
    if let Some(of) = loads.keyspaces.last_mut() {
        of.partitions.push(place.partition.get());
        of.loads.push(load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::ownership::{Desk, Grant, Ownership, SessionLease};
    use ringfence_core::ids::{ClusterId, KeyspaceName, PartitionId, SessionId};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    struct Nobody;

    impl Desk for Nobody {
        fn say_ready(&self, _: &Tenure) {}
    }

    struct World {
        meter: Meter,
        now: Instant,
        lease: Arc<SessionLease>,
        owned: BTreeMap<Place, Arc<Tenure>>,
    }

    impl World {
        fn new() -> World {
            let lease = Arc::new(SessionLease::new(Clock::Manual(Arc::new(AtomicU64::new(100)))));
            lease.publish(Some(Instant::from_nanos(u64::MAX / 2)), None).unwrap();
            World { meter: Meter::default(), now: Instant::from_nanos(100), lease, owned: BTreeMap::new() }
        }

        fn grant(&mut self, keyspace: &str, partition: u32, epoch: u64) -> Ownership {
            let keyspace = KeyspaceName::new(keyspace).unwrap();
            let place = Place { keyspace: keyspace.clone(), partition: PartitionId::new(partition) };
            let token = crate::fence::FencingToken::new(
                ClusterId::new("test").unwrap(),
                place.scope(),
                Epoch::new(epoch).unwrap(),
            );
            let grant = Grant {
                token,
                keyspace,
                partition: place.partition,
                session: SessionId::new(7).unwrap(),
                by_fence: false,
                share: None,
                ancestors: Box::default(),
            };
            let tenure = Arc::new(Tenure::new(grant, Arc::clone(&self.lease), Arc::new(Nobody)));
            tenure.noted();
            self.owned.insert(place, Arc::clone(&tenure));
            Ownership::new(tenure)
        }

        fn ask(&mut self, every_ms: u64) {
            let measure = Measure { keyspaces: vec!["orders".to_owned()], every_ms };
            self.meter.asked(self.now, Some(measure));
        }

        fn after(&mut self, ms: u64) -> Vec<(u32, u64)> {
            self.now = self.now + Duration::from_millis(ms);
            let owned = self.owned.iter().map(|(place, tenure)| (place, &**tenure));
            let told = self.meter.due(self.now, owned).unwrap_or_default();
            assert!(told.keyspaces.iter().all(|of| of.keyspace == "orders"));
            let pairs = told.keyspaces.into_iter().flat_map(|of| of.partitions.into_iter().zip(of.loads));
            pairs.collect()
        }
    }

    #[test]
    fn stamps_and_reads_are_counted_as_operations_a_second() {
        let mut world = World::new();
        let (busy, idle) = (world.grant("orders", 1, 1), world.grant("orders", 2, 1));
        let _elsewhere = world.grant("other", 3, 1);
        assert_eq!(world.after(10_000), [], "nobody has asked");
        world.ask(1_000);
        assert_eq!(world.after(0), [], "there is nothing to measure from yet");
        for _ in 0..250 {
            busy.stamp().unwrap();
            busy.read(|| ()).unwrap();
        }
        assert_eq!(world.after(900), []);
        assert_eq!(world.after(1_100), [(1, 250), (2, 0)]);
        idle.report_load(77);
        busy.report_load(u64::MAX);
        assert_eq!(world.after(1_000), [(1, u64::MAX - 1), (2, 77)], "what the application says goes first");
    }

    #[test]
    fn a_new_epoch_and_a_new_connection_are_measured_anew() {
        let mut world = World::new();
        let first = world.grant("orders", 1, 1);
        world.ask(1_000);
        world.after(0);
        (0..500).for_each(|_| drop(first.stamp()));
        let second = world.grant("orders", 1, 2);
        assert_eq!(world.after(1_000), [], "it begins with the new owner");
        (0..30).for_each(|_| drop(second.stamp()));
        assert_eq!(world.after(1_000), [(1, 30)]);
        world.meter.connected();
        assert_eq!(world.after(5_000), [], "whoever leads now has not asked");
        world.ask(1_000);
        (0..60).for_each(|_| drop(second.stamp()));
        assert_eq!(world.after(1_000), [(1, 10)], "over the six seconds since");
    }

    #[test]
    fn a_load_that_does_not_change_is_told_until_it_is_known_and_again_to_another_leader() {
        let mut world = World::new();
        let owner = world.grant("orders", 1, 1);
        owner.report_load(5);
        world.ask(1_000);
        let told = |world: &mut World| (0..100).filter(|_| !world.after(1_000).is_empty()).count();
        assert_eq!(told(&mut world), usize::from(KNOWN_AFTER));
        owner.report_load(6);
        assert_eq!(world.after(1_000), [(1, 6)]);
        world.meter.connected();
        world.ask(1_000);
        assert!(told(&mut world) >= usize::from(KNOWN_AFTER) - 1);
    }

    #[test]
    fn many_partitions_go_in_turns_and_each_is_told_once_in_the_time_asked_for() {
        let mut world = World::new();
        let all: Vec<Ownership> = (0..2_500).map(|number| world.grant("orders", number, 1)).collect();
        all.iter().for_each(|owner| owner.report_load(9));
        world.ask(3_000);
        let mut told: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..9 {
            let turn = world.after(1_000);
            assert!(turn.len() <= MAX_TOLD);
            turn.into_iter().for_each(|(partition, _)| *told.entry(partition).or_default() += 1);
        }
        assert_eq!(told.len(), 2_500);
        assert!(told.values().all(|times| *times == 2), "the first time is to measure from");
    }

    #[test]
    fn f096_what_makes_no_sense_is_brought_within_bounds() {
        let mut world = World::new();
        world.grant("orders", 1, 1).report_load(1);
        world.ask(0);
        for _ in 0..3 {
            world.after(50);
        }
        assert!(world.meter.poll_timeout().is_some_and(|next| next > world.now));
        world.ask(u64::MAX);
        world.after(0);
        assert_eq!(world.meter.poll_timeout(), Some(world.now + MOST_EVERY));
        world.meter.asked(world.now, None);
        assert_eq!(world.after(4_000_000), []);
        assert_eq!(per_second(u64::MAX, Duration::ZERO), u64::MAX);
    }
}
