//! Every partition of a keyspace in two.

use super::world::{World, drain, epoch, join, release, secs};
use crate::ids::{Epoch, KeyspaceId, PartitionId, PartitionKey, SessionId};
use crate::placement::PartitionCount;
use crate::state::{
    Command, CoolingWhy, GrantReason, Join, MAX_TOTAL_PARTITIONS, Outcome, Phase, PolicyChange, Refused,
    Released, State, Subject,
};

fn count(number: u32) -> PartitionCount {
    PartitionCount::new(number).unwrap()
}

fn start(keyspace: KeyspaceId, from: u32) -> Command {
    Command::StartSplit { keyspace, from: count(from) }
}

fn of(keyspace: KeyspaceId, partition: u32) -> PartitionKey {
    PartitionKey { keyspace, partition: PartitionId::new(partition) }
}

fn split(world: &World, key: PartitionKey) -> Command {
    Command::Split { partition: key, epoch: world.partition(key).epoch() }
}

/// What the owner of a partition raises beside its own fence: (partition, epoch).
fn raised(world: &World, key: PartitionKey) -> Vec<(u32, u64)> {
    let keyspace = world.state.keyspace(key.keyspace).unwrap();
    keyspace.ancestors(key.partition).map(|born| (born.parent.get(), born.epoch.get())).collect()
}

/// A keyspace of so many partitions, each owned once by `a` and given back, and being split.
fn splitting(partitions: u32) -> (World, KeyspaceId, SessionId) {
    let mut world = World::new();
    let keyspace = world.create("orders", partitions, PolicyChange::default());
    let a = world.join("a", keyspace);
    for partition in 0..partitions {
        let key = of(keyspace, partition);
        let epoch = world.grant(key, a);
        world.ok(release(key, epoch, a));
    }
    world.ok(start(keyspace, partitions));
    (world, keyspace, a)
}

#[test]
fn p09_a_split_mints_an_epoch_that_nobody_is_granted_and_the_child_begins_above_it() {
    let (mut world, keyspace, a) = splitting(2);
    let (parent, child) = (of(keyspace, 0), of(keyspace, 2));
    world.ok(split(&world, parent));
    assert_eq!(world.partition(parent).epoch(), Some(epoch(2)), "it was granted at 1");
    assert_eq!(raised(&world, child), [(0, 2)]);
    assert_eq!(raised(&world, parent), []);
    assert_eq!((world.grant(parent, a), world.grant(child, a)), (epoch(3), epoch(3)));
    // It is raised for ever, by each owner that comes.
    world.ok(Command::Ready { partition: child, epoch: epoch(3), session: a });
    world.ok(release(child, epoch(3), a));
    world.grant(child, a);
    assert_eq!(raised(&world, child), [(0, 2)]);
}

#[test]
fn the_partitions_are_split_in_order_and_the_last_one_ends_it() {
    let (mut world, keyspace, _) = splitting(2);
    let refused = world.refused(split(&world, of(keyspace, 1)));
    assert_eq!(refused, Refused::NotNextToSplit { partition: of(keyspace, 1), next: of(keyspace, 0) });
    world.ok(split(&world, of(keyspace, 0)));
    let midway = world.state.keyspace(keyspace).unwrap();
    assert_eq!((midway.count(), midway.partitioner().base()), (count(3), count(2)));
    assert_eq!(midway.next_to_split(), Some(PartitionId::new(1)));
    world.ok(split(&world, of(keyspace, 1)));
    let whole = world.state.keyspace(keyspace).unwrap();
    assert_eq!((whole.count(), whole.partitioner().base(), whole.split()), (count(4), count(4), None));
    assert!(whole.needs_splits());
    assert_eq!(world.refused(split(&world, of(keyspace, 0))), Refused::NotSplitting(keyspace));
}

/// A child of a child that nobody ever owned still fences those who owned the keys before either was born.
#[test]
fn p09_what_is_split_twice_raises_both_whom_it_comes_from() {
    let (mut world, keyspace, a) = splitting(1);
    world.ok(split(&world, of(keyspace, 0)));
    world.ok(start(keyspace, 2));
    world.ok(split(&world, of(keyspace, 0)));
    world.ok(split(&world, of(keyspace, 1)));
    assert_eq!(raised(&world, of(keyspace, 3)), [(1, 3), (0, 2)]);
    assert_eq!(raised(&world, of(keyspace, 2)), [(0, 3)]);
    assert_eq!(raised(&world, of(keyspace, 1)), [(0, 2)]);
    assert!((0..4).all(|partition| world.grant(of(keyspace, partition), a) > epoch(2)));
}

