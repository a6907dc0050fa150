//! Fences that are raised again, and storage that has seen more than was granted.

use super::random::{entry, throws};
use super::world::{World, drain, epoch, release, secs, worker};
use crate::ids::{Epoch, EpochFloor, LogIndex, PartitionId, PartitionKey, SessionId};
use crate::state::{
    Command, GrantReason, MAX_ABOVE_JUMP, MAX_SEEN_JUMP, Outcome, PartitionChange, Phase, PolicyChange,
    REASSERTS_LEN, Reassert, Reasserted, Refused, Released, State, Subject, WorkerChange,
};
use proptest::prelude::*;

fn behind(partition: PartitionKey, epoch: Epoch, session: SessionId, seen: u64) -> Command {
    let how = Released::Behind(Epoch::new(seen).unwrap());
    Command::Release { partition, epoch, session, how }
}

fn order(key: PartitionKey, one: bool) -> Command {
    Command::Reassert { keyspace: key.keyspace, partition: one.then_some(key.partition) }
}

fn last_order(world: &World) -> Reassert {
    world.state.reasserts().last().expect("an order").clone()
}

fn stands(world: &World, key: PartitionKey) -> Reasserted {
    world.state.reasserted(&last_order(world), key)
}

#[test]
fn f018_storage_that_has_seen_more_raises_the_floor_and_the_next_epoch_is_above_it() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    world.ok(behind(key, first, a, 150));
    assert_eq!(
        world.state.keyspace(key.keyspace).unwrap().raised(key.partition).map(EpochFloor::get),
        Some(150)
    );
    assert_eq!(world.phase(key), &Phase::Vacant, "once may be a restore, and it is granted again at once");
    let setback = world.partition(key).setback().unwrap();
    assert_eq!((setback.count, &setback.worker), (1, &worker("a")));
    assert!(setback.error.contains("e1") && setback.error.contains("e150"), "{}", setback.error);
    assert_eq!(world.grant(key, a), epoch(151));
    assert_eq!(
        world.state.keyspace(key.keyspace).unwrap().raised(key.partition),
        None,
        "the epoch says it now"
    );
    // It says so again: then its task has failed like any other, and waits longer each time.
    world.ok(behind(key, epoch(151), a, 160));
    assert_eq!(world.cooling(key).then, secs(2));
    world.ok(Command::EndCooling { partition: key, epoch: epoch(151) });
    assert_eq!(world.grant(key, a), epoch(161));
}

#[test]
fn f018_f057_only_the_owner_of_the_partition_at_its_epoch_is_believed() {
    let (mut world, key, a, b, first) = World::owned(PolicyChange::default());
    // Somebody else, an epoch that is over, and a session that has never been.
    world.unchanged(behind(key, first, b, 150));
    world.unchanged(behind(key, first, SessionId::new(99).unwrap(), 150));
    world.ok(drain(key, first, "b"));
    world.ok(release(key, first, a));
    let second = world.grant(key, b);
    world.unchanged(behind(key, first, a, 150));
    assert_eq!(world.partition(key).owner(), Some(b));
    world.ok(release(key, second, b));
    assert_eq!(world.grant(key, a), epoch(3), "nothing was burnt by those who may not say so");
}

#[test]
fn f096_what_is_too_far_above_is_not_believed_and_an_operator_is_told() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    world.ok(behind(key, first, a, 2 + MAX_SEEN_JUMP));
    assert_eq!(world.state.keyspace(key.keyspace).unwrap().raised(key.partition), None);
    let error = world.partition(key).setback().unwrap().error.clone();
    assert!(error.contains("--above") && error.contains(&(2 + MAX_SEEN_JUMP).to_string()), "{error}");
    assert!(matches!(world.phase(key), Phase::Cooling(_)), "it waits, as after any failure");
    world.ok(Command::EndCooling { partition: key, epoch: first });
    let second = world.grant(key, a);
    assert_eq!(second, epoch(2));
    // Exactly as far as is believed.
    world.ok(behind(key, second, a, 2 + MAX_SEEN_JUMP));
    world.ok(Command::EndCooling { partition: key, epoch: second });
    assert_eq!(world.grant(key, a), epoch(3 + MAX_SEEN_JUMP));
}

