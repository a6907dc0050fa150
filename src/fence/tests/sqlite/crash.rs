//! F011: the fence survives what the process does not.

use crate::subject::{Database, cluster, put, token};
use ringfence_fence::sqlite::SqliteFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use rusqlite::Connection;
use std::process::Command;
use std::slice::from_ref;

const DATABASE: &str = "RINGFENCE_TEST_DATABASE";

/// Not a test of its own: the process that raises, writes nothing, and is gone.
#[test]
fn raise_and_die() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let mut conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    let fence = SqliteFence::install(&conn, &cluster("prod")).unwrap();
    fence.raise(&mut conn, &token("prod/orders/17@34")).unwrap();
    // No destructor runs and nothing is closed.
    std::process::abort();
}

#[test]
fn f011_t09_a_raise_that_has_answered_survives_the_death_of_the_process() {
    for journal in ["wal", "delete"] {
        let db = Database::new(journal);
        let mut conn = db.open();
        let old = token("prod/orders/17@33");
        db.fence.raise(&mut conn, &old).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::raise_and_die"])
            .env(DATABASE, db.path())
            .output()
            .unwrap()
            .status;
        assert!(!status.success(), "the child was to die");
        let late = db.fence.write(&mut conn, from_ref(&old), |tx| put(tx, "k", "33"));
        match late {
            Err(FenceError::Fenced(f)) => assert_eq!(f.highest().get(), 34),
            other => panic!("{journal}: {other:?}"),
        }
    }
}

/// A commit that changes no page syncs nothing, so a raise to an epoch that is there already must still write.
#[test]
fn f011_raising_to_an_epoch_that_a_write_brought_in_writes_the_row_again() {
    let db = Database::new("wal");
    let mut conn = db.open();
    conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &old).unwrap();
    db.fence.write(&mut conn, from_ref(&new), |tx| put(tx, "k", "34")).unwrap();
    let log = || std::fs::metadata(db.path().with_file_name("db-wal")).unwrap().len();
    let before = log();
    db.fence.raise(&mut conn, &new).unwrap();
    assert!(log() > before, "the raise wrote nothing, so it synced nothing");
}

#[test]
fn f011_a_connection_that_syncs_nothing_is_refused_for_raises_and_writes() {
    let db = Database::new("delete");
    let owner = token("prod/orders/17@5");
    db.fence.raise(&mut db.open(), &owner).unwrap();
    for (pragma, value) in [("synchronous", "OFF"), ("journal_mode", "MEMORY"), ("journal_mode", "OFF")] {
        let mut conn = db.open();
        conn.pragma_update(None, pragma, value).unwrap();
        let by_raise = db.fence.raise(&mut conn, &owner).unwrap_err();
        let by_write = db.fence.write(&mut conn, from_ref(&owner), |tx| put(tx, "k", "v")).unwrap_err();
        for error in [by_raise, by_write] {
            assert_eq!(error.kind(), FenceErrorKind::NotDurable);
            assert!(error.to_string().contains(pragma), "{error}");
        }
    }
}
