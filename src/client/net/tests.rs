//! Calls to scripted nodes over loopback: where they go, when they are repeated, and that they end.

use super::fake::{Answered, Asked, Fake};
use super::{Call, Coordinator, Effect, Endpoints, Route, admin};
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::NodeAddress;
use ringfence_api::{Failure, v1};
use ringfence_core::ids::NodeId;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::Status;

const CALL: Call = Call {
    route: Route::Leader,
    effect: Effect::Repeatable,
    within: Duration::from_secs(5),
    patience: Duration::from_millis(300),
};

fn at<'a>(fakes: impl IntoIterator<Item = &'a Fake>) -> Coordinator {
    let endpoints = fakes.into_iter().map(|fake| fake.endpoint.clone());
    Coordinator::new(Endpoints::new(endpoints).unwrap())
}

async fn create(coordinator: &Coordinator, call: Call) -> Result<(), Error> {
    let request = v1::CreateKeyspaceRequest { name: "orders".to_owned(), ..Default::default() };
    let send = |channel| {
        let request = request.clone();
        async move { admin(channel).create_keyspace(request).await }
    };
    coordinator.call(call, send).await.map(|_| ())
}

fn created() -> Result<Answered, Status> {
    Ok(Answered::Create(v1::CreateKeyspaceResponse::default()))
}

fn not_leader(leader: Option<&Fake>) -> Status {
    let named = |fake: &Fake| NodeAddress {
        node: NodeId::new(2).unwrap(),
        address: fake.endpoint.address().to_owned(),
    };
    Failure::not_leader(leader.map(named)).into()
}

/// A port at which nobody listens.
fn dead() -> super::Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    super::Endpoint::from_address(&listener.local_addr().unwrap().to_string()).unwrap()
}

#[tokio::test]
async fn t43_a_call_that_was_given_no_time_was_not_sent_and_does_not_say_that_it_may_have_been() {
    let node = Fake::start(|_| created()).await;
    let late = Call { effect: Effect::Once, within: Duration::ZERO, ..CALL };
    let error = create(&at([&node]), late).await.unwrap_err();
    assert_eq!((error.kind(), node.asked().len()), (ErrorKind::Unreachable, 0), "{error}");
}

#[tokio::test]
async fn f106_a_call_goes_to_the_leader_that_is_hinted_at_and_stays_there() {
    let leader = Fake::start(|_| created()).await;
    let hint = not_leader(Some(&leader));
    let follower = Fake::start(move |_| Err(hint.clone())).await;
    let coordinator = at([&follower]);
    create(&coordinator, CALL).await.unwrap();
    create(&coordinator, CALL).await.unwrap();
    assert_eq!((follower.asked().len(), leader.asked().len()), (1, 2));
}

#[tokio::test]
async fn f106_two_nodes_that_hint_at_each_other_are_asked_once_a_round() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let second = super::Endpoint::from_address(&listener.local_addr().unwrap().to_string()).unwrap();
    let to_second = Failure::not_leader(Some(NodeAddress {
        node: NodeId::new(2).unwrap(),
        address: second.address().to_owned(),
    }));
    let first = Fake::start(move |_| Err(to_second.clone().into())).await;
    let to_first = not_leader(Some(&first));
    let second = Fake::on(listener, move |_| Err(to_first.clone()));
    let error = create(&at([&first]), CALL.within(Duration::from_millis(500))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoLeader);
    // Rounds wait 25 to 50 ms, then twice that, and so on: no more than five of them fit in.
    assert!(first.asked().len() <= 5 && second.asked().len() <= 5, "{}", first.asked().len());
}

#[tokio::test]
async fn dead_endpoints_do_not_keep_a_call_from_the_one_that_lives() {
    let alive = Fake::start(|_| created()).await;
    let endpoints = [dead(), dead(), alive.endpoint.clone()];
    let coordinator = Coordinator::new(Endpoints::new(endpoints).unwrap());
    for _ in 0..5 {
        create(&coordinator, CALL).await.unwrap();
    }
}

