//! A router that follows scripted nodes over loopback.

use super::{Router, View};
use crate::error::ErrorKind;
use crate::net::Endpoints;
use crate::net::fake::{Fake, Watched};
use ringfence_api::{Failure, v1};
use ringfence_core::ids::PartitionId;
use std::time::Duration;
use tokio::time::timeout;

fn message(revision: u64, owners: &[(u32, u64, &str, bool)]) -> v1::WatchResponse {
    let entry = |&(partition, epoch, worker, ready): &(u32, u64, &str, bool)| v1::MapEntry {
        keyspace: "orders".to_owned(),
        partition,
        epoch,
        phase: v1::Phase::Owned.into(),
        ready,
        owner: Some(v1::Owner { worker: worker.to_owned(), session: epoch, address: format!("{worker}:80") }),
    };
    v1::WatchResponse {
        cluster: "prod".to_owned(),
        lineage: "l1".to_owned(),
        revision,
        partitions: owners.iter().map(entry).collect(),
        ..Default::default()
    }
}

fn full(revision: u64, owners: &[(u32, u64, &str, bool)]) -> v1::WatchResponse {
    let keyspace = v1::Keyspace { name: "orders".to_owned(), partitions: 1, ..Default::default() };
    v1::WatchResponse { reset: true, keyspaces: vec![keyspace], ..message(revision, owners) }
}

async fn connected(fakes: &[&Fake], first: v1::WatchResponse) -> (Router, Watched) {
    let endpoints = Endpoints::new(fakes.iter().map(|fake| fake.endpoint.clone())).unwrap();
    let serve = async {
        let watched = fakes[0].watch().await;
        watched.1.send(Ok(first)).await.unwrap();
        watched
    };
    let (router, watched) = tokio::join!(Router::connect(endpoints, ["orders"]), serve);
    (router.unwrap(), watched)
}

fn owner(router: &Router) -> String {
    router.owner("orders", b"key").map_or("-".to_owned(), |owner| owner.to_string())
}

#[tokio::test]
async fn a_router_knows_the_owner_and_follows_it() {
    let fake = Fake::only_watches().await;
    let (router, (request, messages)) = connected(&[&fake], full(5, &[(0, 3, "w1", true)])).await;
    assert_eq!((request.keyspaces, request.revision), (vec!["orders".to_owned()], 0));
    assert_eq!(owner(&router), "w1 (s3) under e3");
    assert_eq!(router.partition_of("orders", b"key"), Some(PartitionId::new(0)));
    assert!(router.owner("other", b"key").is_none());
    assert_eq!(router.stale_for(), Duration::ZERO);

    let seen = router.view();
    messages.send(Ok(message(6, &[(0, 4, "w2", false)]))).await.unwrap();
    assert_eq!(router.changed_since(&seen).await.revision().get(), 6);
    let waits = tokio::spawn({
        let router = router.clone();
        async move { router.ready_owner("orders", b"key").await }
    });
    messages.send(Ok(message(7, &[(0, 4, "w2", true)]))).await.unwrap();
    let ready = waits.await.unwrap().unwrap();
    assert_eq!((ready.address(), ready.epoch().get(), ready.is_ready()), ("w2:80", 4, true));
}

#[tokio::test]
async fn f048_a_stream_that_ends_is_opened_again_where_it_stopped() {
    let fake = Fake::only_watches().await;
    let (router, (_, messages)) = connected(&[&fake], full(5, &[(0, 3, "w1", true)])).await;
    let half = v1::WatchResponse { more: true, ..message(6, &[(0, 9, "w9", true)]) };
    messages.send(Ok(half)).await.unwrap();
    messages.send(Err(Failure::no_leader().into())).await.unwrap();
    let (request, messages) = fake.watch().await;
    assert_eq!((request.lineage.as_str(), request.revision), ("l1", 5));
    assert_eq!(owner(&router), "w1 (s3) under e3", "half a picture leaves no trace");
    messages.send(Ok(message(8, &[(0, 10, "w2", true)]))).await.unwrap();
    router.wait_for(|view| view.revision().get() == 8).await;
    assert_eq!(owner(&router), "w2 (s10) under e10");
}

#[tokio::test]
async fn f048_the_picture_stays_in_use_and_is_called_stale_while_nobody_serves_it() {
    let fake = Fake::only_watches().await;
    let (router, watched) = connected(&[&fake], full(5, &[(0, 3, "w1", true)])).await;
    drop((watched, fake));
    while router.stale_for() < Duration::from_millis(20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(owner(&router), "w1 (s3) under e3");
}

#[tokio::test]
async fn a_stream_that_contradicts_itself_is_given_up_for_another_node() {
    let (bad, good) = (Fake::only_watches().await, Fake::only_watches().await);
    let serve_both = |endpoints: Endpoints| async move { Router::connect(endpoints, ["orders"]).await };
    let endpoints = Endpoints::new([bad.endpoint.clone()]).unwrap();
    let first = async {
        let (_, messages) = bad.watch().await;
        messages.send(Ok(full(5, &[(7, 3, "w1", true)]))).await.unwrap();
    };
    let (router, ()) = tokio::join!(serve_both(endpoints), first);
    let error = router.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("partitions[0].partition"), "{error}");

    let (router, (_, messages)) = connected(&[&good], full(5, &[(0, 3, "w1", true)])).await;
    messages.send(Ok(message(4, &[]))).await.unwrap();
    let (request, _messages) = good.watch().await;
    assert_eq!((request.revision, owner(&router).as_str()), (5, "w1 (s3) under e3"));
}

#[tokio::test]
async fn a_keyspace_that_does_not_exist_is_an_error_at_once() {
    let fake = Fake::only_watches().await;
    let serve = async {
        let (_, messages) = fake.watch().await;
        messages.send(Err(Failure::not_found("there is no keyspace orders").into())).await.unwrap();
    };
    let (router, ()) = tokio::join!(Router::connect(fake.endpoint.to_string(), ["orders"]), serve);
    assert_eq!(router.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_keyspace_deleted_while_the_router_was_away_does_not_blind_it_for_the_others() {
    let fake = Fake::only_watches().await;
    let (router, (_, messages)) = connected(&[&fake], full(5, &[(0, 3, "w1", true)])).await;
    drop(messages);
    let (_, messages) = fake.watch().await;
    messages.send(Err(Failure::not_found("there is no keyspace orders").into())).await.unwrap();
    let (request, messages) = fake.watch().await;
    assert!(request.keyspaces.is_empty(), "all are asked for: {request:?}");
    let gone = v1::WatchResponse { deleted_keyspaces: vec!["orders".to_owned()], ..message(9, &[]) };
    messages.send(Ok(gone)).await.unwrap();
    let error = router.ready_owner("orders", b"key").await;
    // It may have looked before the message came; then it was ready, under the old picture.
    if error.is_ok() {
        router.wait_for(|view: &View| view.keyspace("orders").is_none()).await;
    }
    assert_eq!(router.ready_owner("orders", b"key").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn f101_the_stream_ends_with_the_last_handle() {
    let fake = Fake::only_watches().await;
    let (router, (_, messages)) = connected(&[&fake], full(5, &[])).await;
    let other = router.clone();
    drop(router);
    assert!(timeout(Duration::from_millis(50), messages.closed()).await.is_err());
    drop(other);
    timeout(Duration::from_secs(5), messages.closed()).await.expect("closed");
}
