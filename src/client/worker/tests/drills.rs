//! The worker's part in a drill.

use super::*;
use crate::error::ErrorKind;
use crate::fence::{FencingToken, MemoryFence};
use crate::ownership::Why;
use crate::worker::Probed;
use ringfence_api::convert::SessionEnd;
use ringfence_api::v1::{self, DrillMode, WriteOutcome, drill_request::Message};
use ringfence_core::ids::ClusterId;
use std::sync::{Arc, Mutex};

/// What drilled owners write to: with a fence, or without one.
#[derive(Clone)]
struct Store {
    fence: MemoryFence,
    fenced: bool,
    probes: Arc<Mutex<Vec<(u64, Probed)>>>,
}

impl Store {
    fn new(fenced: bool) -> Store {
        let fence = MemoryFence::new(ClusterId::new("test").unwrap());
        Store { fence, fenced, probes: Arc::default() }
    }

    fn probe(
        &self,
    ) -> impl Fn(FencingToken) -> std::future::Ready<Result<Probed, String>> + Send + Sync + use<> {
        let store = self.clone();
        move |stamp| {
            let answer = store.fence.guarded(&stamp, || ());
            let probed = if store.fenced { Probed::from_fence(answer) } else { Ok(Probed::Accepted) };
            let probed = probed.map_err(|error| error.to_string());
            if let Ok(probed) = probed {
                store.probes.lock().unwrap().push((stamp.epoch().get(), probed));
            }
            std::future::ready(probed)
        }
    }

    fn raise(&self, token: &str) {
        self.fence.raise(&token.parse().unwrap()).unwrap();
    }

    fn probes(&self) -> Vec<(u64, Probed)> {
        self.probes.lock().unwrap().clone()
    }
}

fn order(mode: DrillMode, partition: u32, epoch: u64) -> v1::DrillOrder {
    v1::DrillOrder {
        drill: vec![mode as u8; 16].into(),
        keyspace: "orders".to_owned(),
        partition,
        epoch,
        mode: mode.into(),
        limit_ms: 60_000,
    }
}

fn holds(world: &fake::World) -> bool {
    world.drilled.iter().any(|said| matches!(said, Message::Holding(_)))
}

async fn finding(fake: &Fake) -> v1::drill_request::Finding {
    fake.until("a finding", |world| matches!(world.drilled.last(), Some(Message::Finding(_)))).await;
    match fake.world().drilled.last() {
        Some(Message::Finding(finding)) => finding.clone(),
        other => panic!("{other:?}"),
    }
}

/// A worker that owns partition 3 under epoch 1, ready, and allows drills.
async fn on_stage(fake: &Fake, store: &Store) -> (Worker, Ownership, Given) {
    let (owner, mut given) = polite();
    let worker = worker(fake).own("orders", owner).allow_drill("orders", store.probe()).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    store.raise("test/orders/3@1");
    ownership.ready().await.unwrap();
    (worker, ownership, given)
}

async fn held_write_after_a_move(fenced: bool) -> v1::drill_request::Finding {
    let fake = Fake::start(TTL).await;
    let store = Store::new(fenced);
    let (worker, ownership, _given) = on_stage(&fake, &store).await;
    assert_eq!(fake.world().drills, ["orders"]);
    fake.order(order(DrillMode::Move, 3, 1));
    // The same order once more, as over a second stream: it is one drill.
    fake.order(order(DrillMode::Move, 3, 1));
    fake.until("it holds a write", holds).await;
    assert_eq!(store.probes(), [(1, Probed::Accepted)], "the storage takes the owner's writes");

    fake.drain(3, Duration::from_secs(10));
    fake.heard("released 3@1").await;
    assert_eq!(ownership.stamp().unwrap_err().why(), Why::TaskEnded);
    assert_eq!(store.probes().len(), 1, "it is held");
    store.raise("test/orders/3@2");
    fake.send_now(2);
    let finding = finding(&fake).await;
    assert_eq!((store.probes().len(), store.probes()[1].0), (2, 1), "sent once, with the old stamp");
    fake.end_drill();
    fake.until("the stream has ended", |world| world.drills_ended == 1).await;
    worker.leave().await.unwrap();
    finding
}

#[tokio::test]
async fn g1_the_held_write_of_a_deposed_owner_is_refused_and_so_are_its_reads() {
    let finding = held_write_after_a_move(true).await;
    assert_eq!(finding.write(), WriteOutcome::Refused);
    assert_eq!((finding.stale_reads_refused, finding.stale_reads_accepted), (2, 0));
}

