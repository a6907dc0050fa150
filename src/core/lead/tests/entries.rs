//! How decisions are cut into entries.

use super::world::{TTL, World, at, policy};
use crate::lead::MAX_COMMANDS;
use crate::state::{Command, PolicyChange};

#[test]
fn a_session_with_more_partitions_than_an_entry_holds_ends_in_one_and_is_repaired_in_several() {
    let mut world = World::new();
    let orders = world.create("orders", 2_500, policy());
    world.join("a", &[orders]);
    world.work();
    let b = world.join_unconnected("b", &[orders]);
    world.leader.presence.connected(b);
    world.worker("b").up = false;
    let leader = &mut world.leader;
    let (a, b) = (world.workers["a"].session, world.workers["b"].session);
    // Only `b` renews.
    for now in [2_000, 4_000] {
        leader.lessor.answer(b, at(now));
        for entry in leader.due(at(now), &world.state) {
            world.state.apply(
                crate::ids::LogIndex::new(world.state.applied().get() + 1),
                &crate::state::Entry { request: None, proposed_unix_ms: 0, commands: entry },
            );
        }
    }
    leader.lessor.answer(b, at(6_000));
    world.now = TTL;
    let entries = world.due();
    assert_eq!(entries.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_COMMANDS, MAX_COMMANDS, 501]);
    assert!(matches!(entries[0][0], Command::Expire { session, .. } if session == a));
    assert!(entries.iter().flatten().skip(1).all(|c| matches!(c, Command::Grant { to, .. } if *to == b)));

    // Each makes sense alone: when the leader dies after the first, what it left is vacant, and is granted by the next.
    assert!(world.apply(entries[0].clone()).outcome.is_ok());
    assert_eq!(world.spread()["b"], MAX_COMMANDS - 1);
    world.elect(100);
    world.work();
    assert_eq!(world.spread()["b"], 2_500);
    // And what the first leader had handed out is refused as a whole.
    assert!(world.apply(entries[1].clone()).outcome.is_err());
}

#[test]
fn every_expiry_has_an_entry_of_its_own_and_suspicions_share_one() {
    let mut world = World::of(40, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], policy());
    for name in ["a", "b", "c"] {
        world.kill(name);
    }
    let began = world.now;
    world.pass(TTL);
    let sizes = |pick: fn(&Command) -> bool| {
        let entries = world.log.iter().filter(|(at, entry)| *at >= began && entry.iter().any(pick));
        entries.map(|(_, entry)| entry.len()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(|c| matches!(c, Command::Expire { .. })), [5, 5, 5]);
    assert_eq!(sizes(|c| matches!(c, Command::Suspect { .. })), [1, 1]);
}

#[test]
fn a_large_round_of_moves_is_cut() {
    let change = PolicyChange { max_moves_in_flight: Some(10_000), ..policy() };
    let mut world = World::of(2_400, &["a"], change);
    world.join("b", &[world.orders()]);
    world.worker("a").releases = false;
    world.now += 500;
    let entries = world.due();
    assert_eq!(entries.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_COMMANDS, 200]);
    assert!(entries.iter().flatten().all(|c| matches!(c, Command::Drain { .. })));
}

#[test]
fn an_idle_leader_decides_nothing() {
    let mut world = World::of(40, &["a", "b", "c"], policy());
    for _ in 0..10 {
        world.pass(1_000);
        assert_eq!(world.due(), Vec::<Vec<Command>>::new());
    }
    let entries = world.log.len();
    world.pass(60_000);
    assert_eq!(world.log.len(), entries, "renewals are no log entries");
}
