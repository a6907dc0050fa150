//! The service about fences: what storage refused, and fences that are raised again. It is a part of the service in `admin`.
//!
//! | module | what it is |
//! |---|---|
//! | `gathered` | what the leader was told of refused writes, until it is noted |
//! | `refusals` | telling of refused writes, and listing them |
//! | `words` | what a refused write means, in sentences |
//! | `reasserts` | orders to raise fences again, and how far they are |

mod gathered;
mod reasserts;
mod refusals;
mod words;

#[cfg(test)]
mod tests;

pub use gathered::Gathered;
pub(crate) use gathered::run;
pub(crate) use refusals::add_to_health;

use crate::admin::Admin;
use ringfence_api::v1;
use ringfence_api::v1::fence_service_server::FenceService;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl FenceService for Admin {
    async fn report_refusals(
        &self,
        request: Request<v1::ReportRefusalsRequest>,
    ) -> Result<Response<v1::ReportRefusalsResponse>, Status> {
        refusals::report(self.context()?, request.into_inner())?;
        Ok(Response::new(v1::ReportRefusalsResponse {}))
    }

    async fn list_refusals(
        &self,
        request: Request<v1::ListRefusalsRequest>,
    ) -> Result<Response<v1::ListRefusalsResponse>, Status> {
        Ok(Response::new(refusals::list(self.context()?, request.into_inner()).await?))
    }

    async fn reassert(
        &self,
        request: Request<v1::ReassertRequest>,
    ) -> Result<Response<v1::ReassertResponse>, Status> {
        Ok(Response::new(reasserts::order(self.context()?, request.into_inner()).await?))
    }

    async fn list_reasserts(
        &self,
        request: Request<v1::ListReassertsRequest>,
    ) -> Result<Response<v1::ListReassertsResponse>, Status> {
        Ok(Response::new(reasserts::list(self.context()?, request.into_inner()).await?))
    }
}
