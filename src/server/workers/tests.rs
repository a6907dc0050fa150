//! Who may speak for a session, and which renewals are answered.

use super::attach::Outbox;
use super::loads::{Told, wanted};
use super::renewals::{Renewal, Renewals};
use crate::context::Context;
use crate::testing::{self, Cluster, SECRET, create, join, until};
use ringfence_api::v1::{self, attach_request, attach_response};
use ringfence_api::{ErrorKind, Failure};
use ringfence_core::ids::{SessionId, Term, WorkerId};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use tonic::Status;

fn kind(status: &Status) -> ErrorKind {
    Failure::decode(status).kind()
}

/// The join of a process that starts anew under a worker id.
fn restarted(worker: &str, replace_secret: &[u8]) -> v1::JoinRequest {
    v1::JoinRequest {
        protocol: ringfence_api::PROTOCOL,
        worker: worker.to_owned(),
        nonce: fastrand::u128(1..).to_be_bytes().to_vec().into(),
        secret_sha256: Sha256::digest(b"another").to_vec().into(),
        keyspaces: vec!["orders".to_owned()],
        replace: true,
        replace_secret: replace_secret.to_vec().into(),
        ..v1::JoinRequest::default()
    }
}

#[tokio::test]
async fn f021_without_the_secret_nobody_reports_leaves_or_replaces() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let session = join(&node, "w1", "orders").await;
    let mut workers = testing::workers(&node).await;

    let guess: &[u8] = b"a guess";
    let report = |secret: &[u8]| v1::ReportRequest {
        session,
        secret: secret.to_vec().into(),
        withdraw: true,
        ..v1::ReportRequest::default()
    };
    assert_eq!(kind(&workers.report(report(guess)).await.unwrap_err()), ErrorKind::WrongSecret);
    let leave = |secret: &[u8]| v1::LeaveRequest { session, secret: secret.to_vec().into() };
    assert_eq!(kind(&workers.leave(leave(guess)).await.unwrap_err()), ErrorKind::WrongSecret);
    let refused = workers.join(restarted("w1", guess)).await.unwrap_err();
    assert_eq!(kind(&refused), ErrorKind::DuplicateIdentity);
    // Shown the secret it does each of them.
    workers.report(report(SECRET)).await.unwrap();
    workers.join(restarted("w1", SECRET)).await.unwrap();
    workers.leave(leave(SECRET)).await.unwrap();
}

#[tokio::test]
async fn f059_a_session_younger_than_its_ttl_that_is_connected_is_not_replaced() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    join(&node, "w1", "orders").await;
    let mut workers = testing::workers(&node).await;
    let refused = workers.join(restarted("w1", b"")).await.unwrap_err();
    assert_eq!(kind(&refused), ErrorKind::DuplicateIdentity);
}

#[tokio::test]
async fn a_drain_until_the_next_join_ends_with_a_process_that_starts_anew_only() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let mut placement =
        v1::placement_service_client::PlacementServiceClient::new(testing::channel(&node).await);
    let drain = v1::SetWorkerRequest {
        request: testing::request_id(),
        worker: "w1".into(),
        drained_until_join: Some(true),
        ..Default::default()
    };
    placement.set_worker(drain).await.unwrap();
    let drained = || {
        let context = node.context().unwrap();
        let local = context.replica.lock();
        local.state.drain_until_join(&WorkerId::new("w1").unwrap()).is_some()
    };
    // It does not ask to replace anybody: its process had a session before.
    let mut workers = testing::workers(&node).await;
    workers.join(testing::a_join("w1", "orders")).await.unwrap();
    assert!(drained(), "it is still to be stopped");
    workers.join(restarted("w1", SECRET)).await.unwrap();
    assert!(!drained());
}

/// "It has ended" makes a worker give everything up. A node that lags may not know a session that another one opened.
#[tokio::test]
async fn p06_only_a_leader_says_that_a_session_has_ended() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let unknown = v1::ReportRequest { session: 77, secret: SECRET.into(), ..v1::ReportRequest::default() };
    for (id, node) in &cluster.nodes {
        let refused = testing::workers(node).await.report(unknown.clone()).await.unwrap_err();
        let expected = if *id == leader { ErrorKind::SessionEnded } else { ErrorKind::NotLeader };
        assert_eq!(kind(&refused), expected, "node {id}, and {leader} leads");
    }
}

/// A session of a node that leads, and a renewal of it that has arrived.
async fn renewed(context: &Context, session: u64, term: Term) -> (Renewal, Arc<Outbox>) {
    let session = SessionId::new(session).unwrap();
    let outbox = Arc::new(Outbox::new());
    let arrival = context.clock.now();
    let mut local = context.replica.lock();
    local.leadership.as_mut().unwrap().lessor.arrived(session);
    drop(local);
    (Renewal { session, number: 1, arrival, term, outbox: Arc::clone(&outbox) }, outbox)
}

