//! What a refused caller gets, and what it reads out of it.

use crate::subject::{Body, Mode, RUNTIME, ServiceStore, cluster, request, token};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use ringfence_fence::conformance::Handle;
use ringfence_fence::service::{FenceLayer, Presented, Reason, Refusal, headers};
use ringfence_fence::{FenceError, Fenced, MemoryFence, header};
use std::convert::Infallible;
use std::slice::from_ref;
use tower::{Layer, ServiceExt, service_fn};

/// Sends a request with these header values; answers the status, the headers and the body.
fn ask(store: &ServiceStore, values: &[&[u8]], kind: Option<&str>) -> (StatusCode, HeaderMap, String) {
    let mut request = request(&[], "k=v\n".into());
    for value in values {
        request.headers_mut().append(header::NAME, http::HeaderValue::from_bytes(value).unwrap());
    }
    if let Some(kind) = kind {
        request.headers_mut().insert("content-type", kind.parse().unwrap());
    }
    RUNTIME.block_on(async {
        let (parts, body) = store.client.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    })
}

fn raised(mode: Mode) -> ServiceStore {
    let store = ServiceStore::in_memory(mode, &cluster("prod"));
    store.handle().raise(&token("prod/orders/17@34")).unwrap();
    store
}

#[test]
fn f096_every_bad_header_is_refused_and_writes_nothing() {
    let long = [b'a'; header::MAX_BYTES + 1];
    let cases: &[(&[&[u8]], u16, Reason)] = &[
        (&[], 428, Reason::Unstamped),
        (&[b""], 400, Reason::Malformed),
        (&[b"prod/orders/17@034"], 400, Reason::Malformed),
        (&[b"prod/orders/17@0"], 400, Reason::Malformed),
        (&[b"Bearer prod/orders/17@34"], 400, Reason::Malformed),
        (&[b"prod/orders/17@34\xff"], 400, Reason::Malformed),
        (&[b"prod/orders/18@1 prod/orders/17@34"], 400, Reason::Malformed),
        (&[b"prod/orders/17@34 prod/orders/17@35"], 400, Reason::Malformed),
        (&[b"prod/orders/17@34", b"prod/orders/17@34"], 400, Reason::Malformed),
        (&[b"prod/orders/17@34", b"prod/orders/17@33"], 400, Reason::Malformed),
        (&[b"prod/orders/17@33, prod/orders/17@34"], 400, Reason::Malformed),
        (&[&long], 431, Reason::TooLong),
        (&[b"test/orders/17@34"], 412, Reason::WrongCluster),
        (&[b"prod/orders/18@1"], 412, Reason::NotRaised),
        (&[b"prod/orders/17@33"], 412, Reason::Fenced),
        (&[b"prod/orders/17@9007199254740991"], 412, Reason::Implausible),
        (&[b"prod/orders/17@34 prod/orders/18@1"], 412, Reason::NotRaised),
    ];
    for mode in [Mode::Guarded, Mode::Holding] {
        let store = raised(mode);
        for (values, status, reason) in cases {
            let (got, headers, body) = ask(&store, values, None);
            let shown = values.iter().map(|v| String::from_utf8_lossy(v)).collect::<Vec<_>>();
            assert_eq!(got.as_u16(), *status, "{mode:?} {shown:?}: {body}");
            assert_eq!(Refusal::from_headers(&headers).unwrap().reason(), *reason, "{shown:?}");
            assert!(body.contains(&format!("\"urn:ringfence:{}\"", reason.as_str())), "{body}");
            assert!(body.contains(&format!("\"status\":{status}")), "{body}");
            assert_eq!(headers["content-type"], "application/problem+json");
            assert_eq!(headers["content-length"], body.len().to_string());
        }
        assert!(store.handle().data().unwrap().is_empty(), "{mode:?}");
        assert_eq!(ask(&store, &[b"prod/orders/17@34"], None).0, StatusCode::OK);
    }
}

