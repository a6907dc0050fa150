//! Clearing up: what may go, what must stay, and writers that sleep through it.

use crate::moto::wait;
use crate::store::Watched;
use crate::subject::{Fenced, options, put, token};
use crate::wire::Fault;
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use ringfence_fence::object::ObjectWrite;
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn what_refused_and_replaced_writes_left_is_listed_and_removed_and_nothing_else() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        db.write(&old, put("a", "1").put("b", "1")).unwrap();
        db.write(&old, put("a", "22")).unwrap();
        let refused = db.stage(&old, put("c", "333").put("d", "4444")).unwrap();
        db.raise(&new).unwrap();
        assert_eq!(wait(refused.commit()).unwrap_err().kind(), FenceErrorKind::Fenced);
        db.dumb.tamper("scopes/orders/17/data/not-ours.txt", b"somebody else's");
        db.dumb.tamper("scopes/orders/1/data/00000000000000000001-0123456789abcdef0123456789abcdef", b"x");

        let mut orphans = wait(db.fence.orphans(new.scope())).unwrap();
        orphans.sort_by_key(|orphan| orphan.bytes);
        assert_eq!(orphans.iter().map(|orphan| orphan.bytes).collect::<Vec<_>>(), [1, 3, 4]);
        let before = db.dumb.everything();
        assert!(orphans.iter().all(|orphan| before.contains_key(orphan.path.as_ref())));

        // They are young.
        let swept = wait(db.fence.sweep(&new, HOUR)).unwrap();
        assert_eq!((swept.removed, swept.kept_young), (0, 3));
        db.dumb.age(2 * HOUR);
        let swept = wait(db.fence.sweep(&new, HOUR)).unwrap();
        assert_eq!((swept.removed, swept.bytes, swept.kept_young), (3, 8, 0));
        assert_eq!(wait(db.fence.orphans(new.scope())).unwrap(), []);

        let now = db.dumb.everything();
        for (key, content) in before {
            let orphan = orphans.iter().any(|orphan| orphan.path.as_ref() == key);
            // Everything else is there, and what is not a manifest as it was.
            assert_eq!(now.contains_key(&key), !orphan, "{key}");
            assert!(orphan || key.ends_with("manifest.json") || now[&key] == content, "{key}");
        }
        assert_eq!((db.get(&new, "a").unwrap(), db.get(&new, "b").unwrap()), ("22".into(), "1".into()));
        assert_eq!(wait(db.fence.sweep(&new, Duration::ZERO)).unwrap().removed, 0);
    }
}

#[test]
fn f001_a_writer_that_slept_through_a_sweep_loses_no_data() {
    for db in Fenced::both() {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        // Uploaded, and then it sleeps for longer than any bound.
        let slow = db.stage(&owner, put("k", "uploaded long ago")).unwrap();
        db.dumb.age(1000 * HOUR);
        let swept = wait(db.fence.sweep(&owner, HOUR)).unwrap();
        assert_eq!(swept.removed, 1, "its object was not there to be taken, so nothing was tried");
        wait(slow.commit()).unwrap();
        assert_eq!(db.get(&owner, "k").as_deref(), Some("uploaded long ago"));
        // And one that has uploaded since the sweep has to upload nothing twice.
        let next = db.stage(&owner, put("k", "next")).unwrap();
        db.write(&owner, put("other", "v")).unwrap();
        db.wire.sent();
        wait(next.commit()).unwrap();
        assert!(!db.wire.sent().iter().any(|line| line.contains("/data/")));
    }
}

/// The control: what goes by age alone takes the data of a writer that commits after it.
#[test]
fn t57_a_clean_up_by_age_takes_what_a_slow_writer_then_commits() {
    let db = Fenced::new();
    let owner = token("prod/orders/17@33");
    db.raise(&owner).unwrap();
    let slow = db.stage(&owner, put("k", "v")).unwrap();
    for orphan in wait(db.fence.orphans(owner.scope())).unwrap() {
        db.dumb.delete(orphan.path.as_ref());
    }
    wait(slow.commit()).unwrap();
    let error = wait(db.fence.get(owner.scope(), "k")).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Corrupt, "{error}");
}

