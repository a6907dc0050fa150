//! The service for operators.
//!
//! What changes something goes through the log under the request's id, so that a retry takes effect once, wherever it
//! arrives. Names are looked up in a state that a quorum has confirmed. A request that was answered before is answered
//! again before anything is looked up: what it asked for may be gone since.
//!
//! | module | what it is |
//! |---|---|
//! | `keyspaces` | create, update, delete, list |
//! | `splits` | every partition of a keyspace in two |
//! | `workers` | the workers, in pieces |
//! | `partitions` | the partitions, in pieces, and one with its history |
//! | `moves` | planned moves, and the end of a cooling |
//! | `cluster` | the nodes: status, add, remove, hand over |
//! | `health` | what a person on call wants to know |

mod cluster;
mod health;
mod keyspaces;
mod majority;
pub(crate) mod moves;
pub(crate) mod partitions;
pub(crate) mod request;
mod splits;
mod workers;

#[cfg(test)]
mod tests;

use crate::context::Context;
use crate::drills;
use crate::formation::Formation;
use crate::late;
use crate::raft::Timings;
use keyspaces::ShortestTtl;
use ringfence_api::Failure;
use ringfence_api::v1;
use ringfence_api::v1::admin_service_server::AdminService;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// The service. A clone is the same service.
#[derive(Clone)]
pub(crate) struct Admin {
    formation: Formation,
    context: Arc<OnceLock<Context>>,
    shortest: ShortestTtl,
    leaderless: Duration,
}

/// Pieces of a list.
pub(crate) type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Admin {
    /// The service of a node that may not belong to a cluster yet.
    pub(crate) fn new(formation: Formation, timings: &Timings) -> Admin {
        Admin {
            formation,
            context: Arc::new(OnceLock::new()),
            shortest: ShortestTtl::new(timings),
            leaderless: timings.leaderless(),
        }
    }

    /// The node belongs to a cluster. It comes to once.
    pub(crate) fn open(&self, context: Context) {
        let _ = self.context.set(context);
    }

    /// What a service works with, once the node belongs to a cluster.
    pub(crate) fn context(&self) -> Result<&Context, Failure> {
        self.context.get().ok_or_else(|| late::not_yet(self.formation.progress()))
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn create_keyspace(
        &self,
        request: Request<v1::CreateKeyspaceRequest>,
    ) -> Result<Response<v1::CreateKeyspaceResponse>, Status> {
        let keyspace = keyspaces::create(self.context()?, self.shortest, request.into_inner()).await?;
        Ok(Response::new(v1::CreateKeyspaceResponse { keyspace: Some(keyspace) }))
    }

    async fn update_keyspace(
        &self,
        request: Request<v1::UpdateKeyspaceRequest>,
    ) -> Result<Response<v1::UpdateKeyspaceResponse>, Status> {
        Ok(Response::new(keyspaces::update(self.context()?, self.shortest, request.into_inner()).await?))
    }

    async fn delete_keyspace(
        &self,
        request: Request<v1::DeleteKeyspaceRequest>,
    ) -> Result<Response<v1::DeleteKeyspaceResponse>, Status> {
        keyspaces::delete(self.context()?, request.into_inner()).await?;
        Ok(Response::new(v1::DeleteKeyspaceResponse {}))
    }

    async fn split_keyspace(
        &self,
        request: Request<v1::SplitKeyspaceRequest>,
    ) -> Result<Response<v1::SplitKeyspaceResponse>, Status> {
        let keyspace = splits::split(self.context()?, request.into_inner()).await?;
        Ok(Response::new(v1::SplitKeyspaceResponse { keyspace: Some(keyspace) }))
    }

    async fn list_keyspaces(
        &self,
        _: Request<v1::ListKeyspacesRequest>,
    ) -> Result<Response<v1::ListKeyspacesResponse>, Status> {
        let keyspaces = keyspaces::list(self.context()?).await?;
        Ok(Response::new(v1::ListKeyspacesResponse { keyspaces }))
    }

    type ListWorkersStream = Pieces<v1::ListWorkersResponse>;

    async fn list_workers(
        &self,
        _: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<Self::ListWorkersStream>, Status> {
        Ok(Response::new(workers::list(self.context()?).await?))
    }

    type ListPartitionsStream = Pieces<v1::ListPartitionsResponse>;

    async fn list_partitions(
        &self,
        request: Request<v1::ListPartitionsRequest>,
    ) -> Result<Response<Self::ListPartitionsStream>, Status> {
        Ok(Response::new(partitions::list(self.context()?, request.into_inner()).await?))
    }

    async fn get_partition(
        &self,
        request: Request<v1::GetPartitionRequest>,
    ) -> Result<Response<v1::GetPartitionResponse>, Status> {
        Ok(Response::new(partitions::get(self.context()?, request.into_inner()).await?))
    }

    async fn move_partition(
        &self,
        request: Request<v1::MovePartitionRequest>,
    ) -> Result<Response<v1::MovePartitionResponse>, Status> {
        Ok(Response::new(moves::begin(self.context()?, request.into_inner()).await?))
    }

    async fn end_cooling(
        &self,
        request: Request<v1::EndCoolingRequest>,
    ) -> Result<Response<v1::EndCoolingResponse>, Status> {
        moves::end_cooling(self.context()?, request.into_inner()).await?;
        Ok(Response::new(v1::EndCoolingResponse {}))
    }

    async fn run_drill(
        &self,
        request: Request<v1::RunDrillRequest>,
    ) -> Result<Response<v1::RunDrillResponse>, Status> {
        Ok(Response::new(drills::run(self.context()?, request.into_inner()).await?))
    }

    async fn cluster_status(
        &self,
        _: Request<v1::ClusterStatusRequest>,
    ) -> Result<Response<v1::ClusterStatusResponse>, Status> {
        Ok(Response::new(cluster::status(&self.formation, self.context.get(), self.leaderless)))
    }

    async fn health(&self, _: Request<v1::HealthRequest>) -> Result<Response<v1::HealthResponse>, Status> {
        Ok(Response::new(health::health(&self.formation, self.context()?, self.leaderless).await?))
    }

    async fn add_node(
        &self,
        request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        Box::pin(cluster::add(&self.formation, self.context()?, request.into_inner())).await?;
        Ok(Response::new(v1::AddNodeResponse {}))
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        let removed = cluster::remove(self.context()?, request.into_inner(), self.leaderless).await?;
        Ok(Response::new(v1::RemoveNodeResponse { unchanged: !removed }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<v1::TransferLeadershipRequest>,
    ) -> Result<Response<v1::TransferLeadershipResponse>, Status> {
        let leader = cluster::transfer(self.context()?, request.into_inner()).await?;
        Ok(Response::new(v1::TransferLeadershipResponse { leader: leader.get() }))
    }
}
