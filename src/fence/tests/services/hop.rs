//! Over real connections: a service of axum, and a proxy between it and its caller.

use crate::subject::{Body, RUNTIME, cluster, token};
use axum::Extension;
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ringfence_fence::service::{FenceLayer, Presented, Reason, Refusal, StampLayer, Stamps};
use ringfence_fence::{MemoryFence, header};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt, service_fn};

/// A service that appends what it is sent to a list, behind its fence.
struct Service {
    fence: MemoryFence,
    list: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
}

async fn append(
    Extension(stamped): Extension<Presented<MemoryFence>>,
    Extension(list): Extension<Arc<Mutex<Vec<String>>>>,
    body: String,
) -> Result<&'static str, Response<axum::body::Body>> {
    stamped
        .guarded(|| list.lock().unwrap().push(body))
        .map_err(|error| Refusal::from(error).http_response())?;
    Ok("done")
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn service() -> Service {
    let (fence, list) = (MemoryFence::new(cluster("prod")), Arc::<Mutex<Vec<String>>>::default());
    let router = Router::new()
        .route("/append", post(append))
        .layer(FenceLayer::new(fence.clone()))
        .layer(Extension(Arc::clone(&list)));
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Service { fence, list, address }
}

/// One request on a connection of its own.
async fn send(to: SocketAddr, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Infallible> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    request.headers_mut().insert("host", HeaderValue::from_str(&to.to_string()).unwrap());
    Ok(client.send_request(request).await.unwrap())
}

/// What a proxy makes of the headers before it passes a request on.
type Habit = fn(&mut http::HeaderMap);

/// A hop that reads the request, adds what proxies add, and sends it on.
async fn proxy(to: SocketAddr, habit: Habit) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let pass = hyper::service::service_fn(move |request: Request<Incoming>| async move {
                let (mut parts, body) = request.into_parts();
                for hop_by_hop in ["connection", "keep-alive", "transfer-encoding", "content-length"] {
                    parts.headers.remove(hop_by_hop);
                }
                parts.headers.append("via", HeaderValue::from_static("1.1 proxy"));
                parts.headers.append("x-forwarded-for", HeaderValue::from_static("10.0.0.1"));
                habit(&mut parts.headers);
                let body = Full::new(body.collect().await.unwrap().to_bytes());
                send(to, Request::from_parts(parts, body)).await
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), pass),
            );
        }
    });
    address
}

fn post_of(body: &str) -> Request<Body> {
    Request::post("/append").body(Full::from(Bytes::from(body.to_owned()))).unwrap()
}

#[test]
fn t19_a_stamp_travels_through_a_proxy_and_the_refusal_travels_back() {
    RUNTIME.block_on(async {
        let service = service().await;
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        service.fence.raise(&old).unwrap();
        for to in [service.address, proxy(service.address, |_| ()).await] {
            let client = StampLayer::of(old.clone()).layer(service_fn(move |request| send(to, request)));
            assert_eq!(client.oneshot(post_of("by 33")).await.unwrap().status(), StatusCode::OK);
        }
        service.fence.raise(&new).unwrap();
        for to in [service.address, proxy(service.address, |_| ()).await] {
            let client = StampLayer::of(old.clone()).layer(service_fn(move |request| send(to, request)));
            let answer = client.oneshot(post_of("late")).await.unwrap();
            assert_eq!(answer.status(), StatusCode::PRECONDITION_FAILED);
            let fenced = Refusal::from_headers(answer.headers()).unwrap().fenced().unwrap();
            assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34));
        }
        assert_eq!(*service.list.lock().unwrap(), ["by 33", "by 33"]);
    });
}

/// A proxy that adds a header of its own, one that merges what it finds twice, and one that drops what it does not know.
#[test]
fn f005_a_hop_that_tampers_with_the_header_gets_the_request_refused() {
    let own = "prod/orders/17@34";
    let habits: [(Habit, Reason); 3] = [
        (
            |headers| {
                headers.append(header::NAME, HeaderValue::from_static("prod/orders/17@34"));
            },
            Reason::Malformed,
        ),
        (
            |headers| {
                let first = headers[header::NAME].to_str().unwrap().to_owned();
                let merged = format!("{first}, prod/orders/17@99");
                headers.insert(header::NAME, merged.parse().unwrap());
            },
            Reason::Malformed,
        ),
        (
            |headers| {
                headers.remove(header::NAME);
            },
            Reason::Unstamped,
        ),
    ];
    RUNTIME.block_on(async {
        let service = service().await;
        service.fence.raise(&token(own)).unwrap();
        for (habit, reason) in habits {
            let mut request = post_of("x");
            request.headers_mut().insert(header::NAME, own.parse().unwrap());
            let answer = send(proxy(service.address, habit).await, request).await.unwrap();
            assert_eq!(Refusal::from_headers(answer.headers()).unwrap().reason(), reason);
        }
        assert!(service.list.lock().unwrap().is_empty());
    });
}

/// Two services in a row: the first passes the stamp on, and the second, which has heard of the new owner, refuses.
#[test]
fn t19_the_stamp_of_a_request_goes_on_to_the_next_service_unchanged() {
    RUNTIME.block_on(async {
        let last = service().await;
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        last.fence.raise(&new).unwrap();
        let first = MemoryFence::new(cluster("prod"));
        first.raise(&old).unwrap();
        let to = last.address;
        let middle = FenceLayer::new(first).layer(service_fn(move |request: Request<Body>| async move {
            let stamps: Stamps = request.extensions().get::<Presented<MemoryFence>>().unwrap().pass_on();
            let mut next = post_of("late");
            next.extensions_mut().insert(stamps);
            let client = StampLayer::per_request().layer(service_fn(move |request| send(to, request)));
            Ok::<_, Infallible>(client.oneshot(next).await.unwrap())
        }));
        let client = StampLayer::of(old).layer(middle);
        let answer = client.oneshot(post_of("late")).await.unwrap();
        assert!(Refusal::from_headers(answer.headers()).unwrap().fenced().is_some());
        assert!(last.list.lock().unwrap().is_empty());
    });
}
