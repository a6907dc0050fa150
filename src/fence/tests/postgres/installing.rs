//! Making the fence, and what is left of it when somebody has been at its tables.

use crate::database::{Database, connect, dump, prod, put, token};
use crate::server::shared;
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;

#[tokio::test]
async fn f057_several_install_at_once_and_one_cluster_wins() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let client = db.open().await;
        let mut conn = db.open_sqlx().await;
        let cluster =
            ringfence_core::ids::ClusterId::new(if number % 2 == 0 { "prod" } else { "test" }).unwrap();
        tasks.push(tokio::spawn(async move {
            if number % 4 < 2 {
                PostgresFence::install(&client, &cluster).await
            } else {
                PostgresFence::install(&mut conn, &cluster).await
            }
        }));
    }
    let mut bound = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(fence) => bound.push(fence.cluster().clone()),
            Err(FenceError::WrongCluster { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    bound.dedup();
    assert_eq!(bound.len(), 1, "{bound:?}");
}

#[tokio::test]
async fn a_worker_needs_no_right_to_the_tables_and_cannot_take_the_fence_back() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let owner = db.raised("prod/orders/17@33").await;
    let admin = db.open().await;
    let role = format!("worker_{}", db.name);
    admin
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT ALL ON texts TO {role}; GRANT USAGE ON SCHEMA ringfence TO {role};
             GRANT EXECUTE ON FUNCTION ringfence.bind, ringfence.check, ringfence.check_all, ringfence.observe,
                 ringfence.raise, ringfence.raise_all, ringfence.highest, ringfence.blockers,
                 ringfence.revision TO {role}"
        ))
        .await
        .unwrap();
    let mut worker = db.open().await;
    worker.batch_execute(&format!("SET SESSION AUTHORIZATION {role}")).await.unwrap();
    PostgresFence::install(&worker, &prod()).await.unwrap();
    db.fence.raise(&worker, &token("prod/orders/17@34")).await.unwrap();
    assert!(matches!(db.write(&mut worker, &[owner], "33").await, Err(FenceError::Fenced(_))));
    db.write(&mut worker, &[token("prod/orders/17@34")], "34").await.unwrap();
    for forbidden in [
        "UPDATE ringfence.fence SET epoch = 1",
        "SELECT * FROM ringfence.fence FOR SHARE",
        "INSERT INTO ringfence.fence VALUES ('orders/18', 1)",
        "SELECT ringfence.force_raise('prod/orders/17@9007199254740991')",
        "SELECT ringfence.end_blockers('orders/17')",
        "SELECT ringfence.decide('prod', 'orders/17', 9007199254740991, NULL, true, 9007199254740991)",
        "SELECT ringfence.raise_within('{prod/orders/17@9007199254740991}', NULL, 1, 9007199254740991)",
    ] {
        let refused = worker.batch_execute(forbidden).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{forbidden}");
    }
    // A table of the same name that the worker makes does not stand in for the fence.
    worker
        .batch_execute(
            "CREATE TEMP TABLE fence (scope text, epoch bigint, session bigint);
             CREATE TEMP TABLE binding (one boolean, format integer, cluster text);
             SET search_path = pg_temp, public",
        )
        .await
        .unwrap();
    assert!(matches!(db.fence.raise(&worker, &token("prod/orders/17@33")).await, Err(FenceError::Fenced(_))));
}

#[tokio::test]
async fn t17_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let mut client = db.open().await;
    let owner = db.raised("prod/orders/17@5").await;
    client
        .batch_execute(
            "ALTER TABLE ringfence.fence DROP CONSTRAINT fence_epoch_check, DROP CONSTRAINT fence_session_check,
                 DISABLE TRIGGER forward_only",
        )
        .await
        .unwrap();
    for (column, value) in [
        ("epoch", "0"),
        ("epoch", "-3"),
        ("epoch", "9007199254740992"),
        ("epoch", "9223372036854775807"),
        ("session", "0"),
    ] {
        let damage =
            format!("UPDATE ringfence.fence SET epoch = 5; UPDATE ringfence.fence SET {column} = {value}");
        client.batch_execute(&damage).await.unwrap();
        let errors = [
            db.fence.raise(&client, &owner).await.unwrap_err(),
            db.fence.force_raise(&client, &owner).await.unwrap_err(),
            db.write(&mut client, from_ref(&owner), "v").await.unwrap_err(),
            db.fence.highest(&client, owner.scope()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{value}: {error}");
            let text = error.to_string();
            assert!(text.contains("orders/17") && text.contains(value), "{text}");
        }
    }
    // With the triggers in place it can be set right, and not backwards.
    client
        .batch_execute(
            "UPDATE ringfence.fence SET session = NULL, epoch = 9223372036854775807;
             ALTER TABLE ringfence.fence ENABLE ALWAYS TRIGGER forward_only;
             UPDATE ringfence.fence SET epoch = 5",
        )
        .await
        .unwrap();
    db.fence.raise(&client, &owner).await.unwrap();
    client.batch_execute("UPDATE ringfence.fence SET epoch = 4").await.unwrap_err();
}

