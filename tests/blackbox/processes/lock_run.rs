//! `ringfence lock run`: one command under a lock. The commands are shell scripts that leave traces in a folder.

use super::run::{has_sqlite3, lives, numbers, signal, touch, trace, wait_trace};
use crate::harness::{Cluster, Process, run, wait_for};
use crate::house::root;
use nix::sys::signal::Signal;
use ringfence::FencingToken;
use ringfence::ids::ClusterId;

const LOCK: &str = "nightly";

/// Runs a script with `sh` under the lock. `$1` is the folder of the traces.
fn locked(cluster: &Cluster, name: &str, options: &[&str], script: &str) -> Process {
    let (endpoints, dir) = (cluster.endpoints.as_str(), cluster.dir().to_str().unwrap());
    let own = ["lock", "run", LOCK, "--endpoints", endpoints, "--id", name];
    Process::start(name, cluster.dir(), &[&own[..], options, &["--", "sh", "-c", script, "sh", dir]].concat())
}

/// Who holds the lock now.
fn holder(cluster: &Cluster) -> Option<(String, u64)> {
    let shown = cluster.acknowledged(&["lock", "show", LOCK]);
    let holder = shown["holders"].as_array()?.iter().find(|holder| holder["cooling"].is_null())?;
    Some((holder["worker"].as_str()?.to_owned(), holder["epoch"].as_u64()?))
}

