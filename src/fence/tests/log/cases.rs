//! Cases that happened to others.

use crate::subject::{Place, cluster, texts, token};
use ringfence_core::ids::SessionId;
use ringfence_fence::log::{FencedLog, LogRaiser};
use ringfence_fence::{
    DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly,
    Observed,
};
use std::slice::from_ref;

#[test]
fn f009_f076_f099_whatever_a_replaced_owner_does_it_gets_both_epochs_and_changes_nothing() {
    let place = Place::new();
    let (mut log, mut next) = (place.open(), place.open());
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    log.raise(&old).unwrap();
    log.append(from_ref(&old), b"33").unwrap();
    next.raise(&new).unwrap();
    next.append(from_ref(&new), b"34").unwrap();
    let before = place.bytes();
    let both: [FencingToken; 2] = [token("prod/orders/18@1"), old.clone()];
    let answers = [
        log.raise(&old),
        log.raise_all(&both),
        log.force_raise(&old),
        log.append(from_ref(&old), b"late").map(drop),
        log.append_all(&[new.clone(), old.clone()], &[b"a", b"b"]).map(drop),
        log.append_with(from_ref(&old), || unreachable!("a refused entry is never made")).map(drop),
        log.check(from_ref(&old)),
    ];
    for answer in answers {
        match answer {
            Err(FenceError::Fenced(f)) => {
                assert_eq!((f.own().get(), f.highest().get(), f.scope()), (33, 34, old.scope()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(place.bytes(), before);
    assert_eq!(texts(&mut log), ["33", "34"]);
}

#[test]
fn f005_the_default_refuses_and_observing_has_its_own_name() {
    let place = Place::new();
    let mut log = place.open();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    log.raise(&new).unwrap();
    assert!(matches!(log.append(&[], b"nobody's"), Err(FenceError::Unstamped)));
    let answer = log.check(from_ref(&old));
    let observing = ObserveOnly::without_refusing(());
    let seen = observing.observe(|()| answer).unwrap();
    assert!(matches!(seen, Observed::WouldRefuse(FenceError::Fenced(_))));
    assert!(texts(&mut log).is_empty());
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_and_changes_nothing() {
    let place = Place::new();
    let mut log = place.open();
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    log.raise(&mine).unwrap();
    let before = place.bytes();
    for answer in [log.append(from_ref(&forged), b"forged").map(drop), log.raise(&forged)] {
        assert!(
            matches!(answer, Err(FenceError::OtherSession { holder, .. }) if holder == session(u64::MAX))
        );
    }
    assert_eq!(place.bytes(), before);
    log.append(from_ref(&mine), b"mine").unwrap();
}

#[test]
fn f057_a_log_is_bound_to_a_cluster_when_it_is_made() {
    let place = Place::new();
    let mut log = place.open();
    match FencedLog::install(place.path(), &cluster("test")) {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented, bound), (cluster("test"), cluster("prod")));
        }
        other => panic!("{other:?}"),
    }
    let theirs = token("test/orders/17@9");
    assert_eq!(log.raise(&theirs).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(log.append(from_ref(&theirs), b"t").unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert!(matches!(
        FencedLog::open(place.dir().join("none"), &cluster("prod")),
        Err(FenceError::NotInstalled)
    ));
}

#[test]
fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    let place = Place::new();
    let mut log = place.open();
    let (owner, forged) = (token("prod/orders/17@5"), token("prod/orders/17@9007199254740991"));
    log.raise(&owner).unwrap();
    assert_eq!(log.raise(&forged).unwrap_err().kind(), FenceErrorKind::Implausible);
    assert_eq!(log.append(from_ref(&forged), b"f").unwrap_err().kind(), FenceErrorKind::Implausible);
    let meant = token(&format!("prod/orders/17@{}", 6 + MAX_JUMP));
    log.force_raise(&meant).unwrap();
    // Whoever reads the log later believes it too.
    assert_eq!(place.open().highest(owner.scope()).unwrap(), Some(meant.epoch()));
}

/// The articles' story with its check and its write apart, and in one step.
#[test]
fn c08_b06_a_check_of_its_own_before_the_write_lets_a_replaced_owner_through() {
    let place = Place::new();
    let (mut log, mut next) = (place.open(), place.open());
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    let plain = place.dir().join("plain");
    log.raise(&old).unwrap();
    log.check(from_ref(&old)).unwrap();
    // Paused. The next owner takes over and writes.
    next.raise(&new).unwrap();
    next.append(from_ref(&new), b"34").unwrap();
    std::fs::write(&plain, "34").unwrap();
    // It goes on.
    assert!(matches!(log.append(from_ref(&old), b"33, late"), Err(FenceError::Fenced(_))));
    std::fs::write(&plain, "33, late").unwrap();
    assert_eq!(texts(&mut log), ["34"]);
    assert_eq!(std::fs::read_to_string(plain).unwrap(), "33, late");
}

#[test]
fn b05_a_raiser_is_an_enforcing_fence_and_raises_at_once_each_get_their_own_answer() {
    let place = Place::new();
    let raiser = LogRaiser::install(place.path(), &cluster("prod")).unwrap();
    let declared = DeclaredFence::enforced("orders", raiser.clone());
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    runtime.block_on(declared.raise(&new)).unwrap();
    assert!(matches!(runtime.block_on(declared.raise(&old)), Err(FenceError::Fenced(_))));
    assert_eq!(runtime.block_on(declared.highest(old.scope())).unwrap(), Some(new.epoch()));
    let refused = runtime.block_on(async move {
        let tasks: Vec<_> = (0..50)
            .map(|partition| {
                let raiser = raiser.clone();
                tokio::spawn(async move { raiser.raise(&token(&format!("prod/orders/{partition}@5"))).await })
            })
            .collect();
        let mut refused = Vec::new();
        for task in tasks {
            refused.extend(task.await.unwrap().err());
        }
        refused
    });
    let [FenceError::Fenced(f)] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(f.scope(), old.scope());
    assert_eq!(place.open().highest(token("prod/orders/49@1").scope()).unwrap().unwrap().get(), 5);
}
