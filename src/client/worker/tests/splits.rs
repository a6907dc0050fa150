//! Partitions that were split from others.

use super::*;
use crate::fence::{DeclaredFence, FenceErrorKind, FencingToken, MemoryFence};
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, Epoch};

fn memory() -> MemoryFence {
    MemoryFence::new(ClusterId::new("test").unwrap())
}

fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

fn ancestor(partition: u32, epoch: u64) -> v1::Ancestor {
    v1::Ancestor { partition, epoch }
}

#[tokio::test]
async fn p09_the_fences_of_all_that_a_partition_was_split_from_are_raised_before_its_task_starts() {
    let fake = Fake::start(TTL).await;
    let (first, second) = (memory(), memory());
    // Whoever owned the parent before the split wrote here, under its scope.
    first.raise(&token("test/orders/3@6")).unwrap();
    let fences =
        [DeclaredFence::enforced("first", first.clone()), DeclaredFence::enforced("second", second.clone())];
    let (seen, mut seen_by_task) = mpsc::unbounded_channel();
    let owner = move |ownership: Ownership| {
        let scopes = ["test/orders/3@1", "test/orders/1@1"].map(|text| token(text).scope().clone());
        let raised =
            [&first, &second].map(|fence| scopes.clone().map(|scope| fence.highest(&scope).map(Epoch::get)));
        let _ = seen.send((
            raised,
            ownership.clone(),
            first.guarded(&token("test/orders/3@6"), || ()).map_err(|e| e.kind()),
        ));
        async move {
            ownership.revoked().await;
            Ok::<(), Infallible>(())
        }
    };
    let worker = worker(&fake).splittable().own_fenced("orders", fences, owner).join().await.unwrap();
    assert!(fake.world().joins[0].splits);
    fake.grant_split(19, 32, vec![ancestor(3, 7), ancestor(1, 2)]);
    let (raised, ownership, late) = timeout(PATIENCE, seen_by_task.recv()).await.unwrap().unwrap();
    assert_eq!(raised, [[Some(7), Some(2)], [Some(7), Some(2)]]);
    assert_eq!(late, Err(FenceErrorKind::Fenced), "the owner from before the split is refused");
    let ancestors: Vec<String> = ownership.ancestors().iter().map(ToString::to_string).collect();
    assert_eq!(ancestors, ["test/orders/3@7", "test/orders/1@2"]);
    worker.leave().await.unwrap();
}

/// The parent's owner has been granted it again since, or another child was split from it.
#[tokio::test]
async fn p09_an_ancestor_that_storage_knows_under_a_higher_epoch_is_no_failure_and_stays_as_it_is() {
    let fake = Fake::start(TTL).await;
    let fence = memory();
    fence.raise(&token("test/orders/3@9")).unwrap();
    let (owner, mut given) = polite();
    let declared = [DeclaredFence::enforced("memory", fence.clone())];
    let worker = worker(&fake).splittable().own_fenced("orders", declared, owner).join().await.unwrap();
    for _ in 0..2 {
        fake.grant_split(19, 32, vec![ancestor(3, 7)]);
        given.next().await;
    }
    assert_eq!(fence.highest(token("test/orders/3@1").scope()).map(Epoch::get), Some(9));
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f061_an_ownership_says_which_keys_are_its_partitions() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    assert!(!fake.world().joins[0].splits, "nobody has said that its partitions may be split");
    let of = |partition: u32, count: u32| {
        let key = (0_u32..).map(u32::to_le_bytes);
        let count = ringfence_core::placement::PartitionCount::new(count).unwrap();
        key.filter(move |key| ringfence_core::placement::partition_of(key, count).get() == partition).take(20)
    };
    fake.grant_split(3, 16, Vec::new());
    let before = given.next().await;
    fake.grant_split(3, 32, Vec::new());
    let after = given.next().await;
    assert!(of(3, 16).all(|key| before.covers(key)), "what it was told under its epoch stays so");
    assert!(of(3, 32).all(|key| after.covers(key)) && !of(19, 32).any(|key| after.covers(key)));
    // A coordinator that splits nothing says nothing: it is the number of partitions that the join told.
    fake.grant(5);
    let old = given.next().await;
    assert!(of(5, 64).all(|key| old.covers(key)) && !of(6, 64).any(|key| old.covers(key)));
    worker.leave().await.unwrap();
}
