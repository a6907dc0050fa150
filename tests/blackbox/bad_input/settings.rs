//! Settings and arguments that cannot work are refused before anything starts, and the message names them.

use crate::harness::{Cluster, Process, Ran, Slot, free_address, run, run_with, wait_for};
use std::net::TcpListener;
use std::path::Path;

/// `serve` with what every node needs and these arguments, which may say it again.
fn serve(dir: &Path, args: &[&str]) -> Ran {
    let data = dir.join("data");
    run_with(&[], &[&["serve", "--data-dir", data.to_str().unwrap()], args].concat())
}

#[track_caller]
fn refused(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.out.is_empty(), "it says that it serves: {ran:?}");
    for part in parts {
        assert!(ran.err.contains(part), "{part} is not in it: {ran:?}");
    }
    let shown = ran.err.chars().all(|c| c == '\n' || !c.is_control());
    assert!(shown, "it writes to the terminal: {ran:?}");
}

#[test]
fn f062_settings_that_cannot_work_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let one = ["--node", "1", "--listen", "127.0.0.1:7601", "--cluster", "1=127.0.0.1:7601"];
    let long = "x".repeat(10_000);
    let long_list = format!("1={long}:1");
    let cases: &[(&[&str], &[&str])] = &[
        // How many nodes, and which.
        (&["--cluster", "1=a:1,2=b:1"], &["2 nodes", "1, 3 or 5"]),
        (&["--cluster", "1=a:1,2=b:1,3=c:1,4=d:1"], &["4 nodes", "1, 3 or 5"]),
        (&["--cluster", "1=a:1,1=b:1,3=c:1"], &["node 1", "twice"]),
        (&["--cluster", "1=a:1,2=a:1,3=c:1"], &["a:1", "node 1", "node 2"]),
        (&["--cluster", "2=127.0.0.1:7601"], &["node is 1", "cluster lists 2="]),
        (&["--node", "0"], &["node is 0"]),
        (&["--join"], &["join", "cluster"]),
        // Timings.
        (&["--heartbeat-ms", "0"], &["heartbeat"]),
        (&["--election-min-ms", "0"], &["election"]),
        (&["--election-max-ms", "0"], &["election"]),
        (&["--heartbeat-ms", "300", "--election-min-ms", "100"], &["heartbeat", "election"]),
        (&["--election-min-ms", "400", "--election-max-ms", "300"], &["election"]),
        (&["--election-max-ms", "3600000"], &["election-max-ms", "60000"]),
        (&["--heartbeat-ms=-1"], &["heartbeat-ms"]),
        (&["--heartbeat-ms", "18446744073709551616"], &["heartbeat-ms"]),
        (&["--snapshot-entries", "0"], &["snapshot"]),
        // Who can reach it.
        (&["--listen", "0.0.0.0:7601"], &["0.0.0.0:7601", "insecure"]),
        (&["--listen", "[::]:7601"], &["[::]:7601", "insecure"]),
        (&["--listen", "0.0.0.0:7601", "--insecure"], &["0.0.0.0:7601", "cluster-secret-file"]),
        (&["--listen", "example.com:7601"], &["listen", "example.com"]),
        (&["--listen", "127.0.0.1"], &["listen"]),
        // What would spoil a terminal or a log.
        (&["--cluster", "1=\u{1b}[2J:1"], &["1=\\u{1b}[2J"]),
        (&["--advertise", "a\u{7}:1"], &["advertise"]),
        (&["--cluster", &long_list], &["..."]),
        (&["--log", "a=b=c"], &["RINGFENCE_LOG", "filter"]),
    ];
    for (args, parts) in cases {
        // A flag may be given once: what the case gives replaces what every node needs.
        let mut all: Vec<&str> = Vec::new();
        for pair in one.chunks(2).filter(|pair| !args.contains(&pair[0])) {
            all.extend(pair);
        }
        all.extend(*args);
        refused(&serve(dir.path(), &all), 2, parts);
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "something was made before the settings were checked"
    );
}

