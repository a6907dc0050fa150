//! A transaction that ends unseen: by DDL, by a deadlock. And one that does not end, though a statement failed.

use crate::database::{Database, attempt, fenced, id, put, refused, run, texts, token, until_waiting};
use ringfence_fence::{FenceError, FenceErrorKind};
use sqlx::Connection as _;
use std::error::Error as _;
use std::slice::from_ref;

/// A trigger for each way of writing, as the page has it.
const TRIGGERS: [&str; 3] = [
    "CREATE TRIGGER stamped_i BEFORE INSERT ON texts FOR EACH ROW CALL ringfence_refuse_unstamped()",
    "CREATE TRIGGER stamped_u BEFORE UPDATE ON texts FOR EACH ROW CALL ringfence_refuse_unstamped()",
    "CREATE TRIGGER stamped_d BEFORE DELETE ON texts FOR EACH ROW CALL ringfence_refuse_unstamped()",
];

pub(crate) async fn stamped(db: &Database<'_>) {
    let mut conn = db.open().await;
    for trigger in TRIGGERS {
        run(&mut conn, trigger).await;
    }
}

/// The old owner has checked, and makes a table in the middle. That commits; the next owner comes, and the old one writes.
async fn late_write_after_ddl(db: &Database<'_>) -> (Result<(), FenceError>, Option<String>) {
    let old = db.raised("prod/orders/17@33").await;
    let mut a = db.open().await;
    let answer = db
        .fence
        .write(&mut a, from_ref(&old), async |tx| {
            run(tx, "CREATE TABLE made_meanwhile (x INT)").await;
            // Nothing is held any more.
            db.raised("prod/orders/17@34").await;
            put(tx, "k", "late").await
        })
        .await;
    (answer, texts(&mut db.open().await).await.remove("k"))
}

#[tokio::test]
async fn f049_ddl_in_the_middle_ends_the_fence_and_the_commit_says_so() {
    let Some(db) = fenced().await else { return };
    let (answer, late) = late_write_after_ddl(&db).await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store, "{error:?}");
    assert!(error.source().unwrap().to_string().contains("DDL"), "{error:?}");
    // It is said, and not prevented.
    assert_eq!(late.as_deref(), Some("late"));
}

/// With the triggers it is prevented: each row checks again, in the step that writes it.
#[tokio::test]
async fn f049_with_a_trigger_the_late_write_after_ddl_is_refused() {
    let Some(db) = fenced().await else { return };
    stamped(&db).await;
    let (answer, late) = late_write_after_ddl(&db).await;
    assert!(answer.is_err());
    assert_eq!(late, None);
}

#[tokio::test]
async fn f049_after_a_refusal_that_nobody_looks_at_a_trigger_refuses_every_row() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    let mut a = db.open().await;
    for (with_triggers, expected) in [(false, Some("late")), (true, None)] {
        if with_triggers {
            run(&mut a, "DELETE FROM texts").await;
            stamped(&db).await;
        }
        // A program that goes on after an error, as every statement of SQL lets it.
        let mut tx = a.begin().await.unwrap();
        db.fence.check(&mut tx, &old).await.unwrap_err();
        let wrote = put(&mut tx, "k", "late").await;
        assert_eq!(wrote.is_ok(), !with_triggers);
        tx.commit().await.unwrap();
        assert_eq!(texts(&mut a).await.get("k").map(String::as_str), expected);
    }
    db.write(&mut a, &[new], "34").await.unwrap();
}

#[tokio::test]
async fn f049_a_commit_by_the_fence_finds_out_that_the_last_check_was_refused() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    let mut a = db.open().await;
    // Also when another check of the same transaction was accepted before it.
    for accepted_before in [false, true] {
        let mut tx = a.begin().await.unwrap();
        if accepted_before {
            db.fence.check(&mut tx, &new).await.unwrap();
        }
        db.fence.check(&mut tx, &old).await.unwrap_err();
        put(&mut tx, "k", "late").await.unwrap();
        let error = db.fence.commit(tx).await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Store, "{error:?}");
        assert!(error.source().unwrap().to_string().contains("refused"), "{error:?}");
        assert!(texts(&mut a).await.is_empty());
    }
}

