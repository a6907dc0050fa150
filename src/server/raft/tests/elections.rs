//! Who leads, and what a leader's word is worth.

use super::world::{PATIENCE, World, node, term};
use crate::raft::{ClusterSecret, NotLeader, ProposeError, RaftStatus, limits};
use bytes::Bytes;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut world = World::cluster(3).await;
    world.propose(20).await;
    let mut times = Vec::new();
    for _ in 0..3 {
        let (killed, leader) = world.leader().await;
        let before = leader.raft.status().borrow().term;
        world.kill(killed).await;
        let began = Instant::now();
        let write = async {
            loop {
                for running in world.nodes.values() {
                    if let Ok((at, count)) = running.propose("after").await {
                        return (at, count);
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let written = tokio::time::timeout(PATIENCE, write).await.expect("another leader");
        times.push(began.elapsed());
        assert!(written.0.term > before, "a new term for a new leader");
        world.start(killed).await.unwrap();
        world.converge().await;
    }
    assert_eq!(world.leader().await.1.values(), 23);
    println!("leader killed to first write: {times:?}");
}

#[tokio::test]
async fn a_confirmation_covers_everything_acknowledged_before_it() {
    let world = World::cluster(3).await;
    world.propose(5).await;
    let (id, leader) = world.leader().await;
    let (at, count) = leader.propose("last").await.unwrap();
    assert_eq!(count, 6);
    let confirmed = leader.raft.confirm().await.unwrap();
    assert_eq!(confirmed.term, at.term);
    assert!(confirmed.applied >= at.index && leader.values() == 6);
    let status = leader.raft.status().borrow().clone();
    assert_eq!((status.node, status.term, status.leads()), (node(id), at.term, true));
    assert!(status.millis_since_quorum_ack().is_some() && leader.raft.since_contact().is_some());

    let follower = world.nodes.iter().find(|(other, _)| **other != id).unwrap().1;
    follower.until("it knows the leader", |s| s.leader.is_some()).await;
    let elsewhere = NotLeader::Elsewhere { leader: Some((node(id), world.address(id))) };
    assert_eq!(follower.raft.confirm().await, Err(elsewhere));
    let refused = follower.propose("no").await.unwrap_err();
    assert!(
        matches!(refused, ProposeError::NotLeader { leader: Some((at, _)), .. } if at == node(id)),
        "{refused}"
    );
    assert!(follower.raft.since_contact().is_some());
}

#[tokio::test]
async fn t30_an_isolated_leader_can_neither_confirm_nor_write() {
    let mut world = World::cluster(3).await;
    world.propose(3).await;
    let (old, leader) = world.leader().await;
    let old_term = leader.raft.confirm().await.unwrap().term;
    world.isolate(old, true);
    leader.raft.confirm().await.expect_err("no quorum confirms it");
    let lost = leader.propose("into the void").await.unwrap_err();
    assert!(matches!(lost, ProposeError::NotLeader { .. } | ProposeError::Unknown(_)), "{lost}");

    let alone = world.nodes.remove(&old).unwrap();
    let (_, new) = world.leader().await;
    new.propose("by the majority").await.unwrap();
    assert!(new.raft.confirm().await.unwrap().term > old_term);
    // It may still believe that it leads; its word counts for nothing.
    alone.raft.confirm().await.expect_err("deposed");

    world.nodes.insert(old, alone.clone());
    world.isolate(old, false);
    world.converge().await;
    let values = alone.log.0.lock().unwrap().values.clone();
    assert!(values.contains(&b"by the majority".to_vec()));
    let deposed = alone.raft.propose(Bytes::from_static(b"late"), Some(old_term)).await;
    assert!(matches!(deposed, Err(ProposeError::NotLeader { .. })), "{deposed:?}");
}

#[tokio::test]
async fn f074_a_proposal_is_bound_to_its_term_and_its_size() {
    let mut world = World::new(1).await;
    world.start_all().await;
    let (_, leader) = world.leader().await;
    let now = leader.raft.confirm().await.unwrap().term;
    let payload = Bytes::from_static(b"decided");
    leader.raft.propose(payload.clone(), Some(now)).await.unwrap();
    let stale = leader.raft.propose(payload, Some(term(now.get() - 1))).await;
    assert!(matches!(stale, Err(ProposeError::NotLeader { .. })), "{stale:?}");
    let limit = limits::ENTRY_BYTES;
    leader.propose(vec![0; limit]).await.unwrap();
    let large = leader.propose(vec![0; limit + 1]).await;
    assert_eq!(large, Err(ProposeError::TooLarge { bytes: limit + 1, limit }));
}

#[tokio::test]
async fn entries_of_the_largest_size_are_replicated() {
    let world = World::cluster(3).await;
    let (_, leader) = world.leader().await;
    let proposals = (0..12).map(|_| leader.propose(vec![7; limits::ENTRY_BYTES]));
    for result in futures_util::future::join_all(proposals).await {
        result.unwrap();
    }
    world.converge().await;
}

#[tokio::test]
async fn f071_a_transfer_moves_leadership_and_the_old_leader_confirms_nothing() {
    let world = World::cluster(3).await;
    world.propose(2).await;
    let (old, leader) = world.leader().await;
    let target = world.nodes.keys().copied().find(|id| *id != old).unwrap();
    let before = leader.raft.confirm().await.unwrap();
    assert_eq!(leader.raft.transfer_leadership(Some(node(target))).await, Ok(node(target)));
    let new = &world.nodes[&target];
    new.until("it leads", RaftStatus::leads).await;
    let (at, _) = new.propose("after the transfer").await.unwrap();
    assert!(at.term > before.term);
    leader.raft.confirm().await.expect_err("it leads no longer");
}

#[tokio::test]
async fn f071_a_transfer_to_a_dead_node_leaves_a_cluster_that_elects() {
    let mut world = World::cluster(3).await;
    world.propose(2).await;
    let (old, leader) = world.leader().await;
    let dead = world.nodes.keys().copied().find(|id| *id != old).unwrap();
    world.kill(dead).await;
    // Whoever leads in the end, it is not the dead one.
    let _ = leader.raft.transfer_leadership(Some(node(dead))).await;
    let (_, now) = world.leader().await;
    now.propose("still writable").await.unwrap();
}

/// The leader reaches one follower only, the fifth node nobody. Three nodes that reach each other are a majority; one of them
/// hears the leader all the time.
#[tokio::test]
async fn f060_a_leader_without_a_quorum_does_not_keep_a_connected_majority_from_electing() {
    let mut world = World::cluster(5).await;
    world.propose(3).await;
    world.converge().await;
    let (old, leader) = world.leader().await;
    let before = leader.raft.confirm().await.unwrap().term;
    let others: Vec<u64> = (1..=5).filter(|id| *id != old).collect();
    let fifth = others[3];
    for cut in &others[1..] {
        world.part(old, *cut, true);
    }
    world.isolate(fifth, true);
    let mut away = [old, fifth].map(|id| (id, world.nodes.remove(&id).unwrap()));

    let (_, new) = world.leader().await;
    let (at, _) = new.propose("by the connected majority").await.unwrap();
    assert!(at.term > before);
    leader.raft.confirm().await.expect_err("its word counts for nothing");
    world.isolate(fifth, false);
    world.isolate(old, false);
    for (id, running) in &mut away {
        world.nodes.insert(*id, running.clone());
    }
    world.converge().await;
    let leads = world.nodes.values().filter(|running| running.raft.status().borrow().leads()).count();
    assert_eq!(leads, 1);
}

#[tokio::test]
async fn an_entry_of_an_unknown_format_stops_the_node_and_says_why() {
    let world = World::cluster(1).await;
    let (_, leader) = world.leader().await;
    let refused = leader.propose("format 9").await.unwrap_err();
    assert!(matches!(refused, ProposeError::Unknown(_)), "{refused}");
    let status = leader.until("it has stopped", |s| s.stopped.is_some()).await;
    let why = status.stopped.unwrap();
    assert!(why.contains("format 9 is not known here"), "{why}");
    assert!(matches!(leader.propose("more").await, Err(ProposeError::Stopped(_))));
    assert!(matches!(leader.raft.confirm().await, Err(NotLeader::Stopped(_))));
}

#[tokio::test]
async fn f037_a_node_without_the_secret_takes_no_part() {
    let mut world = World::new(3).await;
    let secret = |bytes: &[u8]| ClusterSecret::new(bytes);
    world.settings = Box::new(move |config| {
        config.secret =
            if config.node == node(3) { secret(b"a wrong secret..") } else { secret(b"the right secret") };
    });
    world.start_all().await;
    let stranger = world.nodes.remove(&3).unwrap();
    world.propose(3).await;
    world.converge().await;
    assert_eq!(stranger.values(), 0);
    assert_eq!(stranger.log.0.lock().unwrap().last, None);
}

/// Whoever reaches the port and knows the cluster's name: without the secret it is not even listened to.
#[tokio::test]
async fn f037_a_vote_and_an_append_from_outside_move_no_term() {
    use ringfence_api::v1::{self, raft_client::RaftClient};
    let mut world = World::new(3).await;
    world.settings = Box::new(|config| config.secret = ClusterSecret::new(b"the right secret"));
    world.start_all().await;
    world.propose(3).await;
    world.converge().await;
    let (id, leader) = world.leader().await;
    let before = leader.raft.confirm().await.unwrap().term;
    for to in 1..=3 {
        let mut outside = RaftClient::connect(format!("http://{}", world.address(to))).await.unwrap();
        let from = (1..=3).find(|from| *from != to).unwrap();
        let envelope = v1::RaftEnvelope { cluster: "test".to_owned(), from, to, to_store: 0 };
        let vote = v1::RaftVote { term: 1 << 62, node: from, committed: true };
        let last_log = Some(v1::RaftLogId { term: 1 << 62, index: 1 << 62 });
        let ask = v1::RaftVoteRequest {
            envelope: Some(envelope.clone()),
            vote: Some(vote),
            last_log,
            leadership_transfer: true,
        };
        let append =
            v1::RaftAppendRequest { envelope: Some(envelope), vote: Some(vote), ..Default::default() };
        let answers = [
            outside.vote(ask.clone()).await.map(drop),
            outside.pre_vote(ask).await.map(drop),
            outside.heartbeat(append.clone()).await.map(drop),
            outside.append(tokio_stream::once(append)).await.map(drop),
        ];
        for answer in answers {
            assert_eq!(answer.unwrap_err().code(), tonic::Code::Unauthenticated);
        }
    }
    let now = leader.raft.confirm().await.unwrap();
    assert_eq!((now.term, world.leader().await.0), (before, id));
}

#[tokio::test]
async fn initializing_again_changes_nothing() {
    let world = World::cluster(3).await;
    world.propose(1).await;
    world.initialize(2, &[2]).await;
    world.initialize(1, &[1, 2, 3]).await;
    world.propose(1).await;
    world.converge().await;
    assert_eq!(world.nodes[&2].raft.status().borrow().members.len(), 3);
}
