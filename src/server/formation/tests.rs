use crate::files::SystemFiles;
use crate::formation::FormationError;
use crate::identity::{Belonging, IdentityStore, Member};
use crate::testing::{Cluster, create, until};
use crate::{Coordinator, NodeError};
use ringfence_api::{ErrorKind, Failure, v1};
use ringfence_core::ids::{ClusterId, NodeId};
use std::sync::Arc;

fn node(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

/// What the directories of these nodes hold after a crash: the founder has named the cluster, and `adopted` have
/// written it down.
fn crashed_after_naming(cluster: &Cluster, adopted: &[u64]) {
    let mut stores: Vec<IdentityStore> = (1..=3)
        .map(|id| IdentityStore::open(Arc::new(SystemFiles), &cluster.dir(id), node(id)).unwrap())
        .collect();
    let member = |store: &IdentityStore| Member {
        address: cluster.address(store.identity().node.get()).to_owned(),
        incarnation: Some(store.identity().incarnation),
    };
    let members = stores.iter().map(|store| (store.identity().node, member(store))).collect();
    let named = Belonging { cluster: ClusterId::new("00000000000000aa").unwrap(), members, founder: false };
    for id in adopted {
        let belonging = Belonging { founder: *id == 1, ..named.clone() };
        stores[usize::try_from(*id).unwrap() - 1].belong(belonging).unwrap();
    }
}

async fn cluster_id(cluster: &Cluster, id: u64) -> String {
    let status = cluster.admin(id).await.cluster_status(v1::ClusterStatusRequest {}).await.unwrap();
    status.into_inner().cluster
}

#[tokio::test]
async fn a_cluster_forms_when_all_have_answered_and_says_until_then_whom_it_waits_for() {
    let mut cluster = Cluster::of(1..=3);
    cluster.start(1).await;
    cluster.start(2).await;
    let waits = async || {
        let status = cluster.admin(1).await.cluster_status(v1::ClusterStatusRequest {}).await.unwrap();
        let status = status.into_inner();
        assert_eq!(status.cluster, "", "a cluster formed without its third node");
        (status.forming.contains("waiting for n3") && status.nodes.len() == 3).then_some(())
    };
    until("node 1 says that it waits for node 3", waits).await;
    let refused = cluster.admin(2).await.create_keyspace(create("orders", 4)).await.unwrap_err();
    let refused = Failure::decode(&refused);
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.message().contains("does not serve yet"), "{refused}");

    // The founder may crash while it waits.
    cluster.crash(1);
    cluster.start(1).await;
    cluster.start(3).await;
    cluster.ready().await;
    let id = cluster_id(&cluster, 1).await;
    assert_eq!((id.len(), cluster_id(&cluster, 3).await), (16, id));
}

#[tokio::test]
async fn a_crash_between_any_two_steps_leaves_a_cluster_that_forms() {
    for adopted in [vec![1], vec![1, 2], vec![1, 2, 3]] {
        let mut cluster = Cluster::of(1..=3);
        crashed_after_naming(&cluster, &adopted);
        for id in 1..=3 {
            cluster.start(id).await;
        }
        cluster.ready().await;
        for id in 1..=3 {
            assert_eq!(cluster_id(&cluster, id).await, "00000000000000aa", "after {adopted:?}");
        }
    }
}

#[tokio::test]
async fn f012_a_node_that_was_wiped_while_the_cluster_formed_is_not_taken_for_the_one_it_was() {
    let mut cluster = Cluster::of(1..=3);
    crashed_after_naming(&cluster, &[1, 2, 3]);
    cluster.wipe(3);
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let ended = cluster.nodes[&3].ended().await.unwrap_err();
    assert!(
        matches!(&ended, NodeError::Formation(e) if matches!(**e, FormationError::Wiped { .. })),
        "{ended}"
    );
}

#[tokio::test]
async fn nodes_that_were_given_other_lists_both_say_so_and_form_nothing() {
    let mut cluster = Cluster::of(1..=4);
    cluster.start_with(1, &[1, 2, 3]).await;
    cluster.start_with(2, &[1, 2, 4]).await;
    cluster.start_with(3, &[1, 2, 3]).await;
    let (third, fourth) = (cluster.address(3).to_owned(), cluster.address(4).to_owned());
    for id in [1, 2] {
        until("both name the difference", async || {
            let forming = cluster.nodes[&id].forming();
            let named = forming.contains("another cluster list");
            (named && forming.contains(&third) && forming.contains(&fourth)).then_some(())
        })
        .await;
    }
    assert!(cluster.nodes.values().all(|node| node.raft_status().is_none()), "something was formed");

    cluster.crash(2);
    cluster.start(2).await;
    cluster.ready().await;
}

