//! What operators decide about where partitions are, with the real binary: drains, pins, freezes, plans, and who did it.

use crate::harness::{Cluster, Fleet, KEYSPACE, Process, Ran, run, run_with, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a command is refused with.
#[track_caller]
pub(crate) fn refused(ran: &Ran, exit: i32, code: &str, part: &str) {
    let error = &ran.json()["error"];
    assert_eq!((ran.code, &error["code"]), (exit, &code.into()), "{ran:?}");
    assert!(error["message"].as_str().unwrap().contains(part), "{part}: {ran:?}");
}

/// A command that has to succeed, and its result.
#[track_caller]
pub(crate) fn result(cluster: &Cluster, args: &[&str]) -> String {
    cluster.run(args).done()["result"].as_str().unwrap().to_owned()
}

/// The workers that own partitions.
fn owners(cluster: &Cluster) -> BTreeSet<String> {
    cluster.owners(KEYSPACE).into_values().map(|(worker, _, _)| worker).collect()
}

/// How many partitions a worker owns.
pub(crate) fn owned_by(cluster: &Cluster, worker: &str) -> usize {
    cluster.owners(KEYSPACE).into_values().filter(|(owner, _, _)| owner == worker).count()
}

/// All that is owned is ready and with one of these.
fn only_with(cluster: &Cluster, workers: &[&str]) {
    let expected: BTreeSet<String> = workers.iter().map(|worker| (*worker).to_owned()).collect();
    wait_for(&format!("{workers:?} own everything"), || {
        cluster.all_ready(KEYSPACE);
        (owners(cluster) == expected).then_some(())
    });
}

/// `w1` owns all four partitions of a keyspace that does not balance, and `w2` has joined.
pub(crate) fn lopsided(cluster: &Cluster) -> Fleet {
    let create = ["keyspace", "create", KEYSPACE, "--partitions", "4", "--ttl", "2s", "--balance", "false"];
    cluster.run(&create).done();
    let mut fleet = Fleet::of(cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 4);
    fleet.start("w2");
    joined(cluster, "w2");
    fleet
}

pub(crate) fn joined(cluster: &Cluster, worker: &str) {
    wait_for(&format!("{worker} has joined"), || {
        let all = cluster.run(&["worker", "list"]).done();
        all.as_array().unwrap().iter().any(|found| found["worker"] == worker).then_some(())
    });
}

/// A worker of the keyspace `control`, which nobody has frozen.
fn control(cluster: &Cluster, name: &str) -> Process {
    let database = cluster.dir().join("control.db");
    let mut args =
        vec!["demo-worker", "--endpoints", &cluster.endpoints, "--id", name, "--keyspace", "control"];
    args.extend(["--address", "control.test:1", "--database", database.to_str().unwrap(), "--no-fence"]);
    let process = Process::start(name, cluster.dir(), &args);
    joined(cluster, name);
    process
}

/// The newest grant in a partition's history.
pub(crate) fn newest(cluster: &Cluster, partition: &str) -> Value {
    cluster.run(&["partition", "history", partition]).done()[0].clone()
}

#[test]
fn f029_a_drained_worker_gives_all_of_it_away_and_then_may_be_stopped() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    cluster.all_ready(KEYSPACE);

    let check = || cluster.run(&["worker", "drain", "w1", "--check"]);
    assert_eq!((check().code, &check().json()["result"]), (1, &"not_yet".into()));
    // Nobody can be asked.
    refused(&cluster.run(&["worker", "drain", "w1"]), 2, "usage", "say --yes");
    assert_eq!(result(&cluster, &["worker", "drain", "w1", "--dry-run"]), "planned");
    refused(&cluster.run(&["worker", "drain", "nobody", "--check"]), 1, "not_found", "nobody");
    assert_eq!(owned_by(&cluster, "w1"), 2, "a dry run does nothing");

    let by_ada = ["--by", "ada", "--reason", "a new disk"];
    let drain = [&["worker", "drain", "w1", "--wait", "40s", "--yes"][..], &by_ada].concat();
    let drained = cluster.run(&drain).done();
    assert_eq!((&drained["result"], &drained["partitions"]), (&"drained".into(), &0.into()), "{drained}");
    assert!(drained["session"].is_u64(), "it lives on: {drained}");
    only_with(&cluster, &["w2"]);
    assert_eq!((check().code, &check().json()["result"]), (0, &"may_stop".into()));
    assert_eq!(result(&cluster, &["worker", "drain", "w1", "--yes"]), "unchanged");

    // The history says who, and why.
    let given = (0..4).map(|number| newest(&cluster, &format!("{KEYSPACE}/{number}")));
    let drained: Vec<Value> = given.filter(|grant| grant["reason"] == "its owner is drained").collect();
    assert_eq!(drained.len(), 2, "{drained:?}");
    for grant in &drained {
        assert_eq!((&grant["worker"], &grant["directive"]["by"]), (&"w2".into(), &"ada".into()));
        assert_eq!(grant["directive"]["reason"], "a new disk");
        assert_eq!(grant["directive"]["what"], "drain worker w1");
    }
    let events = cluster.run(&["worker", "history", "w1"]).done();
    // The newest first. That somebody drained what was drained already is no event.
    let event = &events[0];
    assert_eq!((&event["what"], &event["by"]), (&"drain worker w1".into(), &"ada".into()), "{events}");
    let shown = cluster.run(&["worker", "show", "w1"]).done();
    assert_eq!((&shown["may_stop"], &shown["settings"]["drained"]["by"]), (&true.into(), &"ada".into()));
    assert_eq!(shown["live"]["worker"], "w1");

    refused(&cluster.run(&["worker", "remove", "w1", "--yes"]), 1, "refused", "session");
    assert_eq!(result(&cluster, &["worker", "undrain", "w1"]), "changed");
    only_with(&cluster, &["w1", "w2"]);

    // What is set outlives the worker, until it is forgotten.
    assert_eq!(result(&cluster, &["worker", "weight", "w1", "3"]), "changed");
    assert!(fleet.leave("w1").success());
    wait_for("w1 has left", || {
        cluster.run(&["worker", "show", "w1"]).done()["session"].is_null().then_some(())
    });
    assert_eq!(cluster.run(&["settings"]).done()["workers"][0]["weight"], 3);
    assert_eq!(result(&cluster, &["worker", "remove", "w1", "--dry-run"]), "planned");
    assert_eq!(result(&cluster, &["worker", "remove", "w1", "--yes"]), "changed");
    assert_eq!(cluster.run(&["settings"]).done()["workers"], json!([]));
    assert_eq!(fleet.audit().lost, 0);
}

