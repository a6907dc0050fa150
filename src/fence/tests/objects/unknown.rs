//! Answers that are lost, spoiled or late: a commit is known again by its id, and what cannot be known is said.

use crate::moto::{Moto, available, wait};
use crate::subject::{Fenced, options, put, token};
use crate::wire::{Fault, Wire};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use ringfence_fence::FenceError;
use ringfence_fence::object::{Fate, ObjectFence, UnknownCommit};
use std::sync::Arc;

/// Part of the path of a manifest, however it is replaced.
const MANIFESTS: [&str; 2] = ["manifest.json", "chain"];

#[test]
fn f095_an_owner_knows_its_own_commit_again_when_its_answer_was_lost() {
    for (db, manifest) in Fenced::both().into_iter().zip(MANIFESTS) {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        for fault in [Fault::AnswerLost, Fault::Gateway] {
            let before = db.newest(&owner).0;
            db.wire.next("PUT", manifest, fault);
            let done = db.write(&owner, put("k", &format!("{fault:?}"))).unwrap();
            assert_eq!((done.number(), db.wire.faults_left()), (before + 1, 0), "{fault:?}");
            assert_eq!(db.newest(&owner).0, before + 1, "{fault:?}: it was committed more than once");
            assert_eq!(db.get(&owner, "k"), Some(format!("{fault:?}")));
            // And a raise.
            db.wire.next("PUT", manifest, fault);
            assert_eq!(db.raise(&owner).unwrap().number(), before + 2);
        }
    }
}

#[test]
fn f095_in_s3_too() {
    if !available() {
        return;
    }
    let (moto, wire, owner) = (Moto::shared(), Wire::default(), token("prod/orders/17@33"));
    let store = moto.bucket(&wire);
    let fence = wait(options().install(Arc::new(store), "fence")).unwrap();
    wait(fence.raise(&owner)).unwrap();
    for (number, fault) in [(2, Fault::AnswerLost), (3, Fault::Gateway)] {
        wire.next("PUT", "manifest.json", fault);
        let done = wait(fence.write(std::slice::from_ref(&owner), put("k", "v"))).unwrap();
        assert_eq!((done.number(), wire.faults_left()), (number, 0), "{fault:?}");
    }
}

fn update(store: &dyn ObjectStore, text: &str, over: UpdateVersion) -> object_store::Result<UpdateVersion> {
    let options = PutOptions { mode: PutMode::Update(over), ..PutOptions::default() };
    wait(store.put_opts(&"plain".into(), PutPayload::from(text.to_owned()), options)).map(UpdateVersion::from)
}

/// The control: whoever believes the answer takes its own write for somebody else's.
#[test]
fn t57_f095_a_client_that_believes_the_answer_is_refused_by_its_own_write() {
    let db = Fenced::new();
    let first = wait(db.store.put(&"plain".into(), "first".into())).unwrap();
    db.wire.next("PUT", "plain", Fault::Gateway);
    let refused = update(&*db.store, "mine", first.into()).unwrap_err();
    assert!(matches!(refused, object_store::Error::Precondition { .. }), "{refused}");
    assert_eq!(db.dumb.everything()["plain"], b"mine");
}

/// Three attempts stay on their way, as one and its two repetitions.
fn lose_track(db: &Fenced, manifest: &str, text: &str) -> UnknownCommit {
    for _ in 0..3 {
        db.wire.next("PUT", manifest, Fault::Held);
    }
    let error = db.write(&token("prod/orders/17@33"), put("k", text)).unwrap_err();
    assert!(matches!(error, FenceError::Store { .. }), "{error}");
    assert!(error.to_string().contains("unknown") && !error.is_retryable() && !error.is_refusal());
    UnknownCommit::of(&error).unwrap().clone()
}

