//! The clients of `examples/clients`, in Python over gRPC and in TypeScript over HTTP, against real coordinators. Both say the same
//! lines, so that one of each can contend for a lock.
//!
//! | module | what it is |
//! |---|---|
//! | `foreign` | what the clients are made with, and one of them as a process |

mod foreign;

use crate::harness::{Cluster, wait_for};
use crate::house::root;
use foreign::{Foreign, Languages, python, typescript};
use nix::sys::signal::Signal;
use ringfence::FencingToken;
use rusqlite::Connection;
use std::collections::BTreeMap;

const GOLDEN: [&str; 2] = ["key_to_partition.tsv", "key_to_partition_midway.tsv"];

/// Both read the golden files by themselves, and say how many answers they have agreed with.
#[test]
fn f061_every_client_puts_every_key_where_the_golden_files_say() {
    let files = GOLDEN.map(|name| root().join("proto/golden").join(name));
    let answers: usize = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .map(|text| text.lines().filter(|line| !line.starts_with('#')).count())
        .sum();
    assert!(answers > 200, "the golden files have only {answers} answers");
    let files = files.each_ref().map(|file| file.to_str().unwrap());
    for (made, script) in [(python(), include_str!("golden.py")), (typescript(), include_str!("golden.js"))] {
        let Some(made) = made else { continue };
        assert_eq!(made.script(script, &files), format!("{answers} agree\n"));
        // What the page says of the hash itself.
        for (key, hash) in hashes() {
            assert_eq!(made.script(made.hash_script(), &[&key]), format!("{hash}\n"), "{key}");
        }
        // Control: an answer that is wrong by one is noticed.
        let dir = tempfile::tempdir().unwrap();
        let wrong = dir.path().join("wrong.tsv");
        std::fs::write(&wrong, "616263\t64\t0\n").unwrap();
        let said = made.script(script, &[wrong.to_str().unwrap()]);
        assert!(said.starts_with("another partition: 616263"), "{said}");
    }
}

