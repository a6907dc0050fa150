//! What is particular to sqlx.

use super::subject::{Database, options, put, run, runtime, texts};
use crate::subject::{cluster, token};
use ringfence_core::ids::{Epoch, SessionId};
use ringfence_fence::sqlite::SqlxFence;
use ringfence_fence::{
    DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly,
    Observed,
};
use sqlx::{Connection as _, Sqlite, SqliteConnection};
use std::slice::from_ref;
use std::time::Duration;

async fn write(
    db: &Database,
    conn: &mut SqliteConnection,
    token: &FencingToken,
    value: &str,
) -> Result<(), FenceError> {
    db.fence.write(conn, from_ref(token), async |tx| put(tx, "k", value).await).await
}

async fn synchronous(conn: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar::<Sqlite, i64>("PRAGMA synchronous").fetch_one(conn).await.unwrap()
}

const ENDS: &str = "INSERT OR ROLLBACK INTO texts (key, value) VALUES ('same', '2')";

#[tokio::test]
async fn f049_a_transaction_that_a_statement_has_ended_is_told_from_a_commit_and_takes_no_check() {
    let db = Database::new("wal").await;
    let mut a = db.open().await;
    let owner = token("prod/orders/17@33");
    db.fence.raise(&mut a, &owner).await.unwrap();
    let wrote = db.fence.write(&mut a, from_ref(&owner), async |tx| {
        put(tx, "same", "1").await?;
        sqlx::query(ENDS).execute(&mut **tx).await.unwrap_err();
        put(tx, "k", "on its own").await
    });
    let error = wrote.await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store, "{error:?}");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("OR ROLLBACK"), "{error:?}");

    let mut tx = a.begin_with("BEGIN IMMEDIATE").await.unwrap();
    put(&mut tx, "same", "1").await.unwrap();
    sqlx::query(ENDS).execute(&mut *tx).await.unwrap_err();
    let error = db.fence.check(&mut tx, &owner).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
    tx.rollback().await.unwrap();
    // Where there is a transaction, asking has ended nothing in it.
    let mut tx = a.begin().await.unwrap();
    put(&mut tx, "before", "1").await.unwrap();
    db.fence.check(&mut tx, &owner).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(texts(&mut a).await.into_keys().collect::<Vec<_>>(), ["k"]);
}

/// For sqlx, a transaction that ended by itself is open until a rollback has worked, and until then it begins no other.
#[tokio::test]
async fn a_connection_whose_transaction_a_statement_or_a_full_disk_has_ended_goes_on() {
    let db = Database::new("delete").await;
    let mut a = db.open().await;
    let owner = token("prod/orders/17@33");
    db.fence.raise(&mut a, &owner).await.unwrap();
    for passes_on in [false, true] {
        let wrote = db.fence.write(&mut a, from_ref(&owner), async |tx| {
            put(tx, "same", "1").await?;
            let ended = sqlx::query(ENDS).execute(&mut **tx).await.unwrap_err();
            if passes_on { Err(FenceError::store("writing", ended)) } else { Ok(()) }
        });
        assert_eq!(wrote.await.unwrap_err().kind(), FenceErrorKind::Store);
        write(&db, &mut a, &owner, "33").await.unwrap();
        db.fence.raise(&mut a, &owner).await.unwrap();
    }
    run(&mut a, "PRAGMA max_page_count = 1").await;
    write(&db, &mut a, &owner, &"x".repeat(1 << 20)).await.unwrap_err();
    run(&mut a, "PRAGMA max_page_count = 1000000").await;
    write(&db, &mut a, &owner, "34").await.unwrap();
    db.fence.raise(&mut a, &owner).await.unwrap();
}

