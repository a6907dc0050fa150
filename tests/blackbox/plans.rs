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

/// What would be passed over and what would wait is said before anything is done; whoever waits is told for what, and who can
/// end it; and of a plan that was cancelled nothing waits.
#[test]
fn what_stands_in_the_way_of_a_plan_is_said_before_and_while_it_waits() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let file = cluster.dir().join("orders.plan");
    let file = file.to_str().unwrap();
    let plan = cluster.run(&["rebalance", "plan", KEYSPACE, "--save", file]).done();
    let first = format!("{KEYSPACE}/{}", plan["moves"][0]["partition"]);
    let dry = || cluster.run(&["rebalance", "apply", file, "--dry-run"]).done();
    assert_eq!(dry()["obstacles"], json!([]));

    // The target was taken out, in two ways; both are named.
    assert_eq!(result(&cluster, &["worker", "drain", "w2", "--yes"]), "changed");
    assert_eq!(result(&cluster, &["worker", "cordon", "w2"]), "changed");
    // A plan of which nothing would be made takes the place of none that has moved something.
    for how in [&["--dry-run"][..], &["--yes"], &["--yes", "--wait"]] {
        let none = cluster.run(&[&["rebalance", "apply", file][..], how].concat());
        refused(&none, 1, "refused", "undrain");
        refused(&none, 1, "refused", "uncordon");
        refused(&none, 1, "refused", "none of the 2 moves");
    }
    assert_eq!(cluster.run(&["rebalance", "status"]).done()["plans"], json!([]));
    let moved = cluster.run(&["partition", "move", &first, "--to", "w2"]);
    refused(&moved, 1, "refused", "undrain");
    refused(&moved, 1, "refused", "uncordon");
    let explained = cluster.run(&["partition", "explain", &first]).done();
    let why = explained["others"][0]["why"].as_str().unwrap();
    assert!(why.contains("undrain") && why.contains("uncordon"), "{explained}");
    for verb in ["undrain", "uncordon"] {
        assert_eq!(result(&cluster, &["worker", verb, "w2"]), "changed");
    }

    // One is pinned where it is.
    assert_eq!(result(&cluster, &["partition", "pin", &first, "--to", "w1", "--by", "eve"]), "changed");
    let told = dry();
    let obstacle = &told["obstacles"][0];
    assert_eq!((&obstacle["becomes"], &obstacle["moves"]), (&"passed_over".into(), &1.into()), "{told}");
    assert!(obstacle["why"].as_str().unwrap().contains("pinned to worker w1"), "{told}");
    let screen = crate::harness::run(&cluster.endpoints, &["rebalance", "apply", file, "--dry-run"]);
    assert!(screen.out.starts_with("1 of 2 partitions") && screen.out.contains("passed over"), "{screen:?}");
    assert_eq!(result(&cluster, &["partition", "unpin", &first]), "changed");

    // All of it is held, by somebody.
    let freeze = ["freeze", "keyspace", KEYSPACE, "--by", "bob", "--reason", "incident 42"];
    assert_eq!(result(&cluster, &freeze), "changed");
    let told = dry();
    let obstacle = &told["obstacles"][0];
    assert_eq!((&obstacle["becomes"], &obstacle["moves"]), (&"waits".into(), &2.into()), "{told}");
    let by_bob = |why: &str| {
        ["keyspace orders is frozen", "bob", "incident 42", "ringfence unfreeze keyspace orders"]
            .iter()
            .all(|part| why.contains(part))
    };
    assert!(by_bob(obstacle["why"].as_str().unwrap()), "{told}");
    // Planned now nothing would move, and that is no balance.
    for how in ["--dry-run", "--yes"] {
        let frozen = cluster.run(&["rebalance", "apply", "--keyspace", KEYSPACE, how]);
        refused(&frozen, 1, "refused", "keyspace orders is frozen by bob");
        refused(&frozen, 1, "refused", "ringfence unfreeze keyspace orders");
    }
    let waited =
        cluster.run(&["rebalance", "apply", file, "--yes", "--wait", "--timeout", "2s", "--by", "ada"]);
    refused(&waited, 1, "timeout", "incident 42");
    assert!(by_bob(&waited.err), "{waited:?}");
    let held = last(&cluster);
    assert!(by_bob(held["held"][0].as_str().unwrap()), "{held}");
    assert_eq!(held["moves"][0]["why"], Value::Null, "it is said once: {held}");

    // The other operator is told whose plan it is, and when it was applied.
    let id = held["plan"].to_string();
    let other = cluster.run(&["rebalance", "apply", file, "--yes", "--by", "carol"]);
    refused(&other, 1, "refused", &format!("plan {id} is being carried out; it was applied by ada at 2"));

    assert_eq!(result(&cluster, &["rebalance", "cancel"]), "cancelled");
    let cancelled = last(&cluster);
    let counts = (&cancelled["stage"], &cancelled["waiting"], &cancelled["cancelled"]);
    assert_eq!(counts, (&"cancelled".into(), &0.into(), &2.into()), "{cancelled}");
    assert!(cancelled["moves"].as_array().unwrap().iter().all(|m| m["step"] == "cancelled"), "{cancelled}");
    assert_eq!(owned_by(&cluster, "w1"), 4);

    // Named with the letter of an index, it is the same plan; and it has moved nothing.
    for name in [id.clone(), format!("i{id}")] {
        let undo = cluster.run(&["rebalance", "undo", &name, "--yes"]);
        refused(&undo, 1, "refused", &format!("plan {id} has moved nothing"));
    }
    refused(&cluster.run(&["rebalance", "undo", "p1", "--yes"]), 2, "usage", "such as 330");

    // What it is that is frozen.
    assert_eq!(result(&cluster, &["unfreeze", "keyspace", KEYSPACE]), "changed");
    assert_eq!(result(&cluster, &["freeze", "cluster", "--yes", "--by", "bob"]), "changed");
    let explained = cluster.run(&["partition", "explain", &first]).done();
    let hold = explained["holds"][0].as_str().unwrap();
    assert!(hold.starts_with("the cluster is frozen, by bob") && !hold.contains("keyspace"), "{explained}");
    assert_eq!(result(&cluster, &["partition", "pin", &first, "--to", "w2"]), "changed");
    let planned = cluster.run(&["rebalance", "plan", KEYSPACE]).done();
    let obstacles = planned["obstacles"].to_string();
    assert!(obstacles.contains("the cluster is frozen") && !obstacles.contains("keyspace"), "{planned}");
    drop(fleet);
}

