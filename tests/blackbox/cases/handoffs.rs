//! From one owner to the next, and what the one before may still do.

use crate::cluster::member::Member;
use crate::cluster::proxy::Network;
use crate::cluster::store::Store;
use crate::cluster::wire::Session;
use crate::cluster::{Cluster, soon, until};
use ringfence::admin::{PolicyChange, Takeover};
use ringfence::fence::{FenceError, FencingToken};
use ringfence::ids::{KeyspaceName, PartitionId};
use ringfence::ownership::{NotOwner, Why};
use ringfence::worker::Builder;
use ringfence::{Ownership, Worker};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const TTL: Duration = Duration::from_secs(1);
/// A lease that a loaded machine does not lose.
const LONG: Duration = Duration::from_secs(5);

fn worker(cluster: &Cluster, name: &str) -> Builder {
    Worker::builder(name).coordinator(cluster.endpoints().as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f003_a_partition_is_released_when_its_task_has_returned_and_its_lease_is_renewed_until_then() {
    const WORK: Duration = Duration::from_millis(3_500);
    const TTL: Duration = Duration::from_secs(2);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let last_write = Arc::new(Mutex::new(None));
    let owner = {
        let (store, last_write) = (store.clone(), Arc::clone(&last_write));
        move |partition: Ownership| {
            let (store, last_write) = (store.clone(), Arc::clone(&last_write));
            async move {
                partition.ready().await?;
                partition.revoked().await;
                let begun = Instant::now();
                // The rest of its work, which takes longer than the lease that it had.
                while begun.elapsed() < WORK {
                    let stamp = partition.stamp()?;
                    store.write(&stamp, "of the first").unwrap();
                    *last_write.lock().unwrap() = Some(Instant::now());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok::<(), NotOwner>(())
            }
        }
    };
    let first = worker(&cluster, "w1").own_fenced("orders", store.declared(), owner).join().await.unwrap();
    assert_eq!(cluster.owner("orders", 0).await, "w1");
    let session = first.session();
    let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
    let asked = Instant::now();
    let leaving = tokio::spawn(first.leave());
    until("it works on", async || last_write.lock().unwrap().is_some().then_some(())).await;
    let owned = second.granted().await;
    let granted = Instant::now();
    store.write(&owned.stamp().unwrap(), "of the second").unwrap();
    soon("the first has left", leaving).await.unwrap().unwrap();
    assert!(last_write.lock().unwrap().unwrap() <= granted);
    assert!(granted - asked >= WORK, "the successor waited for all of its work: {:?}", granted - asked);
    assert_eq!(store.stale_write(), None);
    let detail = cluster.admin().partition("orders", PartitionId::new(0)).await.unwrap();
    let epochs: Vec<u64> = detail.history.iter().map(|tenure| tenure.epoch.get()).collect();
    assert_eq!(epochs, [2, 1], "one session did all of it, {session:?}");
}

/// The old owner's write is on its way when the new one is granted, and arrives between the new owner's two first steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t04_an_owner_that_reads_before_it_raises_misses_a_write_and_one_that_raises_first_does_not() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LONG).await;
    for raise_first in [true, false] {
        let store = Store::fenced(cluster.id().await);
        let mut first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
        let late = first.granted().await.stamp().unwrap();
        let (read, picture) = oneshot::channel();
        let read = Arc::new(Mutex::new(Some(read)));
        let owner = {
            let (store, late) = (store.clone(), late.clone());
            move |partition: Ownership| {
                let (store, late, read) = (store.clone(), late.clone(), Arc::clone(&read));
                async move {
                    let arrives = || drop(store.write(&late, "late"));
                    let seen = if raise_first {
                        store.raise(partition.token())?;
                        arrives();
                        store.writes()
                    } else {
                        let seen = store.writes();
                        arrives();
                        store.raise(partition.token())?;
                        seen
                    };
                    if let Some(read) = read.lock().unwrap().take() {
                        let _ = read.send(seen);
                    }
                    let _ = partition.ready().await;
                    partition.revoked().await;
                    Ok::<(), FenceError>(())
                }
            }
        };
        let second = worker(&cluster, "w2").own("orders", owner).join().await.unwrap();
        cluster.begin_move("orders", 0, "w2").await;
        let picture = soon("the new owner has read", picture).await.unwrap();
        assert_eq!(picture == store.writes(), raise_first, "what it works from is all there is");
        second.leave().await.unwrap();
        first.worker.leave().await.unwrap();
    }
}

/// With declared fences the SDK does it in this order by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t04_b01_b29_a09_b04_a_write_stamped_before_the_handoff_is_refused_from_the_grant_on() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let network = Network::to(cluster.addresses()).await;
        let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
        let mut first = Member::join(builder, "orders", &store).await;
        let old = first.granted().await;
        store.write(&old.stamp().unwrap(), "in time").unwrap();
        // It stamps, and sleeps for longer than its lease. The pause stands after its last local check.
        let stamp = old.stamp().unwrap();
        network.silence();
        let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
        let new = second.granted().await;
        assert_eq!(new.epoch().get(), old.epoch().get() + 1, "granted before the first goes on");

        // No write of the new owner was needed: it has raised the fence before its task began.
        let late = store.write(&stamp, "late");
        match late {
            Err(FenceError::Fenced(fenced)) if store.is_fenced() => {
                assert_eq!((fenced.own(), fenced.highest()), (old.epoch(), new.epoch()));
            }
            other => assert!(other.is_ok() && !store.is_fenced(), "{other:?}"),
        }
        store.write(&new.stamp().unwrap(), "of the second").unwrap();
        // And the packet comes once more.
        assert_eq!(store.write(&stamp, "late").is_err(), store.is_fenced());
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
        let session = old.session();
        network.heal();
        until("it has joined anew", async || first.worker.session().filter(|now| *now != session)).await;
        first.worker.leave().await.unwrap();
        second.worker.leave().await.unwrap();
    }
}

