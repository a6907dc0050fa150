//! Cases that happened to others.

use crate::database::{Database, dump, fenced, pid, put, session, texts, token, until};
use crate::server::shared;
use ringfence_core::ids::{ClusterId, Epoch};
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FenceErrorKind, MAX_JUMP, ObserveOnly, Observed};
use std::slice::from_ref;

#[tokio::test]
async fn f001_t08_no_clean_up_takes_the_fence_with_it() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let old = db.raised("prod/orders/17@33").await;
    db.write(&mut client, from_ref(&old), "33").await.unwrap();
    // The old writer sleeps. The next one takes over, writes once and goes quiet; then everything is tidied up.
    let new = db.raised("prod/orders/17@34").await;
    db.write(&mut client, &[new], "34").await.unwrap();
    client.batch_execute("DELETE FROM texts").await.unwrap();
    for tidy in [
        "VACUUM FULL",
        "ANALYZE",
        "REINDEX TABLE ringfence.fence",
        "CLUSTER ringfence.fence USING fence_pkey",
        "CHECKPOINT",
    ] {
        client.batch_execute(tidy).await.unwrap();
    }
    for by_hand in [
        "DELETE FROM ringfence.fence",
        "DELETE FROM ringfence.fence WHERE scope = 'orders/17'",
        "TRUNCATE ringfence.fence",
        "UPDATE ringfence.fence SET epoch = 1",
        "UPDATE ringfence.fence SET scope = 'orders/18'",
        "INSERT INTO ringfence.fence VALUES ('orders/17', 1) ON CONFLICT (scope) DO UPDATE SET epoch = 1",
        "DELETE FROM ringfence.binding",
        "TRUNCATE ringfence.binding",
        "UPDATE ringfence.binding SET cluster = 'test'",
        // As rows are applied that arrive by replication.
        "SET session_replication_role = replica; DELETE FROM ringfence.fence",
    ] {
        let refused = client.batch_execute(by_hand).await.unwrap_err();
        let refused = refused.as_db_error().unwrap().message().to_owned();
        assert!(refused.starts_with("ringfence: "), "{by_hand}: {refused}");
    }
    let mut client = db.open().await;
    PostgresFence::install(&client, db.fence.cluster()).await.unwrap();
    client.batch_execute(PostgresFence::MIGRATION_SQL).await.unwrap();
    match db.write(&mut client, &[old], "33 again").await {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert!(texts(&client).await.is_empty());
}

#[tokio::test]
async fn f005_the_default_refuses_and_observing_has_its_own_name_and_lets_the_transaction_go_on() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    assert!(matches!(db.write(&mut client, from_ref(&old), "33").await, Err(FenceError::Fenced(_))));
    assert!(matches!(db.write(&mut client, &[], "nobody's").await, Err(FenceError::Unstamped)));
    assert!(texts(&client).await.is_empty());

    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let tx = client.transaction().await.unwrap();
    for (tokens, refused) in [(vec![old.clone()], true), (vec![], true), (vec![new.clone()], false)] {
        let answer = observing.fence().observe_all(&tx, &tokens).await;
        let seen = observing.observe(|_| answer).unwrap();
        assert_eq!(matches!(seen, Observed::WouldRefuse(_)), refused, "{tokens:?}: {seen:?}");
    }
    put(&tx, "k", "33").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((observing.counts().would_refuse, texts(&client).await.len()), (2, 1));
    assert_eq!(db.fence.highest(&client, old.scope()).await.unwrap(), Some(new.epoch()));
}