#[test]
fn f096_an_operator_raises_it_further_and_not_beyond_what_a_fence_takes() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    let above = |number| Command::RaiseAbove { partition: key, above: Epoch::new(number).unwrap() };
    match world.refused(above(2 + MAX_ABOVE_JUMP)) {
        Refused::Implausible { from: 1, to, .. } => assert_eq!(to.get(), 2 + MAX_ABOVE_JUMP),
        other => panic!("{other:?}"),
    }
    world.ok(above(1 + MAX_ABOVE_JUMP));
    // It never goes back, and the owner goes on until it gives the partition up.
    world.unchanged(above(500));
    assert_eq!((world.partition(key).epoch(), world.partition(key).owner()), (Some(first), Some(a)));
    world.ok(release(key, first, a));
    assert_eq!(world.grant(key, a), epoch(2 + MAX_ABOVE_JUMP));
    assert!(matches!(
        world.refused(above(Epoch::MAX.get())),
        Refused::Implausible { .. } | Refused::Limit { .. }
    ));
}

#[test]
fn g2_a_floor_that_nothing_was_granted_above_is_left_behind_by_a_deleted_keyspace() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    world.ok(behind(key, first, a, 150));
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    assert_eq!(world.state.floor(), EpochFloor::of(epoch(150)));
}

#[test]
fn t15_an_order_is_done_when_the_owner_was_granted_anew_and_is_ready() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    world.ok(Command::Ready { partition: key, epoch: first, session: a });
    world.ok(order(key, false));
    let given = last_order(&world);
    assert_eq!(stands(&world, key), Reasserted::Held(a));
    let end = |given: &Reassert| Command::EndReassert {
        order: given.at,
        keyspace: given.keyspace,
        partition: given.partition,
    };
    world.unchanged(end(&given));
    let why = GrantReason::Reassert;
    world.ok(Command::Drain { partition: key, epoch: first, to: worker("a"), deadline: secs(5), why });
    assert_eq!(stands(&world, key), Reasserted::Ending(a));
    world.unchanged(end(&given));
    world.ok(release(key, first, a));
    assert_eq!(stands(&world, key), Reasserted::Ownerless);
    let second = world.grant(key, a);
    assert_eq!(stands(&world, key), Reasserted::Raising(a));
    world.ok(end(&given));
    world.unchanged(end(&given));
    world.ok(Command::Ready { partition: key, epoch: second, session: a });
    assert_eq!(stands(&world, key), Reasserted::Done);
    world.ok(drain(key, second, "b"));
    assert_eq!(stands(&world, key), Reasserted::Done, "it was raised; whoever gets it next raises again");
}

#[test]
fn a_later_order_takes_the_place_of_earlier_ones_about_the_same_and_there_is_a_bound() {
    let (mut world, key, ..) = World::owned(PolicyChange::default());
    world.ok(order(key, true));
    world.ok(order(key, true));
    assert_eq!(world.state.reasserts().count(), 1);
    world.ok(order(key, false));
    assert_eq!((world.state.reasserts().count(), last_order(&world).partition), (1, None));
    for n in 0..REASSERTS_LEN - 1 {
        let keyspace = world.create(&format!("k{n}"), 1, PolicyChange::default());
        world.ok(Command::Reassert { keyspace, partition: None });
    }
    let keyspace = world.create("one-more", 1, PolicyChange::default());
    let one_more = Command::Reassert { keyspace, partition: None };
    assert!(
        matches!(world.refused(one_more.clone()), Refused::Limit { bound, .. } if bound == REASSERTS_LEN as u64)
    );
    // One that is over makes room.
    let over = world.state.reasserts().nth(1).unwrap().clone();
    world.ok(Command::EndReassert { order: over.at, keyspace: over.keyspace, partition: None });
    world.ok(one_more);
    assert!(!world.state.reasserts().any(|kept| kept.at == over.at));
    // A keyspace that is deleted takes its orders with it.
    world.ok(Command::DeleteKeyspace { keyspace });
    assert!(!world.state.reasserts().any(|kept| kept.keyspace == keyspace));
}

