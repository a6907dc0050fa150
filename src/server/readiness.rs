//! Whether this node is worth sending calls to, for gRPC health: it belongs to a formed cluster and knows of a leader.
//!
//! A follower is ready: it answers watches, and names the leader to whoever asks for more.

use crate::context::Context;
use crate::port::Services;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// True while calls may come.
pub(crate) fn is_ready(context: &Context) -> bool {
    let status = context.raft.status();
    let status = status.borrow();
    let led = status.leader.is_some() && status.stopped.is_none();
    led && context.replica.lock().state.cluster().is_some()
}

/// Returns when the node is ready; never when it does not come to be.
pub(crate) async fn ready(mut running: watch::Receiver<Option<Context>>) {
    let context = running.wait_for(Option::is_some).await.ok().and_then(|context| context.clone());
    let Some(context) = context else { return std::future::pending().await };
    let (mut status, mut applied) = (context.raft.status(), context.replica.applied());
    while !is_ready(&context) {
        let gone = tokio::select! {
            changed = status.changed() => changed.is_err(),
            changed = applied.changed() => changed.is_err(),
        };
        if gone {
            return std::future::pending().await;
        }
    }
}

/// Tells gRPC health, until `closing` is cancelled; then that the node serves no more.
pub(crate) async fn report(
    health: HealthReporter,
    running: watch::Receiver<Option<Context>>,
    closing: CancellationToken,
) {
    tell(&health, false).await;
    tokio::select! {
        () = follow(&health, running) => {}
        () = closing.cancelled() => {}
    }
    tell(&health, false).await;
}

async fn follow(health: &HealthReporter, running: watch::Receiver<Option<Context>>) {
    ready(running.clone()).await;
    let Some(context) = running.borrow().clone() else { return };
    let mut status = context.raft.status();
    let mut told = false;
    loop {
        let now = is_ready(&context);
        if now != told {
            tell(health, now).await;
            told = now;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

async fn tell(health: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in Services::NAMES {
        health.set_service_status(name, status).await;
    }
}