#[test]
fn a_file_with_an_unknown_key_is_refused_with_the_key_and_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    let shown = file.to_str().unwrap();
    for (text, parts) in [
        ("node = 1\nheartbeat = 5\n", ["line 2", "heartbeat", "unknown field"]),
        ("node = 1\n\nnode = 2\n", ["line 3", "node", "duplicate"]),
        ("node = \"one\"\n", ["line 1", "node", "invalid type"]),
        ("node = 1\nlisten = [\n", ["line", "array", "node.toml"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran = serve(dir.path(), &["--config", shown]);
        refused(&ran, 2, &parts);
        assert!(ran.err.contains(shown), "{ran:?}");
    }
    refused(
        &serve(dir.path(), &["--config", "/nowhere/node.toml"]),
        2,
        &["/nowhere/node.toml", "No such file"],
    );
}

#[test]
fn f037_a_secret_that_is_none_is_refused_and_none_is_ever_shown() {
    const SECRET: &str = "0123456789abcdef-this-is-never-shown";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    let at = free_address();
    let list = format!("1={at}");
    let path = file.to_str().unwrap();
    let args = ["--node", "1", "--listen", &at, "--cluster", &list, "--cluster-secret-file", path];
    std::fs::write(&file, "short").unwrap();
    let ran = serve(dir.path(), &args);
    refused(&ran, 2, &["cluster-secret-file", path]);
    assert!(!ran.err.contains("short:"), "{ran:?}");

    std::fs::write(&file, SECRET).unwrap();
    let data = dir.path().join("data");
    let all = [&["serve", "--log", "trace", "--data-dir", data.to_str().unwrap()], &args[..]].concat();
    let process = Process::start("node-1", dir.path(), &all);
    wait_for("the node leads", || {
        let ran = run(&format!("http://{at}"), &["cluster", "status", "-o", "json", "--timeout", "1s"]);
        (ran.code == 0 && ran.json()["leader"] == 1).then_some(())
    });
    let seen = std::fs::read(format!("/proc/{}/cmdline", process.pid())).unwrap();
    let environ = std::fs::read(format!("/proc/{}/environ", process.pid())).unwrap();
    let log = process.log();
    assert!(log.contains("TRACE"), "the log has everything there is");
    for text in [String::from_utf8_lossy(&seen), String::from_utf8_lossy(&environ), log.into()] {
        assert!(!text.contains(SECRET));
    }
}

#[test]
fn a_port_in_use_and_a_place_that_cannot_be_written_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let list = format!("1={at}");
    refused(&serve(dir.path(), &["--node", "1", "--listen", &at, "--cluster", &list]), 1, &[&at, "in use"]);
    refused(&run_with(&[], &["dev", "--listen", &at]), 1, &[&at, "in use"]);
    refused(&run_with(&[], &["dev", "--listen", "nowhere"]), 2, &["listen", "nowhere"]);

    let file = dir.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let at = free_address();
    let list = format!("1={at}");
    for data in [file.to_str().unwrap(), "/proc/ringfence"] {
        let args = ["serve", "--node", "1", "--listen", &at, "--cluster", &list, "--data-dir", data];
        refused(&run_with(&[], &args), 1, &[data]);
    }
}

#[test]
fn a_data_directory_that_a_process_has_is_refused_to_another() {
    let cluster = Cluster::durable(1);
    let (at, data) = (free_address(), cluster.data_dir(1));
    let data = data.to_str().unwrap();
    let list = format!("1={at}");
    let args = ["serve", "--node", "1", "--listen", &at, "--cluster", &list, "--data-dir", data];
    refused(&run_with(&[], &args), 1, &[data, "in use by another process"]);
    assert_eq!(cluster.run(&["cluster", "status"]).done()["leader"], 1);
}

