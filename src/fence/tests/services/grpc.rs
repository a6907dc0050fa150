//! Over gRPC: tonic's server behind the layer, tonic's client with the caller's.

use crate::subject::{RUNTIME, cluster, token};
use prost::Message;
use ringfence_core::ids::SessionId;
use ringfence_fence::service::{
    FenceBody, FenceLayer, FencedService, Presented, Reason, Refusal, RemoteFence, Routes, StampLayer,
    StampedService, Stamps,
};
use ringfence_fence::{Fence, FenceErrorKind, FencingToken, MemoryFence};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::server::{NamedService, UnaryService};
use tonic::service::Routes as TonicRoutes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, Service};

/// What a generated server is underneath: `test.v1.Ledger` with the calls `Put` (a text), `Open` and `Forget`.
#[derive(Clone, Default)]
struct Ledger {
    texts: Arc<Mutex<Vec<String>>>,
}

impl NamedService for Ledger {
    const NAME: &'static str = "test.v1.Ledger";
}

struct Put(Ledger);

impl UnaryService<String> for Put {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        std::future::ready(self.0.put(request))
    }
}

/// Raised by the layer already; or, for `Forget`, a handler that forgets its fence.
struct Nothing;

impl UnaryService<()> for Nothing {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(())))
    }
}

impl Ledger {
    fn put(&self, request: Request<String>) -> Result<Response<()>, Status> {
        let stamped =
            request.extensions().get::<Presented<MemoryFence>>().expect("the layer is there").clone();
        let text = request.into_inner();
        if text.is_empty() {
            return Err(Status::invalid_argument("an empty text"));
        }
        stamped.guarded(|| self.texts.lock().unwrap().push(text)).map_err(Refusal::from)?;
        Ok(Response::new(()))
    }
}

impl Service<HttpRequest<Body>> for Ledger {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/test.v1.Ledger/Put" => {
                    tonic::server::Grpc::new(ProstCodec::<(), String>::default())
                        .unary(Put(this), request)
                        .await
                }
                _ => tonic::server::Grpc::new(ProstCodec::<(), ()>::default()).unary(Nothing, request).await,
            })
        })
    }
}

struct World {
    ledger: Ledger,
    fence: MemoryFence,
    channel: Channel,
}

async fn world() -> World {
    let (ledger, fence) = (Ledger::default(), MemoryFence::new(cluster("prod")));
    let layer = FenceLayer::new(fence.clone())
        .routes(Routes::all_fenced().raised_by("/test.v1.Ledger/Open"))
        .owner_hint(|_| Some("worker-2:7000".into()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = Server::builder().layer(layer).add_service(ledger.clone());
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    World { ledger, fence, channel }
}

type Stamping = StampedService<Channel>;

async fn call<T: Message + 'static>(
    client: &Stamping,
    path: &'static str,
    message: T,
    stamps: Option<Stamps>,
) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let mut request = Request::new(message);
    if let Some(stamps) = stamps {
        request.extensions_mut().insert(stamps);
    }
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    grpc.unary(request, path, ProstCodec::<T, ()>::default()).await.map(|_| ())
}

async fn put(client: &Stamping, text: &str, token: &FencingToken) -> Result<(), Status> {
    call(client, "/test.v1.Ledger/Put", text.to_owned(), Some(Stamps::from(token.clone()))).await
}

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: std::collections::HashMap<String, String>,
}

#[test]
fn f099_a_replaced_caller_over_grpc_gets_a_status_that_nobody_retries_with_both_epochs_in_three_forms() {
    RUNTIME.block_on(async {
        let world = world().await;
        let client = StampLayer::per_request().layer(world.channel.clone());
        let (old, new) = (token("prod/orders/17@33"), token("prod/orders/17@34"));
        world.fence.raise(&old).unwrap();
        put(&client, "by 33", &old).await.unwrap();
        world.fence.raise(&new).unwrap();
        let status = put(&client, "late", &old).await.unwrap_err();

        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("33") && status.message().contains("34"), "{status}");
        // As metadata, for who looks.
        for (name, value) in [
            ("ringfence-refusal", "fenced"),
            ("ringfence-refused-token", "prod/orders/17@33"),
            ("ringfence-highest", "34"),
            ("ringfence-owner", "worker-2:7000"),
        ] {
            assert_eq!(status.metadata().get(name).unwrap(), value);
        }
        // As details that clients of every language know.
        let details = RpcStatus::decode(status.details()).unwrap();
        assert_eq!((details.code, details.message.as_str()), (9, status.message()));
        assert_eq!(details.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        let info = ErrorInfo::decode(details.details[0].value.as_slice()).unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("FENCED", "ringfence"));
        assert_eq!(info.metadata["token"], "prod/orders/17@33");
        assert_eq!(info.metadata["highest"], "34");
        // And as the fence's own error, from either.
        for refusal in [Refusal::from_status(&status), Refusal::from_details(status.details())] {
            let refusal = refusal.unwrap();
            let fenced = refusal.fenced().unwrap();
            assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34));
            assert_eq!(refusal.owner(), Some("worker-2:7000"));
        }
        assert_eq!(*world.ledger.texts.lock().unwrap(), ["by 33"]);
    });
}

