//! Cases that happened to others.

use crate::server::available;
use crate::subject::{Fenced, cluster, token};
use ringfence_core::ids::SessionId;
use ringfence_fence::etcd::{EtcdFence, Put, Txn};
use ringfence_fence::{FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly, Observed};
use std::collections::BTreeMap;
use std::process::Command;
use std::slice::from_ref;

/// Every key with its value and revision.
fn everything(db: &mut Fenced) -> BTreeMap<Vec<u8>, (Vec<u8>, i64)> {
    db.client.all("").into_iter().map(|pair| (pair.key, (pair.value, pair.modified))).collect()
}

fn etcdctl(db: &Fenced, words: &[&str]) -> Option<String> {
    let program = crate::server::etcdctl()?;
    let out = Command::new(program)
        .args(["--endpoints", &db.server.address()])
        .args(words)
        .env("ETCDCTL_API", "3")
        .output()
        .unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn f001_t08_compaction_and_clean_up_take_no_fence_and_a_deleted_one_accepts_nobody() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    db.set(&old, "33").unwrap();
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    db.client.txn(Txn::new().delete("k"));
    let revision = db.client.txn(Txn::new().get("k")).header.revision.to_string();
    if etcdctl(&db, &["compaction", "--physical", &revision]).is_some() {
        etcdctl(&db, &["defrag"]);
    }
    match db.set(&old, "33 again") {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.client.get("k"), None);

    // By hand, which no role forbids to whoever may raise.
    let key = db.fence.key(new.scope());
    db.client.txn(Txn::new().delete(key.clone()));
    for token in [&old, &new, &token("prod/orders/17@35")] {
        assert_eq!(db.set(token, "late").unwrap_err().kind(), FenceErrorKind::NotRaised);
    }
    assert_eq!((db.client.get(&key), db.client.get("k")), (None, None));
}

#[test]
fn t08_a_fence_with_a_lease_is_refused_until_somebody_takes_it_off() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let Some(said) = etcdctl(&db, &["lease", "grant", "100000"]) else { return };
    let lease = i64::from_str_radix(said.split(' ').nth(1).unwrap(), 16).unwrap();
    for key in [db.fence.key(owner.scope()), "ringfence/store".into()] {
        let value = db.client.get(&key).unwrap();
        let put = |lease| {
            Txn::new().then(Put { key: key.clone().into(), value: value.clone().into(), lease, prev: false })
        };
        db.client.txn(put(lease));
        let fresh = db.client.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await);
        for error in [fresh.and_then(|_| db.set(&owner, "v")).unwrap_err(), db.raise(&owner).unwrap_err()] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{key}: {error}");
            assert!(error.to_string().contains("lease"), "{error}");
        }
        db.client.txn(put(0));
        db.set(&owner, "v").unwrap();
    }
    // Also where the row itself is the one that was remembered.
    let key = db.fence.key(owner.scope());
    let value = db.client.get(&key).unwrap();
    db.client.txn(Txn::new().then(Put { key: key.into(), value: value.into(), lease, prev: false }));
    assert_eq!(db.set(&owner, "v").unwrap_err().kind(), FenceErrorKind::Corrupt);
}

#[test]
fn f005_the_default_refuses_and_observing_has_its_own_name() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    assert!(matches!(db.set(&old, "33"), Err(FenceError::Fenced(_))));
    assert!(matches!(db.write(&[], &Txn::new().put("k", "nobody's")), Err(FenceError::Unstamped)));
    assert_eq!(db.client.get("k"), None);

    let answer = db.client.with(async |etcd| db.fence.check(etcd, from_ref(&old)).await);
    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let seen = observing.observe(|_| answer).unwrap();
    assert!(matches!(seen, Observed::WouldRefuse(FenceError::Fenced(_))));
    assert_eq!(observing.counts().would_refuse, 1);
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_and_changes_nothing() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.raise(&mine).unwrap();
    let before = everything(&mut db);
    match db.set(&forged, "forged") {
        Err(FenceError::OtherSession { holder, .. }) => assert_eq!(holder, session(u64::MAX)),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.raise(&forged).unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert_eq!(everything(&mut db), before);
    db.set(&mine, "mine").unwrap();
}

