//! `ringfence drill`, with two real workers and a real database.

use crate::harness::{Audit, Cluster, Fleet, KEYSPACE, Ran, wait_for};
use serde_json::Value;

/// The report of a drill, and that its owners are those that the map names.
#[track_caller]
fn report(cluster: &Cluster, ran: &Ran, exit: i32, result: &str) -> Value {
    assert_eq!(ran.code, exit, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["result"], result, "{report}");
    assert!(report["new_epoch"].as_u64() > report["old_epoch"].as_u64(), "{report}");
    assert_ne!(report["new_worker"], report["old_worker"], "{report}");
    let name = format!("{KEYSPACE}/{}", report["partition"]);
    let history = &cluster.run(&["partition", "show", &name]).done()["history"];
    let granted =
        |epoch: &Value| history.as_array().unwrap().iter().find(|tenure| tenure["epoch"] == *epoch).cloned();
    assert_eq!(granted(&report["new_epoch"]).unwrap()["worker"], report["new_worker"], "{history}");
    assert_eq!(granted(&report["old_epoch"]).unwrap()["session"], report["old_session"], "{history}");
    report
}

#[track_caller]
fn refused(ran: &Ran, code: &str, part: &str) {
    let error = &ran.json()["error"];
    assert_eq!((ran.code, &error["code"]), (1, &code.into()), "{ran:?}");
    assert!(error["message"].as_str().unwrap().contains(part), "{ran:?}");
}

#[track_caller]
fn two_workers(fleet: &mut Fleet, cluster: &Cluster) {
    fleet.balanced(&["w1", "w2"], 4);
    cluster.all_ready(KEYSPACE);
}

#[test]
fn g1_a_drill_finds_that_a_store_with_a_fence_refuses_a_replaced_owner() {
    let cluster = Cluster::dev();
    let drill = |args: &[&str]| cluster.run(&[&["drill", KEYSPACE][..], args].concat());
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    refused(&drill(&[]), "refused", "no worker serves");
    fleet.start("w1");
    fleet.balanced(&["w1"], 4);
    cluster.all_ready(KEYSPACE);
    refused(&drill(&[]), "refused", "start a second one");
    fleet.start("w2");
    two_workers(&mut fleet, &cluster);

    refused(&cluster.run(&["drill", "nothing"]), "not_found", "nothing");
    refused(&cluster.run(&["drill", "orders/4"]), "not_found", "partitions 0 to 3");
    refused(&drill(&["--worker", "nobody"]), "not_found", "nobody");
    let before = cluster.run(&["partition", "list", KEYSPACE]).done();
    let unasked = drill(&["--worker", "w1", "--stall"]);
    assert_eq!((unasked.code, &unasked.json()["error"]["code"]), (2, &"usage".into()), "{unasked:?}");
    assert!(unasked.err.contains("say --yes"), "{unasked:?}");
    let short = ["--worker", "w1", "--stall", "--timeout", "3s", "--yes"];
    refused(&drill(&short), "invalid", "give the drill 4s or more");
    let plan = drill(&["--worker", "w1", "--stall", "--dry-run"]).done();
    assert_eq!(
        (&plan["result"], &plan["partitions_moved"], &plan["ttl_ms"]),
        (&"planned".into(), &2.into(), &2_000.into())
    );
    assert_eq!(cluster.run(&["partition", "list", KEYSPACE]).done(), before, "nothing was done");

    let moved = report(&cluster, &drill(&[]), 0, "fenced");
    assert_eq!((&moved["mode"], &moved["partitions_moved"]), (&"move".into(), &1.into()));
    assert_eq!((&moved["refused_writes"], &moved["accepted_stale_writes"]), (&1.into(), &0.into()));
    assert_eq!((&moved["stale_reads_refused"], &moved["stale_reads_accepted"]), (&2.into(), &0.into()));
    assert!(moved["gap_ms"].is_u64() && moved["what_to_do"].is_null() && moved["error"].is_null(), "{moved}");

    let stalled = wait_for("w2 may be stalled", || {
        let ran = drill(&["--worker", "w2", "--stall", "--yes"]);
        // A worker that owns nothing that is ready, or is suspected for a moment on a busy machine, is tried again.
        (ran.json()["error"]["code"] != "refused").then_some(ran)
    });
    let stalled = report(&cluster, &stalled, 0, "fenced");
    assert_eq!(
        (&stalled["mode"], &stalled["old_worker"], &stalled["refused_writes"]),
        (&"stall".into(), &"w2".into(), &1.into())
    );
    assert_eq!(stalled["stale_reads_accepted"], 0);
    // It joins anew and gets its share again.
    two_workers(&mut fleet, &cluster);
    assert_eq!(fleet.audit(), Audit::default());
}

#[test]
fn g1_control_a_drill_finds_a_store_that_ignores_the_token() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, false);
    fleet.start("w1");
    fleet.start("w2");
    two_workers(&mut fleet, &cluster);
    let found = report(&cluster, &cluster.run(&["drill", "orders/0"]), 1, "stale_write_accepted");
    assert_eq!(
        (&found["partition"], &found["accepted_stale_writes"], &found["refused_writes"]),
        (&0.into(), &1.into(), &0.into())
    );
    assert!(found["means"].as_str().unwrap().contains("the store does not check the token"), "{found}");
    assert!(found["what_to_do"].is_string(), "{found}");
}
