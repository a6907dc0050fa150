//! Join, replacement, suspicion, expiry, leaving.

use super::world::{TTL, World, by_fence, join, release, secs, worker};
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, SessionId};
use crate::state::{
    Command, CoolingWhy, ENDED_LEN, EndReason, Ended, Entry, Event, Join, Outcome, Phase, PolicyChange,
    Refused, Session, Subject, Suspicion,
};
use std::collections::BTreeSet;

fn command(join: Join) -> Command {
    Command::Join(Box::new(join))
}

#[test]
fn the_lease_is_the_shortest_ttl_of_the_keyspaces_joined_and_stays_so() {
    let mut world = World::new();
    let ttl = |n| PolicyChange { ttl: Some(secs(n)), ..PolicyChange::default() };
    let keyspaces = [7, 3, 9].map(|n| world.create(&format!("k{n}"), 1, ttl(n)));
    let session = world.joined(Join { keyspaces: BTreeSet::from(keyspaces), ..join("a", 1, keyspaces[0]) });
    assert_eq!(world.state.session(session).unwrap().ttl(), secs(3));
    world.ok(Command::UpdateKeyspace { keyspace: keyspaces[1], change: ttl(1) });
    assert_eq!(world.state.session(session).unwrap().ttl(), secs(3));
}

#[test]
fn p08_t44_a_join_repeated_by_the_same_process_finds_its_session() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let first = world.joined(join("a", 1, keyspace));
    let before = world.state.clone();
    let applied = world.apply(None, vec![command(join("a", 1, keyspace))]);
    assert_eq!(applied.outcome, Ok(vec![Outcome::Joined(first)]));
    assert_eq!(applied.events, []);
    world.assert_same_but_for_the_index(before);

    world.ok(Command::DeleteKeyspace { keyspace });
    assert_eq!(world.joined(join("a", 1, keyspace)), first, "it joined before the keyspace was deleted");
}

#[test]
fn f021_a_nonce_without_the_secret_is_not_the_same_process() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let holder = world.joined(join("a", 1, keyspace));
    let guessed = Join { secret_hash: [9; 32], ..join("a", 1, keyspace) };
    let refused = world.refused(command(guessed));
    assert_eq!(refused, Refused::DuplicateIdentity { worker: worker("a"), holder });
}

#[test]
fn f059_a_second_process_under_a_live_worker_id_is_refused_and_told_who_holds_it() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let holder = world.join("a", keyspace);
    let refused = world.refused(command(join("a", 99, keyspace)));
    assert_eq!(refused, Refused::DuplicateIdentity { worker: worker("a"), holder });
    let other = SessionId::new(77);
    let refused = world.refused(command(Join { replaces: other, ..join("a", 99, keyspace) }));
    assert_eq!(refused, Refused::DuplicateIdentity { worker: worker("a"), holder });
}

fn replace(change: PolicyChange) -> (World, PartitionKey, SessionId, SessionId) {
    let (mut world, key, old, _, _) = World::owned(change);
    let new = world.joined(Join { replaces: Some(old), ..join("a", 99, key.keyspace) });
    (world, key, old, new)
}

#[test]
fn p05_f046_a_replaced_worker_s_partitions_cool_until_its_lease_has_run_out() {
    let (mut world, key, old, new) = replace(PolicyChange::default());
    let cooling = world.cooling(key);
    assert_eq!((cooling.lease_of, cooling.why), (Some((old, TTL)), CoolingWhy::Lease));
    let grant = world.a_grant(key, new);
    assert_eq!(world.refused(grant), Refused::NotVacant(key));
    assert_eq!(world.state.ended(old).map(|ended| ended.why), Some(EndReason::Replaced));
    assert_eq!(world.state.session_of(&worker("a")).map(Session::id), Some(new));
}

#[test]
fn f094_p05_an_evicted_worker_s_partitions_cool_until_its_lease_has_run_out() {
    let (mut world, key, session, other, _) = World::owned(PolicyChange::default());
    assert_eq!(world.ok(Command::Evict { session }), Outcome::Done);
    let cooling = world.cooling(key);
    assert_eq!((cooling.lease_of, cooling.why), (Some((session, TTL)), CoolingWhy::Lease));
    let grant = world.a_grant(key, other);
    assert_eq!(world.refused(grant), Refused::NotVacant(key));
    assert_eq!(world.state.ended(session).map(|ended| ended.why), Some(EndReason::Evicted));
    assert_eq!(world.ok(Command::Evict { session }), Outcome::Unchanged);
}

#[test]
fn p05_where_the_fence_takes_over_a_replaced_worker_s_partitions_are_free_at_once() {
    let (mut world, key, _, new) = replace(by_fence());
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert_eq!(world.grant(key, new).get(), 2);
}

