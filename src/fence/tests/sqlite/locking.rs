//! T03 and T13: what the check locks, and what a busy database answers.

use crate::subject::{Database, put, texts, token};
use ringfence_core::ids::Epoch;
use ringfence_fence::sqlite::SqliteFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use rusqlite::TransactionBehavior::{Deferred, Immediate};
use std::slice::from_ref;
use std::time::Duration;

#[test]
fn t03_the_check_holds_the_write_lock_even_in_a_deferred_transaction_and_when_it_writes_nothing() {
    for journal in ["wal", "delete"] {
        let db = Database::new(journal);
        let (mut a, mut b) = (db.open(), db.open());
        b.busy_timeout(Duration::ZERO).unwrap();
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.fence.raise(&mut a, &old).unwrap();

        let tx = a.transaction_with_behavior(Deferred).unwrap();
        db.fence.check(&tx, &old).unwrap();
        let error = db.fence.raise(&mut b, &new).unwrap_err();
        assert!(error.is_retryable(), "{journal}: {error}");
        put(&tx, "k", "33").unwrap();
        tx.commit().unwrap();

        db.fence.raise(&mut b, &new).unwrap();
        assert_eq!(texts(&b)["k"], "33");
        let tx = a.transaction_with_behavior(Deferred).unwrap();
        assert_eq!(db.fence.check(&tx, &old).unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

#[test]
fn t03_a_deferred_transaction_that_has_read_an_older_state_is_told_to_run_again() {
    let db = Database::new("wal");
    let (mut a, mut b) = (db.open(), db.open());
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut a, &old).unwrap();

    let tx = a.transaction_with_behavior(Deferred).unwrap();
    assert!(texts(&tx).is_empty());
    // Were the check made on what this transaction sees, 33 would still be the highest.
    db.fence.raise(&mut b, &new).unwrap();
    let error = db.fence.check(&tx, &old).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true), "{error}");
    drop(tx);
    let tx = a.transaction_with_behavior(Immediate).unwrap();
    assert_eq!(db.fence.check(&tx, &old).unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// A statement in the middle rolls all of it back, and the write goes on: SQLite runs the rest on its own.
#[test]
fn f049_a_transaction_that_a_statement_has_ended_is_told_from_a_commit_and_takes_no_check() {
    let db = Database::new("wal");
    let mut a = db.open();
    let owner = token("prod/orders/17@33");
    db.fence.raise(&mut a, &owner).unwrap();
    let ends = "INSERT OR ROLLBACK INTO texts (key, value) VALUES ('same', '2')";
    let wrote = db.fence.write(&mut a, from_ref(&owner), |tx| {
        put(tx, "same", "1")?;
        tx.execute(ends, ()).unwrap_err();
        put(tx, "k", "on its own")
    });
    let error = wrote.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store, "{error:?}");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("OR ROLLBACK"), "{error:?}");
    // It is said, and not prevented.
    assert_eq!(texts(&a).into_iter().collect::<Vec<_>>(), [("k".to_owned(), "on its own".to_owned())]);

    let tx = a.transaction_with_behavior(Immediate).unwrap();
    put(&tx, "same", "1").unwrap();
    tx.execute(ends, ()).unwrap_err();
    let error = db.fence.check(&tx, &owner).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
}

#[test]
fn a_busy_database_is_retryable_and_keeps_what_sqlite_said() {
    let db = Database::new("wal");
    let (mut a, mut b) = (db.open(), db.open());
    b.busy_timeout(Duration::ZERO).unwrap();
    let owner = token("prod/orders/17@5");
    db.fence.raise(&mut a, &owner).unwrap();
    let _held = a.transaction_with_behavior(Immediate).unwrap();
    let by_raise = db.fence.raise(&mut b, &owner).unwrap_err();
    let by_write = db.fence.write(&mut b, from_ref(&owner), |tx| put(tx, "k", "v")).unwrap_err();
    for error in [by_raise, by_write] {
        assert!(error.is_retryable() && !error.is_refusal());
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("locked"), "{source}");
    }
}

/// With a deleted journal, a reader keeps a commit out. That is busy, and whatever was written in it is gone.
#[test]
fn a_commit_that_is_kept_out_by_a_reader_is_busy_and_has_done_nothing() {
    let db = Database::new("delete");
    let (mut a, mut reader) = (db.open(), db.open());
    let owner = token("prod/orders/17@33");
    db.fence.raise(&mut a, &owner).unwrap();
    a.busy_timeout(Duration::ZERO).unwrap();
    let reads = reader.transaction().unwrap();
    assert!(texts(&reads).is_empty());
    let error = db.fence.write(&mut a, from_ref(&owner), |tx| put(tx, "k", "33")).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Busy, "{error:?}");
    drop(reads);
    assert!(texts(&a).is_empty() && a.is_autocommit());
    db.fence.write(&mut a, from_ref(&owner), |tx| put(tx, "k", "33")).unwrap();
}

#[test]
fn a_raise_in_a_transaction_of_the_user_says_what_to_do_and_leaves_it_alone() {
    let db = Database::new("wal");
    let mut a = db.open();
    let owner = token("prod/orders/17@33");
    a.execute_batch("BEGIN; INSERT INTO texts VALUES ('k', 'mine')").unwrap();
    let errors = [
        db.fence.raise(&mut a, &owner).unwrap_err(),
        db.fence.force_raise(&mut a, &owner).unwrap_err(),
        SqliteFence::install(&a, db.fence.cluster()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
        assert!(error.to_string().contains("commit or roll back first"), "{error}");
    }
    a.execute_batch("COMMIT").unwrap();
    assert_eq!(texts(&a)["k"], "mine");
    db.fence.raise(&mut a, &owner).unwrap();
}

#[test]
fn t13_one_of_two_partitions_moves_in_the_middle_and_nothing_is_applied() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (one, two, moved) = (token("prod/orders/1@5"), token("prod/orders/2@5"), token("prod/orders/2@6"));
    db.fence.raise_all(&mut conn, &[one.clone(), two.clone()]).unwrap();
    db.fence.raise(&mut conn, &moved).unwrap();
    for tokens in [[one.clone(), two.clone()], [two, one]] {
        // The user's transaction goes on after the refusal, and commits: the fence at least has remembered nothing.
        let tx = conn.transaction().unwrap();
        let newer = token("prod/orders/1@9");
        let tokens = tokens.map(|token| if token.scope() == newer.scope() { newer.clone() } else { token });
        match db.fence.check_all(&tx, &tokens) {
            Err(FenceError::Fenced(f)) => assert_eq!(f.scope(), moved.scope()),
            other => panic!("{other:?}"),
        }
        tx.commit().unwrap();
        assert_eq!(db.fence.highest(&conn, newer.scope()).unwrap().map(Epoch::get), Some(5));
    }
}

#[test]
fn a_temporary_table_of_the_same_name_does_not_stand_in_for_the_fence() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &new).unwrap();
    conn.execute_batch(
        "CREATE TEMP TABLE ringfence_fence (scope TEXT PRIMARY KEY, epoch INTEGER, session INTEGER, raises INTEGER);
         INSERT INTO temp.ringfence_fence VALUES ('orders/17', 1, NULL, 0);",
    )
    .unwrap();
    let refused = db.fence.write(&mut conn, from_ref(&old), |tx| put(tx, "k", "33"));
    assert!(matches!(refused, Err(FenceError::Fenced(_))));
}
