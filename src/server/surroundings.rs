//! What a node takes from the machine it runs on. A simulator brings its own of each.

use crate::clock::{Clock, TokioClock};
use crate::files::{Files, SystemFiles};
use crate::raft::{Dialer, TcpDialer};
use futures_util::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::server::Connected;

/// Disk, network, clock and dice of a node.
#[derive(Clone)]
pub struct Surroundings {
    /// Where its data directory is.
    pub files: Arc<dyn Files>,
    /// How it reaches other nodes.
    pub dialer: Arc<dyn Dialer>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Seed of its election timeouts; `None` takes one from the operating system.
    pub seed: Option<u64>,
}

/// The machine's own.
impl Default for Surroundings {
    fn default() -> Surroundings {
        Surroundings {
            files: Arc::new(SystemFiles),
            dialer: Arc::new(TcpDialer::default()),
            clock: Arc::new(TokioClock::new()),
            seed: None,
        }
    }
}

/// Connections that come in over something else than the system's TCP.
pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<Connection>> + Send>>;

/// One of them.
pub struct Connection(Box<dyn Duplex>);

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Connection {
    /// A connection over this.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Connection {
        Connection(Box::new(stream))
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
