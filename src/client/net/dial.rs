//! How a channel to a coordinator is made. The one place where a simulator puts its own network.

use super::Endpoint;
use std::time::Duration;
use tonic::transport::{self, Channel};

/// Makes connections to coordinators.
///
/// Implement it to run a client over something else than TCP; [`TcpDial::settings`] with
/// `connect_with_connector_lazy` is all it takes.
pub trait Dial: Send + Sync + 'static {
    /// A channel to this endpoint. It connects when it is used, and again whenever the connection was lost, so nothing
    /// is awaited here. The name must be resolved at each connect: a node may come back elsewhere.
    ///
    /// Called within a tokio runtime.
    fn dial(&self, endpoint: &Endpoint) -> Channel;

    /// The same with pings `times` as far apart as usual: something on the way, a proxy as a rule, ended the last
    /// connection because there were too many. A dialer that does not ping need not care, and dials as ever.
    fn dial_calmly(&self, endpoint: &Endpoint, times: u32) -> Channel {
        let _ = times;
        self.dial(endpoint)
    }
}

/// Connections over TCP: the default.
#[derive(Clone, Debug)]
pub struct TcpDial {
    /// How long a connect may take, name resolution included. 1 s: a node that does not accept by then is tried again
    /// later, and another one first.
    pub connect_timeout: Duration,
    /// A ping this often, also when idle. 5 s: a peer that vanished without a word is noticed within
    /// `keepalive + keepalive_timeout`; TCP by itself takes a quarter of an hour.
    ///
    /// Where something on the way says that this is too often, it is twice as long from then on, and so forth up to 64
    /// times: towards that endpoint, for as long as the client lives.
    pub keepalive: Duration,
    /// How long a ping may stay unanswered before the connection counts as dead. 3 s.
    pub keepalive_timeout: Duration,
}

impl Default for TcpDial {
    fn default() -> TcpDial {
        TcpDial {
            connect_timeout: Duration::from_secs(1),
            keepalive: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(3),
        }
    }
}

impl TcpDial {
    /// The settings of a connection to this endpoint, for a dialer that brings its own connector.
    pub fn settings(&self, endpoint: &Endpoint) -> transport::Endpoint {
        let bare = transport::Endpoint::from(endpoint.uri().clone());
        // A user agent fails when it is no header value; then the connection goes without one.
        let named = bare.clone().user_agent(concat!("ringfence/", env!("CARGO_PKG_VERSION"))).unwrap_or(bare);
        named
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(self.keepalive_timeout)
            .keep_alive_while_idle(true)
            // A full picture of the map is many pieces; the window of HTTP/2's first days would make each wait a round
            // trip. It bounds what a connection holds for a reader that is slow.
            .initial_stream_window_size(Some(1 << 20))
            .initial_connection_window_size(Some(2 << 20))
    }
}

impl Dial for TcpDial {
    fn dial(&self, endpoint: &Endpoint) -> Channel {
        self.settings(endpoint).connect_lazy()
    }

    fn dial_calmly(&self, endpoint: &Endpoint, times: u32) -> Channel {
        TcpDial { keepalive: self.keepalive.saturating_mul(times), ..self.clone() }.dial(endpoint)
    }
}
