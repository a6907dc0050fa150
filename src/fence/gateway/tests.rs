//! Writes that are cut off at each of their steps: by an error, by a full disk, and by the end of the process.

use super::*;
use std::io;
use std::process::Command;
use std::slice::from_ref;
use std::sync::mpsc::channel;
use tempfile::TempDir;

const STEPS: [Step; 5] = [Step::Staged, Step::Remembered, Step::Checked, Step::Placed, Step::Synced];

fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

fn path(text: &str) -> FilePath {
    text.parse().unwrap()
}

fn prod() -> ClusterId {
    ClusterId::new("prod").unwrap()
}

fn opened(dir: &TempDir) -> FileGateway {
    FileGateway::open(dir.path(), &prod()).unwrap()
}

/// A write of some kind, under this token.
fn write(files: &FileGateway, kind: &str, own: &FencingToken) -> Result<(), GatewayError> {
    let (own, file) = (from_ref(own), path("orders/17/new/a"));
    match kind {
        "put" => files.put(own, &file, b"new"),
        "append" => files.append(own, &file, b" and new", Some(3)).map(|_| ()),
        "update" => files.update(own, &file, |old| Ok([old.unwrap(), b"!".to_vec()].concat())),
        _ => files.delete(own, &file).map(|_| ()),
    }
}

const KINDS: [(&str, Option<&str>); 4] =
    [("put", Some("new")), ("append", Some("old and new")), ("update", Some("old!")), ("delete", None)];

/// What is there afterwards: the file, and whether anything half written is left.
fn left(dir: &TempDir) -> (Option<String>, usize) {
    let text = std::fs::read_to_string(dir.path().join("orders/17/new/a")).ok();
    (text, std::fs::read_dir(dir.path().join(".ringfence/staged")).unwrap().count())
}

fn prepared() -> (TempDir, FileGateway, FencingToken) {
    let dir = tempfile::tempdir().unwrap();
    let files = opened(&dir);
    let own = token("prod/orders/17@33");
    files.raise(&own).unwrap();
    files.put(from_ref(&own), &path("orders/17/new/a"), b"old").unwrap();
    (dir, files, own)
}

