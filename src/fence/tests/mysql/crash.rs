//! F011 and T14: what a raise has answered is on the disk, and a server that cannot promise that is refused.

use crate::database::{Database, connect, dump, fenced, run, texts, token};
use crate::server::{Server, skipped};
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use sqlx::Connection as _;
use std::slice::from_ref;

#[tokio::test]
async fn f011_t09_a_raise_that_has_answered_survives_the_death_of_the_server() {
    let Some(mut server) = Server::start() else { return };
    let name = Database::fenced(&server).await.name;
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let db = Database::named(&server, &name);
    db.fence.raise(&mut db.open().await, &old).await.unwrap();
    db.write(&mut db.open().await, from_ref(&old), "33").await.unwrap();
    db.fence.raise(&mut db.open().await, &new).await.unwrap();
    server.killed_and_restarted(&[]);
    let db = Database::named(&server, &name);
    match db.write(&mut db.open().await, from_ref(&old), "33 again").await {
        Err(FenceError::Fenced(f)) => assert_eq!(f.highest().get(), 34),
        other => panic!("{other:?}"),
    }
    assert_eq!(texts(&mut db.open().await).await["k"], "33");
}

/// A commit that changes nothing waits for nothing: raising to an epoch that a write has brought in writes all the same.
#[tokio::test]
async fn f011_raising_to_an_epoch_that_is_there_already_writes_the_row_again() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let owner = db.raised("prod/orders/17@33").await;
    let next = token("prod/orders/17@34");
    db.write(&mut conn, from_ref(&next), "34").await.unwrap();
    for again in [&next, &next] {
        let before = dump(&mut conn).await;
        db.fence.raise(&mut conn, again).await.unwrap();
        assert_ne!(dump(&mut conn).await, before);
    }
    assert_eq!(db.fence.raise(&mut conn, &owner).await.unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[tokio::test]
async fn f011_t14_a_server_that_may_forget_and_a_replica_are_refused_and_named() {
    let Some(mut server) = Server::start() else { return };
    let name = Database::fenced(&server).await.name;
    let owner = token("prod/orders/17@33");
    let db = Database::named(&server, &name);
    let mut conn = db.open().await;
    let mut admin = connect(&server, "mysql").await;
    db.fence.raise(&mut conn, &owner).await.unwrap();
    for (setting, value, back) in [
        ("innodb_flush_log_at_trx_commit", "2", "1"),
        ("innodb_flush_log_at_trx_commit", "0", "1"),
        ("read_only", "ON", "OFF"),
    ] {
        run(&mut admin, &format!("SET GLOBAL {setting} = {value}")).await;
        let mut errors = vec![
            db.fence.raise(&mut conn, &owner).await.unwrap_err(),
            MysqlFence::install(&mut conn, db.fence.cluster()).await.unwrap_err(),
        ];
        let wrote = db.write(&mut conn, from_ref(&owner), "33").await;
        if setting == "read_only" {
            errors.push(wrote.unwrap_err());
        } else {
            // Lost together with the data or not at all.
            wrote.unwrap();
        }
        for error in errors {
            assert_eq!(error.kind(), FenceErrorKind::NotDurable, "{error:?}");
            assert!(
                error
                    .to_string()
                    .contains(&setting.replace('_', if setting == "read_only" { "-" } else { "_" })),
                "{error}"
            );
        }
        run(&mut admin, &format!("SET GLOBAL {setting} = {back}")).await;
        db.fence.raise(&mut conn, &owner).await.unwrap();
    }
    run(&mut conn, "SET SESSION TRANSACTION READ ONLY").await;
    let next = token("prod/orders/17@34");
    assert_eq!(db.write(&mut conn, &[next], "34").await.unwrap_err().kind(), FenceErrorKind::NotDurable);
    conn.close().await.unwrap();
    admin.close().await.unwrap();

    // What is in InnoDB's log and not in the binary log is taken back when the server recovers.
    server.killed_and_restarted(&["--log-bin=binary", "--server-id=1"]);
    let db = Database::named(&server, &name);
    let (mut conn, mut admin) = (db.open().await, connect(&server, "mysql").await);
    let error = db.fence.raise(&mut conn, &owner).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::NotDurable);
    assert!(error.to_string().contains("sync_binlog is 0; set sync_binlog = 1"), "{error}");
    run(&mut admin, "SET GLOBAL sync_binlog = 1").await;
    db.fence.raise(&mut conn, &owner).await.unwrap();
    db.write(&mut conn, &[owner], "33").await.unwrap();
}

/// The nodes of Galera do not see each other's locks of rows.
#[tokio::test]
async fn t14_galera_is_refused() {
    let provider = "/usr/lib/galera/libgalera_smm.so";
    if !std::path::Path::new(provider).exists() {
        skipped("Galera is not installed (Debian: galera-4), so its refusal was not tried");
        return;
    }
    let Some(server) = Server::with(&[
        "--wsrep-on=ON",
        &format!("--wsrep-provider={provider}"),
        "--wsrep-cluster-address=gcomm://",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--wsrep-provider-options=base_port=0;gmcast.listen_addr=tcp://127.0.0.1:0;ist.recv_addr=127.0.0.1:0",
    ]) else {
        return;
    };
    let db = Database::bare(&server).await;
    let on = crate::database::ask(&mut db.open().await, "SELECT CAST(@@GLOBAL.wsrep_on AS CHAR)").await;
    assert_eq!(on.as_deref(), Some("ON"));
    let error = MysqlFence::install(&mut db.open().await, db.fence.cluster()).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
    assert!(error.to_string().contains("Galera"), "{error}");
}
