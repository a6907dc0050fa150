//! G2: who may have which epoch, and the ends of ranges.

use super::world::{World, epoch, release};
use crate::ids::{ClusterId, Epoch, EpochFloor, KeyspaceName, LogIndex, NodeId, PartitionKey, SessionId};
use crate::placement::PartitionCount;
use crate::state::{
    Command, CoolingWhy, DEFAULT_TTL, GrantReason, Outcome, Phase, Policy, PolicyChange, Refused, State,
    Takeover,
};

#[test]
fn p01_f074_t06_c22_mint_happens_at_apply_so_two_proposals_for_one_epoch_give_one_grant() {
    // Two leaders propose a grant from the same picture; both entries commit.
    let (mut world, key, a, b) = World::with_two_workers(PolicyChange::default());
    let (to_a, to_b) = (world.a_grant(key, a), world.a_grant(key, b));
    assert_eq!(world.ok(to_a), Outcome::Granted(epoch(1)));
    assert!(matches!(world.refused(to_b), Refused::StaleEpoch { .. }));
    assert_eq!(world.partition(key).owner(), Some(a));
}

#[test]
fn t11_the_same_worker_gets_a_new_epoch_with_every_grant() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(release(key, e1, a));
    assert!(world.grant(key, a) > e1);
}

#[test]
fn g2_t46_a_keyspace_that_is_deleted_and_created_again_repeats_no_epoch() {
    let (mut world, key, a, _, _) = World::owned(PolicyChange::default());
    for number in 2..=5 {
        let last = world.partition(key).epoch().unwrap();
        world.ok(release(key, last, a));
        assert_eq!(world.grant(key, a), epoch(number));
    }
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    assert_eq!(world.state.floor(), EpochFloor::of(epoch(5)));
    assert_eq!(world.state.keyspace_named(&KeyspaceName::new("orders").unwrap()), None);

    let again = world.create("orders", 1, PolicyChange::default());
    assert_ne!(again, key.keyspace, "a late command about the old one does not meet the new one");
    let key = PartitionKey { keyspace: again, ..key };
    let c = world.join("c", again);
    // The owner of old may believe until its lease has run out.
    let grant = world.a_grant(key, c);
    assert_eq!(world.refused(grant), Refused::NotVacant(key));
    world.ok(Command::EndCooling { partition: key, epoch: epoch(5) });
    assert_eq!(world.grant(key, c), epoch(6));
    // Its owners of old do not serve it until they join it.
    let not_serving = Refused::NotServing { session: a, keyspace: again };
    world.ok(release(key, epoch(6), c));
    let grant = world.a_grant(key, a);
    assert_eq!(world.refused(grant), not_serving);
}

#[test]
fn g3_a_keyspace_created_again_cools_for_the_leases_of_the_one_deleted() {
    let lease =
        |world: &World, keyspace| match world.state.keyspace(keyspace).unwrap().partitions()[0].phase() {
            Phase::Cooling(cooling) => Some((cooling.then, cooling.why)),
            _ => None,
        };
    let (mut world, key, ..) = World::owned(PolicyChange::default());
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    let other = world.create("other", 1, PolicyChange::default());
    assert_eq!(lease(&world, other), None, "it has nothing to do with it");
    let again = world.create("orders", 1, PolicyChange::default());
    assert_eq!(lease(&world, again), Some((DEFAULT_TTL, CoolingWhy::Lease)));
    // Deleted and created once more while it cools: it cools again.
    world.ok(Command::DeleteKeyspace { keyspace: again });
    let again = world.create("orders", 1, PolicyChange::default());
    assert_eq!(lease(&world, again), Some((DEFAULT_TTL, CoolingWhy::Lease)));

    // Everything given back, or taken over by fence: nothing to wait for.
    let (mut world, key, _, _, e) = World::owned(PolicyChange::default());
    world.ok(release(key, e, world.partition(key).owner().unwrap()));
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    let again = world.create("orders", 1, PolicyChange::default());
    assert_eq!(lease(&world, again), None);
    let fence = PolicyChange { takeover: Some(Takeover::Fence), ..PolicyChange::default() };
    let (mut world, key, ..) = World::owned(fence.clone());
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    let again = world.create("orders", 1, fence);
    assert_eq!(lease(&world, again), None);
}