#[tokio::test]
async fn f012_a_wiped_node_does_not_come_back_under_its_id() {
    let mut cluster = Cluster::formed().await;
    // The founder too: the others know its data as it knew theirs.
    for id in [3, 1] {
        cluster.shutdown(id).await;
        cluster.wipe(id);
        cluster.start(id).await;
        let ended = cluster.nodes.remove(&id).unwrap().ended().await.unwrap_err().to_string();
        assert!(
            ended.contains(&format!("n{id} belongs to a cluster")) && ended.contains("new id"),
            "{ended}"
        );
    }
}

#[tokio::test]
async fn a_stranger_does_not_slip_into_a_cluster_by_its_list_and_the_cluster_goes_on() {
    let mut cluster = Cluster::formed().await;
    cluster.start_with(4, &[1, 2, 4]).await;
    let ended = cluster.nodes.remove(&4).unwrap().ended().await.unwrap_err().to_string();
    assert!(ended.contains("formed without n4") && ended.contains("join"), "{ended}");
    cluster.admin(cluster.leader().await).await.create_keyspace(create("orders", 4)).await.unwrap();
}

#[tokio::test]
async fn everything_is_there_again_after_all_nodes_restarted() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    cluster.admin(leader).await.create_keyspace(create("orders", 4)).await.unwrap();
    let id = cluster_id(&cluster, leader).await;
    for id in 1..=3 {
        cluster.shutdown(id).await;
    }
    // The founder among them; it does not wait for the third to adopt what is formed long since.
    for id in 1..=2 {
        cluster.start(id).await;
    }
    cluster.ready().await;
    until("nobody waits for anything", async || {
        cluster.nodes.values().all(|node| node.forming().is_empty()).then_some(())
    })
    .await;
    cluster.start(3).await;
    cluster.ready().await;
    let keyspaces = until("a leader answers", async || {
        let mut admin = cluster.admin(cluster.leader().await).await;
        Some(admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.ok()?.into_inner().keyspaces)
    })
    .await;
    assert_eq!(keyspaces.len(), 1);
    assert_eq!(cluster_id(&cluster, 2).await, id);
}

#[tokio::test]
async fn f066_a_node_is_added_when_it_waits_for_it_and_its_id_is_used_once() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let mut admin = cluster.admin(leader).await;
    let four = v1::AddNodeRequest { node: 4, address: cluster.address(4).to_owned(), directive: None };

    // It does not run yet: nothing is changed, its id included.
    let refused = Failure::decode(&admin.add_node(four.clone()).await.unwrap_err());
    assert!(
        refused.message().contains("n4") && refused.message().contains("nothing was changed"),
        "{refused}"
    );

    cluster.start_with(4, &[]).await;
    until("node 4 says that it waits", async || {
        cluster.nodes[&4].forming().contains("ringfence cluster add-node 4=").then_some(())
    })
    .await;
    let other = v1::AddNodeRequest { node: 5, ..four.clone() };
    let refused = Failure::decode(&admin.add_node(other).await.unwrap_err());
    assert!(refused.message().contains("not 5"), "{refused}");
    admin.add_node(four.clone()).await.unwrap();
    cluster.ready().await;
    let again = Failure::decode(&admin.add_node(four.clone()).await.unwrap_err());
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let status = admin.cluster_status(v1::ClusterStatusRequest {}).await.unwrap().into_inner();
    assert!(status.nodes.iter().any(|n| n.node == 4 && n.role() == v1::NodeRole::Follower), "{status:?}");

    let remove = v1::RemoveNodeRequest { node: 4, dry_run_of: 0, directive: None };
    let dry_run = v1::RemoveNodeRequest { node: 0, dry_run_of: 4, directive: None };
    for (request, unchanged) in
        [(&dry_run, false), (&dry_run, false), (&remove, false), (&remove, true), (&dry_run, true)]
    {
        let answer = admin.remove_node(request.clone()).await.unwrap().into_inner();
        assert_eq!(answer.unchanged, unchanged, "{request:?}");
    }
    // It runs on, with the data that it was added with.
    let refused = Failure::decode(&admin.add_node(four.clone()).await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("was removed"), "{refused}");
    cluster.shutdown(4).await;
    cluster.wipe(4);
    cluster.start_with(4, &[]).await;
    let refused = Failure::decode(&admin.add_node(four).await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("never used again"), "{refused}");
}

