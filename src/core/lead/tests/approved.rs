//! A plan that an operator approved is carried out within the budgets, whoever leads.

use super::world::{TTL, World, at, ms, policy};
use crate::ids::{LogIndex, SessionId, WorkerId};
use crate::lead::{Hindrance, Prospect, Settings, Unfit, prospect};
use crate::state::{
    ApprovedPlan, Command, Course, GrantReason, Outcome, PartitionChange, Phase, PlanMove, PlanStage,
    PlanStep, PolicyChange, Released, SkipReason, Subject, WorkerChange,
};
use std::collections::BTreeSet;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn manual(change: PolicyChange) -> PolicyChange {
    PolicyChange { balance: Some(false), ..change }
}

/// A keyspace of which `a` has all, `b` and `c` have nothing, and nobody balances.
fn world(partitions: u32, change: PolicyChange) -> World {
    let mut world = World::of(partitions, &["a"], manual(change));
    let orders = world.orders();
    world.join("b", &[orders]);
    world.join("c", &[orders]);
    world.pass(1_000);
    world
}

/// Approves the moves of these partitions from `a` to `to`.
fn approve(world: &mut World, partitions: impl Iterator<Item = u32>, to: &str) -> LogIndex {
    let moves: Vec<PlanMove> = partitions
        .map(|n| PlanMove {
            partition: world.key(n),
            epoch: world.epoch(world.key(n)),
            from: worker("a"),
            to: worker(to),
            arrives: false,
            step: PlanStep::Waiting,
        })
        .collect();
    let size = u32::try_from(moves.len()).unwrap();
    let outcome = world.apply(vec![Command::OpenPlan { size, map: None, undoes: None }]).outcome.unwrap();
    let [Outcome::Planned(plan)] = outcome[..] else { panic!("{outcome:?}") };
    world.apply(vec![Command::ExtendPlan { plan, moves }]).outcome.unwrap();
    plan
}

fn steps(world: &World, plan: LogIndex) -> Vec<PlanStep> {
    let plan = world.state.plans().find(|p| p.id == plan).unwrap();
    plan.moves.iter().map(|planned| planned.step).collect()
}

fn stage(world: &World) -> PlanStage {
    world.state.plans().last().unwrap().stage
}

#[test]
fn f100_an_approved_plan_runs_within_the_budget_to_its_end_and_names_itself() {
    let mut world = world(12, PolicyChange { max_moves_in_flight: Some(2), ..policy() });
    world.worker("a").releases = false;
    let began = world.now;
    let plan = approve(&mut world, 0..6, "b");
    world.pass(300);
    assert_eq!(world.drains_since(began), [world.key(0), world.key(1)]);
    world.worker("a").releases = true;
    world.pass(3_000);
    assert_eq!((stage(&world), world.spread()["b"], world.spread()["a"]), (PlanStage::Done, 6, 6));
    for n in 0..6 {
        let last = world.state.partition(world.key(n)).unwrap().history().last().unwrap();
        assert_eq!(last.directive, Some(plan));
    }
    let ended = world.now;
    world.pass(20_000);
    assert_eq!(world.drains_since(ended), [], "and then it is quiet");
}

#[test]
fn f055_an_approved_plan_survives_its_leader() {
    let mut world = world(30, PolicyChange { max_moves_in_flight: Some(1), ..policy() });
    approve(&mut world, 0..30, "b");
    world.worker("a").releases = false;
    for _ in 0..4 {
        world.pass(60);
        world.elect(300);
    }
    assert_ne!(stage(&world), PlanStage::Done, "it was cut short");
    world.worker("a").releases = true;
    world.pass(10_000);
    assert_eq!((stage(&world), world.spread()["b"]), (PlanStage::Done, 30));
}

#[test]
fn f064_f077_one_stuck_move_holds_up_no_other_and_a_dead_target_is_passed_over() {
    let mut world = world(8, PolicyChange { max_moves_in_flight: Some(2), ..policy() });
    let (a, key) = (world.session("a"), world.key(0));
    // The first one has moved on meanwhile.
    let plan = approve(&mut world, 0..4, "b");
    let epoch = world.epoch(key);
    world.apply(vec![Command::Release {
        partition: key,
        epoch,
        session: a,
        how: crate::state::Released::Revoked,
    }]);
    world.pass(2_000);
    let skipped = PlanStep::Skipped(SkipReason::MovedOn);
    assert_eq!(steps(&world, plan), [skipped, PlanStep::Begun, PlanStep::Begun, PlanStep::Begun]);

    let plan = approve(&mut world, 4..6, "c");
    let gone = world.session("c");
    world.apply(vec![Command::Leave { session: gone }]);
    world.pass(1_000);
    assert_eq!(steps(&world, plan), [PlanStep::Skipped(SkipReason::TargetGone); 2]);
    assert_eq!(stage(&world), PlanStage::Done);
}

