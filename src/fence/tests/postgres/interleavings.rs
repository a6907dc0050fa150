//! T02, T03 and T13: two sessions, step by step. Where one waits, the other sees it wait.

use crate::controls::{without_the_queue, without_the_rows_lock};
use crate::database::{Database, dump, fenced, pid, put, texts, token, until_waiting};
use crate::server::shared;
use ringfence_core::ids::Epoch;
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use tokio_postgres::IsolationLevel::{self, ReadCommitted, RepeatableRead, Serializable};
use tokio_postgres::{Client, Transaction};

const ALL: [IsolationLevel; 3] = [ReadCommitted, RepeatableRead, Serializable];

async fn begin(client: &mut Client, isolation: IsolationLevel) -> Transaction<'_> {
    client.build_transaction().isolation_level(isolation).start().await.unwrap()
}

#[tokio::test]
async fn t02_a_stale_insert_and_a_stale_update_of_an_untouched_row_are_refused() {
    let Some(db) = fenced().await else { return };
    let (mut a, mut b) = (db.open().await, db.open().await);
    let old = db.raised("prod/orders/17@33").await;
    db.fence.write(&mut a, from_ref(&old), async |tx| put(tx, "untouched", "33").await).await.unwrap();
    let new = db.raised("prod/orders/17@34").await;
    db.write(&mut b, &[new], "34").await.unwrap();
    for isolation in ALL {
        for statement in [
            "INSERT INTO texts VALUES ('new', '33')",
            "UPDATE texts SET value = 'late' WHERE key = 'untouched'",
        ] {
            let tx = begin(&mut a, isolation).await;
            assert_eq!(db.fence.check(&tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
            // Also when nobody looks at the answer: the transaction is at its end.
            assert!(tx.batch_execute(statement).await.is_err());
            tx.commit().await.unwrap();
        }
    }
    let now = texts(&b).await;
    assert_eq!(
        now.into_iter().collect::<Vec<_>>(),
        [("k".into(), "34".into()), ("untouched".into(), "33".into())]
    );
}

/// The old owner is between its check and its write; the raise waits for the end of its transaction, and what was written
/// is there when it has been answered.
#[tokio::test]
async fn t03_a_raise_waits_for_a_write_that_was_checked_and_the_next_check_is_refused() {
    let Some(db) = fenced().await else { return };
    for (round, isolation) in ALL.into_iter().enumerate() {
        let (mut a, b) = (db.open().await, db.open().await);
        let old = db.raised(&format!("prod/orders/{round}@33")).await;
        let new = token(&format!("prod/orders/{round}@34"));
        let waiting = pid(&b).await;
        let tx = begin(&mut a, isolation).await;
        db.fence.check(&tx, &old).await.unwrap();
        let raise = tokio::spawn({
            let (fence, new) = (db.fence.clone(), new.clone());
            async move { (fence.raise(&b, &new).await, texts(&b).await) }
        });
        until_waiting(&db.open().await, waiting).await;
        put(&tx, "k", &round.to_string()).await.unwrap();
        tx.commit().await.unwrap();
        let (raised, read) = raise.await.unwrap();
        raised.unwrap();
        assert_eq!(read["k"], round.to_string());
        let tx = begin(&mut a, isolation).await;
        assert_eq!(db.fence.check(&tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

/// The raise is there and not committed: a check waits for it, and is decided by what it came to.
#[tokio::test]
async fn t03_a_check_waits_for_a_raise_and_is_decided_by_its_end() {
    let Some(db) = fenced().await else { return };
    for (round, (isolation, commits, expected)) in [
        (ReadCommitted, true, Some(FenceErrorKind::Fenced)),
        // Its snapshot is older than the raise: the whole transaction runs again, and is refused then.
        (RepeatableRead, true, Some(FenceErrorKind::Busy)),
        (Serializable, true, Some(FenceErrorKind::Busy)),
        (ReadCommitted, false, None),
        (RepeatableRead, false, None),
        (Serializable, false, None),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut a, mut b) = (db.open().await, db.open().await);
        let old = db.raised(&format!("prod/orders/{round}@33")).await;
        let raising = b.transaction().await.unwrap();
        raising.batch_execute(&format!("SELECT ringfence.raise('prod/orders/{round}@34')")).await.unwrap();
        let waiting = pid(&a).await;
        let check = async {
            let tx = begin(&mut a, isolation).await;
            let checked = db.fence.check(&tx, &old).await;
            tx.rollback().await.unwrap();
            checked
        };
        let end = async {
            until_waiting(&db.open().await, waiting).await;
            if commits { raising.commit().await } else { raising.rollback().await }.unwrap();
        };
        let (checked, ()) = tokio::join!(check, end);
        let kind = checked.as_ref().err().map(FenceError::kind);
        assert_eq!(kind, expected, "{isolation:?} {commits}: {checked:?}");
    }
}

#[tokio::test]
async fn t03_a_transaction_whose_snapshot_is_older_than_the_raise_is_never_accepted() {
    let Some(db) = fenced().await else { return };
    for (round, isolation) in ALL.into_iter().enumerate() {
        let mut a = db.open().await;
        let old = db.raised(&format!("prod/orders/{round}@33")).await;
        let tx = begin(&mut a, isolation).await;
        tx.query("SELECT * FROM texts", &[]).await.unwrap();
        db.raised(&format!("prod/orders/{round}@34")).await;
        let error = db.fence.check(&tx, &old).await.unwrap_err();
        let fresh = matches!(isolation, ReadCommitted);
        let expected = if fresh { FenceErrorKind::Fenced } else { FenceErrorKind::Busy };
        assert_eq!(error.kind(), expected, "{isolation:?}: {error}");
        drop(tx);
        let tx = begin(&mut a, isolation).await;
        assert_eq!(db.fence.check(&tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

/// The control of the one above: with the queue and without the row's lock, the old snapshot is believed.
#[tokio::test]
async fn t03_without_the_rows_lock_a_repeatable_read_believes_its_old_snapshot() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let mut a = db.open().await;
    a.batch_execute(&without_the_rows_lock()).await.unwrap();
    a.batch_execute("SELECT ringfence.bind('prod')").await.unwrap();
    let old = db.raised("prod/orders/17@33").await;
    let tx = begin(&mut a, RepeatableRead).await;
    tx.query("SELECT * FROM texts", &[]).await.unwrap();
    db.raised("prod/orders/17@34").await;
    db.fence.check(&tx, &old).await.unwrap();
}

/// Writers that come while a raise waits queue behind it, or they could keep it out for ever.
#[tokio::test]
async fn t03_a_writer_that_comes_after_a_raise_does_not_overtake_it() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let (mut a, mut b, c) = (db.open().await, db.open().await, db.open().await);
    let (second, raising) = (pid(&b).await, pid(&c).await);
    let first = a.transaction().await.unwrap();
    db.fence.check(&first, &old).await.unwrap();
    let observer = db.open().await;
    let new = token("prod/orders/17@34");
    let raise = db.fence.raise(&c, &new);
    let late = async {
        until_waiting(&observer, raising).await;
        let tx = b.transaction().await.unwrap();
        let answer = db.fence.check(&tx, &old).await;
        tx.rollback().await.unwrap();
        answer
    };
    let end = async {
        until_waiting(&observer, second).await;
        first.commit().await.unwrap();
    };
    let (raised, late, ()) = tokio::join!(raise, late, end);
    raised.unwrap();
    assert_eq!(late.unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// The control of the one above: rows alone let the late writer in.
#[tokio::test]
async fn t03_without_the_queue_a_late_writer_overtakes_a_raise_that_waits() {
    let Some(server) = shared() else { return };
    let db = Database::bare(server).await;
    let (mut a, mut b, c) = (db.open().await, db.open().await, db.open().await);
    a.batch_execute(&without_the_queue("FOR SHARE OF f;")).await.unwrap();
    a.batch_execute("SELECT ringfence.bind('prod')").await.unwrap();
    let old = db.raised("prod/orders/17@33").await;
    let raising = pid(&c).await;
    let first = a.transaction().await.unwrap();
    db.fence.check(&first, &old).await.unwrap();
    let new = token("prod/orders/17@34");
    let raise = db.fence.raise(&c, &new);
    let late = async {
        until_waiting(&db.open().await, raising).await;
        let second = b.transaction().await.unwrap();
        db.fence.check(&second, &old).await.unwrap();
        first.commit().await.unwrap();
        // Not raised yet: it waits for the second now.
        until_waiting(&db.open().await, raising).await;
        second.commit().await.unwrap();
    };
    let (raised, ()) = tokio::join!(raise, late);
    raised.unwrap();
}

#[tokio::test]
async fn t03_a_savepoint_that_is_rolled_back_lets_go_of_the_check_as_the_page_says() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let mut a = db.open().await;
    let mut tx = a.transaction().await.unwrap();
    let savepoint = tx.savepoint("s").await.unwrap();
    db.fence.check(&savepoint, &old).await.unwrap();
    savepoint.rollback().await.unwrap();
    // Nothing is held any more.
    db.raised("prod/orders/17@34").await;
    // And what the check had said about the transaction is taken back with it.
    let stamped = tx.query_one("SELECT current_setting('ringfence.checked', true)", &[]).await.unwrap();
    assert_eq!(stamped.get::<_, Option<String>>(0).unwrap_or_default(), "");
}

#[tokio::test]
async fn t13_one_of_two_partitions_moves_in_the_middle_and_nothing_is_applied() {
    let Some(db) = fenced().await else { return };
    let mut a = db.open().await;
    let (one, two) = (db.raised("prod/orders/1@5").await, db.raised("prod/orders/2@5").await);
    db.fence.write(&mut a, &[one.clone(), two.clone()], async |tx| put(tx, "k", "5").await).await.unwrap();
    let moved = db.raised("prod/orders/2@6").await;
    let before = (dump(&a).await, texts(&a).await);
    let newer = token("prod/orders/1@9");
    for tokens in [[newer.clone(), two.clone()], [two.clone(), newer.clone()], [one.clone(), two.clone()]] {
        match db.write(&mut a, &tokens, "torn").await {
            Err(FenceError::Fenced(f)) => assert_eq!(f.scope(), moved.scope()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((dump(&a).await, texts(&a).await), before);
    // One that has checked both holds both: the other cannot move before it ends.
    let waiting = db.open().await;
    let waits = pid(&waiting).await;
    let tx = a.transaction().await.unwrap();
    db.fence.check_all(&tx, &[moved.clone(), one]).await.unwrap();
    let next = token("prod/orders/1@6");
    let raise = db.fence.raise(&waiting, &next);
    let end = async {
        until_waiting(&db.open().await, waits).await;
        put(&tx, "k", "6").await.unwrap();
        tx.commit().await.unwrap();
    };
    let (raised, ()) = tokio::join!(raise, end);
    raised.unwrap();
    assert_eq!(db.fence.highest(&a, next.scope()).await.unwrap().map(Epoch::get), Some(6));
}

/// Raises of the same scopes in opposite order, while writers hold them in opposite order: all end, and none by the
/// server's detection of deadlocks.
#[tokio::test]
async fn t13_crossing_raises_and_writes_over_many_scopes_all_end() {
    let Some(db) = fenced().await else { return };
    let count = 12;
    let tokens =
        |epoch: u64| (0..count).map(|p| token(&format!("prod/orders/{p}@{epoch}"))).collect::<Vec<_>>();
    db.fence.raise_all(&db.open().await, &tokens(1)).await.unwrap();
    let mut tasks = Vec::new();
    for task in 0..6u64 {
        let (mut client, fence) = (db.open().await, db.fence.clone());
        let mut mine = tokens(1);
        if task % 2 == 0 {
            mine.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let answer = if task < 2 {
                    fence.raise_all(&client, &mine).await
                } else {
                    fence.write(&mut client, &mine, async |_| Ok(())).await
                };
                answer.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(db.open().await.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_deadlock_over_the_users_own_rows_and_a_timeout_are_busy_and_can_be_tried_again() {
    let Some(db) = fenced().await else { return };
    let owner = db.raised("prod/orders/17@33").await;
    let (mut a, b) = (db.open().await, db.open().await);
    // A raise that somebody leaves open stands for any lock that a check waits for.
    b.batch_execute("BEGIN; SELECT ringfence.raise('prod/orders/17@33')").await.unwrap();
    for setting in ["lock_timeout", "statement_timeout"] {
        let tx = a.transaction().await.unwrap();
        tx.batch_execute(&format!("SET LOCAL {setting} = '20ms'")).await.unwrap();
        let error = db.fence.check(&tx, &owner).await.unwrap_err();
        assert!(error.is_retryable() && !error.is_refusal(), "{setting}: {error}");
        assert!(std::error::Error::source(&error).is_some());
        tx.rollback().await.unwrap();
    }
    b.batch_execute("ROLLBACK").await.unwrap();

    // a has the fence and wants b's row; b has the row and wants to raise.
    put_one(&mut a, "row").await;
    let waits = pid(&a).await;
    let tx = a.transaction().await.unwrap();
    db.fence.check(&tx, &owner).await.unwrap();
    b.batch_execute("BEGIN; UPDATE texts SET value = 'b' WHERE key = 'row'").await.unwrap();
    let a_waits = tx.batch_execute("UPDATE texts SET value = 'a' WHERE key = 'row'");
    let b_waits = async {
        until_waiting(&db.open().await, waits).await;
        let raised = b.batch_execute("SELECT ringfence.raise('prod/orders/17@34')").await;
        b.batch_execute("ROLLBACK").await.unwrap();
        raised
    };
    let (a_got, b_got) = tokio::join!(a_waits, b_waits);
    let codes = [a_got, b_got].map(|got| got.err().map(|error| error.code().unwrap().code().to_owned()));
    assert!(codes.iter().flatten().eq(["40P01"].iter()), "{codes:?}");
}

async fn put_one(client: &mut Client, key: &str) {
    let tx = client.transaction().await.unwrap();
    put(&tx, key, "0").await.unwrap();
    tx.commit().await.unwrap();
}