/// A stop hook drains, a person drains as well, and the process is started anew: the hook's drain ends with that, and the
/// person's does not.
#[test]
fn t49_a_drain_for_a_restart_ends_with_it_and_takes_nobody_else_s_along() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    let stop = ["worker", "drain", "w1", "--until-join", "--wait", "40s", "--yes", "--by", "stop-hook"];
    let restart = |fleet: &mut Fleet| {
        assert_eq!(result(&cluster, &stop), "drained");
        only_with(&cluster, &["w2"]);
        assert!(fleet.leave("w1").success());
        fleet.start("w1");
    };
    restart(&mut fleet);
    only_with(&cluster, &["w1", "w2"]);
    assert_eq!(cluster.run(&["settings"]).done()["workers"], json!([]));

    // Behind the hook's, so that what is set already may not swallow it.
    assert_eq!(result(&cluster, &stop), "drained");
    assert_eq!(result(&cluster, &["worker", "drain", "w1", "--yes", "--by", "ada"]), "changed");
    restart(&mut fleet);
    let settings = || cluster.run(&["worker", "show", "w1"]).done()["settings"].clone();
    wait_for("w1 has joined again", || settings()["drained_until_join"].is_null().then_some(()));
    assert_eq!(settings()["drained"]["by"], "ada");
    fleet.more_acks(40);
    assert_eq!(owned_by(&cluster, "w1"), 0);
    assert_eq!(result(&cluster, &["worker", "undrain", "w1"]), "changed");
    only_with(&cluster, &["w1", "w2"]);
    let audit = fleet.audit();
    assert_eq!((audit.lost, audit.stale_accepted), (0, 0));
}

