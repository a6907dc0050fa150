//! Balancing: when it begins, how much of it runs at once, and that it comes to an end.

use super::world::{TTL, World, ms, policy};
use crate::lead::Settings;
use crate::state::{Command, Outcome, Phase, PolicyChange};

fn settle() -> u64 {
    Settings::default().settle.as_millis() as u64
}

fn budget(moves: u32) -> PolicyChange {
    PolicyChange { max_moves_in_flight: Some(moves), ..policy() }
}

fn in_flight(world: &World) -> usize {
    let waits = |phase: &Phase| matches!(phase, Phase::Draining(_) | Phase::Owned { ready: false, .. });
    world.keys().into_iter().filter(|key| waits(world.phase(*key))).count()
}

#[test]
fn f090_workers_that_join_together_cause_one_round_of_moves() {
    let mut world = World::of(24, &["a"], policy());
    let orders = world.orders();
    let began = world.now;
    for name in ["b", "c", "d"] {
        world.join(name, &[orders]);
        world.pass(settle() - 100);
        assert_eq!(world.drains_since(began), []);
    }
    world.pass(1_000);
    assert!(world.spread().values().all(|owned| *owned == 6), "{:?}", world.spread());
    assert_eq!(world.drains_since(began).len(), 18, "the fewest there are");
}

#[test]
fn members_that_come_and_go_without_a_pause_do_not_stop_balancing_for_good() {
    let mut world = World::of(12, &["a"], policy());
    let orders = world.orders();
    let began = world.now;
    for i in 0..40 {
        world.join(&format!("x{i}"), &[orders]);
        world.pass(settle() - 100);
    }
    assert!(!world.drains_since(began).is_empty());
    assert!(world.drains_since(began).len() < 60, "{}", world.drains_since(began).len());
}

#[test]
fn a_new_leader_repairs_at_once_and_balances_after_it_has_settled() {
    let mut world = World::of(8, &["a"], policy());
    let (orders, more) = (world.orders(), world.create("more", 2, policy()));
    world.join("b", &[orders, more]);
    world.elect(300);
    let began = world.now;
    world.pass(settle() - 50);
    assert_eq!((world.grants_since(began).len(), world.drains_since(began).len()), (2, 0));
    world.pass(50);
    assert_eq!(world.drains_since(began).len(), 4);
}

#[test]
fn f100_moves_run_within_the_budget_until_the_new_owner_is_ready() {
    let mut world = World::of(24, &["a"], budget(3));
    let orders = world.orders();
    world.join("b", &[orders]);
    world.worker("b").says_ready = false;
    world.worker("a").releases = false;
    let began = world.now;
    world.pass(1_000);
    assert_eq!((in_flight(&world), world.drains_since(began).len()), (3, 3));
    world.worker("a").releases = true;
    world.pass(1_000);
    assert_eq!((in_flight(&world), world.spread()["b"]), (3, 3), "granted is not ready");
    world.worker("b").says_ready = true;
    world.pass(5_000);
    assert_eq!((world.spread()["a"], world.spread()["b"], in_flight(&world)), (12, 12, 0));
    assert_eq!(world.drains_since(began).len(), 12);
}

#[test]
fn f092_with_steady_membership_moves_go_to_zero_and_stay_there() {
    let mut world = World::of(60, &["w0"], policy());
    let orders = world.orders();
    for count in 1..7 {
        world.join(&format!("w{count}"), &[orders]);
        world.pass(3_000);
        let settled = world.now;
        world.pass(60_000);
        assert_eq!((world.drains_since(settled).len(), world.grants_since(settled).len()), (0, 0));
        let spread = world.spread();
        assert!(spread.values().max().unwrap() - spread.values().min().unwrap() <= 1, "{spread:?}");
    }
    // Nor does a new leader think otherwise.
    world.elect(500);
    let settled = world.now;
    world.pass(10_000);
    assert_eq!(world.drains_since(settled), []);
}