#[tokio::test]
async fn f010_a_half_open_node_is_passed_over_and_a_deadline_always_fires() {
    // It accepts and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_at = super::Endpoint::from_address(&silent.local_addr().unwrap().to_string()).unwrap();
    let alive = Fake::start(|_| created()).await;
    let both = Endpoints::new([silent_at.clone(), alive.endpoint.clone()]).unwrap();
    for _ in 0..4 {
        create(&Coordinator::new(both.clone()), CALL).await.unwrap();
    }
    let only_silent = Coordinator::new(silent_at.into());
    let call = Call { effect: Effect::Read, ..CALL }.within(Duration::from_millis(700));
    let asked = tokio::time::timeout(Duration::from_secs(20), create(&only_silent, call)).await;
    let error = asked.expect("nothing but the deadline ends it").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("no answer within"), "{error}");
}

#[tokio::test]
async fn f010_a_node_that_hangs_in_the_call_is_passed_over() {
    let hung = Fake::start(|_| Ok(Answered::Silence)).await;
    let alive = Fake::start(|_| created()).await;
    for _ in 0..4 {
        create(&at([&hung, &alive]), CALL).await.unwrap();
    }
}

#[tokio::test]
async fn f014_an_unknown_outcome_is_asked_about_again_and_not_by_calls_that_run_only_once() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|_| match ASKED.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Failure::unknown_outcome().into()),
        _ => created(),
    })
    .await;
    create(&at([&fake]), CALL).await.unwrap();
    assert_eq!(fake.asked().len(), 2);
    assert_eq!(fake.asked()[0], fake.asked()[1]);

    ASKED.store(0, Ordering::SeqCst);
    let once = Call { effect: Effect::Once, ..CALL };
    let error = create(&at([&fake]), once).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert_eq!(fake.asked().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_final_and_said_by_the_first_who_knows() {
    let fake = Fake::start(|_| Err(Failure::already_exists("keyspace orders exists already").into())).await;
    let error = create(&at([&fake]), CALL).await.unwrap_err();
    assert_eq!((error.kind(), fake.asked().len()), (ErrorKind::AlreadyExists, 1));
}

#[tokio::test]
async fn f068_a_node_that_comes_back_is_found_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = super::Endpoint::new(&format!("http://localhost:{port}")).unwrap();
    let coordinator = Coordinator::new(endpoint.into());
    let fake = Fake::on(listener, |_| created());
    create(&coordinator, CALL).await.unwrap();
    drop(fake);
    let create_later = tokio::spawn({
        let coordinator = coordinator.clone();
        async move { create(&coordinator, CALL).await }
    });
    let listener = loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let _again = Fake::on(listener, |_| created());
    create_later.await.unwrap().unwrap();
}

