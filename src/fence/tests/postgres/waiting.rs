//! A raise that has to wait for an owner which is paused in the middle of a transaction, and the raisers.

use crate::database::{Database, fenced, pid, put, texts, token, until, until_waiting};
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

const SOON: Duration = Duration::from_millis(50);

/// An owner in the middle of a transaction: it has checked and written, and stands still.
async fn paused(db: &Database<'_>, owner: &ringfence_fence::FencingToken) -> Client {
    let client = db.open().await;
    client
        .batch_execute("SET application_name = 'ledger'; BEGIN; INSERT INTO texts VALUES ('k', 'late')")
        .await
        .unwrap();
    client.batch_execute(&format!("SELECT ringfence.check('{owner}')")).await.unwrap();
    client
}

#[tokio::test]
async fn a_raise_that_waits_in_vain_says_who_is_in_its_way_and_since_when() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let old_owner = paused(&db, &old).await;
    let fence = db.fence.clone().raising_within(SOON);
    let (client, mut conn) = (db.open().await, db.open_sqlx().await);
    for error in
        [fence.raise(&client, &new).await.unwrap_err(), fence.raise(&mut conn, &new).await.unwrap_err()]
    {
        assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true));
        let FenceError::Blocked(blocked) = &error else { panic!("{error:?}") };
        assert_eq!(blocked.scope(), new.scope());
        let who = format!("pid {} (idle in transaction, in a transaction since 20", pid(&old_owner).await);
        assert!(error.to_string().contains(&who), "{error}");
        assert!(error.to_string().contains("user postgres, application 'ledger'"), "{error}");
    }
    // Waiting has changed nothing; others are raised meanwhile, and this one when the transaction has ended.
    db.raised("prod/orders/18@34").await;
    old_owner.batch_execute("COMMIT").await.unwrap();
    fence.raise(&client, &new).await.unwrap();
    assert_eq!(texts(&client).await["k"], "late");
}

#[tokio::test]
async fn a_raise_may_end_who_is_in_its_way_and_nothing_of_them_takes_effect() {
    let Some(db) = fenced().await else { return };
    let (one, two) = (db.raised("prod/orders/1@33").await, db.raised("prod/orders/2@33").await);
    let other = db.raised("prod/orders/3@33").await;
    let owners = [paused(&db, &one).await];
    let second = db.open().await;
    second.batch_execute(&format!("BEGIN; SELECT ringfence.check('{two}')")).await.unwrap();
    let bystander = db.open().await;
    bystander.batch_execute(&format!("BEGIN; SELECT ringfence.check('{other}')")).await.unwrap();

    let fence = db.fence.clone().raising_within(SOON).ending_blockers();
    let client = db.open().await;
    fence.raise_all(&client, &[token("prod/orders/1@34"), token("prod/orders/2@34")]).await.unwrap();
    for owner in owners.iter().chain([&second]) {
        assert!(owner.batch_execute("COMMIT").await.is_err());
    }
    assert!(texts(&client).await.is_empty());
    bystander.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn the_servers_own_limit_on_idle_transactions_frees_the_fence() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let old_owner = db.open().await;
    old_owner.batch_execute("SET idle_in_transaction_session_timeout = '100ms'; BEGIN").await.unwrap();
    old_owner.batch_execute(&format!("SELECT ringfence.check('{old}')")).await.unwrap();
    db.raised("prod/orders/17@34").await;
    assert!(old_owner.batch_execute("COMMIT").await.is_err());
}

#[tokio::test]
async fn a_prepared_transaction_is_named_and_holds_until_somebody_ends_it() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let old_owner = paused(&db, &old).await;
    old_owner.batch_execute(&format!("PREPARE TRANSACTION '{}'", db.name)).await.unwrap();
    let client = db.open().await;
    let fence = db.fence.clone().raising_within(SOON).ending_blockers();
    let error = fence.raise(&client, &new).await.unwrap_err();
    assert!(error.to_string().contains("prepared transaction"), "{error}");
    old_owner.batch_execute(&format!("ROLLBACK PREPARED '{}'", db.name)).await.unwrap();
    fence.raise(&client, &new).await.unwrap();
}