#[tokio::test]
async fn f057_a_binding_or_a_table_that_is_lost_is_not_made_anew() {
    let Some(server) = shared() else { return };
    let owner = token("prod/orders/17@5");
    for (damage, shown) in [
        ("ALTER TABLE ringfence.binding DISABLE TRIGGER USER; DELETE FROM ringfence.binding", "no row"),
        (
            "ALTER TABLE ringfence.binding DISABLE TRIGGER USER; UPDATE ringfence.binding SET cluster = 'Not A Name'",
            "Not A Name",
        ),
        ("UPDATE ringfence.binding SET format = 2", "format 2"),
        ("DROP TABLE ringfence.fence; DROP FUNCTION ringfence.revision", "no table"),
    ] {
        let db = Database::fenced(server).await;
        let mut client = db.open().await;
        db.fence.raise(&client, &owner).await.unwrap();
        client.batch_execute(damage).await.unwrap();
        let mut errors = vec![PostgresFence::install(&client, &prod()).await.unwrap_err()];
        if shown != "no table" {
            errors.push(db.fence.raise(&client, &owner).await.unwrap_err());
            errors.push(db.write(&mut client, from_ref(&owner), "v").await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{damage}: {error:?}");
            assert!(error.to_string().contains(shown), "{error}");
        }
    }
}

#[tokio::test]
async fn the_migration_runs_again_and_again_and_refuses_to_go_back() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let mut client = db.open().await;
    let owner = db.raised("prod/orders/17@5").await;
    let before = dump(&client).await;
    // As psql runs it, and as a tool does that has opened the transaction itself.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres/migrations/0001_ringfence.sql");
    let mut psql = server.psql(&db.name);
    let file = std::fs::File::open(path).unwrap();
    let output = psql.args(["-1", "-f", "-"]).stdin(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tx = client.transaction().await.unwrap();
    tx.batch_execute(PostgresFence::MIGRATION_SQL).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(dump(&client).await, before);
    db.write(&mut client, &[owner], "v").await.unwrap();

    let newer = "CREATE OR REPLACE FUNCTION ringfence.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 9'";
    client.batch_execute(newer).await.unwrap();
    PostgresFence::install(&client, &prod()).await.unwrap();
    let refused = client.batch_execute(PostgresFence::MIGRATION_SQL).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "RF007");
    // An older one is brought up to date.
    let older = "CREATE OR REPLACE FUNCTION ringfence.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 0';
                 DROP FUNCTION ringfence.observe";
    client.batch_execute(older).await.unwrap();
    PostgresFence::install(&client, &prod()).await.unwrap();
    let tx = client.transaction().await.unwrap();
    db.fence.observe_all(&tx, &[token("prod/orders/17@5")]).await.unwrap();
}

/// Both calls are usable by a task that moves between threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_runs_in_a_task_of_its_own_with_either_client() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let owner = db.raised("prod/orders/17@5").await;
    let (mut client, mut conn, fence) =
        (connect(server, &db.name).await, db.open_sqlx().await, db.fence.clone());
    let one = {
        let (fence, owner) = (fence.clone(), owner.clone());
        tokio::spawn(async move {
            let value = String::from("v");
            fence.write(&mut client, &[owner], async |tx| put(tx, "a", &value).await).await
        })
    };
    let two = tokio::spawn(async move {
        fence
            .write(&mut conn, &[owner], async |tx| {
                sqlx::query("INSERT INTO texts VALUES ('b', 'v')")
                    .execute(&mut **tx)
                    .await
                    .map(|_| ())
                    .map_err(|error| FenceError::store("writing", error))
            })
            .await
    });
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    assert_eq!(crate::database::texts(&db.open().await).await.len(), 2);
}
