//! What passes without a token, by name; and what the layer leaves alone.

use crate::subject::{Body, RUNTIME, cluster, token};
use http::{Method, Request, Response, StatusCode};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use ringfence_fence::service::{
    CallFence, FenceLayer, HoldLayer, Presented, Reason, Refusal, RemoteFence, Routes, ServiceFence, Stamps,
};
use ringfence_fence::{
    Enforces, Fence, FenceError, FenceErrorKind, FenceFuture, FencingToken, MemoryFence, header,
};
use std::convert::Infallible;
use std::task::{Context, Waker};
use tower::{Layer, Service, ServiceExt, service_fn};

/// Says which tokens it was handed, and which header it sees.
async fn tell(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let handed =
        request.extensions().get::<Presented<MemoryFence>>().map(|presented| presented.tokens().len());
    let held = request.extensions().get::<Stamps>().map(|stamps| stamps.tokens().len());
    let header = request.headers().get(header::NAME).map_or("none", |value| value.to_str().unwrap());
    let told = format!("{} {header}", handed.or(held).map_or_else(|| "none".into(), |n| n.to_string()));
    Ok(Response::builder().header("told", told).body(Body::default()).unwrap())
}

fn ask<S, R>(
    service: &S,
    method: Method,
    path: &str,
    value: Option<&str>,
) -> (StatusCode, Option<Reason>, String)
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
{
    let mut request = Request::builder().method(method).uri(path);
    if let Some(value) = value {
        request = request.header(header::NAME, value);
    }
    let answer = RUNTIME.block_on(service.clone().oneshot(request.body(Body::default()).unwrap())).unwrap();
    let told = answer.headers().get("told").map_or("", |told| told.to_str().unwrap()).to_owned();
    (answer.status(), Refusal::from_headers(answer.headers()).map(|refusal| refusal.reason()), told)
}

fn routes() -> Routes {
    Routes::all_fenced()
        .open("/health")
        .read_only("/orders.v1.Ledger/Get")
        .raised_by("/orders.v1.Ledger/Open")
}

#[test]
fn f005_only_named_routes_pass_without_a_token_and_a_read_is_not_named_by_being_one() {
    let fence = MemoryFence::new(cluster("prod"));
    fence.raise(&token("prod/orders/17@34")).unwrap();
    let guarded = FenceLayer::new(fence.clone()).routes(routes()).layer(service_fn(tell));
    let held = HoldLayer::new(CallFence::new(fence)).routes(routes()).layer(service_fn(tell));
    let (current, stale, bad) = (Some("prod/orders/17@34"), Some("prod/orders/17@33"), Some("nonsense"));
    let cases = [
        (Method::GET, "/", None, Err(Reason::Unstamped)),
        (Method::POST, "/put", None, Err(Reason::Unstamped)),
        (Method::POST, "/put", current, Ok("1 prod/orders/17@34")),
        (Method::POST, "/put", stale, Err(Reason::Fenced)),
        // Not looked at: the handler of an open route may have a use of its own for the header.
        (Method::POST, "/health", None, Ok("none none")),
        (Method::POST, "/health", stale, Ok("none prod/orders/17@33")),
        (Method::POST, "/health", bad, Ok("none nonsense")),
        // A read that says for whom it reads is judged.
        (Method::POST, "/orders.v1.Ledger/Get", None, Ok("none none")),
        (Method::POST, "/orders.v1.Ledger/Get", current, Ok("1 prod/orders/17@34")),
        (Method::POST, "/orders.v1.Ledger/Get", stale, Err(Reason::Fenced)),
        (Method::POST, "/orders.v1.Ledger/Get", bad, Err(Reason::Malformed)),
        (Method::POST, "/orders.v1.Ledger/Open", None, Err(Reason::Unstamped)),
    ];
    for (method, path, value, expected) in cases {
        for (kind, (_, reason, told)) in [
            ("guarded", ask(&guarded, method.clone(), path, value)),
            ("held", ask(&held, method.clone(), path, value)),
        ] {
            match expected {
                Ok(expected) => {
                    assert_eq!((reason, told.as_str()), (None, expected), "{kind} {path} {value:?}");
                }
                Err(expected) => assert_eq!(reason, Some(expected), "{kind} {path} {value:?}"),
            }
        }
    }
}

