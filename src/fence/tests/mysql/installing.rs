//! Making the fence, and what is left of it when somebody has been at its tables.

use crate::database::{Database, attempt, connect, dump, prod, put, refused, run, token};
use crate::server::shared;
use ringfence_core::ids::ClusterId;
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FenceErrorKind};
use sqlx::Connection as _;
use std::process::Stdio;
use std::slice::from_ref;

#[tokio::test]
async fn f057_several_install_at_once_and_one_cluster_wins() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let mut conn = db.open().await;
        let cluster = ClusterId::new(if number % 2 == 0 { "prod" } else { "test" }).unwrap();
        tasks.push(tokio::spawn(async move { MysqlFence::install(&mut conn, &cluster).await }));
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
    let mut admin = db.open().await;
    let user = format!("worker_{}", db.name);
    run(
        &mut admin,
        &format!("CREATE USER {user}@localhost; GRANT ALL ON {}.texts TO {user}@localhost", db.name),
    )
    .await;
    // What the head of the file lists.
    let head = MysqlFence::MIGRATION_SQL.split_once("each as GRANT EXECUTE").unwrap().0;
    let list = head.split_once("needs EXECUTE on").unwrap().1;
    for name in list
        .split(|c: char| !c.is_ascii_lowercase() && c != '_')
        .filter(|word| word.starts_with("ringfence_"))
    {
        run(&mut admin, &format!("GRANT EXECUTE ON PROCEDURE {}.{name} TO {user}@localhost", db.name)).await;
    }
    let mut worker = sqlx::MySqlConnection::connect_with(&db.options().username(&user)).await.unwrap();
    MysqlFence::install(&mut worker, &prod()).await.unwrap();
    db.fence.covers(&mut worker, "texts").await.unwrap();
    let new = token("prod/orders/17@34");
    db.fence.raise(&mut worker, &new).await.unwrap();
    assert!(matches!(db.write(&mut worker, from_ref(&owner), "33").await, Err(FenceError::Fenced(_))));
    db.write(&mut worker, from_ref(&new), "34").await.unwrap();
    assert_eq!(db.fence.highest(&mut worker, new.scope()).await.unwrap(), Some(new.epoch()));
    for forbidden in [
        "UPDATE ringfence_fence SET epoch = 1",
        "SELECT * FROM ringfence_fence LOCK IN SHARE MODE",
        "INSERT INTO ringfence_fence VALUES ('orders/18', 1, NULL, 1)",
        "CALL ringfence_force_raise('[\"prod/orders/17@9007199254740991\"]', NULL, 1)",
        "CALL ringfence_raise_within('[\"prod/orders/17@9007199254740991\"]', NULL, 1, 9007199254740991)",
        "DROP TABLE ringfence_fence",
        "DROP PROCEDURE ringfence_check",
    ] {
        assert_eq!(refused(&mut worker, forbidden).await.0, "42000", "{forbidden}");
    }
    // A temporary table of the same name that the worker makes does not stand in for the fence.
    run(&mut admin, &format!("GRANT CREATE TEMPORARY TABLES ON {}.* TO {user}@localhost", db.name)).await;
    let mut worker = sqlx::MySqlConnection::connect_with(&db.options().username(&user)).await.unwrap();
    run(&mut worker, "CREATE TEMPORARY TABLE ringfence_fence (scope VARCHAR(80), epoch BIGINT, session BIGINT, raises BIGINT)").await;
    let masked = db.write(&mut worker, &[owner], "33").await;
    assert!(masked.is_err(), "{masked:?}");
}

#[tokio::test]
async fn t17_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let mut conn = db.open().await;
    let owner = db.raised("prod/orders/17@5").await;
    run(&mut conn, "SET SESSION check_constraint_checks = 0").await;
    run(&mut conn, "DROP TRIGGER ringfence_fence_forward_only").await;
    for (column, value) in [
        ("epoch", "0"),
        ("epoch", "-3"),
        ("epoch", "9007199254740992"),
        ("epoch", "9223372036854775807"),
        ("session", "0"),
    ] {
        run(
            &mut conn,
            &format!("UPDATE ringfence_fence SET epoch = 5; UPDATE ringfence_fence SET {column} = {value}"),
        )
        .await;
        let errors = [
            db.fence.raise(&mut conn, &owner).await.unwrap_err(),
            db.fence.force_raise(&mut conn, &owner).await.unwrap_err(),
            db.write(&mut conn, from_ref(&owner), "v").await.unwrap_err(),
            db.fence.highest(&mut conn, owner.scope()).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{value}: {error:?}");
            let text = error.to_string();
            assert!(text.contains("orders/17") && text.contains(value), "{text}");
        }
    }
    // With the triggers in place it can be set right, and not backwards.
    run(&mut conn, "UPDATE ringfence_fence SET session = NULL, epoch = 9223372036854775807").await;
    run(&mut conn, "DROP PROCEDURE ringfence_revision").await;
    MysqlFence::install(&mut conn, &prod()).await.unwrap();
    run(&mut conn, "UPDATE ringfence_fence SET epoch = 5").await;
    db.fence.raise(&mut conn, &owner).await.unwrap();
    attempt(&mut conn, "UPDATE ringfence_fence SET epoch = 4").await.unwrap_err();
}