#[test]
fn p05_the_lease_comes_first_and_the_lock_delay_after_it() {
    let (world, key, old, _) = replace(PolicyChange { lock_delay: Some(secs(4)), ..PolicyChange::default() });
    let cooling = world.cooling(key);
    assert_eq!((cooling.lease_of, cooling.then), (Some((old, TTL)), secs(4)));
}

#[test]
fn p05_a_delayed_duplicate_of_an_old_join_ends_no_younger_session() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let first = world.join("a", keyspace);
    let second = Join { replaces: Some(first), ..join("a", 2, keyspace) };
    let second_id = world.joined(second.clone());
    let third_id = world.joined(Join { replaces: Some(second_id), ..join("a", 3, keyspace) });

    let refused = world.refused(command(second));
    assert_eq!(refused, Refused::DuplicateIdentity { worker: worker("a"), holder: third_id });
    assert!(world.state.session(third_id).is_some());
}

#[test]
fn a_join_serves_keyspaces_that_exist_and_at_least_one() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let none = Join { keyspaces: BTreeSet::new(), ..join("a", 1, keyspace) };
    assert_eq!(world.refused(command(none)), Refused::NoKeyspaces);
    let gone = KeyspaceId::new(9);
    assert_eq!(world.refused(command(join("a", 1, gone))), Refused::NoSuchKeyspace(gone));
}

#[test]
fn p13_thirds_of_silence_only_add_up() {
    let (mut world, _, a, _) = World::with_two_workers(PolicyChange::default());
    let revision = world.state.revision();
    let first = world.suspect(a, 1);
    assert_eq!(world.suspect(a, 1), first, "said again it is the same suspicion");
    let second = world.suspect(a, 2);
    assert!(second > first);
    world.suspect(a, 1);
    let now = world.state.session(a).unwrap().suspicion();
    assert_eq!(now, Some(Suspicion { thirds: 2, at: second }), "a slower leader shortens nothing");
    assert_eq!(world.state.revision(), revision, "the map has not changed");
    for thirds in [0, 3, 255] {
        let suspect = Command::Suspect { sessions: vec![(a, thirds)] };
        assert_eq!(world.refused(suspect), Refused::Thirds(thirds));
    }
}

#[test]
fn p01_an_expiry_ends_the_session_whose_latest_suspicion_it_names() {
    let (mut world, key, a, b, _) = World::owned(PolicyChange::default());
    world.suspect(a, 1);
    let suspicion = world.suspect(a, 2);
    let index = world.next_index();
    let grant = world.a_grant(key, b);
    let applied = world.apply(None, vec![Command::Expire { session: a, suspicion }, grant]);
    assert!(matches!(applied.outcome.as_deref(), Ok([Outcome::Done, Outcome::Granted(_)])), "{applied:?}");
    assert!(applied.events.contains(&Event::Ended { session: a, why: EndReason::Expired }));
    let ended = Ended { session: a, worker: worker("a"), why: EndReason::Expired, at: index, life: None };
    assert_eq!(world.state.ended(a), Some(&ended), "as long as nobody has decided anything");
    assert_eq!(world.partition(key).owner(), Some(b), "takeover and grants are one entry");
}

#[test]
fn t26_an_expiry_by_a_leader_whose_wall_clock_is_behind_counts() {
    let (mut world, _, a, _, _) = World::owned(PolicyChange::default());
    let suspicion = world.suspect(a, 2);
    let commands = vec![Command::Expire { session: a, suspicion }];
    let long_ago = Entry { request: None, proposed_unix_ms: 0, commands };
    let at = world.next_index();
    assert_eq!(world.state.apply(at, &long_ago).outcome, Ok(vec![Outcome::Done]));
    assert!(world.state.session(a).is_none());
}

#[test]
fn p01_a_session_heard_from_in_between_is_not_expired() {
    let (mut world, key, a, _, _) = World::owned(PolicyChange::default());
    world.suspect(a, 1);
    let named = world.suspect(a, 2);
    let expire = Command::Expire { session: a, suspicion: named };

    world.ok(Command::Clear { sessions: vec![a] });
    let refused = world.refused(expire.clone());
    assert_eq!(refused, Refused::SuspicionMovedOn { session: a, named, latest: None });

    let at = world.suspect(a, 2);
    let latest = Some(Suspicion { thirds: 2, at });
    assert_eq!(world.refused(expire), Refused::SuspicionMovedOn { session: a, named, latest });
    assert_eq!(world.partition(key).owner(), Some(a));
}

#[test]
fn f002_an_expiry_that_a_deposed_leader_left_behind_ends_nobody() {
    // The old leader's expiry rests on its own suspicion; the new leader has cleared it and suspects anew.
    let (mut world, _, a, _) = World::with_two_workers(PolicyChange::default());
    let old = world.suspect(a, 2);
    world.ok(Command::Clear { sessions: vec![a] });
    world.suspect(a, 1);
    world.refused(Command::Expire { session: a, suspicion: old });
    assert!(world.state.session(a).is_some());
    // And one that comes late to a session that is gone says how it ended.
    world.ok(Command::Leave { session: a });
    let refused = world.refused(Command::Expire { session: a, suspicion: old });
    assert_eq!(refused, Refused::SessionEnded { session: a, how: Some(EndReason::Left) });
}

