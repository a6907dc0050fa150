//! Cases that happened to others.

use crate::subject::{Database, cluster, dump, put, texts, token};
use ringfence_core::ids::{Epoch, SessionId};
use ringfence_fence::sqlite::{CHECK_SQL, SqliteFence};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly, Observed};
use rusqlite::{Connection, named_params};
use std::slice::from_ref;

fn write(db: &Database, conn: &mut Connection, token: &FencingToken, value: &str) -> Result<(), FenceError> {
    db.fence.write(conn, from_ref(token), |tx| put(tx, "k", value))
}

#[test]
fn f001_t08_no_clean_up_takes_the_fence_with_it() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &old).unwrap();
    write(&db, &mut conn, &old, "33").unwrap();
    // The old writer sleeps. The next one takes over, writes once and goes quiet; then everything is tidied up.
    db.fence.raise(&mut conn, &new).unwrap();
    write(&db, &mut conn, &new, "34").unwrap();
    conn.execute_batch(
        "DELETE FROM texts; PRAGMA wal_checkpoint(TRUNCATE); VACUUM; REINDEX; ANALYZE; PRAGMA optimize;
         PRAGMA journal_mode = DELETE;",
    )
    .unwrap();
    for by_hand in [
        "DELETE FROM ringfence_fence",
        "DELETE FROM ringfence_fence WHERE scope = 'orders/17'",
        "UPDATE ringfence_fence SET epoch = 1",
        "UPDATE ringfence_fence SET scope = 'orders/18'",
        "REPLACE INTO ringfence_fence (scope, epoch) VALUES ('orders/17', 1)",
        "DELETE FROM ringfence_binding",
        "UPDATE ringfence_binding SET cluster = 'test'",
    ] {
        let refused = conn.execute_batch(by_hand).unwrap_err().to_string();
        assert!(refused.contains("ringfence: "), "{by_hand}: {refused}");
    }
    drop(conn);

    let mut conn = db.open();
    SqliteFence::install(&conn, &cluster("prod")).unwrap();
    match write(&db, &mut conn, &old, "33 again") {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert!(texts(&conn).is_empty());
}

#[test]
fn f005_the_default_refuses_and_observing_has_its_own_name() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &new).unwrap();
    assert!(matches!(write(&db, &mut conn, &old, "33"), Err(FenceError::Fenced(_))));
    let unstamped = db.fence.write(&mut conn, &[], |tx| put(tx, "k", "nobody's"));
    assert!(matches!(unstamped, Err(FenceError::Unstamped)));
    assert!(texts(&conn).is_empty());

    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let tx = conn.transaction().unwrap();
    let seen = observing.observe(|fence| fence.check(&tx, &old)).unwrap();
    assert!(matches!(seen, Observed::WouldRefuse(FenceError::Fenced(_))));
    put(&tx, "k", "33").unwrap();
    tx.commit().unwrap();
    assert_eq!(observing.counts().would_refuse, 1);
    assert_eq!(db.fence.highest(&conn, old.scope()).unwrap(), Some(new.epoch()));
}

#[test]
fn f018_t15_a_restored_copy_accepts_a_replaced_owner_until_the_owner_has_raised_again() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &old).unwrap();
    let copy = db.path().with_file_name("copy");
    conn.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    db.fence.raise(&mut conn, &new).unwrap();
    assert!(matches!(write(&db, &mut conn, &old, "33"), Err(FenceError::Fenced(_))));

    // The copy has the fence of its time. Nothing in it tells that there was a newer owner.
    let mut restored = Connection::open(&copy).unwrap();
    write(&db, &mut restored, &old, "33").unwrap();
    db.fence.raise(&mut restored, &new).unwrap();
    assert!(matches!(write(&db, &mut restored, &old, "33"), Err(FenceError::Fenced(_))));
    write(&db, &mut restored, &new, "34").unwrap();
}

