//! Stale writes under raises, through sqlx.

use super::subject::{Database, options, put, texts};
use crate::stale::WRITERS;
use crate::subject::token;
use ringfence_fence::FenceError;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqliteSynchronous};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

async fn open(db: &Database) -> SqliteConnection {
    // Nobody crashes here; a raise is synced all the same.
    let options =
        options(&db.path()).synchronous(SqliteSynchronous::Normal).busy_timeout(Duration::from_secs(60));
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// As `crate::stale::storm`. Without the check's lock, `looks_only`, some take effect.
async fn storm(tries: u64, looks_only: bool) -> (u64, u64) {
    let db = Arc::new(Database::new("wal").await);
    let token_of = |epoch: u64| token(&format!("prod/orders/17@{epoch}"));
    let (raised, tried) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let mut conn = open(&db).await;
    db.fence.raise(&mut conn, &token_of(1)).await.unwrap();
    put(&mut conn, "k", "0").await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..WRITERS {
        let (db, raised, tried) = (Arc::clone(&db), Arc::clone(&raised), Arc::clone(&tried));
        tasks.push(tokio::spawn(async move {
            let (mut conn, mut accepted) = (open(&db).await, 0);
            while tried.load(Ordering::Relaxed) < tries {
                // An owner of a while ago, or the one that is just being replaced.
                let before = raised.load(Ordering::SeqCst);
                let own = before.saturating_sub(number).max(1);
                if own < before {
                    tried.fetch_add(1, Ordering::Relaxed);
                }
                let (token, value) = (token_of(own), own.to_string());
                let wrote = if looks_only {
                    let seen = db.fence.highest(&mut conn, token.scope()).await.unwrap();
                    match seen {
                        Some(seen) if seen > token.epoch() => continue,
                        _ => put(&mut conn, "k", &value).await,
                    }
                } else {
                    db.fence.write(&mut conn, from_ref(&token), async |tx| put(tx, "k", &value).await).await
                };
                match wrote {
                    Ok(()) if own < before => accepted += 1,
                    Ok(()) | Err(FenceError::Fenced(_) | FenceError::Busy { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            accepted
        }));
    }
    let (mut accepted, mut epoch) = (0, 1);
    while tried.load(Ordering::Relaxed) < tries {
        epoch += 1;
        db.fence.raise(&mut conn, &token_of(epoch)).await.unwrap();
        // No writer knows of this epoch yet, so nobody may write until it is told.
        let first = texts(&mut conn).await;
        for _ in 0..20 {
            if texts(&mut conn).await != first {
                accepted += 1;
                break;
            }
        }
        raised.store(epoch, Ordering::SeqCst);
    }
    for writer in tasks {
        accepted += writer.await.unwrap();
    }
    (tried.load(Ordering::Relaxed), accepted)
}

async fn nothing_stale(tries: u64) {
    let (tried, accepted) = storm(tries, false).await;
    println!(
        "{tried} stale writes tried under raises, {accepted} took effect; nothing is drawn, so there is no seed"
    );
    assert!(tried >= tries);
    assert_eq!(accepted, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_no_stale_write_of_sqlx_takes_effect_under_concurrent_raises() {
    nothing_stale(2_000).await;
}

/// `cargo test -p ringfence-fence --test sqlite -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn t03_no_stale_write_of_sqlx_takes_effect_in_a_hundred_thousand_tries() {
    nothing_stale(100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t57_t03_stale_writes_of_sqlx_take_effect_where_check_and_write_are_two_steps() {
    let mut tried = 0;
    for _ in 0..20 {
        let (some, accepted) = storm(500, true).await;
        tried += some;
        if accepted > 0 {
            println!("{tried} stale writes tried under raises in two steps, {accepted} took effect");
            return;
        }
    }
    panic!("in {tried} tries none took effect: this control controls nothing");
}
