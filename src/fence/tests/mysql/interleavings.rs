//! T02, T03 and T13: two sessions, step by step. Where one waits, the other sees it wait.

use crate::controls::{
    with_a_look_before_the_row_is_made, without_the_lock, without_the_lock_of_a_newer_epoch,
    without_the_snapshots_age,
};
use crate::database::{
    Database, ISOLATIONS, attempt, begin, dump, fenced, id, put, refused, run, texts, token, until_waiting,
};
use crate::server::shared;
use ringfence_core::ids::Epoch;
use ringfence_fence::{FenceError, FenceErrorKind};
use sqlx::Connection as _;
use std::slice::from_ref;

#[tokio::test]
async fn t02_a_stale_insert_and_a_stale_update_of_an_untouched_row_are_refused() {
    let Some(db) = fenced().await else { return };
    let (mut a, mut b) = (db.open().await, db.open().await);
    let old = db.raised("prod/orders/17@33").await;
    db.fence.write(&mut a, from_ref(&old), async |tx| put(tx, "untouched", "33").await).await.unwrap();
    let new = db.raised("prod/orders/17@34").await;
    db.write(&mut b, &[new], "34").await.unwrap();
    for isolation in ISOLATIONS {
        run(&mut a, &format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")).await;
        for key in ["new", "untouched"] {
            let late = db.fence.write(&mut a, from_ref(&old), async |tx| put(tx, key, "late").await).await;
            assert_eq!(late.unwrap_err().kind(), FenceErrorKind::Fenced);
        }
    }
    let now = texts(&mut b).await;
    let now: Vec<(&str, &str)> = now.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(now, [("k", "34"), ("untouched", "33")]);
}

/// The old owner is between its check and its write; the raise waits for the end of its transaction, and what was written
/// is there when it has been answered.
#[tokio::test]
async fn t03_a_raise_waits_for_a_write_that_was_checked_and_the_next_check_is_refused() {
    let Some(db) = fenced().await else { return };
    let mut observer = db.open().await;
    for (round, isolation) in ISOLATIONS.into_iter().enumerate() {
        let (mut a, mut b) = (db.open().await, db.open().await);
        let old = db.raised(&format!("prod/orders/{round}@33")).await;
        let new = token(&format!("prod/orders/{round}@34"));
        let waiting = id(&mut b).await;
        let mut tx = begin(&mut a, isolation).await;
        db.fence.check(&mut tx, &old).await.unwrap();
        let raise = tokio::spawn({
            let (fence, new) = (db.fence.clone(), new.clone());
            async move { (fence.raise(&mut b, &new).await, texts(&mut b).await) }
        });
        until_waiting(&mut observer, &waiting).await;
        put(&mut tx, "k", &round.to_string()).await.unwrap();
        db.fence.commit(tx).await.unwrap();
        let (raised, read) = raise.await.unwrap();
        raised.unwrap();
        assert_eq!(read["k"], round.to_string());
        let mut tx = begin(&mut a, isolation).await;
        assert_eq!(db.fence.check(&mut tx, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

/// The raise is there and not committed: a check waits for it, and is decided by what it came to.
#[tokio::test]
async fn t03_a_check_waits_for_a_raise_and_is_decided_by_its_end() {
    let Some(db) = fenced().await else { return };
    let mut observer = db.open().await;
    let mut round = 0;
    for isolation in ISOLATIONS {
        for (end, expected) in [("COMMIT", Some(FenceErrorKind::Fenced)), ("ROLLBACK", None)] {
            round += 1;
            let (mut a, mut b) = (db.open().await, db.open().await);
            let old = db.raised(&format!("prod/orders/{round}@33")).await;
            // What a raise does, stopped before its commit.
            let raise = format!("UPDATE ringfence_fence SET epoch = 34 WHERE scope = 'orders/{round}'");
            run(&mut b, &format!("START TRANSACTION; {raise}")).await;
            let waiting = id(&mut a).await;
            let check = async {
                let mut tx = begin(&mut a, isolation).await;
                let checked = db.fence.check(&mut tx, &old).await;
                tx.rollback().await.unwrap();
                checked
            };
            let ends = async {
                until_waiting(&mut observer, &waiting).await;
                run(&mut b, end).await;
            };
            let (checked, ()) = tokio::join!(check, ends);
            let kind = checked.as_ref().err().map(FenceError::kind);
            assert_eq!(kind, expected, "{isolation} {end}: {checked:?}");
        }
    }
}

/// The snapshot is older than the raise. The old owner is refused; the new one runs again, for what it has read is as old.
#[tokio::test]
async fn t03_a_transaction_whose_snapshot_is_older_than_the_raise_is_never_accepted() {
    let Some(db) = fenced().await else { return };
    for (round, isolation) in ISOLATIONS.into_iter().enumerate() {
        let (mut a, mut b) = (db.open().await, db.open().await);
        let old = db.raised(&format!("prod/orders/{round}@33")).await;
        let (mut of_old, mut of_new) = (begin(&mut a, isolation).await, begin(&mut b, isolation).await);
        assert!(texts(&mut of_old).await.is_empty() && texts(&mut of_new).await.is_empty());
        let new = db.raised(&format!("prod/orders/{round}@34")).await;
        assert_eq!(db.fence.check(&mut of_old, &old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
        let kind = db.fence.check(&mut of_new, &new).await.err().map(|error| error.kind());
        // In the others each read is as new as the moment, or holds what it has read.
        assert_eq!(kind, (isolation == "REPEATABLE READ").then_some(FenceErrorKind::Busy), "{isolation}");
        of_old.rollback().await.unwrap();
        of_new.rollback().await.unwrap();
        let mut again = begin(&mut b, isolation).await;
        db.fence.check(&mut again, &new).await.unwrap();
    }
}

/// What is read after a check that has brought in a newer epoch, which nobody has raised; `None`: not accepted.
async fn read_under_a_newer_epoch(db: &Database<'_>, isolation: &str, round: usize) -> Option<String> {
    let mut observer = db.open().await;
    let (mut a, mut b) = (db.open().await, db.open().await);
    let old = db.raised(&format!("prod/orders/{round}@9")).await;
    let new = token(&format!("prod/orders/{round}@10"));
    let waiting = id(&mut b).await;
    let mut of_old = begin(&mut a, isolation).await;
    db.fence.check(&mut of_old, &old).await.unwrap();
    put(&mut of_old, "k", &round.to_string()).await.unwrap();
    let check = async {
        let mut tx = begin(&mut b, isolation).await;
        let checked = db.fence.check(&mut tx, &new).await;
        let read = texts(&mut tx).await.remove("k");
        tx.rollback().await.unwrap();
        checked.ok().and(Some(read.unwrap_or_default()))
    };
    let ends = async {
        until_waiting(&mut observer, &waiting).await;
        db.fence.commit(of_old).await.unwrap();
    };
    tokio::join!(check, ends).0
}

/// The owner before has checked and not committed: whoever comes with a newer epoch waits, and reads what he has written.
#[tokio::test]
async fn t03_a_check_that_brings_in_a_newer_epoch_reads_what_was_written_under_the_one_before() {
    let Some(db) = fenced().await else { return };
    for (round, isolation) in ISOLATIONS.into_iter().enumerate() {
        assert_eq!(
            read_under_a_newer_epoch(&db, isolation, round).await,
            Some(round.to_string()),
            "{isolation}"
        );
    }
    // The control: without the second lock it is accepted on a snapshot from before.
    let db = Database::flawed(db.server, &without_the_lock_of_a_newer_epoch()).await;
    assert_eq!(read_under_a_newer_epoch(&db, "REPEATABLE READ", 0).await, Some(String::new()));
}

/// The controls of `t03_a_transaction_whose_snapshot_is_older…`: without the lock, the old owner's snapshot is believed; without a look at the snapshot's
/// age, the new owner goes on with what it has read before its own raise.
#[tokio::test]
async fn t03_without_the_lock_or_the_look_at_its_age_an_old_snapshot_is_believed() {
    let Some(server) = shared() else { return };
    for (migration, of_new) in [(without_the_lock(), false), (without_the_snapshots_age(), true)] {
        let db = Database::flawed(server, &migration).await;
        let mut a = db.open().await;
        let old = db.raised("prod/orders/17@33").await;
        let mut tx = begin(&mut a, "REPEATABLE READ").await;
        assert!(texts(&mut tx).await.is_empty());
        let new = db.raised("prod/orders/17@34").await;
        db.fence.check(&mut tx, if of_new { &new } else { &old }).await.unwrap();
    }
}

/// Also where the server looks at snapshots itself, as MariaDB does from 11.6 on unless told otherwise.
#[tokio::test]
async fn t03_innodb_snapshot_isolation_is_busy_and_never_accepted() {
    let Some(db) = fenced().await else { return };
    let mut a = db.open().await;
    let old = db.raised("prod/orders/17@33").await;
    run(&mut a, "SET SESSION innodb_snapshot_isolation = ON").await;
    db.write(&mut a, from_ref(&old), "33").await.unwrap();
    let mut tx = begin(&mut a, "REPEATABLE READ").await;
    texts(&mut tx).await;
    db.raised("prod/orders/17@34").await;
    let error = db.fence.check(&mut tx, &old).await.unwrap_err();
    assert!(matches!(error.kind(), FenceErrorKind::Busy | FenceErrorKind::Fenced), "{error:?}");
    tx.rollback().await.unwrap();
    let kind = db.write(&mut a, &[old], "33").await.unwrap_err().kind();
    assert_eq!(kind, FenceErrorKind::Fenced);
}

/// Writers that come while a raise waits queue behind it, or they could keep it out for ever.
#[tokio::test]
async fn t03_a_writer_that_comes_after_a_raise_does_not_overtake_it() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let (mut a, mut b, mut c) = (db.open().await, db.open().await, db.open().await);
    let (second, raising) = (id(&mut b).await, id(&mut c).await);
    let mut first = a.begin().await.unwrap();
    db.fence.check(&mut first, &old).await.unwrap();
    let new = token("prod/orders/17@34");
    let raise = db.fence.raise(&mut c, &new);
    let (mut sees_raise, mut sees_second) = (db.open().await, db.open().await);
    let late = async {
        until_waiting(&mut sees_raise, &raising).await;
        let mut tx = b.begin().await.unwrap();
        let answer = db.fence.check(&mut tx, &old).await;
        tx.rollback().await.unwrap();
        answer
    };
    let end = async {
        until_waiting(&mut sees_second, &second).await;
        db.fence.commit(first).await.unwrap();
    };
    let (raised, late, ()) = tokio::join!(raise, late, end);
    raised.unwrap();
    assert_eq!(late.unwrap_err().kind(), FenceErrorKind::Fenced);
}

/// A check belongs outside of savepoints: with one that is rolled back, its lock may go. The commit finds out.
#[tokio::test]
async fn t03_a_savepoint_that_is_rolled_back_lets_go_of_the_check_and_the_commit_says_so() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let mut a = db.open().await;
    let mut tx = a.begin().await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    db.fence.check(&mut savepoint, &old).await.unwrap();
    savepoint.rollback().await.unwrap();
    // Nothing is held any more.
    let new = db.raised("prod/orders/17@34").await;
    put(&mut tx, "k", "late").await.unwrap();
    assert_eq!(db.fence.commit(tx).await.unwrap_err().kind(), FenceErrorKind::Store);
    assert!(texts(&mut a).await.is_empty());

    // One that was made after the check takes nothing of it along.
    let (mut b, mut observer) = (db.open().await, db.open().await);
    let waiting = id(&mut b).await;
    let mut tx = a.begin().await.unwrap();
    db.fence.check(&mut tx, &new).await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    put(&mut savepoint, "k", "taken back").await.unwrap();
    savepoint.rollback().await.unwrap();
    let next = token("prod/orders/17@35");
    let raise = db.fence.raise(&mut b, &next);
    let end = async {
        until_waiting(&mut observer, &waiting).await;
        db.fence.commit(tx).await.unwrap();
    };
    let (raised, ()) = tokio::join!(raise, end);
    raised.unwrap();
}

#[tokio::test]
async fn t13_one_of_two_partitions_moves_in_the_middle_and_nothing_is_applied() {
    let Some(db) = fenced().await else { return };
    let mut a = db.open().await;
    let (one, two) = (db.raised("prod/orders/1@5").await, db.raised("prod/orders/2@5").await);
    db.fence.write(&mut a, &[one.clone(), two.clone()], async |tx| put(tx, "k", "5").await).await.unwrap();
    let moved = db.raised("prod/orders/2@6").await;
    let before = (dump(&mut a).await, texts(&mut a).await);
    let newer = token("prod/orders/1@9");
    for tokens in [[newer.clone(), two.clone()], [two.clone(), newer], [one.clone(), two.clone()]] {
        match db.write(&mut a, &tokens, "torn").await {
            Err(FenceError::Fenced(f)) => assert_eq!(f.scope(), moved.scope()),
            other => panic!("{other:?}"),
        }
        // And where nobody looks at the answer: nothing was remembered before all were accepted.
        let mut tx = a.begin().await.unwrap();
        db.fence.check_all(&mut tx, &tokens).await.unwrap_err();
        tx.commit().await.unwrap();
    }
    assert_eq!((dump(&mut a).await, texts(&mut a).await), before);
    // One that has checked both holds both: the other cannot move before it ends.
    let mut waiting = db.open().await;
    let waits = id(&mut waiting).await;
    let mut tx = a.begin().await.unwrap();
    db.fence.check_all(&mut tx, &[moved.clone(), one]).await.unwrap();
    let next = token("prod/orders/1@6");
    let raise = db.fence.raise(&mut waiting, &next);
    let mut observer = db.open().await;
    let end = async {
        until_waiting(&mut observer, &waits).await;
        put(&mut tx, "k", "6").await.unwrap();
        db.fence.commit(tx).await.unwrap();
    };
    let (raised, ()) = tokio::join!(raise, end);
    raised.unwrap();
    assert_eq!(db.fence.highest(&mut a, next.scope()).await.unwrap().map(Epoch::get), Some(6));
}

/// Raises of the same scopes in opposite order, while writers hold them in opposite order: all end, and none by the
/// server's detection of deadlocks, which would be an error here.
#[tokio::test]
async fn t13_crossing_raises_and_writes_over_many_scopes_all_end() {
    let Some(db) = fenced().await else { return };
    let tokens = |epoch: u64| (0..12).map(|p| token(&format!("prod/orders/{p}@{epoch}"))).collect::<Vec<_>>();
    db.fence.raise_all(&mut db.open().await, &tokens(1)).await.unwrap();
    let mut tasks = Vec::new();
    for task in 0..6u64 {
        let (mut conn, fence) = (db.open().await, db.fence.clone());
        let mut mine = tokens(1);
        if task % 2 == 0 {
            mine.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let answer = if task < 2 {
                    fence.raise_all(&mut conn, &mine).await
                } else {
                    fence.write(&mut conn, &mine, async |_| Ok(())).await
                };
                answer.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// First raises of neighbours: each makes its row, and none waits for another's gap. Answers how many were deadlocks.
async fn first_raises(db: &Database<'_>) -> usize {
    let mut tasks = Vec::new();
    for task in 0..4_u64 {
        let (mut conn, fence) = (db.open().await, db.fence.clone());
        tasks.push(tokio::spawn(async move {
            let mut deadlocks = 0;
            for round in 0..25 {
                match fence.raise(&mut conn, &token(&format!("prod/orders/{}@1", 4 * round + task))).await {
                    Ok(()) => {}
                    Err(FenceError::Busy { .. }) => deadlocks += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            deadlocks
        }));
    }
    let mut deadlocks = 0;
    for task in tasks {
        deadlocks += task.await.unwrap();
    }
    deadlocks
}

#[tokio::test]
async fn t13_first_raises_of_many_scopes_at_once_do_not_wait_for_each_others_gaps() {
    let Some(db) = fenced().await else { return };
    assert_eq!(first_raises(&db).await, 0);
}

/// The control: who looks for the row first locks the gap where it is not.
#[tokio::test]
async fn t13_a_raise_that_looks_before_it_makes_the_row_runs_into_deadlocks() {
    let Some(server) = shared() else { return };
    for _ in 0..20 {
        let db = Database::flawed(server, &with_a_look_before_the_row_is_made()).await;
        if first_raises(&db).await > 0 {
            return;
        }
    }
    panic!("no deadlock came: this control controls nothing");
}

/// Several that bring in an epoch which nobody has raised: each shares the row first, and wants it for itself then.
#[tokio::test]
async fn checks_that_bring_in_the_same_epoch_at_once_all_end_when_they_run_again() {
    let Some(db) = fenced().await else { return };
    db.raised("prod/orders/17@1").await;
    for epoch in 2..12 {
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let (mut conn, fence) = (db.open().await, db.fence.clone());
            let mine = token(&format!("prod/orders/17@{epoch}"));
            tasks.push(tokio::spawn(async move {
                loop {
                    match fence.write(&mut conn, from_ref(&mine), async |tx| put(tx, "k", "v").await).await {
                        Err(error) if error.is_retryable() => {}
                        other => return other,
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let seen = db.fence.highest(&mut db.open().await, token("prod/orders/17@1").scope()).await.unwrap();
        assert_eq!(seen.map(Epoch::get), Some(epoch));
    }
}

#[tokio::test]
async fn a_check_or_a_raise_in_the_wrong_place_is_refused_and_commits_nothing() {
    let Some(db) = fenced().await else { return };
    let (owner, next) = (db.raised("prod/orders/17@33").await, token("prod/orders/17@34"));
    let mut a = db.open().await;
    // A check outside of a transaction would hold nothing.
    let (state, said) = refused(&mut a, &format!("CALL ringfence_check('{owner}')")).await;
    assert_eq!(state, "RF012");
    assert!(said.contains("START TRANSACTION"), "{said}");
    // A raise inside of one would commit it.
    let mut tx = a.begin().await.unwrap();
    put(&mut tx, "k", "open").await.unwrap();
    assert_eq!(db.fence.raise(&mut tx, &next).await.unwrap_err().kind(), FenceErrorKind::Unfit);
    assert_eq!(refused(&mut tx, &format!("CALL ringfence_raise('{next}')")).await.0, "RF012");
    assert_eq!(refused(&mut tx, "CALL ringfence_bind('prod')").await.0, "RF012");
    tx.rollback().await.unwrap();
    assert!(texts(&mut a).await.is_empty());
    // With autocommit off, every statement is in one; a check works there, and a raise says what to do.
    run(&mut a, "SET autocommit = 0").await;
    assert_eq!(db.fence.raise(&mut a, &next).await.unwrap_err().kind(), FenceErrorKind::Unfit);
    run(&mut a, &format!("CALL ringfence_check('{owner}'); INSERT INTO texts VALUES ('k', 'v'); COMMIT"))
        .await;
    run(&mut a, "SET autocommit = 1").await;
    db.fence.raise(&mut a, &next).await.unwrap();
    assert_eq!(texts(&mut a).await["k"], "v");
    // The session's own patience is as it was.
    let mut b = db.open().await;
    run(&mut b, "SET innodb_lock_wait_timeout = 17").await;
    db.fence.raise(&mut b, &next).await.unwrap();
    db.fence.raise(&mut b, &owner).await.unwrap_err();
    attempt(&mut b, "CALL ringfence_raise('nonsense')").await.unwrap_err();
    let kept = crate::database::ask(&mut b, "SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)").await;
    assert_eq!(kept.as_deref(), Some("17"));
}