#[test]
fn f040_an_owner_granted_again_refuses_its_own_earlier_writes() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let session = SessionId::new(7).unwrap();
    let (first, again) =
        (token("prod/orders/17@33").held_by(session), token("prod/orders/17@34").held_by(session));
    db.fence.raise(&mut conn, &first).unwrap();
    db.fence.raise(&mut conn, &again).unwrap();
    assert!(matches!(write(&db, &mut conn, &first, "delayed"), Err(FenceError::Fenced(_))));
    write(&db, &mut conn, &again, "current").unwrap();
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_and_changes_no_byte() {
    let db = Database::new("delete");
    let mut conn = db.open();
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.fence.raise(&mut conn, &mine).unwrap();
    let before = std::fs::read(db.path()).unwrap();
    match write(&db, &mut conn, &forged, "forged") {
        Err(FenceError::OtherSession { holder, .. }) => assert_eq!(holder, session(u64::MAX)),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.fence.raise(&mut conn, &forged).unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert!(std::fs::read(db.path()).unwrap() == before);
    write(&db, &mut conn, &mine, "mine").unwrap();
}

#[test]
fn f057_the_database_is_bound_to_a_cluster_at_first_use() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let ours = token("prod/orders/17@5");
    db.fence.raise(&mut conn, &ours).unwrap();
    let before = dump(&conn);
    match SqliteFence::install(&conn, &cluster("test")) {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented, bound), (cluster("test"), cluster("prod")));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(db.fence.raise(&mut conn, &theirs).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(write(&db, &mut conn, &theirs, "t").unwrap_err().kind(), FenceErrorKind::WrongCluster);
    // A handle made for another database does not carry its binding over to this one.
    let elsewhere = SqliteFence::install(&Connection::open_in_memory().unwrap(), &cluster("test")).unwrap();
    assert_eq!(elsewhere.raise(&mut conn, &theirs).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(dump(&conn), before);
    write(&db, &mut conn, &ours, "ours").unwrap();
}

#[test]
fn f076_every_refused_call_leaves_the_file_byte_for_byte() {
    let db = Database::new("delete");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &new).unwrap();
    write(&db, &mut conn, &new, "34").unwrap();
    let before = std::fs::read(db.path()).unwrap();
    for _ in 0..20 {
        db.fence.raise(&mut conn, &old).unwrap_err();
        write(&db, &mut conn, &old, "33").unwrap_err();
        write(&db, &mut conn, &token("prod/orders/18@1"), "never raised").unwrap_err();
        db.fence.raise_all(&mut conn, &[token("prod/orders/18@1"), old.clone()]).unwrap_err();
        SqliteFence::install(&conn, &cluster("prod")).unwrap();
    }
    assert!(std::fs::read(db.path()).unwrap() == before);
    write(&db, &mut conn, &new, "34 goes on").unwrap();
}

