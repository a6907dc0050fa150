//! Cases that happened to others.

use crate::database::{
    Database, attempt, connect, dump, fenced, id, put, refused, run, session, texts, token, until_waiting,
};
use crate::server::shared;
use ringfence_core::ids::{ClusterId, Epoch};
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FenceErrorKind, MAX_JUMP, ObserveOnly, Observed};
use sqlx::Connection as _;
use std::process::Stdio;
use std::slice::from_ref;

#[tokio::test]
async fn f001_t08_no_clean_up_takes_the_fence_with_it() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let old = db.raised("prod/orders/17@33").await;
    db.write(&mut conn, from_ref(&old), "33").await.unwrap();
    // The old writer sleeps. The next one takes over, writes once and goes quiet; then everything is tidied up.
    let new = db.raised("prod/orders/17@34").await;
    db.write(&mut conn, &[new], "34").await.unwrap();
    run(&mut conn, "DELETE FROM texts").await;
    for tidy in ["OPTIMIZE TABLE ringfence_fence", "ANALYZE TABLE ringfence_fence", "FLUSH TABLES"] {
        run(&mut conn, tidy).await;
    }
    for by_hand in [
        "DELETE FROM ringfence_fence",
        "DELETE FROM ringfence_fence WHERE scope = 'orders/17'",
        "TRUNCATE ringfence_fence",
        "DROP TABLE ringfence_fence",
        "ALTER TABLE ringfence_fence ENGINE = MyISAM",
        "UPDATE ringfence_fence SET epoch = 1",
        "UPDATE ringfence_fence SET scope = 'orders/18'",
        "REPLACE INTO ringfence_fence VALUES ('orders/17', 1, NULL, 1)",
        "INSERT INTO ringfence_fence VALUES ('orders/17', 1, NULL, 1) ON DUPLICATE KEY UPDATE epoch = 1",
        "DELETE FROM ringfence_binding",
        "UPDATE ringfence_binding SET cluster = 'test'",
    ] {
        let (state, said) = refused(&mut conn, by_hand).await;
        assert!(said.starts_with("ringfence: ") || said.contains("foreign key"), "{by_hand}: {state} {said}");
    }
    let mut conn = db.open().await;
    MysqlFence::install(&mut conn, db.fence.cluster()).await.unwrap();
    match db.write(&mut conn, &[old], "33 again").await {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert!(texts(&mut conn).await.is_empty());
}

#[tokio::test]
async fn f005_the_default_refuses_and_observing_has_its_own_name_and_lets_the_transaction_go_on() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    assert!(matches!(db.write(&mut conn, from_ref(&old), "33").await, Err(FenceError::Fenced(_))));
    assert!(matches!(db.write(&mut conn, &[], "nobody's").await, Err(FenceError::Unstamped)));
    assert!(texts(&mut conn).await.is_empty());

    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let mut tx = conn.begin().await.unwrap();
    for (tokens, refused) in [(vec![old.clone()], true), (vec![], true), (vec![new.clone()], false)] {
        let answer = observing.fence().observe_all(&mut tx, &tokens).await;
        let seen = observing.observe(|_| answer).unwrap();
        assert_eq!(matches!(seen, Observed::WouldRefuse(_)), refused, "{tokens:?}: {seen:?}");
    }
    put(&mut tx, "k", "33").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((observing.counts().would_refuse, texts(&mut conn).await.len()), (2, 1));
    assert_eq!(db.fence.highest(&mut conn, old.scope()).await.unwrap(), Some(new.epoch()));
}

#[tokio::test]
async fn f009_a_call_that_is_dropped_half_way_leaves_nothing_behind_that_stops_the_next() {
    let Some(db) = fenced().await else { return };
    let owner = db.raised("prod/orders/17@33").await;
    let (mut conn, mut other, mut observer) = (db.open().await, db.open().await, db.open().await);
    // A writer stands in the way of a raise; the raise is dropped while it waits, and so is a write in its middle.
    let raising = id(&mut other).await;
    let mut held = conn.begin().await.unwrap();
    db.fence.check(&mut held, &owner).await.unwrap();
    let next = token("prod/orders/17@34");
    tokio::select! {
        biased;
        raised = db.fence.raise(&mut other, &next) => panic!("{raised:?}"),
        () = until_waiting(&mut observer, &raising) => {}
    }
    held.commit().await.unwrap();
    // It still takes effect, as one that was waited for; the connection can be used again.
    assert_eq!(db.fence.highest(&mut other, next.scope()).await.unwrap(), Some(next.epoch()));
    let (started, mut starts) = tokio::sync::mpsc::channel(1);
    let write = db.fence.write(&mut conn, from_ref(&next), async |tx| {
        put(tx, "k", "never").await?;
        started.send(()).await.unwrap();
        std::future::pending::<Result<(), FenceError>>().await
    });
    tokio::select! {
        _ = write => panic!("it never ends"),
        _ = starts.recv() => {}
    }
    // The rollback goes out with the next call on the connection, or with its end.
    conn.ping().await.unwrap();
    let last = db.raised("prod/orders/17@35").await;
    assert!(texts(&mut observer).await.is_empty());
    assert!(matches!(db.write(&mut conn, &[next], "34").await, Err(FenceError::Fenced(_))));
    db.write(&mut conn, &[last], "35").await.unwrap();
}