#[test]
fn an_unknown_commit_is_open_until_it_arrives_and_takes_effect_once() {
    for (db, manifest) in Fenced::both().into_iter().zip(MANIFESTS) {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        let unknown = lose_track(&db, manifest, "late");
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Open);
        assert_eq!(db.get(&owner, "k"), None);
        assert_eq!(wait(db.wire.release()), [200, 412, 412]);
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Committed);
        assert_eq!(db.get(&owner, "k").as_deref(), Some("late"));
        assert_eq!(db.newest(&owner), (unknown.number(), 33));
        // The chain goes on telling it.
        for _ in 0..3 {
            db.raise(&owner).unwrap();
        }
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Committed);
    }
}

#[test]
fn a09_t05_what_is_still_on_its_way_is_refused_once_the_next_owner_has_raised() {
    for (db, manifest) in Fenced::both().into_iter().zip(MANIFESTS) {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        let unknown = lose_track(&db, manifest, "late");
        let seen = db.raise(&new).unwrap();
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Refused);
        assert_eq!(wait(db.wire.release()), [412, 412, 412]);
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Refused);
        // What the next owner has read is what there is.
        assert_eq!((db.newest(&new), seen.keys().count()), ((seen.number(), 34), 0));
        match db.write(&old, put("k", "again")) {
            Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_owner_settles_what_it_does_not_know_by_raising_again() {
    for (db, manifest) in Fenced::both().into_iter().zip(MANIFESTS) {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        let unknown = lose_track(&db, manifest, "late");
        db.raise(&owner).unwrap();
        assert_eq!(wait(db.fence.resolve(&unknown)).unwrap(), Fate::Refused);
        assert_eq!(wait(db.wire.release()), [412, 412, 412]);
        assert_eq!(db.get(&owner, "k"), None);
    }
}

#[test]
fn an_outcome_that_cannot_be_asked_for_is_unknown_and_asked_for_later() {
    for (db, manifest) in Fenced::both().into_iter().zip(MANIFESTS) {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        db.wire.next("PUT", manifest, Fault::Cut);
        let error = db.write(&owner, put("k", "v")).unwrap_err();
        let unknown = UnknownCommit::of(&error).unwrap_or_else(|| panic!("{error}"));
        // Whoever asks while the store is away is told that nothing happened, and to ask again.
        assert!(wait(db.fence.resolve(unknown)).unwrap_err().is_retryable());
        db.wire.mend();
        // As another process would, which has only the message's id and number.
        let other = ObjectFence::clone(&db.fence);
        assert_eq!(wait(other.resolve(unknown)).unwrap(), Fate::Committed);
        assert_eq!(db.get(&owner, "k").as_deref(), Some("v"));
    }
}

/// An ETag of S3 is a digest of the content, so it comes back with it, and whoever holds the old one may write again.
#[test]
fn t57_a_manifest_whose_content_comes_twice_lets_a_stale_put_in_and_ours_never_comes_twice() {
    let db = Fenced::new();
    let held = wait(db.store.put(&"plain".into(), "33".into())).unwrap();
    for text in ["34", "33"] {
        wait(db.store.put(&"plain".into(), text.into())).unwrap();
    }
    update(&*db.store, "stale", held.into()).unwrap();
    assert_eq!(db.dumb.everything()["plain"], b"stale");

    let owner = token("prod/orders/17@33");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        db.raise(&owner).unwrap();
        let manifest = db.dumb.everything()["scopes/orders/17/manifest.json"].clone();
        assert!(seen.insert(manifest), "a manifest came twice");
    }
}

#[test]
fn t21_an_upload_that_fails_has_committed_nothing() {
    let db = Fenced::new();
    let owner = token("prod/orders/17@33");
    let before = db.raise(&owner).unwrap().number();
    // As often as the client's library tries.
    for _ in 0..11 {
        db.wire.next("PUT", "data", Fault::NotSent);
    }
    let error = db.write(&owner, put("k", "v")).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(db.newest(&owner).0, before);
    db.write(&owner, put("k", "v")).unwrap();
}
