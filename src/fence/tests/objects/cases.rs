//! Cases that happened to others.

use crate::dumb::Manner;
use crate::moto::wait;
use crate::subject::{Fenced, cluster, contents, options, put, token};
use crate::wire::Fault;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use ringfence_core::ids::{Epoch, SessionId};
use ringfence_fence::object::{Moved, ObjectFence, ObjectWrite};
use ringfence_fence::{
    DeclaredFence, Enforcement, Fence, FenceError, FenceErrorKind, FencingToken, MAX_JUMP, ObserveOnly,
    Observed,
};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// A client takes a lock, and stops for 15 seconds. The lock runs out, the next one takes it and writes the file; then
/// the first goes on where it had stopped. Answers what is in the file, and what the first was told.
///
/// The fence is the condition that the store keeps: with a store that takes it and ignores it, all else is the same.
fn fifteen_seconds(manner: Manner) -> (String, Result<(), FenceErrorKind>) {
    let db = Fenced::in_store(manner, options().trusting_the_store());
    let (first, second) = (token("prod/@locks/report@33"), token("prod/@locks/report@34"));
    db.raise(&first).unwrap();
    let paused = db.stage(&first, put("report.csv", "by the first")).unwrap();
    db.raise(&second).unwrap();
    db.write(&second, put("report.csv", "by the second")).unwrap();
    let told = wait(paused.commit()).map(drop).map_err(|error| error.kind());
    (db.get(&second, "report.csv").unwrap(), told)
}

#[test]
fn a45_a44_a_pause_of_15_seconds_overwrites_no_file_of_the_next_holder() {
    assert_eq!(fifteen_seconds(Manner::Sound), ("by the second".into(), Err(FenceErrorKind::Fenced)));
}

#[test]
fn t57_a45_without_the_fence_the_pause_overwrites_the_file_and_nobody_is_told() {
    assert_eq!(fifteen_seconds(Manner::IgnoresIfMatch), ("by the first".into(), Ok(())));
}

#[test]
fn f099_whatever_a_replaced_owner_does_it_gets_the_same_error_with_both_epochs() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        let seen = db.raise(&old).unwrap();
        let staged = db.stage(&old, put("k", "33")).unwrap();
        db.raise(&new).unwrap();
        for error in [
            db.raise(&old).unwrap_err(),
            wait(db.fence.force_raise(&old)).unwrap_err(),
            wait(db.fence.raise_all(from_ref(&old))).unwrap_err(),
            db.write(&old, put("k", "33")).unwrap_err(),
            db.write(&old, put("k", "33").on(&seen)).unwrap_err(),
            db.write(&old, ObjectWrite::new().remove("k")).unwrap_err(),
            db.stage(&old, ObjectWrite::new()).unwrap_err(),
            wait(staged.commit()).unwrap_err(),
            wait(db.fence.check(from_ref(&old))).unwrap_err(),
            wait(db.fence.sweep(&old, Duration::ZERO)).unwrap_err(),
        ] {
            let FenceError::Fenced(fenced) = &error else { panic!("{error}") };
            assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34));
            assert!(error.is_refusal() && !error.is_retryable());
        }
    }
}

#[test]
fn f076_every_refused_call_leaves_every_object_as_it_was() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        let session = |number| SessionId::new(number).unwrap();
        let seen = db.raise(&old).unwrap();
        db.raise(&new.clone().held_by(session(1))).unwrap();
        db.write(&new, put("k", "34")).unwrap();
        let before = db.dumb.everything();
        let forged = new.clone().held_by(session(2));
        let far = token(&format!("prod/orders/17@{}", 35 + MAX_JUMP));
        for (refused, kind) in [
            (&old, FenceErrorKind::Fenced),
            (&forged, FenceErrorKind::OtherSession),
            (&far, FenceErrorKind::Implausible),
            (&token("test/orders/17@35"), FenceErrorKind::WrongCluster),
        ] {
            assert_eq!(db.raise(refused).unwrap_err().kind(), kind);
            assert_eq!(db.write(refused, put("k", "no")).unwrap_err().kind(), kind);
            assert_eq!(wait(db.fence.sweep(refused, Duration::ZERO)).unwrap_err().kind(), kind);
        }
        assert_eq!(
            db.write(&token("prod/orders/18@5"), put("k", "no")).unwrap_err().kind(),
            FenceErrorKind::NotRaised
        );
        assert_eq!(wait(db.fence.write(&[], put("k", "no"))).unwrap_err().kind(), FenceErrorKind::Unstamped);
        assert_eq!(wait(db.fence.raise_all(&[])).unwrap_err().kind(), FenceErrorKind::Unstamped);
        assert_eq!(db.write(&new, put("", "no")).unwrap_err().kind(), FenceErrorKind::Unfit);
        assert_eq!(db.write(&new, put("k", "no").on(&seen)).unwrap_err().kind(), FenceErrorKind::Busy);
        // All but the last were refused before anything was uploaded; what that one uploaded, nobody names.
        let mut now = db.dumb.everything();
        now.retain(|key, _| before.contains_key(key) || !key.contains("/data/"));
        assert_eq!(now, before);
    }
}

