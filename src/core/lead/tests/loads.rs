//! Measured loads: who is heard, what moves because of them, and that it comes to an end.

use super::world::{World, at, policy};
use crate::ids::{KeyspaceId, PartitionId, PartitionKey, WorkerId};
use crate::lead::{LoadSource, Settings};
use crate::placement::MAX_LOAD;
use crate::state::{BalanceBy, Command, GrantReason, PartitionChange, PolicyChange};

/// How often a leader wants to be told, in milliseconds.
fn every() -> u64 {
    Settings::default().measure_every.as_millis() as u64
}

fn by_load() -> PolicyChange {
    PolicyChange { balance_by: Some(BalanceBy::Load), ..policy() }
}

/// Every owner tells what its partitions measure, so many times.
fn tell(world: &mut World, rounds: usize, mut load: impl FnMut(u32) -> u64) {
    for _ in 0..rounds {
        world.pass(every());
        for key in world.keys() {
            let Some(owner) = world.state.partition(key).unwrap().owner() else { continue };
            let units = load(key.partition.get());
            world.leader.measure(at(world.now), &world.state, owner, key, units);
        }
    }
}

fn reasons_since(world: &World, since: u64) -> Vec<GrantReason> {
    world.commands_since(since, |command| match command {
        Command::Drain { why, .. } => Some(*why),
        _ => None,
    })
}

/// Noise of up to so many per mille, always the same.
fn noisy(seed: u64, permille: i64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |load| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let noise = (state % (2 * permille as u64 + 1)) as i64 - permille;
        (load as i64 * (1_000 + noise) / 1_000) as u64
    }
}

#[test]
fn a_partition_that_gets_hot_sends_its_neighbours_away_and_then_all_is_quiet() {
    let mut world = World::of(8, &["a", "b"], by_load());
    let began = world.now;
    tell(&mut world, 10, |_| 100);
    assert_eq!(world.drains_since(began), [], "a steady load that is even moves nothing");
    let hot = world.owned_by("a")[0];
    let began = world.now;
    let load = |partition| if partition == hot.partition.get() { 600 } else { 100 };
    tell(&mut world, 30, load);
    let reasons = reasons_since(&world, began);
    assert!(!reasons.is_empty() && reasons.iter().all(|why| *why == GrantReason::Load), "{reasons:?}");
    assert_eq!(world.owner(hot), Some("a"), "it stays, and the others make room");
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 6));
    let settled = world.now;
    tell(&mut world, 60, load);
    assert_eq!(world.drains_since(settled), []);
}

#[test]
fn noise_within_the_hysteresis_moves_nothing() {
    for seed in 1..=5 {
        let mut world = World::of(12, &["a", "b", "c"], by_load());
        let mut noise = noisy(seed, 100);
        let steady = |partition: u32| 100 + u64::from(partition) * 90;
        tell(&mut world, 30, |partition| noise(steady(partition)));
        let settled = world.now;
        tell(&mut world, 100, |partition| noise(steady(partition)));
        assert_eq!(world.drains_since(settled), [], "seed {seed}");
    }
}

/// Control: the same world, with noise that no average hides, does move.
#[test]
fn control_noise_beyond_the_hysteresis_is_followed() {
    let moved = (1..=5).filter(|seed| {
        let mut world = World::of(12, &["a", "b", "c"], by_load());
        let mut noise = noisy(*seed, 1_000);
        tell(&mut world, 30, |partition| noise(100 + u64::from(partition) * 90));
        let settled = world.now;
        tell(&mut world, 100, |partition| noise(100 + u64::from(partition) * 90));
        !world.drains_since(settled).is_empty()
    });
    assert!(moved.count() > 0);
}

#[test]
fn a_new_leader_knows_no_loads_and_moves_nothing_because_of_that() {
    let mut world = World::of(8, &["a", "b"], by_load());
    let hot = world.owned_by("a")[0];
    let load = |partition| if partition == hot.partition.get() { 1_000 } else { 100 };
    tell(&mut world, 30, load);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (1, 7));
    world.elect(300);
    let elected = world.now;
    assert_eq!(world.leader.loads.measured(hot), None);
    tell(&mut world, 40, load);
    assert_eq!(world.drains_since(elected), []);
    assert!(world.leader.loads.measured(hot).is_some_and(|load| load > 900));
    // A control: by count it is not balanced, and that is done at once.
    let (orders, change) =
        (world.orders(), PolicyChange { balance_by: Some(BalanceBy::Count), ..Default::default() });
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]);
    world.pass(2_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (4, 4));
    assert_eq!(world.leader.loads.measured(hot), None, "nobody asks for loads any more");
}

