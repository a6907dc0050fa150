//! A raise that has to wait for an owner which is paused in the middle of a transaction, and the raisers.

use crate::database::{Database, attempt, fenced, id, put, run, texts, token, until_waiting};
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind};
use sqlx::MySqlConnection;
use std::time::Duration;

/// An owner in the middle of a transaction: it has checked and written, and stands still.
async fn paused(db: &Database<'_>, owner: &ringfence_fence::FencingToken) -> MySqlConnection {
    let mut conn = db.open().await;
    run(&mut conn, &format!("START TRANSACTION; CALL ringfence_check('{owner}')")).await;
    run(&mut conn, "INSERT INTO texts VALUES ('k', 'late')").await;
    conn
}

#[tokio::test]
async fn a_raise_that_waits_in_vain_says_so_and_changes_nothing() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let mut old_owner = paused(&db, &old).await;
    let fence = db.fence.clone().raising_within(Duration::from_millis(1));
    let mut conn = db.open().await;
    let error = fence.raise(&mut conn, &new).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true));
    let FenceError::Blocked(blocked) = &error else { panic!("{error:?}") };
    assert_eq!(blocked.scope(), new.scope());
    // The oldest of all databases of the server, so another test's may be older.
    assert!(blocked.by().starts_with("perhaps ") && blocked.by().contains("(since 20"), "{error}");
    // Waiting has changed nothing; others are raised meanwhile, and this one when the transaction has ended.
    db.raised("prod/orders/18@34").await;
    run(&mut old_owner, "COMMIT").await;
    fence.raise(&mut conn, &new).await.unwrap();
    assert_eq!(texts(&mut conn).await["k"], "late");
}

/// `KILL` of a connection rolls back: what a paused owner had under way does not take effect. As the page says.
#[tokio::test]
async fn a_paused_owner_can_be_ended_and_nothing_of_it_takes_effect() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let mut old_owner = paused(&db, &old).await;
    let who = id(&mut old_owner).await;
    let mut conn = db.open().await;
    run(&mut conn, &format!("KILL {who}")).await;
    db.fence.raise(&mut conn, &new).await.unwrap();
    assert!(attempt(&mut old_owner, "COMMIT").await.is_err());
    assert!(texts(&mut conn).await.is_empty());
}

/// MariaDB's own limit; MySQL has none.
#[tokio::test]
async fn the_servers_own_limit_on_idle_transactions_frees_the_fence() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let mut old_owner = db.open().await;
    run(&mut old_owner, "SET SESSION idle_transaction_timeout = 1").await;
    run(&mut old_owner, &format!("START TRANSACTION; CALL ringfence_check('{old}')")).await;
    db.raised("prod/orders/17@34").await;
    assert!(attempt(&mut old_owner, "COMMIT").await.is_err());
}

#[tokio::test]
async fn b05_a_raiser_is_an_enforcing_fence_and_one_that_waits_holds_up_no_other() {
    let Some(db) = fenced().await else { return };
    let pool =
        sqlx::mysql::MySqlPoolOptions::new().max_connections(3).connect_with(db.options()).await.unwrap();
    let declared = DeclaredFence::enforced("ledger", db.fence.raiser(pool.clone()));
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    declared.raise(&old).await.unwrap();
    let mut old_owner = paused(&db, &old).await;
    let stuck = tokio::spawn({
        let (declared, new) = (declared.clone(), new.clone());
        async move { declared.raise(&new).await }
    });
    for partition in 100..120 {
        declared.raise(&token(&format!("prod/orders/{partition}@5"))).await.unwrap();
    }
    assert!(!stuck.is_finished());
    run(&mut old_owner, "COMMIT").await;
    stuck.await.unwrap().unwrap();
    assert!(matches!(declared.raise(&old).await, Err(FenceError::Fenced(_))));
    assert_eq!(declared.highest(old.scope()).await.unwrap(), Some(new.epoch()));
    pool.close().await;
    let closed = db.fence.raiser(pool);
    assert!(closed.raise(&token("prod/orders/0@35")).await.unwrap_err().is_retryable());
}

/// A connection that is lost in the middle: a check's transaction is gone with it, a raise's outcome is unknown.
#[tokio::test]
async fn a_connection_that_is_lost_is_a_storage_that_failed() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let mut old_owner = paused(&db, &old).await;
    let (mut conn, mut observer) = (db.open().await, db.open().await);
    let raising = id(&mut conn).await;
    let end = async {
        until_waiting(&mut observer, &raising).await;
        run(&mut observer, &format!("KILL {raising}")).await;
    };
    let (raised, ()) = tokio::join!(db.fence.raise(&mut conn, &new), end);
    assert_eq!(raised.unwrap_err().kind(), FenceErrorKind::Store);
    run(&mut old_owner, "ROLLBACK").await;
    // Raising again is safe.
    db.raised("prod/orders/17@34").await;
    db.fence.write(&mut db.open().await, &[new], async |tx| put(tx, "k", "34").await).await.unwrap();
}

/// Only the statement is killed, in the middle of the procedure: its transaction is not left open.
#[tokio::test]
async fn a_raise_whose_statement_is_killed_leaves_no_transaction_behind() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let mut old_owner = paused(&db, &old).await;
    let (mut conn, mut observer) = (db.open().await, db.open().await);
    let raising = id(&mut conn).await;
    let end = async {
        until_waiting(&mut observer, &raising).await;
        run(&mut observer, &format!("KILL QUERY {raising}")).await;
    };
    let pair = [token("prod/orders/16@5"), new.clone()];
    let (raised, ()) = tokio::join!(db.fence.raise_all(&mut conn, &pair), end);
    assert!(raised.unwrap_err().is_retryable());
    run(&mut old_owner, "ROLLBACK").await;
    // Were it open, this would wait for the row that the first raise has made.
    db.raised("prod/orders/16@6").await;
    db.fence.raise(&mut conn, &new).await.unwrap();
}