#[test]
fn what_is_frozen_is_not_taken_and_an_unknown_name_is_refused() {
    let (mut world, key, ..) = World::owned(PolicyChange::default());
    let freeze = |keyspace, frozen| Command::Freeze { keyspace, frozen };
    for keyspace in [None, Some(key.keyspace)] {
        world.ok(freeze(keyspace, true));
        assert!(matches!(world.refused(order(key, false)), Refused::Frozen(_)));
        world.ok(freeze(keyspace, false));
    }
    let change = PartitionChange { frozen: Some(true), ..PartitionChange::default() };
    world.ok(Command::SetPartition { partition: key, change });
    assert_eq!(world.refused(order(key, true)), Refused::Frozen(Subject::Partition(key)));
    world.ok(order(key, false));
    assert!(
        matches!(stands(&world, key), Reasserted::Frozen(_, Subject::Partition(_))),
        "the others are raised"
    );
    let nobody = PartitionKey { partition: PartitionId::new(9), ..key };
    assert_eq!(world.refused(order(nobody, true)), Refused::NoSuchPartition(nobody));
}

/// A worker that takes nothing new keeps what it has.
#[test]
fn a_cordoned_owner_is_granted_its_own_partition_again() {
    let (mut world, key, a, _, first) = World::owned(PolicyChange::default());
    let set = |change| Command::SetWorker { worker: worker("a"), change };
    world.ok(set(WorkerChange { cordoned: Some(true), ..WorkerChange::default() }));
    let again = |epoch, why| Command::Grant { partition: key, replaces: Some(epoch), to: a, why };
    world.ok(release(key, first, a));
    assert_eq!(world.ok(again(first, GrantReason::Vacated)), Outcome::LeftVacant);
    let Outcome::Granted(second) = world.ok(again(first, GrantReason::Reassert)) else { panic!("granted") };
    world.ok(set(WorkerChange { drained: Some(true), ..WorkerChange::default() }));
    world.ok(release(key, second, a));
    assert_eq!(
        world.ok(again(second, GrantReason::Reassert)),
        Outcome::LeftVacant,
        "one that is drained does not"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A floor moves forward only, by no more than the bounds, by nobody's word but the owner's and an operator's; and what
    /// is granted is above it.
    #[test]
    fn g2_f018_a_partitions_floor_is_monotone_and_bounded(throws in throws(80)) {
        let mut state = State::new();
        for (index, throw) in (1..).zip(&throws) {
            let entry = entry(&state, throw);
            let before = state.clone();
            let applied = state.apply(LogIndex::new(index), &entry);
            for keyspace in state.keyspaces() {
                for key in keyspace.keys() {
                    let Some(was) = before.floor_of(key) else { continue };
                    let now = state.floor_of(key).expect("it is there");
                    prop_assert!(now >= was, "{} went back from {:?} to {:?}", key, was, now);
                    let said = |c: &Command| matches!(c, Command::RaiseAbove { partition, .. } if *partition == key);
                    let operator = entry.commands.iter().any(said);
                    let minted = entry.commands.len() as u64;
                    let cluster = state.floor().get().saturating_sub(before.floor().get());
                    let bound = if operator { MAX_ABOVE_JUMP } else { minted * (1 + MAX_SEEN_JUMP) };
                    prop_assert!(now.get() - was.get() <= (bound + minted).max(cluster));
                    let owner = before.partition(key).and_then(crate::state::Partition::owner);
                    let by_owner = |c: &Command| matches!(c, Command::Release { partition, session, how: Released::Behind(_), .. }
                        if *partition == key && (Some(*session) == owner || entry.commands.len() > 1));
                    let raised = |state: &State| state.keyspace(key.keyspace).and_then(|k| k.raised(key.partition));
                    if raised(&state) > raised(&before) {
                        prop_assert!(applied.outcome.is_ok());
                        prop_assert!(operator || entry.commands.iter().any(by_owner));
                    }
                }
            }
        }
    }
}
