//! The network: a proxy in front of each node, through which workers and the other nodes come. It finds out who connects
//! by whose socket is at the other end, so each pair has a weather of its own although all use one address.
//!
//! A direction that stalls keeps its bytes, as TCP does when packets are lost, and delivers them when it flows again.
//! Nobody is told: no FIN, no RST. A name that is not known, the run itself among them, has fair weather.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What a lost packet costs: it is sent again.
const RESENT_AFTER: Duration = Duration::from_millis(200);
/// Pieces under way in one direction, of 16 kB at the most. A sender that outruns it waits, as for a full window.
const UNDER_WAY: usize = 64;

/// What happens to bytes between one process and one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Weather {
    /// Nothing arrives at the node.
    pub(super) requests_stall: bool,
    /// Nothing comes back.
    pub(super) replies_stall: bool,
    /// Everything takes so much longer, each way.
    pub(super) takes: Duration,
    /// So many pieces of a hundred are lost and sent again.
    pub(super) lost_percent: u8,
    /// New connections are broken at once.
    pub(super) refuses: bool,
    /// Connections of an earlier number are broken, with RST.
    pub(super) resets: u64,
}

/// From whom, to which node.
type Link = (String, u64);
type Sky = BTreeMap<Link, Weather>;

/// All proxies.
#[derive(Clone)]
pub(super) struct Network {
    sky: watch::Sender<Sky>,
    /// Who is who, by process id.
    people: Arc<Mutex<BTreeMap<u32, String>>>,
}

impl Network {
    pub(super) fn new() -> Network {
        Network { sky: watch::Sender::new(Sky::new()), people: Arc::default() }
    }

    /// Says which process a name is. A later one of the same name is another process of the same place.
    pub(super) fn introduce(&self, pid: u32, name: &str) {
        self.people.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, name.to_owned());
    }

    /// Changes the weather on one link.
    pub(super) fn change(&self, from: &str, to: u64, change: impl FnOnce(&mut Weather)) {
        self.sky.send_modify(|sky| change(sky.entry((from.to_owned(), to)).or_default()));
    }

    /// Everything flows again; what was stalled arrives.
    pub(super) fn heal(&self, from: &str, to: u64) {
        self.change(from, to, |weather| *weather = Weather { resets: weather.resets, ..Weather::default() });
    }

    /// Puts a proxy in front of a node, and returns where it listens.
    pub(super) async fn in_front_of(&self, node: u64, at: String) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let network = self.clone();
        tokio::spawn(async move {
            loop {
                // Out of file descriptors, or the caller has gone already: the next one may be luckier.
                let Ok((caller, from)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let (network, at) = (network.clone(), at.clone());
                tokio::spawn(async move { network.carry(caller, from, node, &at).await });
            }
        });
        Ok(address)
    }

    async fn carry(self, mut caller: TcpStream, from: SocketAddr, node: u64, at: &str) {
        let people = self.people.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let who = tokio::task::spawn_blocking(move || owner_of(from, &people)).await.ok().flatten();
        let link: Link = (who.unwrap_or_else(|| "somebody".to_owned()), node);
        let weather = |sky: &Sky| sky.get(&link).copied().unwrap_or_default();
        let mut sky = self.sky.subscribe();
        let at_start = weather(&sky.borrow_and_update());
        if at_start.refuses {
            return reset(&caller);
        }
        let Ok(mut node) = TcpStream::connect(at).await else { return reset(&caller) };
        let _ = (caller.set_nodelay(true), node.set_nodelay(true));
        let (from_caller, to_caller) = caller.split();
        let (from_node, to_node) = node.split();
        let both = async {
            tokio::join!(
                pump(from_caller, to_node, self.sky.subscribe(), &link, |weather| weather.requests_stall),
                pump(from_node, to_caller, self.sky.subscribe(), &link, |weather| weather.replies_stall),
            )
        };
        let broken = tokio::select! {
            _ = both => false,
            changed = sky.wait_for(|sky| weather(sky).resets != at_start.resets) => changed.is_ok(),
        };
        if broken {
            reset(&caller);
            reset(&node);
        }
    }
}

