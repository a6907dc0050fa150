//! Locks against the scripted coordinator.

mod asking;
mod holding;
mod losing;

use super::{PATIENCE, TTL, fake::Fake, polite, worker};
use crate::lock::{Builder, LockGuard, Locks, Why};
use std::future::Future;
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn builder(fake: &Fake) -> Builder {
    Locks::builder(fake.url.as_str()).id("l1").address("10.0.0.2:1").ttl(TTL)
}

async fn connect(fake: &Fake) -> Locks {
    let locks = builder(fake).connect().await.unwrap();
    // What is pushed before its stream is there reaches nobody.
    fake.until("its stream is there", |world| world.renewals > 0).await;
    locks
}

/// What has to happen soon.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it happens")
}

/// Somebody who waits for the lock, in a task.
fn waiter(locks: &Locks, name: &'static str) -> JoinHandle<Result<LockGuard, crate::Error>> {
    let request = locks.lock(name);
    tokio::spawn(request.acquire())
}