#[tokio::test]
async fn t03_the_check_holds_the_write_lock_even_in_a_deferred_transaction_and_when_it_writes_nothing() {
    for journal in ["wal", "delete"] {
        let db = Database::new(journal).await;
        let (mut a, mut b) = (db.open().await, db.impatient().await);
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.fence.raise(&mut a, &old).await.unwrap();

        let mut tx = a.begin().await.unwrap();
        db.fence.check(&mut tx, &old).await.unwrap();
        let error = db.fence.raise(&mut b, &new).await.unwrap_err();
        assert!(error.is_retryable() && !error.is_refusal(), "{journal}: {error:?}");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("locked"));
        put(&mut tx, "k", "33").await.unwrap();
        tx.commit().await.unwrap();

        db.fence.raise(&mut b, &new).await.unwrap();
        assert_eq!(texts(&mut b).await["k"], "33");
        let mut tx = a.begin().await.unwrap();
        assert_eq!(db.fence.check(&mut tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

#[tokio::test]
async fn t03_a_deferred_transaction_that_has_read_an_older_state_is_told_to_run_again() {
    let db = Database::new("wal").await;
    let (mut a, mut b) = (db.open().await, db.open().await);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut a, &old).await.unwrap();

    let mut tx = a.begin().await.unwrap();
    assert!(texts(&mut tx).await.is_empty());
    // Were the check made on what this transaction sees, 33 would still be the highest.
    db.fence.raise(&mut b, &new).await.unwrap();
    let error = db.fence.check(&mut tx, &old).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (FenceErrorKind::Busy, true), "{error}");
    tx.rollback().await.unwrap();
    let mut tx = a.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(db.fence.check(&mut tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[tokio::test]
async fn t13_one_of_two_partitions_moves_in_the_middle_and_nothing_is_applied() {
    let db = Database::new("wal").await;
    let mut conn = db.open().await;
    let (one, two, moved) = (token("prod/orders/1@5"), token("prod/orders/2@5"), token("prod/orders/2@6"));
    db.fence.raise_all(&mut conn, &[one.clone(), two.clone()]).await.unwrap();
    db.fence.write(&mut conn, &[one, two.clone()], async |tx| put(tx, "k", "5").await).await.unwrap();
    db.fence.raise(&mut conn, &moved).await.unwrap();
    let newer = token("prod/orders/1@9");
    for tokens in [[newer.clone(), two.clone()], [two, newer.clone()]] {
        // The user's transaction goes on after the refusal, and commits: the fence at least has remembered nothing.
        let mut tx = conn.begin().await.unwrap();
        match db.fence.check_all(&mut tx, &tokens).await {
            Err(FenceError::Fenced(f)) => assert_eq!(f.scope(), moved.scope()),
            other => panic!("{other:?}"),
        }
        tx.commit().await.unwrap();
        let seen = db.fence.highest(&mut conn, newer.scope()).await.unwrap();
        assert_eq!(seen.map(Epoch::get), Some(5));
    }
}

#[tokio::test]
async fn f005_the_default_refuses_and_observing_has_its_own_name() {
    let db = Database::new("wal").await;
    let mut conn = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &new).await.unwrap();
    assert!(matches!(write(&db, &mut conn, &old, "33").await, Err(FenceError::Fenced(_))));
    let unstamped = db.fence.write(&mut conn, &[], async |tx| put(tx, "k", "nobody's").await).await;
    assert!(matches!(unstamped, Err(FenceError::Unstamped)));
    assert!(texts(&mut conn).await.is_empty());

    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let mut tx = conn.begin().await.unwrap();
    let answer = observing.fence().check(&mut tx, &old).await;
    assert!(matches!(observing.observe(|_| answer).unwrap(), Observed::WouldRefuse(FenceError::Fenced(_))));
    put(&mut tx, "k", "33").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((observing.counts().would_refuse, texts(&mut conn).await.len()), (1, 1));
}

#[tokio::test]
async fn f009_a_call_that_is_dropped_half_way_leaves_nothing_behind_that_stops_the_next() {
    let db = Database::new("wal").await;
    let (mut a, mut b) = (db.open().await, db.open().await);
    let (owner, next) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut a, &owner).await.unwrap();
    let (started, mut starts) = tokio::sync::mpsc::channel(1);
    let stuck = db.fence.write(&mut a, from_ref(&owner), async |tx| {
        put(tx, "k", "never").await?;
        started.send(()).await.unwrap();
        std::future::pending::<Result<(), FenceError>>().await
    });
    tokio::select! {
        _ = stuck => panic!("it never ends"),
        _ = starts.recv() => {}
    }
    // The rollback is on its way; a raise that finds the lock held waits for it.
    db.fence.raise(&mut b, &next).await.unwrap();
    assert!(texts(&mut b).await.is_empty());
    // A raise that is dropped as soon as it has begun: the connection goes on, and so does the fence.
    for _ in 0..20 {
        let raise = db.fence.raise(&mut b, &next);
        tokio::select! {
            biased;
            () = std::future::ready(()) => {}
            raised = raise => panic!("not even asked: {raised:?}"),
        }
        let begun = tokio::time::timeout(Duration::from_micros(200), db.fence.raise(&mut b, &next)).await;
        drop(begun);
        db.fence.raise(&mut b, &next).await.unwrap();
        write(&db, &mut b, &next, "34").await.unwrap();
    }
    assert!(matches!(write(&db, &mut a, &owner, "33").await, Err(FenceError::Fenced(_))));
}

#[tokio::test]
async fn f011_a_raise_runs_at_extra_and_the_setting_comes_back_also_after_a_refusal() {
    for (journal, setting) in
        [("delete", 2), ("truncate", 1), ("persist", 1), ("wal", 1), ("wal", 2), ("wal", 3)]
    {
        let db = Database::new(journal).await;
        let mut conn = db.open().await;
        run(&mut conn, &format!("PRAGMA synchronous = {setting}")).await;
        // What the setting is while a row of the fence is written.
        run(
            &mut conn,
            "CREATE TABLE seen (synchronous); CREATE TRIGGER look AFTER INSERT ON ringfence_fence
             BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END",
        )
        .await;
        db.fence.raise(&mut conn, &token("prod/orders/17@34")).await.unwrap();
        let seen =
            sqlx::query_scalar::<Sqlite, i64>("SELECT synchronous FROM seen").fetch_all(&mut conn).await;
        assert_eq!(seen.unwrap(), [3], "{journal} {setting}");
        assert_eq!(synchronous(&mut conn).await, setting);
        db.fence.raise(&mut conn, &token("prod/orders/17@33")).await.unwrap_err();
        assert_eq!(synchronous(&mut conn).await, setting);
    }
}

#[tokio::test]
async fn f011_settings_that_lose_the_database_are_refused_and_named() {
    let db = Database::new("delete").await;
    let owner = token("prod/orders/17@5");
    db.fence.raise(&mut db.open().await, &owner).await.unwrap();
    for (pragma, value) in [("synchronous", "OFF"), ("journal_mode", "MEMORY"), ("journal_mode", "OFF")] {
        let mut conn = db.open().await;
        run(&mut conn, &format!("PRAGMA {pragma} = {value}")).await;
        let errors = [
            db.fence.raise(&mut conn, &owner).await.unwrap_err(),
            SqlxFence::install(&mut conn, &cluster("prod")).await.unwrap_err(),
            write(&db, &mut conn, &owner, "v").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), FenceErrorKind::NotDurable, "{error:?}");
            assert!(error.to_string().contains(pragma), "{error}");
        }
    }
    // In memory, the fence dies with its data, which is all it needs to do.
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    run(&mut conn, "PRAGMA synchronous = OFF; CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT)").await;
    let fence = SqlxFence::install(&mut conn, &cluster("prod")).await.unwrap();
    fence.raise(&mut conn, &owner).await.unwrap();
    fence.write(&mut conn, &[owner], async |tx| put(tx, "k", "v").await).await.unwrap();
}

