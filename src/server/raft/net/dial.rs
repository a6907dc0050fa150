//! How a node reaches another.

use ringfence_core::ids::NodeId;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Makes connections to peers. A simulator brings its own.
pub trait Dialer: Send + Sync + 'static {
    /// A channel to the node at this address. It connects when it is used, and again whenever the connection is lost,
    /// so nothing is awaited here. The name must be resolved anew at every connect: a node may come back elsewhere.
    ///
    /// # Errors
    /// [`DialError`] when the address cannot be one.
    fn dial(&self, node: NodeId, address: &str) -> Result<Channel, DialError>;

    /// The same for a connection that carries snapshots. A ping waits there behind megabytes on a slow link, and a
    /// connection that is given up for that sends the snapshot from its beginning.
    ///
    /// # Errors
    /// [`DialError`] when the address cannot be one.
    fn dial_for_snapshots(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        self.dial(node, address)
    }
}

impl<D: Dialer + ?Sized> Dialer for Arc<D> {
    fn dial(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        (**self).dial(node, address)
    }

    fn dial_for_snapshots(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        (**self).dial_for_snapshots(node, address)
    }
}

/// An address that cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is not an address of a node ({why}): give host:port")]
pub struct DialError {
    address: String,
    why: String,
}

impl DialError {
    /// This address, and what is wrong with it.
    pub fn new(address: &str, why: impl std::fmt::Display) -> DialError {
        DialError { address: address.chars().take(100).collect(), why: why.to_string() }
    }
}

/// How long a ping may stay unanswered on a connection for snapshots: what may be in flight, 4 MiB, takes that long at
/// 200 kB/s.
const SNAPSHOT_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections over TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpDialer {
    /// How long a connect may take.
    pub connect_timeout: Duration,
    /// A ping this often, also when idle: a connection that a cut link swallowed must be found dead before TCP's own
    /// timers, which take minutes.
    pub keepalive: Duration,
    /// How long a ping may stay unanswered before the connection is given up.
    pub keepalive_timeout: Duration,
}

impl Default for TcpDialer {
    fn default() -> TcpDialer {
        TcpDialer {
            connect_timeout: Duration::from_millis(500),
            keepalive: Duration::from_millis(500),
            keepalive_timeout: Duration::from_secs(1),
        }
    }
}

impl TcpDialer {
    /// The endpoint behind [`Dialer::dial`], for a dialer that only replaces the connector.
    ///
    /// # Errors
    /// [`DialError`] when the address cannot be one.
    pub fn endpoint(&self, address: &str) -> Result<Endpoint, DialError> {
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(|e| DialError::new(address, e))?;
        match endpoint.uri().authority() {
            Some(a) if a.port().is_some() && !a.host().is_empty() && a.as_str() == address => {}
            _ => return Err(DialError::new(address, "host or port is missing")),
        }
        Ok(endpoint
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(self.keepalive_timeout)
            .keep_alive_while_idle(true)
            // One message must fit without waiting for the window.
            .initial_stream_window_size(Some(4 << 20))
            .initial_connection_window_size(Some(8 << 20)))
    }
}

impl Dialer for TcpDialer {
    fn dial(&self, _node: NodeId, address: &str) -> Result<Channel, DialError> {
        Ok(self.endpoint(address)?.connect_lazy())
    }

    fn dial_for_snapshots(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        TcpDialer { keepalive_timeout: SNAPSHOT_KEEPALIVE_TIMEOUT, ..*self }.dial(node, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is resolved when it is dialled is resolved once; a name that is passed on is resolved at each connect.
    #[test]
    fn f068_a_name_stays_a_name_until_it_is_connected_to() {
        for address in ["node-1.example:7600", "localhost:7600"] {
            let endpoint = TcpDialer::default().endpoint(address).unwrap();
            assert_eq!(
                endpoint.uri().authority().map(tonic::codegen::http::uri::Authority::as_str),
                Some(address)
            );
        }
    }
}