#[test]
fn whoever_waits_for_a_split_that_another_cancels_is_told_so_and_gets_no_yes() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 12, "2s");
    assert_eq!(result(&cluster, &["freeze", "keyspace", KEYSPACE]), "changed");
    let unfreeze = "ringfence unfreeze keyspace orders";
    let dry = cluster.run(&["keyspace", "split", KEYSPACE, "--dry-run"]);
    assert_eq!(dry.done()["result"], "planned");
    assert!(dry.err.contains("the split would wait") && dry.err.contains(unfreeze), "{dry:?}");
    let waited = cluster.run(&["keyspace", "split", KEYSPACE, "--yes", "--wait", "1s"]);
    refused(&waited, 1, "timeout", unfreeze);
    refused(&waited, 1, "timeout", "ringfence partition explain orders/0");
    let explained = cluster.run(&["partition", "explain", "orders/0"]).done();
    let holds = explained["holds"].to_string();
    assert!(holds.contains("the split waits") && holds.contains(unfreeze), "{explained}");

    assert_eq!(result(&cluster, &["keyspace", "split", KEYSPACE, "--cancel"]), "cancelled");

    let split = ["keyspace", "split", KEYSPACE, "--yes", "--wait", "30s"];
    let ran = std::thread::scope(|scope| {
        let waits = scope.spawn(|| cluster.run(&split));
        wait_for("it is being split", || {
            cluster.run(&["keyspace", "show", KEYSPACE]).done()["split_from"].as_u64()
        });
        assert_eq!(result(&cluster, &["keyspace", "split", KEYSPACE, "--cancel"]), "cancelled");
        waits.join().unwrap()
    });
    refused(&ran, 1, "refused", "somebody cancelled the split");
}

#[test]
fn whoever_waits_for_a_drain_that_another_ends_is_told_so_at_once() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    assert_eq!(result(&cluster, &["freeze", "keyspace", KEYSPACE]), "changed");
    let drain = ["worker", "drain", "w1", "--yes", "--wait", "30s"];
    let ran = std::thread::scope(|scope| {
        let waits = scope.spawn(|| cluster.run(&drain));
        wait_for("it is drained", || {
            let shown = cluster.run(&["settings"]).done();
            let workers = shown["workers"].as_array()?;
            workers.iter().any(|set| set["worker"] == "w1" && set["drained"].is_object()).then_some(())
        });
        assert_eq!(result(&cluster, &["worker", "undrain", "w1"]), "changed");
        waits.join().unwrap()
    });
    refused(&ran, 1, "refused", "somebody has undrained it");
    assert_eq!(owned_by(&cluster, "w1"), 4);
    // A slip of the pen drains nobody who is there.
    let typo = cluster.run(&["worker", "drain", "w11", "--yes"]);
    assert_eq!(typo.done()["result"], "changed");
    assert!(typo.err.contains("no worker w11 is known"), "{typo:?}");
    drop(fleet);
}

#[test]
fn f094_a_worker_that_is_alive_and_no_good_is_evicted_and_stays_out() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    refused(&cluster.run(&["worker", "evict", "nobody", "--yes"]), 1, "not_found", "nobody");
    refused(&cluster.run(&["worker", "evict", "w1"]), 2, "usage", "say --yes");
    assert_eq!(result(&cluster, &["worker", "evict", "w1", "--dry-run"]), "planned");
    assert_eq!(owned_by(&cluster, "w1"), 2, "a dry run does nothing");

    let session = |worker: &str| cluster.run(&["worker", "show", worker]).done()["session"].as_u64();
    let before = session("w1").unwrap();
    let evict = ["worker", "evict", "w1", "--yes", "--by", "ada", "--reason", "it hangs"];
    assert_eq!(result(&cluster, &evict), "changed");
    only_with(&cluster, &["w2"]);
    // Its process lives, joins again, and gets nothing.
    wait_for("w1 has another session", || session("w1").filter(|now| *now != before));
    fleet.more_acks(40);
    assert_eq!(owned_by(&cluster, "w1"), 0);
    let events = cluster.run(&["worker", "history", "w1"]).done();
    let told = |what: &str| events.as_array().unwrap().iter().find(|event| event["what"] == what).cloned();
    let by = told("evict worker w1").unwrap_or_else(|| panic!("{events}"));
    assert_eq!((&by["by"], &by["reason"]), (&"ada".into(), &"it hangs".into()));
    assert!(told(&format!("session s{before} ended: it was evicted")).is_some(), "{events}");

    assert_eq!(result(&cluster, &["worker", "undrain", "w1"]), "changed");
    only_with(&cluster, &["w1", "w2"]);
    let audit = fleet.audit();
    assert_eq!((audit.lost, audit.stale_accepted), (0, 0));
}

