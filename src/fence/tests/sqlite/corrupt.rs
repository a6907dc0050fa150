//! T17 and F096: rows that somebody has damaged are an error that names them, and never a panic or a pass.

use crate::subject::{Database, put, token};
use ringfence_fence::sqlite::SqliteFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use rusqlite::Connection;

fn damage(conn: &Connection, statement: &str) {
    conn.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    for trigger in [
        "ringfence_fence_moves_forward",
        "ringfence_binding_never_changes",
        "ringfence_binding_is_never_deleted",
    ] {
        conn.execute_batch(&format!("DROP TRIGGER IF EXISTS {trigger}")).unwrap();
    }
    conn.execute_batch(statement).unwrap();
    conn.execute_batch("PRAGMA ignore_check_constraints = OFF").unwrap();
}

#[test]
fn t17_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    let owner = token("prod/orders/17@5");
    let long = "x".repeat(10_000);
    for (column, value, shown) in [
        ("epoch", "0", "0"),
        ("epoch", "-3", "-3"),
        ("epoch", "9007199254740992", "9007199254740992"),
        ("epoch", "9223372036854775807", "9223372036854775807"),
        ("epoch", "1.5", "1.5"),
        ("epoch", "'five\n'", "five\\n"),
        ("epoch", &format!("'{long}'"), "xxx"),
        ("epoch", "x'00ff'", "a blob of 2 bytes"),
        ("session", "0", "0"),
        ("session", "'s1'", "s1"),
    ] {
        let db = Database::new("wal");
        let mut conn = db.open();
        db.fence.raise(&mut conn, &owner).unwrap();
        damage(&conn, &format!("UPDATE ringfence_fence SET {column} = {value}"));
        let tokens = [owner.clone()];
        let answers = [
            db.fence.raise(&mut conn, &owner).unwrap_err(),
            db.fence.force_raise(&mut conn, &owner).unwrap_err(),
            db.fence.write(&mut conn, &tokens, |tx| put(tx, "k", "v")).unwrap_err(),
            db.fence.highest(&conn, owner.scope()).unwrap_err(),
        ];
        for error in answers {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{value}: {error}");
            let text = error.to_string();
            assert!(text.contains("orders/17") && text.contains(shown), "{text}");
            assert!(text.len() < 400 && !text.contains('\n'), "{text}");
        }
    }
}

#[test]
fn a_damaged_row_can_be_set_right_with_the_triggers_in_place() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let owner = token("prod/orders/17@5");
    db.fence.raise(&mut conn, &owner).unwrap();
    for value in ["'text'", "-1", "9223372036854775807"] {
        damage(&conn, &format!("UPDATE ringfence_fence SET epoch = {value}"));
        SqliteFence::install(&conn, db.fence.cluster()).unwrap();
        conn.execute_batch("UPDATE ringfence_fence SET epoch = 5").unwrap();
        db.fence.raise(&mut conn, &owner).unwrap();
        conn.execute_batch("UPDATE ringfence_fence SET epoch = 4").unwrap_err();
    }
}

#[test]
fn f057_a_binding_that_is_lost_or_unreadable_is_not_made_anew() {
    let owner = token("prod/orders/17@5");
    for (statement, shown) in [
        ("DELETE FROM ringfence_binding", "no row"),
        ("UPDATE ringfence_binding SET cluster = 'Not A Name'", "Not A Name"),
        ("UPDATE ringfence_binding SET cluster = x'00'", "a blob of 1 bytes"),
        ("UPDATE ringfence_binding SET format = 2", "format 2"),
    ] {
        let db = Database::new("wal");
        let mut conn = db.open();
        db.fence.raise(&mut conn, &owner).unwrap();
        damage(&conn, statement);
        let answers = [
            db.fence.raise(&mut conn, &owner).unwrap_err(),
            SqliteFence::install(&conn, db.fence.cluster()).unwrap_err(),
        ];
        for error in answers {
            assert!(matches!(error, FenceError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains(shown), "{error}");
        }
    }
}

#[test]
fn a_table_of_the_right_name_and_the_wrong_shape_is_found_at_installation() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE ringfence_fence (scope TEXT PRIMARY KEY, epoch INTEGER)").unwrap();
    let error = SqliteFence::install(&conn, &"prod".parse().unwrap()).unwrap_err();
    assert!(matches!(error, FenceError::Store { .. }), "{error}");
}
