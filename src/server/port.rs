//! The one port of a node: who listens, what is served on it, and within which limits.

use crate::admin::Admin;
use crate::formation::{Formation, FormationService};
use crate::json::Json;
use crate::late::Late;
use crate::locks::Locks;
use crate::map::Map;
use crate::node::NodeError;
use crate::raft::{RaftService, Timings};
use crate::surroundings::Incoming;
use crate::workers::Workers;
use futures_util::{Stream, StreamExt as _};
use ringfence_api::MAX_MESSAGE_BYTES;
use ringfence_api::v1::admin_service_server::{AdminServiceServer, SERVICE_NAME as ADMIN};
use ringfence_api::v1::fence_service_server::{FenceServiceServer, SERVICE_NAME as FENCE};
use ringfence_api::v1::lock_service_server::{LockServiceServer, SERVICE_NAME as LOCK};
use ringfence_api::v1::map_service_server::{MapServiceServer, SERVICE_NAME as MAP};
use ringfence_api::v1::placement_service_server::{PlacementServiceServer, SERVICE_NAME as PLACEMENT};
use ringfence_api::v1::raft_server::RaftServer;
use ringfence_api::v1::worker_service_server::{SERVICE_NAME as WORKER, WorkerServiceServer};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::pb::health_server::{Health, HealthServer};

/// Calls and streams that one connection may have open. A worker needs two streams, a router one; a proxy gathers many.
const STREAMS_PER_CONNECTION: u32 = 4_096;
/// The headers of one call: a cluster secret at its longest, and room for what proxies add.
const HEADER_BYTES: u32 = 32 << 10;
/// A ping this often to whoever is connected: a peer that a cut link swallowed must not hold a stream for ever.
///
/// What clients ping is not counted, so that any interval is allowed: those of this project's own clients start at 500 ms.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered before the connection is given up.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// What may be in flight towards this node: one message at its largest, without waiting for the window.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Before a connection is accepted again that the system had no room for. The transport asks again at once, and would keep a
/// core busy with refusals for as long as file descriptors are short.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The services of a node. Those that need the cluster come when it is there.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) raft: Late<RaftServer<RaftService>>,
    pub(crate) workers: Late<WorkerServiceServer<Workers>>,
    pub(crate) map: Late<MapServiceServer<Map>>,
    pub(crate) locks: Late<LockServiceServer<Locks>>,
    pub(crate) admin: Admin,
}

impl Services {
    pub(crate) fn new(formation: &Formation, timings: &Timings) -> Services {
        let progress = formation.progress();
        Services {
            raft: Late::new(progress.clone()),
            workers: Late::new(progress.clone()),
            map: Late::new(progress.clone()),
            locks: Late::new(progress.clone()),
            admin: Admin::new(formation.clone(), timings),
        }
    }

