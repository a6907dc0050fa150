//! The seeded world, from the outside: the same seed is the same world, and a store without a fence is found out. And the
//! runner: what it leaves behind, and what it does where nobody reads.

#![allow(clippy::unwrap_used)]

use ringfence_sim::seeds::Report;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A world takes no longer, in a debug build on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(600);

fn sim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringfence-sim"))
}

fn world(seed: u64, more: &[&str]) -> Report {
    let output =
        sim().args(["world", "-o", "json", "--seed", &seed.to_string()]).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(output.status.success(), report.held, "the exit code says whether everything held");
    report
}

#[test]
fn the_same_seed_is_the_same_world_and_another_is_another() {
    let first = world(4, &[]);
    assert!(first.held, "{first}");
    let again = world(4, &[]);
    assert_eq!((first.history, first.events), (again.history, again.events));
    let beginning = |seed| world(seed, &["--until", "9000"]);
    assert_ne!(beginning(3).history, beginning(4).history);
    // One of each other kind; the large ones take long.
    for seed in [5, 7, 8, 10, 11, 12, 14, 15] {
        let (first, again) = (beginning(seed), beginning(seed));
        assert_eq!((first.history, first.events), (again.history, again.events), "seed {seed}");
    }
}

/// The negative control: the same world, with a store that believes whoever comes.
#[test]
fn g1_t57_without_the_fence_a_stale_write_is_found() {
    let found = world(4, &["--no-fence"]);
    assert!(found.violations.iter().any(|text| text.starts_with("StaleAccepted")), "{found}");
}

/// A world that is cut off in the middle of its first grants, a moment after the nodes' logs were read.
#[test]
fn a_world_that_is_cut_off_is_asked_for_nothing_that_comes_after() {
    for at in ["1500", "1515", "1530"] {
        let cut = world(13, &["--until", at]);
        assert!(cut.held && cut.tenures > 0, "{cut}");
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// State and parent of a process, if there is one.
fn process(pid: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may itself contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn child_of(parent: i32) -> Option<i32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid| process(*pid).is_some_and(|(_, of)| of == parent))
}

#[test]
fn a_runner_that_is_killed_keeps_what_it_did_and_leaves_no_world_behind() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("seeds.json");
    let mut runner = sim()
        .args(["--seeds", "4..1000", "--jobs", "1", "--state"])
        .arg(&state)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(runner.id()).unwrap();
    until("the first seed is kept", || {
        std::fs::read_to_string(&state).ok().filter(|kept| kept.contains("[4,5]"))
    });
    // A world that stands still would be there for ever.
    let world = until("a world stands still", || {
        let world = child_of(pid)?;
        kill_process(Pid::from_raw(world)?, Signal::STOP).ok()?;
        process(world).filter(|(state, of)| state == "T" && *of == pid).map(|_| world)
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
    until("the world is gone", || process(world).is_none_or(|(state, _)| state == "Z").then_some(()));
}

fn told_to(out: impl Into<Stdio>) -> Output {
    // A brief one.
    let mut command = sim();
    command.args(["model", "--world", "progress"]).stdout(out).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_reader_who_has_gone_away_is_no_error_and_a_full_device_is_one() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unread = told_to(writer);
    assert_eq!((unread.status.code(), unread.stderr.as_slice()), (Some(0), &b""[..]));
    let full = told_to(File::options().write(true).open("/dev/full").unwrap());
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: standard output cannot be written: No space left"), "{said}");
}

#[test]
fn a_kept_history_is_judged_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("round-1.jsonl");
    let judged = |lines: &str| {
        std::fs::write(&file, lines).unwrap();
        let output = sim().arg("judge").arg(&file).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code(), said.concat())
    };
    let granted = |session: u64| {
        format!(
            r#"{{"at":{session},"by":"operator","what":{{"granted":{{"scope":"orders/0","epoch":5,"session":{session},"worker":"w"}}}}}}"#
        )
    };
    let (code, said) = judged(&format!("{}\n{}\n", granted(1), granted(2)));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("EpochsGrow: ") && said.contains("GrantedOnce: "), "{said}");
    // It is the history of a whole round, so one in which nothing happened is none that held.
    assert!(said.contains("Inert: the keyspace orders was never created"), "{said}");
    let (code, said) = judged("{}\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("line 1 is not an event of a history"), "{said}");
}

#[test]
fn a_model_that_is_cut_off_claims_nothing() {
    let output = sim().args(["model", "--world", "drain", "--seconds", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("drain: CUT OFF, proves nothing") && !said.contains("holds"), "{said}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cut off after 0 s"), "{output:?}");
}

/// What is left of a seed divided by 16 decides what a world is about; see docs/simulator.md.
fn held(seed: u64) -> Report {
    let report = world(seed, &[]);
    assert!(report.held, "{report}");
    report
}

#[test]
fn f067_members_come_and_go_while_logs_are_compacted_all_the_time() {
    held(25);
}

#[test]
fn f060_progress_comes_back_although_the_leader_s_disk_stands_still() {
    held(26);
}

#[test]
fn g1_f012_f039_a_fence_holds_although_a_node_forgets() {
    let told = sim().args(["world", "--seed", "27", "--transcript"]).output().unwrap();
    let told = (told.status.success(), String::from_utf8_lossy(&told.stdout).into_owned());
    // The leader lives, so it is noticed there.
    let noticed = "which this node had acknowledged to the leader of this term";
    assert!(told.0 && told.1.contains("FAULT OldCopy") && told.1.contains(noticed));
}

#[test]
fn g3_a_lease_ends_in_time_with_clocks_at_the_bound_and_late_answers() {
    held(12);
}

#[test]
fn f054_f070_two_thousand_partitions_come_back_at_once_and_none_is_lost_to_a_restart() {
    held(13);
}

#[test]
fn t48_a_cluster_that_began_on_the_oldest_format_goes_on_under_faults() {
    held(14);
}

#[test]
fn operators_decide_all_the_time_and_what_they_decided_is_so_in_the_end() {
    assert!(held(6).moves > 0, "and something moved");
}

#[test]
fn workers_are_restarted_one_after_the_other_and_what_waits_for_them_goes_to_nobody_else() {
    held(15);
    held(31);
}

/// Some who wrote a key before it went to another partition are late, and know of no split.
#[test]
fn g1_p09_partitions_are_split_while_leaders_and_owners_die_and_sleep() {
    let report = held(7);
    assert!(report.splits > 0 && report.refused > 0, "{report}");
}

/// Membership stays as it is; leaders change, nodes restart, workers are suspected and heard of again. These are the first
/// minutes of the world of ten, which takes a debug build too long; a run of many seeds has all of it.
#[test]
fn f092_minutes_of_steady_membership_move_nothing() {
    let report = world(255, &["--until", "200000"]);
    assert!(report.held && report.steady_ms >= 170_000 && report.elections > 1, "{report}");
    assert_eq!(report.moved_when_steady, 0, "{report}");
}
