//! The rule in the procedures is the one in Rust.

use crate::database::{Database, fenced};
use crate::rule_in_database::{RuleInDatabase, is_the_rule_in_rust};
use crate::subject::runtime;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::{MySql, MySqlConnection};
use std::cell::RefCell;
use tokio::runtime::Runtime;

struct Procedures<'a> {
    runtime: &'a Runtime,
    db: Database<'static>,
    conn: RefCell<MySqlConnection>,
}

impl RuleInDatabase for Procedures<'_> {
    fn raise(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.runtime.block_on(self.db.fence.raise_all(&mut self.conn.borrow_mut(), tokens))
    }

    fn force_raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.runtime.block_on(self.db.fence.force_raise(&mut self.conn.borrow_mut(), token))
    }

    fn check(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        let conn = &mut *self.conn.borrow_mut();
        self.runtime.block_on(self.db.fence.write(conn, tokens, async |_| Ok(())))
    }

    fn rows(&self, beginning: &str) -> Vec<(String, i64, Option<i64>)> {
        let select = "SELECT scope, epoch, session FROM ringfence_fence WHERE scope LIKE CONCAT(?, '%')";
        let rows = sqlx::query_as::<MySql, _>(select).bind(beginning);
        self.runtime.block_on(rows.fetch_all(&mut *self.conn.borrow_mut())).unwrap()
    }
}

#[test]
fn t01_t10_the_rule_in_the_database_is_the_rule_in_rust() {
    let runtime = &runtime();
    let Some(db) = runtime.block_on(fenced()) else { return };
    let conn = RefCell::new(runtime.block_on(db.open()));
    is_the_rule_in_rust(&Procedures { runtime, db, conn });
}