/// Nobody knows then whether the transaction was still the one of the check: only that no commit of it was sent.
#[tokio::test]
async fn f049_a_connection_that_is_lost_before_the_commit_is_unknown_and_not_busy() {
    let Some(db) = fenced().await else { return };
    let owner = db.raised("prod/orders/17@33").await;
    let mut admin = db.open().await;
    for ddl in [false, true] {
        let mut a = db.open().await;
        let connection = id(&mut a).await;
        let mut tx = a.begin().await.unwrap();
        db.fence.check(&mut tx, &owner).await.unwrap();
        put(&mut tx, "before", "33").await.unwrap();
        if ddl {
            run(&mut tx, "CREATE TABLE made_meanwhile (x INT)").await;
        }
        run(&mut admin, &format!("KILL {connection}")).await;
        let error = db.fence.commit(tx).await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Store, "{error:?}");
        // Why it is not busy, which says that nothing happened.
        assert_eq!(texts(&mut db.open().await).await.contains_key("before"), ddl);
    }
}

#[tokio::test]
async fn f005_a_table_can_refuse_rows_for_which_nothing_was_checked() {
    let Some(db) = fenced().await else { return };
    stamped(&db).await;
    let (owner, other) = (db.raised("prod/orders/17@33").await, db.raised("prod/orders/18@5").await);
    let mut conn = db.open().await;
    assert_eq!(refused(&mut conn, "INSERT INTO texts VALUES ('k', 'by hand')").await.0, "RF006");
    db.write(&mut conn, from_ref(&owner), "33").await.unwrap();
    db.write(&mut conn, &[owner, other], "both").await.unwrap();
    // Another connection has checked nothing.
    let mut hand = db.open().await;
    for by_hand in ["UPDATE texts SET value = ''", "DELETE FROM texts"] {
        assert_eq!(refused(&mut hand, by_hand).await.0, "RF006");
    }
    // And this one is judged by what it has checked last.
    run(&mut conn, "UPDATE texts SET value = 'still its own'").await;
    db.raised("prod/orders/18@6").await;
    let (state, said) = refused(&mut conn, "UPDATE texts SET value = 'late'").await;
    assert_eq!((state.as_str(), said.as_str()), ("RF001", "scope=orders/18 own=5 highest=6"));
    assert_eq!(texts(&mut hand).await["k"], "still its own");
}

/// Error 1213 has rolled back the whole transaction. Whoever swallows it goes on without one.
#[tokio::test]
async fn a_deadlock_is_busy_and_one_that_was_swallowed_is_found_at_the_commit() {
    let Some(db) = fenced().await else { return };
    let owner = db.raised("prod/orders/17@33").await;
    let (mut a, mut b) = (db.open().await, db.open().await);
    run(&mut a, "INSERT INTO texts VALUES ('one', '0'), ('two', '0')").await;
    let waits = id(&mut a).await;
    let mut observer = db.open().await;
    // b has more to lose, so a is the one that is rolled back.
    run(&mut b, "START TRANSACTION; UPDATE texts SET value = 'b' WHERE k = 'two'").await;
    for n in 0..50 {
        run(&mut b, &format!("INSERT INTO texts VALUES ('b{n}', 'b')")).await;
    }
    let mut swallowed = None;
    let writes = db.fence.write(&mut a, from_ref(&owner), async |tx| {
        put(tx, "one", "a").await?;
        swallowed = put(tx, "two", "a").await.err();
        put(tx, "after", "a").await
    });
    let crosses = async {
        until_waiting(&mut observer, &waits).await;
        run(&mut b, "UPDATE texts SET value = 'b' WHERE k = 'one'").await;
        run(&mut b, "COMMIT").await;
    };
    let (wrote, ()) = tokio::join!(writes, crosses);
    let deadlock = swallowed.unwrap();
    assert!(deadlock.source().unwrap().to_string().contains("Deadlock"), "{deadlock:?}");
    let error = wrote.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("deadlock"), "{error:?}");
    // The same as a check's own answer is busy.
    let (mut c, mut d) = (db.open().await, db.open().await);
    let waits = id(&mut c).await;
    let mut tx = c.begin().await.unwrap();
    run(&mut tx, "UPDATE texts SET value = 'c' WHERE k = 'one'").await;
    run(
        &mut d,
        "START TRANSACTION; UPDATE ringfence_fence SET raises = raises + 1 WHERE scope = 'orders/17'",
    )
    .await;
    for n in 0..50 {
        run(&mut d, &format!("INSERT INTO texts VALUES ('d{n}', 'd')")).await;
    }
    let checks = db.fence.check(&mut tx, &owner);
    let crosses = async {
        until_waiting(&mut observer, &waits).await;
        run(&mut d, "UPDATE texts SET value = 'd' WHERE k = 'one'").await;
        run(&mut d, "COMMIT").await;
    };
    let (checked, ()) = tokio::join!(checks, crosses);
    let error = checked.unwrap_err();
    assert!(matches!(error, FenceError::Busy { .. }), "{error:?}");
}

