//! The caller's layer: the token of the piece of work, once, or nothing is sent.

use crate::subject::{Body, RUNTIME, token};
use http::{Request, Response};
use ringfence_fence::header::HeaderError;
use ringfence_fence::service::{NoStamp, StampError, StampLayer, StampSource, StampedService, Stamps};
use ringfence_fence::{FencingToken, header};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A client that keeps what it would have sent.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<Request<Body>>>>);

impl Sent {
    fn through<T: StampSource>(
        &self,
        layer: &StampLayer<T>,
    ) -> StampedService<
        impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<T>,
        T,
    > {
        let sent = Arc::clone(&self.0);
        layer.layer(service_fn(move |request| {
            sent.lock().unwrap().push(request);
            async { Ok(Response::new(Body::default())) }
        }))
    }

    /// The header of the last request.
    fn header(&self) -> String {
        let sent = self.0.lock().unwrap();
        sent.last().unwrap().headers()[header::NAME].to_str().unwrap().to_owned()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn call<S, E>(client: &mut S, request: Request<Body>) -> Result<Response<Body>, StampError<E>>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = StampError<E>>,
{
    RUNTIME.block_on(async { client.ready().await?.call(request).await })
}

fn stamped(tokens: impl IntoIterator<Item = FencingToken>) -> Request<Body> {
    let mut request = Request::post("/put").body(Body::default()).unwrap();
    request.extensions_mut().insert(Stamps::of(tokens));
    request
}

/// A worker's own picture of what it owns: whatever is newest.
#[derive(Clone)]
struct Newest(Arc<Mutex<FencingToken>>);

impl StampSource for Newest {
    fn stamp(&self) -> Result<FencingToken, NoStamp> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// A(33) -> B(34) -> A(35): what A began under 33 carries 33, although A is the owner again. The control is a source that
/// fetches the newest token when the request is sent.
#[test]
fn t05_a_request_carries_the_token_of_the_work_that_it_was_begun_for() {
    let (first, again) = (token("prod/orders/17@33"), token("prod/orders/17@35"));
    let sent = Sent::default();
    let mut shared = sent.through(&StampLayer::per_request());
    let begun_under_33 = stamped([first.clone()]);
    let mut of_the_first_grant = sent.through(&StampLayer::of(first.clone()));
    let newest = Newest(Arc::new(Mutex::new(first)));
    let mut control = sent.through(&StampLayer::of(newest.clone()));

    *newest.0.lock().unwrap() = again;
    call(&mut shared, begun_under_33).unwrap();
    assert_eq!(sent.header(), "prod/orders/17@33");
    call(&mut of_the_first_grant, Request::new(Body::default())).unwrap();
    assert_eq!(sent.header(), "prod/orders/17@33");
    call(&mut control, Request::new(Body::default())).unwrap();
    assert_eq!(sent.header(), "prod/orders/17@35", "the control must show the mistake");
}

#[test]
fn f005_a_request_without_a_token_is_not_sent() {
    let sent = Sent::default();
    let mut shared = sent.through(&StampLayer::per_request());
    let refused = call(&mut shared, Request::new(Body::default())).unwrap_err();
    assert!(matches!(refused, StampError::Unstamped(_)) && refused.nothing_was_sent(), "{refused}");
    assert!(matches!(call(&mut shared, stamped([])), Err(StampError::Stamps(HeaderError::Empty))));
    assert_eq!(sent.count(), 0);
}

#[test]
fn t13_tokens_of_several_scopes_go_in_the_order_of_the_fences_and_two_of_one_scope_do_not_go() {
    let sent = Sent::default();
    let mut client = sent.through(&StampLayer::per_request());
    let (a, b) = (token("prod/orders/9@3"), token("prod/orders/10@3"));
    call(&mut client, stamped([b.clone(), a, b.clone()])).unwrap();
    assert_eq!(sent.header(), "prod/orders/9@3 prod/orders/10@3");
    let twice = call(&mut client, stamped([b, token("prod/orders/10@4")])).unwrap_err();
    assert!(matches!(twice, StampError::Stamps(HeaderError::Twice(_))), "{twice}");
    let clusters = call(&mut client, stamped([token("prod/a/1@1"), token("test/b/1@1")])).unwrap_err();
    assert!(matches!(clusters, StampError::Stamps(HeaderError::Clusters(..))), "{clusters}");
}

/// Somebody else's header, passed on by mistake, is neither doubled nor replaced.
#[test]
fn a_request_that_is_stamped_already_is_not_stamped_again() {
    let sent = Sent::default();
    let mut client = sent.through(&StampLayer::per_request());
    let mut request = stamped([token("prod/orders/17@33")]);
    request.headers_mut().insert(header::NAME, "prod/orders/17@12".parse().unwrap());
    assert!(matches!(call(&mut client, request), Err(StampError::AlreadyStamped)));
    assert_eq!(sent.count(), 0);
}

#[test]
fn nothing_but_one_header_is_added() {
    let sent = Sent::default();
    let mut client = sent.through(&StampLayer::of(token("prod/orders/17@33")));
    let mut request = Request::put("/put?x=1").header("cookie", "a=b").body(Body::from("text")).unwrap();
    request.extensions_mut().insert(7_u64);
    call(&mut client, request).unwrap();
    let sent = sent.0.lock().unwrap();
    let (names, extension) =
        (sent[0].headers().keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), sent[0].extensions());
    assert_eq!(names, ["cookie", header::NAME]);
    assert_eq!((extension.get::<u64>(), sent[0].uri().to_string().as_str()), (Some(&7), "/put?x=1"));
}