#[test]
fn f055_f081_drains_that_did_not_take_effect_come_again() {
    let mut world = World::of(4, &["a"], policy());
    let orders = world.orders();
    world.join("b", &[orders]);
    world.pass(settle() - 50);
    world.now += 50;
    let entries = world.due();
    assert!(matches!(entries[..], [ref drains] if drains.len() == 2));
    // Lost on the way.
    assert_eq!(world.due(), entries);
    // One of the two has been given back meanwhile: the other one moves all the same.
    let Command::Drain { partition, .. } = entries[0][1] else { panic!("{entries:?}") };
    world.give_back(partition, crate::state::Released::Revoked);
    let outcomes = world.apply(entries[0].clone()).outcome.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Draining(_), Outcome::Unchanged]), "{outcomes:?}");
    world.pass(1_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 2));
}

#[test]
fn a_keyspace_that_is_not_balanced_by_itself_is_left_alone_until_it_is() {
    let mut world = World::of(6, &["a"], PolicyChange { balance: Some(false), ..policy() });
    let orders = world.orders();
    world.join("b", &[orders]);
    world.pass(10_000);
    assert_eq!(world.spread()["b"], 0);
    let change = PolicyChange { balance: Some(true), ..Default::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]);
    world.pass(1_000);
    assert_eq!(world.spread()["b"], 3);
}

#[test]
fn an_operator_s_move_is_not_balanced_back_within_its_cool_down() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (key, cool_down) = (world.owned_by("a")[0], Settings::default().cool_down.as_millis() as u64);
    world.drain(key, "b", TTL);
    world.pass(0);
    assert_eq!(world.owner(key), Some("b"));
    let moved = world.now;
    world.pass(cool_down - 100);
    assert_eq!(world.owner(key), Some("b"));
    // Another one went the other way, for the workers are to be alike; and then there was rest.
    assert_eq!(world.drains_since(moved + 50), [], "one move in exchange, at once");
    world.pass(1_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 2));
}

#[test]
fn when_everything_was_moved_by_an_operator_balancing_waits_for_the_cool_down() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (a, b) = (world.owned_by("a"), world.owned_by("b"));
    // There and back, so that each of them was moved.
    for (keys, to) in [(&b, "a"), (&b, "b"), (&a, "b")] {
        keys.iter().for_each(|key| world.drain(*key, to, TTL));
        world.pass(0);
    }
    let moved = world.now;
    let cool_down = Settings::default().cool_down.as_millis() as u64;
    world.pass(cool_down - 50);
    assert_eq!((world.spread()["a"], world.drains_since(moved + 50).len()), (0, 0));
    world.pass(1_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 2));
}

#[test]
fn f080_a_suspected_worker_is_neither_source_nor_target_of_a_move_that_can_wait() {
    let mut world = World::of(12, &["a", "b"], policy());
    let orders = world.orders();
    world.silence("b");
    world.pass(TTL / 3);
    let began = world.now;
    world.join("c", &[orders]);
    world.pass(TTL / 3);
    assert_eq!((world.spread()["a"], world.spread()["b"], world.spread()["c"]), (3, 6, 3));
    assert!(world.drains_since(began).iter().all(|key| world.owner(*key) == Some("c")));
    world.pass(TTL);
    assert_eq!((world.spread()["a"], world.spread()["c"]), (6, 6));
}

#[test]
fn f064_a_move_in_flight_whose_target_died_is_not_moved_again() {
    let mut world = World::of(6, &["a", "b", "c"], policy());
    let key = world.owned_by("a")[0];
    world.worker("a").releases = false;
    world.drain(key, "c", 60_000);
    world.kill("c");
    world.pass(TTL + 1_000);
    assert!(matches!(world.phase(key), Phase::Draining(_)), "{:?}", world.phase(key));
    world.worker("a").releases = true;
    world.pass(1_000);
    assert!(matches!(world.phase(key), Phase::Owned { ready: true, .. }));
    assert_eq!((world.spread()["a"], world.spread()["b"]), (3, 3));
}