#[test]
fn repairs_and_what_operators_demand_do_not_wait_for_loads() {
    let mut world = World::of(6, &["a", "b"], by_load());
    let key = world.owned_by("a")[0];
    let change = PartitionChange { pin: Some(Some(WorkerId::new("b").unwrap())), ..Default::default() };
    world.apply(vec![Command::SetPartition { partition: key, change }]);
    world.pass(2_000);
    assert_eq!(world.owner(key), Some("b"));
    world.kill("a");
    world.pass(super::world::TTL + 1_000);
    assert_eq!(world.spread()["b"], 6);
}

#[test]
fn where_nobody_measures_balancing_is_by_count_after_a_while() {
    let mut world = World::of(6, &["a"], by_load());
    let orders = world.orders();
    world.join("b", &[orders]);
    let joined = world.now;
    world.pass(5 * every());
    assert_eq!(world.drains_since(joined), []);
    world.pass(5 * every());
    assert_eq!((world.spread()["a"], world.spread()["b"]), (3, 3));
    assert!(reasons_since(&world, joined).iter().all(|why| *why == GrantReason::Join));
}

#[test]
fn a_worker_that_joins_gets_its_share_of_the_load() {
    let mut world = World::of(12, &["a"], by_load());
    let load = |partition| 100 + u64::from(partition % 3) * 100;
    tell(&mut world, 5, load);
    let orders = world.orders();
    world.join("b", &[orders]);
    let joined = world.now;
    world.pass(2_000);
    assert!(reasons_since(&world, joined).iter().all(|why| *why == GrantReason::Join));
    let held: u64 = world.owned_by("b").iter().map(|key| load(key.partition.get())).sum();
    assert!((1_080..=1_320).contains(&held), "of 2400, and a tenth of the mean is within: {held}");
}

#[test]
fn a_weight_that_an_operator_set_goes_before_what_is_measured() {
    let mut world = World::of(4, &["a", "b"], by_load());
    let key = world.owned_by("a")[0];
    let change = PartitionChange { weight: Some(Some(3)), ..Default::default() };
    world.apply(vec![Command::SetPartition { partition: key, change }]);
    tell(&mut world, 4, |_| 96);
    let keyspace = world.state.keyspace(key.keyspace).unwrap();
    let every = Settings::default().measure_every;
    let weights = world.leader.loads.weights(at(world.now), every, keyspace);
    let loads = weights.loads.unwrap();
    assert_eq!(loads[key.partition.get() as usize], 3 * 96, "it counts as three others");
    assert_eq!(world.leader.loads.source(keyspace, key.partition), LoadSource::Set);
    assert_eq!(weights.waits_until, None);
}

#[test]
fn f096_only_the_owner_is_heard_at_the_pace_asked_for_and_within_bounds() {
    let mut world = World::of(4, &["a", "b"], by_load());
    let more = world.create("more", 2, policy());
    let (mine, other) = (world.owned_by("a")[0], world.owned_by("b")[0]);
    let liar = world.session("a");
    let nowhere = PartitionKey { keyspace: mine.keyspace, partition: PartitionId::new(99) };
    let gone = PartitionKey { keyspace: KeyspaceId::new(77), partition: PartitionId::new(0) };
    let counted = PartitionKey { keyspace: more, partition: PartitionId::new(0) };
    for _ in 0..10 {
        world.pass(every());
        for key in [other, nowhere, gone, counted] {
            world.leader.measure(at(world.now), &world.state, liar, key, u64::MAX);
        }
    }
    assert!([other, nowhere, gone, counted].iter().all(|key| world.leader.loads.measured(*key).is_none()));

    // As often as it likes, and it counts once.
    for _ in 0..1_000 {
        world.leader.measure(at(world.now), &world.state, liar, mine, 100);
    }
    assert_eq!(world.leader.loads.measured(mine), None);
    for _ in 0..3 {
        world.pass(every());
        world.leader.measure(at(world.now), &world.state, liar, mine, 100);
    }
    let before = world.leader.loads.measured(mine);
    assert_eq!(before, Some(100));
    world.pass(every());
    for _ in 0..1_000 {
        world.leader.measure(at(world.now), &world.state, liar, mine, u64::MAX);
    }
    let after = world.leader.loads.measured(mine).unwrap();
    assert!(after < MAX_LOAD / 4, "an eighth of the largest: {after}");
}

#[test]
fn a_load_stays_with_its_partition_when_that_moves_or_is_lost() {
    let mut world = World::of(2, &["a", "b"], by_load());
    let key = world.owned_by("a")[0];
    tell(&mut world, 5, |_| 320);
    world.kill("a");
    world.pass(super::world::TTL + 1_000);
    assert_eq!(world.owner(key), Some("b"));
    assert_eq!(world.leader.loads.measured(key), Some(320));
}