/// It has an owner again, and the very one from which the plan would take it; only the epoch says that it is not the same
/// ownership any more.
#[test]
fn moves_that_were_overtaken_are_passed_over_and_the_others_begin() {
    let mut world = world(8, PolicyChange { max_moves_in_flight: Some(1), ..policy() });
    world.worker("a").releases = false;
    let overtaken = world.key(1);
    let pin = PartitionChange { pin: Some(Some(worker("a"))), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: overtaken, change: pin }]);
    let plan = approve(&mut world, 0..4, "b");
    world.pass(200);
    assert_eq!(steps(&world, plan)[..2], [PlanStep::Begun, PlanStep::Waiting]);
    let before = world.epoch(overtaken);
    world.give_back(overtaken, Released::Revoked);
    world.pass(200);
    assert!(world.owner(overtaken) == Some("a") && world.epoch(overtaken) > before);
    world.worker("a").releases = true;
    world.pass(3_000);
    let skipped = PlanStep::Skipped(SkipReason::MovedOn);
    assert_eq!(steps(&world, plan), [PlanStep::Begun, skipped, PlanStep::Begun, PlanStep::Begun]);
    assert_eq!((stage(&world), world.spread()["b"], world.owner(overtaken)), (PlanStage::Done, 3, Some("a")));
}

#[test]
fn a_freeze_of_the_keyspace_pauses_a_plan_and_a_frozen_worker_is_passed_over() {
    let mut world = world(8, policy());
    let orders = world.orders();
    world.apply(vec![Command::Freeze { keyspace: Some(orders), frozen: true }]);
    let plan = approve(&mut world, 0..2, "b");
    let began = world.now;
    world.pass(5_000);
    assert_eq!(world.drains_since(began), []);
    world.apply(vec![Command::Freeze { keyspace: Some(orders), frozen: false }]);
    world.pass(1_000);
    assert_eq!(steps(&world, plan), [PlanStep::Begun; 2]);

    let change = WorkerChange { frozen: Some(true), ..WorkerChange::default() };
    world.apply(vec![Command::SetWorker { worker: worker("c"), change }]);
    let plan = approve(&mut world, 2..4, "c");
    world.pass(1_000);
    assert_eq!(steps(&world, plan), [PlanStep::Skipped(SkipReason::Frozen); 2]);
}

/// A pin goes before what was approved earlier, and one whose worker may have nothing holds nothing up.
#[test]
fn a_move_of_what_was_pinned_elsewhere_meanwhile_is_passed_over() {
    let mut world = world(8, PolicyChange { max_moves_in_flight: Some(1), ..policy() });
    world.worker("a").releases = false;
    let plan = approve(&mut world, 0..4, "b");
    world.pass(200);
    for (partition, to) in [(1, "a"), (2, "b"), (3, "nobody")] {
        let pin = PartitionChange { pin: Some(Some(worker(to))), ..PartitionChange::default() };
        let partition = world.key(partition);
        world.apply(vec![Command::SetPartition { partition, change: pin }]).outcome.unwrap();
    }
    world.worker("a").releases = true;
    world.pass(3_000);
    let skipped = PlanStep::Skipped(SkipReason::Pinned);
    assert_eq!(steps(&world, plan), [PlanStep::Begun, skipped, PlanStep::Begun, PlanStep::Begun]);
    assert_eq!((world.owner(world.key(1)), world.owner(world.key(3))), (Some("a"), Some("b")));
}