#[test]
fn f042_another_session_under_the_same_epoch_is_refused_and_changes_nothing() {
    let db = Fenced::new();
    let session = |number| SessionId::new(number).unwrap();
    let mine = token("prod/orders/17@33").held_by(session(u64::MAX));
    let forged = token("prod/orders/17@33").held_by(session(2));
    db.raise(&mine).unwrap();
    let before = db.dumb.everything();
    match db.write(&forged, put("k", "forged")) {
        Err(FenceError::OtherSession { holder, .. }) => assert_eq!(holder, session(u64::MAX)),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.raise(&forged).unwrap_err().kind(), FenceErrorKind::OtherSession);
    assert_eq!(db.dumb.everything(), before);
    db.write(&mine, put("k", "mine")).unwrap();
}

/// What runs beside the owner's main path: a flusher that had staged, one that begins, and a clean-up.
#[test]
fn f049_nothing_that_runs_in_the_background_gets_through_once_its_owner_was_replaced() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        db.write(&old, put("a", "33").put("b", "33".to_owned())).unwrap();
        let flusher = db.stage(&old, put("a", "flushed late")).unwrap();
        db.raise(&new).unwrap();
        db.write(&new, put("a", "34")).unwrap();
        let before = db.dumb.everything();
        let background = [
            wait(flusher.commit()).map(drop),
            db.write(&old, put("checkpoint", "33")).map(drop),
            wait(db.fence.sweep(&old, Duration::ZERO)).map(drop),
        ];
        for answer in background {
            assert_eq!(answer.unwrap_err().kind(), FenceErrorKind::Fenced);
        }
        // No object has gone, also none that nobody names, and none has come.
        assert_eq!(db.dumb.everything(), before);
        assert_eq!((db.get(&new, "a").unwrap(), db.get(&new, "b").unwrap()), ("34".into(), "33".into()));
    }
}

#[test]
fn f075_an_epoch_advances_only_with_a_commit() {
    for (db, manifest) in Fenced::both().into_iter().zip(["manifest.json", "chain"]) {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        let number = db.raise(&old).unwrap().number();
        for _ in 0..20 {
            // The attempt and its two repetitions.
            (0..3).for_each(|_| db.wire.next("PUT", manifest, Fault::NotSent));
            assert_eq!(db.raise(&new).unwrap_err().kind(), FenceErrorKind::Store);
            assert_eq!(db.newest(&old), (number, 33));
        }
        db.write(&old, put("k", "still the owner")).unwrap();
        assert_eq!(db.raise(&new).unwrap().number(), number + 2);
        assert_eq!(db.write(&old, put("k", "late")).unwrap_err().kind(), FenceErrorKind::Fenced);
    }
}

#[test]
fn f096_t21_a_manifest_that_is_damaged_refuses_everything_and_is_left_as_it_is() {
    let db = Fenced::new();
    let (owner, next) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&owner).unwrap();
    let path = "scopes/orders/17/manifest.json";
    let whole = String::from_utf8(db.dumb.everything()[path].clone()).unwrap();
    for damaged in [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole.replace("33", "-33"),
        whole.replace("\"format\":1", "\"format\":7"),
        "x".repeat(5 << 20),
    ] {
        db.dumb.tamper(path, damaged.as_bytes());
        for error in [
            db.raise(&next).unwrap_err(),
            db.write(&owner, put("k", "v")).unwrap_err(),
            wait(db.fence.force_raise(&next)).unwrap_err(),
            wait(db.fence.highest(owner.scope())).unwrap_err(),
            wait(db.fence.sweep(&owner, Duration::ZERO)).unwrap_err(),
        ] {
            assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(path) && error.to_string().len() < 900, "{error}");
        }
        assert_eq!(db.dumb.everything()[path], damaged.as_bytes());
    }
    db.dumb.tamper(path, whole.as_bytes());
    db.write(&owner, put("k", "repaired")).unwrap();
}

