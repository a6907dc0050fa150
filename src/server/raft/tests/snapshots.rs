//! Compaction, and nodes that need a snapshot.

use super::world::{Kept, World, index, node};
use crate::raft::{RaftStatus, StartError};
use ringfence_core::ids::LogIndex;
use std::time::Duration;

#[tokio::test]
async fn f072_a_snapshot_replaces_what_a_lagging_node_had() {
    let mut world = World::new(3).await;
    world.settings = Box::new(|config| {
        config.compaction.entries = 40;
        config.compaction.keep = 5;
    });
    world.start_all().await;
    world.propose(10).await;
    world.converge().await;
    let (leads, leader) = world.leader().await;
    let lagging = world.nodes.keys().copied().find(|id| *id != leads).unwrap();
    let behind = world.nodes.remove(&lagging).unwrap();
    let had = behind.raft.status().borrow().last_log.unwrap();
    world.isolate(lagging, true);
    for i in 0..200 {
        leader.propose(format!("missed {i}")).await.unwrap();
    }
    leader.until("what it needs is compacted", |s| s.purged > Some(had)).await;

    world.isolate(lagging, false);
    world.nodes.insert(lagging, behind.clone());
    world.converge().await;
    assert_eq!(behind.values(), 210);
    assert_eq!(behind.log.0.lock().unwrap().restored, 1, "it came by a snapshot");

    // It leads with it as well as anybody.
    let (_, leader) = world.leader().await;
    leader.raft.transfer_leadership(Some(node(lagging))).await.unwrap();
    behind.until("it leads", RaftStatus::leads).await;
    behind.propose("under the lagging node").await.unwrap();
    world.converge().await;
}

#[tokio::test]
async fn f019_a_snapshot_of_many_messages_arrives() {
    let mut world = World::new(2).await;
    world.settings = Box::new(|config| {
        config.compaction.entries = 1000;
        config.compaction.keep = 0;
    });
    world.start(1).await.unwrap();
    world.initialize(1, &[1]).await;
    let (_, leader) = world.leader().await;
    for _ in 0..24 {
        leader.propose(vec![3; 1 << 20]).await.unwrap();
    }
    leader.raft.trigger_snapshot().await.unwrap();
    leader.until("there is a snapshot", |s| s.snapshot >= Some(index(20))).await;
    world.start(2).await.unwrap();
    leader.raft.add_member(node(2), world.address(2), super::world::PATIENCE).await.unwrap();
    world.converge().await;
}