#[tokio::test]
async fn g1_control_a_store_that_ignores_the_token_is_found_out() {
    let finding = held_write_after_a_move(false).await;
    assert_eq!(finding.write(), WriteOutcome::Accepted);
}

#[tokio::test]
async fn a_stalled_worker_stands_still_until_its_drill_is_over_and_then_joins_anew() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let (worker, ownership, _given) = on_stage(&fake, &store).await;
    fake.order(order(DrillMode::Stall, 3, 1));
    fake.until("it holds a write", holds).await;
    assert_eq!(ownership.lost().await.why(), Why::Expired);
    // The coordinator lets the session expire, and grants to another.
    fake.end_session(SessionEnd::Expired);
    store.raise("test/orders/3@2");
    {
        let world = fake.world();
        assert_eq!((world.joins.len(), world.left.len(), world.said("released 3@1")), (1, 0, 0));
    }
    fake.send_now(2);
    let finding = finding(&fake).await;
    assert_eq!((finding.write(), finding.stale_reads_refused), (WriteOutcome::Refused, 2));
    assert_eq!(store.probes(), [(1, Probed::Accepted), (1, Probed::Refused)]);
    assert_eq!(fake.world().joins.len(), 1, "the drill is not over");
    fake.end_drill();
    fake.until("it joins anew", |world| world.joins.len() == 2).await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_stall_ends_with_the_coordinator_that_wanted_it_and_nothing_is_sent() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let (worker, ownership, _given) = on_stage(&fake, &store).await;
    fake.order(order(DrillMode::Stall, 3, 1));
    fake.until("it holds a write", holds).await;
    fake.end_drill();
    let renewals = fake.world().renewals;
    fake.until("it renews for two ttls", |world| world.renewals >= renewals + 12).await;
    assert!(ownership.is_valid());
    assert_eq!((store.probes().len(), fake.world().joins.len()), (1, 1));
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_drill_is_bounded_by_the_worker_itself() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let (worker, ownership, _given) = on_stage(&fake, &store).await;
    // The coordinator holds its end open and says nothing, ever.
    fake.order(v1::DrillOrder { limit_ms: 200, ..order(DrillMode::Stall, 3, 1) });
    fake.until("the worker has ended the drill", |world| world.drills_ended == 1).await;
    let renewals = fake.world().renewals;
    fake.until("it renews for two ttls", |world| world.renewals >= renewals + 12).await;
    assert!(ownership.is_valid());
    assert_eq!(store.probes().len(), 1);
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_leaves_or_is_dropped_ends_its_drill() {
    for (mode, drops) in [(DrillMode::Move, false), (DrillMode::Stall, false), (DrillMode::Stall, true)] {
        let fake = Fake::start(TTL).await;
        let store = Store::new(true);
        let (worker, _, _given) = on_stage(&fake, &store).await;
        fake.order(order(mode, 3, 1));
        fake.until("it holds a write", holds).await;
        if drops {
            drop(worker);
        } else {
            worker.leave().await.unwrap();
            assert_eq!(fake.world().said("released 3@1"), 1);
        }
        fake.until("the drill has ended", |world| world.drills_ended == 1).await;
        assert_eq!(store.probes().len(), 1, "nothing was sent");
    }
}

#[tokio::test]
async fn a_worker_that_stands_still_leaves_when_it_is_told_to() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let (worker, ownership, _given) = on_stage(&fake, &store).await;
    fake.order(order(DrillMode::Stall, 3, 1));
    fake.until("it holds a write", holds).await;
    ownership.lost().await;
    // What was lost while it stood still is no clean leave, and it is said at once and not at the drill's limit.
    let left = worker.leave().await;
    assert_eq!(left.unwrap_err().kind(), ErrorKind::NotReleased);
    assert_eq!(store.probes().len(), 1);
}