#[test]
fn a_pinned_partition_goes_to_its_worker_and_stays_there_until_it_is_unpinned() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let pin = ["partition", "pin", "orders/0", "--to", "w2", "--by", "ada"];
    assert_eq!(result(&cluster, &[&pin[..], &["--dry-run"]].concat()), "planned");
    assert_eq!(owned_by(&cluster, "w2"), 0, "a dry run does nothing");
    assert_eq!(result(&cluster, &pin), "changed");
    assert_eq!(result(&cluster, &pin), "unchanged");
    assert_eq!(result(&cluster, &[&pin[..], &["--dry-run"]].concat()), "unchanged");
    wait_for("w2 owns it", || (cluster.owners(KEYSPACE)[&0].0 == "w2").then_some(()));
    let grant = newest(&cluster, "orders/0");
    assert_eq!((&grant["reason"], &grant["directive"]["by"]), (&"pinned".into(), &"ada".into()), "{grant}");

    cluster.all_ready(KEYSPACE);
    let told = cluster.run(&["partition", "explain", "orders/0"]).done();
    assert_eq!(told["because"], "it is pinned there", "{told}");
    assert_eq!(told["directives"][0]["what"], "pin to worker w2 partition orders/0", "{told}");
    assert_eq!(told["partition"]["worker"], "w2");
    let set = cluster.run(&["settings"]).done();
    assert_eq!((&set["partitions"][0]["pin"], &set["partitions"][0]["partition"]), (&"w2".into(), &0.into()));

    // Nobody is named: whoever owns it.
    assert_eq!(result(&cluster, &["partition", "pin", "orders/1"]), "changed");
    let pins = cluster.run(&["settings"]).done();
    assert_eq!(pins["partitions"][1]["pin"], "w1", "{pins}");
    for partition in ["orders/0", "orders/1"] {
        assert_eq!(result(&cluster, &["partition", "unpin", partition]), "changed");
    }
    assert_eq!(result(&cluster, &["partition", "unpin", "orders/1"]), "unchanged");
    assert_eq!(cluster.run(&["settings"]).done()["partitions"], json!([]));
    refused(
        &cluster.run(&["partition", "pin", "orders/4", "--to", "w1"]),
        1,
        "not_found",
        "partitions 0 to 3",
    );
    drop(fleet);
}

#[test]
fn what_is_frozen_is_not_balanced_until_it_is_free_again() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    cluster.create_keyspace("control", 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 4);
    let _first = control(&cluster, "c1");
    cluster.all_ready("control");
    refused(&cluster.run(&["freeze", "cluster"]), 2, "usage", "say --yes");
    refused(&cluster.run(&["freeze", "keyspace", "nothing"]), 1, "not_found", "nothing");
    let freeze = ["freeze", "keyspace", KEYSPACE, "--by", "ada", "--reason", "incident 42"];
    assert_eq!(result(&cluster, &[&freeze[..], &["--dry-run"]].concat()), "planned");
    assert_eq!(result(&cluster, &freeze), "changed");
    assert_eq!(result(&cluster, &freeze), "unchanged");

    // Its worker joins before the one of a keyspace that is not frozen. When that one has got its share, the leader has
    // balanced with both of them there.
    fleet.start("w2");
    joined(&cluster, "w2");
    let _second = control(&cluster, "c2");
    wait_for("what is not frozen is balanced", || {
        let owners = cluster.all_ready("control");
        owners.values().any(|(worker, _, _)| worker == "c2").then_some(())
    });
    let orders = cluster.run(&["partition", "list", KEYSPACE]).done();
    let stays = |partition: &Value| partition["worker"] == "w1" && partition["phase"] == "owned";
    assert!(orders.as_array().unwrap().iter().all(stays), "{orders}");
    let status = cluster.run(&["rebalance", "status"]).done();
    assert_eq!(status["keyspaces_frozen"][0]["directive"]["reason"], "incident 42", "{status}");
    assert_eq!(status["plans"], json!([]));
    // Whoever is called at night sees that somebody stopped it, and who.
    let stopped = cluster.run(&["status"]).done()["stopped"].clone();
    assert_eq!(
        (&stopped[0]["what"], &stopped[0]["set"]),
        (&format!("keyspace {KEYSPACE}").into(), &"frozen".into())
    );
    assert_eq!((&stopped[0]["directive"]["by"], &stopped[1]), (&"ada".into(), &Value::Null), "{stopped}");
    let screen = run(&cluster.endpoints, &["status"]).out;
    assert!(screen.contains("Stopped by operators") && screen.contains("incident 42"), "{screen}");
    let drained = run(&cluster.endpoints, &["worker", "drain", "w1", "--yes"]);
    assert!(drained.out.contains("changed, it is drained (session "), "{drained:?}");
    let note = format!("`ringfence unfreeze keyspace {KEYSPACE}`");
    assert!(drained.err.contains("frozen (ada, ") && drained.err.contains(&note), "{drained:?}");
    assert_eq!(result(&cluster, &["worker", "undrain", "w1"]), "changed");

    // The cluster's freeze is another one.
    assert_eq!(result(&cluster, &["rebalance", "pause", "--yes"]), "changed");
    assert_eq!(result(&cluster, &["rebalance", "resume", "--keyspace", KEYSPACE]), "changed");
    let plan = cluster.run(&["rebalance", "plan", KEYSPACE]).done();
    assert_eq!((&plan["moves"], owned_by(&cluster, "w1")), (&json!([]), 4), "{plan}");
    assert_eq!(result(&cluster, &["unfreeze", "cluster"]), "changed");
    only_with(&cluster, &["w1", "w2"]);
    fleet.balanced(&["w1", "w2"], 4);

    // A frozen keyspace repairs what fails all the same.
    assert_eq!(result(&cluster, &freeze), "changed");
    fleet.process("w1").kill();
    only_with(&cluster, &["w2"]);
}

