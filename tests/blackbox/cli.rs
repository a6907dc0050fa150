//! What scripts rely on: exit codes, JSON whatever happens, errors on standard error, and a reader that goes away.

use crate::harness::{Cluster, Fleet, KEYSPACE, PATIENCE, Ran, free_address, run, run_with, wait_for};
use ringfence::Refusals;
use ringfence::fence::{FencingToken, MemoryFence};
use ringfence::net::{Coordinator, Endpoints};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

/// Every verb that asks the cluster, as a script would write it.
const VERBS: [&[&str]; 52] = [
    &["status"],
    &["keyspace", "create", "orders", "--partitions", "4"],
    &["keyspace", "create", "orders", "--partitions", "4", "--if-absent"],
    &["keyspace", "update", "orders", "--ttl", "5s"],
    &["keyspace", "list"],
    &["keyspace", "show", "orders"],
    &["keyspace", "delete", "orders", "--yes"],
    &["keyspace", "delete", "orders", "--if-exists", "--yes"],
    &["worker", "list"],
    &["partition", "list", "orders"],
    &["partition", "show", "orders/0"],
    &["partition", "move", "orders/0", "--to", "w1"],
    &["partition", "end-cooling", "orders/0"],
    &["who-owns", "orders", "customer-17"],
    &["cluster", "status"],
    &["cluster", "add-node", "9=127.0.0.1:9"],
    &["cluster", "remove-node", "9", "--yes"],
    &["cluster", "transfer-leader"],
    &["drill", "orders"],
    &["worker", "show", "w1"],
    &["worker", "history", "w1"],
    &["worker", "drain", "w1", "--yes"],
    &["worker", "drain", "w1", "--check"],
    &["worker", "drain", "w1", "--dry-run"],
    &["worker", "undrain", "w1"],
    &["worker", "cordon", "w1"],
    &["worker", "uncordon", "w1"],
    &["worker", "weight", "w1", "2"],
    &["worker", "remove", "w1", "--yes"],
    &["partition", "pin", "orders/0", "--to", "w1"],
    &["partition", "unpin", "orders/0"],
    &["partition", "weigh", "orders/0", "3"],
    &["partition", "explain", "orders/0"],
    &["partition", "history", "orders/0"],
    &["freeze", "partition", "orders/0"],
    &["freeze", "worker", "w1"],
    &["unfreeze", "keyspace", "orders"],
    &["freeze", "cluster", "--yes"],
    &["settings"],
    &["directives"],
    &["rebalance", "plan", "orders"],
    &["rebalance", "apply", "--keyspace", "orders", "--yes"],
    &["rebalance", "undo", "--yes"],
    &["rebalance", "status"],
    &["rebalance", "cancel"],
    &["rebalance", "resume"],
    &["rebalance", "release-brake", "--yes"],
    &["keyspace", "delete", "orders", "--dry-run"],
    &["cluster", "remove-node", "1", "--dry-run"],
    &["lock", "list"],
    &["lock", "show", "nightly"],
    &["lock", "break", "nightly", "--yes"],
];

/// With JSON there is one document on standard output, and what is wrong is on standard error as well.
#[track_caller]
fn failed(ran: &Ran, exit: i32, code: &str) {
    let error = &ran.json()["error"];
    assert_eq!((ran.code, &error["code"]), (exit, &code.into()), "{ran:?}");
    let message = error["message"].as_str().unwrap();
    assert!(!message.is_empty() && ran.err.starts_with("error: "), "{ran:?}");
}

#[test]
fn f105_every_verb_fails_with_1_and_json_when_no_coordinator_answers() {
    let nowhere = format!("http://{}", free_address());
    std::thread::scope(|scope| {
        for verb in VERBS {
            let nowhere = &nowhere;
            scope.spawn(move || {
                // No drill is given less.
                let timeout = ["--timeout", if verb[0] == "drill" { "1s" } else { "300ms" }];
                let ran = run(nowhere, &[verb, &timeout[..], &["-o", "json"]].concat());
                failed(&ran, 1, "unreachable");
                let table = run(nowhere, &[verb, &timeout[..]].concat());
                assert_eq!((table.code, table.out.as_str()), (1, ""), "{table:?}");
                assert!(
                    table.err.contains(nowhere.trim_start_matches("http://")),
                    "it does not say who: {table:?}"
                );
            });
        }
    });
}