#[test]
fn f049_a_sweeper_that_was_replaced_in_the_middle_takes_nothing_that_is_in_use() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        db.write(&old, put("a", "1")).unwrap();
        db.write(&old, put("a", "2")).unwrap();
        // Its request to delete stays on its way.
        db.wire.next("DELETE", "data", Fault::Held);
        assert_eq!(wait(db.fence.sweep(&old, Duration::ZERO)).unwrap_err().kind(), FenceErrorKind::Busy);
        db.raise(&new).unwrap();
        db.write(&new, put("b", "34")).unwrap();
        let mut before = db.dumb.everything();
        assert_eq!(wait(db.wire.release()), [204]);
        // It took the one that nobody names.
        before.retain(|key, content| !key.contains("/data/") || content != b"1");
        assert_eq!(db.dumb.everything(), before);
        assert_eq!((db.get(&new, "a").unwrap(), db.get(&new, "b").unwrap()), ("2".into(), "34".into()));
    }
}

/// As a long stall, a quiet successor, and every clean-up that there is.
#[test]
fn f001_t08_no_clean_up_takes_the_fence_with_it() {
    for db in Fenced::both() {
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        db.raise(&old).unwrap();
        let stalled = db.stage(&old, put("k", "33")).unwrap();
        db.raise(&new).unwrap();
        db.write(&new, put("k", "34")).unwrap();
        for n in 0..20 {
            db.write(&new, ObjectWrite::new().put("k", format!("34, {n}"))).unwrap();
        }
        db.dumb.age(1000 * HOUR);
        let swept = wait(db.fence.sweep(&new, Duration::ZERO)).unwrap();
        assert_eq!(swept.removed, 21, "the replaced ones, and what the stalled writer had uploaded");
        for error in [wait(stalled.commit()).unwrap_err(), db.write(&old, put("k", "33 again")).unwrap_err()]
        {
            match error {
                FenceError::Fenced(f) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
                other => panic!("{other}"),
            }
        }
        assert_eq!(db.get(&new, "k").as_deref(), Some("34, 19"));
    }
}

#[test]
fn f001_a_chain_is_shrunk_and_no_link_of_it_gives_its_number_back() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let fence = wait(options().by_creating().install(Arc::clone(&store), "")).unwrap();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    wait(fence.raise(&old)).unwrap();
    let stalled = wait(fence.stage(from_ref(&old), put("k", "33"))).unwrap();
    let mut read = wait(fence.raise(&new)).unwrap();
    while read.number() < 303 {
        read = wait(fence.write(from_ref(&new), ObjectWrite::new().on(&read))).unwrap();
    }
    let sizes = || {
        wait(
            store
                .list(Some(&"scopes/orders/17/chain".into()))
                .map_ok(|meta| meta.size)
                .try_collect::<Vec<_>>(),
        )
        .unwrap()
    };
    assert_eq!(sizes().len(), 303);
    // With the sweep's own there are 304 commits; the last 256 are whole, and the one before them.
    assert_eq!(wait(fence.sweep(&new, Duration::ZERO)).unwrap().shrunk, 47);
    assert_eq!((sizes().len(), sizes().iter().filter(|size| **size < 100).count()), (304, 47));
    assert_eq!(wait(fence.sweep(&new, Duration::ZERO)).unwrap().shrunk, 1);
    // The chain no longer tells what became of the stalled writer's number, and the fence does.
    match wait(stalled.commit()) {
        Err(FenceError::Fenced(f)) => assert_eq!((f.own().get(), f.highest().get()), (33, 34)),
        other => panic!("{other:?}"),
    }
    assert_eq!(wait(fence.read(new.scope())).unwrap().unwrap().number(), 305);
}

