//! The SQL of docs/fences.md for SQLite, run as it stands there, block by block.

use crate::subject::{Database, token};

/// The blocks of the page, in their order, with the number of rows that the last statement of each is said to change.
fn blocks() -> Vec<(String, u64)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fences.md")).unwrap();
    let after = page.split("```sqlite\n").skip(1);
    let told = after.map(|rest| {
        let block = rest.split("```").next().unwrap();
        let changes = block.lines().next().unwrap().strip_prefix("-- changes: ").unwrap();
        (block.to_owned(), changes.parse().unwrap())
    });
    told.collect()
}

#[test]
fn a22_a49_b15_b24_c14_t01_t02_the_guards_of_the_page_change_what_the_page_says() {
    let db = Database::new("wal");
    let mut conn = db.open();
    db.fence.raise(&mut conn, &token("prod/orders/17@34")).unwrap();
    let blocks = blocks();
    let (some, none): (Vec<_>, Vec<_>) = blocks.iter().partition(|(_, changes)| *changes > 0);
    assert!(some.len() >= 6 && none.len() >= 5, "{blocks:?}");
    for (block, changes) in &blocks {
        conn.execute_batch(block).unwrap();
        assert_eq!(conn.changes(), *changes, "{block}");
    }
}