/// A commit that changes no page syncs nothing, so a raise to an epoch that is there already must still write.
#[tokio::test]
async fn f011_raising_to_an_epoch_that_a_write_brought_in_writes_the_row_again() {
    let db = Database::new("wal").await;
    let mut conn = db.open().await;
    run(&mut conn, "PRAGMA wal_autocheckpoint = 0").await;
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &old).await.unwrap();
    write(&db, &mut conn, &new, "34").await.unwrap();
    let log = || std::fs::metadata(db.path().with_file_name("db-wal")).unwrap().len();
    let before = log();
    db.fence.raise(&mut conn, &new).await.unwrap();
    assert!(log() > before, "the raise wrote nothing, so it synced nothing");
}

#[tokio::test]
async fn f042_f057_f096_another_session_another_cluster_and_a_forged_epoch_change_no_byte() {
    let db = Database::new("delete").await;
    let mut conn = db.open().await;
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    db.fence.raise(&mut conn, &mine).await.unwrap();
    let before = std::fs::read(db.path()).unwrap();
    for (token, kind) in [
        (token("prod/orders/17@33").held_by(session(2)), FenceErrorKind::OtherSession),
        (token("prod/orders/17@32"), FenceErrorKind::Fenced),
        (token("test/orders/17@34"), FenceErrorKind::WrongCluster),
        (token(&format!("prod/orders/17@{}", 34 + MAX_JUMP)), FenceErrorKind::Implausible),
    ] {
        assert_eq!(db.fence.raise(&mut conn, &token).await.unwrap_err().kind(), kind);
        assert_eq!(write(&db, &mut conn, &token, "forged").await.unwrap_err().kind(), kind);
        let both = [mine.clone(), token];
        let both = db.fence.write(&mut conn, &both, async |tx| put(tx, "k", "both").await);
        assert_eq!(both.await.unwrap_err().kind(), kind);
    }
    let other = SqlxFence::install(&mut conn, &cluster("test")).await.unwrap_err();
    assert_eq!(other.kind(), FenceErrorKind::WrongCluster);
    assert!(std::fs::read(db.path()).unwrap() == before);
    write(&db, &mut conn, &mine, "mine").await.unwrap();
    let meant = token(&format!("prod/orders/17@{}", 34 + MAX_JUMP));
    db.fence.force_raise(&mut conn, &meant).await.unwrap();
    assert_eq!(db.fence.highest(&mut conn, meant.scope()).await.unwrap(), Some(meant.epoch()));
}

