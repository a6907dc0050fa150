//! A worker against a scripted coordinator, case by case.
//!
//! The TTL is a second. Nothing is slept for that can be awaited; what sleeps is an owner that is meant to be slow,
//! or a test that shows that something does *not* happen for several TTLs.

mod drills;
mod fake;
mod locks;
mod losses;
mod process;
mod splits;
mod story;

use super::{Builder, Worker};
use crate::ownership::Ownership;
use fake::Fake;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker of the fake's, without an owner function.
fn worker(fake: &Fake) -> Builder {
    Worker::builder("w1").coordinator(fake.url.as_str()).address("10.0.0.2:1")
}

/// Ownerships as their owner function got them.
struct Given(mpsc::UnboundedReceiver<Ownership>);

impl Given {
    async fn next(&mut self) -> Ownership {
        timeout(PATIENCE, self.0.recv())
            .await
            .expect("an owner function is called")
            .expect("the worker lives")
    }

    /// Nothing was given, and nothing is for a while.
    async fn nothing_for(&mut self, a_while: Duration) {
        if let Ok(given) = timeout(a_while, self.0.recv()).await {
            panic!("{given:?}");
        }
    }
}

/// A well-behaved owner: hands its ownership out, and returns when it is revoked.
fn polite() -> (
    impl Fn(Ownership) -> futures_util::future::BoxFuture<'static, Result<(), Infallible>> + Send + Sync,
    Given,
) {
    let (give, given) = mpsc::unbounded_channel();
    let owner =
        move |ownership: Ownership| -> futures_util::future::BoxFuture<'static, Result<(), Infallible>> {
            let give = give.clone();
            Box::pin(async move {
                let _ = give.send(ownership.clone());
                ownership.revoked().await;
                Ok(())
            })
        };
    (owner, Given(given))
}

/// An owner that hands its ownership out and never returns by itself.
fn stubborn() -> (
    impl Fn(Ownership) -> futures_util::future::BoxFuture<'static, Result<(), Infallible>> + Send + Sync,
    Given,
) {
    let (give, given) = mpsc::unbounded_channel();
    let owner =
        move |ownership: Ownership| -> futures_util::future::BoxFuture<'static, Result<(), Infallible>> {
            let give = give.clone();
            Box::pin(async move {
                let _ = give.send(ownership);
                std::future::pending().await
            })
        };
    (owner, Given(given))
}
