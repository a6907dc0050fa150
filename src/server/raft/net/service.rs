//! The server's half: what this node answers its peers.

use super::Identity;
use super::snapshot::Assembly;
use crate::raft::applier::Applier;
use crate::raft::health::Health;
use crate::raft::limits;
use crate::raft::types::{LogId, Runtime, Types};
use crate::raft::wire::{self, WireError};
use futures_util::StreamExt;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use ringfence_api::v1;
use ringfence_api::v1::raft_server::{Raft, RaftServer};
use ringfence_api::v1::raft_snapshot_chunk::Part;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// When this node last accepted a leader's message.
#[derive(Clone, Debug, Default)]
pub(in crate::raft) struct Contact(Arc<Mutex<Option<Instant>>>);

impl Contact {
    fn made(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(in crate::raft) fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the service needs of its node.
pub(in crate::raft) struct ServiceParts {
    pub(in crate::raft) raft: openraft::Raft<Types, Applier>,
    pub(in crate::raft) identity: Identity,
    pub(in crate::raft) contact: Contact,
    pub(in crate::raft) health: Arc<Health>,
    pub(in crate::raft) seed: u64,
}

/// Answers the peers of one node. To be mounted on the node's port by [`RaftService::server`].
#[derive(Clone)]
pub struct RaftService(Arc<ServiceParts>);

impl RaftService {
    pub(in crate::raft) fn new(parts: ServiceParts) -> RaftService {
        RaftService(Arc::new(parts))
    }

    /// The tonic service, with the limits that the peers' clients have too.
    pub fn server(self) -> RaftServer<RaftService> {
        RaftServer::new(self)
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES)
    }

    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.0.identity.admit(request.metadata()).map_err(|status| *status)
    }

    fn meant(&self, envelope: Option<&v1::RaftEnvelope>) -> Result<(), Status> {
        self.0.identity.meant(envelope).map_err(|status| *status)
    }

