//! The fence between two services: the caller's layer stamps requests, the service's layer refuses a replaced caller.
//! Layers for `tower`, so for tonic, axum and hyper alike. Feature `tower`; conversions to tonic's `Status`: feature `tonic`.
//!
//! What goes wrong without it: an owner is paused with a request half made, is replaced, wakes up, and sends it. The service
//! behind knows nothing of leases, answers "done", and has undone what the new owner did.
//!
//! ```
//! use http::{Request, Response};
//! use ringfence_core::ids::ClusterId;
//! use ringfence_fence::service::{FenceLayer, Presented, Refusal, StampLayer, Stamps};
//! use ringfence_fence::{FencingToken, MemoryFence};
//! use tower::{Layer, Service, ServiceExt};
//! # use std::convert::Infallible;
//!
//! /// A handler: its effect happens through what the layer hands it, in one step with the check.
//! async fn put(request: Request<String>) -> Result<Response<String>, Infallible> {
//!     let stamped = request.extensions().get::<Presented<MemoryFence>>().expect("the layer is there");
//!     Ok(match stamped.guarded(|| { /* the write */ }) {
//!         Ok(()) => Response::new("done".into()),
//!         Err(error) => Refusal::from(&error).http_response(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fence = MemoryFence::new(ClusterId::new("prod")?);
//! let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
//! fence.raise(&old)?;
//! let service = FenceLayer::new(fence.clone()).layer(tower::service_fn(put));
//! let mut client = StampLayer::per_request().layer(service);
//!
//! let mut request = Request::put("/stock/5").body("7".to_string())?;
//! request.extensions_mut().insert(Stamps::of([old])); // the token of this piece of work, taken when it began
//! fence.raise(&new)?; // meanwhile the partition has a new owner
//! let answer = client.ready().await?.call(request).await?;
//!
//! assert_eq!(answer.status(), 412);
//! let fenced = Refusal::from_headers(answer.headers()).and_then(|refusal| refusal.fenced()).expect("a replaced owner");
//! assert_eq!((fenced.own().get(), fenced.highest().get()), (33, 34));
//! # Ok(())
//! # }
//! ```
//!
//! # Check and effect are one step
//!
//! A layer that compares a token and then calls a handler is check-then-write: a new owner raises the fence while the handler
//! is under way, and the write lands on top of what that owner has read. So there are two layers, and neither is that.
//!
//! | layer | the effect is one step with the check because | cost |
//! |---|---|---|
//! | [`FenceLayer`] | the handler gets a [`Presented`] in the request's extensions and writes through it: [`guarded`](Presented::guarded) in memory, [`write`](Presented::write) in a transaction of SQLite, or the tokens for a store of its own | a comparison |
//! | [`HoldLayer`] | a raise of the scope waits until the handler has ended, and the handler runs to its end also when its caller goes away | calls of one scope come one after another, and a call that hangs holds up the next owner |
//!
//! A handler behind [`FenceLayer`] that answers "done" and has not touched its `Presented` is a mistake, and is answered as
//! one ([`Reason::Unguarded`]): the first request in a test finds it.
//!
//! # What passes without a token
//!
//! Nothing, unless it is named: see [`Routes`]. Reads are no exception by themselves. A read that carries a token is judged like a
//! write, so an owner that was replaced does not go on with what it reads.
//!
//! # What a refusal looks like
//!
//! `proto/HEADER.md` has the table: 412 or `FAILED_PRECONDITION` for a fence's refusal, which nobody retries blindly, with the
//! epochs in headers that read the same in both; 428 without a token; 503 or `UNAVAILABLE` only where nothing was done. The
//! caller reads it back with [`Refusal::from_headers`].
//!
//! # What it is not
//!
//! A token is no password: whoever can reach the service can send any. Authenticate in a layer outside of this one. And the
//! fence is as durable as what it was made of: behind a [`MemoryFence`](crate::MemoryFence) is only what dies with the process.

mod body;
mod details;
mod hold;
mod layer;
mod presented;
mod raise;
mod refusal;
mod routes;
mod stamp;
mod wire;
#[cfg(feature = "tonic")]
mod with_tonic;

pub use body::FenceBody;
pub use hold::{CallFence, HeldService, HoldLayer};
pub use layer::{FenceLayer, FencedService, ServiceFence};
pub use presented::Presented;
pub use raise::{RaiseFailed, RemoteFence};
pub use refusal::{Reason, Refusal};
pub use routes::Routes;
#[cfg(feature = "gateway")]
pub(crate) use wire::json;

pub use stamp::{
    NoStamp, PerRequest, StampError, StampFuture, StampLayer, StampSource, StampedService, Stamps,
};

/// The headers that a refusal has, in HTTP and as metadata of gRPC.
pub mod headers {
    /// Why: [`Reason::as_str`](super::Reason::as_str).
    pub const REFUSAL: &str = "ringfence-refusal";
    /// The token that was refused.
    pub const REFUSED_TOKEN: &str = "ringfence-refused-token";
    /// The highest epoch that the fence has seen of its scope.
    pub const HIGHEST: &str = "ringfence-highest";
    /// The cluster that the fence belongs to, when the token is of another.
    pub const CLUSTER: &str = "ringfence-cluster";
    /// The tokens to which the fence was raised, in the answer to a request of a route that raises.
    pub const RAISED: &str = "ringfence-raised";
    /// Who owns the scope now, as far as the service knows: a hint for people and for routing, and no proof of anything.
    pub const OWNER: &str = "ringfence-owner";
}
