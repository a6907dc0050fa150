//! The service over the wire: what takes effect once, who may speak, and who is told.

use super::{Locks, observe};
use crate::Coordinator;
use crate::context::Context;
use crate::testing::{self, Cluster, SECRET, join_for_locks, until};
use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use ringfence_api::v1::acquire_lock_response::What;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use ringfence_api::v1::{self, attach_request, attach_response};
use ringfence_api::{ErrorKind, Failure, PIECE_BYTES};
use ringfence_core::ids::{LockName, SessionId};
use ringfence_core::state::{Command, LockMode, LockWish};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;

fn kind(status: &Status) -> ErrorKind {
    Failure::decode(status).kind()
}

fn alone() -> Option<v1::LockWish> {
    let (mode, takeover) = (v1::LockMode::Exclusive.into(), v1::Takeover::Lease.into());
    Some(v1::LockWish { mode, takeover, ..v1::LockWish::default() })
}

/// A session, and what it asks for.
#[derive(Clone)]
struct Asker {
    locks: LockServiceClient<Channel>,
    session: u64,
}

impl Asker {
    async fn join(node: &Coordinator, worker: &str) -> Asker {
        let session = join_for_locks(node, worker).await;
        Asker { locks: testing::locks(node).await, session }
    }

    /// The same session at another node.
    async fn at(&self, node: &Coordinator) -> Asker {
        Asker { locks: testing::locks(node).await, session: self.session }
    }

    fn wants(&self, lock: &str, number: u64) -> v1::AcquireLockRequest {
        v1::AcquireLockRequest {
            session: self.session,
            secret: SECRET.into(),
            lock: lock.to_owned(),
            number,
            settled_below: 1,
            wish: alone(),
            wait: true,
        }
    }

    async fn ask(&self, request: v1::AcquireLockRequest) -> Result<What, Status> {
        Ok(self.locks.clone().acquire(request).await?.into_inner().what.unwrap())
    }

    async fn acquire(&self, lock: &str, number: u64) -> What {
        self.ask(self.wants(lock, number)).await.unwrap()
    }