/// An old copy of a node's directory is put in its place. Returns how the node ended; `None` when its leader did not stay
/// the same meanwhile, as on a machine that stood still, and then nobody remembers what it had acknowledged.
async fn old_copy(cluster: &mut Cluster, leader: u64, follower: u64) -> Option<NodeError> {
    let (dir, copy) = (cluster.dir(follower), cluster.dir(follower + 10));
    let term = cluster.nodes[&leader].raft_status().unwrap().term;
    cluster.shutdown(follower).await;
    copy_dir(&dir, &copy);
    cluster.start(follower).await;
    cluster.ready().await;
    let mut admin = cluster.admin(leader).await;
    for name in ["orders", "bills"] {
        admin.create_keyspace(create(name, 4)).await.unwrap();
    }
    let last = cluster.nodes[&leader].raft_status().unwrap().last_log;
    // What a follower has, and its leader does not know of, can be lost without anybody missing it.
    until("the leader knows that the follower has it all", async || {
        let members = cluster.nodes[&leader].raft_status()?.members;
        (members.get(&node(follower))?.matched >= last).then_some(())
    })
    .await;
    cluster.shutdown(follower).await;
    cluster.wipe(follower);
    copy_dir(&copy, &dir);
    cluster.start(follower).await;
    until("it ends, or another leads", async || {
        let same = cluster.nodes[&leader].raft_status()?;
        match cluster.nodes[&follower].outcome() {
            Some(ended) => Some(ended.err()),
            None => (!same.leads() || same.term != term).then_some(None),
        }
    })
    .await
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy_dir(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[tokio::test]
async fn f012_f039_an_old_copy_of_a_directory_is_noticed_and_stays_out() {
    for _ in 0..5 {
        let mut cluster = Cluster::formed().await;
        let leader = cluster.leader().await;
        let follower = (1..=3).find(|id| *id != leader).unwrap();
        let Some(ended) = old_copy(&mut cluster, leader, follower).await else { continue };
        assert!(matches!(ended, NodeError::WentBack(_)) && ended.has_forgotten(), "{ended}");
        assert!(ended.to_string().contains("older copy") && ended.to_string().contains("new id"), "{ended}");

        // Also when nobody is left who remembers.
        cluster.crash(follower);
        let settings = cluster.settings(follower, &[1, 2, 3]);
        let again =
            until("the port is free", async || match Coordinator::with(settings.clone()).start().await {
                Err(NodeError::Listen { .. }) => None,
                other => Some(other.err()),
            })
            .await;
        assert!(again.is_some_and(|error| error.has_forgotten()));
        let mut admin = cluster.admin(leader).await;
        admin.create_keyspace(create("more", 4)).await.unwrap();
        admin
            .remove_node(v1::RemoveNodeRequest { node: follower, dry_run_of: 0, directive: None })
            .await
            .unwrap();
        return;
    }
    panic!("no leader lasted");
}

#[tokio::test]
async fn a_node_whose_vote_the_others_need_is_not_removed() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let [gone, needed] = [1, 2, 3].into_iter().filter(|id| *id != leader).collect::<Vec<u64>>()[..] else {
        panic!("three nodes")
    };
    let mut admin = cluster.admin(leader).await;
    cluster.crash(gone);
    until("the one that is gone is missed", async || {
        let status = admin.cluster_status(v1::ClusterStatusRequest {}).await.unwrap().into_inner();
        let missed = |n: &v1::Node| n.node == gone && n.reachable == Some(false);
        status.nodes.iter().any(missed).then_some(())
    })
    .await;
    // Also the leader itself: whoever is left would be one of two.
    for node in [needed, leader] {
        let refused = Failure::decode(
            &admin
                .remove_node(v1::RemoveNodeRequest { node, dry_run_of: 0, directive: None })
                .await
                .unwrap_err(),
        );
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        assert!(refused.message().contains(&format!("start n{gone} again")), "{refused}");
        let dry_run = v1::RemoveNodeRequest { node: 0, dry_run_of: node, directive: None };
        let same = Failure::decode(&admin.remove_node(dry_run).await.unwrap_err());
        assert_eq!(same.message(), refused.message());
    }
    admin.remove_node(v1::RemoveNodeRequest { node: gone, dry_run_of: 0, directive: None }).await.unwrap();
    admin.remove_node(v1::RemoveNodeRequest { node: needed, dry_run_of: 0, directive: None }).await.unwrap();
    admin.create_keyspace(create("orders", 4)).await.unwrap();
}
