//! A scripted coordinator node on a loopback port, for unit tests.

use super::Endpoint;
use ringfence_api::v1::admin_service_server::{AdminService, AdminServiceServer};
use ringfence_api::v1::fence_service_server::{FenceService, FenceServiceServer};
use ringfence_api::v1::lock_service_server::{LockService, LockServiceServer};
use ringfence_api::v1::map_service_server::{MapService, MapServiceServer};
use ringfence_api::v1::placement_service_server::{PlacementService, PlacementServiceServer};
use ringfence_api::v1::{self, WatchRequest, WatchResponse};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

/// A unary call that a fake is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Status,
    Create(v1::CreateKeyspaceRequest),
    Move(v1::MovePartitionRequest),
    RemoveNode(v1::RemoveNodeRequest),
    Partitions(v1::ListPartitionsRequest),
    Lookup(v1::LookupRequest),
    Drill(v1::RunDrillRequest),
    SetWorker(v1::SetWorkerRequest),
    EvictWorker(v1::EvictWorkerRequest),
    ReleaseBrake(v1::ReleaseBrakeRequest),
    ForgetWorker(v1::ForgetWorkerRequest),
    SetPartition(v1::SetPartitionRequest),
    Freeze(v1::FreezeRequest),
    Plan(v1::PlanRequest),
    OpenPlan(v1::OpenPlanRequest),
    ExtendPlan(v1::ExtendPlanRequest),
    CancelPlan(v1::CancelPlanRequest),
    Plans(v1::ListPlansRequest),
    Explain(v1::ExplainRequest),
    Worker(v1::GetWorkerRequest),
    Settings,
    Directives,
    Refusals(v1::ReportRefusalsRequest),
    Refused(v1::ListRefusalsRequest),
    Reassert(v1::ReassertRequest),
    Reasserts(v1::ListReassertsRequest),
    Locks(v1::ListLocksRequest),
    Lock(v1::GetLockRequest),
    Break(v1::BreakLockRequest),
}

/// What a fake answers.
pub(crate) enum Answered {
    Status(v1::ClusterStatusResponse),
    Create(v1::CreateKeyspaceResponse),
    Move(v1::MovePartitionResponse),
    RemoveNode {
        unchanged: bool,
    },
    Partitions(Vec<v1::ListPartitionsResponse>),
    Lookup(v1::LookupResponse),
    Drill(v1::RunDrillResponse),
    Changed(bool),
    Plan(Vec<v1::PlanResponse>),
    Opened(u64),
    Extended(v1::ExtendPlanResponse),
    Plans(Vec<v1::ListPlansResponse>),
    Explain(Box<v1::ExplainResponse>),
    Worker(Box<v1::GetWorkerResponse>),
    Settings(v1::ListSettingsResponse),
    Directives(v1::ListDirectivesResponse),
    Noted,
    Refused(v1::ListRefusalsResponse),
    Reassert(v1::ReassertResponse),
    Reasserts(v1::ListReassertsResponse),
    Locks(Vec<v1::ListLocksResponse>),
    Lock(v1::GetLockResponse),
    Broken(v1::BreakLockResponse),
    /// Nothing, ever.
    Silence,
}

type Script = dyn Fn(Asked) -> Result<Answered, Status> + Send + Sync;

/// The open end of a watch: the request that opened it, and where its messages are put.
pub(crate) type Watched = (WatchRequest, mpsc::Sender<Result<WatchResponse, Status>>);

/// One node that answers by a script. It runs on a thread and a runtime of its own, so that all of its connections
/// break when it is dropped.
pub(crate) struct Fake {
    pub(crate) endpoint: Endpoint,
    asked: Arc<Mutex<Vec<Asked>>>,
    watches: AsyncMutex<mpsc::UnboundedReceiver<Watched>>,
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

#[derive(Clone)]
struct Node {
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<Asked>>>,
    watches: mpsc::UnboundedSender<Watched>,
}

impl Fake {
    /// A node that answers unary calls by this script.
    pub(crate) async fn start(
        script: impl Fn(Asked) -> Result<Answered, Status> + Send + Sync + 'static,
    ) -> Fake {
        Fake::on(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// The same on a listener of the caller's.
    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(Asked) -> Result<Answered, Status> + Send + Sync + 'static,
    ) -> Fake {
        let endpoint = Endpoint::from_address(&listener.local_addr().unwrap().to_string()).unwrap();
        let (watches, watched) = mpsc::unbounded_channel();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let node = Node { script: Arc::new(script), asked: asked.clone(), watches };
        let (stop, stopped) = oneshot::channel();
        let serving = std::thread::spawn(move || serve(listener, node, stopped));
        Fake { endpoint, asked, watches: AsyncMutex::new(watched), serving: Some((stop, serving)) }
    }

    /// A node that serves nothing but watches.
    pub(crate) async fn only_watches() -> Fake {
        Fake::start(|_| Err(Status::unavailable(""))).await
    }

    /// The next watch that is opened.
    pub(crate) async fn watch(&self) -> Watched {
        self.watches.lock().await.recv().await.unwrap()
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some((stop, serving)) = self.serving.take() {
            drop(stop);
            let _ = serving.join();
        }
    }
}

fn serve(listener: TcpListener, node: Node, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let serving = tonic::transport::Server::builder()
            .add_service(AdminServiceServer::new(node.clone()))
            .add_service(PlacementServiceServer::new(node.clone()))
            .add_service(FenceServiceServer::new(node.clone()))
            .add_service(LockServiceServer::new(node.clone()))
            .add_service(MapServiceServer::new(node))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::select! {
            served = serving => served.unwrap(),
            _ = stopped => {}
        }
    });
}

