//! Stale writes under raises, through sqlx.

use super::subject::{Database, options, put, texts};
use crate::storm::{OWNERS, Owner, nothing_stale, some_stale};
use ringfence_fence::{FenceError, Fenced, FencingToken};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqliteSynchronous};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// With `looks_only` it is the control: it reads the fence, decides, and writes afterwards.
struct Opened {
    db: Arc<Database>,
    conn: SqliteConnection,
    looks_only: bool,
}

impl Owner for Opened {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.db.fence.raise(&mut self.conn, token).await
    }

    async fn write(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let (fence, value) = (&self.db.fence, token.epoch().get().to_string());
        if !self.looks_only {
            let work = async |tx: &mut sqlx::Transaction<'_, sqlx::Sqlite>| put(tx, "k", &value).await;
            return fence.write(&mut self.conn, from_ref(token), work).await;
        }
        match fence.highest(&mut self.conn, token.scope()).await? {
            Some(seen) if seen > token.epoch() => Err(Fenced::new(token.clone(), seen).into()),
            _ => put(&mut self.conn, "k", &value).await,
        }
    }

    async fn read(&mut self) -> String {
        texts(&mut self.conn).await["k"].clone()
    }
}

async fn owners(looks_only: bool) -> Vec<Opened> {
    let db = Arc::new(Database::new("wal").await);
    // Nobody crashes here; a raise is synced all the same.
    let options =
        options(&db.path()).synchronous(SqliteSynchronous::Normal).busy_timeout(Duration::from_secs(60));
    let mut owners = Vec::new();
    for _ in 0..OWNERS {
        let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
        put(&mut conn, "k", "0").await.unwrap();
        owners.push(Opened { db: Arc::clone(&db), conn, looks_only });
    }
    owners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_no_stale_write_of_sqlx_takes_effect_under_concurrent_raises() {
    nothing_stale(owners(false).await, 2_000).await;
}

/// `cargo test -p ringfence-fence --test sqlite -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_of_sqlx_takes_effect_in_a_hundred_thousand_tries() {
    nothing_stale(owners(false).await, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t57_t03_stale_writes_of_sqlx_take_effect_where_check_and_write_are_two_steps() {
    some_stale(async || owners(true).await, 500).await;
}
