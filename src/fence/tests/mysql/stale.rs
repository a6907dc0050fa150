//! Stale writes under raises: none is accepted, and some are with the lock taken out.

use crate::controls::without_the_lock;
use crate::database::{Database, run};
use crate::server::shared;
use crate::storm::{OWNERS, Owner, nothing_stale, some_stale};
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::{MySql, MySqlConnection};
use std::slice::from_ref;

struct Connected(MysqlFence, MySqlConnection);

impl Owner for Connected {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.0.raise(&mut self.1, token).await
    }

    async fn write(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let failed = |error| FenceError::store("writing", error);
        let work = async |tx: &mut sqlx::Transaction<'_, MySql>| {
            // The pause after the check, where a write slips through that holds nothing.
            sqlx::query("DO SLEEP(0.001)").execute(&mut **tx).await.map_err(failed)?;
            let update = "UPDATE texts SET value = CAST(value AS UNSIGNED) + 1 WHERE k = 'k'";
            sqlx::query(update).execute(&mut **tx).await.map(|_| ()).map_err(failed)
        };
        self.0.write(&mut self.1, from_ref(token), work).await
    }

    async fn read(&mut self) -> String {
        let read = sqlx::query_scalar::<MySql, String>("SELECT value FROM texts WHERE k = 'k'");
        read.fetch_one(&mut self.1).await.unwrap()
    }
}

async fn owners(db: &Database<'_>) -> Vec<Connected> {
    run(&mut db.open().await, "INSERT IGNORE INTO texts VALUES ('k', '0')").await;
    let mut owners = Vec::new();
    for _ in 0..OWNERS {
        owners.push(Connected(db.fence.clone(), db.open().await));
    }
    owners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_no_stale_write_takes_effect_under_concurrent_raises() {
    let Some(server) = shared() else { return };
    nothing_stale(owners(&Database::fenced(server).await).await, 2_000).await;
}

/// `cargo test -p ringfence-fence --test mysql -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_takes_effect_in_a_hundred_thousand_tries() {
    let Some(server) = shared() else { return };
    nothing_stale(owners(&Database::fenced(server).await).await, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_without_a_lock_stale_writes_take_effect_under_concurrent_raises() {
    let Some(server) = shared() else { return };
    let db = Database::flawed(server, &without_the_lock()).await;
    some_stale(async || owners(&db).await, 500).await;
}
