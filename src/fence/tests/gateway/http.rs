//! The gateway over HTTP: what each request does, and what each mistake is answered with.

use crate::subject::{cluster, opened, token};
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use ringfence_core::ids::SessionId;
use ringfence_fence::gateway::{FileGateway, FileService, GatewayOptions, front};
use ringfence_fence::service::{FencedService, Reason, Refusal, RemoteFence};
use ringfence_fence::{Fence, FenceErrorKind, header};
use std::sync::LazyLock;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

type Front = FencedService<FileService, FileGateway>;

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

fn send(front: &Front, request: Request<Body>) -> Answer {
    RUNTIME.block_on(async {
        let (parts, body) = front.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    })
}

fn ask(front: &Front, method: &str, path: &str, own: Option<&str>, body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(own) = own {
        request = request.header(header::NAME, own);
    }
    send(front, request.body(Body::from(body.to_owned())).unwrap())
}

fn raised() -> (TempDir, Front) {
    let dir = tempfile::tempdir().unwrap();
    let front = front(opened(&dir));
    assert_eq!(ask(&front, "POST", "/.ringfence/raise", OWN, "").status, 204);
    (dir, front)
}

const OWN: Option<&str> = Some("prod/orders/17@33");
const FILE: &str = "/orders/17/a.csv";

#[test]
fn c03_a_file_is_written_appended_to_read_and_taken_away_and_is_a_file_like_any_other() {
    let (dir, front) = raised();
    assert_eq!(ask(&front, "PUT", FILE, OWN, "one\n").status, 204);
    let appended = ask(&front, "POST", FILE, OWN, "two\n");
    assert_eq!((appended.status, &appended.headers["ringfence-length"]), (204, &"8".parse().unwrap()));
    let on_disk = dir.path().join("orders/17/a.csv");
    assert_eq!(std::fs::read_to_string(&on_disk).unwrap(), "one\ntwo\n");
    let read = ask(&front, "GET", FILE, None, "");
    assert_eq!((read.status, read.body.as_str()), (200, "one\ntwo\n"));
    let head = ask(&front, "HEAD", FILE, None, "");
    assert_eq!(
        (head.status, head.body.as_str(), &head.headers["content-length"]),
        (200, "", &"8".parse().unwrap())
    );
    assert_eq!(ask(&front, "DELETE", FILE, OWN, "").status, 204);
    assert!(!on_disk.exists());
    assert_eq!(ask(&front, "DELETE", FILE, OWN, "").status, 404);
    assert_eq!(ask(&front, "GET", FILE, None, "").status, 404);
    assert_eq!(ask(&front, "GET", "/.ringfence/health", None, "").body, "ok\n");
    assert_eq!(ask(&front, "GET", "/.ringfence/highest/orders/17", None, "").body, "33\n");
    assert_eq!(ask(&front, "GET", "/.ringfence/highest/orders/18", None, "").status, 404);
}

#[test]
fn c03_f009_a_replaced_owner_is_refused_over_http_with_both_epochs_and_the_file_stays() {
    let (_dir, front) = raised();
    assert_eq!(ask(&front, "PUT", FILE, OWN, "by 33").status, 204);
    let remote = RemoteFence::http(
        tower::util::MapRequest::new(
            front.clone(),
            |request: Request<http_body_util::Full<bytes::Bytes>>| request.map(Body::new),
        ),
        "http://files/.ringfence/raise".parse().unwrap(),
    );
    // As an owner's SDK raises what it declared.
    let of = |text: &str, session| token(text).held_by(SessionId::new(session).unwrap());
    RUNTIME.block_on(remote.raise(&of("prod/orders/17@34", 2))).unwrap();
    let late = RUNTIME.block_on(remote.raise(&of("prod/orders/17@33", 1))).unwrap_err();
    assert_eq!(late.kind(), FenceErrorKind::Fenced);
    for method in ["PUT", "POST", "DELETE", "GET"] {
        let late = ask(&front, method, FILE, OWN, "late");
        assert_eq!(late.status, 412, "{method}");
        let fenced = Refusal::from_headers(&late.headers).unwrap().fenced().unwrap();
        assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34), "{method}");
        let said = if method == "GET" { "nothing was read" } else { "nothing was written" };
        assert!(late.body.contains(said), "{method}: {}", late.body);
    }
    assert_eq!(ask(&front, "GET", FILE, None, "").body, "by 33");
}

#[test]
fn f096_a_raise_that_is_refused_for_its_method_has_raised_nothing() {
    let (_dir, front) = raised();
    let newer = Some("prod/orders/17@34");
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        assert_eq!(ask(&front, method, "/.ringfence/raise", newer, "").status, 405, "{method}");
        assert_eq!(ask(&front, "GET", "/.ringfence/highest/orders/17", None, "").body, "33\n", "{method}");
    }
    // What a client puts behind the path says nothing here.
    assert_eq!(ask(&front, "POST", "/.ringfence/raise?by=worker-2", newer, "").status, 204);
    assert_eq!(ask(&front, "GET", "/.ringfence/highest/orders/17", None, "").body, "34\n");
}

