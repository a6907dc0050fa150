//! What a node knows after a restart.

use super::world::{Kept, World, node, system_files};
use crate::raft::{Disk, RaftStatus, StartError};
use ringfence_core::ids::ClusterId;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            std::fs::copy(source, target).unwrap();
        }
    }
}

#[tokio::test]
async fn f031_a_single_node_has_applied_all_it_acknowledged_before_it_answers() {
    for snapshot in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::new(1).await;
        world.disks.insert(1, Kept::Dir(dir.path().join("a")));
        world.start_all().await;
        world.propose(60).await;
        if snapshot {
            let running = &world.nodes[&1];
            running.raft.trigger_snapshot().await.unwrap();
            running.until("there is a snapshot", |s| s.snapshot.is_some()).await;
        }
        world.propose(40).await;
        // The image of a process killed right now, and then a clean stop.
        copy(&dir.path().join("a"), &dir.path().join("b"));
        world.kill(1).await;
        for name in ["a", "b"] {
            world.disks.insert(1, Kept::Dir(dir.path().join(name)));
            let running = world.start(1).await.unwrap();
            running.until("it leads", RaftStatus::leads).await;
            let (at, count) = running.propose("first request").await.unwrap();
            assert_eq!(count, 101, "{name}, snapshot: {snapshot}, {at}");
            assert_eq!(running.log.0.lock().unwrap().restored, usize::from(snapshot));
            world.kill(1).await;
        }
    }
}

#[tokio::test]
async fn f069_a10_what_is_seen_through_a_restarted_leader_never_goes_back() {
    let mut world = World::cluster(3).await;
    world.propose(10).await;
    for round in 0..3 {
        let (id, leader) = world.leader().await;
        let before = leader.raft.confirm().await.unwrap().term;
        let seen = Arc::new(AtomicUsize::new(leader.values()));
        world.kill(id).await;
        let restarted = world.start(id).await.unwrap();
        // From the first moment on: whatever is confirmed is complete, and never under the old term.
        let polled = async {
            loop {
                if let Ok(confirmed) = restarted.raft.confirm().await {
                    assert!(confirmed.term > before, "{confirmed:?}");
                    assert!(restarted.values() >= seen.load(Ordering::SeqCst));
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                if world.nodes.iter().any(|(other, n)| *other != id && n.raft.status().borrow().leads()) {
                    return;
                }
            }
        };
        tokio::time::timeout(super::world::PATIENCE, polled).await.unwrap();
        world.propose(1).await;
        world.converge().await;
        assert_eq!(restarted.values(), 11 + round);
    }
}

#[tokio::test]
async fn three_durable_nodes_go_on_after_all_of_them_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(3).await;
    for id in 1..=3 {
        world.disks.insert(id, Kept::Dir(dir.path().join(id.to_string())));
    }
    world.start_all().await;
    world.propose(50).await;
    world.converge().await;
    for id in 1..=3 {
        world.kill(id).await;
    }
    for id in 1..=3 {
        world.start(id).await.unwrap();
    }
    world.propose(1).await;
    world.converge().await;
    assert_eq!(world.nodes[&1].values(), 51);
}

#[tokio::test]
async fn a_directory_is_of_one_node_and_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(1).await;
    world.disks.insert(1, Kept::Dir(dir.path().to_path_buf()));
    world.start_all().await;
    let error = world.start(1).await.err().unwrap();
    assert!(matches!(error, StartError::Locked(_)), "{error}");
    world.kill(1).await;
    let cluster = ClusterId::new("test").unwrap();
    let error = Disk::open(&system_files(), dir.path(), &cluster, node(2)).err().unwrap();
    assert!(matches!(&error, StartError::NotOurs { .. }), "{error}");
    assert!(error.to_string().contains("node 1 of cluster test"), "{error}");
    let other = ClusterId::new("other").unwrap();
    assert!(matches!(
        Disk::open(&system_files(), dir.path(), &other, node(1)),
        Err(StartError::NotOurs { .. })
    ));
    world.start(1).await.unwrap();
}

#[tokio::test]
async fn f012_a_wiped_node_takes_no_part_until_it_is_replaced() {
    let mut world = World::new(4).await;
    for id in 1..=3 {
        world.start(id).await.unwrap();
    }
    for id in 1..=3 {
        world.initialize(id, &[1, 2, 3]).await;
    }
    world.propose(5).await;
    // The leader has written down whose stores these are.
    let (_, leader) = world.leader().await;
    let inner = leader.raft.inner();
    leader.until("the stores are known", |_| (1..=3).all(|id| inner.stores.meant(id).is_some())).await;
    world.converge().await;

    let (leads, _) = world.leader().await;
    let wiped = (1..=3).find(|id| *id != leads).unwrap();
    world.kill(wiped).await;
    world.disks.insert(wiped, Kept::memory());
    world.start(wiped).await.unwrap();
    let empty = world.nodes.remove(&wiped).unwrap();
    world.propose(20).await;
    assert_eq!(empty.values(), 0);
    assert_eq!(empty.raft.status().borrow().last_log, None, "it takes nothing under the old id");

    // Not even to replace the leader, when it would be the missing vote.
    let (leads, _) = world.leader().await;
    let other = (1..=3).find(|id| *id != leads && *id != wiped).unwrap();
    let last = world.nodes[&other].raft.status().borrow().term;
    world.kill(leads).await;
    let status = world.nodes[&other].raft.status();
    let elected = tokio::time::timeout(std::time::Duration::from_secs(2), async {
        let mut status = status;
        let _ = status.wait_for(|s| s.leads() && s.term > last).await;
    });
    assert!(elected.await.is_err(), "a wiped node gave a vote");
    world.start(leads).await.unwrap();

    let (_, leader) = world.leader().await;
    leader.raft.remove_member(node(wiped)).await.unwrap();
    world.start(4).await.unwrap();
    let (_, leader) = world.leader().await;
    leader.raft.add_member(node(4), world.address(4), super::world::PATIENCE).await.unwrap();
    world.converge().await;
}