/// It takes many elections' time, other snapshots replace it meanwhile, and the log behind it goes. It is sent once all the
/// same, and not from its beginning again and again.
#[tokio::test]
async fn f019_a_snapshot_over_a_slow_link_arrives_while_the_log_is_compacted() {
    let mut world = World::new(2).await;
    world.settings = Box::new(|config| config.compaction.entries = 50);
    world.start(1).await.unwrap();
    world.initialize(1, &[1]).await;
    let (_, leader) = world.leader().await;
    for _ in 0..60 {
        leader.propose(vec![3; 32 << 10]).await.unwrap();
    }
    leader.until("there is a snapshot", |s| s.snapshot.is_some()).await;
    leader.raft.inner().raft.trigger().purge_log(50).await.unwrap();
    leader.until("what came before is gone", |s| s.purged.is_some()).await;
    // Two megabytes at one a second.
    world.slow(2, 1_000);
    let learner = world.start(2).await.unwrap();
    let adding = tokio::spawn({
        let (raft, address) = (leader.raft.clone(), world.address(2));
        async move { raft.add_member(node(2), address, super::world::PATIENCE).await }
    });
    let first = leader.raft.status().borrow().snapshot;
    while !adding.is_finished() {
        leader.propose("meanwhile").await.unwrap();
        // Fewer in the time of the transfer than are kept behind a snapshot.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    adding.await.unwrap().unwrap();
    assert!(leader.raft.status().borrow().snapshot > first, "others were taken meanwhile");
    world.converge().await;
    let restored = learner.log.0.lock().unwrap().restored;
    assert_eq!(restored, 1, "snapshots were sent");
}

/// A leader that is cut off has begun to remove a member. Nothing of that is left when a snapshot brings it up to date.
#[tokio::test]
async fn f067_a_snapshot_brings_its_membership_with_it() {
    let mut world = World::new(3).await;
    world.settings = Box::new(|config| {
        config.compaction.entries = 40;
        config.compaction.keep = 5;
        config.request_timeout = Duration::from_secs(1);
    });
    world.start_all().await;
    world.propose(10).await;
    world.converge().await;
    let (old, alone) = world.leader().await;
    world.nodes.remove(&old);
    world.isolate(old, true);
    let other = *world.nodes.keys().next().unwrap();
    alone.raft.remove_member(node(other)).await.expect_err("nobody agrees to it");
    let uncommitted = alone.raft.status().borrow().last_log.unwrap();

    let (_, leader) = world.leader().await;
    for i in 0..200 {
        leader.propose(format!("missed {i}")).await.unwrap();
    }
    leader.until("what it needs is compacted", |s| s.purged > Some(uncommitted)).await;
    world.isolate(old, false);
    world.nodes.insert(old, alone.clone());
    world.converge().await;
    assert_eq!(alone.log.0.lock().unwrap().restored, 1, "it came by a snapshot");
    alone
        .until("all three vote, by its word too", |s| {
            s.members.len() == 3 && s.members.values().all(|member| member.voter)
        })
        .await;

    // It leads with the votes of that membership: with either of the others.
    for absent in (1..=3).filter(|id| *id != old) {
        world.kill(absent).await;
        world.propose(1).await;
        world.start(absent).await.unwrap();
        world.converge().await;
    }
}

#[tokio::test]
async fn f084_the_log_is_bounded_by_entries_bytes_and_time() {
    // By entries.
    let mut world = World::new(1).await;
    world.settings = Box::new(|config| {
        config.compaction.entries = 50;
        config.compaction.keep = 10;
    });
    world.start_all().await;
    world.propose(500).await;
    let (_, leader) = world.leader().await;
    let compacted =
        |s: &RaftStatus| s.purged.map_or(0, LogIndex::get) + 200 > s.last_log.map_or(0, LogIndex::get);
    leader.until("old entries are gone", compacted).await;

    // By bytes, far below the bound on entries.
    let mut world = World::new(1).await;
    world.settings = Box::new(|config| config.compaction.bytes = 1 << 20);
    world.start_all().await;
    let (_, leader) = world.leader().await;
    for _ in 0..40 {
        leader.propose(vec![1; 256 << 10]).await.unwrap();
    }
    leader.until("a snapshot was taken and the log purged", |s| s.purged > Some(index(20))).await;

    // By time, with nearly nothing in it.
    let mut world = World::new(1).await;
    world.settings = Box::new(|config| config.compaction.every = Duration::from_millis(100));
    world.start_all().await;
    world.propose(1).await;
    let (_, leader) = world.leader().await;
    leader.until("a snapshot was taken", |s| s.snapshot >= Some(index(2))).await;
}

#[tokio::test]
async fn a_log_whose_snapshot_is_gone_or_damaged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(1).await;
    world.settings = Box::new(|config| {
        config.compaction.entries = 20;
        config.compaction.keep = 0;
    });
    world.disks.insert(1, Kept::Dir(dir.path().to_path_buf()));
    world.start_all().await;
    world.propose(200).await;
    world.leader().await.1.until("the log is compacted", |s| s.purged > Some(index(50))).await;
    world.kill(1).await;

    let snapshots = dir.path().join("snapshots");
    let newest = std::fs::read_dir(&snapshots).unwrap().map(|f| f.unwrap().path()).max().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&newest, damaged).unwrap();
    let error = world.start(1).await.err().unwrap();
    assert!(matches!(&error, StartError::Corrupt { path, .. } if *path == newest), "{error}");

    std::fs::remove_dir_all(&snapshots).unwrap();
    let error = world.start(1).await.err().unwrap();
    assert!(matches!(&error, StartError::Corrupt { path, .. } if *path == snapshots), "{error}");

    std::fs::create_dir_all(&snapshots).unwrap();
    std::fs::write(&newest, bytes).unwrap();
    let (log, aside) = (dir.path().join("log.redb"), dir.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    let error = world.start(1).await.err().unwrap();
    assert!(matches!(&error, StartError::Corrupt { path, .. } if *path == log), "{error}");

    std::fs::rename(&aside, &log).unwrap();
    world.start(1).await.unwrap();
    world.propose(1).await;
    assert_eq!(world.nodes[&1].values(), 201);
}
