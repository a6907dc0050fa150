//! The product's connections, over the simulated network.

use crate::world::{Host, Net};
use hyper_util::rt::TokioIo;
use ringfence::net::{Coordinator, Dial, Endpoint, Endpoints, TcpDial};
use ringfence_core::ids::NodeId;
use ringfence_server::raft::{DialError, Dialer, TcpDialer};
use std::io;
use std::sync::Arc;
use tonic::transport::{Channel, Uri};

/// Connects from one host, with the settings that are shipped.
#[derive(Clone)]
pub(crate) struct Dials {
    net: Net,
    from: Host,
}

impl Dials {
    /// Connections of a process on `from`.
    pub(crate) fn new(net: &Net, from: Host) -> Dials {
        Dials { net: net.clone(), from }
    }

    /// The coordinator at these nodes.
    ///
    /// # Errors
    /// When there is no node.
    pub(crate) fn coordinator(&self, nodes: &[Host]) -> anyhow::Result<Coordinator> {
        let endpoints = nodes.iter().map(|node| Endpoint::from_address(&node.address()));
        let endpoints = Endpoints::new(endpoints.collect::<Result<Vec<_>, _>>()?)?;
        Ok(Coordinator::with_dial(&endpoints, Arc::new(self.clone())))
    }

    fn connect(&self, endpoint: &tonic::transport::Endpoint) -> Channel {
        let (net, from) = (self.net.clone(), self.from);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
            let to = uri.authority().and_then(|authority| net.host(authority.as_str()));
            let connecting = to.map(|to| net.connect(from, to));
            async move {
                match connecting {
                    Some(connecting) => connecting.await.map(TokioIo::new),
                    None => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
                }
            }
        }))
    }
}

impl Dial for Dials {
    fn dial(&self, endpoint: &Endpoint) -> Channel {
        self.connect(&TcpDial::default().settings(endpoint))
    }
}

impl Dialer for Dials {
    fn dial(&self, _: NodeId, address: &str) -> Result<Channel, DialError> {
        Ok(self.connect(&TcpDialer::default().endpoint(address)?))
    }
}
