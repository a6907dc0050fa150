//! The workers in shell and in Python of `examples/`, against a real coordinator: one partition is moved, and one worker killed.

use super::run::has_sqlite3;
use crate::harness::{Cluster, Process, set_environment, wait_for};
use crate::house::root;
use ringfence::fence::sqlite::SqliteFence;
use ringfence::ids::ClusterId;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::process::Command;

// The server that the fence's own tests start.
#[allow(dead_code)]
#[path = "../../../src/fence/tests/postgres/server.rs"]
mod server;

const KEYSPACE: &str = "orders";

/// What a row of `counts` says: scope, number, epoch; in order.
type Rows = Vec<(String, u64, u64)>;

fn cluster_id(cluster: &Cluster) -> ClusterId {
    let status = cluster.run(&["cluster", "status"]).done();
    ClusterId::new(status["cluster_id"].as_str().unwrap()).unwrap()
}

fn worker(cluster: &Cluster, id: &str, options: &[&str], command: &[&str]) -> Process {
    let own = ["run", "--keyspace", KEYSPACE, "--id", id, "--endpoints", &cluster.endpoints];
    Process::start(id, cluster.dir(), &[&own[..], options, &["--"], command].concat())
}

/// Two workers; a partition is moved from the first to the second, and the first is killed. Whoever owned a partition went on where
/// its predecessor had stopped.
fn moved_and_killed(cluster: &Cluster, options: &[&str], command: &[&str], rows: impl Fn() -> Rows) {
    let create = ["keyspace", "create", KEYSPACE, "--partitions", "2", "--ttl", "3s", "--balance", "false"];
    cluster.run(&create).done();
    let mut first = worker(cluster, "w1", options, command);
    let before = cluster.all_ready(KEYSPACE);
    assert!(before.values().all(|(worker, ..)| worker == "w1"));
    let mut second = worker(cluster, "w2", options, command);
    wait_for("w2 has joined", || {
        cluster.run(&["worker", "list"]).done().to_string().contains("\"w2\"").then_some(())
    });
    let counted = |partition: u64, epoch: u64| {
        let scope = format!("{KEYSPACE}/{partition}");
        rows().iter().filter(|(of, _, by)| (of, *by) == (&scope, epoch)).count()
    };
    let wait_counted = |partition: u64, epoch: u64| {
        let what = format!("partition {partition} is counted in under epoch {epoch}");
        wait_for(&what, || (counted(partition, epoch) > 5).then_some(()));
    };
    before.iter().for_each(|(partition, (_, epoch, _))| wait_counted(*partition, *epoch));

    cluster.run(&["partition", "move", "orders/0", "--to", "w2", "--wait"]).done();
    let moved = cluster.all_ready(KEYSPACE);
    assert_eq!((moved[&0].0.as_str(), moved[&1].0.as_str()), ("w2", "w1"));
    wait_counted(0, moved[&0].1);

    first.kill();
    let after = wait_for("w2 owns all", || {
        let owners = cluster.all_ready(KEYSPACE);
        owners.values().all(|(worker, ..)| worker == "w2").then_some(owners)
    });
    assert_eq!(after[&0], moved[&0], "it was w2's all along");
    wait_counted(1, after[&1].1);
    second.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(second.ended().code(), Some(0), "{}", second.log());

    let mut by_scope: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for (scope, n, epoch) in rows() {
        by_scope.entry(scope).or_default().push((n, epoch));
    }
    assert_eq!(by_scope.len(), 2);
    for (scope, rows) in by_scope {
        assert!(rows.iter().map(|(n, _)| *n).eq(1..=rows.len() as u64), "{scope}: {rows:?}");
        assert!(
            rows.is_sorted_by_key(|(_, epoch)| *epoch),
            "{scope}: an old owner wrote after a new one: {rows:?}"
        );
    }
}

#[test]
fn a50_the_worker_in_shell_goes_on_where_its_predecessor_stopped_after_a_move_and_after_a_kill() {
    if !has_sqlite3() {
        return;
    }
    let cluster = Cluster::dev();
    let database = cluster.dir().join("counts.db");
    let tables = std::fs::read_to_string(root().join("examples/shell-worker/fence.sql")).unwrap();
    let file = Connection::open(&database).unwrap();
    file.pragma_update(None, "journal_mode", "WAL").unwrap();
    file.execute_batch(&tables).unwrap();
    file.execute_batch("CREATE TABLE counts (scope TEXT, n INTEGER, epoch INTEGER, PRIMARY KEY (scope, n))")
        .unwrap();
    let id = cluster_id(&cluster);
    file.execute("INSERT INTO ringfence_binding VALUES (1, 1, ?1)", [id.as_str()]).unwrap();
    set_environment(&[("DATABASE", database.to_str().unwrap())]);
    let script = root().join("examples/shell-worker/worker.sh");
    moved_and_killed(&cluster, &[], &["sh", script.to_str().unwrap()], || {
        let mut rows = file.prepare_cached("SELECT scope, n, epoch FROM counts ORDER BY scope, n").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    });
}

#[test]
fn the_tables_of_the_worker_in_shell_are_those_of_the_fence() {
    let schema = |file: &Connection| -> Vec<String> {
        let mut rows =
            file.prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let by_hand = Connection::open_in_memory().unwrap();
    let tables = std::fs::read_to_string(root().join("examples/shell-worker/fence.sql")).unwrap();
    by_hand.execute_batch(&tables).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ours = Connection::open(dir.path().join("ours.db")).unwrap();
    SqliteFence::install(&ours, &ClusterId::new("prod").unwrap()).unwrap();
    assert_eq!(schema(&by_hand), schema(&ours));
}

/// Python with psycopg, and a server; or a loud word that one of them is missing.
fn python_and_server() -> Option<server::Server> {
    let has = Command::new("/usr/bin/python3").args(["-c", "import psycopg"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "python3-psycopg is missing, and CI has to have it");
        use std::io::Write as _;
        let said = "SKIPPED: psycopg is not installed (Debian: python3-psycopg), so the worker in Python was not tried\n";
        let _ = std::io::stderr().write_all(said.as_bytes());
        return None;
    }
    server::Server::start()
}

#[test]
fn a50_the_worker_in_python_goes_on_where_its_predecessor_stopped_after_a_move_and_after_a_kill() {
    let Some(server) = python_and_server() else { return };
    let cluster = Cluster::dev();
    let psql = |sql: &str| {
        let output = server.psql("postgres").args(["-A", "-t", "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    psql(&std::fs::read_to_string(root().join("src/fence/postgres/migrations/0001_ringfence.sql")).unwrap());
    psql(&format!("SELECT ringfence.bind('{}')", cluster_id(&cluster)));
    psql("CREATE TABLE counts (scope text, n bigint, epoch bigint, PRIMARY KEY (scope, n))");
    let socket = server.socket().to_str().unwrap();
    set_environment(&[("PGHOST", socket), ("PGUSER", "postgres"), ("PGDATABASE", "postgres")]);
    let script = root().join("examples/python-worker/worker.py");
    let command = ["/usr/bin/python3", script.to_str().unwrap()];
    moved_and_killed(&cluster, &["--wait-ready"], &command, || {
        let rows = psql("SELECT scope, n, epoch FROM counts ORDER BY scope, n");
        rows.lines()
            .map(|line| {
                let mut cells = line.split('|');
                let mut cell = || cells.next().unwrap();
                (cell().to_owned(), cell().parse().unwrap(), cell().parse().unwrap())
            })
            .collect()
    });
}