#[test]
fn f057_the_store_is_bound_to_a_cluster_at_first_use_and_a_lost_binding_is_not_made_anew() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let ours = token("prod/orders/17@5");
    db.raise(&ours).unwrap();
    let before = everything(&mut db);
    match db.client.with(async |etcd| EtcdFence::install(etcd, &cluster("test")).await) {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented, bound), (cluster("test"), cluster("prod")));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(db.raise(&theirs).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(db.set(&theirs, "t").unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(everything(&mut db), before);
    db.set(&ours, "ours").unwrap();
    // Behind a prefix is another store.
    db.client.with(async |etcd| EtcdFence::install_under(etcd, "test/", &cluster("test")).await).unwrap();

    db.client.txn(Txn::new().delete("ringfence/store"));
    assert_eq!(db.set(&ours, "v").unwrap_err().kind(), FenceErrorKind::NotInstalled);
    assert_eq!(db.raise(&ours).unwrap_err().kind(), FenceErrorKind::NotInstalled);
    for name in ["prod", "test"] {
        let again = db.client.with(async |etcd| EtcdFence::install(etcd, &cluster(name)).await);
        assert_eq!(again.unwrap_err().kind(), FenceErrorKind::Corrupt);
    }
}

#[test]
fn f096_t17_a_row_that_holds_no_epoch_refuses_everything_and_says_what_it_holds() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let owner = token("prod/orders/17@5");
    db.raise(&owner).unwrap();
    let key = db.fence.key(owner.scope());
    for damaged in ["", "5", "0000000000000000 1 -", "9007199254740992 1 -", "0000000000000005 1 x\u{1b}"] {
        db.client.put(&key, damaged);
        for error in [db.set(&owner, "v").unwrap_err(), db.raise(&owner).unwrap_err()] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{damaged}");
            assert!(
                error.to_string().contains("orders/17") && !error.to_string().contains('\u{1b}'),
                "{error}"
            );
        }
        assert_eq!(db.client.get(&key).as_deref(), Some(damaged));
    }
    db.client.put("ringfence/store", "2 prod 00000000000000ab 1");
    assert_eq!(db.raise(&token("prod/orders/18@5")).unwrap_err().kind(), FenceErrorKind::Corrupt);
}

#[test]
fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (owner, forged) = (token("prod/orders/17@5"), token("prod/orders/17@9007199254740991"));
    db.raise(&owner).unwrap();
    assert_eq!(db.raise(&forged).unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(db.set(&forged, "f").unwrap_err().kind(), FenceErrorKind::Implausible);
    db.set(&owner, "still mine").unwrap();
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    db.client.with(async |etcd| db.fence.force_raise(etcd, &meant).await).unwrap();
    assert_eq!(db.highest(owner.scope()).unwrap(), Some(meant.epoch()));
    // Forcing goes forward too.
    let back = db.client.with(async |etcd| db.fence.force_raise(etcd, &owner).await).unwrap_err();
    assert_eq!(back.kind(), FenceErrorKind::Fenced);
}

#[test]
fn f099_f009_f076_whatever_a_replaced_owner_does_it_gets_both_epochs_and_changes_nothing() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    db.set(&new, "34").unwrap();
    let before = everything(&mut db);
    let both: [FencingToken; 2] = [token("prod/orders/18@1"), old.clone()];
    let answers = [
        db.raise(&old),
        db.client.with(async |etcd| db.fence.raise_all(etcd, &both).await),
        db.client.with(async |etcd| db.fence.force_raise(etcd, &old).await),
        db.set(&old, "33"),
        // Neither of its branches runs.
        db.write(from_ref(&old), &Txn::new().put("k", "33").otherwise(Txn::new().put("k", "33"))).map(drop),
        db.write(&[new.clone(), old.clone()], &Txn::new().put("k", "both")).map(drop),
        db.client.with(async |etcd| db.fence.check(etcd, from_ref(&old)).await),
    ];
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(everything(&mut db), before);
    db.set(&new, "34 goes on").unwrap();
}

#[test]
fn b06_b30_a_writer_that_is_paused_after_its_check_is_refused_behind_the_fence_and_overwrites_without_it() {
    if !available() {
        return;
    }
    let mut db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    // Its last look: all is well, and the row that it will compare with is remembered.
    db.client.with(async |etcd| db.fence.check(etcd, from_ref(&old)).await).unwrap();
    let mut next = db.server.client();
    let theirs = next.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    next.with(async |etcd| theirs.raise(etcd, &new).await).unwrap();
    let write = Txn::new().put("k", "34");
    next.with(async |etcd| theirs.write(etcd, from_ref(&new), &write).await).unwrap();
    // It goes on, with what it remembers.
    assert!(matches!(db.set(&old, "33, late"), Err(FenceError::Fenced(_))));
    assert_eq!(db.client.get("k").as_deref(), Some("34"));
    // The same write past the fence.
    db.client.put("k", "33, late");
    assert_eq!(db.client.get("k").as_deref(), Some("33, late"));
}
