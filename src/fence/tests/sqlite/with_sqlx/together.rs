//! One file, and both clients: what is raised by one is refused by the other.

use super::subject::{Database, options, put, runtime, texts};
use crate::subject::{cluster, dump, token};
use ringfence_core::ids::SessionId;
use ringfence_fence::sqlite::{SqliteFence, SqlxFence};
use ringfence_fence::{FenceError, FenceErrorKind};
use rusqlite::TransactionBehavior::Immediate;
use sqlx::{Connection as _, SqliteConnection};
use std::slice::from_ref;

#[test]
fn t09_what_one_client_has_raised_is_refused_by_the_other() {
    let runtime = runtime();
    for journal in ["wal", "delete"] {
        let db = runtime.block_on(Database::new(journal));
        let mut sync = rusqlite::Connection::open(db.path()).unwrap();
        let mut conn = runtime.block_on(db.open());
        // Each installs over what the other has made, and finds it whole.
        let fence = SqliteFence::install(&sync, &cluster("prod")).unwrap();
        runtime.block_on(SqlxFence::install(&mut conn, &cluster("prod"))).unwrap();
        let session = SessionId::new(u64::MAX).unwrap();
        let of = |epoch: u64| token(&format!("prod/orders/17@{epoch}")).held_by(session);

        fence.raise(&mut sync, &of(33)).unwrap();
        let by_sqlx = |conn: &mut SqliteConnection, epoch: u64| {
            let token = of(epoch);
            runtime.block_on(db.fence.write(conn, from_ref(&token), async |tx| put(tx, "k", "sqlx").await))
        };
        let by_rusqlite = |sync: &mut rusqlite::Connection, epoch: u64| {
            fence.write(sync, from_ref(&of(epoch)), |tx| crate::subject::put(tx, "k", "rusqlite"))
        };
        by_sqlx(&mut conn, 33).unwrap();
        by_rusqlite(&mut sync, 33).unwrap();

        runtime.block_on(db.fence.raise(&mut conn, &of(34))).unwrap();
        for refused in [by_rusqlite(&mut sync, 33), by_sqlx(&mut conn, 33), fence.raise(&mut sync, &of(33))] {
            match refused {
                Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
                other => panic!("{other:?}"),
            }
        }
        fence.raise(&mut sync, &of(35)).unwrap();
        for refused in [by_sqlx(&mut conn, 34), by_rusqlite(&mut sync, 34)] {
            assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Fenced);
        }
        // The session that one has bound is the other's too.
        let forged = token("prod/orders/17@35").held_by(SessionId::new(7).unwrap());
        let error = runtime.block_on(db.fence.raise(&mut conn, &forged)).unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::OtherSession);
        assert_eq!(
            runtime.block_on(db.fence.highest(&mut conn, forged.scope())).unwrap(),
            Some(of(35).epoch())
        );
        // And both hold one lock.
        let tx = sync.transaction_with_behavior(Immediate).unwrap();
        fence.check(&tx, &of(35)).unwrap();
        let mut impatient = runtime.block_on(db.impatient());
        assert!(runtime.block_on(db.fence.raise(&mut impatient, &of(36))).unwrap_err().is_retryable());
        tx.commit().unwrap();
        assert_eq!(runtime.block_on(texts(&mut conn))["k"], "rusqlite");
    }
}

#[test]
fn both_clients_make_the_same_tables_to_the_byte() {
    let runtime = runtime();
    let (by_sqlx, by_rusqlite) =
        (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    runtime.block_on(async {
        let mut conn = SqliteConnection::connect_with(&options(by_sqlx.path())).await.unwrap();
        sqlx::raw_sql("CREATE TABLE texts (key TEXT)").execute(&mut conn).await.unwrap();
        let fence = SqlxFence::install(&mut conn, &cluster("prod")).await.unwrap();
        fence.raise(&mut conn, &token("prod/orders/17@33")).await.unwrap();
        conn.close().await.unwrap();
    });
    let mut sync = rusqlite::Connection::open(by_rusqlite.path()).unwrap();
    sync.execute_batch("CREATE TABLE texts (key TEXT)").unwrap();
    let fence = SqliteFence::install(&sync, &cluster("prod")).unwrap();
    fence.raise(&mut sync, &token("prod/orders/17@33")).unwrap();
    let other = rusqlite::Connection::open(by_sqlx.path()).unwrap();
    let schema = |conn: &rusqlite::Connection| {
        let mut all =
            conn.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        let rows = all.query_map((), |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        rows.collect::<Vec<_>>()
    };
    assert_eq!(schema(&sync), schema(&other));
    assert_eq!(dump(&sync), dump(&other));
}