#[tokio::test]
async fn t17_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    let owner = token("prod/orders/17@5");
    for (column, value, shown) in [
        ("epoch", "0", "0"),
        ("epoch", "9223372036854775807", "9223372036854775807"),
        ("epoch", "1.5", "1.5"),
        ("epoch", "'five\n'", "five\\n"),
        ("epoch", "CAST(x'ff' AS TEXT)", "\u{fffd}".escape_default().to_string().as_str()),
        ("epoch", "x'00ff'", "a blob of 2 bytes"),
        ("session", "0", "0"),
        ("session", "'s1'", "s1"),
    ] {
        let db = Database::new("wal").await;
        let mut conn = db.open().await;
        db.fence.raise(&mut conn, &owner).await.unwrap();
        run(
            &mut conn,
            &format!(
                "PRAGMA ignore_check_constraints = ON; DROP TRIGGER ringfence_fence_moves_forward;
                 UPDATE ringfence_fence SET {column} = {value}"
            ),
        )
        .await;
        for error in [
            db.fence.raise(&mut conn, &owner).await.unwrap_err(),
            write(&db, &mut conn, &owner, "v").await.unwrap_err(),
            db.fence.highest(&mut conn, owner.scope()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{value}: {error:?}");
            assert!(error.to_string().contains("orders/17") && error.to_string().contains(shown), "{error}");
        }
    }
}

#[tokio::test]
async fn t21_a_missing_row_a_replaced_owner_and_a_missing_fence_are_told_apart() {
    let db = Database::new("wal").await;
    let mut conn = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    assert_eq!(write(&db, &mut conn, &old, "v").await.unwrap_err().kind(), FenceErrorKind::NotRaised);
    db.fence.raise(&mut conn, &new).await.unwrap();
    assert_eq!(write(&db, &mut conn, &old, "v").await.unwrap_err().kind(), FenceErrorKind::Fenced);

    let mut bare = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    assert_eq!(db.fence.raise(&mut bare, &new).await.unwrap_err().kind(), FenceErrorKind::NotInstalled);
    let mut tx = bare.begin().await.unwrap();
    assert_eq!(db.fence.check(&mut tx, &new).await.unwrap_err().kind(), FenceErrorKind::NotInstalled);
}

#[tokio::test]
async fn a_raise_inside_a_transaction_of_the_user_is_an_error_and_leaves_it_alone() {
    let db = Database::new("wal").await;
    let mut conn = db.open().await;
    let mut tx = conn.begin().await.unwrap();
    put(&mut tx, "k", "v").await.unwrap();
    let error = db.fence.raise(&mut tx, &token("prod/orders/17@33")).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error:?}");
    tx.commit().await.unwrap();
    assert_eq!(texts(&mut conn).await["k"], "v");
    // One that was begun as a text is not known to sqlx, and SQLite refuses the second.
    run(&mut conn, "BEGIN; UPDATE texts SET value = 'w'").await;
    db.fence.raise(&mut conn, &token("prod/orders/17@33")).await.unwrap_err();
    run(&mut conn, "COMMIT").await;
    assert_eq!(texts(&mut conn).await["k"], "w");
    db.fence.raise(&mut conn, &token("prod/orders/17@33")).await.unwrap();
}

#[tokio::test]
async fn b05_a_raiser_is_an_enforcing_fence() {
    let db = Database::new("wal").await;
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(3);
    let pool = pool.connect_with(options(&db.path())).await.unwrap();
    let declared = DeclaredFence::enforced("ledger", db.fence.raiser(pool.clone()));
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    declared.raise(&new).await.unwrap();
    assert!(matches!(declared.raise(&old).await, Err(FenceError::Fenced(_))));
    assert_eq!(declared.highest(old.scope()).await.unwrap(), Some(new.epoch()));
    // Many at once: each gets its own answer.
    let mut tasks = Vec::new();
    for partition in 0..50 {
        let declared = declared.clone();
        tasks.push(tokio::spawn(async move {
            declared.raise(&token(&format!("prod/orders/{partition}@5"))).await
        }));
    }
    let mut refused = 0;
    for task in tasks {
        refused += usize::from(task.await.unwrap().is_err());
    }
    assert_eq!(refused, 1);
    pool.close().await;
    assert!(declared.raise(&token("prod/orders/0@35")).await.unwrap_err().is_retryable());
}

/// Usable by a task that moves between threads.
#[test]
fn a_write_runs_in_a_task_of_its_own() {
    let owner = token("prod/orders/17@5");
    let (db, mut conn) = runtime().block_on(async {
        let db = Database::new("wal").await;
        let mut conn = db.open().await;
        db.fence.raise(&mut conn, &owner).await.unwrap();
        (db, conn)
    });
    let fence = db.fence.clone();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(async {
        let task = tokio::spawn(async move {
            let value = String::from("v");
            fence.write(&mut conn, &[owner], async |tx| put(tx, "a", &value).await).await
        });
        task.await.unwrap().unwrap();
        assert_eq!(texts(&mut db.open().await).await["a"], "v");
    });
}