/// Each verb that changes something asks before it does, so a cluster that says nothing leaves nobody in doubt: nothing was
/// sent that could have been done.
#[test]
fn f105_every_verb_says_that_nothing_was_done_when_whoever_is_there_says_nothing() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", mute.local_addr().unwrap());
    std::thread::scope(|scope| {
        for verb in VERBS {
            let endpoint = &endpoint;
            scope.spawn(move || {
                // No drill is given less.
                let timeout = ["--timeout", if verb[0] == "drill" { "1s" } else { "300ms" }];
                failed(&run(endpoint, &[verb, &timeout[..], &["-o", "json"]].concat()), 1, "unreachable");
            });
        }
    });
}

#[test]
fn f105_bad_usage_is_2_and_json_on_request_for_every_verb() {
    for verb in VERBS {
        let ran = run_with(&[], &[verb, &["--nonsense", "-o", "json"]].concat());
        failed(&ran, 2, "usage");
        let table = run_with(&[], &[verb, &["--nonsense"]].concat());
        assert_eq!((table.code, table.out.as_str()), (2, ""), "{table:?}");
    }
    failed(&run_with(&[("RINGFENCE_ENDPOINTS", "ftp://a:1")], &["status", "-o", "json"]), 2, "usage");
    // What was given is shown, without a password, and not as it would paint the terminal.
    for form in ["json", "table"] {
        let secret = run_with(&[("RINGFENCE_ENDPOINTS", "http://u:hunter2@h:1")], &["status", "-o", form]);
        assert!(secret.code == 2 && !format!("{secret:?}").contains("hunter2"), "{secret:?}");
        let painted = run_with(&[], &["keyspace", "show", "\u{202e}a\nb", "-o", form]);
        assert!(
            painted.code == 2 && !painted.err.contains('\u{202e}') && !painted.err.contains("a\nb"),
            "{painted:?}"
        );
    }
    for timeout in ["1ms", "31m"] {
        let ran = run_with(&[], &["drill", "orders", "--timeout", timeout, "-o", "json"]);
        failed(&ran, 2, "usage");
        assert!(ran.err.contains("1s to 30m"), "{ran:?}");
    }
    assert_eq!(run_with(&[], &["--help"]).code, 0);
    assert_eq!(run_with(&[], &["--version"]).code, 0);
}

