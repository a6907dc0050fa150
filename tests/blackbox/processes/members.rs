//! Nodes that come, go, lose their disk, or are given another's.

use crate::harness::{Cluster, Fleet, KEYSPACE, free_address, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;

#[test]
fn f012_a_wiped_node_is_refused_and_its_place_is_taken_by_one_with_a_new_id() {
    let mut cluster = Cluster::durable(3);
    cluster.create_keyspace("orders", 4, "5s");
    let (leader, _) = cluster.leader();
    let wiped = if leader == 3 { 2 } else { 3 };

    cluster.node(wiped).kill();
    std::fs::remove_dir_all(cluster.data_dir(wiped)).unwrap();
    cluster.start(wiped);
    let (code, said) = cluster.refusal(wiped);
    assert_eq!(code, Some(1), "{said}");
    for part in
        ["data directory is new", "does not come back under its id", "remove-node", &format!("n{wiped}")]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The others lost nothing by it.
    assert_eq!(cluster.acknowledged(&["keyspace", "show", "orders"])["partitions"], 4);

    // Its place is taken, by the two steps of the README.
    cluster.addresses.insert(4, free_address());
    cluster.start_with(4, &["--join"]);
    let added = format!("4={}", cluster.addresses[&4]);
    wait_for("node 4 waits to be added", || cluster.node(4).log().contains("listening").then_some(()));
    assert_eq!(cluster.acknowledged(&["cluster", "add-node", &added, "--by", "ada"])["result"], "added");
    let newest = cluster.acknowledged(&["directives"])[0].clone();
    let what = format!("add node 4 at {}", cluster.addresses[&4]);
    assert_eq!((&newest["by"], &newest["what"]), (&"ada".into(), &what.into()));
    assert_eq!(cluster.run(&["cluster", "add-node", &added]).done()["result"], "unchanged");
    let removed = cluster.acknowledged(&["cluster", "remove-node", &wiped.to_string(), "--yes"]);
    assert_eq!(removed["result"], "removed");
    let nodes: Vec<u64> = ids(&cluster);
    assert!(nodes.contains(&4) && !nodes.contains(&wiped) && nodes.len() == 3, "{nodes:?}");

    // An id is used once: also with another address, and also waiting to be added.
    cluster.nodes.remove(&wiped);
    std::fs::remove_dir_all(cluster.data_dir(wiped)).unwrap();
    cluster.start_with(wiped, &["--join"]);
    wait_for("it waits to be added", || cluster.node(wiped).log().contains("listening").then_some(()));
    let again = cluster.run(&["cluster", "add-node", &format!("{wiped}={}", cluster.addresses[&wiped])]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains(&format!("n{wiped}")), "{again:?}");
    assert_eq!(ids(&cluster), nodes);
    cluster.nodes.remove(&wiped);

    // The one that was added is a node like the others: it survives its own death, and carries a vote for another's.
    cluster.node(4).kill();
    cluster.start_with(4, &["--join"]);
    wait_for("node 4 is back", || {
        let status = cluster.run_at(4, &["cluster", "status", "--timeout", "1s"]);
        (status.code == 0 && status.json()["answered_by"] == 4).then_some(())
    });
    let (leader, _) = cluster.leader();
    let victim = if leader == 4 { *nodes.iter().find(|node| **node != 4).unwrap() } else { leader };
    cluster.node(victim).kill();
    cluster.acknowledged(&["keyspace", "create", "after", "--partitions", "1", "--if-absent"]);
    assert_eq!(cluster.acknowledged(&["keyspace", "list"]).as_array().unwrap().len(), 2);
}

/// A leader that is removed may be gone before it has answered, and what is removed knows the others as they were.
#[test]
fn a_leader_is_removed_with_a_clear_answer_and_says_from_then_on_that_it_is_no_member() {
    let cluster = Cluster::durable(3);
    cluster.create_keyspace(KEYSPACE, 2, "2s");
    let (leader, _) = cluster.leader();
    let id = leader.to_string();
    let asked = cluster.run(&["cluster", "remove-node", &id]);
    assert_eq!((asked.code, &asked.json()["error"]["code"]), (2, &"usage".into()), "{asked:?}");
    assert_eq!(cluster.run(&["cluster", "remove-node", &id, "--dry-run"]).done()["result"], "planned");
    let by_ada = ["--by", "ada", "--reason", "an old disk"];
    let remove = [&["cluster", "remove-node", &id, "--yes"][..], &by_ada].concat();
    let removed = cluster.run(&remove).done();
    assert_eq!((&removed["result"], &removed["node"]), (&"removed".into(), &leader.into()));

    // Whoever was not told asks again, and it is as they want it.
    assert_eq!(cluster.acknowledged(&["cluster", "remove-node", &id, "--yes"])["result"], "unchanged");
    assert_eq!(cluster.acknowledged(&["cluster", "remove-node", &id, "--dry-run"])["result"], "unchanged");

    let status = wait_for("it knows that it was removed", || {
        let ran = cluster.run_at(leader, &["cluster", "status"]);
        Some(ran.json()).filter(|status| status["removed"].is_string())
    });
    assert_eq!(status["answered_by"], leader, "{status}");
    assert!(status["removed"].as_str().unwrap().contains("ask another node"), "{status}");
    let others = (1..=3).find(|node| *node != leader).unwrap();
    let of_another = wait_for("the others have a leader", || {
        let ran = cluster.run_at(others, &["cluster", "status"]);
        Some(ran.json()).filter(|status| status["leader"].is_u64() && status["leader"] != leader)
    });
    assert!(of_another["removed"].is_null(), "{of_another}");
    assert_eq!(of_another["nodes"].as_array().unwrap().len(), 2, "{of_another}");
    let at_it = format!("http://{}", cluster.addresses[&leader]);
    let screen = crate::harness::run(&at_it, &["cluster", "status"]);
    assert!(screen.out.starts_with(&format!("NODE {leader} IS NO MEMBER: ")), "{screen:?}");

    // Who it was is remembered, once, however often it was asked for.
    let given = cluster.run(&["directives"]).done();
    let removals: Vec<&Value> =
        given.as_array().unwrap().iter().filter(|d| d["what"] == format!("remove node {id}")).collect();
    assert_eq!(removals.len(), 1, "{given}");
    let told = (&removals[0]["by"], &removals[0]["reason"]);
    assert_eq!(told, (&"ada".into(), &"an old disk".into()));

    // Of its own vote it knows as little: that it has it already is not so.
    let as_it_was = format!("{leader}={}", cluster.addresses[&leader]);
    for dry_run in [&[][..], &["--dry-run"]] {
        let again = cluster.run_at(others, &[&["cluster", "add-node", &as_it_was][..], dry_run].concat());
        assert!(again.code == 1 && again.out.contains("never used again"), "{again:?}");
    }

    // Every other verb says the same, and nothing about the others, of whom it knows nothing.
    for args in [
        &["keyspace", "list"][..],
        &["worker", "list"],
        &["partition", "explain", "orders/0"],
        &["rebalance", "apply", "--keyspace", KEYSPACE, "--yes"],
        &["cluster", "transfer-leader"],
        &["cluster", "add-node", &as_it_was],
        &["cluster", "add-node", &as_it_was, "--dry-run"],
        &["status"],
    ] {
        let ran = cluster.run_at(leader, args);
        assert_eq!(ran.code, 1, "{ran:?}");
        let said = ran.json().to_string();
        assert!(said.contains("ask another node") && !said.contains("majority"), "{ran:?}");
    }
}

/// The members as the leader has them; a node that waits to be added has none to tell of.
fn ids(cluster: &Cluster) -> Vec<u64> {
    let status = wait_for("a node leads", || cluster.leader_now());
    status["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_u64().unwrap()).collect()
}

#[test]
fn the_lead_is_handed_over_when_asked_and_before_a_leader_ends() {
    let mut cluster = Cluster::durable(3);
    cluster.create_keyspace(KEYSPACE, 2, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 2);
    let owners = cluster.all_ready(KEYSPACE);
    let (leader, term) = cluster.leader();
    let to = leader % 3 + 1;
    let transfer = ["cluster", "transfer-leader", "--to", &to.to_string(), "--by", "ada"];
    let moved = cluster.run(&transfer).done();
    assert_eq!((&moved["result"], &moved["node"]), (&"transferred".into(), &to.into()));
    let (second, second_term) = cluster.leader();
    assert!(second == to && second_term > term);
    let newest = cluster.acknowledged(&["directives"])[0].clone();
    let told = (&newest["by"], &newest["what"]);
    assert_eq!(told, (&"ada".into(), &format!("asked to hand the lead to node {to}").into()));
    let same = cluster.run(&["cluster", "transfer-leader", "--to", &to.to_string()]).done();
    assert_eq!((&same["result"], cluster.leader()), (&"unchanged".into(), (second, second_term)));

    cluster.node(second).signal(Signal::SIGTERM);
    assert_eq!(cluster.node(second).ended().code(), Some(0));
    // It ends when another leads: nobody waits for an election behind it.
    let (third, third_term) = cluster.leader();
    assert!(third != second, "node {third} leads");
    // A vote that timed out and was repeated would show as more than one term.
    assert_eq!(third_term, second_term + 1, "the lead was not handed over: it was elected");
    cluster.run(&["keyspace", "create", "more", "--partitions", "1"]).done();
    fleet.go_on(Duration::from_millis(2_500));
    assert_eq!(cluster.owners(KEYSPACE), owners);
    fleet.more_acks(20);

    cluster.start(second);
    wait_for("it follows", || {
        let status = cluster.run_at(second, &["cluster", "status", "--timeout", "1s"]);
        (status.code == 0 && status.json()["leader"] == third).then_some(())
    });
}

#[test]
fn f012_a_data_directory_of_another_node_or_of_another_cluster_is_refused_and_both_are_named() {
    let mut one = Cluster::durable(1);
    let mut two = Cluster::durable(1);
    let name = |cluster: &Cluster| {
        cluster.run(&["cluster", "status"]).done()["cluster_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (name(&one), name(&two));
    for cluster in [&mut one, &mut two] {
        cluster.node(1).signal(Signal::SIGTERM);
        assert_eq!(cluster.node(1).ended().code(), Some(0));
    }

    // Another node.
    one.addresses.insert(2, free_address());
    std::fs::rename(one.data_dir(1), one.data_dir(2)).unwrap();
    one.start_with(2, &["--join"]);
    let (code, said) = one.refusal(2);
    assert_eq!(code, Some(1), "{said}");
    assert!(["n1", "n2", first.as_str(), "data-2"].iter().all(|part| said.contains(part)), "{said}");

    // Another cluster: the log of one beside the identity of the other.
    std::fs::copy(two.data_dir(1).join("log.redb"), one.data_dir(2).join("log.redb")).unwrap();
    std::fs::rename(one.data_dir(2), one.data_dir(1)).unwrap();
    one.nodes.clear();
    one.addresses.remove(&2);
    one.start(1);
    let (code, said) = one.refusal(1);
    assert_eq!(code, Some(1), "{said}");
    assert!([first.as_str(), second.as_str(), "log.redb"].iter().all(|part| said.contains(part)), "{said}");
}