    /// Refuses a snapshot that no honest leader sends: its last entry would replace another one that is committed. The
    /// library takes that for a broken invariant, and panics.
    fn fits(&self, last: Option<LogId>) -> Result<(), Status> {
        let committed = self.0.raft.metrics().borrow_watched().local_committed;
        match (committed, last) {
            (Some(committed), Some(last)) if last > committed && last.index() <= committed.index() => {
                Err(Status::failed_precondition(format!(
                    "the snapshot ends at {last}, where {committed} is committed"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Stops this node: a leader's heartbeat names the last entry that the node has acknowledged to it in this very term, and
    /// the log does not have it. The directory is an older copy of itself, or its disk forgot what it had flushed.
    fn gone_back(&self, acknowledged: Option<LogId>) -> Status {
        let Some(acknowledged) = acknowledged else {
            return Status::internal("a log conflicts with the empty one");
        };
        let why = format!(
            "the log of {} lacks entry {}, which this node had acknowledged to the leader of this term: {WENT_BACK}",
            self.0.identity.node,
            acknowledged.index()
        );
        self.0.health.log_went_back(&why);
        Status::failed_precondition(why)
    }

    /// Refuses to vote with a log that went back.
    fn remembers(&self) -> Result<(), Status> {
        match self.0.health.stopped().filter(|_| self.0.health.has_log_gone_back()) {
            Some(why) => Err(Status::failed_precondition(why)),
            None => Ok(()),
        }
    }

    fn append_in(&self, request: v1::RaftAppendRequest) -> Result<AppendEntriesRequest<Types>, Status> {
        self.meant(request.envelope.as_ref())?;
        wire::append_in(request).map_err(senseless)
    }

    /// Feeds a stream of appends to the core and passes on its answers, until one side ends or a request makes no sense.
    fn answer_all(&self, requests: Streaming<v1::RaftAppendRequest>) -> ReceiverStream<AppendAnswer> {
        let refusal = Arc::new(Mutex::new(None::<Status>));
        let (this, refused) = (self.clone(), Arc::clone(&refusal));
        let appends = requests
            .map(move |request| request.and_then(|request| this.append_in(request)))
            // The core has no word for a bad request: the stream ends, and the reason follows its last answer.
            .scan((), move |(), append| {
                let append = append.map_err(|status| {
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                });
                std::future::ready(append.ok())
            });
        let (tx, rx) = mpsc::channel(limits::APPENDS_IN_FLIGHT);
        let this = self.clone();
        // The library's answers borrow its handle, so the task that owns the handle passes them on. It spawns a task too,
        // which needs the scope of a seed although it draws no numbers.
        tokio::spawn(Runtime::scope(self.0.seed, async move {
            let mut results = std::pin::pin!(this.0.raft.stream_append(appends));
            while let Some(result) = results.next().await {
                let answer = match result {
                    Ok(result) => Ok(this.appended(&result)),
                    Err(fatal) => Err(stopped(&fatal)),
                };
                if tx.send(answer).await.is_err() {
                    return;
                }
            }
            let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(status) = refused {
                // An error means that the peer is gone.
                let _ = tx.send(Err(status)).await;
            }
        }));
        ReceiverStream::new(rx)
    }

    fn appended(&self, result: &StreamAppendResult<Types>) -> v1::RaftAppendResponse {
        if result.is_ok() {
            self.0.contact.made();
        }
        wire::appended_out(result, self.0.identity.store)
    }
}

/// What a log that went back means, and what to do.
const WENT_BACK: &str = "its data directory is an older copy of itself, or its disk forgot what it had flushed, and with it \
                         the votes it gave. Remove it from the cluster, and add a new node under a new id";

type AppendAnswer = Result<v1::RaftAppendResponse, Status>;

// Taken by value to be passed to `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn senseless(error: WireError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn stopped(error: &impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this node's Raft has stopped: {error}"))
}

#[tonic::async_trait]
impl Raft for RaftService {
    type AppendStream = ReceiverStream<AppendAnswer>;

    async fn append(
        &self,
        request: Request<Streaming<v1::RaftAppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        self.admit(&request)?;
        Ok(Response::new(self.answer_all(request.into_inner())))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::RaftAppendRequest>,
    ) -> Result<Response<v1::RaftAppendResponse>, Status> {
        self.admit(&request)?;
        let append = self.append_in(request.into_inner())?;
        let prev = append.prev_log_id;
        let last = append.entries.last().map(|e| e.log_id).or(prev);
        let result = self.0.raft.append_entries(append).await.map_err(|e| stopped(&e))?;
        if result.is_conflict() {
            return Err(self.gone_back(prev));
        }
        Ok(Response::new(self.appended(&result.into_stream_result(prev, last))))
    }

    async fn vote(
        &self,
        request: Request<v1::RaftVoteRequest>,
    ) -> Result<Response<v1::RaftVoteResponse>, Status> {
        self.admit(&request)?;
        self.meant(request.get_ref().envelope.as_ref())?;
        self.remembers()?;
        let ask = wire::ask_in(request.into_inner()).map_err(senseless)?;
        let response = self.0.raft.vote(ask).await.map_err(|e| stopped(&e))?;
        Ok(Response::new(wire::voted_out(&response)))
    }

    async fn pre_vote(
        &self,
        request: Request<v1::RaftVoteRequest>,
    ) -> Result<Response<v1::RaftVoteResponse>, Status> {
        self.admit(&request)?;
        self.meant(request.get_ref().envelope.as_ref())?;
        self.remembers()?;
        let ask = wire::ask_in(request.into_inner()).map_err(senseless)?;
        let response = self.0.raft.pre_vote(ask).await.map_err(|e| stopped(&e))?;
        Ok(Response::new(wire::voted_out(&response)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<v1::RaftSnapshotChunk>>,
    ) -> Result<Response<v1::RaftSnapshotResponse>, Status> {
        self.admit(&request)?;
        let mut chunks = request.into_inner();
        let mut assembly = match chunks.message().await?.and_then(|chunk| chunk.part) {
            Some(Part::Header(header)) => {
                self.meant(header.envelope.as_ref())?;
                Assembly::begin(header).map_err(senseless)?
            }
            _ => return Err(Status::invalid_argument("a snapshot begins with its header")),
        };
        while let Some(chunk) = chunks.message().await? {
            match chunk.part {
                Some(Part::Data(data)) => assembly.push(&data).map_err(senseless)?,
                _ => {
                    return Err(Status::invalid_argument(
                        "behind the header of a snapshot there is only data",
                    ));
                }
            }
        }
        let (vote, snapshot) = assembly.finish().map_err(senseless)?;
        self.fits(snapshot.meta.last_log_id)?;
        self.0.contact.made();
        let response = self.0.raft.install_full_snapshot(vote, snapshot).await.map_err(|e| stopped(&e))?;
        Ok(Response::new(v1::RaftSnapshotResponse { vote: Some(wire::vote_out(&response.vote)) }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<v1::RaftTransferRequest>,
    ) -> Result<Response<v1::RaftTransferResponse>, Status> {
        self.admit(&request)?;
        self.meant(request.get_ref().envelope.as_ref())?;
        let transfer = wire::transfer_in(request.into_inner()).map_err(senseless)?;
        let taken = self.0.raft.handle_transfer_leader(transfer).await.map_err(|e| stopped(&e))?;
        let refused = taken.err().map(|e| e.to_string()).unwrap_or_default();
        Ok(Response::new(v1::RaftTransferResponse { refused }))
    }
}
