//! All or nothing, and the one exception.

use super::world::{World, drain, join, release};
use crate::ids::{KeyspaceName, PartitionId, PartitionKey, SessionId};
use crate::placement::{MAX_PARTITIONS, PartitionCount};
use crate::state::{
    Command, ENDED_LEN, GrantReason, Join, MAX_KEYSPACES, Outcome, Partition, Policy, PolicyChange,
    PolicyError, Refusal, Refused,
};
use std::time::Duration;

#[test]
fn a_refusal_names_the_command_and_undoes_those_before_it() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    let before = world.state.clone();
    let entry = vec![
        Command::Ready { partition: key, epoch: e1, session: a },
        Command::Suspect { sessions: vec![(a, 1), (b, 2)] },
        drain(key, e1, "b"),
        Command::RevokeSeen { partition: key, epoch: e1, session: a },
        release(key, e1, a),
        Command::Grant { partition: key, replaces: Some(e1), to: b, why: GrantReason::Balance },
        Command::Withdraw { session: b },
        Command::Clear { sessions: vec![b] },
        Command::Join(Box::new(Join { replaces: Some(a), ..join("a", 99, key.keyspace) })),
        Command::Leave { session: b },
        Command::UpdateKeyspace {
            keyspace: key.keyspace,
            change: PolicyChange { balance: Some(false), ..PolicyChange::default() },
        },
        Command::CreateKeyspace {
            keyspace: KeyspaceName::new("more").unwrap(),
            partitions: PartitionCount::new(3).unwrap(),
            policy: Policy::default(),
        },
        Command::DeleteKeyspace { keyspace: key.keyspace },
        Command::EndCooling { partition: key, epoch: e1 },
    ];
    let last = entry.len() - 1;
    let applied = world.apply(None, entry);
    assert_eq!(applied.outcome, Err(Refusal { command: last, why: Refused::NoSuchPartition(key) }));
    assert_eq!(applied.events, []);
    world.assert_same_but_for_the_index(before);
}

/// A command says what changes, never how the whole is to look: what somebody else changed meanwhile stays.
#[test]
fn t49_operators_who_change_different_settings_undo_nothing_of_each_other() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let (ttl, delay) = (Duration::from_secs(20), Duration::from_secs(3));
    let one = PolicyChange { ttl: Some(ttl), ..PolicyChange::default() };
    let other = PolicyChange { lock_delay: Some(delay), ..PolicyChange::default() };
    world.ok(Command::UpdateKeyspace { keyspace, change: one });
    world.ok(Command::UpdateKeyspace { keyspace, change: other });
    let policy = world.state.keyspace(keyspace).unwrap().policy();
    assert_eq!((policy.ttl(), policy.lock_delay()), (ttl, delay));
}

#[test]
fn an_undone_end_of_a_session_gives_back_what_fell_out_of_the_memory() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    for _ in 0..ENDED_LEN {
        let session = world.join("a", keyspace);
        world.ok(Command::Leave { session });
    }
    let (a, b) = (world.join("a", keyspace), world.join("b", keyspace));
    let before = world.state.clone();
    let gone = Command::Withdraw { session: SessionId::new(1).unwrap() };
    let entry = vec![Command::Leave { session: a }, Command::Leave { session: b }, gone];
    assert!(world.apply(None, entry).outcome.is_err());
    world.assert_same_but_for_the_index(before);
}

#[test]
fn p15_f006_f098_t40_a_grant_to_a_session_that_has_gone_leaves_vacant_and_the_rest_of_the_entry_stands() {
    let mut world = World::new();
    let keyspace = world.create("orders", 3, PolicyChange::default());
    let key = |n| PartitionKey { keyspace, partition: PartitionId::new(n) };
    let (a, b, c) = (world.join("a", keyspace), world.join("b", keyspace), world.join("c", keyspace));
    for n in 0..3 {
        world.grant(key(n), a);
    }
    let suspicion = world.suspect(a, 2);
    // The leader has decided; b dies an entry earlier.
    let mut entry = vec![Command::Expire { session: a, suspicion }];
    entry.extend([(0, b), (1, c), (2, b)].map(|(n, to)| world.a_grant(key(n), to)));
    world.ok(Command::Leave { session: b });

    let outcomes = world.apply(None, entry).outcome.unwrap();
    assert!(matches!(
        outcomes[..],
        [Outcome::Done, Outcome::LeftVacant, Outcome::Granted(_), Outcome::LeftVacant]
    ));
    assert!(world.state.session(a).is_none(), "the expiry stands");
    assert_eq!(world.partition(key(1)).owner(), Some(c));
    assert_eq!((world.partition(key(0)).owner(), world.partition(key(2)).owner()), (None, None));
}

#[test]
fn p15_the_release_of_a_move_whose_target_died_sticks() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    world.ok(drain(key, e1, "b"));
    let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why: GrantReason::Balance };
    world.ok(Command::Leave { session: b });
    let applied = world.apply(None, vec![release(key, e1, a), grant]);
    assert_eq!(applied.outcome, Ok(vec![Outcome::Done, Outcome::LeftVacant]));
    assert_eq!(world.partition(key).owner(), None);
}

#[test]
fn an_end_of_a_session_vacates_all_its_partitions_in_that_one_command() {
    let mut world = World::new();
    let keyspace = world.create("orders", 50, PolicyChange::default());
    let a = world.join("a", keyspace);
    for n in 0..50 {
        world.grant(PartitionKey { keyspace, partition: PartitionId::new(n) }, a);
    }
    let suspicion = world.suspect(a, 2);
    world.ok(Command::Expire { session: a, suspicion });
    let owned =
        world.state.keyspace(keyspace).unwrap().partitions().iter().filter_map(Partition::owner).count();
    assert_eq!(owned, 0);
}

#[test]
fn a_keyspace_is_created_once_and_within_the_bounds() {
    let mut world = World::new();
    let create = |name: &str, partitions| Command::CreateKeyspace {
        keyspace: KeyspaceName::new(name).unwrap(),
        partitions: PartitionCount::new(partitions).unwrap(),
        policy: Policy::default(),
    };
    world.ok(create("big", MAX_PARTITIONS));
    assert!(matches!(world.refused(create("big", 1)), Refused::KeyspaceExists(_)));
    let mut state = world.state.clone();
    let index = world.next_index();
    let entry = |commands| crate::state::Entry { request: None, proposed_unix_ms: 0, commands };
    assert!(state.apply(index, &entry(vec![create("big2", MAX_PARTITIONS)])).outcome.is_ok());
    let full = state.apply(index, &entry(vec![create("one-more", 1)])).outcome.unwrap_err().why;
    assert!(matches!(full, Refused::Limit { bound: 2_000_000, .. }), "{full}");

    let mut world = World::new();
    for n in 0..MAX_KEYSPACES {
        world.create(&format!("k{n}"), 1, PolicyChange::default());
    }
    assert!(matches!(world.refused(create("one-more", 1)), Refused::Limit { bound: 1_000, .. }));
}

#[test]
fn f062_a_policy_that_cannot_work_is_refused_in_apply_too() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let update = |change| Command::UpdateKeyspace { keyspace, change };
    world.unchanged(update(PolicyChange::default()));
    let ttl = Some(Duration::from_millis(1));
    let refused = world.refused(update(PolicyChange { ttl, ..PolicyChange::default() }));
    assert_eq!(refused, Refused::Policy(PolicyError::Ttl(Duration::from_millis(1))));
}
