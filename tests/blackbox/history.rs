//! Who decided what, and when: what is told of it afterwards is true, and nothing else is told.

use crate::harness::{Cluster, Fleet, KEYSPACE, wait_for};
use crate::operators::{joined, lopsided, newest, result};
use serde_json::Value;

/// What was decided, newest first: by whom, what, and why.
fn decided(cluster: &Cluster) -> Vec<(String, String, String)> {
    let text = |directive: &Value, field: &str| directive[field].as_str().unwrap_or_default().to_owned();
    let all = cluster.run(&["directives"]).done();
    let one = |given: &Value| (text(given, "by"), text(given, "what"), text(given, "reason"));
    all.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn every_change_names_who_and_why_and_what_changes_nothing_is_not_remembered() {
    let cluster = Cluster::dev();
    let by = |args: &[&str]| result(&cluster, &[args, &["--by", "ada", "--reason", "because"]].concat());
    let create = ["keyspace", "create", KEYSPACE, "--partitions", "4", "--ttl", "2s"];
    assert_eq!(by(&create), "created");
    assert_eq!(by(&["keyspace", "update", KEYSPACE, "--balance", "false", "--ttl", "3s"]), "updated");
    assert_eq!(by(&["worker", "weight", "w7", "5"]), "changed");
    assert_eq!(by(&["partition", "weigh", "orders/1", "9"]), "changed");
    let settings = cluster.run(&["settings"]).done();
    for set in [&settings["workers"][0], &settings["partitions"][0]] {
        assert_eq!(
            (&set["weighed"]["by"], &set["weighed"]["reason"]),
            (&"ada".into(), &"because".into()),
            "{set}"
        );
    }
    assert_eq!(by(&["partition", "weigh", "orders/1", "none"]), "changed");
    let so_far = decided(&cluster);

    // Nothing of this is a change.
    for nothing in [
        &["worker", "weight", "w7", "5"][..],
        &["partition", "weigh", "orders/1", "none"],
        &["partition", "unpin", "orders/1"],
        &["worker", "undrain", "w7"],
        &["unfreeze", "keyspace", KEYSPACE],
        &["rebalance", "cancel"],
        &["keyspace", "create", KEYSPACE, "--partitions", "4", "--if-absent"],
    ] {
        assert_eq!(by(nothing), "unchanged", "{nothing:?}");
    }
    cluster.run(&["keyspace", "update", KEYSPACE, "--balance", "false", "--by", "eve"]).done();
    cluster.run(&["keyspace", "update", KEYSPACE, "--ttl", "1s", "--dry-run", "--by", "eve"]).done();
    assert_eq!(decided(&cluster), so_far);

    assert_eq!(by(&["keyspace", "delete", KEYSPACE, "--yes"]), "deleted");
    let told = decided(&cluster);
    let what: Vec<&str> = told.iter().map(|(_, what, _)| what.as_str()).collect();
    assert_eq!(
        what,
        [
            "delete keyspace orders",
            "no weight for partition orders/1",
            "weight 9 for partition orders/1",
            "weight 5 for worker w7",
            "update keyspace orders: ttl 3000ms, balance off",
            "create keyspace orders with 4 partitions",
        ]
    );
    assert!(told.iter().all(|(by, _, why)| (by.as_str(), why.as_str()) == ("ada", "because")), "{told:?}");
}

#[test]
fn a_worker_that_died_was_not_moved_by_whoever_moved_something_to_it() {
    let cluster = Cluster::dev();
    let mut fleet = lopsided(&cluster);
    let to_w2 =
        ["partition", "move", "orders/0", "--to", "w2", "--wait", "--by", "ada", "--reason", "try it"];
    assert_eq!(result(&cluster, &to_w2), "moved");
    let grant = newest(&cluster, "orders/0");
    assert_eq!(
        (&grant["directive"]["by"], &grant["reason"]),
        (&"ada".into(), &"moved by an operator".into()),
        "{grant}"
    );
    // On its way back by bob's word, and its owner dies.
    fleet.process("w2").stop();
    let back = ["partition", "move", "orders/0", "--to", "w1", "--by", "bob"];
    assert_eq!(result(&cluster, &back), "started");
    fleet.process("w2").kill();
    let grant = wait_for("it has another owner", || {
        Some(newest(&cluster, "orders/0")).filter(|grant| grant["worker"] == "w1")
    });
    assert_eq!((&grant["directive"], &grant["reason"]), (&Value::Null, &"failover".into()), "{grant}");

    // What became of the one that died is known from its beginning on.
    let events = cluster.run(&["worker", "history", "w2"]).done();
    let event = |what: &str| {
        let found =
            events.as_array().unwrap().iter().find(|event| event["what"].as_str().unwrap().contains(what));
        found.cloned().unwrap_or_else(|| panic!("{what}: {events}"))
    };
    let (began, ended) = (event("joined as session"), event("its lease ran out"));
    assert!(began["what"].as_str().unwrap().ends_with(" at w2.test:1"), "{events}");
    assert!(began["at_unix_ms"].as_u64().is_some() && ended["at_unix_ms"].as_u64().is_some(), "{events}");
    drop(fleet);
}

#[test]
fn a_drill_names_who_ran_it() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 2, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    joined(&cluster, "w1");
    joined(&cluster, "w2");
    fleet.balanced(&["w1", "w2"], 2);
    cluster.all_ready(KEYSPACE);
    let drill = ["drill", "orders/0", "--by", "ada", "--reason", "every month"];
    let ran = cluster.run(&drill).done();
    assert_eq!(ran["result"], "fenced", "{ran}");
    let grant = newest(&cluster, "orders/0");
    assert_eq!(
        (&grant["directive"]["by"], &grant["directive"]["reason"]),
        (&"ada".into(), &"every month".into()),
        "{grant}"
    );
    assert!(grant["directive"]["what"].as_str().unwrap().starts_with("drill partition orders/0"), "{grant}");
    drop(fleet);
}
