//! What the layers of a service cost, and the gateway. `cargo bench -p ringfence-fence --bench fence_service`
//!
//! The same calls, in turn: a service of tonic and one of axum, over loopback, one call at a time, with the layer and without it; then
//! a file of 64 KiB that is put through the gateway, and the same bytes written, flushed and renamed by plain code, as a program
//! does that wants the old file or the new one after a power cut.

use axum::extract::Extension;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use ringfence_core::ids::ClusterId;
use ringfence_fence::gateway::{FileGateway, FilePath};
use ringfence_fence::service::{FenceLayer, Presented, Refusal, StampLayer, Stamps};
use ringfence_fence::{FencingToken, MemoryFence, header};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::slice::from_ref;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request as Call, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceBuilder};

const CALLS: usize = 4_000;
const FILES: usize = 300;
const FILE_BYTES: usize = 64 << 10;

type Failed = Box<dyn Error + Send + Sync>;

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * percent / 100].as_secs_f64() * 1e6
}

fn told(what: &str, with: &mut [Duration], without: &mut [Duration]) {
    for percent in [50, 99] {
        let [with, without] = [&mut *with, &mut *without].map(|samples| percentile(samples, percent));
        println!(
            "{what}, p{percent}: {with:6.0} us, {without:6.0} us without ({:+.1} us, {:.2}x)",
            with - without,
            with / without
        );
    }
}

/// A connection of HTTP/1 to axum, kept open.
struct Http(hyper::client::conn::http1::SendRequest<Full<Bytes>>, Option<FencingToken>);

impl Http {
    async fn to(app: axum::Router, token: Option<FencingToken>) -> Result<Http, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Http(sender, token))
    }

    async fn call(&mut self) -> Result<Duration, Failed> {
        self.0.ready().await?;
        let start = Instant::now();
        let mut request = Request::post("/count").header("host", "localhost");
        if let Some(token) = &self.1 {
            request = request.header(header::NAME, token.to_string());
        }
        let answer = self.0.send_request(request.body(Full::default())?).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        assert_eq!(status, StatusCode::OK);
        Ok(start.elapsed())
    }
}

async fn with_axum(fence: &MemoryFence, token: &FencingToken) -> Result<(), Failed> {
    type Fenced = Extension<Presented<MemoryFence>>;
    let guarded = |Extension(presented): Fenced| async move {
        presented.guarded(|| ()).map_err(|error| Refusal::from(error).http_response::<axum::body::Body>())
    };
    let fenced = axum::Router::new()
        .route("/count", axum::routing::post(guarded))
        .layer(FenceLayer::new(fence.clone()));
    let plain = axum::Router::new().route("/count", axum::routing::post(|| async {}));
    let mut fenced = Http::to(fenced, Some(token.clone())).await?;
    let mut plain = Http::to(plain, None).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        with.push(fenced.call().await?);
        without.push(plain.call().await?);
    }
    told("a call of axum", &mut with, &mut without);
    Ok(())
}

/// A service of gRPC with one call, behind the layer or not.
#[derive(Clone)]
struct Counter {
    fenced: bool,
}

impl NamedService for Counter {
    const NAME: &'static str = "bench.v1.Counter";
}

impl UnaryService<()> for Counter {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, call: Call<()>) -> Self::Future {
        let counted = match call.extensions().get::<Presented<MemoryFence>>() {
            Some(presented) => presented.clone().guarded(|| ()).map_err(|error| Refusal::from(error).into()),
            None if self.fenced => Err(Status::internal("there is no layer")),
            None => Ok(()),
        };
        std::future::ready(counted.map(Response::new))
    }
}

impl Service<http::Request<Body>> for Counter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(tonic::server::Grpc::new(ProstCodec::<(), ()>::default()).unary(this, request).await)
        })
    }
}

async fn with_tonic(fence: &MemoryFence, token: &FencingToken) -> Result<(), Failed> {
    let (first, second) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let channels = (
        Endpoint::from_shared(format!("http://{}", first.local_addr()?))?.connect_lazy(),
        Endpoint::from_shared(format!("http://{}", second.local_addr()?))?.connect_lazy(),
    );
    let layer = FenceLayer::new(fence.clone());
    let fenced = Server::builder().layer(layer).add_service(Counter { fenced: true });
    tokio::spawn(fenced.serve_with_incoming(TcpIncoming::from(first)));
    let plain = Server::builder().add_service(Counter { fenced: false });
    tokio::spawn(plain.serve_with_incoming(TcpIncoming::from(second)));
    let stamping = ServiceBuilder::new().layer(StampLayer::per_request()).service(channels.0);
    let mut fenced = tonic::client::Grpc::new(stamping);
    let mut plain = tonic::client::Grpc::new(channels.1);
    let path = || PathAndQuery::from_static("/bench.v1.Counter/Count");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        let start = Instant::now();
        let mut call = Call::new(());
        call.extensions_mut().insert(Stamps::from(token.clone()));
        fenced.ready().await?;
        fenced.unary(call, path(), ProstCodec::<(), ()>::default()).await?;
        with.push(start.elapsed());
        let start = Instant::now();
        plain.ready().await?;
        plain.unary(Call::new(()), path(), ProstCodec::<(), ()>::default()).await?;
        without.push(start.elapsed());
    }
    told("a call of tonic", &mut with, &mut without);
    Ok(())
}

/// The old file or the new one after a power cut: written beside, flushed, renamed, and the folder flushed.
fn by_hand(dir: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let staged = dir.join("staged");
    let mut file = File::create(&staged)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&staged, dir.join("file"))?;
    File::open(dir)?.sync_all()
}

fn with_files(cluster: &ClusterId, token: &FencingToken) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let (served, plain) = (dir.path().join("served"), dir.path().join("plain"));
    std::fs::create_dir(&served)?;
    std::fs::create_dir(&plain)?;
    let files = FileGateway::open(&served, cluster)?;
    files.raise(token)?;
    let (path, bytes): (FilePath, _) = ("orders/17/file".parse()?, vec![7; FILE_BYTES]);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..FILES {
        let start = Instant::now();
        files.put(from_ref(token), &path, &bytes)?;
        with.push(start.elapsed());
        let start = Instant::now();
        by_hand(&plain, &bytes)?;
        without.push(start.elapsed());
    }
    told("a file put through the gateway", &mut with, &mut without);
    Ok(())
}

fn main() -> Result<(), Failed> {
    let (cluster, token): (_, FencingToken) = (ClusterId::new("prod")?, "prod/orders/17@42".parse()?);
    let fence = MemoryFence::new(cluster.clone());
    fence.raise(&token)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!(
        "{CALLS} calls of each service and {FILES} files of {FILE_BYTES} bytes, with and without, in turn"
    );
    runtime.block_on(with_axum(&fence, &token))?;
    runtime.block_on(with_tonic(&fence, &token))?;
    with_files(&cluster, &token)
}
