//! What a command says when its answer cannot be read: a change that was made is never called one that failed.

use crate::harness::{Cluster, KEYSPACE, Ran, run, run_into};
use crate::operators::{lopsided, result};
use serde_json::Value;
use std::fs::File;

const DONE: &str = "is done, and only the answer could not be written";

/// A device on which there is never room.
fn full(cluster: &Cluster, args: &[&str]) -> Ran {
    let device = File::options().write(true).open("/dev/full").unwrap();
    run_into(&cluster.endpoints, args, device.into())
}

/// A pipe whose reader has gone.
fn closed(cluster: &Cluster, args: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    run_into(&cluster.endpoints, args, writer.into())
}

#[test]
fn f105_a_change_whose_answer_cannot_be_written_says_that_it_was_made() {
    let cluster = Cluster::dev();
    for json in [false, true] {
        let keyspace = format!("{KEYSPACE}-{json}");
        let format = if json { "json" } else { "table" };
        let create = ["keyspace", "create", &keyspace, "--partitions", "2", "-o", format];
        let said = full(&cluster, &create);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(DONE) && said.err.contains("No space left"), "{said:?}");
        assert_eq!(cluster.run(&["keyspace", "show", &keyspace]).done()["partitions"], 2);
        // What changed nothing is not called done, and neither is what only asked.
        for asked in [&["keyspace", "list", "-o", format][..], &["worker", "uncordon", "w7", "-o", format]] {
            let said = full(&cluster, asked);
            assert!(said.code == 1 && !said.err.contains(DONE), "{said:?}");
        }
    }
    let changes: [&[&str]; 6] = [
        &["worker", "cordon", "w7"],
        &["partition", "pin", "orders-true/0", "--to", "w7"],
        &["freeze", "worker", "w7"],
        &["keyspace", "update", "orders-true", "--balance", "false"],
        &["keyspace", "split", "orders-false", "--yes"],
        &["worker", "drain", "w7", "--yes"],
    ];
    for change in changes {
        let said = full(&cluster, change);
        assert!(said.code == 1 && said.err.contains(DONE), "{change:?}: {said:?}");
    }
    let settings = cluster.run(&["settings"]).done();
    let worker = &settings["workers"][0];
    let set = ["cordoned", "frozen", "drained"].map(|what| worker[what].is_object());
    assert_eq!((&worker["worker"], set), (&Value::from("w7"), [true; 3]), "{settings}");
    assert_eq!(settings["partitions"][0]["pin"], "w7", "{settings}");
}

#[test]
fn f105_help_that_cannot_be_written_is_a_failure_and_nobody_who_reads_it_is_none() {
    let cluster = Cluster::dev();
    for args in [&["--help"][..], &["rebalance", "apply", "--help"], &["--version"]] {
        let said = full(&cluster, args);
        assert!(said.code == 1 && said.err.contains("No space left"), "{args:?}: {said:?}");
        let said = closed(&cluster, args);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{args:?}: {said:?}");
    }
}

/// Where the exit code is the answer, it is the same whoever reads the words.
#[test]
fn f105_a_no_that_nobody_reads_is_no_yes() {
    let cluster = Cluster::dev();
    let fleet = lopsided(&cluster);
    // Nobody serves it, and somebody is needed.
    cluster.create_keyspace("idle", 1, "1s");
    for json in [&[][..], &["-o", "json"]] {
        for asked in [&["worker", "drain", "w1", "--check"][..], &["status"], &["worker", "list", "--what"]] {
            let args = [asked, json].concat();
            let read = run(&cluster.endpoints, &args);
            let said = closed(&cluster, &args);
            assert!(read.code > 0 && said.code == read.code, "{said:?} {read:?}");
            assert_eq!(said.err, read.err, "nothing is said of the pipe");
        }
    }
    drop(fleet);
}

#[test]
fn f105_a_reader_that_went_away_is_no_failure_of_a_change() {
    let cluster = Cluster::dev();
    let said = closed(&cluster, &["worker", "cordon", "w7"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(result(&cluster, &["worker", "cordon", "w7"]), "unchanged");
}
