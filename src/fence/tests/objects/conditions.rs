//! Stores that do not keep their conditions, and fences that are asked for otherwise than they were made.

use crate::dumb::{Dumb, Manner};
use crate::moto::wait;
use crate::subject::{Fenced, cluster, options, put, token};
use crate::wire::Wire;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use ringfence_fence::object::{ObjectFence, ObjectOptions};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::sync::Arc;

fn install(manner: Manner, options: ObjectOptions) -> (Dumb, Result<ObjectFence, FenceError>) {
    let dumb = Dumb::new(manner);
    let store = Arc::new(Wire::default().s3(dumb.port(), "bucket"));
    let fence = wait(options.install(store, "fence"));
    (dumb, fence)
}

#[test]
fn a_store_that_keeps_no_condition_is_refused_with_what_it_did() {
    for (manner, by_creating, word) in [
        (Manner::IgnoresIfMatch, false, "(If-Match) was taken"),
        (Manner::IgnoresBoth, false, "(If-None-Match: *) was taken"),
        (Manner::IgnoresBoth, true, "(If-None-Match: *) was taken"),
        (Manner::ChecksThenWrites, false, "looks first and writes then"),
        (Manner::ChecksThenWrites, true, "looks first and writes then"),
        (Manner::ListsNothing, true, "a list does not show"),
    ] {
        let asked = if by_creating { options().by_creating() } else { options() };
        let (dumb, fence) = install(manner, asked);
        let error = fence.err().unwrap_or_else(|| panic!("{manner:?} was taken"));
        assert_eq!(error.kind(), FenceErrorKind::Unfit, "{manner:?}: {error}");
        assert!(error.to_string().contains(word), "{manner:?}: {error}");
        assert!(!dumb.everything().contains_key("fence/ringfence.json"), "{manner:?} was bound");
    }
    // What it does keep is enough for the other way.
    install(Manner::IgnoresIfMatch, options().by_creating()).1.unwrap();
}

#[test]
fn a_store_that_keeps_them_is_taken_and_the_test_leaves_nothing_behind() {
    for asked in [options(), options().by_creating()] {
        let (dumb, fence) = install(Manner::Sound, asked);
        fence.unwrap();
        let left: Vec<String> = dumb.everything().into_keys().collect();
        assert_eq!(left, ["fence/ringfence.json"]);
    }
}

/// The control: without the test, such a store lets the replaced owner overwrite what its successor wrote.
#[test]
fn t57_b33_a_store_that_ignores_the_condition_lets_the_replaced_owner_in() {
    let (_dumb, fence) = install(Manner::IgnoresIfMatch, options().trusting_the_store());
    let (fence, old, new) = (fence.unwrap(), token("prod/orders/17@33"), token("prod/orders/17@34"));
    wait(fence.raise(&old)).unwrap();
    let late = wait(fence.stage(std::slice::from_ref(&old), put("k", "33"))).unwrap();
    wait(fence.raise(&new)).unwrap();
    wait(fence.write(std::slice::from_ref(&new), put("k", "34"))).unwrap();
    wait(late.commit()).unwrap();
    assert_eq!(wait(fence.get(new.scope(), "k")).unwrap().as_deref(), Some(&b"33"[..]));
    assert_eq!(wait(fence.highest(new.scope())).unwrap(), Some(old.epoch()), "even the fence went back");
}

#[test]
fn a_folder_has_no_compare_and_set_by_version_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    let error = wait(options().install(store, "fence")).err().unwrap();
    assert_eq!(error.kind(), FenceErrorKind::Unfit);
    assert!(error.to_string().contains("by_creating"), "{error}");
}

#[test]
fn f057_a_root_is_bound_to_a_cluster_at_first_use_and_to_how_it_was_installed() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let install = |options: ObjectOptions, root| wait(options.install(Arc::clone(&store), root));
    let fence = install(options(), "a/b").unwrap();
    match install(ObjectFence::options(&cluster("test")), "a/b") {
        Err(FenceError::WrongCluster { presented, bound }) => {
            assert_eq!((presented.as_str(), bound.as_str()), ("test", "prod"));
        }
        other => panic!("{other:?}"),
    }
    // Another root is another fence.
    install(ObjectFence::options(&cluster("test")), "a/c").unwrap();
    for (asked, word) in [
        (options().by_creating(), "by creating"),
        (options().together("shop"), "shop"),
        (options().together("a/b"), "shared manifest"),
    ] {
        let error = install(asked, "a/b").unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Unfit);
        assert!(error.to_string().contains(word), "{error}");
    }
    install(options(), "a/b").unwrap();
    let foreign = token("test/orders/17@33");
    assert_eq!(wait(fence.raise(&foreign)).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(install(options(), "a//b").unwrap_err().kind(), FenceErrorKind::Unfit);
}

#[test]
fn f057_a_manifest_that_was_copied_from_another_cluster_is_refused() {
    let db = Fenced::new();
    let owner = token("prod/orders/17@33");
    db.raise(&owner).unwrap();
    let manifest = "scopes/orders/17/manifest.json";
    let text = String::from_utf8(db.dumb.everything()[manifest].clone()).unwrap();
    db.dumb.tamper(manifest, text.replace("\"prod\"", "\"test\"").as_bytes());
    let before = db.dumb.everything();
    for error in [
        db.raise(&token("prod/orders/17@34")).unwrap_err(),
        db.write(&owner, put("k", "v")).unwrap_err(),
        wait(db.fence.get(owner.scope(), "k")).unwrap_err(),
        wait(db.fence.highest(owner.scope())).unwrap_err(),
    ] {
        assert_eq!(error.kind(), FenceErrorKind::WrongCluster, "{error}");
    }
    assert_eq!(db.dumb.everything(), before);
}

#[test]
fn f057_f096_a_binding_that_is_damaged_is_not_made_anew() {
    let db = Fenced::new();
    let whole = String::from_utf8(db.dumb.everything()["ringfence.json"].clone()).unwrap();
    for (damaged, kind) in [
        (String::new(), FenceErrorKind::Corrupt),
        ("x".repeat(100_000), FenceErrorKind::Corrupt),
        (whole.replace("prod", "P R O D"), FenceErrorKind::Corrupt),
        (whole.replace("\"format\":1", "\"format\":2"), FenceErrorKind::Unfit),
        (whole.replace("updating", "magic"), FenceErrorKind::Unfit),
    ] {
        db.dumb.tamper("ringfence.json", damaged.as_bytes());
        let error = wait(options().install(Arc::clone(&db.store), "")).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(db.dumb.everything()["ringfence.json"], damaged.as_bytes());
    }
}
