//! Coordinators that are stopped, killed and started again while workers write.

use crate::harness::{Audit, Cluster, Fleet, KEYSPACE, Owners, owners, wait_for};
use nix::sys::signal::Signal;
use std::time::Duration;

/// Two workers that write the partitions of a keyspace of this TTL.
fn writing(cluster: &Cluster, ttl: &str) -> (Fleet, Owners) {
    cluster.create_keyspace(KEYSPACE, 4, ttl);
    let mut fleet = Fleet::of(cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    let owners = cluster.all_ready(KEYSPACE);
    (fleet, owners)
}

/// A partition goes to the worker that does not own it, and its epoch is above all there were.
fn epochs_go_on_growing(cluster: &Cluster, before: &Owners) {
    let (worker, epoch, _) = &before[&0];
    let to = if worker == "w1" { "w2" } else { "w1" };
    let moved =
        cluster.acknowledged(&["partition", "move", "orders/0", "--to", to, "--wait", "--timeout", "30s"]);
    assert!(moved["epoch"].as_u64().unwrap() > *epoch, "{moved} after {before:?}");
}

#[test]
fn b32_a23_t52_f017_a_killed_leader_takes_no_partition_with_it_and_epochs_go_on_growing() {
    let mut cluster = Cluster::durable(3);
    let (mut fleet, before) = writing(&cluster, "3s");
    for round in 1..=3 {
        let (leader, term) = cluster.leader();
        cluster.node(leader).kill();
        let name = format!("after-{round}");
        cluster.acknowledged(&["keyspace", "create", &name, "--partitions", "1", "--if-absent"]);
        let (next, next_term) = cluster.leader();
        assert!(
            next != leader && next_term > term,
            "node {next} in term {next_term} after {leader} in {term}"
        );
        assert_eq!(cluster.owners(KEYSPACE), before, "round {round}");
        cluster.start(leader);
        wait_for("the killed node follows", || {
            let status = cluster.run_at(leader, &["cluster", "status", "--timeout", "1s"]);
            (status.code == 0 && status.json()["leader"] == next).then_some(())
        });
    }
    // A lease that the failover had shortened, or ended, would show within a TTL.
    fleet.go_on(Duration::from_millis(3_500));
    assert_eq!(cluster.owners(KEYSPACE), before);
    fleet.more_acks(20);

    epochs_go_on_growing(&cluster, &before);
    assert_eq!(fleet.audit(), Audit::default());
}

#[test]
fn f002_a_leader_stopped_for_longer_than_a_ttl_ends_no_lease_when_it_wakes() {
    let mut cluster = Cluster::durable(3);
    let (mut fleet, before) = writing(&cluster, "2s");
    let (leader, term) = cluster.leader();

    cluster.node(leader).stop();
    let (next, next_term) = cluster.leader();
    assert!(next != leader && next_term > term, "node {next} in term {next_term} after {leader} in {term}");
    // Longer than a TTL: by its own clock, every lease that the stopped leader knows is over.
    fleet.go_on(Duration::from_millis(2_500));
    assert!(cluster.node(leader).is_stopped());
    assert_eq!(cluster.owners(KEYSPACE), before, "under the new leader");

    cluster.node(leader).signal(Signal::SIGCONT);
    wait_for("the old leader follows the new one", || {
        let status = cluster.run_at(leader, &["cluster", "status"]);
        let status = (status.code == 0).then(|| status.json())?;
        (status["answered_by"] == leader && status["leader"].as_u64()? != leader).then_some(())
    });
    fleet.go_on(Duration::from_millis(2_500));
    assert_eq!(cluster.owners(KEYSPACE), before, "after the old leader woke");
    fleet.more_acks(20);
    assert_eq!(fleet.audit(), Audit::default());
}

/// All nodes are killed right behind an acknowledgement, and start again.
fn restart_all(nodes: u64) {
    const TTL: Duration = Duration::from_secs(8);
    let mut cluster = Cluster::durable(nodes);
    let (mut fleet, before) = writing(&cluster, "8s");
    let all: Vec<u64> = cluster.nodes.keys().copied().collect();
    let mut created = vec![KEYSPACE.to_owned()];
    for n in 0..12 {
        let name = format!("acknowledged-{n:02}");
        cluster.create_keyspace(&name, 1 + n, "5s");
        created.push(name);
    }

    for node in &all {
        cluster.node(*node).signal(Signal::SIGKILL);
    }
    for node in &all {
        cluster.node(*node).kill();
        cluster.start(*node);
    }
    // The first answer of each node that gives one has everything: none is served from half a state.
    for node in all {
        let first = wait_for("the node answers", || {
            Some(cluster.run_at(node, &["partition", "list", KEYSPACE, "--timeout", "1s"]))
                .filter(|ran| ran.code == 0)
        });
        assert_eq!(owners(&first.json()), before, "by node {node}");
    }
    let mut found: Vec<String> = Vec::new();
    for keyspace in cluster.acknowledged(&["keyspace", "list"]).as_array().unwrap() {
        found.push(keyspace["name"].as_str().unwrap().to_owned());
    }
    found.sort();
    created.sort();
    assert_eq!(found, created);

    // The workers were alive all along, and their leases are what they were.
    fleet.go_on(TTL + Duration::from_millis(500));
    assert_eq!(cluster.all_ready(KEYSPACE), before);
    fleet.more_acks(20);
    epochs_go_on_growing(&cluster, &before);
    assert_eq!(fleet.audit(), Audit::default());
}

#[test]
fn g5_f031_f069_restart_all_nodes_kill_9() {
    restart_all(3);
}

#[test]
fn g5_t48_f031_f069_restart_a_single_node_kill_9() {
    restart_all(1);
}