#[test]
fn f099_a_replaced_caller_reads_both_epochs_and_the_owner_out_of_the_headers_and_people_out_of_the_body() {
    let fence = MemoryFence::new(cluster("prod"));
    fence.raise(&token("prod/orders/17@34")).unwrap();
    let layer = FenceLayer::new(fence).owner_hint(|scope| Some(format!("worker-2:7000/{scope}")));
    let service = layer.layer(service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
        panic!("a refused handler never runs")
    }));
    let old = token("prod/orders/17@33");
    let (parts, body) =
        RUNTIME.block_on(service.oneshot(request(from_ref(&old), String::new()))).unwrap().into_parts();
    let body = RUNTIME.block_on(body.collect()).unwrap().to_bytes();
    let body = std::str::from_utf8(&body).unwrap();

    assert_eq!(parts.status, StatusCode::PRECONDITION_FAILED);
    for (name, value) in [
        (headers::REFUSAL, "fenced"),
        (headers::REFUSED_TOKEN, "prod/orders/17@33"),
        (headers::HIGHEST, "34"),
        (headers::OWNER, "worker-2:7000/orders/17"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(parts.headers[name], value);
    }
    for part in [
        "\"title\":\"the owner was replaced\"",
        "\"scope\":\"orders/17\"",
        "\"own\":\"33\"",
        "\"highest\":\"34\"",
        "\"owner\":\"worker-2:7000/orders/17\"",
        "stop its task",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let refusal = Refusal::from_headers(&parts.headers).unwrap();
    let fenced: Fenced = refusal.fenced().unwrap();
    assert_eq!((fenced.own().get(), fenced.highest().get(), fenced.token()), (33, 34, &old));
    assert!(!refusal.reason().is_retryable() && refusal.reason().nothing_was_done());
    assert_eq!(refusal.owner(), Some("worker-2:7000/orders/17"));
}

/// What is no refusal is not read as one, and a strange one is not believed.
#[test]
fn f096_a_strange_refusal_is_none() {
    let map = |pairs: &[(&'static str, &str)]| {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    };
    let fenced = [
        (headers::REFUSAL, "fenced"),
        (headers::REFUSED_TOKEN, "prod/orders/17@33"),
        (headers::HIGHEST, "34"),
    ];
    assert!(Refusal::from_headers(&map(&fenced)).is_some());
    for (index, value) in [
        (0, "no-such-reason"),
        (1, "orders/17@33"),
        (1, "prod/orders/17@34"),
        (1, "prod/orders/17@35"),
        (2, "0"),
        (2, "034"),
        (2, "+34"),
        (2, "18446744073709551616"),
    ] {
        let mut strange = fenced;
        strange[index].1 = value;
        assert_eq!(Refusal::from_headers(&map(&strange)), None, "{strange:?}");
    }
    for missing in 0..3 {
        let left: Vec<_> = (0..3).filter(|i| *i != missing).map(|i| fenced[i]).collect();
        assert_eq!(Refusal::from_headers(&map(&left)), None, "{left:?}");
    }
    let twice = [fenced.as_slice(), &[(headers::HIGHEST, "35")]].concat();
    assert_eq!(Refusal::from_headers(&map(&twice)), None);
    assert_eq!(Refusal::from_headers(&HeaderMap::new()), None);
}

/// Each error of a fence comes back as what it was, as far as the wire tells.
#[test]
fn t21_every_reason_has_a_status_and_is_read_back() {
    let own = token("prod/orders/17@33");
    let io = || std::io::Error::other("disk");
    let errors = [
        (FenceError::from(Fenced::new(own.clone(), token("prod/orders/17@34").epoch())), 412, 9),
        (FenceError::NotRaised { token: own.clone() }, 412, 9),
        (FenceError::Replaced { token: own.clone() }, 412, 9),
        (FenceError::Unstamped, 428, 9),
        (FenceError::busy("writing", io()), 503, 14),
        (FenceError::store("writing", io()), 500, 2),
    ];
    for (error, status, code) in errors {
        let refusal = Refusal::from(&error);
        assert_eq!((refusal.reason().http_status(), refusal.reason().grpc_code()), (status, code), "{error}");
        let read = Refusal::from_headers(&refusal.headers()).unwrap().to_fence_error();
        assert_eq!(read.kind(), error.kind(), "{error}");
        assert_eq!(read.is_retryable(), error.is_retryable());
        let details = Refusal::from_details(&refusal.grpc_details()).unwrap();
        assert_eq!(details, refusal);
        assert_eq!(
            refusal.reason() == Reason::Busy,
            refusal.http_response::<String>().headers().contains_key("retry-after")
        );
    }
    let unfit = Refusal::from(&FenceError::Unfit { why: "no".into() });
    assert_eq!((unfit.reason(), unfit.reason().http_status()), (Reason::Broken, 500));
}

/// A handler that forgets its fence is found by the first request in a test, whatever it answers.
#[test]
fn f005_a_handler_that_says_done_without_its_fence_is_answered_as_a_mistake() {
    type Guarded = Presented<MemoryFence>;
    let ask = |handler: fn(&Guarded) -> StatusCode| {
        let fence = MemoryFence::new(cluster("prod"));
        let own = token("prod/orders/17@34");
        fence.raise(&own).unwrap();
        let service = FenceLayer::new(fence).layer(service_fn(move |request: Request<Body>| async move {
            let status = handler(request.extensions().get::<Guarded>().unwrap());
            drop(request);
            Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(Bytes::new())).unwrap())
        }));
        let answer = RUNTIME.block_on(service.oneshot(request(&[own], String::new()))).unwrap();
        (answer.status(), Refusal::from_headers(answer.headers()).map(|refusal| refusal.reason()))
    };
    assert_eq!(ask(|_| StatusCode::OK), (StatusCode::INTERNAL_SERVER_ERROR, Some(Reason::Unguarded)));
    assert_eq!(ask(|_| StatusCode::NO_CONTENT).1, Some(Reason::Unguarded));
    // It has refused, or failed, by itself.
    assert_eq!(ask(|_| StatusCode::NOT_FOUND), (StatusCode::NOT_FOUND, None));
    for handler in [
        (|presented: &Guarded| presented.guarded(|| StatusCode::OK).unwrap()) as fn(&Guarded) -> StatusCode,
        |presented| {
            assert_eq!(presented.tokens().len(), 1);
            StatusCode::OK
        },
        |presented| {
            assert_eq!(presented.pass_on().tokens().len(), 1);
            StatusCode::OK
        },
        |presented| {
            presented.without_effect();
            StatusCode::OK
        },
        |presented| {
            // A stream that writes later has it still.
            std::mem::forget(presented.clone());
            StatusCode::OK
        },
    ] {
        assert_eq!(ask(handler), (StatusCode::OK, None));
    }
}

#[test]
fn the_answer_is_grpc_only_where_the_request_is() {
    let store = raised(Mode::Guarded);
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x"] {
        let (status, headers, body) = ask(&store, &[b"prod/orders/17@33"], Some(kind));
        assert_eq!(
            (status, body.as_str(), &headers["grpc-status"]),
            (StatusCode::OK, "", &"9".parse().unwrap())
        );
        assert_eq!(headers["content-type"], "application/grpc");
        assert!(Refusal::from_headers(&headers).unwrap().fenced().is_some());
    }
    for kind in ["application/grpc-web", "application/grpcish", "application/json"] {
        assert_eq!(ask(&store, &[b"prod/orders/17@33"], Some(kind)).0, StatusCode::PRECONDITION_FAILED);
    }
}
