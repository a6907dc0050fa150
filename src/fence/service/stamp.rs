//! The caller's layer: stamps each request with the token of the piece of work that it belongs to.

use crate::FencingToken;
use crate::header::{self, HeaderError};
use http::{HeaderName, HeaderValue, Request};
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// The tokens of one piece of work, in the extensions of a request: `request.extensions_mut().insert(Stamps::of([token]))`,
/// for a request of `http` and of tonic alike.
///
/// Take the token when the work begins, and put this same one on each of its requests and on each retry. A token that
/// is fetched when the request is sent may be that of a later grant, and would make a late write pass for a current one.
///
/// Cloning copies a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Arc<[FencingToken]>);

impl Stamps {
    /// One token for each scope that the work writes to, in any order.
    pub fn of(tokens: impl IntoIterator<Item = FencingToken>) -> Stamps {
        Stamps(tokens.into_iter().collect())
    }

    /// The tokens.
    pub fn tokens(&self) -> &[FencingToken] {
        &self.0
    }
}

impl From<FencingToken> for Stamps {
    fn from(token: FencingToken) -> Stamps {
        Stamps::of([token])
    }
}

/// Where a client that belongs to *one* grant has its token from: the token itself, or `ringfence::Ownership`, which refuses
/// when the ownership is over.
///
/// An implementation answers with the token of that one grant, or an error, for as long as it lives, and never with that of a
/// later grant. So there is none for closures, which would invite "whatever is newest".
pub trait StampSource: Clone {
    /// The token of the grant.
    ///
    /// # Errors
    /// [`NoStamp`] when the grant is over; the request is not sent.
    fn stamp(&self) -> Result<FencingToken, NoStamp>;
}

impl StampSource for FencingToken {
    fn stamp(&self) -> Result<FencingToken, NoStamp> {
        Ok(self.clone())
    }
}

/// The source of [`StampLayer::per_request`]: there is no token but the request's own.
#[derive(Clone, Copy, Debug)]
pub struct PerRequest;

impl StampSource for PerRequest {
    fn stamp(&self) -> Result<FencingToken, NoStamp> {
        Err(NoStamp::new("the request has no Stamps in its extensions"))
    }
}

/// There is no token for a request, so it is not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NoStamp {
    why: String,
}

impl NoStamp {
    /// With what is the matter, for people.
    pub fn new(why: impl Into<String>) -> NoStamp {
        NoStamp { why: why.into() }
    }
}

/// Why a stamped client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StampError<E> {
    /// There is no token; nothing was sent.
    #[error("the request was not sent, for it has no fencing token: {0}")]
    Unstamped(#[from] NoStamp),
    /// The tokens do not go into one header; nothing was sent.
    #[error("the request was not sent, for its fencing tokens do not go together: {0}")]
    Stamps(#[from] HeaderError),
    /// The request has the header already, and nobody knows whose token that is; nothing was sent.
    #[error(
        "the request was not sent: it has the header {} already, and a request is stamped once",
        header::NAME
    )]
    AlreadyStamped,
    /// The client below failed.
    #[error(transparent)]
    Client(E),
}

/// The caller's layer. It adds one header and changes nothing else; what it cannot stamp is not sent.
///
/// Put it *below* a layer that retries: then each attempt carries the token with which the work began.
#[derive(Clone, Copy, Debug)]
pub struct StampLayer<T = PerRequest> {
    source: T,
}

impl StampLayer<PerRequest> {
    /// Each request brings its own [`Stamps`]; one without is not sent. For a client that many pieces of work share.
    pub fn per_request() -> StampLayer<PerRequest> {
        StampLayer { source: PerRequest }
    }
}

impl<T: StampSource> StampLayer<T> {
    /// The client belongs to one grant: `StampLayer::of(ownership.clone())`, or `of(token)`. A request with [`Stamps`] of its own
    /// keeps these.
    pub fn of(source: T) -> StampLayer<T> {
        StampLayer { source }
    }
}

impl<S, T: Clone> Layer<S> for StampLayer<T> {
    type Service = StampedService<S, T>;

    fn layer(&self, inner: S) -> StampedService<S, T> {
        StampedService { inner, source: self.source.clone() }
    }
}

/// A client that stamps its requests. Made by [`StampLayer`].
#[derive(Clone, Debug)]
pub struct StampedService<S, T = PerRequest> {
    inner: S,
    source: T,
}

impl<S, T: StampSource, B> Service<Request<B>> for StampedService<S, T>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = StampError<S::Error>;
    type Future = StampFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(StampError::Client)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match stamped(&self.source, &request) {
            Ok(value) => {
                request.headers_mut().insert(HeaderName::from_static(header::NAME), value);
                StampFuture { of: Of::Sent { future: self.inner.call(request) } }
            }
            Err(error) => StampFuture { of: Of::NotSent { error: Some(error) } },
        }
    }
}

fn stamped<T: StampSource, B, E>(source: &T, request: &Request<B>) -> Result<HeaderValue, StampError<E>> {
    if request.headers().contains_key(header::NAME) {
        return Err(StampError::AlreadyStamped);
    }
    let text = match request.extensions().get::<Stamps>() {
        Some(stamps) => header::write(stamps.tokens())?,
        None => header::write(&[source.stamp()?])?,
    };
    // Letters, digits and a few signs: always a value.
    HeaderValue::try_from(text).map_err(|_| HeaderError::NotText.into())
}

pin_project! {
    /// The answer to a stamped request.
    pub struct StampFuture<F, E> {
        #[pin]
        of: Of<F, E>,
    }
}

pin_project! {
    #[project = OfProjected]
    enum Of<F, E> {
        Sent { #[pin] future: F },
        NotSent { error: Option<StampError<E>> },
    }
}

impl<F, E> fmt::Debug for StampFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StampFuture")
    }
}

impl<F: Future<Output = Result<A, E>>, A, E> Future for StampFuture<F, E> {
    type Output = Result<A, StampError<E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().of.project() {
            OfProjected::Sent { future } => future.poll(context).map_err(StampError::Client),
            OfProjected::NotSent { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                // Polled after its end, which no caller does.
                None => Poll::Pending,
            },
        }
    }
}

impl<E: Error> StampError<E> {
    /// Whether it is certain that nothing was sent.
    pub fn nothing_was_sent(&self) -> bool {
        !matches!(self, StampError::Client(_))
    }
}
