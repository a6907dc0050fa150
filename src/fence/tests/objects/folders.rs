//! A folder for each epoch: what it gives, and what not.

use crate::moto::wait;
use crate::subject::{cluster, token};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use ringfence_fence::object::EpochFolders;
use ringfence_fence::{DeclaredFence, Enforcement, Fence, FenceErrorKind};
use std::sync::Arc;

#[test]
fn b05_it_is_advisory_and_never_stands_in_for_a_fence() {
    let folders = EpochFolders::new(Arc::new(InMemory::new()), "r", &cluster("prod")).unwrap();
    let declared = DeclaredFence::advisory("reports", folders);
    assert_eq!(declared.enforcement(), Enforcement::Advisory);
    assert!(declared.for_correctness().is_err());
}

#[test]
fn a_replaced_owner_overwrites_nothing_of_its_successor_and_is_not_refused() {
    let dir = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] =
        [Arc::new(InMemory::new()), Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap())];
    for store in stores {
        let folders = EpochFolders::new(store, "", &cluster("prod")).unwrap();
        let (old, new) = (token("prod/orders/17@9"), token("prod/orders/17@10"));
        let get = |epoch, key| wait(folders.get(old.scope(), epoch, key)).unwrap();
        assert_eq!(wait(folders.highest(old.scope())).unwrap(), None);
        wait(folders.put(&old, "report", "by 9".into())).unwrap();
        wait(folders.put(&new, "report", "by 10".into())).unwrap();
        wait(folders.raise(&new)).unwrap();
        // The late write is taken, where nobody looks who was told of 10.
        wait(folders.put(&old, "a/b", "late".into())).unwrap();
        assert_eq!(get(new.epoch(), "report").as_deref(), Some(&b"by 10"[..]));
        assert_eq!(get(new.epoch(), "a/b"), None);
        assert_eq!(wait(folders.keys(old.scope(), old.epoch())).unwrap(), ["a/b", "report"]);
        assert_eq!(wait(folders.epochs(old.scope())).unwrap(), [old.epoch(), new.epoch()]);
        assert_eq!(wait(folders.highest(old.scope())).unwrap(), Some(new.epoch()));
        // Another partition whose name begins alike has its own.
        assert!(wait(folders.epochs(token("prod/orders/1@1").scope())).unwrap().is_empty());
    }
}

#[test]
fn f057_each_cluster_has_its_own_and_a_bad_key_is_refused() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let prod = EpochFolders::new(Arc::clone(&store), "r", &cluster("prod")).unwrap();
    let test = EpochFolders::new(store, "r", &cluster("test")).unwrap();
    let owner = token("prod/orders/17@9");
    wait(prod.put(&owner, "k", "v".into())).unwrap();
    assert_eq!(wait(test.put(&owner, "k", "v".into())).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert_eq!(wait(test.raise(&owner)).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    assert!(wait(test.epochs(owner.scope())).unwrap().is_empty());
    for key in ["", "/", "a//b", "../x"] {
        assert_eq!(
            wait(prod.put(&owner, key, "v".into())).unwrap_err().kind(),
            FenceErrorKind::Unfit,
            "{key}"
        );
    }
}
