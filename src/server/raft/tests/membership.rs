//! Nodes that come and go.

use super::world::{PATIENCE, World, node};
use crate::raft::MembersError;
use std::time::Duration;

/// Nodes 1 to `started` of `count` in one cluster.
async fn started(count: u64, started: u64) -> World {
    let mut world = World::new(count).await;
    let ids: Vec<u64> = (1..=started).collect();
    for &id in &ids {
        world.start(id).await.unwrap();
    }
    for &id in &ids {
        world.initialize(id, &ids).await;
    }
    world
}

#[tokio::test]
async fn a_cluster_grows_from_one_to_three_and_shrinks_again() {
    let mut world = started(3, 1).await;
    world.propose(100).await;
    for id in [2, 3] {
        world.start(id).await.unwrap();
        let (_, leader) = world.leader().await;
        leader.raft.add_member(node(id), world.address(id), PATIENCE).await.unwrap();
        // Again is the same.
        leader.raft.add_member(node(id), world.address(id), PATIENCE).await.unwrap();
        world.converge().await;
    }
    let (leads, leader) = world.leader().await;
    assert!(leader.raft.status().borrow().members.values().all(|m| m.voter));

    // The leader may remove itself.
    leader.raft.remove_member(node(leads)).await.unwrap();
    // It leads on for a moment, and changes nobody any more.
    let other = (1..=3).find(|id| *id != leads).unwrap();
    let late = leader.raft.remove_member(node(other)).await;
    assert!(matches!(late, Err(MembersError::NotLeader(_))), "{late:?}");
    assert_eq!(leader.raft.status().borrow().stopped, None);
    world.kill(leads).await;
    let (_, leader) = world.leader().await;
    leader.propose("by two").await.unwrap();
    assert_eq!(leader.raft.status().borrow().members.len(), 2);
    let other =
        world.nodes.iter().find(|(_, n)| !n.raft.status().borrow().leads()).map(|(id, _)| *id).unwrap();
    leader.raft.remove_member(node(other)).await.unwrap();
    leader.raft.remove_member(node(other)).await.unwrap();
    world.kill(other).await;
    let (last, leader) = world.leader().await;
    leader.propose("by one").await.unwrap();
    assert!(matches!(leader.raft.remove_member(node(last)).await, Err(MembersError::Invalid(_))));
}

#[tokio::test]
async fn f066_a_member_that_never_answers_is_taken_out_again() {
    for size in [1, 3] {
        let world = started(4, size).await;
        world.propose(3).await;
        let (_, leader) = world.leader().await;
        let added = leader.raft.add_member(node(4), world.address(4), Duration::from_millis(500)).await;
        assert!(matches!(added, Err(MembersError::NotCaughtUp { .. })), "{added:?}");
        leader.propose("still writable").await.unwrap();
        leader.until("it is no member", |s| !s.members.contains_key(&node(4))).await;

        // The same when the caller gives up.
        let raft = leader.raft.clone();
        let address = world.address(4);
        let adding = tokio::spawn(async move { raft.add_member(node(4), address, PATIENCE).await });
        leader.until("it is a learner", |s| s.members.get(&node(4)).is_some_and(|m| !m.voter)).await;
        let busy = leader.raft.remove_member(node(4)).await;
        assert_eq!(busy, Err(MembersError::Busy), "one change at a time");
        adding.abort();
        leader.until("it is no member", |s| !s.members.contains_key(&node(4))).await;
        leader.propose("still writable").await.unwrap();
    }
}

#[tokio::test]
async fn foolish_changes_are_refused() {
    let world = started(3, 3).await;
    let (leads, leader) = world.leader().await;
    let other = (1..=3).find(|id| *id != leads).unwrap();
    let moved = leader.raft.add_member(node(other), "127.0.0.1:1".to_string(), PATIENCE).await;
    assert!(matches!(moved, Err(MembersError::Invalid(_))), "{moved:?}");
    for bad in ["", "nowhere", "http://a:1", "a:1/x", "a:99999"] {
        let added = leader.raft.add_member(node(9), bad.to_string(), PATIENCE).await;
        assert!(matches!(added, Err(MembersError::Invalid(_))), "{bad}: {added:?}");
    }
    assert_eq!(leader.raft.transfer_leadership(Some(node(leads))).await, Ok(node(leads)));
    assert!(matches!(leader.raft.transfer_leadership(Some(node(9))).await, Err(MembersError::Invalid(_))));
    let follower = &world.nodes[&other];
    follower.until("it knows the leader", |s| s.leader.is_some()).await;
    let refused = follower.raft.remove_member(node(leads)).await;
    assert!(
        matches!(&refused, Err(MembersError::NotLeader(Some((at, _)))) if *at == node(leads)),
        "{refused:?}"
    );
}