/// What is told of a plan before it is approved, and of one that is carried out.
#[test]
fn what_would_become_of_a_move_names_all_that_stands_in_the_way() {
    let on = Some(true);
    let with = |world: &World, to: &str, absent: &BTreeSet<SessionId>| {
        let partition = world.key(0);
        let (epoch, from, to) = (world.epoch(partition), worker("a"), worker(to));
        let planned = PlanMove { partition, epoch, from, to, arrives: false, step: PlanStep::Waiting };
        prospect(&world.state, &planned, absent)
    };
    let of = |world: &World, to: &str| with(world, to, &BTreeSet::new());
    let mut world = world(4, policy());
    let (orders, key) = (world.orders(), world.key(0));
    assert_eq!(of(&world, "b"), Prospect::Begins(world.epoch(key)));
    let nobody = Hindrance::NoSession(worker("x"));
    assert_eq!(of(&world, "x"), Prospect::PassedOver(SkipReason::TargetGone, nobody));
    let pin = PartitionChange { pin: Some(Some(worker("c"))), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: key, change: pin }]).outcome.unwrap();
    let pinned = Hindrance::Pinned(worker("c"));
    assert_eq!(of(&world, "b"), Prospect::PassedOver(SkipReason::Pinned, pinned));
    let pin_away = Hindrance::PinAway(worker("c"), Unfit::Absent);
    assert_eq!(with(&world, "b", &BTreeSet::from([world.session("c")])), Prospect::Waits(pin_away));
    for (keyspace, what) in [(Some(orders), Subject::Keyspace(orders)), (None, Subject::Cluster)] {
        world.apply(vec![Command::Freeze { keyspace, frozen: true }]).outcome.unwrap();
        assert_eq!(of(&world, "c"), Prospect::Waits(Hindrance::Frozen(what)));
    }
    let change = WorkerChange { drained: on, cordoned: on, ..WorkerChange::default() };
    world.apply(vec![Command::SetWorker { worker: worker("c"), change }]).outcome.unwrap();
    let both = Hindrance::Unfit(worker("c"), vec![Unfit::Drained, Unfit::Cordoned]);
    assert_eq!(of(&world, "c"), Prospect::PassedOver(SkipReason::TargetGone, both));
    let of_partition = PartitionChange { frozen: on, ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: key, change: of_partition }]).outcome.unwrap();
    for keyspace in [Some(orders), None] {
        world.apply(vec![Command::Freeze { keyspace, frozen: false }]).outcome.unwrap();
    }
    let frozen = Hindrance::Frozen(Subject::Partition(key));
    assert_eq!(of(&world, "b"), Prospect::PassedOver(SkipReason::Frozen, frozen));
    world.give_back(key, Released::Revoked);
    world.pass(1_000);
    let stale = PlanMove {
        partition: key,
        epoch: world.epoch(world.key(1)),
        from: worker("b"),
        to: worker("a"),
        arrives: false,
        step: PlanStep::Waiting,
    };
    let moved_on = Prospect::PassedOver(SkipReason::MovedOn, Hindrance::MovedOn);
    assert_eq!(prospect(&world.state, &stale, &BTreeSet::new()), moved_on);
}

#[test]
fn a_bound_on_moves_in_a_minute_holds_for_a_plan() {
    let mut world = world(10, PolicyChange { moves_per_minute: Some(4), ..policy() });
    let began = world.now;
    approve(&mut world, 0..10, "b");
    world.pass(55_000);
    assert_eq!(world.drains_since(began).len(), 4);
    world.pass(10_000);
    assert_eq!(world.drains_since(began).len(), 8);
    world.pass(70_000);
    assert_eq!(world.drains_since(began).len(), 10);
}

#[test]
fn f055_f081_moves_of_a_plan_that_did_not_take_effect_come_again() {
    let mut world = world(4, policy());
    approve(&mut world, 0..2, "b");
    let entries = world.due();
    assert!(matches!(entries[..], [ref moves] if moves.len() == 3), "the directive and two drains");
    // Lost on the way, and nothing else happens.
    assert_eq!(world.due(), entries);
    world.pass(1_000);
    assert_eq!((stage(&world), world.spread()["b"]), (PlanStage::Done, 2));
}

#[test]
fn f100_a_plan_and_balancing_share_one_budget() {
    let budget = PolicyChange { max_moves_in_flight: Some(2), ..policy() };
    let mut world = World::of(12, &["a"], budget);
    let orders = world.orders();
    world.join("b", &[orders]);
    let settle = Settings::default().settle.as_millis() as u64;
    world.pass(settle - 50);
    // In the same moment there is a plan, and balancing is due.
    world.now += 50;
    approve(&mut world, 0..6, "b");
    let entries = world.due();
    let drains = entries.iter().flatten().filter(|command| matches!(command, Command::Drain { .. }));
    assert_eq!(drains.count(), 2, "{entries:?}");
}