    /// The names of the services that health speaks for. The empty name is the node as a whole.
    pub(crate) const NAMES: [&'static str; 5] = ["", WORKER, MAP, LOCK, ADMIN];

    /// The limits of a service for workers.
    pub(crate) fn limit_workers(workers: Workers) -> WorkerServiceServer<Workers> {
        WorkerServiceServer::new(workers)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The limits of a service for callers.
    pub(crate) fn limit_map(map: Map) -> MapServiceServer<Map> {
        MapServiceServer::new(map)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The limits of the service for locks.
    pub(crate) fn limit_locks(locks: Locks) -> LockServiceServer<Locks> {
        LockServiceServer::new(locks)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// Where connections come from.
pub(crate) enum Source {
    /// A port of the system.
    Tcp(TcpListener),
    /// Somewhere else.
    Given(Incoming),
}

/// Listens. A listener that exists already is taken over.
///
/// # Errors
/// [`NodeError::Listen`], with the address.
pub(crate) async fn listen(
    address: SocketAddr,
    bound: Option<std::net::TcpListener>,
) -> Result<(TcpListener, SocketAddr), NodeError> {
    let wrong = |source: std::io::Error| NodeError::Listen { address, source: Arc::new(source) };
    let listener = match bound {
        Some(listener) => {
            listener.set_nonblocking(true).map_err(wrong)?;
            TcpListener::from_std(listener)
        }
        None => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(wrong)?;
    let actual = listener.local_addr().map_err(wrong)?;
    Ok((listener, actual))
}

/// Connections as they come, with a pause after each that the system had no file descriptor or memory for.
fn unhurried<T>(incoming: impl Stream<Item = io::Result<T>>) -> impl Stream<Item = io::Result<T>> {
    let mut short = false;
    incoming
        .map(move |accepted| {
            let errno = accepted.as_ref().err().and_then(io::Error::raw_os_error).map(Errno::from_raw_os_error);
            let none = matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM));
            if let Err(error) = accepted.as_ref()
                && none
                && !short
            {
                tracing::warn!(%error, "no connections are accepted for now: raise the limit of open files (ulimit -n)");
            }
            short = none;
            (accepted, none)
        })
        .then(async |(accepted, none)| {
            if none {
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            accepted
        })
}

/// Serves until `stop` is cancelled and the calls under way have ended.
///
/// # Errors
/// When the transport gives up.
pub(crate) async fn serve<H: Health>(
    source: Source,
    services: Services,
    formation: Formation,
    health: HealthServer<H>,
    stop: CancellationToken,
) -> Result<(), NodeError> {
    let admin = AdminServiceServer::new(services.admin.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let placement = PlacementServiceServer::new(services.admin.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let fences = FenceServiceServer::new(services.admin.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let reflection = || {
        // What is for peers only is not shown.
        [WORKER, MAP, LOCK, ADMIN, PLACEMENT, FENCE].into_iter().fold(
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(ringfence_api::FILE_DESCRIPTOR_SET),
            tonic_reflection::server::Builder::with_service_name,
        )
    };
    let failed = |what: String| NodeError::Failed(what);
    let v1 = reflection().build_v1().map_err(|e| failed(format!("reflection: {e}")))?;
    let v1alpha = reflection().build_v1alpha().map_err(|e| failed(format!("reflection: {e}")))?;
    let routes = Routes::new(FormationService::new(formation).server())
        .add_service(services.raft.clone())
        .add_service(services.workers.clone())
        .add_service(services.map.clone())
        .add_service(services.locks.clone())
        .add_service(admin)
        .add_service(placement)
        .add_service(fences)
        .add_service(health.max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(v1)
        .add_service(v1alpha);
    // Calls are handled by tasks of the connection, which know nothing of the node.
    let span = tracing::Span::current();
    let server = Server::builder()
        .trace_fn(move |_| span.clone())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // For calls with JSON; gRPC is HTTP/2.
        .accept_http1(true)
        .layer(Json::new().map_err(|e| failed(format!("the contract: {e}")))?)
        .add_routes(routes);
    let served = match source {
        Source::Tcp(listener) => {
            let incoming = unhurried(
                TcpIncoming::from(listener)
                    .with_nodelay(Some(true))
                    // HTTP/1 has no pings: an answer that streams to a peer that is gone would have no end.
                    .with_keepalive(Some(KEEPALIVE * 6))
                    .with_keepalive_interval(Some(KEEPALIVE))
                    .with_keepalive_retries(Some(3)),
            );
            server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await
        }
        Source::Given(incoming) => {
            server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await
        }
    };
    served.map_err(|e| failed(format!("the transport: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_listener_without_file_descriptors_asks_again_after_a_pause_and_not_at_once() {
        let refused = |errno: Errno| Err::<u8, _>(io::Error::from(errno));
        let began = Instant::now();
        let quick = unhurried(stream::iter([Ok(1), refused(Errno::CONNABORTED), Ok(2)]));
        let quick: Vec<bool> = quick.map(|one| one.is_ok()).collect().await;
        assert_eq!((quick, began.elapsed()), (vec![true, false, true], Duration::ZERO));
        let slow = unhurried(stream::iter([refused(Errno::MFILE), refused(Errno::NFILE), Ok(3)]));
        let slow: Vec<bool> = slow.map(|one| one.is_ok()).collect().await;
        assert_eq!((slow, began.elapsed()), (vec![false, false, true], ACCEPT_AGAIN * 2));
    }
}