#[test]
fn g2_a_keyspace_deleted_before_anything_was_granted_keeps_the_floor_it_was_created_with() {
    let (mut world, key, _, _, _) = World::owned(PolicyChange::default());
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    for _ in 0..3 {
        let empty = world.create("empty", 4, PolicyChange::default());
        assert_eq!(world.state.keyspace(empty).unwrap().floor(), EpochFloor::of(epoch(1)));
        world.ok(Command::DeleteKeyspace { keyspace: empty });
    }
    assert_eq!(world.state.floor(), EpochFloor::of(epoch(1)));
}

/// A state in which every counter and epoch stands just before its end.
fn at_the_ends() -> (World, PartitionKey, SessionId) {
    let (mut world, key, a, _) = World::with_two_workers(PolicyChange::default());
    let mut parts = world.state.to_parts();
    parts.floor = EpochFloor::new(Epoch::MAX.get() - 1).unwrap();
    (parts.next_keyspace, parts.next_session, parts.next_move) = (u32::MAX, u64::MAX, u64::MAX);
    world.state = State::from_parts(parts).unwrap();
    (world, key, a)
}

#[test]
fn t18_when_epochs_are_used_up_a_grant_is_refused_and_none_is_repeated() {
    let (mut world, key, a) = at_the_ends();
    assert_eq!(world.grant(key, a), Epoch::MAX);
    world.ok(release(key, Epoch::MAX, a));
    for _ in 0..2 {
        let grant = world.a_grant(key, a);
        let limit = Refused::Limit { what: "the epochs of a partition", bound: Epoch::MAX.get() };
        assert_eq!(world.refused(grant), limit);
    }
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    assert_eq!(world.state.floor(), EpochFloor::of(Epoch::MAX));
}

#[test]
fn t18_refused_and_repeated_grants_burn_no_epoch() {
    let (mut world, key, a, b) = World::with_two_workers(PolicyChange::default());
    for _ in 0..10 {
        world.refused(Command::Grant {
            partition: key,
            replaces: Some(epoch(9)),
            to: a,
            why: GrantReason::First,
        });
        let gone = SessionId::new(99).unwrap();
        let left = Command::Grant { partition: key, replaces: None, to: gone, why: GrantReason::First };
        assert_eq!(world.ok(left), Outcome::LeftVacant);
    }
    assert_eq!(world.grant(key, b), epoch(1));
}

#[test]
fn f096_at_the_end_of_every_counter_a_command_is_refused_and_the_entry_undone() {
    let (mut world, key, a) = at_the_ends();
    let join = super::world::join("c", 1, key.keyspace);
    let bound = |refused| matches!(refused, Refused::Limit { .. });
    assert!(bound(world.refused(Command::Join(Box::new(join)))));
    assert!(bound(world.refused(Command::CreateKeyspace {
        keyspace: KeyspaceName::new("more").unwrap(),
        partitions: PartitionCount::new(1).unwrap(),
        policy: Policy::default(),
    })));
    let last = world.grant(key, a);
    assert!(bound(world.refused(super::world::drain(key, last, "b"))));
    // A replacement ends the holder before it finds that there is no number left for its own session.
    let replace = crate::state::Join { replaces: Some(a), ..super::world::join("a", 77, key.keyspace) };
    assert!(bound(world.refused(Command::Join(Box::new(replace)))));
    assert_eq!(world.partition(key).owner(), Some(a));
}

#[test]
fn f096_an_entry_at_the_last_index_with_the_last_wall_clock_is_applied() {
    let mut state = State::new();
    let form = Command::FormCluster { cluster: ClusterId::new("c").unwrap(), lineage: u64::MAX };
    let note = Command::NoteNode { node: NodeId::new((1 << 53) - 1).unwrap() };
    let entry = crate::state::Entry { request: None, proposed_unix_ms: u64::MAX, commands: vec![form, note] };
    assert!(state.apply(LogIndex::new(u64::MAX), &entry).outcome.is_ok());
    assert_eq!(state.applied(), LogIndex::new(u64::MAX));
    assert_eq!(State::from_parts(state.to_parts()), Ok(state));
}

#[test]
fn a_cluster_has_one_name_and_a_node_id_is_used_once() {
    let mut world = World::new();
    let form = |name: &str| Command::FormCluster { cluster: ClusterId::new(name).unwrap(), lineage: 1 };
    world.ok(form("one"));
    world.unchanged(form("one"));
    assert_eq!(world.refused(form("two")), Refused::AlreadyFormed(ClusterId::new("one").unwrap()));
    let node = NodeId::new(3).unwrap();
    world.ok(Command::NoteNode { node });
    assert_eq!(world.refused(Command::NoteNode { node }), Refused::NodeIdUsed(node));
}
