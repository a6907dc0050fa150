//! Two services: an owner that reserves stock in another process over HTTP, and that process, which keeps the stock behind a
//! fence. The owner stamps a request and stands still; its successor takes over; then the request is sent.
//!
//! The connection is a real one. Every request needs a token, the stock is changed in one step with the check, and the late
//! owner learns from the answer that it was replaced.
//!
//! ```console
//! $ cargo run --example fenced_service --features tower
//! without a token: 428 Precondition Required, unstamped
//! A reserves under 33: 200 OK
//! B reserves under 34: 200 OK
//! A's request from before its pause: 412 Precondition Failed, stock/17 is fenced: own 33, highest 34, now with worker-b
//! A's client, which belongs to its ownership: not sent
//! in stock: 8
//! ```

use axum::Extension;
use axum::body::Body;
use axum::routing::post;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ringfence::fence::Fence as _;
use ringfence::fence::MemoryFence;
use ringfence::fence::service::{
    FenceLayer, Presented, Refusal, RemoteFence, Routes, StampError, StampLayer, Stamps,
};
use ringfence::testkit::Granted;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt, service_fn};

type Failure = Box<dyn Error + Send + Sync>;

/// Takes one piece. Whatever takes its time comes before; the check and the effect are one step.
async fn reserve(
    Extension(stamped): Extension<Presented<MemoryFence>>,
    Extension(stock): Extension<Arc<AtomicI64>>,
) -> Result<&'static str, Response<Body>> {
    stamped
        .guarded(|| stock.fetch_sub(1, Ordering::Relaxed))
        .map_err(|error| Refusal::from(error).http_response())?;
    Ok("reserved\n")
}

/// The service, on a port of its own.
async fn serve(fence: MemoryFence, stock: Arc<AtomicI64>) -> Result<SocketAddr, Failure> {
    let layer = FenceLayer::new(fence)
        .routes(Routes::all_fenced().raised_by("/raise"))
        .owner_hint(|_| Some("worker-b".into()));
    let router = axum::Router::new()
        .route("/reserve", post(reserve))
        .route("/raise", post(async || "raised\n"))
        .layer(layer)
        .layer(Extension(stock));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// One request over a connection of its own.
async fn send(to: SocketAddr, mut request: Request<Body>) -> io::Result<Response<Incoming>> {
    let stream = TcpStream::connect(to).await?;
    let broken = |error: hyper::Error| io::Error::other(error);
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    request.headers_mut().insert("host", to.to_string().parse().map_err(io::Error::other)?);
    client.send_request(request).await.map_err(broken)
}

fn reserve_one() -> Result<Request<Body>, Failure> {
    Ok(Request::post("/reserve").body(Body::empty())?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let (a, mut control) = Granted::new("stock", 17).epoch(33).start()?;
    let stock = Arc::new(AtomicI64::new(10));
    let to = serve(MemoryFence::new(a.token().cluster().clone()), Arc::clone(&stock)).await?;
    let http = service_fn(move |request: Request<Body>| send(to, request));
    // As a worker declares it: raised before the owner reads anything.
    let fence = RemoteFence::http(http, "/raise".parse()?);

    let unstamped = http.oneshot(reserve_one()?).await?;
    let why = Refusal::from_headers(unstamped.headers()).ok_or("it was not refused")?;
    println!("without a token: {}, {}", unstamped.status(), why.reason().as_str());

    fence.raise(a.token()).await?;
    let of_a = StampLayer::of(a.clone()).layer(http);
    println!("A reserves under 33: {}", of_a.clone().oneshot(reserve_one()?).await?.status());

    // A stamps another request. Then its process stands still for longer than its lease.
    let mut late = reserve_one()?;
    late.extensions_mut().insert(Stamps::from(a.stamp()?));
    control.pause(Duration::from_secs(15));

    // B is granted the partition, raises, reads and reserves.
    let b = control.next_epoch()?;
    fence.raise(b.token()).await?;
    let of_b = StampLayer::of(b).layer(http);
    println!("B reserves under 34: {}", of_b.oneshot(reserve_one()?).await?.status());

    // A goes on where it stood still.
    let answer = StampLayer::per_request().layer(http).oneshot(late).await?;
    let refusal = Refusal::from_headers(answer.headers()).ok_or("it was not refused")?;
    let fenced = refusal.fenced().ok_or("it was refused for another reason")?;
    println!(
        "A's request from before its pause: {}, {} is fenced: own {}, highest {}, now with {}",
        answer.status(),
        fenced.scope(),
        fenced.own().get(),
        fenced.highest().get(),
        refusal.owner().unwrap_or("somebody")
    );
    let new = match of_a.oneshot(reserve_one()?).await {
        Err(StampError::Unstamped(_)) => "not sent",
        Err(other) => return Err(other.into()),
        Ok(_) => "sent",
    };
    println!("A's client, which belongs to its ownership: {new}");
    println!("in stock: {}", stock.load(Ordering::Relaxed));
    Ok(())
}