#[tokio::test]
async fn f057_a_binding_or_a_table_that_is_lost_is_not_made_anew() {
    let Some(server) = shared() else { return };
    let owner = token("prod/orders/17@5");
    for (damage, shown) in [
        ("TRUNCATE ringfence_binding", "no row"),
        (
            "DROP TRIGGER ringfence_binding_never_changes; UPDATE ringfence_binding SET cluster = 'Not A Name'",
            "Not A Name",
        ),
        ("UPDATE ringfence_binding SET format = 2", "format 2"),
        (
            "SET foreign_key_checks = 0; DROP TABLE ringfence_fence; DROP PROCEDURE ringfence_revision",
            "no table",
        ),
    ] {
        let db = Database::fenced(server).await;
        let mut conn = db.open().await;
        db.fence.raise(&mut conn, &owner).await.unwrap();
        run(&mut conn, damage).await;
        let mut errors = vec![MysqlFence::install(&mut conn, &prod()).await.unwrap_err()];
        if shown != "no table" {
            errors.push(db.fence.raise(&mut conn, &owner).await.unwrap_err());
            errors.push(db.write(&mut conn, from_ref(&owner), "v").await.unwrap_err());
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
    let mut conn = db.open().await;
    let owner = db.raised("prod/orders/17@5").await;
    let before = dump(&mut conn).await;
    // As people run it.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/mysql/migrations/0001_ringfence.sql");
    let migrate = || {
        let file = std::fs::File::open(path).unwrap();
        server.client("mariadb", &db.name).stdin(Stdio::from(file)).output().unwrap()
    };
    let output = migrate();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(dump(&mut conn).await, before);
    db.write(&mut conn, from_ref(&owner), "v").await.unwrap();

    let revision = |number: i32| {
        format!(
            "DROP PROCEDURE ringfence_revision; CREATE PROCEDURE ringfence_revision(OUT revision INT) SET revision = {number}"
        )
    };
    run(&mut conn, &revision(9)).await;
    MysqlFence::install(&mut conn, &prod()).await.unwrap();
    let output = migrate();
    assert!(String::from_utf8_lossy(&output.stderr).contains("RF007"), "{output:?}");
    // An older one is brought up to date, and the session keeps its own mode.
    run(&mut conn, &revision(0)).await;
    run(
        &mut conn,
        "DROP PROCEDURE ringfence_observe; SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    )
    .await;
    MysqlFence::install(&mut conn, &prod()).await.unwrap();
    let mode = crate::database::ask(&mut conn, "SELECT @@SESSION.sql_mode").await.unwrap();
    assert_eq!(mode, "ANSI_QUOTES,NO_BACKSLASH_ESCAPES");
    let mut tx = conn.begin().await.unwrap();
    db.fence.observe_all(&mut tx, &[token("prod/orders/17@5")]).await.unwrap();
    tx.rollback().await.unwrap();
    // Not within a transaction, which it would commit.
    let mut tx = conn.begin().await.unwrap();
    assert_eq!(MysqlFence::install(&mut tx, &prod()).await.unwrap_err().kind(), FenceErrorKind::Unfit);
}

/// Usable by a task that moves between threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_runs_in_a_task_of_its_own() {
    let Some(server) = shared() else { return };
    let db = Database::fenced(server).await;
    let owner = db.raised("prod/orders/17@5").await;
    let (mut conn, fence) = (connect(server, &db.name).await, db.fence.clone());
    let task = tokio::spawn(async move {
        let value = String::from("v");
        fence.write(&mut conn, &[owner], async |tx| put(tx, "a", &value).await).await
    });
    task.await.unwrap().unwrap();
}