#[test]
fn reads_pass_where_that_was_said() {
    let fence = MemoryFence::new(cluster("prod"));
    let service =
        FenceLayer::new(fence).routes(Routes::all_fenced().reads_are_open()).layer(service_fn(tell));
    assert_eq!(ask(&service, Method::GET, "/x", None).0, StatusCode::OK);
    assert_eq!(ask(&service, Method::GET, "/x", Some("prod/orders/17@1")).1, Some(Reason::NotRaised));
    for method in [Method::PUT, Method::OPTIONS, Method::from_bytes(b"get").unwrap()] {
        assert_eq!(ask(&service, method, "/x", None).1, Some(Reason::Unstamped));
    }
}

/// A service is declared like any fence, and one that has no layer is not taken for raised.
#[test]
fn t04_an_owner_raises_a_service_before_it_reads_and_a_service_without_a_fence_does_not_count() {
    let uri = || http::Uri::from_static("/orders.v1.Ledger/Open");
    let fence = MemoryFence::new(cluster("prod"));
    let guarded = FenceLayer::new(fence.clone()).routes(routes()).layer(service_fn(tell));
    let calls = CallFence::new(MemoryFence::new(cluster("prod")));
    let held = HoldLayer::new(calls.clone()).routes(routes()).layer(service_fn(tell));
    // As the SDK's tokens do, these name their session, which a refusal's header does not.
    let of = |text: &str, session| token(text).held_by(SessionId::new(session).unwrap());
    let (old, new) = (of("prod/orders/17@33", 1), of("prod/orders/17@34", 2));
    let foreign = of("test/orders/17@99", 3);
    fn raise(fence: &dyn Fence, token: &FencingToken) -> Result<(), FenceError> {
        RUNTIME.block_on(fence.raise(token))
    }
    for remote in [
        &RemoteFence::http(guarded.clone(), uri()) as &dyn Fence,
        &RemoteFence::grpc(guarded, uri()),
        &RemoteFence::http(held, uri()),
    ] {
        raise(remote, &new).unwrap();
        raise(remote, &new).unwrap();
        assert_eq!(raise(remote, &old).unwrap_err().kind(), FenceErrorKind::Fenced);
        assert_eq!(raise(remote, &foreign).unwrap_err().kind(), FenceErrorKind::WrongCluster);
    }
    for seen in [fence.highest(new.scope()), RUNTIME.block_on(calls.highest(new.scope())).unwrap()] {
        assert_eq!(seen, Some(new.epoch()));
    }
    // It answers 200 to everything, and has raised nothing.
    let without = RemoteFence::http(service_fn(tell), uri());
    let error = raise(&without, &new).unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Store);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("did not confirm"), "{error}");
}

/// A raise through the layer waits for the calls that it may not pass; what is refused leaves nothing behind.
#[test]
fn f076_a_refused_call_makes_no_scope_known() {
    let calls = CallFence::new(MemoryFence::new(cluster("prod")));
    let service = HoldLayer::new(calls.clone()).routes(routes()).layer(service_fn(tell));
    for n in 0..50 {
        let value = format!("prod/orders/{n}@1");
        assert_eq!(ask(&service, Method::POST, "/put", Some(&value)).1, Some(Reason::NotRaised));
    }
    assert_eq!(format!("{:?}", calls.behind()), "MemoryFence of prod (0 scopes)");
}

/// A fence in memory that has raised and does not come to answer.
#[derive(Clone)]
struct Mute(MemoryFence);

impl Fence for Mute {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        let raised = self.0.raise(token);
        Box::pin(async move {
            raised?;
            std::future::pending().await
        })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Fence::highest(&self.0, scope)
    }
}

impl Enforces for Mute {}

impl ServiceFence for Mute {
    fn cluster(&self) -> &ClusterId {
        self.0.cluster()
    }
}

/// A caller that goes away while its higher epoch is being remembered: it is remembered, and nobody older is let in by what was
/// known before.
#[test]
fn t09_a_call_that_is_dropped_half_way_does_not_leave_an_older_epoch_known() {
    let behind = MemoryFence::new(cluster("prod"));
    behind.raise(&token("prod/orders/17@33")).unwrap();
    let service = HoldLayer::new(CallFence::new(Mute(behind))).layer(service_fn(tell));
    let ask_of_33 = || ask(&service, Method::POST, "/put", Some("prod/orders/17@33"));
    assert_eq!(ask_of_33().0, StatusCode::OK);
    let request =
        Request::post("/put").header(header::NAME, "prod/orders/17@34").body(Body::default()).unwrap();
    let mut newer = std::pin::pin!(service.clone().oneshot(request));
    let polled = newer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it waits for its epoch to be remembered");
    newer.set(service.clone().oneshot(Request::new(Body::default())));
    assert_eq!(ask_of_33().1, Some(Reason::Fenced));
}
