//! Plans of which something is still on its way, that are refused, or that will not last: with the real binary.

use crate::harness::{Cluster, Fleet, KEYSPACE, wait_for};
use crate::operators::{joined, lopsided, newest, owned_by, refused, result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// `w1` owns all partitions of a keyspace with a long lease that does not balance, and the others have joined.
fn patient(cluster: &Cluster, partitions: usize, others: &[&str]) -> Fleet {
    let number = partitions.to_string();
    let create =
        ["keyspace", "create", KEYSPACE, "--partitions", &number, "--ttl", "60s", "--balance", "false"];
    cluster.run(&create).done();
    let mut fleet = Fleet::of(cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], partitions);
    cluster.all_ready(KEYSPACE);
    for other in others {
        fleet.start(other);
        joined(cluster, other);
    }
    fleet
}

/// The last plan, with its moves.
fn last(cluster: &Cluster) -> Value {
    let status = cluster.run(&["rebalance", "status", "--moves"]).done();
    status["plans"].as_array().unwrap().last().unwrap().clone()
}

fn apply(cluster: &Cluster) -> Value {
    cluster.run(&["rebalance", "apply", "--keyspace", KEYSPACE, "--yes", "--by", "ada"]).done()
}

#[test]
fn an_undo_takes_back_what_is_on_its_way_and_is_not_undone_by_the_next() {
    let cluster = Cluster::dev();
    let mut fleet = patient(&cluster, 4, &["w2"]);
    // It has to give two away, and hears nothing of it.
    fleet.process("w1").stop();
    let applied = apply(&cluster);
    assert_eq!((&applied["result"], &applied["moves"]), (&"approved".into(), &2.into()), "{applied}");
    wait_for("every move has begun", || (last(&cluster)["waiting"] == 0).then_some(()));
    let plan = last(&cluster);
    assert_eq!(
        (&plan["stage"], &plan["begun"], &plan["moving"]),
        (&"ending".into(), &2.into(), &2.into()),
        "{plan}"
    );
    assert!(plan["moves"].as_array().unwrap().iter().all(|planned| planned["now"] == "moving"), "{plan}");

    let undo = ["rebalance", "undo", "--yes", "--by", "ada"];
    let would = cluster.run(&["rebalance", "undo", "--dry-run", "--by", "ada"]).done();
    assert_eq!((&would["result"], &would["arriving"]), (&"planned".into(), &2.into()), "{would}");
    let undone = cluster.run(&undo).done();
    assert_eq!(
        (&undone["moves"], &undone["arriving"], &undone["left"]),
        (&2.into(), &2.into(), &0.into()),
        "{undone}"
    );
    assert_eq!(undone["undoes"], applied["plan"]);

    fleet.process("w1").signal(Signal::SIGCONT);
    wait_for("all of it has come back", || (last(&cluster)["stage"] == "done").then_some(()));
    let plan = last(&cluster);
    assert_eq!((&plan["undoes"], &plan["moving"]), (&applied["plan"], &0.into()), "{plan}");
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (4, 0));
    for planned in plan["moves"].as_array().unwrap() {
        assert_eq!(planned["now"], "there", "{plan}");
        let partition = format!("{KEYSPACE}/{}", planned["partition"]);
        let history = cluster.run(&["partition", "history", &partition]).done();
        let went: Vec<&str> =
            history.as_array().unwrap().iter().map(|grant| grant["worker"].as_str().unwrap()).collect();
        assert_eq!(went, ["w1", "w2", "w1"], "it was there, and was taken back: {history}");
    }

    // Said again, there is nothing left to take back. Only by its number is an undo undone.
    assert_eq!(result(&cluster, &undo), "unchanged");
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (4, 0));
    let number = undone["plan"].to_string();
    let again = cluster.run(&["rebalance", "undo", &number, "--yes", "--wait", "--by", "ada"]).done();
    assert_eq!((&again["result"], &again["undoes"]), (&"done".into(), &undone["plan"]), "{again}");
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (2, 2));
    let audit = fleet.audit();
    assert_eq!((audit.lost, audit.stale_accepted), (0, 0));
}