#[test]
fn f096_t10_a_forged_epoch_cannot_lock_everybody_out_and_an_operator_can_force_one() {
    let db = Fenced::new();
    let (owner, top) = (token("prod/orders/17@33"), token(&format!("prod/orders/17@{}", Epoch::MAX.get())));
    db.raise(&owner).unwrap();
    assert_eq!(db.raise(&top).unwrap_err().kind(), FenceErrorKind::Implausible);
    db.write(&owner, put("k", "still mine")).unwrap();
    wait(db.fence.force_raise(&top)).unwrap();
    assert_eq!(db.raise(&owner).unwrap_err().kind(), FenceErrorKind::Fenced);
}

#[test]
fn f005_the_default_refuses_and_observing_has_its_own_name() {
    let db = Fenced::new();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&new).unwrap();
    assert_eq!(db.write(&old, put("k", "33")).unwrap_err().kind(), FenceErrorKind::Fenced);
    let answer = wait(db.fence.check(from_ref(&old)));
    let observing = ObserveOnly::without_refusing(db.fence.clone());
    let seen = observing.observe(|_| answer).unwrap();
    assert!(matches!(seen, Observed::WouldRefuse(FenceError::Fenced(_))));
    assert_eq!(observing.counts().would_refuse, 1);
}

#[test]
fn b05_it_is_declared_as_enforced_and_raised_by_the_one_call() {
    let db = Fenced::new();
    let declared = DeclaredFence::enforced("carts", db.fence.clone());
    assert_eq!(declared.enforcement(), Enforcement::Enforced);
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    wait(declared.raise(&new)).unwrap();
    assert!(matches!(wait(declared.raise(&old)), Err(FenceError::Fenced(_))));
    assert_eq!(wait(declared.highest(old.scope())).unwrap(), Some(new.epoch()));
}

#[test]
fn t13_scopes_of_several_manifests_are_no_one_step_and_that_is_said_before_anything_is_written() {
    let db = Fenced::new();
    let tokens = [token("prod/orders/17@33"), token("prod/orders/18@7")];
    tokens.iter().for_each(|token| drop(db.raise(token).unwrap()));
    let before = db.dumb.everything();
    for error in [
        wait(db.fence.write(&tokens, put("k", "v"))).unwrap_err(),
        wait(db.fence.raise_all(&tokens)).unwrap_err(),
        wait(db.fence.check(&tokens)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::Unfit);
        assert!(error.to_string().contains("together"), "{error}");
    }
    assert_eq!(db.dumb.everything(), before);
}

#[test]
fn a49_a_write_that_rests_on_what_was_read_is_taken_only_while_that_is_still_so() {
    for db in Fenced::both() {
        let owner = token("prod/orders/17@33");
        let read = db.raise(&owner).unwrap();
        let one = db.write(&owner, put("k", "1").on(&read)).unwrap();
        let error = db.write(&owner, put("k", "lost").on(&read)).unwrap_err();
        assert!(error.is_retryable() && Moved::of(&error).is_some(), "{error}");
        let two = db.write(&owner, put("k", "2").on(&one)).unwrap();
        assert_eq!((two.number(), db.get(&owner, "k").unwrap()), (3, "2".into()));
        // One that rests on nothing goes on from what there is.
        let late = db.stage(&owner, put("other", "3")).unwrap();
        db.write(&owner, put("k", "4")).unwrap();
        wait(late.commit()).unwrap();
        assert_eq!(
            (db.get(&owner, "k").unwrap(), db.get(&owner, "other").unwrap()),
            ("4".into(), "3".into())
        );
        let elsewhere = db.raise(&token("prod/orders/18@1")).unwrap();
        assert_eq!(db.write(&owner, put("k", "5").on(&elsewhere)).unwrap_err().kind(), FenceErrorKind::Unfit);
    }
}

