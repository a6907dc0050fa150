//! A network between an SDK and the coordinators, one proxy a node.
//!
//! A direction that is stalled keeps its bytes, as TCP does when packets are lost, and delivers them when it is healed.
//! Nobody is told: no FIN, no RST.

use ringfence::net::{Coordinator, Dial, Endpoint, Endpoints, TcpDial};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::transport::Channel;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Nothing arrives at the coordinator.
    pub(crate) requests_stall: bool,
    /// Nothing comes back.
    pub(crate) replies_stall: bool,
    /// What comes back takes so long.
    pub(crate) replies_take: Duration,
    /// New connections are refused.
    pub(crate) refuses: bool,
}

/// The network as one client has it.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    proxies: BTreeMap<String, Proxy>,
}

struct Proxy {
    at: SocketAddr,
    weather: watch::Sender<Weather>,
    /// Tells connections to break.
    resets: watch::Sender<u64>,
    /// When the last bytes from the coordinator that were delivered had arrived here.
    last_reply: Arc<Mutex<Option<std::time::Instant>>>,
    accepting: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Network {
    /// In front of these nodes.
    pub(crate) async fn to(addresses: impl IntoIterator<Item = &str>) -> Network {
        let mut proxies = BTreeMap::new();
        for address in addresses {
            proxies.insert(address.to_owned(), Proxy::start(address).await);
        }
        Network(Arc::new(Inner { proxies }))
    }

    /// The coordinator as seen through this network. What an SDK learns of other nodes leads through it, too.
    pub(crate) fn coordinator(&self) -> Coordinator {
        let endpoints = self.0.proxies.keys().map(|at| Endpoint::from_address(at).unwrap());
        Coordinator::with_dial(&Endpoints::new(endpoints).unwrap(), Arc::new(self.clone()))
    }

    /// Where a node is reached through this network.
    pub(crate) fn endpoint(&self, node: &str) -> String {
        format!("http://{}", self.0.proxies[node].at)
    }

    /// Changes the weather on the way to all nodes.
    pub(crate) fn all(&self, change: impl Fn(&mut Weather)) {
        self.0.proxies.values().for_each(|proxy| proxy.weather.send_modify(&change));
    }

    /// Changes the weather on the way to one node.
    pub(crate) fn one(&self, node: &str, change: impl Fn(&mut Weather)) {
        self.0.proxies[node].weather.send_modify(change);
    }

    /// Silence both ways, without a word, on connections that are there and on new ones.
    pub(crate) fn silence(&self) {
        self.all(|weather| (weather.requests_stall, weather.replies_stall) = (true, true));
    }

    /// Everything flows again; what was stalled arrives.
    pub(crate) fn heal(&self) {
        self.all(|weather| *weather = Weather::default());
    }

    /// Breaks every connection. What was under way is lost.
    pub(crate) fn reset(&self) {
        self.0.proxies.values().for_each(|proxy| proxy.resets.send_modify(|count| *count += 1));
    }

    /// When the last bytes from a coordinator that reached the client had come to the proxy.
    pub(crate) fn last_reply(&self) -> std::time::Instant {
        let last = |proxy: &Proxy| *proxy.last_reply.lock().unwrap();
        self.0.proxies.values().filter_map(last).max().unwrap()
    }
}

impl Dial for Network {
    fn dial(&self, endpoint: &Endpoint) -> Channel {
        let through = self.0.proxies[endpoint.address()].at.to_string();
        TcpDial::default().dial(&Endpoint::from_address(&through).unwrap())
    }
}

impl Proxy {
    async fn start(node: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (weather, resets) = (watch::Sender::new(Weather::default()), watch::Sender::new(0));
        let last_reply = Arc::new(Mutex::new(None));
        let link = Link {
            node: node.to_owned(),
            weather: weather.clone(),
            resets: resets.clone(),
            last_reply: Arc::clone(&last_reply),
        };
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !link.weather.borrow().refuses {
                    tokio::spawn(link.clone().carry(client));
                }
            }
        });
        Proxy { at, weather, resets, last_reply, accepting: accepting.abort_handle() }
    }
}

#[derive(Clone)]
struct Link {
    node: String,
    weather: watch::Sender<Weather>,
    resets: watch::Sender<u64>,
    last_reply: Arc<Mutex<Option<std::time::Instant>>>,
}

impl Link {
    async fn carry(self, client: TcpStream) {
        let mut resets = self.resets.subscribe();
        resets.borrow_and_update();
        // While nothing passes, the node is not even asked: its answer to a connect would be a word.
        let Ok(node) = TcpStream::connect(&self.node).await else { return };
        let _ = (client.set_nodelay(true), node.set_nodelay(true));
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_node, mut to_node) = node.into_split();
        let requests = async {
            let mut bytes = vec![0; 64 << 10];
            let mut weather = self.weather.subscribe();
            loop {
                let count = from_client.read(&mut bytes).await.unwrap_or(0);
                let flows = weather.wait_for(|weather| !weather.requests_stall).await.is_ok();
                if count == 0 || !flows || to_node.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        };
        let (arrived, mut due) = mpsc::unbounded_channel::<(Instant, Duration, Vec<u8>)>();
        let replies_in = async {
            let mut bytes = vec![0; 64 << 10];
            loop {
                let count = from_node.read(&mut bytes).await.unwrap_or(0);
                let takes = self.weather.borrow().replies_take;
                if count == 0 || arrived.send((Instant::now(), takes, bytes[..count].to_vec())).is_err() {
                    break;
                }
            }
            // An end is an event in order, too.
            let _ = arrived.send((Instant::now(), Duration::ZERO, Vec::new()));
            std::future::pending::<()>().await;
        };
        let replies_out = async {
            let mut weather = self.weather.subscribe();
            while let Some((at, takes, bytes)) = due.recv().await {
                tokio::time::sleep_until(at + takes).await;
                let flows = weather.wait_for(|weather| !weather.replies_stall).await.is_ok();
                if bytes.is_empty() || !flows {
                    return;
                }
                *self.last_reply.lock().unwrap() = Some(at.into_std());
                if to_client.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = replies_in => {}
            () = replies_out => {}
            _ = resets.changed() => {}
        }
    }
}
