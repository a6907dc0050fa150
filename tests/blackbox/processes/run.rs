//! `ringfence run`: any program as a worker. The children are shell scripts that leave traces in a folder.

use crate::harness::{Cluster, Process, run, wait_for};
use crate::house::root;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringfence::FencingToken;
use ringfence::ids::ClusterId;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

const KEYSPACE: &str = "jobs";

/// A worker whose children run this script with `sh`. `$1` is the folder of the traces.
fn worker(cluster: &Cluster, id: &str, options: &[&str], script: &str) -> Process {
    let (endpoints, dir) = (cluster.endpoints.as_str(), cluster.dir().to_str().unwrap());
    let own = ["run", "--keyspace", KEYSPACE, "--id", id, "--endpoints", endpoints];
    Process::start(id, cluster.dir(), &[&own[..], options, &["--", "sh", "-c", script, "sh", dir]].concat())
}

/// What a script has left under this name, when it has.
pub(super) fn trace(cluster: &Cluster, name: &str) -> Option<String> {
    std::fs::read_to_string(cluster.dir().join(name)).ok()
}

pub(super) fn wait_trace(cluster: &Cluster, name: &str) -> String {
    wait_for(&format!("a script leaves {name}"), || trace(cluster, name))
}

pub(super) fn touch(cluster: &Cluster, name: &str) {
    std::fs::write(cluster.dir().join(name), "").unwrap();
}

/// The whole numbers of a trace.
pub(super) fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Whether a process lives. One that only waits to be collected does not.
pub(super) fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(super) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Who owns the one partition, under which epoch.
fn owner(cluster: &Cluster) -> (String, u64) {
    let (worker, epoch, _) = cluster.owners(KEYSPACE).remove(&0).unwrap();
    (worker, epoch)
}

fn wait_owner(cluster: &Cluster, worker: &str) -> u64 {
    wait_for(&format!("{worker} owns the partition and is ready"), || {
        let list = cluster.acknowledged(&["partition", "list", KEYSPACE]);
        (list[0]["worker"] == worker && list[0]["ready"] == true).then(|| list[0]["epoch"].as_u64().unwrap())
    })
}

fn create(cluster: &Cluster, ttl: &str, options: &[&str]) {
    let own = ["keyspace", "create", KEYSPACE, "--partitions", "1", "--ttl", ttl, "--balance", "false"];
    cluster.run(&[&own[..], options].concat()).done();
}

fn move_to(cluster: &Cluster, worker: &str) {
    cluster.run(&["partition", "move", "jobs/0", "--to", worker]).done();
}

#[test]
fn each_partition_has_a_child_that_is_told_what_it_owns_and_a_clean_leave_gives_everything_back() {
    let cluster = Cluster::dev();
    cluster.create_keyspace(KEYSPACE, 3, "5s");
    let script = r#"env | grep ^RINGFENCE_ > "$1/new-$RINGFENCE_PARTITION"
        echo $$ > "$1/pid-$RINGFENCE_PARTITION"
        mv "$1/new-$RINGFENCE_PARTITION" "$1/env-$RINGFENCE_PARTITION"
        echo "hello from $RINGFENCE_PARTITION"; exec sleep 1000"#;
    let mut worker = worker(&cluster, "w1", &["--prefix", "--label", "zone=a"], script);
    let (_, out) = worker.pipes();
    let mut said = BufReader::new(out).lines();
    let said: BTreeSet<String> = (0..3).map(|_| said.next().unwrap().unwrap()).collect();
    assert_eq!(said, (0..3).map(|p| format!("jobs/{p}: hello from {p}")).collect::<BTreeSet<_>>());
    for (partition, (_, epoch, _)) in cluster.all_ready(KEYSPACE) {
        let env = wait_trace(&cluster, &format!("env-{partition}"));
        let of = |name: &str| {
            let line = env.lines().find_map(|line| line.strip_prefix(&format!("RINGFENCE_{name}=")));
            line.unwrap_or_else(|| panic!("no {name}: {env}")).to_owned()
        };
        assert_eq!((of("KEYSPACE"), of("WORKER")), (KEYSPACE.to_owned(), "w1".to_owned()));
        assert_eq!((of("PARTITION"), of("EPOCH")), (partition.to_string(), epoch.to_string()));
        assert_eq!(of("ENDPOINTS"), cluster.endpoints);
        let token: FencingToken = of("TOKEN").parse().unwrap();
        assert_eq!(token.short().to_string(), format!("jobs/{partition}@{epoch}"));
        let status = cluster.run(&["cluster", "status"]).done();
        assert_eq!(Some(token.cluster().as_str()), status["cluster_id"].as_str());
    }
    let pids: Vec<i32> = (0..3).flat_map(|p| numbers(&wait_trace(&cluster, &format!("pid-{p}")))).collect();
    assert!(pids.iter().all(|pid| lives(*pid)));
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0), "{}", worker.log());
    assert!(!pids.iter().any(|pid| lives(*pid)), "it ended before its children");
    // Given back, not left to a lease.
    assert!(cluster.owners(KEYSPACE).values().all(|(worker, ..)| worker.is_empty()));
}