/// Error 1205 takes back its statement only: what was before it is still there, and a commit would keep it.
#[tokio::test]
async fn a_wait_that_was_too_long_is_busy_and_the_write_rolls_the_rest_back() {
    let Some(db) = fenced().await else { return };
    let (owner, mut a, mut b) = (db.raised("prod/orders/17@33").await, db.open().await, db.open().await);
    run(&mut a, "INSERT INTO texts VALUES ('row', '0')").await;
    run(&mut a, "SET innodb_lock_wait_timeout = 1").await;
    run(&mut b, "START TRANSACTION; UPDATE texts SET value = 'b' WHERE k = 'row'").await;
    let wrote = db
        .fence
        .write(&mut a, from_ref(&owner), async |tx| {
            put(tx, "before", "a").await?;
            put(tx, "row", "a").await
        })
        .await;
    assert!(wrote.is_err());
    assert!(!texts(&mut db.open().await).await.contains_key("before"));
    // A program of one's own that only looks at the last answer.
    let mut tx = a.begin().await.unwrap();
    db.fence.check(&mut tx, &owner).await.unwrap();
    put(&mut tx, "before", "a").await.unwrap();
    put(&mut tx, "row", "a").await.unwrap_err();
    db.fence.commit(tx).await.unwrap();
    assert!(texts(&mut db.open().await).await.contains_key("before"));
    run(&mut b, "ROLLBACK").await;
    // The check itself.
    run(&mut b, "START TRANSACTION; SELECT * FROM ringfence_fence FOR UPDATE").await;
    let mut tx = a.begin().await.unwrap();
    let error = db.fence.check(&mut tx, &owner).await.unwrap_err();
    assert!(error.is_retryable() && !error.is_refusal() && error.source().is_some(), "{error:?}");
    tx.rollback().await.unwrap();
    run(&mut b, "ROLLBACK").await;
    db.write(&mut a, from_ref(&owner), "33").await.unwrap();
}

#[tokio::test]
async fn a_table_whose_rows_are_not_rolled_back_is_refused() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    db.fence.covers(&mut conn, "texts").await.unwrap();
    for (engine, name) in [("MyISAM", "of_myisam"), ("Aria", "of_aria"), ("MEMORY", "of_memory")] {
        run(&mut conn, &format!("CREATE TABLE {name} (x INT) ENGINE = {engine}")).await;
        let error = db.fence.covers(&mut conn, name).await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Unfit);
        assert!(error.to_string().contains(engine), "{error}");
    }
    assert_eq!(db.fence.covers(&mut conn, "nowhere").await.unwrap_err().kind(), FenceErrorKind::Unfit);
    // Why: the row stays after a rollback.
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, "INSERT INTO of_myisam VALUES (1)").await;
    tx.rollback().await.unwrap();
    let left = crate::database::ask(&mut conn, "SELECT CAST(COUNT(*) AS CHAR) FROM of_myisam").await;
    assert_eq!(left.as_deref(), Some("1"));
    // The fence's own tables cannot become one by mistake, and where somebody insists, nothing is raised.
    attempt(&mut conn, "ALTER TABLE ringfence_fence ENGINE = MyISAM").await.unwrap_err();
    run(&mut conn, "ALTER TABLE ringfence_binding DROP FOREIGN KEY ringfence_binding_keeps").await;
    run(&mut conn, "ALTER TABLE ringfence_fence ENGINE = MyISAM").await;
    let error = db.fence.raise(&mut conn, &token("prod/orders/17@33")).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::NotDurable);
    assert!(error.to_string().contains("ringfence_fence is not of InnoDB"), "{error}");
}