/// Sets the flag when it is dropped.
struct Dropped(Arc<tokio::sync::watch::Sender<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[tokio::test]
async fn a_probe_under_way_is_dropped_when_the_line_is_cut() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let (waits, mut waiting) = tokio::sync::watch::channel(false);
    let (dropped, mut was_dropped) = tokio::sync::watch::channel(false);
    let dropped = Arc::new(dropped);
    // The first write is taken; the held one is at its storage's door for ever.
    let calls = std::sync::atomic::AtomicU32::new(0);
    let probe = move |_: FencingToken| {
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let (waits, dropped) = (waits.clone(), (!first).then(|| Dropped(Arc::clone(&dropped))));
        async move {
            if first {
                return Ok::<_, String>(Probed::Accepted);
            }
            let _held = dropped;
            waits.send_replace(true);
            std::future::pending().await
        }
    };
    let worker = worker(&fake).own("orders", owner).allow_drill("orders", probe).join().await.unwrap();
    fake.grant(3);
    given.next().await.ready().await.unwrap();
    fake.order(order(DrillMode::Move, 3, 1));
    fake.until("it holds a write", holds).await;
    fake.send_now(2);
    waiting.wait_for(|waits| *waits).await.unwrap();
    assert!(!*was_dropped.borrow());
    fake.end_drill();
    was_dropped.wait_for(|dropped| *dropped).await.unwrap();
    fake.until("the stream has ended", |world| world.drills_ended == 1).await;
    assert!(!fake.world().drilled.iter().any(|said| matches!(said, Message::Finding(_))));
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_probe_that_does_not_answer_ends_with_the_drills_time_and_is_told() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let probe = |_: FencingToken| std::future::pending::<Result<Probed, String>>();
    let worker = worker(&fake).own("orders", owner).allow_drill("orders", probe).join().await.unwrap();
    fake.grant(3);
    given.next().await.ready().await.unwrap();
    let why = declined(&fake, v1::DrillOrder { limit_ms: 300, ..order(DrillMode::Move, 3, 1) }).await;
    assert!(why.contains("did not answer within the drill's time"), "{why}");
    worker.leave().await.unwrap();
}

/// Orders, and waits for the reason to decline.
async fn declined(fake: &Fake, order: v1::DrillOrder) -> String {
    let said = fake.world().drilled.len();
    fake.order(order);
    fake.until("it declines", |world| world.drilled.len() > said).await;
    fake.end_drill();
    match fake.world().drilled.last() {
        Some(Message::Declined(declined)) => declined.why.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_stands_in_the_way_of_a_drill_is_told_to_whoever_wants_it() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let (worker, _, mut given) = on_stage(&fake, &store).await;
    let move_of = |partition, epoch| order(DrillMode::Move, partition, epoch);
    assert!(declined(&fake, move_of(3, 2)).await.contains("does not own the partition"));
    assert!(declined(&fake, move_of(9, 1)).await.contains("does not own the partition"));
    let users = v1::DrillOrder { keyspace: "users".to_owned(), ..move_of(3, 1) };
    assert!(declined(&fake, users).await.contains("does not own the partition"));
    let newer = v1::DrillOrder { mode: 77, ..move_of(3, 1) };
    assert!(declined(&fake, newer).await.contains("mode 77"));
    fake.grant(4);
    let loading = given.next().await;
    assert!(declined(&fake, move_of(4, 1)).await.contains("not ready"));
    loading.ready().await.unwrap();
    // Its storage was never raised: a probe that fails there proves nothing.
    assert!(declined(&fake, move_of(4, 1)).await.contains("was never raised"));
    store.raise("test/orders/4@9");
    assert!(declined(&fake, move_of(4, 1)).await.contains("refused a probe write under the current epoch"));

    fake.order(move_of(3, 1));
    fake.until("it holds a write", holds).await;
    let another = v1::DrillOrder { drill: vec![9; 16].into(), ..move_of(3, 1) };
    assert!(declined(&fake, another).await.contains("another drill of this worker"));
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_allows_no_drills_says_so_and_declines() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    given.next().await.ready().await.unwrap();
    assert!(fake.world().drills.is_empty());
    let why = declined(&fake, order(DrillMode::Move, 3, 1)).await;
    assert!(why.contains("allows no drills"), "{why}");
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn drills_are_allowed_of_keyspaces_that_are_served_and_once() {
    let fake = Fake::start(TTL).await;
    let store = Store::new(true);
    let build = || worker(&fake).own("orders", polite().0);
    for (builder, part) in [
        (build().allow_drill("users", store.probe()), "does not serve it"),
        (build().allow_drill("Orders", store.probe()), "Orders"),
        (build().allow_drill("orders", store.probe()).allow_drill("orders", store.probe()), "two probes"),
    ] {
        let error = builder.join().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
    }
    assert!(fake.world().joins.is_empty());
}