/// The numbers of the article: 33 is written with, 34 is seen, 33 is rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b04_a_write_with_token_33_is_rejected_once_34_was_seen() {
    let cluster = Cluster::one().await;
    // Nobody renews: these sessions live for as long as the test does.
    cluster.keyspace("files", 1, Duration::from_secs(60)).await;
    let endpoint = cluster.endpoints();
    let mut client = Session::open(&endpoint, "client-1", "files").await;
    let mut held = client.granted(0).await;
    while held.epoch < 33 {
        client.release(&held).await;
        held = client.granted(held.epoch).await;
    }
    assert_eq!(held.epoch, 33);
    let token =
        |epoch: u64| -> FencingToken { format!("{}/files/0@{epoch}", client.cluster).parse().unwrap() };
    let (of_33, of_34) = (token(33), token(34));
    let stores = Store::with_and_without_fence(&cluster.id().await);
    for store in &stores {
        store.raise(&of_33).unwrap();
        store.write(&of_33, "33").unwrap();
    }
    // Client 1 pauses; the storage sees 34.
    client.withdraw(&held).await;
    let mut other = Session::open(&endpoint, "client-2", "files").await;
    assert_eq!(other.granted(33).await.epoch, 34);
    for store in &stores {
        store.raise(&of_34).unwrap();
        store.write(&of_34, "34").unwrap();
        let rejected = store.write(&of_33, "33, after the pause");
        assert_eq!(rejected.is_err(), store.is_fenced());
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
    }
}