#[test]
fn f096_what_is_no_file_and_no_request_of_this_gateway_is_refused_and_writes_nothing() {
    let (dir, front) = raised();
    let cases = [
        ("PUT", "/", 400, "bad-path"),
        ("PUT", "/orders/17/", 400, "bad-path"),
        ("PUT", "/orders/17/../18/a", 400, "bad-path"),
        ("PUT", "/orders/17/%2e%2e/a", 400, "bad-path"),
        ("PUT", "/orders/17/%00", 400, "bad-path"),
        ("PUT", "//orders/17/a", 400, "bad-path"),
        ("PUT", "/orders/17/.hidden", 400, "bad-path"),
        ("PUT", "/orders/17/a?x=1", 400, "bad-path"),
        ("PUT", "/orders/17", 400, "bad-path"),
        ("PUT", "/elsewhere/a", 400, "bad-path"),
        ("PUT", "/.ringfence/fence.db", 405, "method-not-allowed"),
        ("GET", "/.ringfence/fence.db", 404, "not-found"),
        ("GET", "/.ringfence/highest/nonsense", 400, "bad-path"),
        ("PATCH", FILE, 405, "method-not-allowed"),
        ("OPTIONS", FILE, 405, "method-not-allowed"),
        ("DELETE", "/.ringfence/raise", 405, "method-not-allowed"),
        ("PUT", "/orders/18/a", 412, "wrong-scope"),
    ];
    for (method, path, status, name) in cases {
        let answer = ask(&front, method, path, OWN, "x");
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(
            answer.body.contains(&format!("\"urn:ringfence:{name}\"")),
            "{method} {path}: {}",
            answer.body
        );
    }
    for (own, status) in [(None, 428), (Some("nonsense"), 400), (Some("test/orders/17@33"), 412)] {
        assert_eq!(ask(&front, "PUT", FILE, own, "x").status, status, "{own:?}");
    }
    let there: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there, [".ringfence"]);
}

#[test]
fn sizes_and_lengths_are_bounded_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = GatewayOptions { max_bytes: 8, ..GatewayOptions::default() };
    let front = front(FileGateway::open_with(dir.path(), &cluster("prod"), options).unwrap());
    ask(&front, "POST", "/.ringfence/raise", OWN, "");
    assert_eq!(ask(&front, "PUT", FILE, OWN, "12345678").status, 204);
    assert_eq!(ask(&front, "PUT", FILE, OWN, "123456789").status, 413);
    // Of a length that nobody told.
    let pieces = tokio_stream_of(["12345", "6789"]);
    let request = Request::put(FILE).header(header::NAME, OWN.unwrap()).body(pieces).unwrap();
    assert_eq!(send(&front, request).status, 413);
    assert_eq!(ask(&front, "POST", FILE, OWN, "9").status, 413);
    let append_at = |at: &str| {
        let request =
            Request::post(FILE).header(header::NAME, OWN.unwrap()).header("ringfence-append-at", at);
        send(&front, request.body(Body::empty()).unwrap())
    };
    let other = append_at("7");
    assert_eq!((other.status, &other.headers["ringfence-length"]), (409, &"8".parse().unwrap()));
    assert_eq!(append_at("8").status, 204);
    for bad in ["", "-1", "+8", "8 ", "99999999999999999999999"] {
        assert_eq!(append_at(bad).status, 400, "{bad:?}");
    }
    assert_eq!(ask(&front, "GET", FILE, None, "").body, "12345678");
}

/// A caller that goes away in the middle of a body has written nothing.
#[test]
fn a_body_that_breaks_off_changes_nothing() {
    let (_dir, front) = raised();
    assert_eq!(ask(&front, "PUT", FILE, OWN, "whole").status, 204);
    let broken = Body::new(Broken(0));
    let request = Request::put(FILE).header(header::NAME, OWN.unwrap()).body(broken).unwrap();
    assert_eq!(send(&front, request).status, StatusCode::BAD_REQUEST.as_u16());
    assert_eq!(ask(&front, "GET", FILE, None, "").body, "whole");
    let unstamped = ask(&front, "PUT", FILE, None, "x");
    assert_eq!(Refusal::from_headers(&unstamped.headers).unwrap().reason(), Reason::Unstamped);
}

fn tokio_stream_of(pieces: [&'static str; 2]) -> Body {
    let mut pieces = pieces.into_iter();
    Body::new(Pieces(move || pieces.next()))
}

struct Pieces<F>(F);

impl<F: FnMut() -> Option<&'static str> + Unpin> hyper::body::Body for Pieces<F> {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Ready((self.0)().map(|piece| Ok(hyper::body::Frame::data(piece.into()))))
    }
}

/// One piece, and then an error.
struct Broken(usize);

impl hyper::body::Body for Broken {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>>> {
        self.0 += 1;
        std::task::Poll::Ready(Some(match self.0 {
            1 => Ok(hyper::body::Frame::data("half".into())),
            _ => Err(std::io::ErrorKind::ConnectionReset.into()),
        }))
    }
}