    async fn granted(&self, lock: &str, number: u64) -> u64 {
        match self.acquire(lock, number).await {
            What::Granted(epoch) => epoch,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn release(&self, lock: &str, epoch: u64) -> Result<(), Status> {
        let (session, secret, lock) = (self.session, SECRET.into(), lock.to_owned());
        let release = v1::ReleaseLockRequest { session, secret, lock, epoch };
        self.locks.clone().release(release).await.map(drop)
    }

    async fn abandon(&self, lock: &str, number: u64) -> Result<(), Status> {
        let (session, secret, lock) = (self.session, SECRET.into(), lock.to_owned());
        let abandon = v1::AbandonLockRequest { session, secret, lock, number };
        self.locks.clone().abandon(abandon).await.map(drop)
    }

    async fn leave(&self, node: &Coordinator) {
        let leave = v1::LeaveRequest { session: self.session, secret: SECRET.into() };
        testing::workers(node).await.leave(leave).await.unwrap();
    }
}

async fn get(node: &Coordinator, lock: &str) -> v1::GetLockResponse {
    let get = v1::GetLockRequest { lock: lock.to_owned() };
    testing::locks(node).await.get(get).await.unwrap().into_inner()
}

/// The sessions that hold the lock, and those that wait, in order.
async fn who(node: &Coordinator, lock: &str) -> (Vec<u64>, Vec<u64>) {
    let got = get(node, lock).await;
    let holders = got.lock.unwrap().holders.into_iter().filter(|holder| holder.cooling.is_none());
    let queue = got.queue.iter().map(|waiter| waiter.session).collect();
    (holders.map(|holder| holder.session).collect(), queue)
}

/// etcd-io/etcd#22082, over the wire.
#[tokio::test]
async fn f007_t42_a_release_that_is_sent_again_frees_no_newer_grant_of_its_session() {
    let node = testing::alone().await;
    let a = Asker::join(&node, "a").await;
    let first = a.granted("l", 1).await;
    a.release("l", first).await.unwrap();
    let second = a.granted("l", 2).await;
    assert!(second > first);
    a.release("l", first).await.unwrap();
    assert_eq!(who(&node, "l").await.0, [a.session], "the retry of the first release");
    let above = a.release("l", second + 1).await.unwrap_err();
    assert_eq!(kind(&above), ErrorKind::Refused);
    a.release("l", second).await.unwrap();
    assert_eq!(who(&node, "l").await, (vec![], vec![]));
}

/// The answer was lost with its leader, and the lock was used and given back before the copy arrives.
#[tokio::test]
async fn t43_an_acquire_that_is_sent_again_to_the_next_leader_takes_effect_once() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let a = Asker::join(&cluster.nodes[&leader], "a").await;
    let b = Asker::join(&cluster.nodes[&leader], "b").await;
    let first = a.acquire("l", 1).await;
    let queued = b.acquire("l", 1).await;
    assert_eq!(queued, What::Queued(0));
    let What::Granted(epoch) = first else { panic!("{first:?}") };
    a.release("l", epoch).await.unwrap();

    let transfer = v1::TransferLeadershipRequest::default();
    let next = cluster.admin(leader).await.transfer_leadership(transfer).await.unwrap().into_inner().leader;
    let node = &cluster.nodes[&next];
    let (a, b) = (a.at(node).await, b.at(node).await);
    assert_eq!(a.acquire("l", 1).await, first, "the answer that was lost");
    assert_eq!(b.acquire("l", 1).await, queued);
    assert_eq!(who(node, "l").await, (vec![b.session], vec![]), "and no second grant");
    // What is settled is forgotten, and never run again.
    let settled = v1::AcquireLockRequest { settled_below: 2, ..a.wants("other", 2) };
    a.ask(settled).await.unwrap();
    assert_eq!(kind(&a.ask(a.wants("l", 1)).await.unwrap_err()), ErrorKind::TooOld);
    let far = a.ask(a.wants("l", 65)).await.unwrap_err();
    assert!(kind(&far) == ErrorKind::Limit && far.message().contains("at most 64"), "{far}");
}

/// etcd-io/etcd#11456, over the wire.
#[tokio::test]
async fn f006_t40_who_left_while_it_waited_is_passed_over() {
    let node = testing::alone().await;
    let [a, b, c] =
        [Asker::join(&node, "a").await, Asker::join(&node, "b").await, Asker::join(&node, "c").await];
    let epoch = a.granted("l", 1).await;
    b.acquire("l", 1).await;
    c.acquire("l", 1).await;
    b.leave(&node).await;
    a.release("l", epoch).await.unwrap();
    assert_eq!(who(&node, "l").await, (vec![c.session], vec![]));
    assert_eq!(kind(&b.ask(b.wants("l", 2)).await.unwrap_err()), ErrorKind::SessionEnded);
    assert_eq!(kind(&b.release("l", epoch).await.unwrap_err()), ErrorKind::SessionEnded);
}

/// atomix/atomix#500, over the wire.
#[tokio::test]
async fn t41_who_gave_up_waits_no_longer_and_keeps_nothing_that_it_was_granted() {
    let node = testing::alone().await;
    let [a, b, c] =
        [Asker::join(&node, "a").await, Asker::join(&node, "b").await, Asker::join(&node, "c").await];
    let epoch = a.granted("l", 1).await;
    b.acquire("l", 7).await;
    c.acquire("l", 1).await;
    b.abandon("l", 6).await.unwrap();
    assert_eq!(
        who(&node, "l").await,
        (vec![a.session], vec![b.session, c.session]),
        "another acquire's number"
    );
    b.abandon("l", 7).await.unwrap();
    b.abandon("l", 7).await.unwrap();
    a.release("l", epoch).await.unwrap();
    assert_eq!(who(&node, "l").await, (vec![c.session], vec![]));
    c.abandon("l", 1).await.unwrap();
    assert_eq!(who(&node, "l").await, (vec![], vec![]), "it had been granted before it was given up");
}

#[tokio::test]
async fn t50_f021_without_its_secret_nobody_asks_for_a_session_or_gives_back_what_it_holds() {
    let node = testing::alone().await;
    let [a, b] = [Asker::join(&node, "a").await, Asker::join(&node, "b").await];
    let epoch = a.granted("l", 1).await;
    let guess = v1::AcquireLockRequest { secret: b"a guess"[..].into(), ..a.wants("m", 2) };
    assert_eq!(kind(&a.ask(guess).await.unwrap_err()), ErrorKind::WrongSecret);
    let mut locks = testing::locks(&node).await;
    let (session, lock) = (a.session, "l".to_owned());
    for secret in [&b"a guess"[..], b""] {
        let release = v1::ReleaseLockRequest { session, secret: secret.into(), lock: lock.clone(), epoch };
        assert_eq!(kind(&locks.release(release).await.unwrap_err()), ErrorKind::WrongSecret);
        let abandon =
            v1::AbandonLockRequest { session, secret: secret.into(), lock: lock.clone(), number: 1 };
        assert_eq!(kind(&locks.abandon(abandon).await.unwrap_err()), ErrorKind::WrongSecret);
    }
    // With its own secret another session gives back nothing of it.
    b.release("l", epoch).await.unwrap();
    b.abandon("l", 1).await.unwrap();
    assert_eq!(who(&node, "l").await.0, [a.session]);
    assert!(who(&node, "m").await.0.is_empty(), "nothing was asked for in its name");
    a.release("l", epoch).await.unwrap();
    assert!(who(&node, "l").await.0.is_empty());
}

/// Every message of every stream is counted: a renewal of each, answered after what was sent before it, is the end of it.
#[tokio::test]
async fn b19_a_release_is_told_to_its_holder_and_to_the_next_and_to_none_of_a_thousand_who_wait() {
    const WAITERS: usize = 1_000;
    const RELEASES: usize = 20;
    let node = testing::alone().await;
    let (workers, locks) = (testing::workers(&node).await, testing::locks(&node).await);
    let (told, renewed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (granted, mut grants) = mpsc::unbounded_channel();
    let opened = (0..=WAITERS).map(async |number| {
        let mut workers = workers.clone();
        let worker = format!("w{number}");
        let join =
            v1::JoinRequest { keyspaces: Vec::new(), ttl_ms: 60_000, ..testing::a_join(&worker, "none") };
        let session = workers.join(join).await.unwrap().into_inner().session;
        let (say, said) = mpsc::channel(4);
        let open = attach_request::Open {
            protocol: ringfence_api::PROTOCOL,
            session,
            secret: SECRET.into(),
            ..attach_request::Open::default()
        };
        say.send(v1::AttachRequest { message: Some(attach_request::Message::Open(open)) }).await.unwrap();
        let said = tokio_stream::wrappers::ReceiverStream::new(said);
        let mut stream = workers.attach(said).await.unwrap().into_inner();
        let (told, renewed, granted) = (told.clone(), renewed.clone(), granted.clone());
        tokio::spawn(async move {
            while let Ok(Some(v1::AttachResponse { message: Some(message) })) = stream.message().await {
                match message {
                    attach_response::Message::Assignment(assignment) => {
                        told.fetch_add(1, Ordering::SeqCst);
                        for held in assignment.locks {
                            granted.send((number, held.epoch)).unwrap();
                        }
                    }
                    attach_response::Message::Acknowledgement(_) => {
                        renewed.fetch_add(1, Ordering::SeqCst);
                    }
                    attach_response::Message::Drill(_) => {}
                }
            }
        });
        (Asker { locks: locks.clone(), session }, say)
    });
    let sessions: Vec<_> = join_all(opened).await;
    let settled = async |round: usize| {
        for (_, say) in &sessions {
            let renew = attach_request::Renew { number: round as u64 };
            say.send(v1::AttachRequest { message: Some(attach_request::Message::Renew(renew)) })
                .await
                .unwrap();
        }
        until("each stream was told all", async || {
            (renewed.load(Ordering::SeqCst) == sessions.len() * round).then_some(())
        })
        .await;
        told.load(Ordering::SeqCst)
    };

    for (place, (session, _)) in sessions.iter().enumerate() {
        let what = session.acquire("l", 1).await;
        assert_eq!(matches!(what, What::Granted(_)), place == 0, "{what:?}");
    }
    assert_eq!(settled(1).await, sessions.len() + 1, "a first picture each, and the holder's lock");
    for (place, (holder, _)) in sessions.iter().enumerate().take(RELEASES) {
        let (who, epoch) = grants.recv().await.unwrap();
        assert_eq!(who, place, "in the order in which they came");
        holder.release("l", epoch).await.unwrap();
    }
    assert_eq!(grants.recv().await.unwrap().0, RELEASES);
    assert_eq!(settled(2).await, sessions.len() + 1 + 2 * RELEASES);
}

#[tokio::test]
async fn an_acquire_that_reaches_a_follower_does_nothing_and_names_the_leader() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let a = Asker::join(&cluster.nodes[&leader], "a").await;
    for (id, node) in cluster.nodes.iter().filter(|(id, _)| **id != leader) {
        let refused = a.at(node).await.ask(a.wants("l", 1)).await.unwrap_err();
        let failure = Failure::decode(&refused);
        let named = failure.leader().map(|named| named.node.get());
        assert_eq!((failure.kind(), named), (ErrorKind::NotLeader, Some(leader)), "node {id}: {failure}");
        let list = testing::locks(node).await.list(v1::ListLocksRequest::default()).await;
        assert_eq!(kind(&list.unwrap_err()), ErrorKind::NotLeader);
    }
    assert_eq!(who(&cluster.nodes[&leader], "l").await, (vec![], vec![]));
    a.granted("l", 1).await;
}

#[tokio::test]
async fn who_does_not_wait_is_told_who_holds_it_and_what_is_idle_is_shown_as_idle() {
    let node = testing::alone().await;
    let [a, b] = [Asker::join(&node, "a").await, Asker::join(&node, "b").await];
    let epoch = a.granted("l", 1).await;
    let tried = v1::AcquireLockRequest { wait: false, ..b.wants("l", 1) };
    let What::Held(held) = b.ask(tried).await.unwrap() else { panic!("it is held") };
    let by = held.by.unwrap();
    assert_eq!((by.worker.as_str(), by.session, by.epoch), ("a", a.session, epoch));
    assert!(who(&node, "l").await.1.is_empty());
    // It was refused, so its number was not used up, and it may ask again under it.
    assert_eq!(b.acquire("l", 1).await, What::Queued(0));

    let shown = get(&node, "l").await;
    assert!(shown.now_unix_ms >= shown.queue[0].since_unix_ms && shown.queue[0].worker == "b");
    let idle = get(&node, "nobody-knows-it").await;
    let lock = idle.lock.unwrap();
    assert_eq!((lock.name.as_str(), lock.holders.len(), lock.waiting), ("nobody-knows-it", 0, 0));
    a.abandon("nobody-knows-it", 1).await.unwrap();
    assert_eq!(who(&node, "nobody-knows-it").await, (vec![], vec![]));
}

#[tokio::test]
async fn f096_what_cannot_be_meant_is_refused_with_the_field_and_nothing_is_done() {
    let node = testing::alone().await;
    let a = Asker::join(&node, "a").await;
    let good = a.wants("l", 1);
    let wish = |wish: v1::LockWish| v1::AcquireLockRequest { wish: Some(wish), ..good.clone() };
    let over = alone().unwrap();
    let named = |lock: &str| v1::AcquireLockRequest { lock: lock.to_owned(), ..good.clone() };
    for (field, request) in [
        ("lock", named("")),
        ("lock", named("Not A Name")),
        ("lock", named(&"x".repeat(64))),
        ("lock", named("a/b")),
        ("session", v1::AcquireLockRequest { session: 0, ..good.clone() }),
        ("number", v1::AcquireLockRequest { number: 0, ..good.clone() }),
        ("settled_below", v1::AcquireLockRequest { settled_below: u64::MAX, ..good.clone() }),
        ("wish", v1::AcquireLockRequest { wish: None, ..good.clone() }),
        ("wish.mode", wish(v1::LockWish { mode: 0, ..over })),
        ("wish.mode", wish(v1::LockWish { mode: 77, ..over })),
        ("wish.takeover", wish(v1::LockWish { takeover: -1, ..over })),
        ("lock_delay", wish(v1::LockWish { lock_delay_ms: u64::MAX, ..over })),
        ("alert_after", wish(v1::LockWish { alert_after_ms: u64::MAX, ..over })),
    ] {
        let refused = a.ask(request).await.unwrap_err();
        assert!(kind(&refused) == ErrorKind::Invalid && refused.message().contains(field), "{refused}");
    }
    for epoch in [0, u64::MAX] {
        assert_eq!(kind(&a.release("l", epoch).await.unwrap_err()), ErrorKind::Invalid);
    }
    assert_eq!(kind(&a.abandon("l", 0).await.unwrap_err()), ErrorKind::Invalid);
    let mut locks = testing::locks(&node).await;
    let list = locks.list(v1::ListLocksRequest { prefix: "A".to_owned() }).await.unwrap_err();
    assert_eq!(kind(&list), ErrorKind::Invalid);
    let observe = locks.observe(v1::ObserveLockRequest { lock: "-".to_owned() }).await.unwrap_err();
    assert_eq!(kind(&observe), ErrorKind::Invalid);
    let unknown = Asker { session: 77, ..a.clone() };
    assert_eq!(kind(&unknown.ask(unknown.wants("l", 1)).await.unwrap_err()), ErrorKind::SessionEnded);
    assert_eq!(who(&node, "l").await, (vec![], vec![]));
}

/// Locks that one session takes in one entry.
async fn take(context: &Context, session: u64, names: impl Iterator<Item = String>) {
    let session = SessionId::new(session).unwrap();
    let commands = names.zip(1..).map(|(name, request)| Command::AcquireLock {
        lock: LockName::new(&name).unwrap(),
        session,
        request,
        wish: LockWish::new(LockMode::Exclusive),
        waits: false,
    });
    context.propose(None, commands.collect(), None).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_list_comes_in_pieces_by_name_and_a_prefix_cuts_it() {
    let node = testing::alone().await;
    let context = node.context().unwrap();
    for (worker, from) in [("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)] {
        let session = join_for_locks(&node, worker).await;
        let names = (from..from + 1_000).map(|n| format!("{}-{n:04}", "long".repeat(12)));
        take(&context, session, names).await;
    }
    let last = join_for_locks(&node, "e").await;
    take(&context, last, ["lone", "z"].map(str::to_owned).into_iter()).await;

    let mut client = testing::locks(&node).await;
    let mut list = async |prefix: &str| {
        let request = v1::ListLocksRequest { prefix: prefix.to_owned() };
        let mut stream = client.list(request).await.unwrap().into_inner();
        let mut pieces = Vec::new();
        while let Some(piece) = stream.message().await.unwrap() {
            pieces.push(piece.locks.into_iter().map(|lock| lock.name).collect::<Vec<_>>());
        }
        pieces
    };
    let pieces = list("").await;
    assert!(pieces.len() > 1, "all of it is more than {PIECE_BYTES} bytes");
    let all = pieces.concat();
    assert!(all.len() == 4_002 && all.is_sorted());
    assert!(list("long").await.concat() == all[1..4_001]);
    assert!(list("lo").await.concat() == all[..4_001]);
    assert_eq!(list("z").await.concat(), ["z"]);
    assert_eq!(list("lone-").await.len(), 0);
}

#[tokio::test]
async fn f085_an_observer_that_does_not_read_finds_the_latest_and_nothing_was_kept_for_it() {
    let node = testing::alone().await;
    let a = Asker::join(&node, "a").await;
    let locks = Locks::new(node.context().unwrap(), Duration::from_secs(60), CancellationToken::new());
    let request = v1::ObserveLockRequest { lock: "l".to_owned() };
    let mut observed = observe::observe(&locks, &request).unwrap();
    let first = observed.next().await.unwrap().unwrap();
    assert_eq!(first.holders, [], "at once, although nobody has ever held it");
    let mut last = 0;
    for number in 1..=50 {
        let settled = v1::AcquireLockRequest { settled_below: number, ..a.wants("l", number) };
        let What::Granted(epoch) = a.ask(settled).await.unwrap() else { panic!("it is free") };
        last = epoch;
        if number < 50 {
            a.release("l", epoch).await.unwrap();
        }
    }
    let latest = observed.next().await.unwrap().unwrap();
    assert_eq!(latest.holders.iter().map(|holder| holder.epoch).collect::<Vec<_>>(), [last]);
    assert!(latest.index > first.index && latest.holders[0].worker == "a");
    // Another lock, and somebody who waits for this one, are no news.
    Asker::join(&node, "b").await.acquire("l", 1).await;
    a.granted("m", 51).await;
    assert!(observed.next().now_or_never().is_none());
    drop(observed);
}

#[tokio::test]
async fn f048_any_node_tells_who_holds_a_lock_and_ends_its_streams_when_it_hears_of_no_leader() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let rest: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let a = Asker::join(&cluster.nodes[&leader], "a").await;
    let mut client = testing::locks(&cluster.nodes[&rest[0]]).await;
    let mut stream =
        client.observe(v1::ObserveLockRequest { lock: "l".to_owned() }).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.holders, []);
    let epoch = a.granted("l", 1).await;
    let next = stream.message().await.unwrap().unwrap();
    assert_eq!((next.holders[0].session, next.holders[0].epoch), (a.session, epoch));
    assert!(next.index > first.index);
    cluster.crash(leader);
    cluster.crash(rest[1]);
    let ended = until("the stream ends", async || stream.message().await.err()).await;
    assert_eq!(kind(&ended), ErrorKind::NoLeader, "{ended}");
}

fn break_(lock: &str) -> v1::BreakLockRequest {
    let directive = v1::Directive { by: "ada".to_owned(), reason: "incident 42".to_owned(), assumed: false };
    let (request, directive) = (testing::request_id(), Some(directive));
    v1::BreakLockRequest { request, lock: lock.to_owned(), directive, ..v1::BreakLockRequest::default() }
}

#[tokio::test]
async fn a_lock_is_broken_once_says_whom_it_was_taken_from_and_rests_for_their_lease() {
    let node = testing::alone().await;
    let [a, b] = [Asker::join(&node, "a").await, Asker::join(&node, "b").await];
    let epoch = a.granted("l", 1).await;
    b.acquire("l", 1).await;
    let mut locks = testing::locks(&node).await;
    let mut ask = async |request| locks.r#break(request).await.map(tonic::Response::into_inner);

    let dry = v1::BreakLockRequest { dry_run: true, request: None, ..break_("l") };
    let would = ask(dry.clone()).await.unwrap();
    assert_eq!(would.holders.iter().map(|h| (h.session, h.epoch)).collect::<Vec<_>>(), [(a.session, epoch)]);
    assert_eq!(who(&node, "l").await, (vec![a.session], vec![b.session]), "nothing was done");

    let other = ask(v1::BreakLockRequest { epoch: epoch + 1, ..break_("l") }).await.unwrap_err();
    let told = other.message();
    assert!(
        kind(&other) == ErrorKind::Refused && told.contains("worker a") && told.contains("not under"),
        "{told}"
    );

    let order = v1::BreakLockRequest { epoch, ..break_("l") };
    let broken = ask(order.clone()).await.unwrap();
    assert_eq!((broken.holders.len(), broken.holders[0].worker.as_str(), broken.before), (1, "a", false));
    let again = ask(order).await.unwrap();
    assert!(again.before && again.holders.is_empty(), "it took effect once");
    let resting = get(&node, "l").await.lock.unwrap();
    assert_eq!(resting.holders[0].cooling.map(|cooling| cooling.lease_ms), Some(60_000));
    assert_eq!(who(&node, "l").await, (vec![], vec![b.session]));
    let nobody = ask(break_("l")).await.unwrap_err();
    assert!(kind(&nobody) == ErrorKind::Refused && nobody.message().contains("at once"), "{nobody}");

    let at_once = v1::BreakLockRequest { at_once: true, ..break_("l") };
    assert_eq!(ask(at_once).await.unwrap().holders[0].session, a.session);
    assert_eq!(who(&node, "l").await, (vec![b.session], vec![]));
    let idle = ask(break_("never-taken")).await.unwrap_err();
    assert!(kind(&idle) == ErrorKind::Refused && idle.message().contains("nobody holds"), "{idle}");
    assert_eq!(
        kind(&ask(v1::BreakLockRequest { request: None, ..break_("l") }).await.unwrap_err()),
        ErrorKind::Invalid
    );

    let mut placement =
        v1::placement_service_client::PlacementServiceClient::new(testing::channel(&node).await);
    let said = placement.list_directives(v1::ListDirectivesRequest {}).await.unwrap().into_inner().directives;
    let said: Vec<_> =
        said.iter().map(|said| (said.by.as_str(), said.what.as_str(), said.reason.as_str())).collect();
    assert_eq!(
        said,
        [
            ("ada", "break lock l, at once", "incident 42"),
            ("ada", &format!("break lock l under e{epoch}")[..], "incident 42"),
        ],
        "and not what was refused"
    );
}

#[tokio::test]
async fn a_session_that_only_takes_locks_is_listed_as_one_and_can_be_evicted() {
    let node = testing::alone().await;
    let [a, b] = [Asker::join(&node, "a").await, Asker::join(&node, "b").await];
    a.granted("l", 1).await;
    b.acquire("l", 1).await;
    let mut admin = testing::admin(&node).await;
    let mut list = admin.list_workers(v1::ListWorkersRequest {}).await.unwrap().into_inner();
    let workers = list.message().await.unwrap().unwrap().workers;
    let told: Vec<_> =
        workers.iter().map(|w| (w.keyspaces.len(), w.partitions, w.locks, w.awaited_locks)).collect();
    assert_eq!(told, [(0, 0, 1, 0), (0, 0, 0, 1)]);

    let mut placement =
        v1::placement_service_client::PlacementServiceClient::new(testing::channel(&node).await);
    let evict =
        v1::EvictWorkerRequest { request: testing::request_id(), worker: "a".to_owned(), directive: None };
    assert!(placement.evict_worker(evict).await.unwrap().into_inner().changed);
    assert_eq!(kind(&a.ask(a.wants("m", 2)).await.unwrap_err()), ErrorKind::SessionEnded);
    let lock = get(&node, "l").await.lock.unwrap();
    assert!(lock.holders[0].cooling.is_some() && lock.waiting == 1, "b waits for its lease: {lock:?}");
    assert_eq!(lock.holders[0].worker, "a", "who it was is remembered");
}