#[test]
fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (owner, forged) = (token("prod/orders/17@5"), token("prod/orders/17@9007199254740991"));
    db.fence.raise(&mut conn, &owner).unwrap();
    assert_eq!(db.fence.raise(&mut conn, &forged).unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(write(&db, &mut conn, &forged, "f").unwrap_err().kind(), FenceErrorKind::Implausible);
    write(&db, &mut conn, &owner, "still mine").unwrap();
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    db.fence.force_raise(&mut conn, &meant).unwrap();
    assert_eq!(db.fence.highest(&conn, owner.scope()).unwrap(), Some(meant.epoch()));
    // Forcing goes forward too.
    assert_eq!(db.fence.force_raise(&mut conn, &owner).unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[test]
fn f099_whatever_a_replaced_owner_does_it_gets_the_same_error_with_both_epochs() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.fence.raise(&mut conn, &new).unwrap();
    let mut answers = vec![
        db.fence.raise(&mut conn, &old),
        db.fence.raise_all(&mut conn, &[token("prod/orders/18@1"), old.clone()]),
        db.fence.force_raise(&mut conn, &old),
        write(&db, &mut conn, &old, "33"),
        db.fence.write(&mut conn, &[new.clone(), old.clone()], |tx| put(tx, "k", "both")),
    ];
    let tx = conn.transaction().unwrap();
    answers.push(db.fence.check(&tx, &old));
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn t21_a_missing_row_a_replaced_owner_and_a_missing_fence_are_told_apart() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    assert_eq!(write(&db, &mut conn, &old, "v").unwrap_err().kind(), FenceErrorKind::NotRaised);
    db.fence.raise(&mut conn, &new).unwrap();
    assert_eq!(write(&db, &mut conn, &old, "v").unwrap_err().kind(), FenceErrorKind::Fenced);

    let mut bare = Connection::open_in_memory().unwrap();
    assert_eq!(db.fence.raise(&mut bare, &new).unwrap_err().kind(), FenceErrorKind::NotInstalled);
    let tx = bare.transaction().unwrap();
    assert_eq!(db.fence.check(&tx, &new).unwrap_err().kind(), FenceErrorKind::NotInstalled);
}

#[test]
fn a22_the_check_as_one_statement_changes_one_row_exactly_when_the_check_accepts() {
    let db = Database::new("wal");
    let mut conn = db.open();
    db.fence.raise(&mut conn, &token("prod/orders/17@34")).unwrap();
    let top = MAX_JUMP + 34;
    for text in [
        "prod/orders/17@33".to_string(),
        "prod/orders/17@34".into(),
        "prod/orders/17@35".into(),
        format!("prod/orders/17@{top}"),
        format!("prod/orders/17@{}", top + 1),
        format!("prod/orders/17@{}", Epoch::MAX.get()),
        "prod/orders/18@34".into(),
        "test/orders/17@34".into(),
    ] {
        let token = token(&text);
        // Each is asked of the same state: neither transaction commits.
        let tx = conn.transaction().unwrap();
        let checked = db.fence.check(&tx, &token).is_ok();
        drop(tx);
        let tx = conn.transaction().unwrap();
        let changed = tx
            .execute(
                CHECK_SQL,
                named_params! {
                    ":cluster": token.cluster().as_str(),
                    ":scope": token.scope().to_string(),
                    ":epoch": token.epoch().get().cast_signed(),
                },
            )
            .unwrap();
        let seen = db.fence.highest(&tx, token.scope()).unwrap();
        assert_eq!(changed, usize::from(checked), "{text}");
        assert!(!checked || seen == Some(token.epoch()), "{text}");
    }
}

#[test]
fn b04_token_33_writes_34_is_seen_and_33_is_rejected() {
    let db = Database::new("wal");
    let (mut a, mut b) = (db.open(), db.open());
    let (t33, t34) = (token("prod/@locks/file@33"), token("prod/@locks/file@34"));
    db.fence.raise(&mut a, &t33).unwrap();
    write(&db, &mut a, &t33, "A").unwrap();
    db.fence.raise(&mut b, &t34).unwrap();
    write(&db, &mut b, &t34, "B").unwrap();
    assert!(matches!(write(&db, &mut a, &t33, "A, late"), Err(FenceError::Fenced(_))));
    assert_eq!(texts(&a)["k"], "B");
}

#[test]
fn t01_a_write_that_fails_rolls_back_the_epoch_it_brought_in() {
    let db = Database::new("wal");
    let mut conn = db.open();
    let (owner, next) = (token("prod/orders/17@5"), token("prod/orders/17@6"));
    db.fence.raise(&mut conn, &owner).unwrap();
    let before = dump(&conn);
    let failed = db.fence.write(&mut conn, from_ref(&next), |tx| {
        put(tx, "k", "v")?;
        Err::<(), _>(FenceError::store("the user's work", std::io::Error::other("no")))
    });
    assert!(matches!(failed, Err(FenceError::Store { .. })));
    assert_eq!(dump(&conn), before);
}