#[test]
fn f023_f104_a_plan_that_cannot_be_made_changes_nothing_and_is_shown_until_one_can() {
    let mut world = World::of(4, &["a"], policy());
    let orders = world.orders();
    let name = world.state.keyspace(orders).unwrap().name().clone();
    let hidden = std::mem::take(&mut world.state.keyspaces.get_mut(&orders).unwrap().partitions);
    world.join("b", &[orders]);
    world.now += 500;
    for _ in 0..10 {
        assert_eq!(world.due(), Vec::<Vec<Command>>::new());
        world.now += 50;
    }
    let errors: Vec<_> = world.leader.placing.errors().map(|(id, error)| (id, error.to_string())).collect();
    assert!(
        matches!(&errors[..], [(id, error)] if *id == orders && error.contains("partitions")),
        "{errors:?}"
    );
    world.state.keyspaces.get_mut(&orders).unwrap().partitions = hidden;
    world.pass(2_000);
    assert_eq!(world.leader.placing.errors().count(), 0);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 2), "{name}");
}

#[test]
fn an_operator_s_move_keeps_its_cool_down_under_the_next_leader() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (a, b) = (world.owned_by("a"), world.owned_by("b"));
    for (keys, to) in [(&b, "a"), (&b, "b"), (&a, "b")] {
        keys.iter().for_each(|key| world.drain(*key, to, TTL));
        world.pass(0);
    }
    world.elect(300);
    let (led, cool_down) = (world.now, Settings::default().cool_down.as_millis() as u64);
    world.pass(cool_down - 50);
    assert_eq!((world.spread()["a"], world.drains_since(led)), (0, vec![]), "a new leader counts in full");
    world.pass(1_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (2, 2));
}

#[test]
fn one_stuck_owner_holds_up_the_moves_of_others_for_a_drain_deadline_at_the_most() {
    let change = PolicyChange { drain_deadline: Some(ms(5_000)), ..budget(4) };
    let mut world = World::of(12, &["a", "b"], change);
    let orders = world.orders();
    world.join("c", &[orders]);
    world.worker("c").says_ready = false;
    world.pass(2_000);
    assert_eq!((world.spread()["c"], in_flight(&world)), (4, 4), "the whole budget");
    world.join("d", &[orders]);
    world.pass(2_000);
    assert_eq!(world.spread()["d"], 0);
    world.pass(3_000);
    assert_eq!(world.spread()["d"], 2, "what is ready at `a` and `b` is balanced again");
    let before = world.owned_by("c");
    world.pass(20_000);
    assert_eq!(world.owned_by("c"), before, "nobody is balanced away from an owner that loads");
}

#[test]
fn what_is_new_about_a_worker_goes_with_its_session() {
    let mut world = World::of(6, &["a"], PolicyChange { balance: Some(false), ..policy() });
    let orders = world.orders();
    let session = world.join("b", &[orders]);
    world.pass(1_000);
    let news = |world: &World| world.leader.placing.news(orders).map_or(0, std::collections::BTreeMap::len);
    assert_eq!(news(&world), 1, "nothing is balanced, so it is new still");
    world.silence("b");
    world.apply(vec![Command::Leave { session }]);
    assert_eq!(news(&world), 0);
}

#[test]
fn moves_of_balancing_that_did_not_take_effect_spend_nothing_of_the_minute() {
    let mut world = World::of(8, &["a"], PolicyChange { moves_per_minute: Some(4), ..policy() });
    let orders = world.orders();
    world.join("b", &[orders]);
    world.pass(settle() - 50);
    world.now += 50;
    let entries = world.due();
    for _ in 0..5 {
        assert_eq!(world.due(), entries);
    }
    world.pass(1_000);
    assert_eq!((world.spread()["a"], world.spread()["b"]), (4, 4));
}