/// A freeze of workers is about balance. What a dead owner had goes to them when nobody else may have it, and what nobody may
/// have at all is told with the reason.
#[test]
fn f089_frozen_workers_repair_what_nobody_else_may_and_status_says_why_partitions_are_down() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    cluster.create_keyspace("cold", 3, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    for setting in [["freeze", "worker", "w1"], ["worker", "cordon", "w1"], ["freeze", "worker", "w2"]] {
        assert_eq!(result(&cluster, &setting), "changed");
    }
    fleet.start("w1");
    joined(&cluster, "w1");
    let status = || cluster.run(&["status"]);
    let reasons = |status: &Value| -> Vec<(String, u64)> {
        let all = status["ownerless"]["reasons"].as_array().unwrap().iter();
        all.map(|why| (why["reason"].as_str().unwrap().to_owned(), why["partitions"].as_u64().unwrap()))
            .collect()
    };
    let told = |expected: &[(&str, u64)]| {
        wait_for(&format!("{expected:?}"), || {
            let now = status().json();
            let reasons = reasons(&now);
            let same = reasons.iter().map(|(why, count)| (why.as_str(), *count)).eq(expected.iter().copied());
            same.then_some(now)
        })
    };
    let down = told(&[("all_frozen", 4), ("no_workers", 3)]);
    let reason = down["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("7 partitions without an owner: 4 of them: all workers are frozen"), "{down}");
    assert!(reason.contains("3 of them: no worker serves the keyspace: start one"), "{down}");
    assert_eq!(status().code, 1);
    let screen = run(&cluster.endpoints, &["status"]);
    assert!(screen.out.contains("4 of them: all workers are frozen, and drained, cordoned"), "{screen:?}");
    let explained = cluster.run(&["partition", "explain", "orders/0"]).done();
    assert!(explained["because"].as_str().unwrap().contains("all workers are frozen"), "{explained}");

    // It is only frozen, and nobody else is there.
    assert_eq!(result(&cluster, &["worker", "uncordon", "w1"]), "changed");
    only_with(&cluster, &["w1"]);
    told(&[("no_workers", 3)]);
    let explained = cluster.run(&["partition", "explain", "orders/0"]).done();
    assert!(explained["holds"][0].as_str().unwrap().contains("its owner is frozen"), "{explained}");

    // The same when an owner dies. Nothing is balanced before, and nothing after.
    fleet.start("w2");
    joined(&cluster, "w2");
    fleet.process("w1").kill();
    only_with(&cluster, &["w2"]);
    let grants: Vec<Value> = (0..4).map(|number| newest(&cluster, &format!("{KEYSPACE}/{number}"))).collect();
    assert!(grants.iter().all(|grant| grant["reason"] == "failover"), "{grants:?}");
}

/// What keeps a partition where it is, in words that say what to do.
#[test]
fn f104_what_is_explained_names_the_target_of_a_move_the_cool_down_and_a_pin_that_cannot_be_met() {
    let cluster = Cluster::dev();
    // A lease that outlives the story: an owner that stands still goes on owning.
    let create = ["keyspace", "create", KEYSPACE, "--partitions", "4", "--ttl", "40s", "--balance", "false"];
    cluster.run(&create).done();
    cluster.create_keyspace("cold", 3, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 4);
    fleet.start("w2");
    joined(&cluster, "w2");
    let explain = |partition: &str| cluster.run(&["partition", "explain", partition]).done();
    let holds = |told: &Value, part: &str| {
        let holds = told["holds"].as_array().unwrap().iter();
        assert!(holds.clone().any(|hold| hold.as_str().unwrap().contains(part)), "{part}: {told}");
    };

    // Pins.
    let pin =
        |partition: &str, to: &str| run(&cluster.endpoints, &["partition", "pin", partition, "--to", to]).out;
    assert!(pin("orders/0", "w7").contains("note: worker w7 has no session"));
    holds(&explain("orders/0"), "it is pinned to worker w7, which has no session");
    assert!(pin("cold/0", "w1").contains("note: worker w1 does not serve the keyspace"));
    holds(&explain("cold/0"), "it is pinned to worker w1, which does not serve this keyspace");
    assert_eq!(result(&cluster, &["worker", "drain", "w2", "--yes"]), "changed");
    assert!(pin("orders/1", "w2").contains("note: worker w2 is drained"));
    holds(&explain("orders/1"), "it is pinned to worker w2, which is drained");
    for partition in ["orders/0", "orders/1"] {
        assert_eq!(result(&cluster, &["partition", "unpin", partition]), "changed");
    }
    assert_eq!(result(&cluster, &["worker", "undrain", "w2"]), "changed");

    // A move that has arrived cools down.
    assert_eq!(result(&cluster, &["partition", "move", "orders/0", "--to", "w2", "--wait"]), "moved");
    let told = explain("orders/0");
    holds(&told, "an operator moved it, and it cools down for another");
    let why = &told["others"][0];
    assert_eq!(why["why"], "may get it when the partition may move: see what keeps it there", "{told}");

    // One that is under way.
    fleet.process("w1").stop();
    assert_eq!(result(&cluster, &["partition", "move", "orders/2", "--to", "w2"]), "started");
    let told = explain("orders/2");
    assert_eq!(told["because"], "it is on its way to worker w2", "{told}");
    holds(&told, "a move to worker w2 is under way");
    assert_eq!(told["partition"]["moving_to"], "w2");
    fleet.process("w1").signal(Signal::SIGCONT);
    wait_for("w2 has it", || (cluster.owners(KEYSPACE)[&2].0 == "w2").then_some(()));
    drop(fleet);
}

/// A drain for a restart waits for another process. One that has lost its lease and joins again is the old one.
#[test]
fn t49_a_drain_for_a_restart_outlives_a_lost_lease() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 4);
    assert_eq!(
        result(&cluster, &["worker", "drain", "w1", "--until-join", "--wait", "40s", "--yes"]),
        "drained"
    );
    let shown = || cluster.run(&["worker", "show", "w1"]).done();
    let before = shown()["session"].as_u64().unwrap();
    fleet.process("w1").stop();
    wait_for("w1 has lost its lease", || shown()["session"].is_null().then_some(()));
    fleet.process("w1").signal(Signal::SIGCONT);
    wait_for("w1 has joined again", || shown()["session"].as_u64().filter(|now| *now != before));
    assert!(!shown()["settings"]["drained_until_join"].is_null(), "{}", shown());
    assert_eq!(owned_by(&cluster, "w1"), 0);

    fleet.process("w1").kill();
    fleet.start("w1");
    only_with(&cluster, &["w1", "w2"]);
    assert!(shown()["settings"]["drained_until_join"].is_null(), "{}", shown());
}