#[test]
fn a_plan_s_target_that_takes_nothing_any_more_is_passed_over() {
    let mut world = world(8, policy());
    let drained = WorkerChange { drained: Some(true), ..WorkerChange::default() };
    world.apply(vec![Command::SetWorker { worker: worker("c"), change: drained }]);
    let plan = approve(&mut world, 0..2, "c");
    world.pass(1_000);
    assert_eq!(steps(&world, plan), [PlanStep::Skipped(SkipReason::TargetGone); 2]);
    let constraints = Some(vec!["disk=ssd".parse().unwrap()]);
    let change = PolicyChange { constraints, ..PolicyChange::default() };
    let orders = world.orders();
    let plan = approve(&mut world, 2..4, "b");
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]);
    world.pass(1_000);
    assert_eq!(steps(&world, plan), [PlanStep::Skipped(SkipReason::TargetGone); 2], "its labels do not fit");
}

#[test]
fn under_the_brake_no_move_of_a_plan_begins() {
    let mut world = world(8, policy());
    let orders = world.orders();
    let lost = ["w", "x", "y", "z"];
    for name in lost {
        world.join(name, &[orders]);
    }
    world.pass(1_000);
    lost.iter().for_each(|name| world.kill(name));
    while lost.iter().any(|name| world.lives(name)) {
        world.pass(50);
    }
    approve(&mut world, 0..4, "b");
    let began = world.now;
    while world.leader.placing.braked(at(world.now), &world.state) {
        assert_eq!(world.drains_since(began), []);
        world.pass(50);
    }
    assert!(world.now > began, "it was braked");
    world.pass(1_000);
    assert_eq!((stage(&world), world.spread()["b"]), (PlanStage::Done, 4));
}

#[test]
fn f100_a_plan_and_the_grants_of_one_look_share_one_budget() {
    let mut world = world(8, PolicyChange { max_moves_in_flight: Some(2), ..policy() });
    world.give_back(world.key(7), Released::Revoked);
    approve(&mut world, 0..4, "b");
    let entries = world.due();
    let count = |is: fn(&Command) -> bool| entries.iter().flatten().filter(|command| is(command)).count();
    assert_eq!(count(|command| matches!(command, Command::Grant { .. })), 1);
    assert_eq!(count(|command| matches!(command, Command::Drain { .. })), 1, "{entries:?}");
}

#[test]
fn moves_that_did_not_take_effect_spend_nothing_of_the_minute() {
    let mut world = world(10, PolicyChange { moves_per_minute: Some(4), ..policy() });
    approve(&mut world, 0..4, "b");
    let entries = world.due();
    for _ in 0..5 {
        assert_eq!(world.due(), entries, "lost on the way, it comes again");
    }
    // The owner of one of them has given it back meanwhile, and the others begin.
    world.give_back(world.key(0), Released::Revoked);
    for entry in entries {
        world.apply(entry).outcome.unwrap();
    }
    world.pass(1_000);
    assert_eq!((stage(&world), world.spread()["b"]), (PlanStage::Done, 3));
    let began = world.now;
    approve(&mut world, 5..7, "c");
    world.pass(1_000);
    assert_eq!(world.drains_since(began).len(), 1, "three have begun in this minute, and one more may");
}

#[test]
fn a_plan_wakes_when_its_target_s_session_ends_although_that_held_nothing() {
    for election in [false, true] {
        let mut world = world(4, policy());
        world.silence("b");
        world.pass(TTL / 3 + 100);
        let plan = approve(&mut world, 0..2, "b");
        world.pass(100);
        assert_eq!(steps(&world, plan), [PlanStep::Waiting; 2], "nobody knows whether it is there");
        if election {
            world.elect(300);
        }
        world.pass(2 * TTL);
        assert!(!world.lives("b"));
        assert_eq!(steps(&world, plan), [PlanStep::Skipped(SkipReason::TargetGone); 2], "{election}");
    }
}

#[test]
fn a_plan_takes_from_an_owner_that_never_gets_ready() {
    let change = PolicyChange { drain_deadline: Some(ms(3_000)), max_moves_in_flight: Some(2), ..policy() };
    let mut world = world(8, change);
    world.worker("b").says_ready = false;
    approve(&mut world, 0..2, "b");
    world.pass(1_000);
    assert_eq!(world.spread()["b"], 2);
    let moves: Vec<PlanMove> = world
        .owned_by("b")
        .into_iter()
        .map(|partition| PlanMove {
            partition,
            epoch: world.epoch(partition),
            from: worker("b"),
            to: worker("c"),
            arrives: false,
            step: PlanStep::Waiting,
        })
        .collect();
    let outcome = world.apply(vec![Command::OpenPlan { size: 2, map: None, undoes: None }]).outcome.unwrap();
    let [Outcome::Planned(plan)] = outcome[..] else { panic!("{outcome:?}") };
    world.apply(vec![Command::ExtendPlan { plan, moves }]).outcome.unwrap();
    world.pass(5_000);
    assert_eq!((stage(&world), world.spread()["b"], world.spread()["c"]), (PlanStage::Done, 0, 2));
}

