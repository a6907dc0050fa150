//! The service's layer: reads the tokens, refuses what is sure to be refused, and hands the rest to the handler.

use super::routes::Demand;
use super::wire::{is_grpc, response};
use super::{FenceBody, Presented, Reason, Refusal, Routes};
use crate::{Enforces, FenceError, FencingToken, HighWater, MemoryFence, header, same_cluster};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use ringfence_core::ids::{ClusterId, Scope};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A fence that stands in front of a service's handlers.
pub trait ServiceFence: Enforces + Clone + 'static {
    /// The cluster it belongs to.
    fn cluster(&self) -> &ClusterId;

    /// Refuses, without waiting for anything, what is sure to be refused. It saves work and decides nothing: the check that
    /// counts is in one step with the effect.
    ///
    /// # Errors
    /// The refusal.
    fn refuse_early(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        tokens.iter().try_for_each(|token| same_cluster(self.cluster(), token))
    }
}

impl ServiceFence for MemoryFence {
    fn cluster(&self) -> &ClusterId {
        MemoryFence::cluster(self)
    }

    /// Compares and remembers nothing: whether a higher epoch is to be remembered is decided with all tokens of the write.
    fn refuse_early(&self, tokens: &[FencingToken]) -> Result<(), FenceError> {
        tokens.iter().try_for_each(|token| {
            same_cluster(self.cluster(), token)?;
            let seen = self.highest(token.scope()).map(|epoch| HighWater::new(epoch, None));
            HighWater::check(seen, token).map(|_| ())
        })
    }
}

#[cfg(feature = "rusqlite")]
impl ServiceFence for crate::sqlite::SqliteRaiser {
    fn cluster(&self) -> &ClusterId {
        self.fence().cluster()
    }
}

/// Tells who owns a scope now.
type OwnerHint = Arc<dyn Fn(&Scope) -> Option<String> + Send + Sync>;

/// What both layers do before a handler is called.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) routes: Arc<Routes>,
    owner: Option<OwnerHint>,
}

impl Door {
    pub(super) fn new() -> Door {
        Door { routes: Arc::new(Routes::all_fenced()), owner: None }
    }

    pub(super) fn hinting(self, owner: impl Fn(&Scope) -> Option<String> + Send + Sync + 'static) -> Door {
        Door { owner: Some(Arc::new(owner)), ..self }
    }

    /// What is asked of the request, and the tokens it has: `None` where there are none and none are needed.
    pub(super) fn look<B>(
        &self,
        request: &Request<B>,
    ) -> Result<(Demand, Option<Vec<FencingToken>>), Refusal> {
        let demand = self.routes.demand(request.method(), request.uri().path());
        if demand == Demand::Nothing {
            return Ok((demand, None));
        }
        let values = request.headers().get_all(header::NAME).iter().map(HeaderValue::as_bytes);
        let tokens = header::read_all(values).map_err(|error| Refusal::from(&error))?;
        match (demand, tokens) {
            (Demand::Token | Demand::Raise, None) => Err(Refusal::from(FenceError::Unstamped)),
            (demand, tokens) => Ok((demand, tokens)),
        }
    }

    /// The refusal with the owner's address, where it is known.
    pub(super) fn told(&self, refusal: Refusal) -> Refusal {
        let owner = match (&self.owner, refusal.token()) {
            (Some(owner), Some(token)) if refusal.reason() == Reason::Fenced && refusal.owner().is_none() => {
                owner(token.scope())
            }
            _ => None,
        };
        match owner {
            Some(owner) => refusal.with_owner(&owner),
            None => refusal,
        }
    }

    /// What the layer adds to a handler's answer: that the fence was raised; and, where the handler has refused, whose token it
    /// was and who owns the scope.
    pub(super) fn mark(&self, demand: Demand, sent: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if let (Demand::Raise, Some(tokens)) = (demand, sent) {
            headers.insert(super::headers::RAISED, tokens.clone());
        }
        if !headers.contains_key(super::headers::REFUSAL) {
            return;
        }
        // Not every error of a fence names the token; where there was one only, it is that.
        let single = sent.filter(|sent| !sent.as_bytes().contains(&b' '));
        if let Some(single) = single.filter(|_| !headers.contains_key(super::headers::REFUSED_TOKEN)) {
            headers.insert(super::headers::REFUSED_TOKEN, single.clone());
        }
        let Some(refusal) = Refusal::from_headers(headers).filter(|refusal| refusal.owner().is_none()) else {
            return;
        };
        if let Some(owner) = self.told(refusal).owner().and_then(|owner| owner.parse().ok()) {
            headers.insert(super::headers::OWNER, owner);
        }
    }
}