#[test]
fn a_partition_that_somebody_owns_is_not_split() {
    let (mut world, keyspace, a) = splitting(1);
    let key = of(keyspace, 0);
    let stale = split(&world, key);
    let granted = world.grant(key, a);
    assert!(matches!(world.refused(stale), Refused::StaleEpoch { .. }));
    assert_eq!(world.refused(split(&world, key)), Refused::NotVacant(key));
    // To the very worker that owns it.
    world.ok(drain(key, granted, "a"));
    assert_eq!(world.refused(split(&world, key)), Refused::NotVacant(key));
    let replaces = Epoch::new(granted.get() + 1).ok();
    let grant = |partition| Command::Grant { partition, replaces, to: a, why: GrantReason::Split };
    let entry = vec![release(key, granted, a), split(&world, key), grant(key), grant(of(keyspace, 1))];
    let outcome = world.apply(None, entry).outcome.unwrap();
    assert_eq!(outcome[2..], [Outcome::Granted(epoch(4)), Outcome::Granted(epoch(4))]);
}

/// Whoever may still believe to own the parent may believe to own the child's keys.
#[test]
fn g3_the_child_cools_for_the_lease_of_whoever_owned_the_parent() {
    let (mut world, keyspace, a) = splitting(1);
    let (key, child) = (of(keyspace, 0), of(keyspace, 1));
    world.grant(key, a);
    world.joined(Join { replaces: Some(a), ..join("a", 99, keyspace) });
    let before = world.cooling(key);
    assert_eq!((before.lease_of.map(|(session, _)| session), before.why), (Some(a), CoolingWhy::Lease));
    world.ok(split(&world, key));
    assert_eq!((world.cooling(key), world.cooling(child)), (before, before));
    assert!(matches!(world.refused(world.a_grant(child, a)), Refused::NotVacant(_)));
    let end = |partition, epoch| Command::EndCooling { partition, epoch };
    world.ok(end(child, world.partition(child).epoch().unwrap()));
    assert_eq!(world.phase(child), &Phase::Vacant);
}

#[test]
fn a_back_off_is_the_parents_own() {
    let (mut world, keyspace, a) = splitting(1);
    let key = of(keyspace, 0);
    let granted = world.grant(key, a);
    let how = Released::Failed("it broke".to_owned());
    world.ok(Command::Release { partition: key, epoch: granted, session: a, how });
    assert_eq!(world.cooling(key).then, secs(1));
    world.ok(split(&world, key));
    assert_eq!((world.cooling(key).then, world.phase(of(keyspace, 1))), (secs(1), &Phase::Vacant));
}

#[test]
fn f061_a_worker_that_cannot_own_split_partitions_and_a_split_exclude_each_other() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let old = |nonce| Join { splits: false, ..join("old", nonce, keyspace) };
    let session = world.joined(old(7));
    let refused = world.refused(start(keyspace, 1));
    assert!(refused.to_string().contains("worker old"), "{refused}");
    world.ok(Command::Leave { session });
    world.ok(start(keyspace, 1));
    let cannot = |refused| matches!(refused, Refused::CannotSplit { keyspace: id, .. } if id == keyspace);
    assert!(cannot(world.refused(Command::Join(Box::new(old(8))))), "it is going to be split");
    world.ok(split(&world, of(keyspace, 0)));
    assert!(cannot(world.refused(Command::Join(Box::new(old(8))))), "it was split");
    // Where nothing was split, nothing is asked.
    let other = world.create("other", 1, PolicyChange::default());
    world.joined(Join { splits: false, ..join("old", 9, other) });
}

#[test]
fn a_split_is_undone_until_a_partition_is_split_and_finished_from_then_on() {
    let (mut world, keyspace, _) = splitting(2);
    assert_eq!(world.refused(start(keyspace, 2)), Refused::SplitUnderWay(keyspace));
    world.ok(Command::CancelSplit { keyspace });
    assert_eq!(world.refused(Command::CancelSplit { keyspace }), Refused::NotSplitting(keyspace));
    assert_eq!(world.refused(split(&world, of(keyspace, 0))), Refused::NotSplitting(keyspace));
    assert!(!world.state.keyspace(keyspace).unwrap().needs_splits());
    world.ok(start(keyspace, 2));
    world.ok(split(&world, of(keyspace, 0)));
    let refused = world.refused(Command::CancelSplit { keyspace });
    assert_eq!(refused, Refused::SplitBegun { keyspace, born: 1 });
    assert!(refused.to_string().contains("never undone"), "{refused}");
}

#[test]
fn a_count_is_doubled_or_stays() {
    let mut world = World::new();
    let keyspace = world.create("orders", 3, PolicyChange::default());
    for named in [1, 2, 6] {
        assert_eq!(world.refused(start(keyspace, named)), Refused::OtherCount { keyspace, named, count: 3 });
    }
    let large = world.create("large", 500_001, PolicyChange::default());
    assert!(matches!(world.refused(start(large, 500_001)), Refused::Limit { .. }));
    assert_eq!(world.refused(start(KeyspaceId::new(9), 1)), Refused::NoSuchKeyspace(KeyspaceId::new(9)));
}

