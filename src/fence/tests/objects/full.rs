//! What a store cannot keep: a manifest that has no room, a folder that cannot be synced, credentials that are refused.

use crate::moto::wait;
use crate::store::Watched;
use crate::subject::{Fenced, options, put, token};
use crate::wire::{Fault, Wire};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use ringfence_fence::object::{EpochFolders, Fate, MAX_MANIFEST_BYTES, ObjectWrite, UnknownCommit};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// Up to the line by writes, and then a write's worth of raises.
#[test]
fn a_manifest_that_is_full_for_writes_is_raised_swept_and_emptied_all_the_same() {
    let fence =
        wait(options().together("all").trusting_the_store().install(Arc::new(InMemory::new()), "")).unwrap();
    let own = token("prod/orders/17@33");
    let mut state = wait(fence.raise(&own)).unwrap();
    let key = |n: usize| format!("{n:01000}");
    let mut keys = 0;
    let refused = loop {
        let step = if keys < 3_600 { 600 } else { 10 };
        let write = (keys..keys + step).fold(ObjectWrite::new(), |write, n| write.put(&key(n), ""));
        match wait(fence.write(from_ref(&own), write.on(&state))) {
            Ok(next) => state = next,
            Err(error) => break error,
        }
        keys += step;
    };
    assert_eq!(refused.kind(), FenceErrorKind::Unfit);
    for part in ["kept for raises", "remove keys"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    // Again and again, and scopes that were never raised.
    let mut newest = own.clone();
    for epoch in 34..=53 {
        newest = token(&format!("prod/orders/17@{epoch}"));
        state = wait(fence.raise(&newest)).unwrap();
    }
    for partition in 100..110 {
        wait(fence.raise(&token(&format!("prod/orders/{partition}@9")))).unwrap();
    }
    assert_eq!(
        wait(fence.write(from_ref(&own), put("late", "33"))).unwrap_err().kind(),
        FenceErrorKind::Fenced
    );
    wait(fence.sweep(&newest, Duration::ZERO)).unwrap();
    // What grows nothing is let through, and what frees room makes it.
    wait(fence.write(from_ref(&newest), put(&key(7), ""))).unwrap();
    let more = || (0..20).fold(ObjectWrite::new(), |write, n| write.put(&(key(n) + "more"), ""));
    assert_eq!(wait(fence.write(from_ref(&newest), more())).unwrap_err().kind(), FenceErrorKind::Unfit);
    let less = (0..500).fold(ObjectWrite::new(), |write, n| write.remove(&key(n)));
    wait(fence.write(from_ref(&newest), less)).unwrap();
    wait(fence.write(from_ref(&newest), more())).unwrap();
    assert!(keys as u64 * 1_000 > MAX_MANIFEST_BYTES * 8 / 10 && state.keys().count() == keys);
}

/// An error of a folder as the library makes it. (This one is of a file that stands where a folder would have to.)
fn of_a_folder() -> Error {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    let error = wait(store.put(&"file/below".into(), "".into())).unwrap_err();
    assert!(matches!(error, Error::Generic { .. }), "{error:?}");
    error
}

#[test]
fn a_folder_that_could_not_be_synced_is_no_success_although_the_commit_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let folder = LocalFileSystem::new_with_prefix(dir.path()).unwrap().with_fsync(true);
    let store = Arc::new(Watched::new(folder));
    let install = || wait(options().by_creating().install(Arc::clone(&store) as Arc<dyn ObjectStore>, ""));
    store.fail_after_putting("ringfence.json", of_a_folder());
    assert_eq!(install().unwrap_err().kind(), FenceErrorKind::Store);
    let (fence, own) = (install().unwrap(), token("prod/orders/17@33"));
    store.fail_after_putting("chain", of_a_folder());
    let error = wait(fence.raise(&own)).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store, "{error}");
    let unknown = UnknownCommit::of(&error).unwrap();
    // It is seen, and may go with a power cut.
    assert_eq!(wait(fence.resolve(unknown)).unwrap(), Fate::Committed);
    assert_eq!(wait(fence.raise(&own)).unwrap().number(), 2);
    store.fail_after_putting("chain", of_a_folder());
    let error = wait(fence.write(from_ref(&own), put("k", "v"))).unwrap_err();
    assert!(UnknownCommit::of(&error).is_some(), "{error}");
    // What was uploaded, and is not named yet, is nothing that took effect.
    store.fail_after_putting("data", of_a_folder());
    assert_eq!(wait(fence.write(from_ref(&own), put("k", "v"))).unwrap_err().kind(), FenceErrorKind::Busy);
}

