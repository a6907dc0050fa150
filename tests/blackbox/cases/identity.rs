//! Who may speak for a session, and who bears a name.

use crate::cluster::member::Member;
use crate::cluster::proxy::Network;
use crate::cluster::store::Store;
use crate::cluster::wire::{self, SECRET, Session, attach, refused};
use crate::cluster::{Cluster, soon, until};
use ringfence::fence::FenceError;
use ringfence::ids::SessionId;
use ringfence::{ErrorKind, Worker};
use ringfence_api::v1::{self, attach_request, report_item};
use ringfence_api::{ErrorKind as Answer, Failure};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(60);

/// Everything that is logged on this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The test, the node and its services share one thread here, so that one subscriber hears all of them.
#[tokio::test]
async fn f021_without_the_secret_nobody_renews_releases_or_leaves_and_no_log_shows_one() {
    const WRONG: &[u8] = b"marlin-that-nobody-prints";
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("ringfence=trace,ringfence_server=trace,openraft=debug,tonic=trace")
        .with_writer(move || writer.clone())
        .finish();
    let listening = tracing::subscriber::set_default(subscriber);

    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 2, LEASE).await;
    let mut session = Session::open(&cluster.endpoints(), "w1", "orders").await;
    let held = session.granted(0).await;
    // Another test of this process may have come to a line for the first time in the moment in which the subscriber was
    // set; such a line stays unheard until everybody is asked again.
    tracing::callsite::rebuild_interest_cache();
    let before =
        (cluster.admin().partitions("orders").await.unwrap(), cluster.admin().workers().await.unwrap());
    let mut client = wire::workers(&cluster.endpoints()).await;
    for secret in [WRONG, b"", &SECRET[1..]] {
        let open = attach_request::Message::Open(wire::open(session.id, secret));
        let (_requests, stream) = attach(&mut client, open).await;
        assert_eq!(refused(stream), Answer::WrongSecret);
        let items = [
            report_item::What::Released(report_item::Released {}),
            report_item::What::Returned(report_item::Returned {}),
            report_item::What::Failed(report_item::Failed { error: "not mine".to_owned() }),
            report_item::What::Ready(report_item::Ready {}),
            report_item::What::RevokeSeen(report_item::RevokeSeen {}),
        ];
        for what in items {
            let mut report = session.report_of(vec![Session::item(&held, what)]);
            report.secret = secret.to_vec().into();
            report.withdraw = true;
            assert_eq!(refused(client.report(report).await), Answer::WrongSecret);
        }
        let leave = v1::LeaveRequest { session: session.id, secret: secret.to_vec().into() };
        assert_eq!(refused(client.leave(leave).await), Answer::WrongSecret);
        // The name alone does not replace a session that is younger than its lease either.
        let mut join = wire::join("w1", "orders");
        join.replace = true;
        join.replace_secret = secret.to_vec().into();
        assert_eq!(refused(client.join(join).await), Answer::DuplicateIdentity);
    }
    let after =
        (cluster.admin().partitions("orders").await.unwrap(), cluster.admin().workers().await.unwrap());
    assert_eq!(after, before);
    // A session of its own has a secret and still none over this one's partitions.
    let mut other = Session::open(&cluster.endpoints(), "w2", "orders").await;
    let released = report_item::What::Released(report_item::Released {});
    let theft = other.report_of(vec![Session::item(&held, released)]);
    let _ = other.client.report(theft).await;
    assert_eq!(cluster.admin().partitions("orders").await.unwrap(), before.0);
    session.leave().await;

    drop(listening);
    let text = String::from_utf8_lossy(&logged.0.lock().unwrap()).into_owned();
    assert!(text.contains("joined"), "something was logged: {} bytes", text.len());
    for secret in [SECRET, WRONG] {
        let plain = std::str::from_utf8(secret).unwrap();
        let listed = format!("{:?}", &secret[..8]);
        let listed = listed.trim_matches(['[', ']']);
        let hex: String = secret[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        for shown in [plain, listed, hex.as_str()] {
            assert!(!text.contains(shown), "a log shows {shown}");
        }
    }
}

#[tokio::test]
async fn f021_names_that_are_none_are_refused_before_anything_is_done() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let mut client = wire::workers(&cluster.endpoints()).await;
    let mut admin = wire::admin(&cluster.endpoints()).await;
    let long = "x".repeat(10_000);
    for name in ["", "two\nlines", "\x1b[2J", "a/b", "..", "../../etc", "UPPER", "ünï", long.as_str()] {
        assert_eq!(refused(client.join(wire::join(name, "orders")).await), Answer::Invalid, "{name:?}");
        assert_eq!(refused(client.join(wire::join("w1", name)).await), Answer::Invalid, "{name:?}");
        let create = v1::CreateKeyspaceRequest {
            request: Some(wire::request_id()),
            name: name.to_owned(),
            partitions: 1,
            policy: None,
            ..Default::default()
        };
        let status = admin.create_keyspace(create).await.unwrap_err();
        let failure = Failure::from_status(&status).unwrap();
        assert_eq!(failure.kind(), Answer::Invalid, "{name:?}");
        assert!(!failure.message().chars().any(char::is_control) && failure.message().len() < 1_000);
    }
    assert!(cluster.admin().workers().await.unwrap().is_empty());
    assert_eq!(cluster.admin().keyspaces().await.unwrap().len(), 1);
}