#[test]
fn suspicions_and_clears_of_many_pass_over_those_that_are_gone() {
    let (mut world, _, a, b) = World::with_two_workers(PolicyChange::default());
    world.ok(Command::Leave { session: a });
    world.ok(Command::Suspect { sessions: vec![(a, 1), (b, 1)] });
    assert!(world.state.session(b).unwrap().suspicion().is_some());
    let applied = world.apply(None, vec![Command::Clear { sessions: vec![a, b] }]);
    assert_eq!(applied.events, [Event::Cleared(b)]);
}

#[test]
fn a_leave_cools_what_was_not_released_and_is_a_success_when_repeated() {
    let (mut world, key, a, _, _) = World::owned(PolicyChange::default());
    assert_eq!(world.ok(Command::Leave { session: a }), Outcome::Done);
    assert_eq!(world.cooling(key).lease_of, Some((a, TTL)));
    world.unchanged(Command::Leave { session: a });
}

#[test]
fn a_clean_leave_leaves_nothing_to_wait_for() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    world.ok(Command::Withdraw { session: a });
    world.ok(release(key, e1, a));
    world.ok(Command::Leave { session: a });
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert_eq!(world.grant(key, b).get(), 2);
}

#[test]
fn a_withdrawn_session_is_granted_nothing_more_and_keeps_what_it_has() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    assert_eq!(world.ok(Command::Withdraw { session: a }), Outcome::Done);
    world.unchanged(Command::Withdraw { session: a });
    assert_eq!(world.partition(key).owner(), Some(a));
    world.ok(release(key, e1, a));
    let grant = world.a_grant(key, a);
    assert_eq!(world.ok(grant), Outcome::LeftVacant);
}

#[test]
fn how_a_session_ended_is_remembered_within_a_bound() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let mut sessions = Vec::new();
    for _ in 0..=ENDED_LEN {
        let session = world.join("a", keyspace);
        world.ok(Command::Leave { session });
        sessions.push(session);
    }
    assert_eq!(world.state.ended.len(), ENDED_LEN);
    assert_eq!(world.state.ended(sessions[0]), None, "the oldest is forgotten");
    let refused = world.refused(Command::Withdraw { session: sessions[0] });
    assert_eq!(refused, Refused::SessionEnded { session: sessions[0], how: None });
    assert_eq!(world.state.ended(sessions[1]).map(|ended| ended.why), Some(EndReason::Left));
}

#[test]
fn p03_every_change_to_what_a_session_holds_moves_its_assignment() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    let assignment = |world: &World, session| world.state.session(session).unwrap().assignment();
    let mut last = assignment(&world, a);
    let of_b = assignment(&world, b);
    let steps: [fn(PartitionKey, crate::ids::Epoch, SessionId) -> Command; 3] = [
        |partition, epoch, session| Command::Ready { partition, epoch, session },
        |key, epoch, _| super::world::drain(key, epoch, "b"),
        |key, epoch, session| release(key, epoch, session),
    ];
    for step in steps {
        let index = world.next_index();
        world.ok(step(key, e1, a));
        assert!(assignment(&world, a) > last);
        last = assignment(&world, a);
        assert_eq!(last, index);
    }
    assert_eq!(assignment(&world, b), of_b, "a session that nothing happened to stays where it is");
}

#[test]
fn p03_deleting_a_keyspace_moves_the_assignment_of_its_owners() {
    let (mut world, key, a, b, _) = World::owned(PolicyChange::default());
    let index = world.next_index();
    let of_b = world.state.session(b).unwrap().assignment();
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    assert_eq!(world.state.session(a).unwrap().assignment(), index);
    assert_eq!(world.state.session(b).unwrap().assignment(), of_b);
    assert!(world.state.session(a).unwrap().holds().is_empty());
    assert_ne!(index, LogIndex::new(0));
}

#[test]
fn how_long_a_session_lasted_and_where_it_was_is_remembered_beyond_its_end() {
    let (mut world, _, a, _) = World::with_two_workers(PolicyChange::default());
    let (joined, joined_unix_ms, address) = {
        let session = world.state.session(a).unwrap();
        (session.joined(), session.joined_unix_ms(), session.address().to_owned())
    };
    let [by, what, reason] = ["anna", "look", ""].map(str::to_owned);
    world.ok(Command::Direct { subject: Subject::Cluster, by, what, reason });
    world.ok(Command::Leave { session: a });
    let life = world.state.ended(a).unwrap().life.clone().unwrap();
    assert_eq!((life.joined, life.joined_unix_ms, life.address), (joined, joined_unix_ms, address));
    assert!(life.ended_unix_ms >= joined_unix_ms);
}
