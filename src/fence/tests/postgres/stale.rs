//! Stale writes under raises: none is accepted, and some are with the lock taken out.

use crate::controls::without_the_queue;
use crate::database::Database;
use crate::server::shared;
use crate::storm::{OWNERS, Owner, nothing_stale, some_stale};
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FencingToken};
use std::slice::from_ref;
use tokio_postgres::Client;

struct Connected(PostgresFence, Client);

impl Owner for Connected {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.0.raise(&self.1, token).await
    }

    async fn write(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let failed = |error| FenceError::store("writing", error);
        let own = token.epoch().get().cast_signed();
        let work = async |tx: &mut tokio_postgres::Transaction<'_>| {
            // The pause after the check, where a write slips through that holds nothing.
            tx.query("SELECT pg_sleep(0.001)", &[]).await.map_err(failed)?;
            let update = "UPDATE texts SET value = (value::bigint + $1)::text WHERE key = 'k'";
            tx.execute(update, &[&own]).await.map(|_| ()).map_err(failed)
        };
        self.0.write(&mut self.1, from_ref(token), work).await
    }

    async fn read(&mut self) -> String {
        self.1.query_one("SELECT value FROM texts WHERE key = 'k'", &[]).await.unwrap().get(0)
    }
}

async fn owners(db: &Database<'_>) -> Vec<Connected> {
    let row = "INSERT INTO texts VALUES ('k', '0') ON CONFLICT DO NOTHING";
    db.open().await.batch_execute(row).await.unwrap();
    let mut owners = Vec::new();
    for _ in 0..OWNERS {
        owners.push(Connected(db.fence.clone(), db.open().await));
    }
    owners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_no_stale_write_takes_effect_under_concurrent_raises() {
    let Some(server) = shared() else { return };
    nothing_stale(owners(&Database::fenced(server).await).await, 1_000).await;
}

/// `cargo test -p ringfence-fence --test postgres -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_takes_effect_in_a_hundred_thousand_tries() {
    let Some(server) = shared() else { return };
    nothing_stale(owners(&Database::fenced(server).await).await, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_without_a_lock_stale_writes_take_effect_under_concurrent_raises() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let client = db.open().await;
    client.batch_execute(&without_the_queue(";")).await.unwrap();
    client.batch_execute("SELECT ringfence.bind('prod')").await.unwrap();
    some_stale(async || owners(&db).await, 1_000).await;
}
