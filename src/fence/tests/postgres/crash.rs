//! F011 and T14: what a raise has answered is on the disk, and a server that cannot promise that is refused.

use crate::database::{Database, token};
use crate::server::Server;
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;

#[tokio::test]
async fn f011_t09_a_raise_that_has_answered_survives_the_death_of_the_server() {
    let Some(server) = Server::start() else { return };
    // Nothing is written behind the back of a commit that does not wait.
    server.configure("wal_writer_delay = 10s");
    server.stopped_immediately_and_restarted();
    let db = Database::fenced(&server).await;
    let old = db.raised("prod/orders/17@33").await;
    for (epoch, restart) in
        [(34, Server::killed_and_restarted as fn(&Server)), (35, Server::stopped_immediately_and_restarted)]
    {
        let client = db.open().await;
        client.batch_execute("SET synchronous_commit = off").await.unwrap();
        db.fence.raise(&client, &token(&format!("prod/orders/17@{epoch}"))).await.unwrap();
        restart(&server);
        match db.write(&mut db.open().await, from_ref(&old), "33").await {
            Err(FenceError::Fenced(f)) => assert_eq!(f.highest().get(), epoch),
            other => panic!("{other:?}"),
        }
    }

    // Also where a write that did not wait has brought the epoch in, and the raise finds it there.
    let mut client = db.open().await;
    client.batch_execute("SET synchronous_commit = off").await.unwrap();
    let new = token("prod/orders/17@36");
    db.write(&mut client, from_ref(&new), "36").await.unwrap();
    db.fence.raise(&client, &new).await.unwrap();
    server.killed_and_restarted();
    assert_eq!(db.fence.highest(&db.open().await, new.scope()).await.unwrap(), Some(new.epoch()));
    assert_eq!(crate::database::texts(&db.open().await).await["k"], "36");
}

#[tokio::test]
async fn f011_a_raise_lifts_synchronous_commit_for_its_transaction_and_lowers_nothing() {
    let Some(db) = crate::database::fenced().await else { return };
    let mut client = db.open().await;
    for (set, within) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        client
            .batch_execute(&format!("SET synchronous_commit = {set}; SET lock_timeout = '7s'"))
            .await
            .unwrap();
        let tx = client.transaction().await.unwrap();
        tx.batch_execute("SELECT ringfence.raise('prod/orders/17@33')").await.unwrap();
        let show = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')";
        let row = tx.query_one(show, &[]).await.unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (within, "7s"), "{set}");
        tx.commit().await.unwrap();
        let row = client.query_one(show, &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), set);
    }
}

#[tokio::test]
async fn f011_t14_a_server_that_may_forget_and_a_replica_are_refused_and_named() {
    let Some(server) = Server::start() else { return };
    let db = Database::fenced(&server).await;
    let owner = db.raised("prod/orders/17@33").await;

    // A replica has the row, and knows nothing of raises that are on their way.
    let replica = server.replica();
    let elsewhere = Database::named(&replica, &db.name);
    let mut client = elsewhere.open().await;
    for error in [
        elsewhere.fence.raise(&client, &owner).await.unwrap_err(),
        elsewhere.write(&mut client, from_ref(&owner), "33").await.unwrap_err(),
        ringfence_fence::postgres::PostgresFence::install(&client, db.fence.cluster()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::NotDurable, "{error:?}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    assert_eq!(elsewhere.fence.highest(&client, owner.scope()).await.unwrap(), Some(owner.epoch()));
    drop(replica);

    let mut client = db.open().await;
    client.batch_execute("SET default_transaction_read_only = on").await.unwrap();
    assert_eq!(db.fence.raise(&client, &owner).await.unwrap_err().kind(), FenceErrorKind::NotDurable);
    assert_eq!(
        db.write(&mut client, from_ref(&owner), "33").await.unwrap_err().kind(),
        FenceErrorKind::NotDurable
    );
    client.batch_execute("SET default_transaction_read_only = off").await.unwrap();

    client.batch_execute("ALTER TABLE ringfence.fence SET UNLOGGED").await.unwrap();
    let error = db.fence.raise(&client, &owner).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::NotDurable);
    assert!(
        error.to_string().contains("ringfence.fence is unlogged") && error.to_string().contains("SET LOGGED"),
        "{error}"
    );
    client.batch_execute("ALTER TABLE ringfence.fence SET LOGGED").await.unwrap();

    server.configure("fsync = off");
    server.stopped_immediately_and_restarted();
    let mut client = db.open().await;
    let by_raise = db.fence.raise(&client, &owner).await.unwrap_err();
    let by_write = db.write(&mut client, from_ref(&owner), "33").await.unwrap_err();
    for error in [by_raise, by_write] {
        assert_eq!(error.kind(), FenceErrorKind::NotDurable);
        assert!(error.to_string().contains("fsync is off; set fsync = on"), "{error}");
    }
}

/// An unlogged table is empty after a crash: nothing is accepted then, and nothing is raised.
#[tokio::test]
async fn t07_t09_a_fence_that_a_crash_has_emptied_lets_nobody_in() {
    let Some(server) = Server::start() else { return };
    let db = Database::fenced(&server).await;
    let owner = db.raised("prod/orders/17@33").await;
    db.open().await.batch_execute("ALTER TABLE ringfence.fence SET UNLOGGED").await.unwrap();
    server.killed_and_restarted();
    let mut client = db.open().await;
    assert_eq!(
        db.write(&mut client, from_ref(&owner), "33").await.unwrap_err().kind(),
        FenceErrorKind::NotRaised
    );
    assert_eq!(db.fence.raise(&client, &owner).await.unwrap_err().kind(), FenceErrorKind::NotDurable);
}