/// The leader of the group ends at once; another process of it flushes, until it is told that it may end.
const SLOW: &str = r#"echo $$ >> "$1/started-$RINGFENCE_WORKER"
    [ -e "$1/flushed" ] && touch "$1/after-the-flush-$RINGFENCE_WORKER"
    (trap "" TERM; until [ -e "$1/go" ]; do sleep 0.02; done; touch "$1/flushed") &
    trap 'touch "$1/asked"; exit 0' TERM
    while :; do sleep 0.02; done"#;

#[test]
fn t37_a_partition_goes_on_when_all_of_its_childs_process_group_has_ended_and_not_before() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &["--drain-deadline", "60s"]);
    let _first = worker(&cluster, "w1", &[], SLOW);
    let epoch = wait_owner(&cluster, "w1");
    let leader = numbers(&wait_trace(&cluster, "started-w1"))[0];
    let _second = worker(&cluster, "w2", &[], SLOW);
    wait_for("w2 has joined", || {
        let list = cluster.run(&["worker", "list"]).done();
        list.to_string().contains("\"w2\"").then_some(())
    });
    move_to(&cluster, "w2");
    wait_trace(&cluster, "asked");
    wait_for("the leader of the group has ended", || (!lives(leader)).then_some(()));
    assert_eq!(owner(&cluster), ("w1".to_owned(), epoch), "a process of the old owner lives");
    assert_eq!(trace(&cluster, "started-w2"), None);
    touch(&cluster, "go");
    assert!(wait_owner(&cluster, "w2") > epoch);
    wait_trace(&cluster, "after-the-flush-w2");
}

#[test]
fn t37_a_child_that_ignores_sigterm_is_dead_before_the_next_owner_starts() {
    let cluster = Cluster::dev();
    create(&cluster, "3s", &["--drain-deadline", "1s"]);
    // All append to one file, so its order is that of the events.
    let script = r#"trap "" TERM
        while :; do echo "$RINGFENCE_EPOCH" >> "$1/beats"; sleep 0.01; done"#;
    let first = worker(&cluster, "w1", &[], script);
    let epoch = wait_owner(&cluster, "w1");
    let _second = worker(&cluster, "w2", &[], script);
    wait_for("w2 has joined", || {
        cluster.run(&["worker", "list"]).done().to_string().contains("\"w2\"").then_some(())
    });
    move_to(&cluster, "w2");
    let next = wait_owner(&cluster, "w2");
    let beats = wait_for("the next owner beats", || {
        let beats = numbers(&wait_trace(&cluster, "beats"));
        (beats.iter().filter(|beat| **beat == next as i32).count() > 20).then_some(beats)
    });
    assert!(beats.is_sorted() && beats[0] == epoch as i32, "{epoch} beat after {next} had begun");
    assert!(first.log().contains("ended by SIGKILL"), "{}", first.log());
}

#[test]
fn when_ringfence_run_is_killed_nothing_of_its_children_lives_on() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &[]);
    let script = r#"trap "" TERM; sleep 1000 & echo $$ $! > "$1/new"; mv "$1/new" "$1/pids"; wait"#;
    let mut worker = worker(&cluster, "w1", &[], script);
    let pids = numbers(&wait_trace(&cluster, "pids"));
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(*pid)));
    worker.kill();
    wait_for("the child and its own child have gone", || (!pids.iter().any(|pid| lives(*pid))).then_some(()));
}