#[test]
fn two_runs_exclude_each_other_and_the_command_is_told_its_token() {
    let cluster = Cluster::dev();
    let script = r#"env | grep ^RINGFENCE_ > "$1/new"; mv "$1/new" "$1/env"
        until [ -e "$1/go" ]; do sleep 0.02; done; exit 7"#;
    let mut first = locked(&cluster, "a", &["--fenced"], script);
    let env = wait_trace(&cluster, "env");
    let of = |name: &str| {
        let line = env.lines().find_map(|line| line.strip_prefix(&format!("RINGFENCE_{name}=")));
        line.unwrap_or_else(|| panic!("no {name}: {env}")).to_owned()
    };
    let (worker, epoch) = holder(&cluster).unwrap();
    assert_eq!((worker.as_str(), of("LOCK").as_str(), of("EPOCH")), ("a", LOCK, epoch.to_string()));
    let token: FencingToken = of("TOKEN").parse().unwrap();
    assert_eq!(token.short().to_string(), format!("@locks/{LOCK}@{epoch}"));
    let busy = cluster.run(&["lock", "run", LOCK, "--", "true"]);
    assert_eq!(busy.code, 75, "{}", busy.err);
    assert!(busy.err.contains("a under epoch"), "{}", busy.err);
    assert_eq!(cluster.run(&["lock", "run", LOCK, "--wait", "200ms", "--", "true"]).code, 75);
    let mut second = locked(&cluster, "b", &["--wait", "1m"], r#"echo "$RINGFENCE_EPOCH" > "$1/second""#);
    wait_for("it waits", || (cluster.acknowledged(&["lock", "show", LOCK])["waiting"] == 1).then_some(()));
    assert_eq!(trace(&cluster, "second"), None);
    touch(&cluster, "go");
    assert_eq!(first.ended().code(), Some(7), "{}", first.log());
    assert_eq!(second.ended().code(), Some(0), "{}", second.log());
    assert!(numbers(&wait_trace(&cluster, "second"))[0] > epoch as i32);
    assert_eq!(holder(&cluster), None);
}

#[test]
fn f105_its_exit_code_is_the_commands_and_otherwise_says_why_there_is_none() {
    let cluster = Cluster::dev();
    let code = |args: &[&str]| cluster.run(&[&["lock", "run", LOCK], args].concat()).code;
    assert_eq!(code(&["--", "sh", "-c", "exit 0"]), 0);
    assert_eq!(code(&["--", "sh", "-c", "exit 42"]), 42);
    assert_eq!(code(&["--", "sh", "-c", "kill -TERM $$"]), 143);
    assert_eq!(code(&["--", "no-such-program-here"]), 127);
    assert_eq!(code(&["--", "/"]), 126);
    assert_eq!(code(&[]), 2);
    assert_eq!(code(&["--fenced", "--efficiency", "--", "true"]), 2);
    assert_eq!(code(&["--fail-open", "--", "true"]), 2);
    assert_eq!(code(&["--lock-delay", "61s", "--", "true"]), 1);
    let nobody = |args: &[&str]| {
        run("http://127.0.0.1:9", &[&["lock", "run", LOCK, "--timeout", "300ms"], args].concat()).code
    };
    assert_eq!(nobody(&["--", "true"]), 1);
    assert_eq!(nobody(&["--efficiency", "--", "sh", "-c", "exit 9"]), 1);
    assert_eq!(nobody(&["--efficiency", "--fail-open", "--", "sh", "-c", "exit 9"]), 9);
    let bare = r#"[ -z "$RINGFENCE_TOKEN$RINGFENCE_EPOCH" ] && [ "$RINGFENCE_LOCK" = nightly ]"#;
    assert_eq!(code(&["--efficiency", "--", "sh", "-c", bare]), 0);
    assert_eq!(holder(&cluster), None);
}

#[test]
fn a_signal_goes_to_the_command_and_the_lock_is_given_back_when_it_has_ended() {
    let cluster = Cluster::dev();
    let script = r#"trap 'touch "$1/asked"; until [ -e "$1/go" ]; do sleep 0.02; done; exit 3' TERM
        touch "$1/ready"; while :; do sleep 0.02; done"#;
    let mut first = locked(&cluster, "a", &[], script);
    wait_trace(&cluster, "ready");
    first.signal(Signal::SIGINT);
    wait_trace(&cluster, "asked");
    assert!(holder(&cluster).is_some_and(|(worker, _)| worker == "a"), "it is held while the command ends");
    touch(&cluster, "go");
    assert_eq!(first.ended().code(), Some(3), "{}", first.log());
    assert_eq!(holder(&cluster), None, "given back, not left to a lease");
}

#[test]
fn t37_when_it_is_killed_the_command_dies_and_the_next_one_gets_the_lock() {
    let cluster = Cluster::dev();
    let script = r#"trap "" TERM; sleep 1000 & echo $$ $! > "$1/new"; mv "$1/new" "$1/pids"; wait"#;
    let mut first = locked(&cluster, "a", &["--ttl", "2s"], script);
    let pids = numbers(&wait_trace(&cluster, "pids"));
    let mut second = locked(&cluster, "b", &["--wait", "1m"], "exit 5");
    first.kill();
    wait_for("the command and its own have gone", || (!pids.iter().any(|pid| lives(*pid))).then_some(()));
    assert_eq!(second.ended().code(), Some(5), "{}", second.log());
}

#[test]
fn f016_a_run_that_stands_still_past_its_lease_keeps_no_command_alive_and_says_that_it_lost_the_lock() {
    let cluster = Cluster::dev();
    let script = r#"trap "" TERM; echo $$ > "$1/new"; mv "$1/new" "$1/pid"; while :; do sleep 0.02; done"#;
    let mut first = locked(&cluster, "a", &["--ttl", "2s"], script);
    let pid = numbers(&wait_trace(&cluster, "pid"))[0];
    first.stop();
    let mut second = locked(&cluster, "b", &["--wait", "1m"], "exit 5");
    assert_eq!(second.ended().code(), Some(5), "{}", second.log());
    wait_for("its minder has killed the command", || (!lives(pid)).then_some(()));
    assert!(first.is_stopped());
    first.signal(Signal::SIGCONT);
    assert_eq!(first.ended().code(), Some(76), "{}", first.log());
}

/// Everything of the first run but the command itself stands still. The command goes on past the lease, writes what it stamped under its
/// old epoch, and is killed when they wake. Says whether the write was taken.
fn written_past_the_lease(cluster: &Cluster, fenced: bool) -> bool {
    let database = cluster.dir().join("data.db");
    let status = cluster.run(&["cluster", "status"]).done();
    let cluster_id = ClusterId::new(status["cluster_id"].as_str().unwrap()).unwrap();
    let file = rusqlite::Connection::open(&database).unwrap();
    file.execute_batch("CREATE TABLE journal (n INTEGER PRIMARY KEY, epoch INTEGER, what TEXT)").unwrap();
    ringfence::fence::sqlite::SqliteFence::install(&file, &cluster_id).unwrap();
    let script = |who: &str| {
        format!(
            r#". "{}/fence.sh"; DATABASE="{}"
            raise || exit 1
            echo $$ $PPID > "$1/new-{who}"; mv "$1/new-{who}" "$1/pids-{who}"
            [ {who} = b ] || until [ -e "$1/write" ]; do sleep 0.02; done
            if {}; then echo taken > "$1/said-{who}"; else echo refused > "$1/said-{who}"; fi
            exec sleep 1000"#,
            root().join("examples/shell-worker").display(),
            database.display(),
            if fenced {
                r#"write "INSERT INTO journal (epoch, what) VALUES ($RINGFENCE_EPOCH, 'rollup');" "#
            } else {
                r#"sql "INSERT INTO journal (epoch, what) VALUES ($RINGFENCE_EPOCH, 'rollup');" "#
            }
        )
    };
    let mut first = locked(cluster, "a", &["--ttl", "2s"], &script("a"));
    let pids = numbers(&wait_trace(cluster, "pids-a"));
    let (child, minder) = (pids[0], pids[1]);
    let (_, old) = holder(cluster).unwrap();
    let _second = locked(cluster, "b", &["--wait", "1m"], &script("b"));
    first.stop();
    signal(minder, Signal::SIGSTOP);
    assert_eq!(wait_trace(cluster, "said-b").trim(), "taken");
    assert!(holder(cluster).is_some_and(|(worker, new)| worker == "b" && new > old));
    assert!(lives(child) && first.is_stopped(), "the command was to be there still");
    touch(cluster, "write");
    let said = wait_for("the late write is answered", || {
        trace(cluster, "said-a").filter(|said| said.ends_with('\n'))
    });
    first.signal(Signal::SIGCONT);
    wait_for("the command is killed", || (!lives(child)).then_some(()));
    assert_eq!(first.ended().code(), Some(76), "{}", first.log());
    let late: u64 = file
        .query_row("SELECT count(*) FROM journal WHERE epoch = ?1", [old as i64], |row| row.get(0))
        .unwrap();
    assert_eq!(late > 0, said.trim() == "taken", "the script and the file disagree");
    late > 0
}

#[test]
fn b30_a_command_that_lives_past_the_lease_is_refused_by_the_fence_and_killed_on_waking() {
    if has_sqlite3() {
        assert!(!written_past_the_lease(&Cluster::dev(), true));
    }
}

#[test]
fn b30_without_the_fence_the_late_write_of_such_a_command_is_taken() {
    if has_sqlite3() {
        assert!(written_past_the_lease(&Cluster::dev(), false), "the pause does not bite");
    }
}
