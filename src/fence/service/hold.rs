//! The layer that holds a scope over a whole call: for handlers whose effect cannot be put into a closure.

use super::layer::{Answer, Door};
use super::routes::Demand;
use super::wire::{is_grpc, response};
use super::{FenceBody, Refusal, Routes, ServiceFence, Stamps};
use crate::token::in_lock_order;
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, HighWater, header, same_cluster};
use http::{Request, Response};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tower_layer::Layer;
use tower_service::Service;

/// A fence that calls hold: from the check until a call has ended, no raise of its scopes returns.
///
/// It stands in front of another fence, which remembers: a [`MemoryFence`](crate::MemoryFence), or a `SqliteRaiser` where what was
/// raised has to outlive this process. **All raises come through here**: one that goes to the fence behind does not wait for
/// calls. And there is one process; two of them with a `CallFence` each over one database do not wait for each other.
///
/// Cloning shares it.
#[derive(Clone)]
pub struct CallFence<F> {
    shared: Arc<Shared<F>>,
}

struct Shared<F> {
    fence: F,
    // One small entry for each scope that was ever raised here or asked for and known; none for what is refused.
    lanes: RwLock<BTreeMap<Scope, Lane>>,
}

/// A scope: whoever has its lock is the only call, or the only raise. Inside is what the fence behind is known to hold.
type Lane = Arc<Mutex<Option<HighWater>>>;

/// The scopes of a call, held until it is dropped.
pub(super) struct Entered {
    _held: Vec<OwnedMutexGuard<Option<HighWater>>>,
}

impl<F: ServiceFence> CallFence<F> {
    /// Calls hold the scopes of this fence from here on.
    pub fn new(fence: F) -> CallFence<F> {
        CallFence { shared: Arc::new(Shared { fence, lanes: RwLock::default() }) }
    }

    /// The fence behind, to look at. Raise through this one.
    pub fn behind(&self) -> &F {
        &self.shared.fence
    }

    /// Waits for the calls of these scopes that have begun, checks, and holds the scopes.
    pub(super) async fn enter(&self, tokens: &[FencingToken]) -> Result<Entered, FenceError> {
        let fence = &self.shared.fence;
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        tokens.iter().try_for_each(|token| same_cluster(fence.cluster(), token))?;
        let mut held: Vec<OwnedMutexGuard<Option<HighWater>>> = Vec::with_capacity(tokens.len());
        for (index, token) in tokens.iter().enumerate() {
            if tokens[..index].iter().any(|before| before.scope() == token.scope()) {
                // The newest of a scope came first, so an older one beside it is refused, and the same one is held already.
                let newest =
                    tokens.iter().find(|t| t.scope() == token.scope()).map_or(token.epoch(), |t| t.epoch());
                HighWater::check(Some(HighWater::new(newest, None)), token)?;
                continue;
            }
            let mut row = self.known(token).await?.lock_owned().await;
            let known = match *row {
                Some(known) => Some(known),
                None => fence.highest(token.scope()).await?.map(|epoch| HighWater::new(epoch, None)),
            };
            HighWater::check(known, token)?;
            *row = known;
            held.push(row);
        }
        // All are accepted, so what they bring in is remembered, and durably, before a handler runs.
        let scopes = tokens
            .iter()
            .enumerate()
            .filter(|(index, token)| tokens[..*index].iter().all(|before| before.scope() != token.scope()));
        for ((_, token), row) in scopes.zip(&mut held) {
            let next = HighWater::check(**row, token)?;
            if row.is_none_or(|known| known != next) {
                // Unknown while it is under way: should it fail or be dropped, the next one asks the fence behind.
                **row = None;
                fence.raise(token).await?;
                **row = Some(next);
            }
        }
        Ok(Entered { _held: held })
    }

    /// The lane of a scope that the fence behind knows: a token that is refused must not make one.
    async fn known(&self, token: &FencingToken) -> Result<Lane, FenceError> {
        if let Some(lane) = self.find(token.scope()) {
            return Ok(lane);
        }
        match self.shared.fence.highest(token.scope()).await? {
            Some(_) => Ok(self.find_or_make(token.scope())),
            None => Err(FenceError::NotRaised { token: token.clone() }),
        }
    }

    fn find(&self, scope: &Scope) -> Option<Lane> {
        self.shared.lanes.read().unwrap_or_else(PoisonError::into_inner).get(scope).cloned()
    }

    fn find_or_make(&self, scope: &Scope) -> Lane {
        let mut lanes = self.shared.lanes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(scope.clone()).or_default())
    }

    async fn raise_through(&self, token: &FencingToken) -> Result<(), FenceError> {
        let fence = &self.shared.fence;
        same_cluster(fence.cluster(), token)?;
        if self.find(token.scope()).is_none() && fence.highest(token.scope()).await?.is_none() {
            // Decide before there is a lane, so that a refused raise leaves none behind.
            HighWater::raise(None, token)?;
        }
        let mut row = self.find_or_make(token.scope()).lock_owned().await;
        // Unknown while it is under way: should it fail or be dropped, the next one asks the fence behind.
        *row = None;
        fence.raise(token).await?;
        *row = Some(HighWater::new(token.epoch(), token.session()));
        Ok(())
    }
}