/// An HTTP/2 server that ends each connection as one does that counts pings: GOAWAY, `ENHANCE_YOUR_CALM`.
fn annoyed(listener: &TcpListener) {
    use std::io::{Read as _, Write as _};
    let (mut connection, _) = listener.accept().unwrap();
    let _ = connection.read(&mut [0; 1024]);
    let mut said = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let why = b"too_many_pings";
    said.extend([0, 0, 8 + why.len() as u8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
    said.extend(why);
    connection.write_all(&said).unwrap();
    let _ = connection.read(&mut [0; 1024]);
}

#[tokio::test]
async fn f097_a_node_that_says_too_many_pings_is_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = super::Endpoint::from_address(&listener.local_addr().unwrap().to_string()).unwrap();
    let calm = std::thread::spawn(move || {
        annoyed(&listener);
        annoyed(&listener);
        Fake::on(listener, |_| created())
    });
    create(&Coordinator::new(endpoint.into()), CALL).await.unwrap();
    assert_eq!(calm.join().unwrap().asked().len(), 1);
}

/// Dials, and notes how calmly.
#[derive(Default)]
struct Noting(std::sync::Mutex<Vec<u32>>);

impl super::Dial for Noting {
    fn dial(&self, endpoint: &super::Endpoint) -> tonic::transport::Channel {
        self.dial_calmly(endpoint, 1)
    }

    fn dial_calmly(&self, endpoint: &super::Endpoint, times: u32) -> tonic::transport::Channel {
        self.0.lock().unwrap().push(times);
        super::TcpDial::default().dial_calmly(endpoint, times)
    }
}

#[tokio::test]
async fn f097_whoever_was_told_of_too_many_pings_pings_less_often() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = super::Endpoint::from_address(&listener.local_addr().unwrap().to_string()).unwrap();
    let noting = std::sync::Arc::new(Noting::default());
    let dialled = noting.clone();
    let calm = std::thread::spawn(move || {
        // A connection that is closed before its last word was read says nothing of pings, so more than two may be needed.
        while dialled.0.lock().unwrap().last().is_none_or(|times| *times < 4) {
            annoyed(&listener);
        }
        Fake::on(listener, |_| created())
    });
    let coordinator = Coordinator::with_dial(&Endpoints::new([endpoint]).unwrap(), noting.clone());
    // A call's tries may be used up by connections that say nothing of pings.
    while let Err(error) = create(&coordinator, CALL).await {
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    }
    let _fake = calm.join().unwrap();
    let dialled = noting.0.lock().unwrap().clone();
    let doubles = dialled.windows(2).all(|two| two[1] == two[0] || two[1] == 2 * two[0]);
    assert!(dialled[0] == 1 && doubles && dialled.contains(&4), "{dialled:?}");
    create(&coordinator, CALL).await.unwrap();
    assert_eq!(*noting.0.lock().unwrap(), dialled, "the connection that works stays");
}

/// The other half of the pairing, that our own server counts no pings, is what its fakes here are made of, too.
#[tokio::test]
async fn f097_eager_pings_on_an_idle_connection_break_nothing() {
    let fake = Fake::start(|_| created()).await;
    let eager = super::TcpDial { keepalive: Duration::from_millis(5), ..super::TcpDial::default() };
    let endpoints = Endpoints::new([fake.endpoint.clone()]).unwrap();
    let coordinator = Coordinator::with_dial(&endpoints, std::sync::Arc::new(eager));
    create(&coordinator, CALL).await.unwrap();
    let call = Call { route: Route::Any, ..CALL };
    let open = |channel| async move { super::map(channel).watch(v1::WatchRequest::default()).await };
    let mut idle = coordinator.call(call, open).await.unwrap();
    let (_, messages) = fake.watch().await;
    // A hundred pings or so.
    let quiet = tokio::time::timeout(Duration::from_millis(500), idle.message()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    messages.send(Ok(v1::WatchResponse { revision: 7, ..Default::default() })).await.unwrap();
    assert_eq!(idle.message().await.unwrap().unwrap().revision, 7, "on the stream that was opened first");
}

#[tokio::test]
async fn nodes_are_learnt_from_the_cluster() {
    let other = Fake::start(|_| created()).await;
    let node = v1::Node { node: 2, address: other.endpoint.address().to_owned(), ..Default::default() };
    let status = v1::ClusterStatusResponse { nodes: vec![node], ..Default::default() };
    let first = Fake::start(move |asked| match asked {
        Asked::Status => Ok(Answered::Status(status.clone())),
        _ => created(),
    })
    .await;
    let coordinator = at([&first]);
    coordinator.survey().await;
    drop(first);
    create(&coordinator, CALL).await.unwrap();
    assert_eq!(other.asked().len(), 1);
}

#[tokio::test]
async fn connections_of_ones_own_work_on_another_runtime() {
    let fake = Fake::start(|_| created()).await;
    let coordinator = at([&fake]);
    create(&coordinator, CALL).await.unwrap();
    let own = coordinator.with_own_connections();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(create(&own, CALL))
    });
    tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap().unwrap();
}