#[test]
fn an_undo_of_a_plan_that_is_carried_out_stops_it_first() {
    let cluster = Cluster::dev();
    let mut fleet = patient(&cluster, 6, &["w2"]);
    let slowly = ["keyspace", "update", KEYSPACE, "--max-moves-in-flight", "1"];
    assert_eq!(result(&cluster, &slowly), "updated");
    fleet.process("w1").stop();
    let applied = apply(&cluster);
    wait_for("one move has begun", || (last(&cluster)["begun"] == 1).then_some(()));
    assert_eq!((&last(&cluster)["stage"], &last(&cluster)["waiting"]), (&"running".into(), &2.into()));
    let undo = |who: &str, sure: &str| cluster.run(&["rebalance", "undo", sure, "--by", who]);
    refused(&undo("bob", "--yes"), 1, "refused", "approved by ada");
    let would = undo("ada", "--dry-run").done();
    let planned = (&would["result"], &would["moves"], &would["arriving"], &would["left"]);
    assert_eq!(planned, (&"planned".into(), &1.into(), &1.into(), &0.into()), "{would}");
    assert_eq!(would["undoes"], applied["plan"], "{would}");
    assert_eq!(last(&cluster)["stage"], "running", "a dry run does nothing");
    let undone = undo("ada", "--yes").done();
    assert_eq!(
        (&undone["result"], &undone["moves"], &undone["arriving"]),
        (&"approved".into(), &1.into(), &1.into())
    );
    assert_eq!(undone["undoes"], applied["plan"]);
    fleet.process("w1").signal(Signal::SIGCONT);
    wait_for("it has come back", || (last(&cluster)["stage"] == "done").then_some(()));
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w2")), (6, 0));
    let plans = cluster.run(&["rebalance", "status"]).done();
    assert_eq!(plans["plans"][0]["stage"], "cancelled", "{plans}");
    drop(fleet);
}

#[test]
fn an_undo_that_leaves_something_says_so_in_its_exit_code() {
    let cluster = Cluster::dev();
    let mut fleet = lopsided(&cluster);
    let apply = ["rebalance", "apply", "--keyspace", KEYSPACE, "--yes", "--wait", "--by", "ada"];
    assert_eq!(result(&cluster, &apply), "done");
    fleet.start("w3");
    joined(&cluster, "w3");
    let moved = format!("{KEYSPACE}/{}", last(&cluster)["moves"][0]["partition"]);
    let away = ["partition", "move", &moved, "--to", "w3", "--wait", "--by", "bob"];
    assert_eq!(result(&cluster, &away), "moved");
    let undo = cluster.run(&["rebalance", "undo", "--yes", "--wait", "--by", "ada"]);
    let undone = undo.json();
    assert_eq!((undo.code, &undone["result"]), (1, &"done".into()), "{undo:?}");
    assert_eq!(
        (&undone["begun"], &undone["left"], &undone["arriving"]),
        (&1.into(), &1.into(), &0.into()),
        "{undone}"
    );
    assert_eq!((owned_by(&cluster, "w1"), owned_by(&cluster, "w3")), (3, 1));
    drop(fleet);
}

#[test]
fn a_refused_plan_takes_nothing_and_leaves_nothing() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let file = cluster.dir().join("orders.plan");
    let file = file.to_str().unwrap();
    let plan = cluster.run(&["rebalance", "plan", KEYSPACE, "--save", file]).done();
    let moves: Vec<u64> =
        plan["moves"].as_array().unwrap().iter().filter_map(|m| m["partition"].as_u64()).collect();
    let text = std::fs::read_to_string(file).unwrap();

    // A plan that names another owner than the partition has: the dry run finds what the approval finds.
    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["moves"][0]["from"] = "w9".into();
    std::fs::write(file, other.to_string()).unwrap();
    for sure in ["--dry-run", "--yes"] {
        refused(&cluster.run(&["rebalance", "apply", file, sure]), 1, "refused", "does not own it");
    }
    std::fs::write(file, &text).unwrap();
    assert_eq!(result(&cluster, &["rebalance", "apply", file, "--dry-run"]), "planned");

    // A partition moves that the plan leaves alone.
    let still = (0..4).find(|number| !moves.contains(number)).unwrap();
    let partition = format!("{KEYSPACE}/{still}");
    let moved = cluster.run(&["partition", "move", &partition, "--to", "w2", "--wait", "--by", "bob"]).done();
    assert_eq!(moved["result"], "moved");
    let before = cluster.run(&["directives"]).done();
    for sure in ["--dry-run", "--yes"] {
        refused(&cluster.run(&["rebalance", "apply", file, sure]), 1, "stale_epoch", "plan again");
    }
    assert_eq!(cluster.run(&["rebalance", "status"]).done()["plans"], json!([]));
    assert_eq!(cluster.run(&["directives"]).done(), before, "what was refused was not decided");
    drop(fleet);
}