/// Otherwise another keyspace could take the room, and the split would be stuck halfway.
#[test]
fn what_a_split_will_need_is_set_aside_when_it_begins() {
    let mut world = World::new();
    let (a, b) = (world.create("a", 500_000, PolicyChange::default()), MAX_TOTAL_PARTITIONS - 1_000_000);
    world.ok(start(a, 500_000));
    let create = |name: &str, partitions: u64| Command::CreateKeyspace {
        keyspace: crate::ids::KeyspaceName::new(name).unwrap(),
        partitions: count(u32::try_from(partitions).unwrap()),
        policy: crate::state::Policy::default(),
    };
    world.ok(create("b", b));
    assert!(matches!(world.refused(create("c", 1)), Refused::Limit { .. }));
    world.ok(Command::CancelSplit { keyspace: a });
    world.ok(create("c", 1));
}

#[test]
fn what_follows_from_a_split_names_who_wanted_it() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let a = world.join("a", keyspace);
    let subject = Subject::Keyspace(keyspace);
    let (by, what, reason) = ("ann".to_owned(), "split".to_owned(), "it grows".to_owned());
    let at = world.next_index();
    let direct = Command::Direct { subject, by, what, reason };
    world.apply(None, vec![direct, start(keyspace, 1)]).outcome.unwrap();
    assert_eq!(world.state.keyspace(keyspace).unwrap().split(), Some(at));
    let (key, child) = (of(keyspace, 0), of(keyspace, 1));
    let grant = Command::Grant { partition: child, replaces: Some(epoch(1)), to: a, why: GrantReason::Split };
    world.apply(None, vec![split(&world, key), grant]).outcome.unwrap();
    let tenure = world.partition(child).history().last().unwrap();
    assert_eq!((tenure.directive, tenure.why), (Some(at), GrantReason::Split));

    // Also a child that finds its first owner later, when the split is over.
    let at = world.next_index();
    let subject = Subject::Keyspace(keyspace);
    let [by, what, reason] = ["ann", "split", ""].map(str::to_owned);
    let direct = Command::Direct { subject, by, what, reason };
    world.apply(None, vec![direct, start(keyspace, 2)]).outcome.unwrap();
    world.ok(split(&world, key));
    world.ok(release(child, epoch(2), a));
    world.ok(split(&world, child));
    assert_eq!(world.state.keyspace(keyspace).unwrap().split(), None);
    let late = of(keyspace, 3);
    world.grant(late, a);
    assert_eq!(world.partition(late).history().last().unwrap().directive, Some(at));
    let (late_epoch, b) = (world.partition(late).epoch().unwrap(), world.join("b", keyspace));
    world.ok(release(late, late_epoch, a));
    world.grant(late, b);
    assert_eq!(
        world.partition(late).history().last().unwrap().directive,
        None,
        "the next one follows from nothing"
    );
}

#[test]
fn a_keyspace_created_again_repeats_no_epoch_of_a_split() {
    let (mut world, keyspace, _) = splitting(1);
    world.ok(split(&world, of(keyspace, 0)));
    world.ok(Command::DeleteKeyspace { keyspace });
    let again = world.create("orders", 2, PolicyChange::default());
    let a = world.join("b", again);
    assert!(world.grant(of(again, 1), a) > epoch(2));
    assert_eq!(raised(&world, of(again, 1)), [], "it was created, not split");
}

#[test]
fn f076_parts_that_no_split_can_have_made_are_refused() {
    let (mut world, keyspace, _) = splitting(2);
    world.ok(split(&world, of(keyspace, 0)));
    let good = world.state.to_parts();
    type Spoil = fn(&mut crate::state::StateParts);
    let spoils: [(Spoil, &str); 9] = [
        (|p| p.keyspaces[0].split = None, "no split is under way"),
        (|p| p.keyspaces[0].base = PartitionCount::new(3).unwrap(), "before its turn"),
        (|p| p.keyspaces[0].base = PartitionCount::new(1).unwrap(), "twice as many"),
        (|p| p.keyspaces[0].partitions[2].born = None, "whose turn"),
        (|p| p.keyspaces[0].partitions[1].born = p.keyspaces[0].partitions[2].born, "do not grow"),
        (|p| p.keyspaces[0].partitions[2].born.as_mut().unwrap().parent = PartitionId::new(1), "whose turn"),
        (
            |p| p.keyspaces[0].partitions[2].born.as_mut().unwrap().epoch = Epoch::new(1).unwrap(),
            "was granted",
        ),
        (
            |p| p.keyspaces[0].partitions[2].born.as_mut().unwrap().epoch = Epoch::new(9).unwrap(),
            "never minted",
        ),
        (|p| p.sessions[0].splits = false, "cannot own them"),
    ];
    for (spoil, why) in spoils {
        let mut parts = good.clone();
        spoil(&mut parts);
        let error = State::from_parts(parts).expect_err(why).to_string();
        assert!(error.contains(why), "{error}, not {why}");
    }
}
