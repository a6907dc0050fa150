//! The service for operators who decide where partitions are. It is the other half of the service in `admin`.
//!
//! | module | what it is |
//! |---|---|
//! | `settings` | workers, partitions and freezes |
//! | `survey` | plans as they would be, and why a partition is where it is |
//! | `words` | what they say, in sentences |
//! | `plans` | plans that an operator approved |
//! | `history` | what is set, by whom, and what became of a worker |
//! | `brake` | letting the brake go |
//! | `directive` | who wants something, and why |
//! | `whose` | who decided something that stands in the way |

mod brake;
pub(crate) mod directive;
mod history;
mod plans;
mod settings;
mod survey;
pub(crate) mod whose;
mod words;

#[cfg(test)]
mod tests;

use crate::admin::{Admin, Pieces};
use ringfence_api::v1;
use ringfence_api::v1::placement_service_server::PlacementService;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl PlacementService for Admin {
    async fn set_worker(
        &self,
        request: Request<v1::SetWorkerRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(settings::worker(self.context()?, request.into_inner()).await?))
    }

    async fn forget_worker(
        &self,
        request: Request<v1::ForgetWorkerRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(settings::forget(self.context()?, request.into_inner()).await?))
    }

    async fn evict_worker(
        &self,
        request: Request<v1::EvictWorkerRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(settings::evict(self.context()?, request.into_inner()).await?))
    }

    async fn set_partition(
        &self,
        request: Request<v1::SetPartitionRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(settings::partition(self.context()?, request.into_inner()).await?))
    }

    async fn freeze(
        &self,
        request: Request<v1::FreezeRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(settings::freeze(self.context()?, request.into_inner()).await?))
    }

    async fn release_brake(
        &self,
        request: Request<v1::ReleaseBrakeRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(brake::release(self.context()?, request.into_inner()).await?))
    }

    type PlanStream = Pieces<v1::PlanResponse>;

    async fn plan(&self, request: Request<v1::PlanRequest>) -> Result<Response<Self::PlanStream>, Status> {
        Ok(Response::new(survey::plan(self.context()?, request.into_inner()).await?))
    }

    async fn open_plan(
        &self,
        request: Request<v1::OpenPlanRequest>,
    ) -> Result<Response<v1::OpenPlanResponse>, Status> {
        Ok(Response::new(plans::open(self.context()?, request.into_inner()).await?))
    }

    async fn extend_plan(
        &self,
        request: Request<v1::ExtendPlanRequest>,
    ) -> Result<Response<v1::ExtendPlanResponse>, Status> {
        Ok(Response::new(plans::extend(self.context()?, request.into_inner()).await?))
    }

    async fn cancel_plan(
        &self,
        request: Request<v1::CancelPlanRequest>,
    ) -> Result<Response<v1::PlacementChanged>, Status> {
        Ok(Response::new(plans::cancel(self.context()?, request.into_inner()).await?))
    }

    type ListPlansStream = Pieces<v1::ListPlansResponse>;

    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Result<Response<Self::ListPlansStream>, Status> {
        Ok(Response::new(plans::list(self.context()?, request.into_inner()).await?))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        Ok(Response::new(survey::explain(self.context()?, request.into_inner()).await?))
    }

    async fn get_worker(
        &self,
        request: Request<v1::GetWorkerRequest>,
    ) -> Result<Response<v1::GetWorkerResponse>, Status> {
        Ok(Response::new(history::worker(self.context()?, request.into_inner()).await?))
    }

    async fn list_settings(
        &self,
        _: Request<v1::ListSettingsRequest>,
    ) -> Result<Response<v1::ListSettingsResponse>, Status> {
        Ok(Response::new(history::settings(self.context()?).await?))
    }

    async fn list_directives(
        &self,
        _: Request<v1::ListDirectivesRequest>,
    ) -> Result<Response<v1::ListDirectivesResponse>, Status> {
        Ok(Response::new(history::directives(self.context()?).await?))
    }
}
