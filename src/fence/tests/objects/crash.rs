//! A process that is killed in the middle of its commits to a folder, again and again.

use crate::moto::wait;
use crate::subject::{contents, options, put, token};
use object_store::local::LocalFileSystem;
use ringfence_fence::object::ObjectFence;
use ringfence_fence::{FenceErrorKind, FencingToken};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "RINGFENCE_TEST_OBJECTS";
const EPOCH: &str = "RINGFENCE_TEST_EPOCH";

/// How often it is killed.
const LIVES: u64 = 12;

fn open(dir: &Path) -> ObjectFence {
    let store = LocalFileSystem::new_with_prefix(dir).unwrap().with_fsync(true);
    wait(options().by_creating().trusting_the_store().install(Arc::new(store), "")).unwrap()
}

fn owner(epoch: u64) -> FencingToken {
    token(&format!("prod/orders/17@{epoch}"))
}

/// Not a test of its own: what the process does that is killed. It says each commit that was answered.
#[test]
fn commit_until_killed() {
    let (Ok(dir), Ok(epoch)) = (std::env::var(DIR), std::env::var(EPOCH)) else { return };
    let (fence, own) = (open(&PathBuf::from(dir)), owner(epoch.parse().unwrap()));
    let mut state = wait(fence.raise(&own)).unwrap();
    let mut out = std::io::stdout();
    for number in state.keys().count().saturating_sub(1).. {
        // Two keys, of which neither may be there without the other; the second is one that is replaced.
        let write = put(&format!("{number:06}"), &number.to_string()).put("last", number.to_string());
        state = wait(fence.write(from_ref(&own), write.on(&state))).unwrap();
        if number % 10 == 9 {
            wait(fence.sweep(&own, Duration::ZERO)).unwrap();
            state = wait(fence.raise(&own)).unwrap();
        }
        writeln!(out, "done: {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn f011_t09_a_writer_that_is_killed_in_the_middle_of_its_commits_has_lost_none_and_left_none_half() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    for epoch in 1..=LIVES {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::commit_until_killed", "--nocapture"])
            .envs([(DIR, dir.path().to_str().unwrap()), (EPOCH, &epoch.to_string())])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut done = lines.filter_map(|line| line.split_once("done: ")?.1.parse::<usize>().ok());
        // It goes on while this is read, so where it is then is up to the machine.
        let mut answered = done.by_ref().take(rng.usize(1..30)).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        answered = done.last().unwrap_or(answered);

        let (fence, own, next) = (open(dir.path()), owner(epoch), owner(epoch + 1));
        assert_eq!(wait(fence.highest(own.scope())).unwrap(), Some(own.epoch()));
        let there = contents(&fence, own.scope()).unwrap();
        // All that was answered, and of what was not, one at most; each with all that belongs to it.
        let last: usize = there["last"].parse().unwrap();
        assert!(last == answered || last == answered + 1, "{last} is the last, and {answered} was answered");
        let mut expected: Vec<String> = (0..=last).map(|number| format!("{number:06}")).collect();
        expected.push("last".into());
        assert!(there.keys().eq(&expected), "{:?}", there.keys());
        assert!((0..=last).all(|number| there[&format!("{number:06}")] == number.to_string()));
        // The next owner raises, and the one that died is refused, should it come back.
        wait(fence.raise(&next)).unwrap();
        let late = wait(fence.write(from_ref(&own), put("late", ""))).unwrap_err();
        assert_eq!(late.kind(), FenceErrorKind::Fenced);
        // Whatever is left half written is in nobody's way.
        wait(fence.sweep(&next, Duration::ZERO)).unwrap();
        assert_eq!(wait(fence.orphans(own.scope())).unwrap(), []);
    }
}
