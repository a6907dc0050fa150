//! F011: the fence survives what the server does not.

use crate::server::available;
use crate::subject::{Fenced, set, token};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::mpsc::channel;
use std::thread;

#[test]
fn f011_t09_a_raise_that_has_answered_survives_the_death_of_the_server() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    db.raise(&new).unwrap();
    db.server.kill();
    db.server.start_again();
    db.client = db.server.client();
    match db.set(&old, "33 again") {
        Err(FenceError::Fenced(f)) => assert_eq!(f.highest().get(), 34),
        other => panic!("{other:?}"),
    }
    // Whether this start has lost something cannot be known, so the owner raises again, and reads.
    assert_eq!(db.set(&new, "34").unwrap_err().kind(), FenceErrorKind::Replaced);
    assert_eq!(db.client.ask::<String>("GET k"), "33");
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
}

#[test]
fn f011_t09_whatever_was_answered_before_a_kill_in_the_middle_of_work_is_there_after_it() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let mut epoch = 0_u64;
    for _ in 0..3 {
        let mut raiser = db.server.client();
        let (fence, from) = (db.fence.clone(), epoch);
        let (answered, answers) = channel();
        let raising = thread::spawn(move || {
            let mut last = from;
            loop {
                let next = token(&format!("prod/orders/17@{}", last + 1));
                if raiser.with(async |conn| fence.raise(conn, &next).await).is_err() {
                    return last;
                }
                last += 1;
                let _ = answered.send(last);
            }
        });
        answers.iter().find(|last| *last >= from + 100);
        db.server.kill();
        let last = raising.join().unwrap();
        db.server.start_again();
        db.client = db.server.client();
        let kept = db.highest(token("prod/orders/17@1").scope()).unwrap().unwrap().get();
        // The last one may have been written and not answered.
        assert!(kept == last || kept == last + 1, "{last} was answered, and {kept} is there");
        epoch = kept;
    }
}

/// What a script does not write is not in the log, and an answer waits only for what is.
#[test]
fn f011_t14_raising_again_to_the_same_epoch_is_written_to_the_log_again() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.write(from_ref(&new), &set("k", "34")).unwrap();
    let size = |db: &mut Fenced| db.client.info("aof_current_size").parse::<u64>().unwrap();
    let before = size(&mut db);
    db.raise(&new).unwrap();
    assert!(size(&mut db) > before, "the raise wrote nothing, so it waited for nothing");
}