/// All that is printed of an error: itself and what is behind it.
fn told(error: &FenceError) -> String {
    let mut told = format!("{error:?} {error}");
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        told += &format!(" {source:?} {source}");
        next = source.source();
    }
    told
}

#[test]
fn refused_credentials_are_said_to_be_so_nothing_was_written_and_nothing_secret_is_told() {
    for (db, manifest) in Fenced::both().into_iter().zip(["manifest.json", "chain"]) {
        let own = token("prod/orders/17@33");
        let number = db.raise(&own).unwrap().number();
        for (fault, status) in [(Fault::Forbidden, "403"), (Fault::Unauthorized, "401")] {
            for part in [manifest, "data"] {
                db.wire.next("PUT", part, fault);
                let error = db.write(&own, put("k", "v")).unwrap_err();
                assert_eq!(error.kind(), FenceErrorKind::Unfit, "{error}");
                let told = told(&error);
                for said in ["nothing was written", "credentials", status, "SignatureDoesNotMatch"] {
                    assert!(told.contains(said), "{said}: {told}");
                }
                assert!(!told.contains("AKIASECRET") && !told.contains("deadbeef"), "{told}");
            }
            db.wire.next("GET", "", fault);
            let error = db.raise(&own).unwrap_err();
            assert!(error.kind() == FenceErrorKind::Unfit && !told(&error).contains("AKIASECRET"), "{error}");
        }
        assert_eq!(db.newest(&own).0, number);
    }
}

/// The library sends again by itself, and the refusal is of its second: the first may have taken effect.
#[test]
fn credentials_that_are_refused_at_a_second_attempt_tell_nothing_about_the_first() {
    for (db, manifest) in Fenced::both().into_iter().zip(["manifest.json", "chain"]) {
        let own = token("prod/orders/17@33");
        let number = db.raise(&own).unwrap().number();
        db.wire.next("PUT", manifest, Fault::Gateway);
        db.wire.next("PUT", manifest, Fault::Forbidden);
        assert_eq!(db.write(&own, put("k", "v")).unwrap().number(), number + 1);
        // And nobody can look either.
        let state = wait(db.fence.read(own.scope())).unwrap().unwrap();
        db.wire.next("PUT", manifest, Fault::Gateway);
        db.wire.next("PUT", manifest, Fault::Forbidden);
        db.wire.next("GET", "", Fault::Forbidden);
        let error = db.write(&own, put("k", "w").on(&state)).unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Store, "{error}");
        assert!(!told(&error).contains("AKIASECRET"), "{}", told(&error));
        assert_eq!(wait(db.fence.resolve(UnknownCommit::of(&error).unwrap())).unwrap(), Fate::Committed);
    }
}

#[test]
fn a_folder_for_each_epoch_tells_refused_credentials_as_well() {
    let (dumb, wire) = (crate::dumb::Dumb::new(crate::dumb::Manner::Sound), Wire::default());
    let store = Arc::new(wire.s3(dumb.port(), "bucket"));
    let folders = EpochFolders::new(store, "", &crate::subject::cluster("prod")).unwrap();
    wire.next("PUT", "", Fault::Forbidden);
    let error = wait(folders.put(&token("prod/orders/17@33"), "k", "v".into())).unwrap_err();
    assert!(error.kind() == FenceErrorKind::Unfit && !told(&error).contains("AKIASECRET"), "{error}");
}