#[test]
fn a_plan_is_reviewed_applied_and_undone_and_a_stale_one_is_refused() {
    let cluster = Cluster::dev();
    let mut fleet = lopsided(&cluster);
    let file = cluster.dir().join("orders.plan");
    let file = file.to_str().unwrap();
    let plan = cluster.run(&["rebalance", "plan", KEYSPACE, "--save", file]).done();
    assert_eq!((plan["moves"].as_array().unwrap().len(), &plan["supposed"]), (2, &false.into()), "{plan}");
    assert!(plan["spread"]["before"].as_u64() > plan["spread"]["after"].as_u64(), "{plan}");
    assert_eq!(
        (&plan["workers"][0]["before"], &plan["workers"][0]["after"]),
        (&4.into(), &2.into()),
        "{plan}"
    );
    assert!(plan["moves"].as_array().unwrap().iter().all(|m| m["from"] == "w1" && m["to"] == "w2"), "{plan}");
    assert_eq!(owned_by(&cluster, "w2"), 0, "a plan changes nothing");
    let planned = format!("{KEYSPACE}/{}", plan["moves"][0]["partition"]);
    let explained = cluster.run(&["partition", "explain", &planned]).done();
    assert_eq!(explained["planned"]["to"], "w2", "{explained}");
    assert!(explained["holds"][0].as_str().unwrap().contains("does not balance by itself"), "{explained}");

    // What would be, if.
    let what_if = ["rebalance", "plan", KEYSPACE, "--what-if", "add:w9,zone=b", "--what-if", "remove:w2"];
    let supposed = cluster.run(&what_if).done();
    assert_eq!(supposed["supposed"], true);
    let names: Vec<&str> =
        supposed["workers"].as_array().unwrap().iter().map(|w| w["worker"].as_str().unwrap()).collect();
    assert_eq!(names, ["w1", "w9"], "{supposed}");
    let unknown = ["rebalance", "plan", KEYSPACE, "--what-if", "remove:w7"];
    refused(&cluster.run(&unknown), 1, "not_found", "w7");

    // Reviewed, and applied.
    refused(&cluster.run(&["rebalance", "apply", file]), 2, "usage", "say --yes");
    assert_eq!(result(&cluster, &["rebalance", "apply", file, "--dry-run"]), "planned");
    assert_eq!(owned_by(&cluster, "w2"), 0, "a dry run does nothing");
    let by_ada = ["--by", "ada", "--reason", "one more worker"];
    let apply = [&["rebalance", "apply", file, "--yes", "--wait"][..], &by_ada].concat();
    let applied = cluster.run(&apply).done();
    assert_eq!((&applied["result"], &applied["begun"]), (&"done".into(), &2.into()), "{applied}");
    assert_eq!(applied["elsewhere"], 0, "{applied}");
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (2, 2));
    fleet.balanced(&["w1", "w2"], 4);
    for planned in plan["moves"].as_array().unwrap() {
        let grant = newest(&cluster, &format!("{KEYSPACE}/{}", planned["partition"]));
        assert_eq!((&grant["worker"], &grant["directive"]["by"]), (&"w2".into(), &"ada".into()), "{grant}");
        assert_eq!((&grant["reason"], &grant["directive"]["reason"]), (&"a plan".into(), &by_ada[3].into()));
    }

    // The same file again: the map has changed since.
    let again = cluster.run(&apply);
    refused(&again, 1, "stale_epoch", "plan again");
    refused(&cluster.run(&["rebalance", "apply", file, "--dry-run"]), 1, "stale_epoch", "plan again");
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (2, 2));

    // And back.
    assert_eq!(result(&cluster, &["rebalance", "apply", "--keyspace", KEYSPACE, "--yes"]), "unchanged");
    refused(&cluster.run(&["rebalance", "undo"]), 2, "usage", "say --yes");
    let number = applied["plan"].to_string();
    refused(&cluster.run(&["rebalance", "undo", "--yes", "--by", "bob"]), 1, "refused", &number);
    refused(&cluster.run(&["rebalance", "undo", "99999", "--yes"]), 1, "not_found", "99999");
    let undo = cluster.run(&["rebalance", "undo", &number, "--yes", "--wait", "--by", "bob"]);
    let undone = undo.done();
    assert_eq!((&undone["result"], &undone["begun"]), (&"done".into(), &2.into()), "{undone}");
    assert_eq!((&undone["undoes"], &undone["left"]), (&applied["plan"], &0.into()), "{undone}");
    only_with(&cluster, &["w1"]);
    let status = cluster.run(&["rebalance", "status", "--moves"]).done();
    let last = status["plans"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["stage"], &last["directive"]["by"]), (&"done".into(), &"bob".into()), "{status}");
    assert_eq!(last["moves"][0]["step"], "begun");
    assert_eq!(result(&cluster, &["rebalance", "cancel"]), "unchanged");

    // Another cluster's plan, and none at all.
    let text = std::fs::read_to_string(file).unwrap();
    let mut foreign: Value = serde_json::from_str(&text).unwrap();
    foreign["cluster_id"] = "another".into();
    std::fs::write(file, foreign.to_string()).unwrap();
    refused(&cluster.run(&["rebalance", "apply", file, "--yes"]), 1, "refused", "another");
    std::fs::write(file, &text[..text.len() / 2]).unwrap();
    refused(&cluster.run(&["rebalance", "apply", file, "--yes"]), 1, "refused", "make it again");
    std::fs::write(file, r#"{"format":9}"#).unwrap();
    refused(&cluster.run(&["rebalance", "apply", file, "--yes"]), 1, "refused", "newer ringfence");
    assert_eq!(fleet.audit().lost, 0);
}

