//! Stale writes under raises: none is accepted, and some are where check and write are two steps.

use crate::storm::{OWNERS, Owner, nothing_stale, some_stale};
use crate::subject::{Database, put};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use rusqlite::{Connection, TransactionBehavior};
use std::slice::from_ref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// With `looks_only` it is the control: it reads the fence, decides, and opens the transaction afterwards.
struct Opened {
    db: Arc<Database>,
    conn: Connection,
    looks_only: bool,
}

impl Owner for Opened {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.db.fence.raise(&mut self.conn, token)
    }

    async fn write(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let (fence, value) = (&self.db.fence, token.epoch().get().to_string());
        if !self.looks_only {
            return fence.write(&mut self.conn, from_ref(token), |tx| put(tx, "k", &value));
        }
        if let Some(highest) = fence.highest(&self.conn, token.scope())?.filter(|seen| *seen > token.epoch())
        {
            return Err(Fenced::new(token.clone(), highest).into());
        }
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        put(&tx, "k", &value)?;
        tx.commit().map_err(|error| FenceError::store("writing", error))
    }

    async fn read(&mut self) -> String {
        self.conn.query_row("SELECT value FROM texts WHERE key = 'k'", (), |row| row.get(0)).unwrap()
    }
}

fn owners(looks_only: bool) -> Vec<Opened> {
    let db = Arc::new(Database::new("wal"));
    db.open().execute("INSERT INTO texts VALUES ('k', '0')", ()).unwrap();
    let open = |_| {
        let conn = db.open();
        // Nobody crashes here; a raise is synced all the same.
        conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
        // SQLite's own patience sleeps for up to a tenth of a second.
        let wait = |_| {
            thread::sleep(Duration::from_micros(50));
            true
        };
        conn.busy_handler(Some(wait)).unwrap();
        Opened { db: Arc::clone(&db), conn, looks_only }
    };
    (0..OWNERS).map(open).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t03_no_stale_write_takes_effect_under_concurrent_raises() {
    nothing_stale(owners(false), 20_000).await;
}

/// `cargo test -p ringfence-fence --test sqlite -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_takes_effect_in_a_million_tries() {
    nothing_stale(owners(false), 1_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t57_t03_stale_writes_take_effect_where_check_and_write_are_two_steps() {
    some_stale(async || owners(true), 2_000).await;
}