/// Two processes with one name. The session that is younger than its lease stays; of an older one the newest wins, and
/// the loser is told once and for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f059_of_two_workers_with_one_name_exactly_one_lives_and_neither_flaps() {
    const TTL: Duration = Duration::from_secs(3);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 2, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let named = |address| Worker::builder("w1").coordinator(cluster.endpoints().as_str()).address(address);
    let begun = Instant::now();
    let mut first = Member::join(named("10.0.0.1:80"), "orders", &store).await;
    let owned = first.granted_many(2).await;
    let idle = |_| async { Ok::<(), std::io::Error>(()) };
    let second = named("10.0.0.2:80").own("orders", idle).join().await;
    if begun.elapsed() < TTL {
        let error = second.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DuplicateIdentity, "{error}");
        assert_eq!(error.identities(), Some(("10.0.0.1:80", "10.0.0.2:80")));
    }
    assert!(owned.iter().all(ringfence::Ownership::is_valid), "the one that lives noticed nothing");

    // Older than its lease: the newest wins.
    let mut newest = until("the newest may have the name", async || {
        match Member::try_join(named("10.0.0.3:80"), "orders", &store).await {
            Ok(member) => Some(member),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DuplicateIdentity, "{error}");
                None
            }
        }
    })
    .await;
    let ended = soon("the loser is told", first.worker.serve_until(std::future::pending::<()>())).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::DuplicateIdentity);
    for owned in &owned {
        assert!(owned.stamp().is_err());
    }
    let session = newest.worker.session();
    for _ in 0..2 {
        let new = newest.granted().await;
        let old = owned.iter().find(|old| old.partition() == new.partition()).unwrap();
        assert!(new.epoch() > old.epoch());
        assert!(store.write(old.token(), "of the loser").is_err());
    }
    let workers = cluster.admin().workers().await.unwrap();
    assert_eq!(workers.iter().map(|worker| Some(worker.session)).collect::<Vec<_>>(), [session]);
    newest.worker.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f059_of_two_that_join_in_the_same_moment_one_is_told_that_the_name_is_taken() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let store = Store::trusting();
    for round in 0..10 {
        let named = || Worker::builder(&format!("w{round}")).coordinator(cluster.endpoints().as_str());
        let (one, other) = tokio::join!(
            Member::try_join(named(), "orders", &store),
            Member::try_join(named(), "orders", &store)
        );
        let (joined, refused): (Vec<_>, Vec<_>) = [one, other].into_iter().partition(Result::is_ok);
        assert_eq!((joined.len(), refused.len()), (1, 1), "round {round}");
        let error = refused.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::DuplicateIdentity, "{error}");
        for member in joined.into_iter().flatten() {
            member.worker.leave().await.unwrap();
        }
    }
}

/// A process that is killed and started again at once does not wait for its own lease before it may join.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f059_f083_a_quick_restart_under_the_same_name_is_taken_in_at_once() {
    const TTL: Duration = Duration::from_secs(6);
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let network = Network::to(cluster.addresses()).await;
    let builder = Worker::builder("w1").coordinator_over(&network.coordinator());
    let mut killed = Member::join(builder, "orders", &store).await;
    let old = killed.granted().await;
    network.all(|weather| weather.refuses = true);
    network.reset();
    // As its supervisor would: the end of the killed one's connection and the first join race each other.
    let mut again = until("the name is free", async || {
        let builder = Worker::builder("w1").coordinator(cluster.endpoints().as_str());
        match Member::try_join(builder, "orders", &store).await {
            Ok(member) => Some(member),
            Err(error) if error.kind() == ErrorKind::DuplicateIdentity => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    assert!(old.is_valid(), "its lease was not waited for");
    // What it owned cools until the earlier lease has run out: the earlier process may live.
    let new = again.granted().await;
    assert!(new.epoch() > old.epoch() && !old.is_valid());
    assert!(store.write(old.token(), "of the killed").is_err());
}

/// An epoch belongs to one session. The SDK's tokens name it, and one that shows the epoch for another session is refused
/// before anything is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f042_an_equal_epoch_of_another_session_is_refused() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let store = Store::fenced(cluster.id().await);
    let builder = Worker::builder("w1").coordinator(cluster.endpoints().as_str());
    let mut member = Member::join(builder, "orders", &store).await;
    let owned = member.granted().await;
    let stamp = owned.stamp().unwrap();
    assert_eq!(stamp.session(), Some(owned.session()));
    store.write(&stamp, "of its owner").unwrap();
    // A copied image, or a bug: the same epoch, another session.
    let forged = stamp.clone().held_by(SessionId::new(owned.session().get() + 1).unwrap());
    let error = store.write(&forged, "forged").unwrap_err();
    assert!(matches!(error, FenceError::OtherSession { .. }), "{error}");
    store.write(&stamp, "of its owner").unwrap();
    assert!(store.writes().iter().all(|write| write.what == "of its owner"));
}