#[tokio::test]
async fn f005_a_table_can_refuse_statements_whose_transaction_has_checked_nothing() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let owner = db.raised("prod/orders/17@33").await;
    client
        .batch_execute(
            "CREATE TRIGGER stamped BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON texts
                 FOR EACH STATEMENT EXECUTE FUNCTION ringfence.refuse_unstamped()",
        )
        .await
        .unwrap();
    for by_hand in
        ["INSERT INTO texts VALUES ('k', 'by hand')", "UPDATE texts SET value = ''", "TRUNCATE texts"]
    {
        let refused = client.batch_execute(by_hand).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "RF006", "{refused}");
    }
    db.write(&mut client, &[owner], "33").await.unwrap();
    // It counts for its transaction only.
    assert!(client.batch_execute("UPDATE texts SET value = ''").await.is_err());
    assert_eq!(texts(&client).await["k"], "33");
}

#[tokio::test]
async fn f009_a_call_that_is_dropped_half_way_leaves_nothing_behind_that_stops_the_next() {
    let Some(db) = fenced().await else { return };
    let owner = db.raised("prod/orders/17@33").await;
    let (mut client, other) = (db.open().await, db.open().await);
    // A writer stands in the way of a raise; the raise is dropped while it waits, and so is a write in its middle.
    let (raising, observer) = (pid(&other).await, db.open().await);
    let held = client.transaction().await.unwrap();
    db.fence.check(&held, &owner).await.unwrap();
    let next = token("prod/orders/17@34");
    let waits = format!("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {raising} AND NOT granted)");
    tokio::select! {
        biased;
        raised = db.fence.raise(&other, &next) => panic!("{raised:?}"),
        () = until(&observer, &waits) => {}
    }
    drop(held);
    // It still takes effect, as one that was waited for.
    let done = "SELECT ringfence.highest('orders/17') = 34";
    until(&observer, done).await;
    let writing = pid(&client).await;
    let idle = format!("SELECT state = 'idle in transaction' FROM pg_stat_activity WHERE pid = {writing}");
    let (started, mut starts) = tokio::sync::mpsc::channel(1);
    let write = db.fence.write(&mut client, from_ref(&next), async |tx| {
        put(tx, "k", "never").await?;
        started.send(()).await.unwrap();
        std::future::pending::<Result<(), FenceError>>().await
    });
    tokio::select! {
        _ = write => panic!("it never ends"),
        _ = async { starts.recv().await; until(&observer, &idle).await } => {}
    }
    let last = db.raised("prod/orders/17@35").await;
    assert!(texts(&observer).await.is_empty());
    assert!(matches!(db.write(&mut client, &[next], "34").await, Err(FenceError::Fenced(_))));
    db.write(&mut client, &[last], "35").await.unwrap();
}

/// The fence is as old as the copy it comes from: so owners raise again after a restore, before they write.
#[tokio::test]
async fn f018_t15_a_restored_copy_accepts_a_replaced_owner_until_the_owner_has_raised_again() {
    let Some(db) = fenced().await else { return };
    let old = db.raised("prod/orders/17@33").await;
    let copy = format!("{}_restored", db.name);
    crate::database::connect(db.server, "postgres")
        .await
        .batch_execute(&format!("CREATE DATABASE {copy} TEMPLATE {}", db.name))
        .await
        .unwrap();
    let new = db.raised("prod/orders/17@34").await;
    let restored = Database::named(db.server, &copy);
    let mut client = restored.open().await;
    restored.write(&mut client, from_ref(&old), "33").await.unwrap();
    restored.fence.raise(&client, &new).await.unwrap();
    assert!(matches!(restored.write(&mut client, &[old], "33").await, Err(FenceError::Fenced(_))));
    restored.write(&mut client, &[new], "34").await.unwrap();
}

