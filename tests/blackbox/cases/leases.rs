//! Renewals, elections, silence: who believes what, and until when.

use crate::cluster::member::Member;
use crate::cluster::proxy::Network;
use crate::cluster::store::Store;
use crate::cluster::{Cluster, soon, until};
use ringfence::ownership::{NotOwner, Why};
use ringfence::{Ownership, Worker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(1);
/// A lease that a loaded machine does not lose.
const LONG: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f017_f026_five_new_leaders_and_one_that_stops_change_no_epoch() {
    let mut cluster = Cluster::three().await;
    cluster.keyspace("orders", 8, LONG).await;
    let store = Store::trusting();
    let mut owned = Vec::new();
    let mut members = Vec::new();
    for name in ["w1", "w2"] {
        let builder = Worker::builder(name).coordinator(cluster.endpoints().as_str());
        members.push(Member::join(builder, "orders", &store).await);
    }
    until("all partitions are owned", async || (!cluster.epochs("orders").await.contains(&0)).then_some(()))
        .await;
    until("every owner is ready", async || (cluster.admin().health().await.ok()?.ready == 8).then_some(()))
        .await;
    for member in &members {
        owned.extend(member.worker.owned());
    }
    let before = cluster.epochs("orders").await;
    for _ in 0..5 {
        cluster.another_leader().await;
    }
    // The streams of this one end with a status of the server: a reconnect, and no loss.
    let leader = cluster.leader().await;
    cluster.shutdown(leader).await;
    cluster.leader().await;
    cluster.start(leader).await;
    cluster.ready().await;
    cluster.another_leader().await;
    let sessions = cluster.admin().workers().await.unwrap();
    assert_eq!(cluster.epochs("orders").await, before);
    assert!(owned.len() == 8 && owned.iter().all(Ownership::is_valid), "{owned:?}");
    assert!(members.iter().all(|m| sessions.iter().any(|s| Some(s.session) == m.worker.session())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f027_t29_a_dead_worker_is_followed_although_leaders_change_every_half_ttl() {
    const TTL: Duration = Duration::from_secs(2);
    let cluster = Cluster::three().await;
    cluster.keyspace("orders", 1, TTL).await;
    let store = Store::trusting();
    let builder = |name| Worker::builder(name).coordinator(cluster.endpoints().as_str());
    let mut dead = Member::join(builder("dead"), "orders", &store).await;
    let old = dead.granted().await;
    let mut next = Member::join(builder("next"), "orders", &store).await;
    drop(dead);
    let died = Instant::now();
    let mut electing = Duration::ZERO;
    let mut elections = 0;
    let granted = next.granted();
    tokio::pin!(granted);
    let new = loop {
        if let Ok(new) = tokio::time::timeout(TTL / 2, &mut granted).await {
            break new;
        }
        let begun = Instant::now();
        cluster.another_leader().await;
        electing += begun.elapsed();
        elections += 1;
        assert!(elections < 20, "the dead worker is never followed");
    };
    assert!(new.epoch() > old.epoch() && !old.is_valid());
    assert!(elections > 0, "no leader changed in time: {:?}", died.elapsed());
    // A leader that lasts half a TTL measures a third of it at least: the fourth may say that it is over.
    assert!(elections <= 6, "{elections} elections of {electing:?}, {:?}", died.elapsed());
}

/// Counted from the receipt the lease would outlive this by what the reply was delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f028_t24_a_lease_counts_from_the_sending_however_late_the_reply_is() {
    const DELAY: Duration = Duration::from_millis(700);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LONG).await;
    let network = Network::to(cluster.addresses()).await;
    let store = Store::trusting();
    let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
    let mut member = Member::join(builder, "orders", &store).await;
    let owned = member.granted().await;
    network.all(|weather| weather.replies_take = DELAY);
    // Long enough for the lease to rest on replies that were delayed.
    let delayed_from = Instant::now();
    until("only delayed replies count", async || (delayed_from.elapsed() > LONG / 2).then_some(())).await;
    assert!(owned.is_valid(), "a delayed reply is a reply");
    network.silence();
    let last_seen_valid = soon("the lease ends", async {
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            match owned.is_valid() {
                true => last = now,
                false => return last,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // The reply had left the coordinator when it came to the proxy, so its renewal was sent before that.
    let latest = network.last_reply() + LONG.mul_f64(0.99);
    let tolerance = Duration::from_millis(20);
    assert!(last_seen_valid < latest + tolerance, "{:?} too long", last_seen_valid - latest);
    assert_eq!(owned.stamp().unwrap_err().why(), Why::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f010_on_a_half_open_connection_the_sdk_goes_elsewhere_and_its_own_deadline_counts() {
    let cluster = Cluster::three().await;
    cluster.keyspace("orders", 1, LONG).await;
    let network = Network::to(cluster.addresses()).await;
    let store = Store::trusting();
    let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
    let mut member = Member::join(builder, "orders", &store).await;
    let owned = member.granted().await;
    let session = member.worker.session();

    // The node that it renews at is silent, and no packet says so; another one leads from now on.
    let leader = cluster.leader().await;
    network.one(cluster.address(leader), |weather| {
        (weather.requests_stall, weather.replies_stall) = (true, true);
    });
    cluster.another_leader().await;
    let begun = Instant::now();
    until("it has been renewed for longer than what it had", async || {
        assert!(owned.is_valid(), "lost after {:?}", begun.elapsed());
        (begun.elapsed() > LONG + Duration::from_millis(500)).then_some(())
    })
    .await;
    assert_eq!((member.worker.session(), cluster.epochs("orders").await[0]), (session, owned.epoch().get()));

    // Now nobody can be reached, and still no error arrives. Another worker waits for what it holds.
    let mut next =
        Member::join(Worker::builder("w2").coordinator(cluster.endpoints().as_str()), "orders", &store).await;
    network.silence();
    let new = next.granted().await;
    assert!(new.epoch() > owned.epoch() && !owned.is_valid(), "it had stopped by then");
    assert_eq!(soon("its own deadline", owned.lost()).await.why(), Why::Expired);
}

/// F024, F026, F051, F053: one worker is out of reach for two TTLs, and its partition has another owner meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f051_t23_a_worker_that_was_cut_off_stopped_by_itself_and_comes_back_without_claims() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 4, TTL).await;
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let network = Network::to(cluster.addresses()).await;
        let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
        let mut first = Member::join(builder, "orders", &store).await;
        let owned = first.granted_many(4).await;
        let stamps: Vec<_> = owned.iter().map(|owned| owned.stamp().unwrap()).collect();
        let session = first.worker.session().unwrap();

        network.silence();
        let builder = Worker::builder("w2").coordinator(cluster.endpoints().as_str());
        let mut second = Member::join(builder, "orders", &store).await;
        let mut losses = Vec::new();
        for owned in &owned {
            losses.push(soon("the first stops by itself", owned.lost()).await);
        }
        assert!(losses.iter().all(|lost| lost.why() == Why::Expired), "{losses:?}");
        for owned in second.granted_many(4).await {
            assert!(store.write(&owned.stamp().unwrap(), "of the second").is_ok());
        }
        let taken = cluster.epochs("orders").await;

        // It comes back; what it has to say of its old epochs is heard and changes nothing.
        network.heal();
        until("it has joined anew", async || first.worker.session().filter(|now| *now != session)).await;
        let settled = Instant::now();
        until("nothing has moved for a TTL", async || {
            assert_eq!(cluster.epochs("orders").await, taken);
            (settled.elapsed() > TTL).then_some(())
        })
        .await;
        assert_eq!(second.worker.owned().len(), 4);
        for stamp in &stamps {
            assert_eq!(store.write(stamp, "stamped before the cut").is_err(), store.is_fenced());
        }
        assert_eq!(store.stale_write().is_none(), store.is_fenced());
        first.worker.leave().await.unwrap();
        second.worker.leave().await.unwrap();
    }
}

/// The renewal that is on its way when the lease runs out must not bring it back, nor be taken for a new acquisition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f024_f053_f040_a_renewal_that_comes_late_revives_nothing_and_each_ownership_is_its_own() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    for store in Store::with_and_without_fence(&cluster.id().await) {
        let network = Network::to(cluster.addresses()).await;
        let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
        let mut first = Member::join(builder, "orders", &store).await;
        let a = first.granted().await;
        let of_a = a.stamp().unwrap();

        network.all(|weather| weather.requests_stall = true);
        let builder = Worker::builder("w2").coordinator(cluster.endpoints().as_str());
        let mut second = Member::join(builder, "orders", &store).await;
        let b = second.granted().await;
        assert!(b.epoch() > a.epoch() && !a.is_valid());
        second.worker.leave().await.unwrap();
        // The partition is free again, and everything that was stalled arrives.
        network.heal();
        let c = first.granted().await;
        assert!(c.epoch() > b.epoch(), "{a:?} {b:?} {c:?}");
        // Lost once and granted anew, never "unchanged".
        assert!(a.lost().await.is_final() && !a.is_valid() && c.is_valid());
        assert_eq!(a.token().epoch(), of_a.epoch(), "an ownership is never refreshed");
        store.write(&c.stamp().unwrap(), "of c").unwrap();
        assert_eq!(store.write(&of_a, "of a, late").is_err(), store.is_fenced());
        assert_eq!(store.stale_write().is_none(), store.is_fenced());

        // Nobody in between this time: the same owner after a gap is another epoch all the same.
        let of_c = c.stamp().unwrap();
        network.silence();
        soon("the lease runs out", c.lost()).await;
        network.heal();
        let d = first.granted().await;
        assert!(d.epoch() > c.epoch());
        store.write(&d.stamp().unwrap(), "of d").unwrap();
        assert_eq!(store.write(&of_c, "of c, late").is_err(), store.is_fenced());
        first.worker.leave().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f022_broken_connections_cost_nothing_and_a_new_grant_is_renewed_like_the_first() {
    const TTL: Duration = Duration::from_secs(2);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    let network = Network::to(cluster.addresses()).await;
    let store = Store::trusting();
    let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
    let mut member = Member::join(builder, "orders", &store).await;
    let owned = member.granted().await;
    let begun = Instant::now();
    until("it was renewed through broken connections", async || {
        network.reset();
        tokio::time::sleep(TTL / 4).await;
        (begun.elapsed() > 2 * TTL).then_some(())
    })
    .await;
    assert!(owned.is_valid() && cluster.epochs("orders").await == [owned.epoch().get()]);

    network.silence();
    soon("the lease runs out", owned.lost()).await;
    network.heal();
    let again = member.granted().await;
    let begun = Instant::now();
    until("the second grant is renewed, too", async || (begun.elapsed() > 2 * TTL).then_some(())).await;
    assert!(again.is_valid() && cluster.epochs("orders").await == [again.epoch().get()]);
}

/// What an owner's task learns: the reads it was given an answer for, and how it ended.
#[derive(Default)]
struct Told {
    losses: Mutex<Vec<NotOwner>>,
}

/// C09, the last of its list: the coordinator is out of reach for everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c09_when_the_coordinator_is_cut_off_workers_stop_at_their_deadline_and_resume_without_a_write_lost()
{
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 4, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let network = Network::to(cluster.addresses()).await;
    let told = Arc::new(Told::default());
    let confirmed = Arc::new(Mutex::new(Vec::new()));
    let mut workers = Vec::new();
    for name in ["w1", "w2"] {
        let (store, told, confirmed) = (store.clone(), Arc::clone(&told), Arc::clone(&confirmed));
        let owner = {
            let store = store.clone();
            move |partition: Ownership| {
                let (store, told, confirmed) = (store.clone(), Arc::clone(&told), Arc::clone(&confirmed));
                async move {
                    partition.ready().await?;
                    let (watched, told) = (partition.clone(), Arc::clone(&told));
                    tokio::spawn(async move {
                        let lost = watched.lost().await;
                        told.losses.lock().unwrap().push(lost);
                    });
                    let mut number = 0;
                    while !partition.is_revoked() {
                        let stamp = partition.stamp()?;
                        let what = format!("{name} {} {number}", stamp.short());
                        if store.write(&stamp, &what).is_ok() {
                            confirmed.lock().unwrap().push(what);
                        }
                        number += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Ok::<(), NotOwner>(())
                }
            }
        };
        let builder = Worker::builder(name).coordinator_over(&network.coordinator());
        workers.push(builder.own_fenced("orders", store.declared(), owner).join().await.unwrap());
    }
    until("every partition writes", async || {
        let writing = |p: u32| store.writes().iter().any(|w| w.scope.to_string().contains(&format!("/{p}")));
        (0..4).all(writing).then_some(())
    })
    .await;
    network.silence();
    until("everybody has stopped", async || {
        (told.losses.lock().unwrap().len() >= 4
            && workers.iter().all(|worker| !worker.owned().iter().any(Ownership::is_valid)))
        .then_some(())
    })
    .await;
    let before = store.writes();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(store.writes().len(), before.len(), "nothing is stamped by an owner that stopped");

    network.heal();
    until("all of them write again, under new epochs", async || {
        let written = store.writes();
        let again = |p: u32| {
            let of = |w: &&crate::cluster::store::Write| w.scope.to_string().contains(&format!("/{p}"));
            let old = before.iter().filter(of).map(|w| w.epoch).max();
            written.iter().filter(of).map(|w| w.epoch).max() > old
        };
        (0..4).all(again).then_some(())
    })
    .await;
    for worker in workers {
        worker.leave().await.unwrap();
    }
    let (written, confirmed) = (store.writes(), confirmed.lock().unwrap().clone());
    assert_eq!(store.stale_write(), None);
    assert!(confirmed.iter().all(|what| written.iter().any(|write| write.what == *what)));
    // Once for each ownership, whatever ended it.
    let mut lost: Vec<_> = told.losses.lock().unwrap().iter().map(|lost| lost.token().clone()).collect();
    let count = lost.len();
    lost.sort_by_key(ToString::to_string);
    lost.dedup();
    assert_eq!(lost.len(), count);
}

/// C09: a deadlock for ever after a crash. Every node and one owner crash together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c09_after_a_crash_of_every_node_and_of_an_owner_nothing_stays_locked() {
    const TTL: Duration = Duration::from_secs(2);
    let mut cluster = Cluster::three().await;
    cluster.keyspace("orders", 4, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let endpoints = cluster.endpoints();
    let builder = |name| Worker::builder(name).coordinator(endpoints.as_str());
    let mut dies = Member::join(builder("dies"), "orders", &store).await;
    let owned = dies.granted_many(4).await;
    let mut lives = Member::join(builder("lives"), "orders", &store).await;
    for id in 1..=3 {
        cluster.crash(id);
    }
    drop(dies);
    soon("without a coordinator the owner's lease ends", owned[0].lost()).await;
    for id in 1..=3 {
        cluster.start(id).await;
    }
    cluster.ready().await;
    for new in lives.granted_many(4).await {
        let old = owned.iter().find(|old| old.partition() == new.partition()).unwrap();
        assert!(new.epoch() > old.epoch() && !old.is_valid());
        assert!(store.write(old.token(), "of the dead").is_err());
    }
}

/// One worker on a bad network: every stamp it takes is written much later.
async fn unlucky(
    name: &str,
    network: &Network,
    stores: &[Store; 2],
    seen: &Arc<Mutex<Vec<Ownership>>>,
    random: fastrand::Rng,
) -> Worker {
    let (stores, seen, declared) = (stores.clone(), Arc::clone(seen), stores[0].declared());
    let random = Mutex::new(random);
    let owner = move |partition: Ownership| {
        let (stores, seen) = (stores.clone(), Arc::clone(&seen));
        let mut random = random.lock().unwrap().fork();
        async move {
            seen.lock().unwrap().push(partition.clone());
            partition.ready().await?;
            while partition.until_revoked(tokio::time::sleep(Duration::from_millis(25))).await.is_some() {
                let (stamp, stores) = (partition.stamp()?, stores.clone());
                let late = Duration::from_millis(random.u64(0..2_000));
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    for store in stores {
                        // Refused or not: the stores keep what took effect.
                        let _ = store.write(&stamp, "late");
                    }
                });
            }
            Ok::<(), NotOwner>(())
        }
    };
    let builder = Worker::builder(name).coordinator_over(&network.coordinator());
    builder.own_fenced("orders", declared, owner).join().await.unwrap()
}

/// Two ownerships of one partition that both answer "I own it". The first is asked before and after the second: what has
/// ended stays so, and so it was valid in between.
fn both_believe(owned: &[Ownership]) -> Option<(Ownership, Ownership)> {
    for a in owned.iter().filter(|a| a.is_valid()) {
        for b in owned.iter().filter(|b| b.partition() == a.partition() && b.epoch() != a.epoch()) {
            if b.is_valid() && a.is_valid() {
                return Some((a.clone(), b.clone()));
            }
        }
    }
    None
}

/// C09: silent corruption, and two primaries. Worker after worker loses the coordinator in one way or another, until others
/// own what it owned. The same writes go to two stores, and the one without a fence is the control: it must have taken a
/// stale one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c09_t51_on_bad_days_there_is_one_owner_at_a_time_and_no_stale_write() {
    let given = std::env::var("RINGFENCE_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("RINGFENCE_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 4, TTL).await;
    let stores = Store::with_and_without_fence(&cluster.id().await);
    let seen: [Arc<Mutex<Vec<Ownership>>>; 3] = Default::default();
    let mut networks = Vec::new();
    let mut workers = Vec::new();
    for (name, seen) in ["w1", "w2", "w3"].into_iter().zip(&seen) {
        let network = Network::to(cluster.addresses()).await;
        workers.push(unlucky(name, &network, &stores, seen, random.fork()).await);
        networks.push(network);
    }
    let all = || seen.iter().flat_map(|seen| seen.lock().unwrap().clone()).collect::<Vec<_>>();
    let [fenced, trusting] = &stores;
    for _ in 0..6 {
        let (victim, owned) = until("some worker owns something", async || {
            let victim = random.usize(..3);
            let owned =
                seen[victim].lock().unwrap().iter().filter(|o| o.is_valid()).cloned().collect::<Vec<_>>();
            (!owned.is_empty()).then_some((victim, owned))
        })
        .await;
        match random.u8(..3) {
            0 => networks[victim].silence(),
            1 => networks[victim].all(|weather| weather.replies_stall = true),
            _ => networks[victim].all(|weather| weather.requests_stall = true),
        }
        until("others own what was the victim's", async || {
            let all = all();
            if let Some((a, b)) = both_believe(&all) {
                panic!("seed {seed}: {a:?} and {b:?} both believe");
            }
            // Broken connections of somebody else in between cost nobody anything.
            if random.u8(..20) == 0 {
                networks[(victim + 1) % 3].reset();
            }
            let replaced = |old: &Ownership| {
                all.iter().any(|new| new.partition() == old.partition() && new.epoch() > old.epoch())
            };
            owned.iter().all(replaced).then_some(())
        })
        .await;
        networks[victim].heal();
    }
    until("a late write came after its successor's", async || trusting.stale_write().map(drop)).await;
    until("all is well again", async || (cluster.admin().health().await.ok()?.ready == 4).then_some(()))
        .await;
    assert_eq!(fenced.stale_write(), None, "seed {seed}");
    assert!(!fenced.writes().is_empty());
}

/// The SDK's own thread stands still, as in a stopped process, so nothing in the background can tell the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f016_t22_b13_a_leased_read_is_refused_by_the_very_next_call_after_a_pause() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    let health = move || {
        while stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    };
    let builder = Worker::builder("w1").coordinator(cluster.endpoints().as_str()).health(health);
    let mut first = Member::join(builder, "orders", &store).await;
    let owned = first.granted().await;
    let cached = "v1";
    assert_eq!(owned.read(|| cached).unwrap(), "v1");
    let guard = owned.guard().unwrap();

    stopped.store(true, Ordering::SeqCst);
    let builder = Worker::builder("w2").coordinator(cluster.endpoints().as_str());
    let mut second = Member::join(builder, "orders", &store).await;
    let newer = second.granted().await;
    store.write(&newer.stamp().unwrap(), "v2").unwrap();
    // Before anything of the first has run again.
    assert_eq!(guard.confirm(cached).unwrap_err().why(), Why::Expired);
    assert_eq!(owned.read(|| cached).unwrap_err().why(), Why::Expired);
    assert_eq!(owned.stamp().unwrap_err().why(), Why::Expired);
    stopped.store(false, Ordering::SeqCst);
    assert_eq!(soon("it notices", owned.lost()).await.epoch(), owned.epoch());
}

/// A runtime of its own, so that what is done to it is not done to the rest of the test.
fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f065_t35_an_executor_that_is_busy_all_the_time_does_not_starve_the_renewals() {
    const TTL: Duration = Duration::from_secs(2);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 2, TTL).await;
    let busy = runtime(1);
    let endpoints = cluster.endpoints();
    let owner = |partition: Ownership| async move {
        partition.ready().await?;
        while !partition.is_revoked() {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(100) {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
        }
        Ok::<(), NotOwner>(())
    };
    let join = Worker::builder("w1").coordinator(endpoints.as_str()).own("orders", owner).join();
    let worker = busy.spawn(join).await.unwrap().unwrap();
    until("both are ready", async || (cluster.admin().health().await.ok()?.ready == 2).then_some(())).await;
    let (before, session, begun) = (cluster.epochs("orders").await, worker.session(), Instant::now());
    until("it was busy for two TTLs", async || (begun.elapsed() > 2 * TTL).then_some(())).await;
    assert_eq!((cluster.epochs("orders").await, worker.session()), (before, session));
    worker.leave().await.unwrap();
    busy.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_c23_a_worker_that_is_wedged_or_ill_loses_its_partitions() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let wedged = runtime(1);
    let endpoints = cluster.endpoints();
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let owner = move |partition: Ownership| {
        let released = Arc::clone(&released);
        async move {
            partition.ready().await?;
            // Blocks the only thread there is, while its renewals would go on by themselves.
            while !released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok::<(), NotOwner>(())
        }
    };
    let join = Worker::builder("wedged")
        .coordinator(endpoints.as_str())
        .own_fenced("orders", store.declared(), owner)
        .join();
    let worker = wedged.spawn(join).await.unwrap().unwrap();
    assert_eq!(cluster.owner("orders", 0).await, "wedged");
    let old = worker.owned().remove(0);

    // The next one is well, until its own health check says otherwise.
    let well = Arc::new(AtomicBool::new(true));
    let check = Arc::clone(&well);
    let builder =
        Worker::builder("ill").coordinator(endpoints.as_str()).health(move || check.load(Ordering::SeqCst));
    let mut ill = Member::join(builder, "orders", &store).await;
    let second = ill.granted().await;
    assert!(second.epoch() > old.epoch() && old.stamp().is_err());
    well.store(false, Ordering::SeqCst);
    let mut last =
        Member::join(Worker::builder("well").coordinator(endpoints.as_str()), "orders", &store).await;
    let third = last.granted().await;
    assert!(third.epoch() > second.epoch() && second.stamp().is_err());
    assert!(store.write(second.token(), "of the one that is ill").is_err());
    release.store(true, Ordering::SeqCst);
    drop(worker);
    wedged.shutdown_background();
}
