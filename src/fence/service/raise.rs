//! A fence behind a service, as an owner declares it: raising it is a call.

use super::{Refusal, headers};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, header};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, Uri};
use ringfence_core::ids::{Epoch, Scope};
use std::cmp::Ordering;
use std::fmt;
use tower_service::Service;

/// The fence of another service: a raise is a request to the route that its layer knows as
/// [`raised_by`](super::Routes::raised_by).
///
/// Declare it as `DeclaredFence::enforced("stock", RemoteFence::http(client, uri))`, and the SDK raises it before an owner reads.
/// The client is one *without* a [`StampLayer`](super::StampLayer): this stamps by itself, with the token that is raised. `B` is
/// the client's request body.
///
/// The layer confirms a raise in a header of its own, so a service without a fence, or a proxy that answers for it, is not
/// taken for one that has raised. A raise that was not confirmed is [`FenceError::Store`]: it may have been made, and raising
/// again is safe.
pub struct RemoteFence<S, B> {
    client: S,
    uri: Uri,
    grpc: bool,
    body: fn(Bytes) -> B,
}

/// A service did not say whether it has raised.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RaiseFailed(String);

impl<S, B: From<Bytes>> RemoteFence<S, B> {
    /// A `POST` without a body.
    pub fn http(client: S, uri: Uri) -> RemoteFence<S, B> {
        RemoteFence { client, uri, grpc: false, body: B::from }
    }

    /// A call of gRPC whose message is empty (`google.protobuf.Empty`); the path of the URI is `/PACKAGE.SERVICE/METHOD`.
    pub fn grpc(client: S, uri: Uri) -> RemoteFence<S, B> {
        RemoteFence { client, uri, grpc: true, body: B::from }
    }
}

#[cfg(feature = "tonic")]
impl<S> RemoteFence<S, tonic::body::Body> {
    /// The same over a channel of tonic. The host in the URI does not matter.
    pub fn tonic(channel: S, uri: Uri) -> RemoteFence<S, tonic::body::Body> {
        let body = |bytes| tonic::body::Body::new(super::FenceBody::<tonic::body::Body>::refusal(bytes));
        RemoteFence { client: channel, uri, grpc: true, body }
    }
}

impl<S, B> RemoteFence<S, B> {
    fn request(&self, token: &FencingToken) -> Result<Request<B>, FenceError> {
        let unfit = |why: String| FenceError::Unfit { why };
        let value = header::write(std::slice::from_ref(token)).map_err(|error| unfit(error.to_string()))?;
        let value = HeaderValue::try_from(value).map_err(|error| unfit(error.to_string()))?;
        let empty_message: &'static [u8] = if self.grpc { &[0; 5] } else { &[] };
        let mut request = Request::new((self.body)(Bytes::from_static(empty_message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(header::NAME, value);
        if self.grpc {
            *request.version_mut() = http::Version::HTTP_2;
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        }
        Ok(request)
    }
}

/// What an answer says of the raise of this token.
fn judge<R>(token: &FencingToken, answer: &Response<R>) -> Result<(), FenceError> {
    if let Some(refusal) = Refusal::from_headers(answer.headers()) {
        // A refusal of somebody else's token says nothing about this one. A header has no session, so that is not compared.
        let same = |refused: &FencingToken| refused.order(token) == Some(Ordering::Equal);
        return match refusal.token().filter(|refused| !same(refused)) {
            None => Err(refusal.to_fence_error()),
            Some(other) => Err(failed(format!("the service refused {other}, which was not sent"))),
        };
    }
    match answer.headers().get(headers::RAISED) {
        Some(raised) if *raised == *token.to_string() => Ok(()),
        _ => Err(failed(format!(
            "the service answered with {} and did not confirm a raise: the URI has to be a route that its FenceLayer or \
             HoldLayer knows as raised_by",
            answer.status()
        ))),
    }
}

fn failed(why: String) -> FenceError {
    FenceError::store("raising the fence of a service", RaiseFailed(why))
}

impl<S, B, R> Fence for RemoteFence<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync,
    S::Future: Send,
    S::Error: fmt::Display + Send,
    B: Send,
    R: Send,
{
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        let mut client = self.client.clone();
        Box::pin(async move {
            let request = self.request(token)?;
            let ready = std::future::poll_fn(|context| client.poll_ready(context)).await;
            ready.map_err(|error| failed(error.to_string()))?;
            let answer = client.call(request).await.map_err(|error| failed(error.to_string()))?;
            judge(token, &answer)
        })
    }

    /// A service does not tell; what it has seen it says when it refuses.
    fn highest<'a>(&'a self, _: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// The layer that confirms a raise is the one that refuses.
impl<S, B, R> Enforces for RemoteFence<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync,
    S::Future: Send,
    S::Error: fmt::Display + Send,
    B: Send,
    R: Send,
{
}

impl<S: Clone, B> Clone for RemoteFence<S, B> {
    fn clone(&self) -> RemoteFence<S, B> {
        RemoteFence { client: self.client.clone(), uri: self.uri.clone(), grpc: self.grpc, body: self.body }
    }
}

impl<S, B> fmt::Debug for RemoteFence<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFence at {}", self.uri)
    }
}