/// The fence is as old as the dump it comes from: so owners raise again after a restore, before they write.
#[tokio::test]
async fn f018_t15_a_restored_dump_accepts_a_replaced_owner_until_the_owner_has_raised_again() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let mut dump = db.server.client("mariadb-dump", &db.name);
    let dump = dump.args(["--single-transaction", "--routines", "--triggers"]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let new = db.raised("prod/orders/17@34").await;

    let restored = Database::named(db.server, &format!("{}_restored", db.name));
    run(&mut connect(db.server, "mysql").await, &format!("CREATE DATABASE {}", restored.name)).await;
    let mut child = db.server.client("mariadb", &restored.name).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &dump.stdout).unwrap();
    assert!(child.wait().unwrap().success());
    let mut conn = restored.open().await;
    restored.write(&mut conn, from_ref(&old), "33").await.unwrap();
    restored.fence.raise(&mut conn, &new).await.unwrap();
    assert!(matches!(restored.write(&mut conn, &[old], "33").await, Err(FenceError::Fenced(_))));
    restored.write(&mut conn, &[new], "34").await.unwrap();
    // What keeps it came along.
    attempt(&mut conn, "DELETE FROM ringfence_fence").await.unwrap_err();
}

#[tokio::test]
async fn f042_another_session_under_the_same_epoch_is_refused_and_changes_no_row() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.fence.raise(&mut conn, &mine).await.unwrap();
    let before = dump(&mut conn).await;
    for tokens in [vec![forged.clone()], vec![mine.clone(), forged.clone()]] {
        match db.write(&mut conn, &tokens, "forged").await {
            Err(FenceError::OtherSession { holder, token }) => {
                assert_eq!((holder, token), (session(u64::MAX), forged.clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(db.fence.raise(&mut conn, &forged).await.unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert_eq!(dump(&mut conn).await, before);
    db.write(&mut conn, &[mine], "mine").await.unwrap();
}

#[tokio::test]
async fn f057_the_database_is_bound_to_a_cluster_at_first_use() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let ours = db.raised("prod/orders/17@5").await;
    let before = dump(&mut conn).await;
    let test = ClusterId::new("test").unwrap();
    match MysqlFence::install(&mut conn, &test).await {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented.as_str(), bound.as_str()), ("test", "prod"));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(db.fence.raise(&mut conn, &theirs).await.unwrap_err().kind(), FenceErrorKind::WrongCluster);
    for tokens in [vec![theirs.clone()], vec![ours.clone(), theirs]] {
        let error = db.write(&mut conn, &tokens, "t").await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::WrongCluster);
    }
    // A message is too short for two of the longest names, and the error has both.
    let long = ClusterId::new(&"x".repeat(63)).unwrap();
    let theirs = token(&format!("{long}/orders/17@9"));
    match db.write(&mut conn, &[theirs], "t").await {
        Err(FenceError::WrongCluster { presented, .. }) => assert_eq!(presented, long),
        other => panic!("{other:?}"),
    }
    assert_eq!(dump(&mut conn).await, before);
    db.write(&mut conn, &[ours], "ours").await.unwrap();
}

#[tokio::test]
async fn f075_f076_every_refused_call_leaves_the_rows_as_they_were() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    db.write(&mut conn, from_ref(&new), "34").await.unwrap();
    let before = dump(&mut conn).await;
    for _ in 0..20 {
        db.fence.raise(&mut conn, &old).await.unwrap_err();
        db.write(&mut conn, from_ref(&old), "33").await.unwrap_err();
        db.write(&mut conn, &[token("prod/orders/18@1")], "never raised").await.unwrap_err();
        // Refused in part, on either side of the one that is refused.
        let part = [token("prod/orders/16@9"), old.clone(), token("prod/orders/18@9")];
        db.fence.raise_all(&mut conn, &part).await.unwrap_err();
        MysqlFence::install(&mut conn, db.fence.cluster()).await.unwrap();
    }
    assert_eq!(dump(&mut conn).await, before);
    db.write(&mut conn, &[new], "34 goes on").await.unwrap();
}

#[tokio::test]
async fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let (owner, forged) = (db.raised("prod/orders/17@5").await, token("prod/orders/17@9007199254740991"));
    assert_eq!(db.fence.raise(&mut conn, &forged).await.unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(db.write(&mut conn, &[forged], "f").await.unwrap_err().kind(), FenceErrorKind::Implausible);
    db.write(&mut conn, from_ref(&owner), "still mine").await.unwrap();
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    db.fence.force_raise(&mut conn, &meant).await.unwrap();
    assert_eq!(db.fence.highest(&mut conn, owner.scope()).await.unwrap(), Some(meant.epoch()));
    // Forcing goes forward too.
    assert_eq!(db.fence.force_raise(&mut conn, &owner).await.unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[tokio::test]
async fn f096_a_text_that_is_no_token_is_refused_by_the_database_itself() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let long = format!("prod/{}/1@1", "x".repeat(64));
    for bad in [
        "prod",
        "prod/orders/17",
        "/orders/17@42",
        "Prod/orders/17@42",
        "prod/orders@42",
        "prod/orders/017@42",
        "prod/@locks/@42",
        "prod/orders/17@42@43",
        "prod/orders/17@",
        "prod/orders/17@0",
        "prod/orders/17@042",
        "prod/orders/17@-1",
        "prod/orders/17@9007199254740992",
        "prod/orders/17@99999999999999999999999999",
        "prod/orders/17@42\n",
        "prod/orders/17@42 ",
        "prod/orders/17@\u{664}\u{662}",
        "'; DROP TABLE ringfence_fence; --",
        &long,
    ] {
        for (call, inside) in [
            ("ringfence_check(?)", true),
            ("ringfence_check_all(JSON_ARRAY(?), NULL)", true),
            ("ringfence_raise(?)", false),
            ("ringfence_raise_all(JSON_ARRAY(?), NULL, 1)", false),
            ("ringfence_force_raise(JSON_ARRAY(?), NULL, 1)", false),
        ] {
            run(&mut conn, if inside { "START TRANSACTION" } else { "ROLLBACK" }).await;
            let call = format!("CALL {call}");
            let called = sqlx::query(sqlx::AssertSqlSafe(call.as_str())).bind(bad).execute(&mut conn).await;
            let error = called.expect_err(bad).into_database_error().unwrap();
            assert_eq!(error.code().unwrap(), "RF010", "{call} {bad}: {error}");
        }
    }
    run(&mut conn, "START TRANSACTION").await;
    for none in ["NULL", "''"] {
        assert_eq!(refused(&mut conn, &format!("CALL ringfence_check({none})")).await.0, "RF006");
    }
    run(&mut conn, "ROLLBACK").await;
    let long = format!("'{}'", "x".repeat(200));
    for bad in ["NULL", "''", "'Prod'", "'prod\\n'", "'../prod'", long.as_str()] {
        assert_eq!(refused(&mut conn, &format!("CALL ringfence_bind({bad})")).await.0, "RF010", "{bad}");
    }
    assert_eq!(dump(&mut conn).await.len(), 1, "nothing but the binding");
}

#[tokio::test]
async fn f099_whatever_a_replaced_owner_does_it_gets_the_same_error_with_both_epochs() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    let mut answers = vec![
        db.fence.raise(&mut conn, &old).await,
        db.fence.raise_all(&mut conn, &[token("prod/orders/18@1"), old.clone()]).await,
        db.fence.force_raise(&mut conn, &old).await,
        db.write(&mut conn, from_ref(&old), "33").await,
        db.write(&mut conn, &[new.clone(), old.clone()], "both").await,
        db.write(&mut conn, &[old.clone(), new], "both").await,
    ];
    let mut tx = conn.begin().await.unwrap();
    answers.push(db.fence.observe_all(&mut tx, from_ref(&old)).await);
    answers.push(db.fence.check(&mut tx, &old).await);
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn t21_a_missing_row_a_replaced_owner_and_a_missing_fence_are_told_apart() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let old = token("prod/orders/17@33");
    let never = db.write(&mut conn, from_ref(&old), "v").await.unwrap_err();
    assert_eq!(never.kind(), FenceErrorKind::NotRaised);
    let new = db.raised("prod/orders/17@34").await;
    assert_eq!(db.write(&mut conn, &[old], "v").await.unwrap_err().kind(), FenceErrorKind::Fenced);

    let bare = Database::bare(shared().unwrap()).await;
    let mut conn = bare.open().await;
    for bound in [false, true] {
        for error in [
            bare.fence.raise(&mut conn, &new).await.unwrap_err(),
            bare.fence.highest(&mut conn, new.scope()).await.unwrap_err(),
            bare.write(&mut conn, from_ref(&new), "v").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), FenceErrorKind::NotInstalled, "{error:?}");
        }
        if !bound {
            // Installed, and bound to nobody.
            let (_, statements) = MysqlFence::MIGRATION_SQL.split_once("DELIMITER //\n").unwrap();
            for statement in statements.split_once("DELIMITER ;").unwrap().0.split("\n//\n").map(str::trim) {
                if !statement.is_empty() {
                    run(&mut conn, statement).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn t01_a_write_that_fails_rolls_back_the_epoch_it_brought_in() {
    let Some(db) = fenced().await else { return };
    let mut conn = db.open().await;
    let (owner, next) = (db.raised("prod/orders/17@5").await, token("prod/orders/17@6"));
    let next = [next];
    let failed = db.fence.write(&mut conn, &next, async |tx| {
        put(tx, "k", "v").await?;
        Err::<(), _>(FenceError::store("the user's work", std::io::Error::other("no")))
    });
    assert!(matches!(failed.await, Err(FenceError::Store { .. })));
    assert_eq!(db.fence.highest(&mut conn, owner.scope()).await.unwrap().map(Epoch::get), Some(5));
    assert!(texts(&mut conn).await.is_empty());
}