/// A plan that was made before the cluster was restored from a copy says so in its lineage.
#[test]
fn a_plan_of_another_lineage_is_refused() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    let file = cluster.dir().join("orders.plan");
    let file = file.to_str().unwrap();
    cluster.run(&["rebalance", "plan", KEYSPACE, "--save", file]).done();
    let text = std::fs::read_to_string(file).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    let lineage: u64 = other["lineage"].as_str().unwrap().parse().unwrap();
    other["lineage"] = (lineage ^ 1).to_string().into();
    std::fs::write(file, other.to_string()).unwrap();
    for sure in ["--dry-run", "--yes"] {
        refused(&cluster.run(&["rebalance", "apply", file, sure]), 1, "refused", "was restored since");
    }
    assert_eq!(cluster.run(&["rebalance", "status"]).done()["plans"], json!([]));
    drop(fleet);
}

/// A pin goes before a move; one that cannot be met is told with it, and what is explained does not hide it.
#[test]
fn a_pinned_partition_is_not_moved_away_and_what_is_explained_names_its_pin() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    assert_eq!(result(&cluster, &["partition", "pin", "orders/0", "--to", "w1", "--by", "ada"]), "changed");
    let away = ["partition", "move", "orders/0", "--to", "w2"];
    for args in [&away[..], &[&away[..], &["--dry-run"]].concat()] {
        let ran = cluster.run(args);
        refused(&ran, 1, "refused", "partition orders/0 is pinned to worker w1, by ada");
        refused(&ran, 1, "refused", "ringfence partition unpin orders/0");
    }
    assert_eq!(result(&cluster, &["partition", "move", "orders/0", "--to", "w1"]), "unchanged");
    let explained = cluster.run(&["partition", "explain", "orders/0"]).done();
    assert_eq!((&explained["pin"], &explained["because"]), (&"w1".into(), &"it is pinned there".into()));

    // Its worker may have nothing: the move is made, and it is said what comes after.
    assert_eq!(result(&cluster, &["partition", "pin", "orders/1", "--to", "w7", "--by", "ada"]), "changed");
    let away = ["partition", "move", "orders/1", "--to", "w2"];
    for args in [&[&away[..], &["--dry-run"]].concat()[..], &[&away[..], &["--wait"]].concat()] {
        let moved = cluster.run(args).done();
        let note = moved["note"].as_str().unwrap_or_else(|| panic!("{moved}"));
        let parts = ["pinned to worker w7, by ada", "which may not have it now", "unpinned"];
        assert!(parts.iter().all(|part| note.contains(part)), "{moved}");
    }
    cluster.all_ready(KEYSPACE);
    let explained = cluster.run(&["partition", "explain", "orders/1"]).done();
    assert_eq!(explained["pin"], "w7", "{explained}");
    assert!(
        explained["holds"].to_string().contains("pinned to worker w7, which has no session"),
        "{explained}"
    );

    // It may have it now, and a freeze keeps it away.
    assert_eq!(result(&cluster, &["freeze", "partition", "orders/2"]), "changed");
    assert_eq!(result(&cluster, &["partition", "pin", "orders/2", "--to", "w2"]), "changed");
    let explained = cluster.run(&["partition", "explain", "orders/2"]).done();
    assert!(explained["because"].as_str().unwrap().contains("pinned to worker w2"), "{explained}");
    assert!(explained["holds"].to_string().contains("goes there when"), "{explained}");

    // To the present owner there is nothing to do, whatever is frozen.
    for freeze in [["partition", "orders/2"], ["worker", "w1"], ["keyspace", KEYSPACE]] {
        cluster.run(&[&["freeze"], &freeze[..]].concat()).done();
        let unchanged = cluster.run(&["partition", "move", "orders/2", "--to", "w1"]).done();
        let note = unchanged["note"].as_str().unwrap_or_default();
        assert_eq!(unchanged["result"], "unchanged", "{freeze:?}");
        assert!(note.contains("pinned to worker w2") && !note.contains("may not have it"), "{note}");
    }
    drop(fleet);
}

/// Nobody has the label that is asked for: what is owned has to go, and nobody may take it.
#[test]
fn somebody_is_needed_where_no_worker_has_the_label_that_a_keyspace_asks_for() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    cluster.all_ready(KEYSPACE);
    wait_for("nobody is needed", || (cluster.run(&["status"]).code == 0).then_some(()));
    assert_eq!(result(&cluster, &["keyspace", "update", KEYSPACE, "--label", "disk=ssd"]), "updated");
    let status = cluster.run(&["status"]);
    assert_eq!((status.code, &status.json()["needs_somebody"]), (1, &true.into()), "{status:?}");
    let misplaced = status.json()["misplaced"][0].as_str().unwrap().to_owned();
    assert!(misplaced.contains("4 partitions of keyspace orders"), "{misplaced}");
    assert!(misplaced.contains("the labels of all workers"), "{misplaced}");
    assert_eq!(result(&cluster, &["keyspace", "update", KEYSPACE, "--no-labels"]), "updated");
    wait_for("nobody is needed", || (cluster.run(&["status"]).code == 0).then_some(()));
    drop(fleet);
}