#[tokio::test]
async fn f042_another_session_under_the_same_epoch_is_refused_and_changes_no_row() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.fence.raise(&client, &mine).await.unwrap();
    let before = dump(&client).await;
    match db.write(&mut client, from_ref(&forged), "forged").await {
        Err(FenceError::OtherSession { holder, token }) => {
            assert_eq!((holder, token), (session(u64::MAX), forged.clone()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(db.fence.raise(&client, &forged).await.unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert_eq!(dump(&client).await, before);
    db.write(&mut client, &[mine], "mine").await.unwrap();
}

#[tokio::test]
async fn f049_after_a_refusal_no_other_statement_of_the_transaction_takes_effect() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let (old, _) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    let tx = client.transaction().await.unwrap();
    // What a background job of the same transaction did before, and goes on doing.
    put(&tx, "before", "33").await.unwrap();
    assert!(db.fence.check(&tx, &old).await.is_err());
    for _ in 0..3 {
        assert!(put(&tx, "after", "33").await.is_err());
    }
    tx.commit().await.unwrap();
    assert!(texts(&client).await.is_empty());
}

#[tokio::test]
async fn f057_the_database_is_bound_to_a_cluster_at_first_use() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let ours = db.raised("prod/orders/17@5").await;
    let before = dump(&client).await;
    let test = ClusterId::new("test").unwrap();
    match PostgresFence::install(&client, &test).await {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented.as_str(), bound.as_str()), ("test", "prod"));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(db.fence.raise(&client, &theirs).await.unwrap_err().kind(), FenceErrorKind::WrongCluster);
    for tokens in [vec![theirs.clone()], vec![ours.clone(), theirs]] {
        assert_eq!(
            db.write(&mut client, &tokens, "t").await.unwrap_err().kind(),
            FenceErrorKind::WrongCluster
        );
    }
    assert_eq!(dump(&client).await, before);
    db.write(&mut client, &[ours], "ours").await.unwrap();
}

#[tokio::test]
async fn f075_a_raise_that_was_rolled_back_or_refused_in_part_raises_nothing() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let owner = db.raised("prod/orders/17@33").await;
    let before = dump(&client).await;
    for _ in 0..100 {
        let tx = client.transaction().await.unwrap();
        tx.batch_execute("SELECT ringfence.raise('prod/orders/17@34')").await.unwrap();
        tx.rollback().await.unwrap();
        let part = [token("prod/orders/16@9"), token("prod/orders/17@32"), token("prod/orders/18@9")];
        db.fence.raise_all(&client, &part).await.unwrap_err();
    }
    assert_eq!(dump(&client).await, before);
    assert_eq!(db.fence.highest(&client, owner.scope()).await.unwrap(), Some(owner.epoch()));
    assert_eq!(db.fence.highest(&client, token("prod/orders/16@9").scope()).await.unwrap(), None);
}

#[tokio::test]
async fn f076_every_refused_call_leaves_the_rows_as_they_were() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    db.write(&mut client, from_ref(&new), "34").await.unwrap();
    let before = dump(&client).await;
    for _ in 0..20 {
        db.fence.raise(&client, &old).await.unwrap_err();
        db.write(&mut client, from_ref(&old), "33").await.unwrap_err();
        db.write(&mut client, &[token("prod/orders/18@1")], "never raised").await.unwrap_err();
        db.fence.raise_all(&client, &[token("prod/orders/18@1"), old.clone()]).await.unwrap_err();
        PostgresFence::install(&client, db.fence.cluster()).await.unwrap();
    }
    assert_eq!(dump(&client).await, before);
    db.write(&mut client, &[new], "34 goes on").await.unwrap();
}

#[tokio::test]
async fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let (owner, forged) = (db.raised("prod/orders/17@5").await, token("prod/orders/17@9007199254740991"));
    assert_eq!(db.fence.raise(&client, &forged).await.unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(db.write(&mut client, &[forged], "f").await.unwrap_err().kind(), FenceErrorKind::Implausible);
    db.write(&mut client, from_ref(&owner), "still mine").await.unwrap();
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    db.fence.force_raise(&client, &meant).await.unwrap();
    assert_eq!(db.fence.highest(&client, owner.scope()).await.unwrap(), Some(meant.epoch()));
    // Forcing goes forward too.
    assert_eq!(db.fence.force_raise(&client, &owner).await.unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[tokio::test]
async fn f096_a_text_that_is_no_token_is_refused_by_the_database_itself() {
    let Some(db) = fenced().await else { return };
    let client = db.open().await;
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
        "'; DROP SCHEMA ringfence; --",
        &long,
    ] {
        for call in
            ["check($1)", "check_all(ARRAY[$1])", "raise($1)", "raise_all(ARRAY[$1])", "force_raise($1)"]
        {
            let error = client.query(&format!("SELECT ringfence.{call}"), &[&bad]).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "RF010", "{call} {bad}: {error:?}");
        }
    }
    for none in [None, Some("")] {
        let error = client.query("SELECT ringfence.check($1)", &[&none]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "RF006");
    }
    assert!(dump(&client).await.len() == 1, "nothing but the binding");
}

