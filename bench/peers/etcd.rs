//! etcd: its own lock service, over gRPC, with a lease of its own for each client.
//!
//! Its few messages are written out here, because a client generated from its contract needs protoc.

use crate::peer::{Client, Peer};
use crate::stage::{Cluster, free_ports, program};
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use http::uri::PathAndQuery;
use std::process::Command;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LeaseKeepAlive {
    #[prost(int64, tag = "1")]
    id: i64,
}

/// Three nodes.
pub struct Etcd {
    cluster: Option<Cluster>,
    addresses: Vec<String>,
}

impl Etcd {
    pub async fn start() -> Result<Etcd> {
        let etcd = program("etcd", "etcd-server")?;
        let ports = free_ports(6)?;
        let dir = tempfile::tempdir()?;
        let names: Vec<String> = (0..3).map(|n| format!("n{n}={}", url(ports[n + 3]))).collect();
        let addresses: Vec<String> = ports[..3].iter().map(|port| url(*port)).collect();
        let path = dir.path().to_owned();
        let mut cluster = Cluster::new(dir);
        for (n, address) in addresses.iter().enumerate() {
            let peer = url(ports[n + 3]);
            let mut command = Command::new(&etcd);
            command
                .args(["--name", &format!("n{n}"), "--data-dir"])
                .arg(path.join(format!("n{n}")))
                .args(["--listen-client-urls", address, "--advertise-client-urls", address])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &names.join(","), "--logger", "zap"]);
            cluster.start(&mut command, &path.join(format!("n{n}.log")))?;
        }
        let etcd = Etcd { cluster: Some(cluster), addresses };
        crate::measure::until_it_serves(&etcd).await?;
        Ok(etcd)
    }

    /// One that runs already.
    pub fn at(addresses: &str) -> Etcd {
        Etcd { cluster: None, addresses: addresses.split(',').map(str::to_owned).collect() }
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

#[async_trait]
impl Peer for Etcd {
    fn name(&self) -> String {
        "etcd".to_owned()
    }

    async fn client(&self, number: usize, ttl: Duration) -> Result<Box<dyn Client>> {
        let address = self.addresses[number % self.addresses.len()].clone();
        let channel = Endpoint::from_shared(address)?.connect().await?;
        let grant = LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs())?, id: 0 };
        let lease: LeaseGrantResponse = call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await?;
        let id = lease.id;
        let every = ttl / 3;
        let keep = channel.clone();
        let renewing = tokio::spawn(async move {
            let ticks = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(every));
            let renewals = tokio_stream::StreamExt::map(ticks, move |_| LeaseKeepAlive { id });
            let mut grpc = Grpc::new(keep);
            let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
            if grpc.ready().await.is_err() {
                return;
            }
            let codec = ProstCodec::<LeaseKeepAlive, Nothing>::default();
            if let Ok(answers) = grpc.streaming(tonic::Request::new(renewals), path, codec).await {
                let mut answers = answers.into_inner();
                while let Ok(Some(_)) = answers.message().await {}
            }
        });
        Ok(Box::new(EtcdClient { channel, lease: id, key: None, renewing }))
    }

    fn address(&self) -> String {
        debug_assert!(self.cluster.is_some());
        format!("etcd={}", self.addresses.join(","))
    }
}

struct EtcdClient {
    channel: Channel,
    lease: i64,
    key: Option<Vec<u8>>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Drop for EtcdClient {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

#[async_trait]
impl Client for EtcdClient {
    async fn acquire(&mut self, lock: &str) -> Result<()> {
        let request = LockRequest { name: lock.as_bytes().to_vec(), lease: self.lease };
        let answer: LockResponse = call(&self.channel, "/v3lockpb.Lock/Lock", request).await?;
        self.key = Some(answer.key);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let key = self.key.take().context("it holds nothing")?;
        let _: Nothing = call(&self.channel, "/v3lockpb.Lock/Unlock", UnlockRequest { key }).await?;
        Ok(())
    }
}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await?;
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(tonic::Request::new(request), path, ProstCodec::<Q, A>::default()).await?;
    Ok(answer.into_inner())
}