/// The table of proto/PARTITIONS.md.
fn hashes() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(root().join("proto/PARTITIONS.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix("` |"));
    let hashes: Vec<_> = rows
        .filter_map(|row| row.split_once("| `"))
        .map(|(key, hash)| (key.trim().trim_matches('`').to_owned(), hash.to_owned()))
        .collect();
    assert_eq!(hashes.len(), 7, "{hashes:?}");
    hashes
}

/// What the coordinator says is made up here, at the edge of what 64 bits hold.
#[test]
fn t17_the_client_in_typescript_keeps_every_digit_beyond_2_to_the_53() {
    let Some(made) = typescript() else { return };
    assert_eq!(made.script(include_str!("exact.js"), &[]), "exact\n");
}

/// A flag that is set in the background would be stale here: nothing but the caller runs between the time's end and the look.
#[test]
fn a20_t25_a_clients_lease_counts_from_before_it_asked_and_its_end_is_seen_by_the_next_look() {
    if let Some(made) = typescript() {
        assert_eq!(made.script(include_str!("late.js"), &[]), "late\n");
    }
    if let Some(made) = python() {
        let cluster = Cluster::dev();
        assert_eq!(made.script(include_str!("late.py"), &[&made.endpoints(&cluster.endpoints)]), "late\n");
    }
}

/// A client that takes the lock `nightly` when it is free.
fn taking(made: &Languages, endpoints: &str, worker: &str) -> Foreign {
    made.example(worker, &[&made.endpoints(endpoints), "lock", "nightly", worker])
}

/// Waits until it says that it holds the lock; the epoch.
fn holds(client: &mut Foreign) -> u64 {
    let token: FencingToken = client.says("holds ").parse().unwrap();
    assert!(token.scope().to_string() == "@locks/nightly", "{token}");
    token.epoch().get()
}

fn waits_behind(cluster: &Cluster, waiting: u64) {
    wait_for(&format!("{waiting} wait for the lock"), || {
        let lock = cluster.acknowledged(&["lock", "show", "nightly"]);
        (lock["waiting"] == waiting).then_some(())
    });
}

#[test]
fn two_clients_of_two_languages_exclude_each_other_and_a_killed_ones_lock_goes_on() {
    let (Some(python), Some(typescript)) = (python(), typescript()) else { return };
    let cluster = Cluster::dev();
    let mut last = 0;
    let mut first = taking(&python, &cluster.endpoints, "w0");
    for (n, made) in [&typescript, &python, &typescript].into_iter().enumerate() {
        let epoch = holds(&mut first);
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        let second = taking(made, &cluster.endpoints, &format!("w{}", n + 1));
        waits_behind(&cluster, 1);
        assert!(!second.said().iter().any(|line| line.starts_with("holds")), "two hold it");
        if n == 0 {
            first.enter();
            assert_eq!(first.says("still "), first.says("holds "));
            assert_eq!(first.ended().code(), Some(0), "{:?}", first.said());
        } else {
            // Once each: a session that is killed gives its lock on when its lease is over.
            first.kill();
        }
        first = second;
    }
    let epoch = holds(&mut first);
    assert!(epoch > last);
    first.enter();
    assert_eq!(first.ended().code(), Some(0), "{:?}", first.said());
    let idle = cluster.acknowledged(&["lock", "show", "nightly"]);
    assert_eq!((&idle["held"], &idle["waiting"]), (&0.into(), &0.into()), "{idle}");
}

/// The pause ends after the next one has the lock, and the very next thing that the holder does is to ask for its token.
#[test]
fn a20_b30_a_client_that_was_paused_past_its_lease_stamps_nothing_more() {
    let (Some(python), Some(typescript)) = (python(), typescript()) else { return };
    let cluster = Cluster::dev();
    for (made, next) in [(&python, &typescript), (&typescript, &python)] {
        let mut paused = taking(made, &cluster.endpoints, "paused");
        let old = holds(&mut paused);
        paused.stop();
        let mut after = taking(next, &cluster.endpoints, "after");
        assert!(holds(&mut after) > old);
        paused.enter();
        paused.signal(Signal::SIGCONT);
        assert_eq!(paused.ended().code(), Some(1));
        assert!(!paused.said().iter().any(|line| line.starts_with("still")), "{:?}", paused.said());
        let why = paused.errors();
        assert!(why.contains("lease ran out") || why.contains("session"), "{why}");
        after.enter();
        assert_eq!(after.ended().code(), Some(0), "{:?}", after.said());
    }
}

#[test]
fn clients_that_know_a_follower_alone_find_the_leader_and_its_successor() {
    let (Some(python), Some(typescript)) = (python(), typescript()) else { return };
    let cluster = Cluster::durable(3);
    cluster.create_keyspace("orders", 4, "3s");
    let (leader, _) = cluster.leader();
    let follower = *cluster.addresses.keys().find(|node| **node != leader).unwrap();
    let one = format!("http://{}", cluster.addresses[&follower]);
    let all = cluster.endpoints.as_str();
    for made in [&python, &typescript] {
        let mut looks = made.example("looks", &[&made.endpoints(&one), "lookup", "orders", "customer-7"]);
        assert_eq!(looks.ended().code(), Some(0), "{:?} {}", looks.said(), looks.errors());
    }
    let mut holder = taking(&python, &one, "holder");
    let old = holds(&mut holder);
    let mut waiter = taking(&typescript, all, "waiter");
    waits_behind(&cluster, 1);
    cluster.acknowledged(&["cluster", "transfer-leader", "--to", &follower.to_string()]);
    wait_for("the other node leads", || (cluster.leader().0 == follower).then_some(()));
    holder.enter();
    holder.says("still ");
    assert!(holds(&mut waiter) > old, "its release and the next grant are the new leader's");
    waiter.enter();
    assert_eq!((holder.ended().code(), waiter.ended().code()), (Some(0), Some(0)));
}

/// Both name the owner that the command line names.
fn look_up(cluster: &Cluster, made: &Languages) {
    let told = cluster.acknowledged(&["who-owns", "orders", "customer-7"]);
    let mut client =
        made.example("looks", &[&made.endpoints(&cluster.endpoints), "lookup", "orders", "customer-7"]);
    assert_eq!(client.ended().code(), Some(0), "{}", client.errors());
    let said = client.said().join(" ").replace('=', ": ");
    for (field, value) in [("partition", &told["partition"]), ("epoch", &told["epoch"])] {
        assert!(said.contains(&format!("{field}: {value}")), "{field}: {said} {told}");
    }
    assert!(said.contains(&format!("'{}'", told["worker"].as_str().unwrap())), "{said}");
}

#[test]
fn a50_a_worker_in_python_owns_partitions_gives_them_back_when_drained_and_its_successors_go_on() {
    let Some(made) = python() else { return };
    let cluster = Cluster::dev();
    cluster.create_keyspace("orders", 4, "3s");
    let file = cluster.dir().join("counts.db");
    let counts = counts(&cluster, &file);
    let serve = |id: &str| {
        let endpoints = made.endpoints(&cluster.endpoints);
        made.example(id, &[&endpoints, "serve", "orders", id, file.to_str().unwrap()])
    };
    let owned_by = |worker: &str| {
        wait_for(&format!("{worker} owns all"), || {
            let owners = cluster.all_ready("orders");
            owners.values().all(|(owner, ..)| owner == worker).then_some(owners)
        })
    };
    let wait_counted = |owners: &BTreeMap<u64, (String, u64, u64)>| {
        for (partition, (_, epoch, _)) in owners {
            let scope = format!("orders/{partition}");
            wait_for(&format!("{scope} is counted in under {epoch}"), || {
                rows(&counts)
                    .iter()
                    .any(|(of, _, by)| (of.as_str(), *by) == (scope.as_str(), *epoch))
                    .then_some(())
            });
        }
    };

    let mut first = serve("w1");
    let before = owned_by("w1");
    wait_counted(&before);
    [Some(python().unwrap()), typescript()].iter().flatten().for_each(|made| look_up(&cluster, made));

    // Drained: each partition is released by its task, and goes to the other under a higher epoch.
    let mut second = serve("w2");
    wait_for("w2 has joined", || {
        cluster.run(&["worker", "list"]).done().to_string().contains("\"w2\"").then_some(())
    });
    cluster.run(&["worker", "drain", "w1", "--wait", "30s", "--yes"]).done();
    let drained = owned_by("w2");
    assert!(before.iter().all(|(partition, (_, epoch, _))| drained[partition].1 > *epoch));
    wait_for("w1 has released all four", || {
        (first.said().iter().filter(|line| line.starts_with("released ")).count() == 4).then_some(())
    });
    assert!(!first.said().iter().any(|line| line.starts_with("lost ")), "{:?}", first.said());
    wait_counted(&drained);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().code(), Some(0), "{}", first.errors());

    // Killed: they go on when its lease is over. Left: they are given back at once.
    let mut third = serve("w3");
    wait_for("w3 has joined", || {
        cluster.run(&["worker", "list"]).done().to_string().contains("\"w3\"").then_some(())
    });
    second.kill();
    let after = owned_by("w3");
    assert!(drained.iter().all(|(partition, (_, epoch, _))| after[partition].1 > *epoch));
    wait_counted(&after);
    third.signal(Signal::SIGTERM);
    assert_eq!(third.ended().code(), Some(0), "{}", third.errors());
    assert!(cluster.owners("orders").values().all(|(worker, ..)| worker.is_empty()));

    // Whoever owned a partition went on where its predecessor had stopped.
    let mut by_scope: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for (scope, n, epoch) in rows(&counts) {
        by_scope.entry(scope).or_default().push((n, epoch));
    }
    assert_eq!(by_scope.len(), 4);
    for (scope, rows) in by_scope {
        assert!(rows.iter().map(|(n, _)| *n).eq(1..=rows.len() as u64), "{scope}: {rows:?}");
        assert!(rows.is_sorted_by_key(|(_, epoch)| *epoch), "{scope}: an old owner wrote late: {rows:?}");
    }
}

/// The file in which the worker counts, with its fence.
fn counts(cluster: &Cluster, path: &std::path::Path) -> Connection {
    let tables = std::fs::read_to_string(root().join("examples/shell-worker/fence.sql")).unwrap();
    let file = Connection::open(path).unwrap();
    file.pragma_update(None, "journal_mode", "WAL").unwrap();
    file.execute_batch(&tables).unwrap();
    file.execute_batch("CREATE TABLE counts (scope TEXT, n INTEGER, epoch INTEGER, PRIMARY KEY (scope, n))")
        .unwrap();
    let status = cluster.run(&["cluster", "status"]).done();
    let id = status["cluster_id"].as_str().unwrap();
    file.execute("INSERT INTO ringfence_binding VALUES (1, 1, ?1)", [id]).unwrap();
    file
}

/// Scope, number, epoch; in order.
fn rows(file: &Connection) -> Vec<(String, u64, u64)> {
    let mut rows = file.prepare_cached("SELECT scope, n, epoch FROM counts ORDER BY scope, n").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}
