//! The service for workers: they open a session, renew one lease for all their partitions, are told what they own, and
//! report what became of it.
//!
//! Only the leader serves it; another node answers "not leader" with a hint and has done nothing. Who acts for a session
//! shows its secret, which the coordinator knows as a hash only.
//!
//! | module | what it is |
//! |---|---|
//! | `join` | opening a session, and when that may end an earlier one |
//! | `attach` | the session's stream |
//! | `loads` | what workers measure of partitions |
//! | `renew` | one renewal and its answer, for sessions without a stream |
//! | `renewals` | renewals, answered together after one confirmation round |
//! | `assignment` | what a session holds, as a picture and as changes to it |
//! | `report` | ready, released, failed, revoke seen |
//! | `drill` | the stream of a drill |

mod assignment;
mod attach;
mod drill;
mod join;
mod loads;
mod renew;
mod renewals;
mod report;
#[cfg(test)]
mod tests;

use crate::context::Context;
use attach::Attached;
use renewals::Renewals;
use ringfence_api::Failure;
use ringfence_api::v1;
use ringfence_api::v1::worker_service_server::WorkerService;
use ringfence_core::state::Command;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// The service. A clone is the same service.
#[derive(Clone)]
pub struct Workers {
    context: Context,
    renewals: Arc<Renewals>,
    stop: CancellationToken,
}

impl Workers {
    /// The service of one node. Its renewals are answered by a task that runs until `stop` is cancelled; streams end
    /// then, too.
    pub fn new(context: Context, stop: CancellationToken) -> Workers {
        let renewals = Arc::new(Renewals::new(context.clone()));
        tokio::spawn(Arc::clone(&renewals).run(stop.clone()));
        Workers { context, renewals, stop }
    }

    async fn left(&self, request: v1::LeaveRequest) -> Result<(), Failure> {
        let session = crate::credentials::session_id(request.session)?;
        match crate::credentials::check(&self.context, session, &request.secret).await {
            Ok(()) => {}
            // A retried leave meets no error.
            Err(failure) if failure.session_end().is_some() => return Ok(()),
            Err(failure) => return Err(failure),
        }
        let outcome = self.context.propose(None, vec![Command::Leave { session }], None).await?;
        outcome.map_err(|refusal| crate::refusal::to_failure(&self.context, &refusal.why))?;
        tracing::info!(%session, "left");
        Ok(())
    }
}

#[tonic::async_trait]
impl WorkerService for Workers {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinResponse>, Status> {
        Ok(Response::new(join::join(&self.context, request.into_inner()).await?))
    }

    type AttachStream = Attached;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Attached>, Status> {
        let incoming = request.into_inner();
        let stream = attach::attach(&self.context, &self.renewals, incoming, self.stop.clone()).await?;
        Ok(Response::new(stream))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        Ok(Response::new(renew::renew(&self.context, &self.renewals, request.into_inner()).await?))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        report::report(&self.context, request.into_inner()).await?;
        Ok(Response::new(v1::ReportResponse {}))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        self.left(request.into_inner()).await?;
        Ok(Response::new(v1::LeaveResponse {}))
    }

    type DrillStream = drill::Told;

    async fn drill(
        &self,
        request: Request<Streaming<v1::DrillRequest>>,
    ) -> Result<Response<drill::Told>, Status> {
        Ok(Response::new(drill::drill(&self.context, request.into_inner(), self.stop.clone()).await?))
    }
}