#[test]
fn two_nodes_with_lists_that_disagree_both_say_so_and_form_nothing() {
    let mut cluster = Cluster::unstarted(3, Slot::take());
    let other = free_address();
    let first = cluster.list();
    let second = first.replace(&cluster.addresses[&3], &other);
    cluster.start_with(1, &["--cluster", &first]);
    cluster.start_with(2, &["--cluster", &second]);
    let (third_of_first, third_of_second) = (cluster.addresses[&3].clone(), other);
    for (node, peer) in [(1, "n2"), (2, "n1")] {
        let waits = wait_for("each says that the lists disagree", || {
            let ran = cluster.run_at(node, &["cluster", "status", "--timeout", "1s"]);
            let status = (ran.code == 0).then(|| ran.json())?;
            let forming = status["forming"].as_str()?.to_owned();
            (forming.contains(&third_of_first) && forming.contains(&third_of_second))
                .then_some((forming, status))
        });
        assert!(waits.0.contains(peer), "{waits:?}");
        assert_eq!(
            (&waits.1["cluster_id"], &waits.1["leader"]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        let log = cluster.node(node).log();
        assert!(log.contains(&third_of_first) && log.contains(&third_of_second), "{log}");
        // And whoever is on call is told the same.
        assert_eq!(cluster.run_at(node, &["status", "--timeout", "2s"]).code, 1);
    }
}

#[test]
fn f062_leases_and_names_that_cannot_be_are_refused_by_the_command_and_by_the_worker() {
    let cluster = Cluster::dev();
    let create = |args: &[&str]| cluster.run(&[&["keyspace", "create"], args].concat());
    let long = "x".repeat(10_000);
    let cases: &[&[&str]] = &[
        &["orders", "--partitions", "1", "--ttl", "0s"],
        &["orders", "--partitions", "1", "--ttl", "999ms"],
        &["orders", "--partitions", "1", "--ttl", "11m"],
        &["orders", "--partitions", "1", "--ttl", "-1s"],
        &["orders", "--partitions", "1", "--lock-delay", "61s"],
        &["orders", "--partitions", "0"],
        &["orders", "--partitions", "1000001"],
        &["or\u{1b}[2Jders", "--partitions", "1"],
        &["or\u{202e}ders", "--partitions", "1"],
        &["", "--partitions", "1"],
        &["orders/1", "--partitions", "1"],
        &[&long, "--partitions", "1"],
    ];
    for case in cases {
        let ran = create(case);
        assert_eq!((ran.code, &ran.json()["error"]["code"]), (2, &"usage".into()), "{ran:?}");
        assert!(ran.err.starts_with("error: "), "{ran:?}");
        assert!(ran.err.chars().all(|c| c == '\n' || !c.is_control()), "it writes to the terminal: {ran:?}");
    }
    assert_eq!(cluster.run(&["keyspace", "list"]).done(), serde_json::json!([]));

    for id in ["w\u{1b}[2J", "w\n1", "", &long] {
        let file = cluster.dir().join("records.sqlite");
        let args = [
            "demo-worker",
            "--endpoints",
            &cluster.endpoints,
            "--id",
            id,
            "--keyspace",
            "orders",
            "--database",
        ];
        refused(&run_with(&[], &[&args[..], &[file.to_str().unwrap()]].concat()), 2, &["--id"]);
    }
    assert_eq!(cluster.run(&["worker", "list"]).done(), serde_json::json!([]));
}

#[test]
fn the_sample_configuration_is_read_and_only_its_directory_is_missing_here() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ringfence.toml");
    // A file in place of the data directory: the settings are fine, and the node does not get further than that.
    let taken = tempfile::NamedTempFile::new().unwrap();
    let place = taken.path().to_str().unwrap();
    let ran = run_with(&[], &["serve", "--config", sample, "--listen", "127.0.0.1:0", "--data-dir", place]);
    refused(&ran, 1, &[place]);
}