/// What docs/fences-objects.md says that each costs.
#[test]
fn a_raise_is_two_requests_and_a_commit_two_or_three() {
    let methods = |db: &Fenced| -> String {
        db.wire.sent().iter().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let owner = token("prod/orders/17@33");
    let db = Fenced::new();
    let read = db.raise(&owner).unwrap();
    assert_eq!(methods(&db), "GET PUT");
    let read = db.write(&owner, put("k", "1").on(&read)).unwrap();
    assert_eq!(methods(&db), "PUT PUT");
    db.write(&owner, put("k", "2")).unwrap();
    assert_eq!(methods(&db), "GET PUT PUT");
    db.get(&owner, "k").unwrap();
    assert_eq!(methods(&db), "GET GET");
    db.raise(&token("prod/orders/17@34")).unwrap();
    methods(&db);
    db.write(&owner, put("k", "3")).unwrap_err();
    assert_eq!(methods(&db), "GET");
    db.write(&owner, put("k", "3").on(&read)).unwrap_err();
    // It uploads, and then learns that it was replaced.
    assert_eq!(methods(&db), "PUT PUT GET");

    let db = Fenced::by_creating();
    db.raise(&owner).unwrap();
    // No mark of a sweep, a list of folders, and none there.
    assert_eq!(methods(&db), "GET GET PUT");
    let read = db.raise(&owner).unwrap();
    assert_eq!(methods(&db), "GET GET PUT");
    db.write(&owner, put("k", "1").on(&read)).unwrap();
    assert_eq!(methods(&db), "PUT PUT");
    // Another process, which knows no number yet.
    let options = options().by_creating().trusting_the_store();
    let fence = wait(options.install(Arc::clone(&db.store), "")).unwrap();
    methods(&db);
    wait(fence.raise(&owner)).unwrap();
    assert_eq!(methods(&db), "GET GET GET GET PUT");
    wait(fence.get(owner.scope(), "k")).unwrap();
    assert_eq!(methods(&db), "GET GET GET");
}

#[test]
fn a_chain_goes_on_over_the_end_of_a_folder() {
    let fence = wait(options().by_creating().install(Arc::new(InMemory::new()), "")).unwrap();
    let owner = token("prod/orders/17@33");
    let mut read = wait(fence.raise(&owner)).unwrap();
    while read.number() < 1002 {
        read = wait(fence.write(from_ref(&owner), ObjectWrite::new().on(&read))).unwrap();
    }
    assert_eq!(wait(fence.read(owner.scope())).unwrap().unwrap().number(), 1002);
    assert_eq!(wait(fence.raise(&owner)).unwrap().number(), 1003);
}

#[test]
fn a_writer_that_died_before_the_first_link_of_a_folder_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    let fence = wait(options().by_creating().install(Arc::new(store), "")).unwrap();
    let owner = token("prod/orders/17@33");
    let made = wait(fence.raise(&owner)).unwrap().number();
    let link = format!("{made:020}.json");
    let mut open = vec![dir.path().to_owned()];
    let folder = loop {
        let here = open.pop().expect("a folder with the first link");
        if here.join(&link).exists() {
            break here;
        }
        let below = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path());
        open.extend(below.filter(|path| path.is_dir()));
    };
    std::fs::create_dir(folder.with_file_name(format!("{:020}", 1))).unwrap();
    assert_eq!(wait(fence.read(owner.scope())).unwrap().unwrap().number(), made);
    assert_eq!(wait(fence.raise(&owner)).unwrap().number(), made + 1);

    // As well where it is the first folder of a scope.
    let chain = folder.parent().unwrap().to_str().unwrap().replace("17", "18");
    std::fs::create_dir_all(format!("{chain}/{:020}", 0)).unwrap();
    wait(fence.raise(&token("prod/orders/18@33"))).unwrap();
}

#[test]
fn removing_a_key_and_several_keys_at_once() {
    let db = Fenced::new();
    let owner = token("prod/orders/17@33");
    db.raise(&owner).unwrap();
    let many = (0..20).fold(ObjectWrite::new(), |write, n| write.put(&format!("k{n}"), format!("v{n}")));
    db.write(&owner, many.put("e\u{301}/\"..\"", "")).unwrap();
    let snapshot = db.write(&owner, ObjectWrite::new().remove("k3").remove("absent")).unwrap();
    assert_eq!(snapshot.keys().count(), 20);
    assert!(snapshot.path("k3").is_none() && snapshot.path("k4").is_some());
    let all = contents(&db.fence, owner.scope()).unwrap();
    assert_eq!((all["k19"].as_str(), all["e\u{301}/\"..\""].as_str()), ("v19", ""));
}

#[test]
fn what_is_printed_holds_no_content() {
    let db = Fenced::new();
    let owner: FencingToken = token("prod/orders/17@33");
    db.raise(&owner).unwrap();
    let staged = db.stage(&owner, put("k", "a secret")).unwrap();
    let printed = format!("{staged:?} {:?} {:?}", db.fence, ObjectFence::options(&cluster("prod")));
    let spelt = b"a secret".map(|byte| byte.to_string()).join(", ");
    assert!(!printed.contains("secret") && !printed.contains(&spelt), "{printed}");
}
