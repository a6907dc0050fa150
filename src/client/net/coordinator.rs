//! The handle through which everything else in the SDK asks the coordinator.

use super::attempts::{Attempts, Failed, Next};
use super::pool::Pool;
use super::{Call, Dial, Effect, Endpoints, Route, Target, TcpDial, Trouble};
use crate::error::Error;
use ringfence_api::MAX_MESSAGE_BYTES;
use ringfence_api::convert::NodeAddress;
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::fence_service_client::FenceServiceClient;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use ringfence_api::v1::map_service_client::MapServiceClient;
use ringfence_api::v1::placement_service_client::PlacementServiceClient;
use ringfence_api::v1::worker_service_client::WorkerServiceClient;
use ringfence_api::v1::{ClusterStatusRequest, ClusterStatusResponse, Node};
use ringfence_core::ids::NodeId;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Response, Status};

/// A coordinator's nodes, seen from one client: finds the leader, keeps one connection a node, asks until a deadline.
///
/// Cheap to clone; clones share connections and what was learnt. Making one connects to nothing.
#[derive(Clone)]
pub struct Coordinator(Arc<Mutex<Pool>>);

impl Coordinator {
    /// The coordinator at these endpoints, over TCP.
    pub fn new(endpoints: Endpoints) -> Coordinator {
        Coordinator::with_dial(&endpoints, Arc::new(TcpDial::default()))
    }

    /// The coordinator at these endpoints, over connections of your own making.
    pub fn with_dial(endpoints: &Endpoints, dial: Arc<dyn Dial>) -> Coordinator {
        Coordinator(Arc::new(Mutex::new(Pool::new(endpoints, dial))))
    }

    /// The same coordinator over connections of its own: a connection belongs to the runtime that made it, and what
    /// must not wait behind others' calls gets one for itself.
    pub fn with_own_connections(&self) -> Coordinator {
        let pool = self.pool().without_connections();
        Coordinator(Arc::new(Mutex::new(pool)))
    }

    /// How many endpoints were given.
    pub(crate) fn endpoints(&self) -> usize {
        self.pool().given()
    }

    /// Makes a call: `send` is given a channel for each try and sends the same request over it.
    ///
    /// # Errors
    /// What a coordinator answered when that is final, or that the call was given up at its deadline.
    pub(crate) async fn call<T, F, Fut>(&self, call: Call, send: F) -> Result<T, Error>
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_at(call, send).await.map(|(_, answer)| answer)
    }

    /// Like [`Coordinator::call`], and says who answered: for a stream, whose end is reported with
    /// [`Coordinator::stream_ended`].
    pub(crate) async fn call_at<T, F, Fut>(&self, call: Call, mut send: F) -> Result<(Target, T), Error>
    where
        F: FnMut(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut attempts = Attempts::new(call, Instant::now());
        loop {
            // Bound to a name so that the lock is not held in the match.
            let picked = self.pool().pick(call.route, attempts.asked());
            let Some(target) = picked else {
                match attempts.round_over(Instant::now()) {
                    Ok(wait) => sleep(wait).await,
                    Err(failed) => return Err(failed.into()),
                }
                continue;
            };
            let patience = attempts.patience(Instant::now());
            let trouble = if patience.is_zero() {
                // A try without time would be silent, and silence may mean that the call has arrived.
                Trouble::NotSent("no time was left to ask it".to_owned())
            } else {
                match timeout(patience, send(target.channel.clone())).await {
                    Ok(Ok(answer)) => {
                        self.pool().worked(&target, call.route);
                        return Ok((target, answer.into_inner()));
                    }
                    Ok(Err(status)) => self.trouble(&target, &status),
                    Err(_) => Trouble::Silent(format!("no answer within {patience:?}")),
                }
            };
            tracing::debug!(endpoint = %target.endpoint, reason = trouble.reason(), "a call did not succeed");
            self.heed(&target, &trouble);
            if let Next::Stop(failed) = attempts.failed(&target.endpoint, trouble, Instant::now()) {
                return Err(failed.into());
            }
        }
    }

    /// A stream from this node ended: with this status, or `None` when it just stopped. What it means.
    pub(crate) fn stream_ended(&self, target: &Target, status: Option<&Status>) -> Trouble {
        let trouble = match status {
            Some(status) => self.trouble(target, status),
            None => Trouble::Silent("the stream ended".to_owned()),
        };
        self.heed(target, &trouble);
        trouble
    }

    /// A stream from this node is silent for longer than it may be. Its connection is not used again.
    pub(crate) fn stream_silent(&self, target: &Target) {
        self.heed(target, &Trouble::Silent("the stream is silent".to_owned()));
    }

    /// Asks the cluster for its nodes, and learns them. When nobody answers soon, nothing is lost: the endpoints given
    /// are still there.
    pub(crate) async fn survey(&self) {
        let call = Call::new(Route::Any, Effect::Read)
            .within(Duration::from_secs(3))
            .patience(Duration::from_secs(1));
        let ask = |channel| async move { admin(channel).cluster_status(ClusterStatusRequest {}).await };
        if let Ok(status) = self.call(call, ask).await {
            self.learn_from(&status);
        }
    }

    /// All the cluster's nodes, from an answer that names them.
    pub(crate) fn learn_from(&self, status: &ClusterStatusResponse) {
        let named = |node: &Node| {
            let node = NodeAddress { node: NodeId::new(node.node).ok()?, address: node.address.clone() };
            Some(node)
        };
        let nodes: Vec<NodeAddress> = status.nodes.iter().filter_map(named).collect();
        // While the cluster forms it names none.
        if !nodes.is_empty() {
            self.pool().learn_all(&nodes);
        }
    }

    fn trouble(&self, target: &Target, status: &Status) -> Trouble {
        if Trouble::is_about_pings(status) {
            self.pool().calm_down(target);
        }
        Trouble::of(status)
    }

    fn heed(&self, target: &Target, trouble: &Trouble) {
        let mut pool = self.pool();
        match trouble {
            // The channel connects anew by itself, and resolves the name anew.
            Trouble::NotSent(_) | Trouble::Foreign(_) => pool.disappointed(target),
            Trouble::Silent(_) => {
                pool.disappointed(target);
                pool.condemn(target);
            }
            Trouble::Answer(failure) if failure.is_retryable() => {
                pool.answered(target);
                pool.disappointed(target);
                if let Some(leader) = failure.leader() {
                    pool.hint(leader);
                }
            }
            // It said no: it works.
            Trouble::Answer(_) => pool.answered(target),
        }
    }

    /// The pool is plain data, and whole after every statement: a panic elsewhere does not spoil it.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").finish_non_exhaustive()
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Answer(failure) => failure.into(),
            Failed::GaveUp(gave_up) => gave_up.into(),
        }
    }
}

/// The admin service on this channel, with the contract's message limit in both directions.
pub(crate) fn admin(channel: Channel) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// The placement service on this channel, with the contract's message limit in both directions.
pub(crate) fn placement(channel: Channel) -> PlacementServiceClient<Channel> {
    PlacementServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// The service about fences on this channel, with the contract's message limit in both directions.
pub(crate) fn fences(channel: Channel) -> FenceServiceClient<Channel> {
    FenceServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// The map service on this channel, with the contract's message limit in both directions.
pub(crate) fn map(channel: Channel) -> MapServiceClient<Channel> {
    MapServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// The worker service on this channel, with the contract's message limit in both directions.
pub(crate) fn worker(channel: Channel) -> WorkerServiceClient<Channel> {
    WorkerServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// The lock service on this channel, with the contract's message limit in both directions.
pub(crate) fn locks(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}