/// What a chain of thousands costs: as much as one of a few.
#[test]
fn a_long_chain_is_read_and_swept_from_where_the_last_sweep_ended() {
    let store = Arc::new(Watched::new(InMemory::new()));
    let open = || {
        let options = options().by_creating().trusting_the_store();
        wait(options.install(Arc::clone(&store) as Arc<dyn ObjectStore>, "")).unwrap()
    };
    let (fence, own) = (open(), token("prod/orders/17@33"));
    let commit_until = |number| {
        let mut read = wait(fence.raise(&own)).unwrap();
        while read.number() < number {
            read = wait(fence.write(from_ref(&own), ObjectWrite::new().put("k", "v").on(&read))).unwrap();
        }
    };
    commit_until(5_500);
    assert_eq!(wait(fence.sweep(&own, HOUR)).unwrap().shrunk, 5_500 - 256);
    wait(fence.sweep(&own, Duration::ZERO)).unwrap();
    commit_until(5_600);
    store.counts();
    // The number is known: the links of one folder.
    assert_eq!(wait(fence.raise(&own)).unwrap().number(), 5_601);
    assert_eq!(store.counts(), (3, 601));
    // Another process finds the mark of the sweep: it, the links, the manifest.
    let other = open();
    store.counts();
    assert_eq!(wait(other.read(own.scope())).unwrap().unwrap().number(), 5_601);
    assert_eq!(store.counts(), (3, 602));
    // A sweep looks at what was committed since the last one.
    let swept = wait(other.sweep(&own, HOUR)).unwrap();
    assert_eq!((swept.shrunk, swept.kept_young), (100, 97));
    let (_, listed) = store.counts();
    assert!(listed < 2_000, "{listed} entries were listed, of a chain of 5 602");

    // A mark is worth nothing by itself: gone, senseless, or far ahead, the newest is found all the same.
    for mark in [
        "",
        "{",
        "{\"shrunk_below\":7}",
        "{\"shrunk_below\":9000}",
        "{\"shrunk_below\":18446744073709551615}",
    ] {
        let path = "scopes/orders/17/swept.json".into();
        wait(store.put(&path, mark.to_owned().into())).unwrap();
        assert_eq!(wait(open().read(own.scope())).unwrap().unwrap().number(), 5_602, "{mark}");
    }
    // With one that lies ahead nothing is shrunk that may be asked for.
    assert_eq!(wait(fence.sweep(&own, HOUR)).unwrap().shrunk, 1);
    wait(store.delete(&"scopes/orders/17/swept.json".into())).unwrap();
    assert_eq!(wait(open().read(own.scope())).unwrap().unwrap().number(), 5_603);
    assert_eq!(wait(fence.sweep(&own, HOUR)).unwrap().shrunk, 1);
}

/// The control: a lifecycle rule that expires old manifests gives their numbers back, and the stalled writer's is free.
#[test]
fn t57_f001_t08_a_chain_whose_links_are_deleted_tells_a_stalled_writer_that_it_has_written() {
    let db = Fenced::by_creating();
    let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
    db.raise(&old).unwrap();
    let stalled = db.stage(&old, put("k", "33")).unwrap();
    db.raise(&new).unwrap();
    db.write(&new, put("k", "34")).unwrap();
    let link =
        db.dumb.everything().into_keys().find(|key| key.ends_with("00000000000000000002.json")).unwrap();
    db.dumb.delete(&link);
    wait(stalled.commit()).unwrap();
    assert_eq!(db.get(&new, "k").as_deref(), Some("34"), "and its write is nowhere");
}

#[test]
fn t08_a_manifest_that_was_deleted_accepts_nobody_until_somebody_raises() {
    for (db, by_creating) in Fenced::both().into_iter().zip([false, true]) {
        let owner = token("prod/orders/17@33");
        db.raise(&owner).unwrap();
        let staged = db.stage(&owner, put("k", "v")).unwrap();
        let manifests = db
            .dumb
            .everything()
            .into_keys()
            .filter(|key| key.starts_with("scopes/") && key.ends_with(".json"));
        manifests.for_each(|key| db.dumb.delete(&key));
        assert_eq!(db.write(&owner, put("k", "v")).unwrap_err().kind(), FenceErrorKind::NotRaised);
        if !by_creating {
            let error = wait(staged.commit()).unwrap_err();
            assert_eq!(error.kind(), FenceErrorKind::Corrupt);
            assert!(error.to_string().contains("deletes"), "{error}");
        }
        db.raise(&owner).unwrap();
    }
}
