//! The service for named locks: sessions ask for them, give them back and give up waiting; anybody looks at them.
//!
//! The state decides who holds what (`ringfence_core::state`), and the session's stream tells it
//! (`workers::assignment`). Nothing waits here: an acquire is answered at once, with a grant or a place in the queue.
//!
//! | module | what it is |
//! |---|---|
//! | `acquire` | asking for a lock, under a number of the session |
//! | `release` | giving one back, and giving up |
//! | `show` | what is held and waited for, from a confirmed state |
//! | `observe` | who holds one lock, from what this node applied |
//! | `breaking` | an operator takes one from whoever holds it |

mod acquire;
mod breaking;
mod observe;
mod release;
mod show;
#[cfg(test)]
mod tests;

use crate::admin::Pieces;
use crate::contact::Contact;
use crate::context::Context;
use ringfence_api::v1;
use ringfence_api::v1::lock_service_server::LockService;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// The service. A clone is the same service.
#[derive(Clone)]
pub(crate) struct Locks {
    context: Context,
    contact: Contact,
    stop: CancellationToken,
}

impl Locks {
    /// The service of one node. Its streams end when `stop` is cancelled, or when the node has not heard of a leader for
    /// `leaderless`.
    pub(crate) fn new(context: Context, leaderless: Duration, stop: CancellationToken) -> Locks {
        let contact = Contact::watch(context.clone(), leaderless, stop.clone());
        Locks { context, contact, stop }
    }
}

#[tonic::async_trait]
impl LockService for Locks {
    async fn acquire(
        &self,
        request: Request<v1::AcquireLockRequest>,
    ) -> Result<Response<v1::AcquireLockResponse>, Status> {
        Ok(Response::new(acquire::acquire(&self.context, request.into_inner()).await?))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseLockRequest>,
    ) -> Result<Response<v1::ReleaseLockResponse>, Status> {
        release::release(&self.context, request.into_inner()).await?;
        Ok(Response::new(v1::ReleaseLockResponse {}))
    }

    async fn abandon(
        &self,
        request: Request<v1::AbandonLockRequest>,
    ) -> Result<Response<v1::AbandonLockResponse>, Status> {
        release::abandon(&self.context, request.into_inner()).await?;
        Ok(Response::new(v1::AbandonLockResponse {}))
    }

    type ListStream = Pieces<v1::ListLocksResponse>;

    async fn list(
        &self,
        request: Request<v1::ListLocksRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        Ok(Response::new(show::list(&self.context, &request.into_inner()).await?))
    }

    async fn get(
        &self,
        request: Request<v1::GetLockRequest>,
    ) -> Result<Response<v1::GetLockResponse>, Status> {
        Ok(Response::new(show::get(&self.context, &request.into_inner()).await?))
    }

    type ObserveStream = Pieces<v1::ObserveLockResponse>;

    async fn observe(
        &self,
        request: Request<v1::ObserveLockRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        Ok(Response::new(observe::observe(self, &request.into_inner())?))
    }

    async fn r#break(
        &self,
        request: Request<v1::BreakLockRequest>,
    ) -> Result<Response<v1::BreakLockResponse>, Status> {
        Ok(Response::new(breaking::break_lock(&self.context, request.into_inner()).await?))
    }
}