/// Somebody who locks the row without the functions is waited for as well, and cannot be named.
#[tokio::test]
async fn a_row_that_is_locked_by_hand_is_waited_for_too() {
    let Some(db) = fenced().await else { return };
    let (_, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let other = db.open().await;
    other.batch_execute("BEGIN; SELECT * FROM ringfence.fence FOR SHARE").await.unwrap();
    let client = db.open().await;
    let fence = db.fence.clone().raising_within(SOON);
    let error = fence.raise(&client, &new).await.unwrap_err();
    assert!(matches!(error, FenceError::Blocked(_)) && error.to_string().contains("by itself"), "{error}");
}

#[tokio::test]
async fn b05_a_raiser_is_an_enforcing_fence_and_one_that_waits_holds_up_no_other() {
    let Some(db) = fenced().await else { return };
    let pool =
        sqlx::postgres::PgPoolOptions::new().max_connections(3).connect_with(db.options()).await.unwrap();
    let connect = {
        let (server, name) = (db.server, db.name.clone());
        move || {
            let name = name.clone();
            async move { Ok::<_, FenceError>(Arc::new(crate::database::connect(server, &name).await)) }
        }
    };
    let observer = db.open().await;
    let raisers: [DeclaredFence; 2] = [
        DeclaredFence::enforced("ledger", db.fence.tokio_raiser(connect)),
        DeclaredFence::enforced("ledger", db.fence.sqlx_raiser(pool.clone())),
    ];
    for (round, declared) in raisers.into_iter().enumerate() {
        assert_eq!(declared.enforcement(), Enforcement::Enforced);
        let (old, new) =
            (token(&format!("prod/orders/{round}@33")), token(&format!("prod/orders/{round}@34")));
        declared.raise(&old).await.unwrap();
        let old_owner = db.open().await;
        old_owner.batch_execute(&format!("BEGIN; SELECT ringfence.check('{old}')")).await.unwrap();
        let stuck = tokio::spawn({
            let (declared, new) = (declared.clone(), new.clone());
            async move { declared.raise(&new).await }
        });
        until(&observer, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))").await;
        let others =
            (100..120).map(|p| token(&format!("prod/orders/{}@5", 1_000 * round + p))).collect::<Vec<_>>();
        for other in &others {
            declared.raise(other).await.unwrap();
        }
        assert!(!stuck.is_finished());
        old_owner.batch_execute("COMMIT").await.unwrap();
        stuck.await.unwrap().unwrap();
        assert!(matches!(declared.raise(&old).await, Err(FenceError::Fenced(_))));
        assert_eq!(declared.highest(old.scope()).await.unwrap(), Some(new.epoch()));
    }
    pool.close().await;
    let closed = db.fence.sqlx_raiser(pool);
    assert!(closed.raise(&token("prod/orders/0@35")).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_raise_inside_a_transaction_of_sqlx_is_an_error_and_leaves_it_alone() {
    use sqlx::Connection as _;
    let Some(db) = fenced().await else { return };
    let mut conn = db.open_sqlx().await;
    let mut tx = conn.begin().await.unwrap();
    sqlx::query("INSERT INTO texts VALUES ('k', 'v')").execute(&mut *tx).await.unwrap();
    let error = db.fence.raise(&mut *tx, &token("prod/orders/17@33")).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
    assert_eq!(db.fence.highest(&mut *tx, token("prod/orders/17@33").scope()).await.unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(texts(&db.open().await).await["k"], "v");
}

/// A connection that is lost in the middle: a check's transaction is gone with it, a raise's outcome is unknown.
#[tokio::test]
async fn a_connection_that_is_lost_is_a_storage_that_failed() {
    let Some(db) = fenced().await else { return };
    let (old, new) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let old_owner = paused(&db, &old).await;
    let (client, observer) = (db.open().await, db.open().await);
    let raising = pid(&client).await;
    let end = async {
        until_waiting(&observer, raising).await;
        observer.batch_execute(&format!("SELECT pg_terminate_backend({raising})")).await.unwrap();
    };
    let (raised, ()) = tokio::join!(db.fence.raise(&client, &new), end);
    assert_eq!(raised.unwrap_err().kind(), FenceErrorKind::Store);
    old_owner.batch_execute("ROLLBACK").await.unwrap();
    // Raising again is safe.
    db.fence.raise(&db.open().await, &new).await.unwrap();
    let mut client = db.open().await;
    db.fence.write(&mut client, &[new], async |tx| put(tx, "k", "34").await).await.unwrap();
}
