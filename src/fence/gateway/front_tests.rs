//! What is in memory at once, and who waits for whom.

use super::*;
use crate::Fence;
use crate::gateway::files::Step;
use http_body_util::Full;
use ringfence_core::ids::ClusterId;
use std::sync::mpsc::{Sender, channel};
use tempfile::TempDir;
use tower::ServiceExt;

const FILE: &str = "/orders/17/a";

fn own() -> FencingToken {
    "prod/orders/17@33".parse().unwrap()
}

fn opened() -> (TempDir, FileGateway) {
    let dir = tempfile::tempdir().unwrap();
    let files = FileGateway::open(dir.path(), &ClusterId::new("prod").unwrap()).unwrap();
    files.raise(&own()).unwrap();
    (dir, files)
}

fn request(method: &str, body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(FILE).header(crate::header::NAME, own().to_string());
    request.body(Full::from(body)).unwrap()
}

/// The service, with a hand on its places, and as it is called.
fn served(files: &FileGateway) -> (FileService, FencedService<FileService, FileGateway>) {
    let service = FileService::new(files.clone());
    (service.clone(), service.behind_its_layer())
}

/// Writes stop where they are staged, until the sender is dropped.
fn stopped_when_staged(files: &FileGateway) -> Sender<()> {
    let (go_on, may_go_on) = channel::<()>();
    files.interrupted_by(Box::new(move |at| {
        if at == Step::Staged {
            let _ = may_go_on.recv();
        }
        Ok(())
    }));
    go_on
}

#[tokio::test]
async fn a_file_that_is_read_has_its_place_until_its_body_has_gone() {
    let (_dir, files) = opened();
    files.put(&[own()], &"orders/17/a".parse().unwrap(), &[7; 100_000]).unwrap();
    let (service, front) = served(&files);
    let mut answers = Vec::new();
    for _ in 0..MAX_IN_FLIGHT {
        answers.push(front.clone().oneshot(request("GET", "")).await.unwrap());
    }
    assert_eq!(service.reads.available_permits(), 0);
    // Who writes waits for no reader.
    assert_eq!(front.clone().oneshot(request("PUT", "x")).await.unwrap().status(), 204);
    drop(answers.pop());
    assert_eq!(service.reads.available_permits(), 1);
    let head = front.clone().oneshot(request("HEAD", "")).await.unwrap();
    assert_eq!((head.status().as_u16(), service.reads.available_permits()), (200, 1));
    drop(answers);
    assert_eq!(service.reads.available_permits(), MAX_IN_FLIGHT);
}

#[tokio::test]
async fn a_write_whose_caller_has_gone_has_its_place_until_it_is_done() {
    let (dir, files) = opened();
    let (service, front) = served(&files);
    let go_on = stopped_when_staged(&files);
    let asked = tokio::spawn(front.clone().oneshot(request("PUT", "x")));
    while service.writes.available_permits() == MAX_IN_FLIGHT {
        tokio::task::yield_now().await;
    }
    // Its caller goes when the work has begun, which is when a file is staged.
    let staged = dir.path().join(".ringfence/staged");
    while std::fs::read_dir(&staged).unwrap().count() == 0 {
        tokio::task::yield_now().await;
    }
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    assert_eq!(service.writes.available_permits(), MAX_IN_FLIGHT - 1);
    drop(go_on);
    while service.writes.available_permits() < MAX_IN_FLIGHT {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.read(&[], &"orders/17/a".parse().unwrap()).unwrap(), b"x");
}

#[test]
fn a_raise_waits_for_no_thread_behind_writes() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (dir, files) = opened();
    let (_, front) = served(&files);
    let go_on = stopped_when_staged(&files);
    let write = runtime.spawn(front.clone().oneshot(request("PUT", "by 33")));
    let staged = dir.path().join(".ringfence/staged");
    while std::fs::read_dir(&staged).unwrap().count() == 0 {
        std::thread::yield_now();
    }
    let next: FencingToken = "prod/orders/17@34".parse().unwrap();
    let raised = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), Fence::raise(&files, &next)).await });
    raised.expect("the raise waits behind a write that is not checked yet").unwrap();
    drop(go_on);
    // It had not been checked yet.
    assert_eq!(runtime.block_on(write).unwrap().unwrap().status(), 412);
}
