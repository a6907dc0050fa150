//! Real processes that are stopped, killed, and out of room.

use crate::subject::{Place, cluster, texts, token};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use ringfence_fence::FenceErrorKind;
use ringfence_fence::log::{FencedLog, SegmentReader, SegmentWriter};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice::from_ref;
use std::time::Duration;

const PLACE: &str = "RINGFENCE_TEST_LOG";
const ROLE: &str = "RINGFENCE_TEST_ROLE";

/// Starts this test's own program as another process, which plays a role in this directory.
fn start(role: &str, dir: &Path) -> Child {
    command(role, dir).spawn().unwrap()
}

fn command(role: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "processes::play_a_role", "--nocapture"])
        .env(PLACE, dir)
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Waits until it has stopped itself.
fn until_stopped(child: &Child) {
    let pid = Pid::from_raw(child.id().cast_signed());
    let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
}

/// What it says, line by line; a test's runner says other things too.
fn said(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| Some(line.split_once("said: ")?.1.to_string())).collect()
}

fn say(what: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "said: {what}").unwrap();
    out.flush().unwrap();
}

/// Not a test of its own: what the other process does.
#[test]
fn play_a_role() {
    let (Ok(dir), Ok(role)) = (std::env::var(PLACE), std::env::var(ROLE)) else { return };
    let dir = PathBuf::from(dir);
    let own = token("prod/orders/17@33");
    let open = || FencedLog::open(dir.join("log"), &cluster("prod")).unwrap();
    match role.as_str() {
        "pauses before its write" => {
            let mut log = open();
            log.raise(&own).unwrap();
            log.check(from_ref(&own)).unwrap();
            raise(Signal::SIGSTOP).unwrap();
            say(format!("{:?}", log.append(from_ref(&own), b"33, late").map_err(|error| error.kind())));
            // And as it would without the fence.
            File::options().append(true).open(dir.join("plain")).unwrap().write_all(b"33, late\n").unwrap();
        }
        "pauses in the middle" => {
            let mut log = open();
            log.raise(&own).unwrap();
            let appended = log.append_with(from_ref(&own), || {
                raise(Signal::SIGSTOP).unwrap();
                vec![b"33".to_vec()]
            });
            say(appended.is_ok());
        }
        "pauses before its segment" => {
            let mut writer = SegmentWriter::raise(dir.join("segments"), &own).unwrap();
            writer.append(b"33").unwrap();
            raise(Signal::SIGSTOP).unwrap();
            say(format!("{:?}", writer.append(b"33, late").map_err(|error| error.kind())));
        }
        "appends for ever" => {
            let mut log = open();
            log.raise(&own).unwrap();
            let mut number = texts(&mut log).len();
            loop {
                log.append(from_ref(&own), number.to_string().as_bytes()).unwrap();
                say(number);
                number += 1;
            }
        }
        "fills the disk" => {
            let mut log = open();
            log.raise(&own).unwrap();
            for number in 0.. {
                let entry = format!("{number:0>1000}");
                match log.append(from_ref(&own), entry.as_bytes()) {
                    Ok(_) => say(number),
                    Err(error) => {
                        say(format!("{:?}", error.kind()));
                        // Nothing of it is in the way of one that fits.
                        say(format!("{:?}", log.append(from_ref(&own), b"small").map(drop)));
                        return;
                    }
                }
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn b30_c03_c08_t51_a_process_stopped_between_its_check_and_its_write_is_refused_and_writes_without_the_fence()
{
    let place = Place::new();
    let plain = place.dir().join("plain");
    File::create(&plain).unwrap();
    let mut old = start("pauses before its write", place.dir());
    until_stopped(&old);
    let (mut log, new) = (place.open(), token("prod/orders/17@34"));
    log.raise(&new).unwrap();
    log.append(from_ref(&new), b"34").unwrap();
    File::options().append(true).open(&plain).unwrap().write_all(b"34\n").unwrap();
    signal(&old, Signal::SIGCONT);
    assert_eq!(said(&mut old), ["Err(Fenced)"]);
    assert!(old.wait().unwrap().success());
    assert_eq!(texts(&mut log), ["34"]);
    // The control.
    assert_eq!(std::fs::read_to_string(plain).unwrap(), "34\n33, late\n");
}

#[test]
fn t03_a_process_stopped_in_the_middle_keeps_the_next_owner_out_until_it_goes_on_or_is_killed() {
    for killed in [false, true] {
        let place = Place::new();
        let mut log = place.open().waiting(Duration::from_millis(50));
        let mut old = start("pauses in the middle", place.dir());
        until_stopped(&old);
        let new = token("prod/orders/17@34");
        assert_eq!(log.raise(&new).unwrap_err().kind(), FenceErrorKind::Busy);
        signal(&old, if killed { Signal::SIGKILL } else { Signal::SIGCONT });
        let told = said(&mut old);
        old.wait().unwrap();
        log.raise(&new).unwrap();
        let expected: &[&str] = if killed { &[] } else { &["33"] };
        assert_eq!(texts(&mut log), expected);
        assert_eq!(
            told.iter().map(String::as_str).collect::<Vec<_>>(),
            if killed { vec![] } else { vec!["true"] }
        );
    }
}

#[test]
fn a_raise_that_waits_in_vain_names_the_process_that_holds_the_log() {
    let place = Place::new();
    let mut log = place.open().waiting(Duration::from_millis(50));
    let mut old = start("pauses in the middle", place.dir());
    until_stopped(&old);
    let error = log.raise(&token("prod/orders/17@34")).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true));
    let why = std::error::Error::source(&error).unwrap().to_string();
    if Path::new("/proc/locks").exists() {
        assert!(why.contains(&format!("process {}", old.id())), "{why}");
    }
    signal(&old, Signal::SIGKILL);
    old.wait().unwrap();
    log.raise(&token("prod/orders/17@34")).unwrap();
}

/// An owner that does nothing but append leaves the log alone for microseconds only.
#[test]
fn t04_an_owner_that_appends_without_a_break_cannot_keep_its_successor_out() {
    let place = Place::new();
    let (mut busy, mut log) = (place.open(), place.open());
    let own = token("prod/orders/17@1");
    busy.raise(&own).unwrap();
    let (appending, appended) = std::sync::mpsc::channel();
    let owner = std::thread::spawn(move || {
        loop {
            match busy.append(from_ref(&own), b"busy") {
                Ok(_) => drop(appending.send(())),
                Err(error) => return error.kind(),
            }
        }
    });
    for epoch in 2..12 {
        appended.recv().unwrap();
        log.raise(&token(&format!("prod/orders/18@{epoch}"))).unwrap();
    }
    log.raise(&token("prod/orders/17@2")).unwrap();
    assert_eq!(owner.join().unwrap(), FenceErrorKind::Fenced);
}

#[test]
fn f011_t48_whatever_was_answered_before_a_kill_in_the_middle_of_work_is_there_after_it() {
    let place = Place::new();
    let mut answered = 0;
    for _ in 0..3 {
        let mut child = start("appends for ever", place.dir());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut numbers = lines.filter_map(|line| line.split_once("said: ")?.1.parse::<usize>().ok());
        let enough = answered + 40;
        let mut last = numbers.by_ref().find(|number| *number >= enough).unwrap();
        child.kill().unwrap();
        last = numbers.last().unwrap_or(last);
        child.wait().unwrap();
        let kept = texts(&mut place.open());
        // The last one may have been written and not answered.
        assert!(
            kept.len() == last + 1 || kept.len() == last + 2,
            "{last} was answered, {} are there",
            kept.len()
        );
        assert!(kept.iter().enumerate().all(|(number, text)| *text == number.to_string()));
        answered = kept.len();
    }
}

/// A file may not grow beyond 64 blocks of a shell's, which is where writes end short as on a full disk.
#[test]
fn f075_a_file_that_may_not_grow_takes_nothing_of_an_entry_and_keeps_the_others() {
    let place = Place::new();
    let inner = command("fills the disk", place.dir());
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = said(&mut child);
    child.wait().unwrap();
    assert_eq!(told.pop().as_deref(), Some("Ok(())"), "{told:?}");
    assert_eq!(told.pop().as_deref(), Some("Busy"), "{told:?}");
    let mut log = place.open();
    let kept = texts(&mut log);
    assert!(told.len() > 10 && kept.len() == told.len() + 1, "{} of {}", kept.len(), told.len());
    log.append(&[token("prod/orders/17@33")], b"after").unwrap();
}

#[test]
fn c08_t51_a_process_stopped_before_its_append_finds_its_segment_sealed() {
    let place = Place::new();
    let segments = place.dir().join("segments");
    let mut old = start("pauses before its segment", place.dir());
    until_stopped(&old);
    let mut next = SegmentWriter::raise(&segments, &token("prod/orders/17@34")).unwrap();
    next.append(b"34").unwrap();
    signal(&old, Signal::SIGCONT);
    assert_eq!(said(&mut old), ["Err(Fenced)"]);
    assert!(old.wait().unwrap().success());
    let reading = SegmentReader::new(&segments, &cluster("prod")).read().unwrap();
    let texts: Vec<_> = reading.entries.iter().map(|entry| entry.payload.as_slice()).collect();
    assert_eq!(texts, [b"33".as_slice(), b"34"]);
}