impl Node {
    async fn answer(&self, asked: Asked) -> Result<Answered, Status> {
        self.asked.lock().unwrap().push(asked.clone());
        match (self.script)(asked)? {
            Answered::Silence => std::future::pending().await,
            answered => Ok(answered),
        }
    }
}

type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl MapService for Node {
    type WatchStream = ReceiverStream<Result<WatchResponse, Status>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (messages, stream) = mpsc::channel(64);
        let gone = |_| Status::unavailable("the test is over");
        self.watches.send((request.into_inner(), messages)).map_err(gone)?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn lookup(
        &self,
        request: Request<v1::LookupRequest>,
    ) -> Result<Response<v1::LookupResponse>, Status> {
        match self.answer(Asked::Lookup(request.into_inner())).await? {
            Answered::Lookup(answer) => Ok(Response::new(answer)),
            _ => Err(Status::internal("the script answers something else")),
        }
    }
}

/// The admin service: some calls are answered by the script, the others are not there.
macro_rules! admin_service {
    (
        scripted { $($rpc:ident($request:ident) -> $response:ident, $asked:expr, $answered:pat => $answer:expr;)* }
        absent { $($absent:ident($absent_request:ident) -> $absent_response:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl AdminService for Node {
            type ListWorkersStream = Pieces<v1::ListWorkersResponse>;
            type ListPartitionsStream = Pieces<v1::ListPartitionsResponse>;

            $(async fn $rpc(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                let asked = $asked;
                match self.answer(asked(request.into_inner())).await? {
                    $answered => Ok(Response::new($answer)),
                    _ => Err(Status::internal("the script answers something else")),
                }
            })*

            $(async fn $absent(
                &self,
                _: Request<v1::$absent_request>,
            ) -> Result<Response<v1::$absent_response>, Status> {
                Err(Status::unimplemented(""))
            })*

            async fn list_partitions(
                &self,
                request: Request<v1::ListPartitionsRequest>,
            ) -> Result<Response<Self::ListPartitionsStream>, Status> {
                match self.answer(Asked::Partitions(request.into_inner())).await? {
                    Answered::Partitions(pieces) => {
                        Ok(Response::new(Box::pin(tokio_stream::iter(pieces.into_iter().map(Ok)))))
                    }
                    _ => Err(Status::internal("the script answers something else")),
                }
            }

            async fn list_workers(
                &self,
                _: Request<v1::ListWorkersRequest>,
            ) -> Result<Response<Self::ListWorkersStream>, Status> {
                Err(Status::unimplemented(""))
            }
        }
    };
}

admin_service! {
    scripted {
        cluster_status(ClusterStatusRequest) -> ClusterStatusResponse, |_| Asked::Status, Answered::Status(a) => a;
        create_keyspace(CreateKeyspaceRequest) -> CreateKeyspaceResponse, Asked::Create, Answered::Create(a) => a;
        move_partition(MovePartitionRequest) -> MovePartitionResponse, Asked::Move, Answered::Move(a) => a;
        run_drill(RunDrillRequest) -> RunDrillResponse, Asked::Drill, Answered::Drill(a) => a;
        remove_node(RemoveNodeRequest) -> RemoveNodeResponse, Asked::RemoveNode,
            Answered::RemoveNode { unchanged } => v1::RemoveNodeResponse { unchanged };
    }
    absent {
        update_keyspace(UpdateKeyspaceRequest) -> UpdateKeyspaceResponse;
        delete_keyspace(DeleteKeyspaceRequest) -> DeleteKeyspaceResponse;
        split_keyspace(SplitKeyspaceRequest) -> SplitKeyspaceResponse;
        list_keyspaces(ListKeyspacesRequest) -> ListKeyspacesResponse;
        get_partition(GetPartitionRequest) -> GetPartitionResponse;
        end_cooling(EndCoolingRequest) -> EndCoolingResponse;
        health(HealthRequest) -> HealthResponse;
        add_node(AddNodeRequest) -> AddNodeResponse;
        transfer_leadership(TransferLeadershipRequest) -> TransferLeadershipResponse;
    }
}

/// A service all of which is answered by the script.
macro_rules! scripted_service {
    (
        $service:ident
        unary { $($rpc:ident($request:ident) -> $response:ident, $asked:expr, $answered:pat => $answer:expr;)* }
        pieces { $($list:ident($list_request:ident) -> $stream:ident of $piece:ident, $list_asked:expr, $pieces:pat => $list_answer:expr;)* }
    ) => {
        #[tonic::async_trait]
        impl $service for Node {
            $(async fn $rpc(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                let asked = $asked;
                match self.answer(asked(request.into_inner())).await? {
                    $answered => Ok(Response::new($answer)),
                    _ => Err(Status::internal("the script answers something else")),
                }
            })*

            $(type $stream = Pieces<v1::$piece>;

            async fn $list(&self, request: Request<v1::$list_request>) -> Result<Response<Self::$stream>, Status> {
                let asked = $list_asked;
                match self.answer(asked(request.into_inner())).await? {
                    $pieces => Ok(Response::new(Box::pin(tokio_stream::iter($list_answer.into_iter().map(Ok))))),
                    _ => Err(Status::internal("the script answers something else")),
                }
            })*
        }
    };
}

scripted_service! {
    PlacementService
    unary {
        set_worker(SetWorkerRequest) -> PlacementChanged, Asked::SetWorker,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        evict_worker(EvictWorkerRequest) -> PlacementChanged, Asked::EvictWorker,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        release_brake(ReleaseBrakeRequest) -> PlacementChanged, Asked::ReleaseBrake,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        forget_worker(ForgetWorkerRequest) -> PlacementChanged, Asked::ForgetWorker,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        set_partition(SetPartitionRequest) -> PlacementChanged, Asked::SetPartition,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        freeze(FreezeRequest) -> PlacementChanged, Asked::Freeze,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        open_plan(OpenPlanRequest) -> OpenPlanResponse, Asked::OpenPlan,
            Answered::Opened(plan) => v1::OpenPlanResponse { plan };
        extend_plan(ExtendPlanRequest) -> ExtendPlanResponse, Asked::ExtendPlan,
            Answered::Extended(a) => a;
        cancel_plan(CancelPlanRequest) -> PlacementChanged, Asked::CancelPlan,
            Answered::Changed(changed) => v1::PlacementChanged { changed };
        explain(ExplainRequest) -> ExplainResponse, Asked::Explain, Answered::Explain(a) => *a;
        get_worker(GetWorkerRequest) -> GetWorkerResponse, Asked::Worker, Answered::Worker(a) => *a;
        list_settings(ListSettingsRequest) -> ListSettingsResponse, |_| Asked::Settings, Answered::Settings(a) => a;
        list_directives(ListDirectivesRequest) -> ListDirectivesResponse, |_| Asked::Directives,
            Answered::Directives(a) => a;
    }
    pieces {
        plan(PlanRequest) -> PlanStream of PlanResponse, Asked::Plan, Answered::Plan(pieces) => pieces;
        list_plans(ListPlansRequest) -> ListPlansStream of ListPlansResponse, Asked::Plans,
            Answered::Plans(pieces) => pieces;
    }
}

scripted_service! {
    FenceService
    unary {
        report_refusals(ReportRefusalsRequest) -> ReportRefusalsResponse, Asked::Refusals,
            Answered::Noted => v1::ReportRefusalsResponse {};
        list_refusals(ListRefusalsRequest) -> ListRefusalsResponse, Asked::Refused, Answered::Refused(a) => a;
        reassert(ReassertRequest) -> ReassertResponse, Asked::Reassert, Answered::Reassert(a) => a;
        list_reasserts(ListReassertsRequest) -> ListReassertsResponse, Asked::Reasserts,
            Answered::Reasserts(a) => a;
    }
    pieces {}
}

/// The service for locks as an operator asks it. What a session asks is not there.
#[tonic::async_trait]
impl LockService for Node {
    async fn get(
        &self,
        request: Request<v1::GetLockRequest>,
    ) -> Result<Response<v1::GetLockResponse>, Status> {
        match self.answer(Asked::Lock(request.into_inner())).await? {
            Answered::Lock(answer) => Ok(Response::new(answer)),
            _ => Err(Status::internal("the script answers something else")),
        }
    }

    async fn r#break(
        &self,
        request: Request<v1::BreakLockRequest>,
    ) -> Result<Response<v1::BreakLockResponse>, Status> {
        match self.answer(Asked::Break(request.into_inner())).await? {
            Answered::Broken(answer) => Ok(Response::new(answer)),
            _ => Err(Status::internal("the script answers something else")),
        }
    }

    type ListStream = Pieces<v1::ListLocksResponse>;

    async fn list(
        &self,
        request: Request<v1::ListLocksRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        match self.answer(Asked::Locks(request.into_inner())).await? {
            Answered::Locks(pieces) => {
                Ok(Response::new(Box::pin(tokio_stream::iter(pieces.into_iter().map(Ok)))))
            }
            _ => Err(Status::internal("the script answers something else")),
        }
    }

    type ObserveStream = Pieces<v1::ObserveLockResponse>;

    async fn observe(
        &self,
        _: Request<v1::ObserveLockRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn acquire(
        &self,
        _: Request<v1::AcquireLockRequest>,
    ) -> Result<Response<v1::AcquireLockResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn release(
        &self,
        _: Request<v1::ReleaseLockRequest>,
    ) -> Result<Response<v1::ReleaseLockResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn abandon(
        &self,
        _: Request<v1::AbandonLockRequest>,
    ) -> Result<Response<v1::AbandonLockResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}