#[tokio::test]
async fn p06_a_renewal_is_answered_in_the_term_it_arrived_in_and_while_somebody_reads() {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
    let session = join(&node, "w1", "orders").await;
    let context = node.context().unwrap();
    let (term, _) = context.confirm().await.unwrap();
    let renewals = Renewals::new(context.clone());

    let (good, read) = renewed(&context, session, term).await;
    let (earlier, of_another_term) = renewed(&context, session, Term::new(term.get() - 1)).await;
    let (unread, closed) = renewed(&context, session, term).await;
    closed.hang_up();
    let held = renewals.answer(vec![good, earlier, unread], term);
    assert!(held.is_empty());
    assert_eq!(read.acknowledged(), 1);
    assert_eq!(of_another_term.acknowledged(), 0, "its arrival was noted by a lessor that is gone");
    assert_eq!(
        closed.acknowledged(),
        0,
        "a lease that nobody knows of protects nothing, and holds others up"
    );
}

#[tokio::test]
async fn p06_a_leader_that_is_cut_off_acknowledges_no_renewal() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    cluster.admin(leader).await.create_keyspace(create("orders", 4)).await.unwrap();
    let node = &cluster.nodes[&leader];
    let session = join(node, "w1", "orders").await;
    let context = node.context().unwrap();

    let (requests, taken) = tokio::sync::mpsc::channel(8);
    let say = |message| v1::AttachRequest { message: Some(message) };
    let open = v1::attach_request::Open {
        protocol: ringfence_api::PROTOCOL,
        cluster: String::new(),
        session,
        secret: SECRET.into(),
        drills: Vec::new(),
    };
    requests.send(say(attach_request::Message::Open(open))).await.unwrap();
    let renew = |number| say(attach_request::Message::Renew(v1::attach_request::Renew { number }));
    requests.send(renew(1)).await.unwrap();
    let taken = tokio_stream::wrappers::ReceiverStream::new(taken);
    let mut stream = testing::workers(node).await.attach(taken).await.unwrap().into_inner();
    let mut acknowledged = async || loop {
        match stream.message().await.ok()??.message? {
            attach_response::Message::Acknowledgement(acknowledgement) => {
                return Some(acknowledgement.number);
            }
            attach_response::Message::Assignment(_) | attach_response::Message::Drill(_) => {}
        }
    };
    assert_eq!(acknowledged().await, Some(1));

    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    others.into_iter().for_each(|id| cluster.crash(id));
    until("no quorum answers", async || context.confirm().await.is_err().then_some(())).await;
    assert!(context.replica.lock().leadership.is_some(), "it still believes that it leads");
    // The stream may have ended meanwhile: that is no acknowledgement either.
    let _ = requests.send(renew(2)).await;
    assert_eq!(acknowledged().await, None, "the stream ends, and its worker looks for another leader");
}

/// What a worker tells of loads is bounded and checked, and what is not its to say changes nothing.
#[tokio::test]
async fn f096_loads_that_break_the_contract_end_the_stream_and_others_are_passed_over() {
    let node = testing::alone().await;
    let mut request = create("orders", 4);
    request.policy.get_or_insert_default().balance_by = Some(v1::BalanceBy::Load.into());
    testing::admin(&node).await.create_keyspace(request).await.unwrap();
    let session = SessionId::new(join(&node, "w1", "orders").await).unwrap();
    let context = node.context().unwrap();
    let (term, _) = context.confirm().await.unwrap();
    let of = |keyspace: &str, partitions: Vec<u32>, loads: Vec<u64>| v1::attach_request::Loads {
        keyspaces: vec![v1::attach_request::loads::OfKeyspace {
            keyspace: keyspace.to_owned(),
            partitions,
            loads,
        }],
    };
    let take = |message: &v1::attach_request::Loads| {
        let local = &mut *context.replica.lock();
        Told::default().take(context.clock.now(), local, term, session, message)
    };
    assert_eq!(take(&of("orders", vec![0, 1], vec![5])).unwrap_err().kind(), ErrorKind::Invalid);
    let many = of("orders", (0..1_001).collect(), vec![1; 1_001]);
    assert_eq!(take(&many).unwrap_err().kind(), ErrorKind::Limit);
    let empty = v1::attach_request::Loads { keyspaces: vec![Default::default(); 1_001] };
    assert_eq!(take(&empty).unwrap_err().kind(), ErrorKind::Limit);
    for passed_over in [
        of("nowhere", vec![0], vec![5]),
        of("NOT A NAME", vec![0], vec![5]),
        of("orders", vec![u32::MAX], vec![u64::MAX]),
        v1::attach_request::Loads::default(),
    ] {
        take(&passed_over).unwrap();
    }
    let local = context.replica.lock();
    let leadership = local.leadership.as_ref().unwrap();
    let wanted = wanted(leadership, &local.state, local.state.session(session).unwrap()).unwrap();
    assert_eq!((wanted.keyspaces, wanted.every_ms), (vec!["orders".to_owned()], 5_000));
}
