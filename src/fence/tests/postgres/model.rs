//! The rule in PL/pgSQL is the one in Rust.

use crate::database::{Database, fenced};
use crate::rule_in_database::{RuleInDatabase, is_the_rule_in_rust};
use crate::subject::runtime;
use ringfence_fence::{FenceError, FencingToken};
use std::cell::RefCell;
use tokio::runtime::Runtime;
use tokio_postgres::Client;

struct Functions<'a> {
    runtime: &'a Runtime,
    db: Database<'static>,
    client: RefCell<Client>,
}

impl RuleInDatabase for Functions<'_> {
    fn raise(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        self.runtime.block_on(self.db.fence.raise_all(&*self.client.borrow(), tokens))
    }

    fn force_raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.runtime.block_on(self.db.fence.force_raise(&*self.client.borrow(), token))
    }

    fn check(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        let client = &mut *self.client.borrow_mut();
        self.runtime.block_on(self.db.fence.write(client, tokens, async |_| Ok(())))
    }

    fn rows(&self, beginning: &str) -> Vec<(String, i64, Option<i64>)> {
        let select = "SELECT scope, epoch, session FROM ringfence.fence WHERE starts_with(scope, $1)";
        let client = self.client.borrow();
        let rows = self.runtime.block_on(client.query(select, &[&beginning])).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}

#[test]
fn t01_t10_the_rule_in_the_database_is_the_rule_in_rust() {
    let runtime = &runtime();
    let Some(db) = runtime.block_on(fenced()) else { return };
    let client = RefCell::new(runtime.block_on(db.open()));
    is_the_rule_in_rust(&Functions { runtime, db, client });
}