#[test]
fn f039_a_write_that_fails_at_any_step_leaves_the_old_file_or_the_new_one_and_says_which_is_unknown() {
    for (kind, new) in KINDS {
        for step in STEPS {
            let (dir, files, _) = prepared();
            let next = token("prod/orders/17@34");
            files.interrupted_by(Box::new(move |at| {
                if at == step { Err(io::Error::other("cut off")) } else { Ok(()) }
            }));
            let answer = write(&files, kind, &next);
            let (text, half) = left(&dir);
            assert_eq!(half, 0, "{kind} {step:?}");
            match (step, answer) {
                (Step::Placed | Step::Synced, Err(GatewayError::Unknown { .. })) => {
                    assert_eq!(text.as_deref(), new, "{kind} {step:?}");
                }
                (_, Err(GatewayError::Failed { .. })) => {
                    assert_eq!(text.as_deref(), Some("old"), "{kind} {step:?}");
                }
                // Only a put stages before it is checked.
                (Step::Staged, Ok(())) if kind != "put" => assert_eq!(text.as_deref(), new),
                (step, other) => panic!("{kind} {step:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_full_disk_is_said_and_takes_nothing_away() {
    for (kind, _) in KINDS {
        let (dir, files, own) = prepared();
        files.interrupted_by(Box::new(|at| match at {
            Step::Checked => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }));
        assert!(matches!(write(&files, kind, &own), Err(GatewayError::Full)), "{kind}");
        assert_eq!(left(&dir), (Some("old".into()), 0), "{kind}");
        files.interrupted_by(Box::new(|_| Ok(())));
        write(&files, kind, &own).unwrap();
    }
}

const CHILD: &str = "RINGFENCE_TEST_GATEWAY";

/// Not a test of its own: the process that dies in the middle of a write.
#[test]
fn write_and_die() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let [dir, kind, step] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let (step, dir) = (STEPS[step.parse::<usize>().unwrap()], std::path::PathBuf::from(dir));
    let files = FileGateway::open(&dir, &prod()).unwrap();
    files.interrupted_by(Box::new(move |at| {
        if at == step {
            // No destructor runs and nothing is closed.
            std::process::abort();
        }
        Ok(())
    }));
    let _ = write(&files, kind, &token("prod/orders/17@34"));
}

/// The process dies at each step of each write. The next one finds the old file or the new one, and a new one never without the
/// epoch that wrote it: the owner before is refused then.
#[test]
fn f011_t09_a_gateway_that_dies_at_any_step_leaves_old_or_new_and_no_new_file_without_its_epoch() {
    for (kind, new) in KINDS {
        for (index, step) in STEPS.into_iter().enumerate() {
            let (dir, files, before) = prepared();
            drop(files);
            let told = format!("{}|{kind}|{index}", dir.path().display());
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "gateway::files::tests::write_and_die"])
                .env(CHILD, told)
                .output()
                .unwrap();
            let died = !child.status.success();
            assert_eq!(died, kind == "put" || step != Step::Staged, "{kind} {step:?}: {child:?}");

            let files = opened(&dir);
            let (text, half) = left(&dir);
            assert_eq!(half, 0, "what was half written is swept");
            let is_new = matches!(step, Step::Placed | Step::Synced) || !died;
            assert_eq!(text.as_deref(), if is_new { new } else { Some("old") }, "{kind} {step:?}");
            let highest = files.highest(before.scope()).unwrap().unwrap().get();
            assert!(highest == 34 || !is_new, "{kind} {step:?}: the file is new, and the fence at {highest}");
            let late = files.put(from_ref(&before), &path("orders/17/new/a"), b"late");
            assert_eq!(late.is_err(), highest == 34, "{kind} {step:?}");
        }
    }
}

/// The pause stands after the check. A raise waits for the write, and goes before the writes that wait.
#[test]
fn t03_f009_a_raise_waits_for_a_write_that_was_checked_and_no_older_one_comes_after_it() {
    let (dir, files, own) = prepared();
    let (paused, has_paused) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    files.interrupted_by(Box::new(move |at| {
        if at == Step::Checked && paused.send(()).is_ok() {
            let _ = may_go_on.lock().unwrap().recv();
        }
        Ok(())
    }));
    let write_of = |files: &FileGateway, own: &FencingToken, text: &'static [u8]| {
        let (files, own) = (files.clone(), own.clone());
        std::thread::spawn(move || files.put(&[own], &path("orders/17/new/a"), text))
    };
    let first = write_of(&files, &own, b"first");
    has_paused.recv().unwrap();
    let next = token("prod/orders/17@34");
    let (raised, has_raised) = channel();
    let raiser = {
        let (files, next) = (files.clone(), next.clone());
        std::thread::spawn(move || {
            files.raise(&next).unwrap();
            raised.send(()).unwrap();
        })
    };
    while files.shared.database.raises_waiting() == 0 {
        std::thread::yield_now();
    }
    let second = write_of(&files, &own, b"second");
    assert!(has_raised.try_recv().is_err(), "the raise passed a write that was checked");
    drop(go_on);
    has_raised.recv().unwrap();
    raiser.join().unwrap();
    first.join().unwrap().unwrap();
    let late = second.join().unwrap();
    assert!(matches!(late, Err(GatewayError::Fence(FenceError::Fenced(_)))), "{late:?}");
    assert_eq!(left(&dir).0.as_deref(), Some("first"));
}

/// Somebody looks into the fence's database, and its transaction cannot be ended: the file stands there.
#[test]
fn a_check_that_cannot_be_ended_after_the_change_is_unknown_and_not_busy() {
    for (kind, new) in KINDS {
        let (dir, files, own) = prepared();
        files.shared.database.to_write().get().busy_timeout(std::time::Duration::ZERO).unwrap();
        let database = dir.path().join(".ringfence/fence.db");
        let reader = std::sync::Mutex::new(None);
        files.interrupted_by(Box::new(move |at| {
            if at == Step::Synced {
                let conn = Connection::open(&database).unwrap();
                conn.execute_batch("BEGIN; SELECT * FROM ringfence_fence").unwrap();
                *reader.lock().unwrap() = Some(conn);
            }
            Ok(())
        }));
        match write(&files, kind, &own) {
            Err(GatewayError::Unknown { doing, .. }) => assert_eq!(doing, "ending the check"),
            other => panic!("{kind}: {other:?}"),
        }
        assert_eq!(left(&dir).0.as_deref(), new, "{kind}");
        // Who reads only has lost nothing by it.
        let read = files.read(from_ref(&own), &path("orders/17/new/a"));
        match new {
            Some(_) => assert!(matches!(read, Err(GatewayError::Fence(FenceError::Busy { .. }))), "{read:?}"),
            None => assert!(matches!(read, Err(GatewayError::NotFound)), "{read:?}"),
        }
        files.interrupted_by(Box::new(|_| Ok(())));
        write(&files, "put", &own).unwrap();
    }
}