#[test]
fn t49_operators_who_set_different_things_undo_nothing_of_each_other() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    let set = |who: &str, args: &[&str]| result(&cluster, &[args, &["--by", who]].concat());
    // A worker need not be there for that.
    assert_eq!(set("ada", &["worker", "drain", "w7", "--yes"]), "changed");
    assert_eq!(set("bob", &["worker", "cordon", "w7"]), "changed");
    assert_eq!(set("eve", &["worker", "weight", "w7", "5"]), "changed");
    assert_eq!(set("eve", &["freeze", "worker", "w7"]), "changed");
    assert_eq!(set("bob", &["worker", "drain", "w7", "--yes"]), "unchanged", "it is ada's");
    assert_eq!(set("ada", &["partition", "pin", "orders/1", "--to", "w7"]), "changed");
    assert_eq!(set("bob", &["partition", "weigh", "orders/1", "9"]), "changed");
    assert_eq!(set("eve", &["freeze", "partition", "orders/1"]), "changed");
    assert_eq!(set("ada", &["freeze", "keyspace", KEYSPACE]), "changed");

    assert_eq!(set("bob", &["worker", "uncordon", "w7"]), "changed");
    assert_eq!(set("eve", &["unfreeze", "partition", "orders/1"]), "changed");
    let settings = cluster.run(&["settings"]).done();
    let worker = &settings["workers"][0];
    assert_eq!((&worker["worker"], &worker["drained"]["by"]), (&"w7".into(), &"ada".into()), "{settings}");
    assert_eq!((&worker["cordoned"], &worker["weight"]), (&Value::Null, &5.into()), "{settings}");
    assert_eq!(worker["frozen"]["by"], "eve", "{settings}");
    let partition = &settings["partitions"][0];
    assert_eq!((&partition["pin"], &partition["pinned"]["by"]), (&"w7".into(), &"ada".into()), "{settings}");
    assert_eq!((&partition["frozen"], &partition["weight"]), (&Value::Null, &9.into()), "{settings}");
    assert_eq!(settings["keyspaces_frozen"][0]["directive"]["by"], "ada", "{settings}");

    // What was decided is told, the newest first, also of what stands no more.
    let directives = cluster.run(&["directives"]).done();
    let told: Vec<(&str, &str)> = directives
        .as_array()
        .unwrap()
        .iter()
        .map(|directive| (directive["by"].as_str().unwrap(), directive["what"].as_str().unwrap()))
        .collect();
    assert_eq!(told[0], ("eve", "unfreeze partition orders/1"));
    assert!(
        told.contains(&("bob", "cordon worker w7")) && told.contains(&("ada", "drain worker w7")),
        "{told:?}"
    );

    // Who it was is taken from the environment, when nobody says it.
    let who = |variables: &[(&str, &str)]| {
        let endpoints = [("RINGFENCE_ENDPOINTS", cluster.endpoints.as_str())];
        let ran = run_with(
            &[&endpoints[..], variables].concat(),
            &["worker", "cordon", &format!("w{}", variables.len()), "-o", "json"],
        );
        ran.done();
        cluster.run(&["directives"]).done()[0]["by"].clone()
    };
    assert_eq!(who(&[("USER", "carol"), ("RINGFENCE_OPERATOR", "ops")]), "ops");
    assert_eq!(who(&[("USER", "carol")]), "carol");
}
