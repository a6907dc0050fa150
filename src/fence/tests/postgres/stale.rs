//! Stale writes under raises: none is accepted, and some are with the lock taken out.

use crate::controls::without_the_queue;
use crate::database::{Database, token};
use crate::server::shared;
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FencingToken};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::Client;

const WRITERS: u64 = 3;

/// A new owner comes again and again: it raises, and reads what is there. The writers of all the earlier ones go on; one of
/// them is taken for stale when it commits under an epoch below one that was raised before it checked, or when what a new
/// owner has read after its raise is changed by somebody else.
///
/// Answers how many tries were made and how many stale ones took effect.
async fn storm(db: &Database<'_>, partition: u32, tries: u64) -> (u64, u64) {
    let raised = Arc::new(AtomicU64::new(1));
    let tried = Arc::new(AtomicU64::new(0));
    let token_of = move |epoch: u64| token(&format!("prod/orders/{partition}@{epoch}"));
    db.raised(&format!("prod/orders/{partition}@1")).await;
    db.open()
        .await
        .batch_execute("INSERT INTO texts VALUES ('k', '0') ON CONFLICT DO NOTHING")
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for number in 0..WRITERS {
        let (raised, tried, fence) = (Arc::clone(&raised), Arc::clone(&tried), db.fence.clone());
        let mut client = db.open().await;
        tasks.push(tokio::spawn(async move {
            let mut accepted = 0;
            while tried.load(Ordering::Relaxed) < tries {
                // An owner of a while ago, or the one that is just being replaced.
                let before = raised.load(Ordering::SeqCst);
                let own = before.saturating_sub(number).max(1);
                if own < before {
                    tried.fetch_add(1, Ordering::Relaxed);
                }
                match write(&fence, &mut client, &token_of(own), own).await {
                    Ok(()) if own < before => accepted += 1,
                    Ok(()) | Err(FenceError::Fenced(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            accepted
        }));
    }
    let owner = {
        let (raised, tried, fence) = (Arc::clone(&raised), Arc::clone(&tried), db.fence.clone());
        let client = db.open().await;
        async move {
            let mut changed = 0;
            let mut epoch = 1;
            while tried.load(Ordering::Relaxed) < tries {
                epoch += 1;
                fence.raise(&client, &token_of(epoch)).await.unwrap();
                // No writer knows of this epoch yet, so nobody may write until it is told.
                let read = "SELECT value FROM texts WHERE key = 'k'";
                let first: String = client.query_one(read, &[]).await.unwrap().get(0);
                for _ in 0..20 {
                    let again: String = client.query_one(read, &[]).await.unwrap().get(0);
                    if again != first {
                        changed += 1;
                        break;
                    }
                }
                raised.store(epoch, Ordering::SeqCst);
            }
            changed
        }
    };
    let mut accepted = tokio::spawn(owner).await.unwrap();
    for writer in tasks {
        accepted += writer.await.unwrap();
    }
    (tried.load(Ordering::Relaxed), accepted)
}

async fn write(
    fence: &PostgresFence,
    client: &mut Client,
    token: &FencingToken,
    own: u64,
) -> Result<(), FenceError> {
    fence
        .write(client, from_ref(token), async |tx| {
            // The pause after the check, where a write slips through that holds nothing.
            tx.query("SELECT pg_sleep(0.001)", &[])
                .await
                .map_err(|error| FenceError::store("pausing", error))?;
            let update = "UPDATE texts SET value = (value::bigint + $1)::text WHERE key = 'k'";
            let done = tx.execute(update, &[&own.cast_signed()]).await;
            done.map(|_| ()).map_err(|error| FenceError::store("writing", error))
        })
        .await
}

async fn nothing_stale(tries: u64) {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let (tried, accepted) = storm(&db, 17, tries).await;
    println!("{tried} stale writes tried under raises, {accepted} took effect");
    assert!(tried >= tries);
    assert_eq!(accepted, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_no_stale_write_takes_effect_under_concurrent_raises() {
    nothing_stale(1_000).await;
}

/// `cargo test -p ringfence-fence --test postgres -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_takes_effect_in_a_hundred_thousand_tries() {
    nothing_stale(100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_without_a_lock_stale_writes_take_effect_under_concurrent_raises() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let client = db.open().await;
    client.batch_execute(&without_the_queue(";")).await.unwrap();
    client.batch_execute("SELECT ringfence.bind('prod')").await.unwrap();
    let mut tried = 0;
    // The first thousand have done on every machine so far; a machine may be unlucky.
    for round in 0..20 {
        let (some, accepted) = storm(&db, round, 1_000).await;
        tried += some;
        if accepted > 0 {
            println!("{tried} stale writes tried under raises without a lock, {accepted} took effect");
            return;
        }
    }
    panic!("in {tried} tries none took effect: this control controls nothing");
}