impl<F: ServiceFence> Fence for CallFence<F> {
    /// Raises, when the calls of the scope that have begun have ended. Calls that come later wait behind it.
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(self.raise_through(token))
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        self.shared.fence.highest(scope)
    }
}

impl<F: ServiceFence> Enforces for CallFence<F> {}

impl<F: fmt::Debug> fmt::Debug for CallFence<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallFence over {:?}", self.shared.fence)
    }
}

/// The layer of a service whose handlers write by themselves: the layer holds the scopes of a call until it has ended, so a new
/// owner's raise returns when no older call is under way.
///
/// What that costs:
///
/// - Calls of one scope come one after another. Those of other scopes do not wait.
/// - A call that hangs holds up the next owner. Put a timeout *under* this layer, and let it end the work and not only the
///   wait.
/// - The handler runs as a task of its own (tokio), to its end, also when its caller goes away: its work may not be dropped in
///   the middle while the scope is let go.
/// - Work that a handler leaves behind, in a task or in the body that it answers with, is outside. It has to write through a fence
///   itself.
///
/// The handler finds the tokens as [`Stamps`] in the extensions of the request, for what it asks of other services.
#[derive(Clone)]
pub struct HoldLayer<F> {
    fence: CallFence<F>,
    door: Door,
}

impl<F: ServiceFence> HoldLayer<F> {
    /// Every request needs a token that this fence accepts.
    pub fn new(fence: CallFence<F>) -> HoldLayer<F> {
        HoldLayer { fence, door: Door::new() }
    }

    /// All but the routes that are named.
    #[must_use]
    pub fn routes(mut self, routes: Routes) -> HoldLayer<F> {
        self.door.routes = Arc::new(routes);
        self
    }

    /// As [`FenceLayer::owner_hint`](super::FenceLayer::owner_hint).
    #[must_use]
    pub fn owner_hint(
        mut self,
        owner: impl Fn(&Scope) -> Option<String> + Send + Sync + 'static,
    ) -> HoldLayer<F> {
        self.door = self.door.hinting(owner);
        self
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterId {
        self.fence.behind().cluster()
    }
}

impl<F: fmt::Debug> fmt::Debug for HoldLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldLayer")
            .field("fence", &self.fence)
            .field("routes", &self.door.routes)
            .finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for HoldLayer<F> {
    type Service = HeldService<S, F>;

    fn layer(&self, inner: S) -> HeldService<S, F> {
        let fence = CallFence { shared: Arc::clone(&self.fence.shared) };
        HeldService { inner, fence, door: self.door.clone() }
    }
}

/// A service whose calls hold their scopes. Made by [`HoldLayer`].
pub struct HeldService<S, F> {
    inner: S,
    fence: CallFence<F>,
    door: Door,
}

impl<S: Clone, F> Clone for HeldService<S, F> {
    fn clone(&self) -> HeldService<S, F> {
        let fence = CallFence { shared: Arc::clone(&self.fence.shared) };
        HeldService { inner: self.inner.clone(), fence, door: self.door.clone() }
    }
}

impl<S: fmt::Debug, F: fmt::Debug> fmt::Debug for HeldService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldService")
            .field("inner", &self.inner)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl<S, F, B, R> Service<Request<B>> for HeldService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: ServiceFence,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<FenceBody<R>>;
    type Error = S::Error;
    type Future = Answer<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let fence = CallFence { shared: Arc::clone(&self.fence.shared) };
        let door = self.door.clone();
        Box::pin(async move {
            let grpc = is_grpc(request.headers());
            let refused = |refusal: Refusal| Ok(response(&door.told(refusal), grpc));
            let (demand, tokens) = match door.look(&request) {
                Ok(looked) => looked,
                Err(refusal) => return refused(refusal),
            };
            let Some(tokens) = tokens else {
                return inner.call(request).await.map(|answer| answer.map(FenceBody::handler));
            };
            let sent = request.headers().get(header::NAME).cloned();
            request.extensions_mut().insert(Stamps::of(tokens.iter().cloned()));
            if demand == Demand::Raise {
                for token in &tokens {
                    if let Err(error) = fence.raise_through(token).await {
                        return refused(Refusal::about(&error, &tokens));
                    }
                }
            }
            let entered = match fence.enter(&tokens).await {
                Ok(entered) => entered,
                Err(error) => return refused(Refusal::about(&error, &tokens)),
            };
            let task = tokio::spawn(async move {
                let answer = inner.call(request).await;
                drop(entered);
                answer
            });
            match task.await {
                Ok(Ok(mut answer)) => {
                    door.mark(demand, sent.as_ref(), answer.headers_mut());
                    Ok(answer.map(FenceBody::handler))
                }
                Ok(Err(error)) => Err(error),
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => {
                        let error = std::io::Error::other("the runtime is shutting down");
                        refused(Refusal::from(FenceError::store("running the handler", error)))
                    }
                },
            }
        })
    }
}