/// What is on its way is taken back too: from where it arrives, and not from where it is.
#[test]
fn a_plan_takes_back_what_is_still_on_its_way_when_it_has_arrived() {
    let mut world = world(6, PolicyChange { drain_deadline: Some(ms(20_000)), ..policy() });
    world.worker("a").releases = false;
    let there = approve(&mut world, 0..2, "b");
    world.pass(1_000);
    let keys = [world.key(0), world.key(1)];
    assert!(keys.iter().all(|key| matches!(world.phase(*key), Phase::Draining(_))));
    assert_eq!(courses(&world, there), [Course::Moving, Course::Moving]);
    assert_eq!((stage(&world), world.state.moving(last_plan(&world))), (PlanStage::Done, 2));
    let moves = keys.map(|partition| PlanMove {
        partition,
        epoch: world.epoch(partition),
        from: worker("b"),
        to: worker("a"),
        arrives: true,
        step: PlanStep::Waiting,
    });
    let undoes = Some(there);
    let open = Command::OpenPlan { size: 2, map: None, undoes };
    let outcome = world.apply(vec![open]).outcome.unwrap();
    let [Outcome::Planned(back)] = outcome[..] else { panic!("{outcome:?}") };
    world.apply(vec![Command::ExtendPlan { plan: back, moves: moves.to_vec() }]).outcome.unwrap();
    world.elect(300);
    world.pass(2_000);
    assert_eq!((stage(&world), last_plan(&world).undoes), (PlanStage::Running, undoes));
    assert_eq!(courses(&world, back), [Course::Waiting, Course::Waiting], "they have not arrived");

    world.worker("a").releases = true;
    world.pass(3_000);
    assert_eq!((stage(&world), world.state.moving(last_plan(&world))), (PlanStage::Done, 0));
    assert_eq!(courses(&world, back), [Course::There, Course::There]);
    let gone = Course::Elsewhere { owner: Some(worker("a")), first: Some(worker("b")) };
    assert_eq!(courses(&world, there), [gone.clone(), gone]);
    for key in keys {
        let [.., arrived, last] = world.state.partition(key).unwrap().history() else { panic!("{key}") };
        assert_eq!((&arrived.worker, arrived.directive), (&worker("b"), Some(there)));
        assert_eq!((&last.worker, last.directive, last.why), (&worker("a"), Some(back), GrantReason::Plan));
    }
}

#[test]
fn what_was_to_arrive_and_went_elsewhere_is_passed_over() {
    let mut world = world(6, PolicyChange { drain_deadline: Some(ms(20_000)), ..policy() });
    world.worker("a").releases = false;
    approve(&mut world, 0..1, "b");
    world.pass(1_000);
    let partition = world.key(0);
    let (epoch, from, to) = (world.epoch(partition), worker("b"), worker("a"));
    let moves = vec![PlanMove { partition, epoch, from, to, arrives: true, step: PlanStep::Waiting }];
    let open = Command::OpenPlan { size: 1, map: None, undoes: None };
    let outcome = world.apply(vec![open]).outcome.unwrap();
    let [Outcome::Planned(back)] = outcome[..] else { panic!("{outcome:?}") };
    world.apply(vec![Command::ExtendPlan { plan: back, moves }]).outcome.unwrap();
    world.kill("b");
    world.worker("a").releases = true;
    world.pass(1_000);
    // The target is gone, or is soon found to be.
    world.pass(2 * TTL);
    assert!(world.owner(partition).is_some_and(|owner| owner != "b"));
    assert_ne!(stage(&world), PlanStage::Running, "{:?}", courses(&world, back));
}

fn last_plan(world: &World) -> &ApprovedPlan {
    world.state.plans().last().unwrap()
}

fn courses(world: &World, plan: LogIndex) -> Vec<Course> {
    let plan = world.state.plans().find(|p| p.id == plan).unwrap();
    plan.moves.iter().map(|planned| world.state.course(planned)).collect()
}
