//! Many callers and many partitions, while owners and leaders change.

use crate::cluster::member::Member;
use crate::cluster::store::Store;
use crate::cluster::wire::{self, SECRET, attach};
use crate::cluster::{Cluster, soon, until};
use ringfence::Worker;
use ringfence::ids::{Epoch, PartitionId};
use ringfence::router::Router;
use ringfence_api::v1::{self, attach_request, attach_response};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

/// What callers reach: the worker that they were routed to, which stamps when the call arrives and writes a while later.
#[derive(Clone)]
struct Service {
    members: [Arc<Member>; 2],
    stores: [Store; 2],
}

impl Service {
    /// Whether the write is acknowledged. Otherwise nothing was written, and it may be tried again.
    async fn write(&self, worker: &str, what: &str, takes: Duration) -> bool {
        let member = &self.members[usize::from(worker == "w2")];
        let owned = member.worker.owned().into_iter().next();
        let Some(stamp) = owned.and_then(|owned| owned.stamp().ok()) else { return false };
        tokio::time::sleep(takes).await;
        let [fenced, trusting] = &self.stores;
        let _ = trusting.write(&stamp, what);
        fenced.write(&stamp, what).is_ok()
    }
}

/// Callers look at the map, some of them late, and their writes are under way while the partition moves. The store without
/// a fence is the control: one of these writes must have come after its successor's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f008_f009_writes_under_way_while_a_partition_moves_to_and_fro_are_there_once_or_refused() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let stores = Store::with_and_without_fence(&cluster.id().await);
    let mut members = Vec::new();
    for name in ["w1", "w2"] {
        let builder = Worker::builder(name).coordinator(cluster.endpoints().as_str());
        members.push(Arc::new(Member::join(builder, "orders", &stores[0]).await));
    }
    let service = Service { members: members.try_into().ok().unwrap(), stores: stores.clone() };
    let router = Router::connect(cluster.endpoints().as_str(), ["orders"]).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..20)
        .map(|caller| {
            let (service, router, stop) = (service.clone(), router.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                let mut random = fastrand::Rng::with_seed(caller);
                for number in 0.. {
                    let what = format!("{caller}-{number}");
                    while !stop.load(Ordering::SeqCst) {
                        let routed = router.owner_of("orders", PartitionId::new(0));
                        tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await;
                        let Some(owner) = routed else { continue };
                        // Now and then for longer than a handoff takes.
                        let takes = if random.u8(..8) == 0 { 300 } else { random.u64(0..20) };
                        let takes = Duration::from_millis(takes);
                        if service.write(owner.worker().as_str(), &what, takes).await {
                            acknowledged.push(what);
                            break;
                        }
                    }
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
                acknowledged
            })
        })
        .collect();
    let mut moves = 0;
    while moves < 50 || stores[1].stale_write().is_none() {
        let to = if cluster.owner("orders", 0).await == "w1" { "w2" } else { "w1" };
        let before = stores[0].writes().len();
        cluster.begin_move("orders", 0, to).await;
        until("it has moved", async || (cluster.owner("orders", 0).await == to).then_some(())).await;
        until("the new owner is written to", async || (stores[0].writes().len() > before + 20).then_some(()))
            .await;
        moves += 1;
        assert!(moves < 200, "no write was ever under way during a move");
    }
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(soon("a caller ends", caller).await.unwrap());
    }
    let written: Vec<String> = stores[0].writes().into_iter().map(|write| write.what).collect();
    let once: BTreeSet<&String> = written.iter().collect();
    assert_eq!(once.len(), written.len(), "something was written twice");
    assert!(!acknowledged.is_empty() && acknowledged.iter().all(|what| once.contains(what)));
    assert_eq!(stores[0].stale_write(), None);
}