/// Carries bytes one way, in order, until their end, which is carried as well.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut sky: watch::Receiver<Sky>,
    link: &Link,
    stalls: fn(&Weather) -> bool,
) {
    let weather = |sky: &Sky| sky.get(link).copied().unwrap_or_default();
    let (arrived, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let looking = sky.clone();
    let reading = async {
        let mut bytes = vec![0; 16 << 10];
        loop {
            let count = from.read(&mut bytes).await.unwrap_or(0);
            let now = weather(&looking.borrow());
            let lost = fastrand::u8(..100) < now.lost_percent;
            let takes = now.takes + if lost { RESENT_AFTER } else { Duration::ZERO };
            if arrived.send((Instant::now() + takes, bytes[..count].to_vec())).await.is_err() || count == 0 {
                return;
            }
        }
    };
    let writing = async {
        while let Some((at, bytes)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            let flows = sky.wait_for(|sky| !stalls(&weather(sky))).await.is_ok();
            if bytes.is_empty() || !flows || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = async { reading.await; std::future::pending().await } => {}
    }
    let _ = to.shutdown().await;
}

/// Breaks a connection with RST.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Whose socket is bound to this address of loopback: the kernel lists sockets by inode, and each process its own.
fn owner_of(address: SocketAddr, people: &BTreeMap<u32, String>) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let columns = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = columns.into_iter().find(|row| row.get(1) == Some(&local.as_str()))?;
    let socket = format!("socket:[{}]", row.get(9)?);
    let owns = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|to| to.as_os_str() == socket.as_str())
    };
    people.iter().find(|(pid, _)| owns(pid)).map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that answers each byte with the next one, and a caller of this process, which is named.
    async fn echo() -> (Network, SocketAddr) {
        let node = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = node.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = node.accept().await {
                tokio::spawn(async move {
                    while let Ok(byte) = caller.read_u8().await {
                        if caller.write_u8(byte + 1).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let network = Network::new();
        network.introduce(std::process::id(), "me");
        let proxy = network.in_front_of(7, at).await.unwrap();
        (network, proxy)
    }

    async fn asks(caller: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
        caller.write_u8(byte).await?;
        caller.read_u8().await
    }

    #[tokio::test]
    async fn a_stalled_direction_delivers_when_it_flows_again_and_only_to_whom_it_stalled() {
        for stall in [|w: &mut Weather| w.requests_stall = true, |w: &mut Weather| w.replies_stall = true] {
            let (network, proxy) = echo().await;
            let mut caller = TcpStream::connect(proxy).await.unwrap();
            assert_eq!(asks(&mut caller, 1).await.unwrap(), 2);
            network.change("somebody", 7, stall);
            network.change("me", 8, stall);
            assert_eq!(asks(&mut caller, 2).await.unwrap(), 3, "others have bad weather");
            network.change("me", 7, stall);
            {
                let answer = asks(&mut caller, 3);
                let mut answer = std::pin::pin!(answer);
                let silent = tokio::time::timeout(Duration::from_millis(100), &mut answer).await;
                assert!(silent.is_err(), "{silent:?}");
                network.heal("me", 7);
                assert_eq!(answer.await.unwrap(), 4);
            }
            assert_eq!(asks(&mut caller, 4).await.unwrap(), 5);
        }
    }

    #[tokio::test]
    async fn a_reset_is_one_and_a_refusal_lasts_until_it_is_healed() {
        let (network, proxy) = echo().await;
        let mut caller = TcpStream::connect(proxy).await.unwrap();
        assert_eq!(asks(&mut caller, 1).await.unwrap(), 2);
        network.change("me", 7, |weather| (weather.resets, weather.refuses) = (1, true));
        let broken = caller.read_u8().await.unwrap_err();
        assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset, "{broken}");
        let mut refused = TcpStream::connect(proxy).await.unwrap();
        assert!(refused.read_u8().await.is_err());
        network.heal("me", 7);
        let mut caller = TcpStream::connect(proxy).await.unwrap();
        assert_eq!(asks(&mut caller, 8).await.unwrap(), 9);
    }
}