#[test]
fn t37_a_ringfence_run_that_stands_still_keeps_no_child_alive_past_its_lease() {
    let cluster = Cluster::dev();
    create(&cluster, "2s", &[]);
    let worker = worker(&cluster, "w1", &[], r#"echo $$ > "$1/new"; mv "$1/new" "$1/pid"; exec sleep 1000"#);
    wait_owner(&cluster, "w1");
    let pid = numbers(&wait_trace(&cluster, "pid"))[0];
    worker.stop();
    wait_for("the minder has killed the child", || (!lives(pid)).then_some(()));
    assert!(worker.is_stopped());
    worker.signal(Signal::SIGCONT);
    wait_for("another life under another epoch", || {
        let now = trace(&cluster, "pid").map(|text| numbers(&text))?;
        now.first().is_some_and(|now| *now != pid && lives(*now)).then_some(())
    });
}

/// Everything of the first worker but the child itself stands still: `ringfence run` and the minder. The child goes on past the lease,
/// writes what it stamped under its old epoch, and is killed when they wake. Says whether the write was taken.
fn written_past_the_lease(cluster: &Cluster, fenced: bool) -> bool {
    create(cluster, "2s", &[]);
    let database = cluster.dir().join("data.db");
    let status = cluster.run(&["cluster", "status"]).done();
    let cluster_id = ClusterId::new(status["cluster_id"].as_str().unwrap()).unwrap();
    let file = rusqlite::Connection::open(&database).unwrap();
    file.execute_batch("CREATE TABLE journal (n INTEGER PRIMARY KEY, epoch INTEGER, what TEXT)").unwrap();
    ringfence::fence::sqlite::SqliteFence::install(&file, &cluster_id).unwrap();

    // The first waits for its sign before it writes; the second writes at once.
    let fence = root().join("examples/shell-worker");
    let script = format!(
        r#". "{}/fence.sh"; DATABASE="{}"
        raise || exit 1
        echo $$ $PPID > "$1/new-$RINGFENCE_WORKER"; mv "$1/new-$RINGFENCE_WORKER" "$1/pids-$RINGFENCE_WORKER"
        [ "$RINGFENCE_WORKER" = w2 ] || until [ -e "$1/write" ]; do sleep 0.02; done
        if {}; then echo taken > "$1/said-$RINGFENCE_WORKER"; else echo refused > "$1/said-$RINGFENCE_WORKER"; fi
        exec sleep 1000"#,
        fence.display(),
        database.display(),
        if fenced {
            r#"write "INSERT INTO journal (epoch, what) VALUES ($RINGFENCE_EPOCH, 'order');" "#
        } else {
            r#"sql "INSERT INTO journal (epoch, what) VALUES ($RINGFENCE_EPOCH, 'order');" "#
        }
    );
    let first = worker(cluster, "w1", &[], &script);
    let old = wait_owner(cluster, "w1");
    let pids = numbers(&wait_trace(cluster, "pids-w1"));
    let (child, minder) = (pids[0], pids[1]);
    let _second = worker(cluster, "w2", &[], &script);
    first.stop();
    signal(minder, Signal::SIGSTOP);
    let new = wait_owner(cluster, "w2");
    assert!(new > old);
    assert_eq!(wait_trace(cluster, "said-w2").trim(), "taken");
    assert!(lives(child) && first.is_stopped(), "the child was to be there still");
    touch(cluster, "write");
    let said = wait_for("the late write is answered", || {
        trace(cluster, "said-w1").filter(|said| said.ends_with('\n'))
    });
    assert!(lives(child));
    first.signal(Signal::SIGCONT);
    wait_for("the child is killed", || (!lives(child)).then_some(()));
    let late: u64 = file
        .query_row("SELECT count(*) FROM journal WHERE epoch = ?1", [old as i64], |row| row.get(0))
        .unwrap();
    assert_eq!(late > 0, said.trim() == "taken", "the script and the file disagree");
    late > 0
}

/// The shell's client of SQLite, or a loud word that there is none.
pub(super) fn has_sqlite3() -> bool {
    let found = std::process::Command::new("sqlite3").arg("-version").output().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "sqlite3 is missing, and CI has to have it");
        use std::io::Write as _;
        let said =
            "SKIPPED: sqlite3 is not installed (Debian: sqlite3), so workers in shell were not tried\n";
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
    found
}

#[test]
fn b30_t37_a_child_that_lives_past_the_lease_is_refused_by_the_fence_and_killed_on_waking() {
    if has_sqlite3() {
        assert!(!written_past_the_lease(&Cluster::dev(), true));
    }
}

#[test]
fn b30_without_the_fence_the_late_write_of_such_a_child_is_taken() {
    if has_sqlite3() {
        assert!(written_past_the_lease(&Cluster::dev(), false), "the pause does not bite");
    }
}

#[test]
fn c23_a_child_that_dies_is_started_again_and_a_poisoned_partition_goes_to_another_worker() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &[]);
    let first =
        worker(&cluster, "w1", &["--max-restarts", "1"], r#"echo "$RINGFENCE_EPOCH" >> "$1/lives"; exit 3"#);
    let failed = wait_for("the partition is released as failed", || {
        let list = cluster.acknowledged(&["partition", "list", KEYSPACE]);
        (list[0]["failures"].as_u64() > Some(0)).then(|| list[0].clone())
    });
    assert!(failed["last_error"].as_str().unwrap().contains("exit code 3"), "{failed}");
    let lives = numbers(&wait_trace(&cluster, "lives"));
    assert_eq!(
        lives.iter().filter(|epoch| **epoch == lives[0]).count(),
        2,
        "{lives:?}: one restart, the same epoch"
    );
    let _second = worker(&cluster, "w2", &[], "exec sleep 1000");
    wait_owner(&cluster, "w2");
    assert!(first.log().contains("ended with exit code 3"), "{}", first.log());
}

