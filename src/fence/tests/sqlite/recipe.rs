//! The SQL of docs/fences-sqlite.md, run as it stands there, with nothing of this crate; and beside it, on one file, the adapter.

use crate::subject::{Database, cluster, put, texts, token};
use ringfence_core::ids::Epoch;
use ringfence_fence::sqlite::{CHECK_SQL, SqliteFence};
use ringfence_fence::{FenceError, HighWater, MAX_JUMP};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::slice::from_ref;

const PAGE: &str = include_str!("../../../../docs/fences-sqlite.md");

fn blocks() -> Vec<&'static str> {
    PAGE.split("```sqlite\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// What the page says of a block, in a comment at its start.
fn said(block: &'static str, what: &str) -> Option<&'static str> {
    block.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(what)?.strip_prefix(": "))
}

fn answer(conn: &Connection, block: &str) -> String {
    let mut statement = conn.prepare(block).unwrap();
    let columns = statement.column_count();
    let shown = |value| match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text,
        other => format!("{other:?}"),
    };
    let row = statement.query_row((), |row| {
        let values: Result<Vec<_>, _> = (0..columns).map(|column| row.get(column).map(shown)).collect();
        Ok(values?.join(" | "))
    });
    row.unwrap()
}

fn run(conn: &Connection, block: &'static str) {
    if let Some(refusal) = said(block, "refused") {
        let error = conn.execute_batch(block).unwrap_err();
        assert!(error.to_string().contains(refusal), "{block}\n{error}");
    } else if let Some(expected) = said(block, "answers") {
        assert_eq!(answer(conn, block), expected, "{block}");
    } else {
        conn.execute_batch(block).unwrap_or_else(|error| panic!("{block}\n{error}"));
        if let Some(changes) = said(block, "changes") {
            assert_eq!(conn.changes().to_string(), changes, "{block}");
        }
    }
}

const CHECKS: &str = "UPDATE main.ringfence_fence";
const RAISES: &str = "INSERT INTO main.ringfence_fence";

/// How many rows the page's statement that begins so changes, for another epoch. Within a transaction, which it leaves open.
fn changes(conn: &Connection, begins: &str, epoch: u64) -> u64 {
    let block = blocks().into_iter().find(|block| block.contains(begins) && block.contains("33")).unwrap();
    let statement = format!("{begins}{}", block.split_once(begins).unwrap().1);
    conn.execute_batch(&statement.replace("33", &epoch.to_string())).unwrap();
    conn.changes()
}

fn schema(conn: &Connection) -> Vec<String> {
    let sql = "SELECT sql FROM sqlite_schema WHERE name LIKE 'ringfence%' ORDER BY name";
    conn.prepare(sql).unwrap().query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn fenced(answer: Result<(), FenceError>) -> bool {
    matches!(answer, Err(FenceError::Fenced(_)))
}

#[test]
fn a22_t01_t02_b24_the_recipe_for_any_language_and_the_adapter_guard_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut by_hand = Connection::open(dir.path().join("db")).unwrap();
    let ran = blocks();
    assert!(ran.len() >= 14 && ran.iter().any(|block| said(block, "refused").is_some()), "{ran:?}");
    ran.into_iter().for_each(|block| run(&by_hand, block));
    assert_eq!(answer(&by_hand, "SELECT count(*), min(state) FROM orders"), "1 | new");

    let mut conn = Connection::open(dir.path().join("db")).unwrap();
    conn.execute_batch("CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT NOT NULL)").unwrap();
    let fence = SqliteFence::install(&conn, &cluster("prod")).unwrap();
    let [old, new, next] = ["prod/orders/17@33", "prod/orders/17@34", "prod/orders/17@35"].map(token);
    // What the page has raised refuses the old owner of the adapter, and not the one that was raised.
    assert!(fenced(fence.write(&mut conn, from_ref(&old), |tx| put(tx, "k", "33"))));
    assert!(fenced(fence.raise(&mut conn, &old)));
    fence.write(&mut conn, from_ref(&new), |tx| put(tx, "k", "34")).unwrap();
    // And the other way round.
    fence.raise(&mut conn, &next).unwrap();
    let tx = by_hand.transaction().unwrap();
    assert_eq!([changes(&tx, CHECKS, 34), changes(&tx, RAISES, 34)], [0, 0]);
    assert_eq!([changes(&tx, CHECKS, 35), changes(&tx, RAISES, 36)], [1, 1]);
    tx.commit().unwrap();
    assert!(fenced(fence.write(&mut conn, from_ref(&next), |tx| put(tx, "k", "35"))));
    assert_eq!(texts(&conn)["k"], "34");

    let made = Database::new("delete");
    assert_eq!(schema(&conn), schema(&made.open()));
    let check = CHECK_SQL.replace(":epoch", "33").replace(":scope", "'orders/17'");
    assert!(PAGE.contains(&format!("{};", check.replace(":cluster", "'prod'"))), "{CHECK_SQL}");
}

#[test]
fn t01_t17_the_statements_of_the_page_decide_as_the_rule_does() {
    let db = Database::new("delete");
    let mut conn = db.open();
    let far = 33 + MAX_JUMP;
    let epochs = [1, 32, 33, 34, MAX_JUMP, MAX_JUMP + 1, far, far + 1, Epoch::MAX.get()];
    for before in [None, Some(1), Some(33), Some(far), Some(Epoch::MAX.get())] {
        let row = before.map(|epoch| HighWater::new(Epoch::new(epoch).unwrap(), None));
        for epoch in epochs {
            let token = token(&format!("prod/orders/17@{epoch}"));
            let rules =
                [HighWater::check(row, &token), HighWater::raise(row, &token)].map(|rule| rule.is_ok());
            for (begins, rule) in [CHECKS, RAISES].into_iter().zip(rules) {
                let tx = conn.transaction().unwrap();
                if let Some(before) = before {
                    let row = "INSERT INTO ringfence_fence (scope, epoch) VALUES ('orders/17', ?1)";
                    tx.execute(row, [before.cast_signed()]).unwrap();
                }
                assert_eq!(changes(&tx, begins, epoch) == 1, rule, "{begins} {epoch} over {before:?}");
            }
        }
    }
    // Another cluster's, and one that is no epoch.
    let tx = conn.transaction().unwrap();
    assert_eq!([changes(&tx, RAISES, 0), changes(&tx, RAISES, Epoch::MAX.get() + 1)], [0, 0]);
    drop(tx);
    conn.execute_batch(
        "DROP TRIGGER ringfence_binding_never_changes; UPDATE ringfence_binding SET cluster = 'test'",
    )
    .unwrap();
    assert_eq!(changes(&conn, RAISES, 33), 0);
}