#[test]
fn f105_exit_codes_against_a_live_cluster() {
    let cluster = Cluster::dev();
    let run = |args: &[&str]| cluster.run(args);
    let result = |args: &[&str]| run(args).done()["result"].as_str().unwrap().to_owned();

    let create = ["keyspace", "create", KEYSPACE, "--partitions", "2", "--ttl", "2s"];
    assert_eq!(result(&create), "created");
    failed(&run(&create), 1, "already_exists");
    let if_absent = [&create[..], &["--if-absent"]].concat();
    assert_eq!(result(&if_absent), "unchanged");
    failed(&run(&["keyspace", "create", KEYSPACE, "--partitions", "3", "--if-absent"]), 1, "refused");
    assert_eq!(result(&["keyspace", "update", KEYSPACE, "--balance", "false"]), "updated");
    // What is left out may differ, and what is given may not.
    assert_eq!(result(&if_absent), "unchanged");
    failed(&run(&[&if_absent[..], &["--balance", "true"]].concat()), 1, "refused");
    assert_eq!(result(&["keyspace", "update", KEYSPACE, "--balance", "true"]), "updated");

    for missing in [
        &["keyspace", "show", "nothing"][..],
        &["keyspace", "update", "nothing", "--ttl", "5s"],
        &["keyspace", "delete", "nothing", "--yes"],
        &["partition", "list", "nothing"],
        &["partition", "show", "nothing/0"],
        &["partition", "show", "orders/2"],
        &["partition", "move", "orders/0", "--to", "nobody"],
        &["partition", "end-cooling", "orders/2"],
        &["who-owns", "nothing", "key"],
        &["cluster", "remove-node", "9", "--yes"],
    ] {
        let ran = run(missing);
        let code = ran.json()["error"]["code"].as_str().unwrap().to_owned();
        failed(&ran, 1, &code);
        assert!(["not_found", "invalid", "refused"].contains(&code.as_str()), "{ran:?}");
    }
    assert_eq!(result(&["keyspace", "delete", "nothing", "--if-exists", "--yes"]), "unchanged");
    failed(&run(&["who-owns", KEYSPACE, "xyz", "--hex"]), 2, "usage");

    // Nobody owns anything: to ask who does is no failure, and somebody is needed.
    assert_eq!(run(&["who-owns", KEYSPACE, "key"]).done()["worker"], Value::Null);
    let status = run(&["status"]);
    assert_eq!((status.code, &status.json()["needs_somebody"]), (1, &true.into()), "{status:?}");

    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.start("w2");
    fleet.balanced(&["w1", "w2"], 2);
    cluster.all_ready(KEYSPACE);
    let healthy = wait_for("nobody is needed", || Some(run(&["status"])).filter(|ran| ran.code == 0)).json();
    assert_eq!((&healthy["needs_somebody"], &healthy["reasons"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(healthy["counts"]["ready"], 2);

    let owner = run(&["partition", "show", "orders/0"]).done()["worker"].as_str().unwrap().to_owned();
    let other = if owner == "w1" { "w2" } else { "w1" };
    assert_eq!(result(&["partition", "move", "orders/0", "--to", &owner]), "unchanged");
    assert_eq!(result(&["partition", "end-cooling", "orders/0"]), "unchanged");
    assert_eq!(result(&["partition", "move", "orders/0", "--to", other, "--wait"]), "moved");
    assert_eq!(result(&["cluster", "transfer-leader", "--to", "1"]), "unchanged");
    let own = format!("1={}", cluster.addresses[&1]);
    assert_eq!(result(&["cluster", "add-node", &own]), "unchanged");
    failed(&run(&["cluster", "remove-node", "1", "--yes"]), 1, "refused");
    // Nobody can be asked.
    for verb in [&["keyspace", "delete", KEYSPACE][..], &["cluster", "remove-node", "1"]] {
        let ran = run(verb);
        failed(&ran, 2, "usage");
        assert!(ran.err.contains("say --yes"), "{ran:?}");
    }
    assert_eq!(run(&["keyspace", "show", KEYSPACE]).code, 0);
    assert_eq!(result(&["keyspace", "delete", KEYSPACE, "--yes"]), "deleted");
    failed(&run(&["keyspace", "show", KEYSPACE]), 1, "not_found");
}

#[test]
fn f105_without_a_quorum_changes_are_refused_and_status_says_that_somebody_is_needed() {
    let mut cluster = Cluster::durable(3);
    cluster.create_keyspace(KEYSPACE, 2, "2s");
    for node in [1, 2] {
        cluster.node(node).kill();
    }
    for verb in [&["keyspace", "create", "more", "--partitions", "1"][..], &["who-owns", KEYSPACE, "key"]] {
        let ran = cluster.run(&[verb, &["--timeout", "2s"]].concat());
        let code = ran.json()["error"]["code"].as_str().unwrap().to_owned();
        failed(&ran, 1, &code);
        let known = ["no_leader", "unavailable", "unknown_outcome", "unreachable", "timeout"];
        assert!(known.contains(&code.as_str()), "{ran:?}");
    }
    let status = cluster.run(&["status", "--timeout", "2s"]);
    assert_eq!((status.code, &status.json()["needs_somebody"]), (1, &true.into()), "{status:?}");
    // What the node that is left knows is told, and that it knows no leader.
    let seen = wait_for("the node that is left knows no leader", || {
        let ran = cluster.run_at(3, &["cluster", "status", "--timeout", "2s"]);
        Some(ran.done()).filter(|status| status["leader"].is_null())
    });
    assert_eq!(seen["nodes"].as_array().unwrap().len(), 3, "{seen}");
}

#[test]
fn the_json_of_the_lists_has_the_fields_that_are_promised() {
    let cluster = Cluster::durable(1);
    cluster.create_keyspace(KEYSPACE, 2, "2s");
    let mut fleet = Fleet::of(&cluster, true);
    fleet.start("w1");
    fleet.balanced(&["w1"], 2);
    cluster.all_ready(KEYSPACE);

    let list = cluster.run(&["partition", "list", KEYSPACE]).done();
    for (number, partition) in list.as_array().unwrap().iter().enumerate() {
        assert_eq!((&partition["keyspace"], &partition["partition"]), (&KEYSPACE.into(), &number.into()));
        assert_eq!((&partition["phase"], &partition["worker"]), (&"owned".into(), &"w1".into()));
        assert!(partition["session"].is_u64() && partition["epoch"].is_u64(), "{partition}");
        assert_eq!(partition["ready"], true);
    }
    assert_eq!(list.as_array().unwrap().len(), 2);

    let status = cluster.run(&["cluster", "status"]).done();
    assert!(status["cluster_id"].is_string() && status["term"].as_u64() > Some(0), "{status}");
    assert_eq!(status["leader"], 1);
    let node = &status["nodes"][0];
    assert_eq!((&node["id"], &node["role"]), (&1.into(), &"leader".into()), "{status}");
    assert_eq!(node["address"], cluster.addresses[&1].as_str());

    let owner = cluster.run(&["who-owns", KEYSPACE, "customer-17"]).done();
    let listed = &list[usize::try_from(owner["partition"].as_u64().unwrap()).unwrap()];
    for field in ["keyspace", "partition", "phase", "worker", "session", "epoch", "ready"] {
        assert_eq!(owner[field], listed[field], "{field}: {owner}");
    }
}

/// What a writer of this cluster tells: that so many of its writes were refused.
fn refused_writes(cluster: &Cluster, count: u64) {
    let id = cluster.run(&["cluster", "status"]).json()["cluster_id"].as_str().unwrap().to_owned();
    let [old, new] =
        [1, 2].map(|epoch| format!("{id}/{KEYSPACE}/0@{epoch}").parse::<FencingToken>().unwrap());
    let fence = MemoryFence::new(old.cluster().clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let coordinator = Coordinator::new(cluster.endpoints.parse::<Endpoints>().unwrap());
        let refusals = Refusals::new(&coordinator).unwrap().of_worker("w1").unwrap();
        let ledger = refusals.of_store("ledger").unwrap();
        fence.raise(&new).unwrap();
        for _ in 0..count {
            ledger.note(&fence.check(&old).unwrap_err());
        }
        assert!(refusals.flush(PATIENCE).await);
    });
}

#[test]
fn refused_writes_are_watched_as_they_are_told_until_nobody_reads() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 4, "2s");
    refused_writes(&cluster, 2);
    let mut watch = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    watch.args(["--die-with-parent", "fence", "refusals", KEYSPACE, "--watch", "-o", "json"]);
    watch.env("RINGFENCE_ENDPOINTS", &cluster.endpoints).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = watch.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut all = 0;
    let mut told = |count: u64| {
        // In one line, unless the machine is slow.
        while all < count {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let told: Value = serde_json::from_str(&line).unwrap();
            all += told["more"].as_u64().unwrap();
            assert_eq!(told["count"], all, "{told}");
            assert_eq!((&told["own_epoch"], &told["highest_epoch"]), (&1.into(), &2.into()), "{told}");
            assert_eq!((&told["store"], &told["mode"]), (&"ledger".into(), &"enforce".into()), "{told}");
        }
        assert_eq!(all, count);
    };
    // What is known; or, when it was not noted yet, the first news.
    told(2);
    refused_writes(&cluster, 3);
    told(5);
    // `| head -2`: it notices with the next news.
    drop(output);
    refused_writes(&cluster, 1);
    let code = wait_for("the command ends", || child.try_wait().unwrap()).code();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let text = cluster.run(&["fence", "refusals", "nowhere", "--watch"]);
    failed(&text, 1, "not_found");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 2_000, "2s");
    let start = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command.args(["--die-with-parent"]).args(args).env("RINGFENCE_ENDPOINTS", &cluster.endpoints);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for args in [&["watch"][..], &["watch", "-o", "json"], &["partition", "list", KEYSPACE, "-o", "json"]] {
        let mut child = start(args);
        let mut first = String::new();
        // `| head -1`
        let mut output = BufReader::new(child.stdout.take().unwrap());
        if args[0] == "watch" {
            output.read_line(&mut first).unwrap();
            assert!(first.contains("vacant"), "{first}");
        }
        drop(output);
        if args[0] == "watch" {
            // It notices with the next change.
            cluster.run(&["keyspace", "create", &format!("new-{}", args.len()), "--partitions", "1"]).done();
        }
        let code = wait_for("the command ends", || child.try_wait().unwrap()).code();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((code, said.as_str()), (Some(0), ""), "{args:?}");
    }
    // No standard output at all, and none of the two.
    for line in ["keyspace list >&-", "status -o json >&- 2>&-", "nonsense >&- 2>&-"] {
        let shell = format!("{} {line}", env!("CARGO_BIN_EXE_ringfence"));
        let ran =
            Command::new("sh").args(["-c", &shell]).env("RINGFENCE_ENDPOINTS", &cluster.endpoints).output();
        let ran = ran.unwrap();
        assert!(ran.status.code().is_some_and(|code| code <= 2), "{line}: {ran:?}");
        assert!(!String::from_utf8_lossy(&ran.stderr).contains("panicked"), "{line}: {ran:?}");
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let cluster = Cluster::dev();
    let planned = |args: &[&str]| cluster.run(&[args, &["--dry-run"]].concat()).done();
    let would = planned(&["keyspace", "create", "orders", "--partitions", "4", "--balance-by", "load"]);
    assert_eq!((&would["result"], &would["keyspace"]["balance_by"]), (&"planned".into(), &"load".into()));
    assert!(cluster.run(&["keyspace", "list"]).done().as_array().unwrap().is_empty());
    failed(&cluster.run(&["keyspace", "delete", "orders", "--dry-run"]), 1, "not_found");

    cluster.create_keyspace("orders", 4, "2s");
    failed(
        &cluster.run(&["keyspace", "create", "orders", "--partitions", "4", "--dry-run"]),
        1,
        "already_exists",
    );
    let would = planned(&["keyspace", "update", "orders", "--ttl", "9s"]);
    assert_eq!((&would["result"], &would["keyspace"]["ttl_ms"]), (&"planned".into(), &9_000.into()));
    assert_eq!(planned(&["keyspace", "update", "orders", "--ttl", "2s"])["result"], "unchanged");
    assert_eq!(planned(&["keyspace", "delete", "orders"])["result"], "planned");
    assert_eq!(cluster.run(&["keyspace", "show", "orders"]).done()["ttl_ms"], 2_000);

    assert_eq!(planned(&["partition", "end-cooling", "orders/0"])["result"], "unchanged");
    assert_eq!(planned(&["cluster", "add-node", "7=127.0.0.1:1"])["result"], "planned");
    // What would be refused is refused.
    for args in [&["cluster", "remove-node", "1", "--dry-run"], &["cluster", "remove-node", "1", "--yes"]] {
        failed(&cluster.run(args), 1, "refused");
    }
    let same = ["keyspace", "update", "orders", "--ttl", "2s"];
    assert_eq!(cluster.run(&same).done()["result"], "unchanged", "as it was");
    assert_eq!(cluster.run(&["keyspace", "update", "orders", "--ttl", "3s"]).done()["result"], "updated");
    failed(&cluster.run(&["cluster", "remove-node", "9", "--dry-run"]), 1, "not_found");
    failed(&cluster.run(&["cluster", "transfer-leader", "--dry-run"]), 1, "refused");
    assert_eq!(planned(&["cluster", "transfer-leader", "--to", "1"])["result"], "unchanged");
    assert_eq!(planned(&["rebalance", "release-brake"])["result"], "unchanged");
    assert_eq!(cluster.run(&["cluster", "status"]).done()["nodes"].as_array().unwrap().len(), 1);
}