/// Somebody asks every node all the time who owns the partition. An answer is never older than what was known when it was
/// asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f071_f073_no_answer_goes_back_while_the_lead_and_the_partition_move() {
    let cluster = Cluster::three().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let store = Store::trusting();
    let builder = |name| Worker::builder(name).coordinator(cluster.endpoints().as_str());
    let _members = [
        Member::join(builder("w1"), "orders", &store).await,
        Member::join(builder("w2"), "orders", &store).await,
    ];
    cluster.owner("orders", 0).await;
    let known = Arc::new(AtomicU64::new(1));
    let (answers, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut askers = Vec::new();
    for address in cluster.addresses() {
        let mut map = wire::map(&format!("http://{address}")).await;
        let (known, answers, stop) = (Arc::clone(&known), Arc::clone(&answers), Arc::clone(&stop));
        askers.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let before = known.load(Ordering::SeqCst);
                let target = Some(v1::lookup_request::Target::Partition(0));
                let request = v1::LookupRequest { keyspace: "orders".to_owned(), target };
                if let Ok(answer) = map.lookup(request).await {
                    let epoch = answer.into_inner().entry.unwrap().epoch;
                    assert!(epoch >= before, "{epoch} after {before} was known");
                    known.fetch_max(epoch, Ordering::SeqCst);
                    answers.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    for _ in 0..4 {
        let answered = answers.load(Ordering::SeqCst);
        let before = known.load(Ordering::SeqCst);
        let to = usize::from(cluster.owner("orders", 0).await == "w1");
        let admin = cluster.admin();
        let (_, ()) = tokio::join!(
            // Wherever it goes, and if it goes nowhere: that is not what is looked at.
            admin.transfer_leadership(None),
            cluster.begin_move("orders", 0, ["w1", "w2"][to])
        );
        // Back to its owner, perhaps, when the new leader has not met the other yet; under a new epoch in any case.
        let epoch = until("somebody owns it under a new epoch", async || {
            let partition = cluster.partition("orders", 0).await;
            partition.epoch.map(Epoch::get).filter(|epoch| partition.ready && *epoch > before)
        })
        .await;
        known.fetch_max(epoch, Ordering::SeqCst);
        until("the next leader answers", async || (answers.load(Ordering::SeqCst) > answered).then_some(()))
            .await;
    }
    stop.store(true, Ordering::SeqCst);
    for asker in askers {
        asker.await.unwrap();
    }
}

/// More than one message could hold, of everything that comes as a list: each arrives whole, in messages far below the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f056_sixty_thousand_partitions_with_long_names_arrive_everywhere_in_small_messages() {
    const PARTITIONS: u32 = 60_000;
    const SMALL: usize = 512 << 10;
    let name = "k".repeat(63);
    let cluster = Cluster::one().await;
    cluster.keyspace(&name, PARTITIONS, LEASE).await;
    let endpoint = cluster.endpoints();
    let mut client = wire::workers(&endpoint).await.max_decoding_message_size(SMALL);
    let session = client.join(wire::join("w1", &name)).await.unwrap().into_inner().session;
    let open = attach_request::Message::Open(wire::open(session, SECRET));
    let (_requests, stream) = attach(&mut client, open).await;
    let mut stream = stream.unwrap().into_inner();
    let mut held = BTreeSet::new();
    while held.len() < PARTITIONS as usize {
        let message = soon("more of the assignment", stream.message()).await.unwrap().unwrap().message;
        if let Some(attach_response::Message::Assignment(assignment)) = message {
            held.extend(assignment.held.into_iter().map(|held| held.partition));
        }
    }
    // A full picture at once: to the worker when it connects anew, to a reader, and to an operator.
    let open = attach_request::Message::Open(wire::open(session, SECRET));
    let (_again, stream) = attach(&mut client, open).await;
    let mut stream = stream.unwrap().into_inner();
    let mut pictured = 0;
    while pictured < PARTITIONS as usize {
        let message = soon("more of the picture", stream.message()).await.unwrap().unwrap().message;
        if let Some(attach_response::Message::Assignment(assignment)) = message {
            pictured += assignment.held.len();
        }
    }
    let mut map = wire::map(&endpoint).await.max_decoding_message_size(SMALL);
    let mut watch = map.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let mut seen = BTreeSet::new();
    while seen.len() < PARTITIONS as usize {
        let change = soon("more of the map", watch.message()).await.unwrap().unwrap();
        seen.extend(change.partitions.into_iter().map(|entry| entry.partition));
    }
    let mut admin = wire::admin(&endpoint).await.max_decoding_message_size(SMALL);
    let request = v1::ListPartitionsRequest { keyspace: name };
    let mut list = admin.list_partitions(request).await.unwrap().into_inner();
    let mut listed = 0;
    while let Some(piece) = list.message().await.unwrap() {
        listed += piece.partitions.len();
    }
    assert_eq!(listed, PARTITIONS as usize);
}