/// The layer of a service whose handlers write through what they are handed. See [`super`].
///
/// It reads `ringfence-token`, refuses a request without one (unless its route is named), with several, or with what is no
/// list of tokens, asks the fence for what is sure to be refused, and puts a [`Presented`] into the extensions. It changes
/// nothing else of the request, and the header stays for the next hop.
#[derive(Clone)]
pub struct FenceLayer<F> {
    fence: F,
    door: Door,
}

impl<F: ServiceFence> FenceLayer<F> {
    /// Every request needs a token that this fence accepts.
    pub fn new(fence: F) -> FenceLayer<F> {
        FenceLayer { fence, door: Door::new() }
    }

    /// All but the routes that are named.
    #[must_use]
    pub fn routes(mut self, routes: Routes) -> FenceLayer<F> {
        self.door.routes = Arc::new(routes);
        self
    }

    /// Tells refused callers who owns the scope now, as far as this service knows. It is called for each refusal as fenced,
    /// so it should look something up and wait for nothing.
    #[must_use]
    pub fn owner_hint(
        mut self,
        owner: impl Fn(&Scope) -> Option<String> + Send + Sync + 'static,
    ) -> FenceLayer<F> {
        self.door = self.door.hinting(owner);
        self
    }
}

impl<F: fmt::Debug> fmt::Debug for FenceLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("fence", &self.fence)
            .field("routes", &self.door.routes)
            .finish_non_exhaustive()
    }
}

impl<S, F: Clone> Layer<S> for FenceLayer<F> {
    type Service = FencedService<S, F>;

    fn layer(&self, inner: S) -> FencedService<S, F> {
        FencedService { inner, fence: self.fence.clone(), door: self.door.clone() }
    }
}

/// A service behind a fence. Made by [`FenceLayer`].
#[derive(Clone)]
pub struct FencedService<S, F> {
    inner: S,
    fence: F,
    door: Door,
}

impl<S: fmt::Debug, F: fmt::Debug> fmt::Debug for FencedService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedService")
            .field("inner", &self.inner)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

pub(super) type Answer<R, E> = Pin<Box<dyn Future<Output = Result<Response<FenceBody<R>>, E>> + Send>>;

impl<S, F, B, R> Service<Request<B>> for FencedService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: ServiceFence,
    B: Send + 'static,
{
    type Response = Response<FenceBody<R>>;
    type Error = S::Error;
    type Future = Answer<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that was found ready is called; what stays behind was not asked yet.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (fence, door) = (self.fence.clone(), self.door.clone());
        Box::pin(async move {
            let grpc = is_grpc(request.headers());
            let refused = |refusal: Refusal| Ok(response(&door.told(refusal), grpc));
            let (demand, tokens) = match door.look(&request) {
                Ok(looked) => looked,
                Err(refusal) => return refused(refusal),
            };
            if let Some(tokens) = &tokens
                && let Err(error) = let_in(&fence, demand, tokens).await
            {
                return refused(Refusal::about(&error, tokens));
            }
            let sent = request.headers().get(header::NAME).cloned();
            let presented = tokens.map(|tokens| Presented::new(fence, tokens));
            if let Some(presented) = &presented {
                request.extensions_mut().insert(presented.clone());
            }
            let mut answer = inner.call(request).await?;
            door.mark(demand, sent.as_ref(), answer.headers_mut());
            if demand == Demand::Token
                && presented.is_some_and(|presented| presented.was_left_unused())
                && says_done(&answer)
            {
                let detail = "the handler answered without writing through the fence: its effect belongs into what \
                              `Presented` gives it (guarded, write, tokens, pass_on), or `without_effect` says that there is none";
                return Ok(response(&Refusal::new(Reason::Unguarded, detail), grpc));
            }
            Ok(answer.map(FenceBody::handler))
        })
    }
}

/// Refuses what is sure to be refused, or raises where the route says so.
async fn let_in<F: ServiceFence>(
    fence: &F,
    demand: Demand,
    tokens: &[FencingToken],
) -> Result<(), FenceError> {
    if demand != Demand::Raise {
        return fence.refuse_early(tokens);
    }
    tokens.iter().try_for_each(|token| same_cluster(fence.cluster(), token))?;
    for token in tokens {
        fence.raise(token).await?;
    }
    Ok(())
}

fn says_done<R>(answer: &Response<R>) -> bool {
    let grpc_error = answer.headers().get("grpc-status").is_some_and(|status| status != "0");
    (answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS) && !grpc_error
}