#[test]
fn a_dry_run_of_a_move_is_refused_where_the_move_is() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let same = |args: &[&str], code: &str, part: &str| {
        for dry in [true, false] {
            let dry: &[&str] = if dry { &["--dry-run"] } else { &[] };
            refused(&cluster.run(&[&["partition", "move"], args, dry].concat()), 1, code, part);
        }
    };
    same(&["orders/0", "--to", "w9"], "not_found", "w9");
    same(&["orders/9", "--to", "w2"], "not_found", "partitions 0 to 3");
    assert_eq!(result(&cluster, &["worker", "cordon", "w2"]), "changed");
    same(&["orders/0", "--to", "w2"], "refused", "uncordon");
    assert_eq!(result(&cluster, &["worker", "uncordon", "w2"]), "changed");
    assert_eq!(result(&cluster, &["freeze", "partition", "orders/0"]), "changed");
    same(&["orders/0", "--to", "w2"], "refused", "frozen");
    assert_eq!(result(&cluster, &["partition", "move", "orders/1", "--to", "w2", "--dry-run"]), "planned");
    assert_eq!(result(&cluster, &["partition", "move", "orders/1", "--to", "w1", "--dry-run"]), "unchanged");
    assert_eq!(owned_by(&cluster, "w1"), 4, "a dry run does nothing");
    drop(fleet);
}

#[test]
fn where_balancing_would_take_it_back_an_undo_says_so() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let file = cluster.dir().join("orders.plan");
    let file = file.to_str().unwrap();
    cluster.run(&["rebalance", "plan", KEYSPACE, "--save", file]).done();
    let apply = ["rebalance", "apply", file, "--yes", "--wait", "--by", "ada"];
    let applied = cluster.run(&apply).done();
    assert_eq!((&applied["result"], &applied["warning"]), (&"done".into(), &Value::Null), "{applied}");
    let undo = ["rebalance", "undo", "--dry-run", "--by", "ada"];
    assert_eq!(cluster.run(&undo).done()["warning"], Value::Null);

    assert_eq!(result(&cluster, &["keyspace", "update", KEYSPACE, "--balance", "true"]), "updated");
    let warned = cluster.run(&undo);
    let warning = warned.done()["warning"].as_str().unwrap().to_owned();
    assert!(warning.contains("balances by itself") && warning.contains("--balance false"), "{warned:?}");
    assert!(warned.err.contains(&format!("warning: {warning}")), "{warned:?}");
    drop(fleet);
}

#[test]
fn a_plan_says_why_a_move_ended_elsewhere() {
    let cluster = Cluster::dev();
    let mut fleet = patient(&cluster, 3, &["w2", "w3"]);
    fleet.process("w1").stop();
    apply(&cluster);
    wait_for("every move has begun", || (last(&cluster)["waiting"] == 0).then_some(()));
    // What was on its way to w2 has to go somewhere else.
    assert_eq!(result(&cluster, &["worker", "drain", "w2", "--yes", "--by", "bob"]), "changed");
    fleet.process("w1").signal(Signal::SIGCONT);
    wait_for("the plan is done", || (last(&cluster)["stage"] == "done").then_some(()));
    let plan = last(&cluster);
    let moves = plan["moves"].as_array().unwrap();
    let to = |worker: &str| {
        moves.iter().find(|planned| planned["to"] == worker).unwrap_or_else(|| panic!("{plan}"))
    };
    assert_eq!((&to("w3")["now"], &to("w3")["why"]), (&"there".into(), &Value::Null), "{plan}");
    let astray = to("w2");
    let why = astray["why"].as_str().unwrap();
    assert_eq!(astray["now"], "elsewhere", "{plan}");
    assert!(why.contains("its target was gone or took nothing"), "{plan}");
    // Nobody ordered it to go where it went.
    let grant = newest(&cluster, &format!("{KEYSPACE}/{}", astray["partition"]));
    assert_ne!(grant["worker"], "w2", "{grant}");
    assert_ne!(grant["directive"]["by"], "ada", "{grant}");
    drop(fleet);
}