/// A(1), B(2), A(3): an operation that began under 1 must not be stamped with 3, though one process owns both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_f044_f053_what_began_in_an_earlier_ownership_of_the_same_worker_is_refused() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LONG).await;
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let mut a = Member::join(worker(&cluster, "a"), "orders", &store).await;
        let first = a.granted().await;
        let began_under_first = first.stamp().unwrap();
        let mut b = Member::join(worker(&cluster, "b"), "orders", &store).await;
        cluster.begin_move("orders", 0, "b").await;
        let between = b.granted().await;
        store.write(&between.stamp().unwrap(), "of b").unwrap();
        cluster.begin_move("orders", 0, "a").await;
        let third = a.granted().await;

        assert!(first.epoch() < between.epoch() && between.epoch() < third.epoch());
        // The handle of the first is over for good; it hands out no stamp of the third.
        assert_eq!(first.stamp().unwrap_err().why(), Why::TaskEnded);
        assert!(first.read(|| ()).is_err() && first.lost().await.epoch() == first.epoch());
        assert!(third.is_valid());
        store.write(&third.stamp().unwrap(), "of a again").unwrap();
        assert_eq!(store.write(&began_under_first, "began under the first").is_err(), store.is_fenced());
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
        a.worker.leave().await.unwrap();
        b.worker.leave().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f063_t37_a_task_that_overruns_its_drain_is_aborted_and_its_partition_goes_on() {
    let cluster = Cluster::one().await;
    let policy = PolicyChange {
        ttl: Some(Duration::from_secs(3)),
        drain_deadline: Some(Duration::from_secs(1)),
        ..PolicyChange::default()
    };
    cluster.keyspace_with("orders", 1, policy).await;
    let store = Store::fenced(cluster.id().await);
    let (dropped, mut aborted) = oneshot::channel::<()>();
    let dropped = Arc::new(Mutex::new(Some(dropped)));
    let owner = move |partition: Ownership| {
        let dropped = dropped.lock().unwrap().take();
        async move {
            let _until_it_is_dropped = dropped;
            let _ = partition.ready().await;
            std::future::pending::<Result<(), NotOwner>>().await
        }
    };
    let stubborn =
        worker(&cluster, "stubborn").own_fenced("orders", store.declared(), owner).join().await.unwrap();
    assert_eq!(cluster.owner("orders", 0).await, "stubborn");
    let owned = stubborn.owned().remove(0);
    let stamp = owned.stamp().unwrap();
    let mut next = Member::join(worker(&cluster, "next"), "orders", &store).await;
    cluster.begin_move("orders", 0, "next").await;
    soon("it is told", owned.revoked()).await;
    assert!(owned.is_valid() && aborted.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    let new = next.granted().await;
    assert!(store.write(&stamp, "of the stubborn one").is_err(), "from the new owner's raise on");
    assert!(soon("it is aborted", aborted).await.is_err());
    assert!(matches!(owned.stamp().unwrap_err().why(), Why::DrainOver | Why::Taken));
    assert_eq!(new.epoch().get(), owned.epoch().get() + 1);
    // The rest of the worker is as it was: its session goes on.
    cluster.begin_move("orders", 0, "stubborn").await;
    assert_eq!(cluster.owner("orders", 0).await, "stubborn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f104_a_poisonous_partition_goes_to_another_worker_after_a_pause_and_says_why() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LONG).await;
    let failures = Arc::new(Mutex::new(Vec::new()));
    let poisoned = |name: &'static str| {
        let failures = Arc::clone(&failures);
        move |_: Ownership| {
            failures.lock().unwrap().push((name, Instant::now()));
            async move { Err::<(), _>(format!("{name} choked\x1b[2J on it")) }
        }
    };
    let first = worker(&cluster, "w1").own("orders", poisoned("w1")).join().await.unwrap();
    let second = worker(&cluster, "w2").own("orders", poisoned("w2")).join().await.unwrap();
    until("two owners have failed", async || (failures.lock().unwrap().len() >= 2).then_some(())).await;
    let failed = failures.lock().unwrap().clone();
    assert_ne!(failed[0].0, failed[1].0, "another worker has its turn");
    let pause = failed[1].1 - failed[0].1;
    assert!(pause >= Duration::from_millis(900), "the next grant waits a second: {pause:?}");

    let shown = until("an operator sees it", async || {
        let partition = cluster.partition("orders", 0).await;
        (partition.failures >= 2).then_some(partition)
    })
    .await;
    assert!(shown.last_error.contains("choked") && !shown.last_error.contains('\x1b'), "{shown:?}");
    let health = cluster.admin().health().await.unwrap();
    assert_eq!(health.failing.total, 1);
    assert!(first.session().is_some() && second.session().is_some(), "no worker died of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_delay_follows_a_death_and_no_release_and_an_operator_can_end_it() {
    /// Longer than a test waits for anything.
    const MINUTE: Duration = Duration::from_secs(60);
    const DELAY: Duration = Duration::from_secs(3);
    let cluster = Cluster::one().await;
    let policy = PolicyChange { ttl: Some(TTL), lock_delay: Some(MINUTE), ..PolicyChange::default() };
    cluster.keyspace_with("orders", 1, policy).await;
    let delay = async |delay| {
        let change = PolicyChange { lock_delay: Some(delay), ..PolicyChange::default() };
        cluster.admin().update_keyspace("orders", &change).await.unwrap();
    };
    let store = Store::trusting();
    let mut first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
    first.granted().await;
    let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
    // A clean release waits for nothing.
    first.worker.leave().await.unwrap();
    second.granted().await;

    delay(DELAY).await;
    let died = Instant::now();
    drop(second);
    let mut third = Member::join(worker(&cluster, "w3"), "orders", &store).await;
    let owned = third.granted().await;
    assert!(died.elapsed() >= DELAY, "{:?}", died.elapsed());

    delay(MINUTE).await;
    drop(third);
    let mut fourth = Member::join(worker(&cluster, "w4"), "orders", &store).await;
    until("it cools", async || (!cluster.partition("orders", 0).await.cooling.is_empty()).then_some(()))
        .await;
    cluster.admin().end_cooling("orders", PartitionId::new(0), owned.epoch()).await.unwrap();
    fourth.granted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_by_fence_replaces_a_killed_worker_at_once_and_says_what_it_gives_up() {
    const TTL: Duration = Duration::from_secs(9);
    let cluster = Cluster::one().await;
    let policy = PolicyChange { ttl: Some(TTL), takeover: Some(Takeover::Fence), ..PolicyChange::default() };
    cluster.keyspace_with("orders", 1, policy).await;
    let led = Instant::now();
    let health = cluster.admin().health().await.unwrap();
    assert_eq!(health.fence_takeover.iter().map(KeyspaceName::as_str).collect::<Vec<_>>(), ["orders"]);
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let network = Network::to(cluster.addresses()).await;
        let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
        let mut first = Member::join(builder, "orders", &store).await;
        let old = first.granted().await;
        let stamp = old.stamp().unwrap();
        let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
        // Never in a leader's first third of a TTL.
        until("a third of a TTL is over", async || (led.elapsed() > TTL / 3).then_some(())).await;
        network.all(|weather| weather.refuses = true);
        network.reset();
        let new = second.granted().await;
        let sessions = cluster.admin().workers().await.unwrap();
        assert!(sessions.iter().any(|s| s.session == old.session()), "its lease was not waited for");
        // The first has had its grace and pauses; its lease is not over, and its stamp is on the way.
        assert_eq!(old.stamp().unwrap_err().why(), Why::Disconnected);
        store.write(&new.stamp().unwrap(), "of the second").unwrap();
        assert_eq!(store.write(&stamp, "of the first").is_err(), store.is_fenced());
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
        network.heal();
        soon("the first is told", old.lost()).await;
        second.worker.leave().await.unwrap();
        first.worker.leave().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f035_one_partition_of_fifty_is_moved_and_forty_nine_keep_their_epochs() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 50, LONG).await;
    let store = Store::fenced(cluster.id().await);
    let mut first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
    let owned = first.granted_many(50).await;
    let before = cluster.epochs("orders").await;
    let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
    cluster.begin_move("orders", 17, "w2").await;
    let moved = second.granted().await;
    assert_eq!(moved.partition().get(), 17);
    let after = cluster.epochs("orders").await;
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(*after, before + u64::from(number == 17), "partition {number}");
    }
    let over: Vec<u32> = owned.iter().filter(|o| !o.is_valid()).map(|o| o.partition().get()).collect();
    assert_eq!(over, [17]);
}

/// Whatever the old owner was about when it was replaced, it gets the same two errors: `NotOwner` before it writes, and
/// `Fenced` with both epochs when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f099_twenty_takeovers_always_end_in_the_same_typed_error_with_both_epochs() {
    const PARTITIONS: u32 = 20;
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", PARTITIONS, LONG).await;
    let store = Store::fenced(cluster.id().await);
    let mut first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
    let mut owned = first.granted_many(PARTITIONS as usize).await;
    owned.sort_by_key(Ownership::partition);
    let stamps: Vec<_> = owned.iter().map(|owned| owned.stamp().unwrap()).collect();
    // What each of them is about: it writes, it reads, it waits, or it is being shut down (the last five).
    let guards: Vec<_> = owned.iter().map(|owned| owned.guard().unwrap()).collect();
    let writers: Vec<_> = owned[..5]
        .iter()
        .map(|owned| {
            let (owned, store) = (owned.clone(), store.clone());
            let stamp = owned.stamp().unwrap();
            tokio::spawn(async move {
                soon("its write is refused", async {
                    loop {
                        if let Err(error) = store.write(&stamp, "again and again") {
                            return error;
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
                .await
            })
        })
        .collect();
    let waiters: Vec<_> = owned[10..15].to_vec();
    let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
    for partition in 0..15 {
        cluster.begin_move("orders", partition, "w2").await;
    }
    let mut new = second.granted_many(15).await;
    first.worker.leave().await.unwrap();
    new.extend(second.granted_many(5).await);
    new.sort_by_key(Ownership::partition);

    for writer in writers {
        let error = writer.await.unwrap();
        assert!(matches!(error, FenceError::Fenced(_)), "{error}");
    }
    for waiter in waiters {
        assert_eq!(soon("the idle one is told", waiter.lost()).await.epoch(), waiter.epoch());
    }
    for (((owned, stamp), guard), new) in owned.iter().zip(&stamps).zip(guards).zip(&new) {
        assert_eq!(guard.confirm("v1").unwrap_err().epoch(), owned.epoch());
        assert_eq!(owned.read(|| "v1").unwrap_err().why(), Why::TaskEnded);
        assert_eq!(owned.stamp().unwrap_err().why(), Why::TaskEnded);
        match store.write(stamp, "late").unwrap_err() {
            FenceError::Fenced(fenced) => {
                assert_eq!((fenced.own(), fenced.highest()), (owned.epoch(), new.epoch()));
                let said = fenced.to_string();
                assert!(
                    said.contains(&fenced.own().to_string())
                        || said.contains(&owned.epoch().get().to_string()),
                    "{said}"
                );
            }
            other => panic!("{other}"),
        }
    }
}

/// Storage behind a socket: one line `TOKEN WHAT` is one write, answered by one line.
async fn serve(store: Store) -> String {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let store = store.clone();
            tokio::spawn(async move {
                let (read, mut write) = connection.into_split();
                let mut lines = BufReader::new(read).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let (token, what) = line.split_once(' ').unwrap();
                    let answer = match store.write(&token.parse().unwrap(), what) {
                        Ok(()) => "done\n".to_owned(),
                        Err(error) => format!("{:?}\n", error.kind()),
                    };
                    let _ = write.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    address
}

/// Chubby's case: a request of the old holder is in the network while its lease ends and another takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a09_a_packet_that_was_in_the_network_during_the_handoff_is_refused_on_arrival() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LONG).await;
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let storage = serve(store.clone()).await;
        let network = Network::to([storage.as_str()]).await;
        let mut first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
        let old = first.granted().await;
        let through = network.endpoint(&storage).trim_start_matches("http://").to_owned();
        let mut connection = tokio::net::TcpStream::connect(through).await.unwrap();
        network.all(|weather| weather.requests_stall = true);
        let request = format!("{} R\n", old.stamp().unwrap());
        connection.write_all(request.as_bytes()).await.unwrap();
        // It has left the old holder, who knows nothing of what becomes of it.
        let mut second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
        cluster.begin_move("orders", 0, "w2").await;
        let new = second.granted().await;
        store.write(&new.stamp().unwrap(), "of the second").unwrap();
        network.heal();
        let mut answer = vec![0; 64];
        let count = soon("the storage answers", connection.read(&mut answer)).await.unwrap();
        let answer = std::str::from_utf8(&answer[..count]).unwrap();
        assert_eq!(answer, if store.is_fenced() { "Fenced\n" } else { "done\n" });
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
        first.worker.leave().await.unwrap();
        second.worker.leave().await.unwrap();
    }
}

/// The defaults, as the README has them: a builder with nothing set, and SQLite in the owner's own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f005_the_defaults_refuse_a_stale_write_and_one_without_a_stamp() {
    use ringfence::fence::sqlite::SqliteFence;
    use rusqlite::Connection;
    let cluster = Cluster::one().await;
    cluster.admin().create_keyspace("orders", 1, &PolicyChange::default()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orders.sqlite");
    let mut db = Connection::open(&path).unwrap();
    db.execute("CREATE TABLE orders (what TEXT)", []).unwrap();
    let fence = SqliteFence::install(&db, &cluster.id().await).unwrap();
    let mut write = |stamps: &[FencingToken], what: &str| {
        fence.write(&mut db, stamps, |tx| {
            tx.execute("INSERT INTO orders (what) VALUES (?1)", [what]).unwrap();
            Ok::<_, FenceError>(())
        })
    };
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let own = move |partition: Ownership| {
        let (granted, path) = (granted.clone(), path.clone());
        async move {
            let mut db = Connection::open(&path).map_err(|e| e.to_string())?;
            let fence = SqliteFence::install(&db, partition.token().cluster()).map_err(|e| e.to_string())?;
            fence.raise(&mut db, partition.token()).map_err(|e| e.to_string())?;
            drop(db);
            partition.ready().await.map_err(|e| e.to_string())?;
            let _ = granted.send(partition.clone());
            partition.revoked().await;
            Ok::<(), String>(())
        }
    };
    let _first = worker(&cluster, "w1").own("orders", own.clone()).join().await.unwrap();
    let old = soon("the first owns it", grants.recv()).await.unwrap();
    let stamp = old.stamp().unwrap();
    write(std::slice::from_ref(&stamp), "in time").unwrap();
    let _second = worker(&cluster, "w2").own("orders", own).join().await.unwrap();
    cluster.begin_move("orders", 0, "w2").await;
    let new = soon("the second owns it", grants.recv()).await.unwrap();
    let late = write(&[stamp], "late").unwrap_err();
    assert!(matches!(&late, FenceError::Fenced(fenced) if fenced.highest() == new.epoch()), "{late}");
    assert!(matches!(write(&[], "unstamped"), Err(FenceError::Unstamped)));
    let zero = format!("{}/orders/0@0", new.token().cluster());
    assert!(zero.parse::<FencingToken>().is_err(), "epoch 0 is none");
    write(&[new.stamp().unwrap()], "of the second").unwrap();
    let mut rows = db.prepare("SELECT what FROM orders ORDER BY rowid").unwrap();
    let rows: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, ["in time", "of the second"]);
    let policy = cluster.admin().keyspace("orders").await.unwrap().policy;
    assert_eq!(policy.takeover(), Takeover::Lease, "giving exclusive leases up takes a word of its own");
}

/// With a hold, what a restarted worker had comes back to it at a higher epoch, and nothing moves to the other; without one
/// the other gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_announced_its_restart_finds_its_partitions_and_the_other_gets_none() {
    for hold in [Duration::from_secs(60), Duration::ZERO] {
        let cluster = Cluster::one().await;
        let policy = PolicyChange { ttl: Some(LONG), rejoin_hold: Some(hold), ..PolicyChange::default() };
        cluster.admin().create_keyspace("orders", 4, &policy).await.unwrap();
        let store = Store::fenced(cluster.id().await);
        let first = Member::join(worker(&cluster, "w1"), "orders", &store).await;
        let second = Member::join(worker(&cluster, "w2"), "orders", &store).await;
        let owners = async || {
            let partitions = cluster.admin().partitions("orders").await.unwrap();
            partitions.into_iter().map(|p| p.owner.map(|owner| owner.worker.to_string())).collect::<Vec<_>>()
        };
        until("each has two", async || {
            let owners = owners().await;
            let of = |name| owners.iter().filter(|owner| owner.as_deref() == Some(name)).count();
            (of("w1") == 2 && of("w2") == 2).then_some(())
        })
        .await;
        let (had, before, theirs) = (owners().await, cluster.epochs("orders").await, second.worker.owned());
        first.worker.leave_to_restart().await.unwrap();
        if hold.is_zero() {
            until("the other has all", async || {
                owners().await.iter().all(|owner| owner.as_deref() == Some("w2")).then_some(())
            })
            .await;
            continue;
        }
        // Everything that was w1's waits, and says for whom; the other is left alone.
        let waiting = cluster.admin().partitions("orders").await.unwrap();
        let waits = waiting.iter().filter(|p| p.owner.is_none() && p.cooling.contains("restarts")).count();
        assert_eq!(waits, 2, "{waiting:?}");
        let mut back = Member::join(worker(&cluster, "w1"), "orders", &store).await;
        for owned in back.granted_many(2).await {
            store.write(&owned.stamp().unwrap(), "of the restarted").unwrap();
        }
        assert_eq!(owners().await, had);
        let after = cluster.epochs("orders").await;
        for ((owner, before), after) in had.iter().zip(before).zip(after) {
            assert_eq!(after > before, owner.as_deref() == Some("w1"), "{owner:?}: {before}, {after}");
        }
        assert!(theirs.iter().all(Ownership::is_valid), "w2 has lost nothing");
        assert_eq!(store.stale_write(), None);
    }
}