#[tokio::test]
async fn f099_whatever_a_replaced_owner_does_it_gets_the_same_error_with_both_epochs() {
    let Some(db) = fenced().await else { return };
    let (mut client, mut conn) = (db.open().await, db.open_sqlx().await);
    let (old, new) = (token("prod/orders/17@33"), db.raised("prod/orders/17@34").await);
    let mut answers = vec![
        db.fence.raise(&client, &old).await,
        db.fence.raise(&mut conn, &old).await,
        db.fence.raise_all(&client, &[token("prod/orders/18@1"), old.clone()]).await,
        db.fence.force_raise(&client, &old).await,
        db.write(&mut client, from_ref(&old), "33").await,
        db.write(&mut client, &[new.clone(), old.clone()], "both").await,
        db.write(&mut client, &[old.clone(), new.clone()], "both").await,
        db.fence.write(&mut conn, from_ref(&old), async |_| Ok(())).await,
    ];
    let tx = client.transaction().await.unwrap();
    answers.push(db.fence.observe_all(&tx, from_ref(&old)).await);
    answers.push(db.fence.check(&tx, &old).await);
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
    let mut client = db.open().await;
    let old = token("prod/orders/17@33");
    assert_eq!(
        db.write(&mut client, from_ref(&old), "v").await.unwrap_err().kind(),
        FenceErrorKind::NotRaised
    );
    let new = db.raised("prod/orders/17@34").await;
    assert_eq!(db.write(&mut client, &[old], "v").await.unwrap_err().kind(), FenceErrorKind::Fenced);

    let bare = Database::bare(shared().unwrap()).await;
    let (mut client, mut conn) = (bare.open().await, bare.open_sqlx().await);
    for error in [
        bare.fence.raise(&client, &new).await.unwrap_err(),
        bare.fence.raise(&mut conn, &new).await.unwrap_err(),
        bare.fence.highest(&client, new.scope()).await.unwrap_err(),
        bare.write(&mut client, from_ref(&new), "v").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::NotInstalled, "{error:?}");
    }
    // Installed, and bound to nobody.
    client.batch_execute(PostgresFence::MIGRATION_SQL).await.unwrap();
    for error in [
        bare.fence.raise(&client, &new).await.unwrap_err(),
        bare.fence.highest(&client, new.scope()).await.unwrap_err(),
        bare.write(&mut client, from_ref(&new), "v").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::NotInstalled, "{error:?}");
    }
}

#[tokio::test]
async fn t01_a_write_that_fails_rolls_back_the_epoch_it_brought_in() {
    let Some(db) = fenced().await else { return };
    let mut client = db.open().await;
    let (owner, next) = (db.raised("prod/orders/17@5").await, token("prod/orders/17@6"));
    let next = [next];
    let failed = db.fence.write(&mut client, &next, async |tx| {
        put(tx, "k", "v").await?;
        Err::<(), _>(FenceError::store("the user's work", std::io::Error::other("no")))
    });
    assert!(matches!(failed.await, Err(FenceError::Store { .. })));
    assert_eq!(db.fence.highest(&client, owner.scope()).await.unwrap().map(Epoch::get), Some(5));
    assert!(texts(&client).await.is_empty());
}