#[test]
fn a_second_signal_kills_children_that_do_not_end_and_gives_their_partitions_back() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &[]);
    let script = r#"trap 'touch "$1/asked"' TERM; echo $$ > "$1/new"; mv "$1/new" "$1/pid"
        while :; do sleep 0.02; done"#;
    let mut worker = worker(&cluster, "w1", &["--stop-within", "10m"], script);
    wait_owner(&cluster, "w1");
    let pid = numbers(&wait_trace(&cluster, "pid"))[0];
    worker.signal(Signal::SIGTERM);
    wait_trace(&cluster, "asked");
    assert!(lives(pid) && worker.has_ended().is_none());
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.ended().code(), Some(1), "{}", worker.log());
    assert!(!lives(pid));
    assert_eq!(owner(&cluster).0, "", "{}", worker.log());
}

#[test]
fn with_wait_ready_a_partition_is_ready_when_the_child_says_so() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &[]);
    let script = r#"touch "$1/loading"; until [ -e "$1/loaded" ]; do sleep 0.02; done
        echo ready >&"$RINGFENCE_READY_FD"; exec sleep 1000"#;
    let _worker = worker(&cluster, "w1", &["--wait-ready"], script);
    wait_trace(&cluster, "loading");
    let list = cluster.acknowledged(&["partition", "list", KEYSPACE]);
    assert_eq!((&list[0]["worker"], &list[0]["ready"]), (&"w1".into(), &false.into()));
    touch(&cluster, "loaded");
    wait_owner(&cluster, "w1");
}

#[test]
fn t45_one_child_for_all_is_told_in_lines_and_answers_in_lines() {
    let cluster = Cluster::dev();
    create(&cluster, "5s", &["--drain-deadline", "60s"]);
    // It answers about an older epoch first, each time.
    let script = r#"echo "hello"
        while read -r line; do
            echo "$line" >> "$1/told"
            partition=${line#*\"partition\":}; partition=${partition%%,*}
            epoch=${line#*\"epoch\":}; epoch=${epoch%%[,\}]*}
            case $line in
            *granted*) answer=ready ;;
            *revoked*) answer=released; echo "{\"event\":\"released\",\"partition\":$partition,\"epoch\":$((epoch - 1))}"
                until [ -e "$1/go" ]; do sleep 0.02; done ;;
            *) continue ;;
            esac
            echo "{\"event\":\"$answer\",\"partition\":$partition,\"epoch\":$epoch}"
        done"#;
    let mut first = worker(&cluster, "w1", &["--one-child"], script);
    let (_, out) = first.pipes();
    let epoch = wait_owner(&cluster, "w1");
    let _second = worker(&cluster, "w2", &[], "exec sleep 1000");
    wait_for("w2 has joined", || {
        cluster.run(&["worker", "list"]).done().to_string().contains("\"w2\"").then_some(())
    });
    move_to(&cluster, "w2");
    let told = wait_for("it is told that the partition is wanted back", || {
        trace(&cluster, "told").filter(|told| told.contains("revoked") && told.ends_with('\n'))
    });
    let told: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["event"], &told[0]["epoch"]), (&"granted".into(), &epoch.into()));
    let token: FencingToken = told[0]["token"].as_str().unwrap().parse().unwrap();
    assert_eq!(token.short().to_string(), format!("jobs/0@{epoch}"));
    assert!(told[1]["event"] == "revoked" && told[1]["deadline_ms"].as_u64() > Some(0), "{told:?}");
    assert_eq!(owner(&cluster), ("w1".to_owned(), epoch), "it went on an answer of another epoch");
    touch(&cluster, "go");
    assert!(wait_owner(&cluster, "w2") > epoch);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().code(), Some(0), "{}", first.log());
    let said: Vec<String> = BufReader::new(out).lines().map(Result::unwrap).collect();
    assert_eq!(said, ["hello"], "its answers are for us, and the rest is passed on");
}

#[test]
fn what_cannot_be_run_is_told_at_once_as_shells_tell_it() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    for (program, code, said) in [
        ("no-such-program-anywhere", 127, "there is no such program"),
        ("/nowhere/at/all", 127, "there is no such program"),
        (plain.to_str().unwrap(), 126, "cannot be executed"),
    ] {
        // Nobody listens there: it is told before anybody is asked.
        let ran = run("http://127.0.0.1:1", &["run", "--keyspace", KEYSPACE, "--id", "w1", "--", program]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains(said), "{ran:?}");
    }
    let ran = run(
        "http://127.0.0.1:1",
        &["run", "--keyspace", KEYSPACE, "--id", "w1", "--join-within", "1s", "--", "true"],
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(run("", &["run", "--keyspace", KEYSPACE, "--id", "w1"]).code, 2);
}