#[test]
fn f005_over_grpc_an_unstamped_call_is_not_sent_and_one_that_is_sent_is_refused() {
    RUNTIME.block_on(async {
        let world = world().await;
        let own = token("prod/orders/17@34");
        world.fence.raise(&own).unwrap();
        let client = StampLayer::per_request().layer(world.channel.clone());
        let path = "/test.v1.Ledger/Put";
        let unsent = call(&client, path, "x".to_owned(), None).await.unwrap_err();
        assert!(unsent.to_string().contains("not sent"), "{unsent}");

        let mut plain = tonic::client::Grpc::new(world.channel.clone());
        plain.ready().await.unwrap();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let codec = ProstCodec::<String, ()>::default();
        let status = plain.unary(Request::new("x".to_owned()), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(Refusal::from_status(&status).unwrap().reason(), Reason::Unstamped);
        assert!(world.ledger.texts.lock().unwrap().is_empty());
    });
}

/// The handler refuses when the fence was raised after the layer's look; and its own errors stay its own.
#[test]
fn f009_over_grpc_what_the_handler_is_refused_is_the_same_status_and_its_own_errors_pass() {
    let fenced = ringfence_fence::Fenced::new(token("prod/orders/17@33"), token("prod/orders/17@34").epoch());
    let status = Status::from(Refusal::from(ringfence_fence::FenceError::from(fenced)));
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(Refusal::from_status(&status).unwrap().fenced().is_some());
    assert_eq!(Refusal::from_status(&Status::failed_precondition("another reason")), None);

    RUNTIME.block_on(async {
        let world = world().await;
        let own = token("prod/orders/17@34");
        world.fence.raise(&own).unwrap();
        let client = StampLayer::per_request().layer(world.channel.clone());
        let foolish = put(&client, "", &own).await.unwrap_err();
        assert_eq!((foolish.code(), Refusal::from_status(&foolish)), (Code::InvalidArgument, None));

        let forgotten = call(&client, "/test.v1.Ledger/Forget", (), Some(own.into())).await.unwrap_err();
        assert_eq!(forgotten.code(), Code::Internal);
        assert_eq!(Refusal::from_status(&forgotten).unwrap().reason(), Reason::Unguarded);
    });
}

#[test]
fn t04_over_grpc_a_service_is_raised_like_any_declared_fence() {
    RUNTIME.block_on(async {
        let world = world().await;
        let uri = "http://ledger/test.v1.Ledger/Open".parse().unwrap();
        let remote = RemoteFence::tonic(world.channel.clone(), uri);
        let of = |text: &str, session| token(text).held_by(SessionId::new(session).unwrap());
        let (old, new) = (of("prod/orders/17@33", 1), of("prod/orders/17@34", 2));
        remote.raise(&new).await.unwrap();
        assert_eq!(remote.raise(&old).await.unwrap_err().kind(), FenceErrorKind::Fenced);
        assert_eq!(world.fence.highest(new.scope()), Some(new.epoch()));
    });
}

/// It fits where tonic wants a service, named or in its routes.
#[allow(dead_code, reason = "that it compiles is the test")]
fn fits(layer: &FenceLayer<MemoryFence>) -> FencedService<TonicRoutes, MemoryFence> {
    fn is_a_service<S: Service<HttpRequest<Body>, Response = HttpResponse<FenceBody<Body>>>>(
        service: S,
    ) -> S {
        service
    }
    is_a_service(layer.layer(TonicRoutes::new(Ledger::default())))
}
