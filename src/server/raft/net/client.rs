//! The client's half: how this node speaks to its peers.

use super::snapshot;
use super::{Dialer, Identity, Stores};
use crate::raft::applier::LibrarySnapshot;
use crate::raft::limits;
use crate::raft::types::{Peer, Types, Vote};
use crate::raft::wire;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use ringfence_api::v1;
use ringfence_api::v1::raft_client::RaftClient;
use ringfence_core::ids::NodeId;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// What all clients share.
#[derive(Clone)]
pub(in crate::raft) struct PeersConfig {
    pub(in crate::raft) identity: Identity,
    pub(in crate::raft) stores: Stores,
    pub(in crate::raft) dialer: Arc<dyn Dialer>,
    /// How long one append may stay unanswered. The library's own bound is a heartbeat's; an append's answer includes a
    /// flush of the follower's disk, and giving up on it early only makes both do it again.
    pub(in crate::raft) append_patience: Duration,
    /// How long a vote may stay unanswered: it is answered after a flush of the voter's disk. One that comes late is counted
    /// while its candidate still stands, and not otherwise.
    pub(in crate::raft) vote_patience: Duration,
}

/// Makes clients, on connections that outlive them.
pub(in crate::raft) struct Peers {
    config: PeersConfig,
    channels: HashMap<(u64, Purpose), (String, Channel)>,
}

/// What a connection to a peer is for: none of these must wait behind the next, or be taken for dead because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// Heartbeats and votes.
    Urgent,
    /// The log.
    Bulk,
    /// Whole snapshots.
    Snapshots,
}

impl Peers {
    pub(in crate::raft) fn new(config: PeersConfig) -> Peers {
        Peers { config, channels: HashMap::new() }
    }

    fn channel(&mut self, target: u64, address: &str, purpose: Purpose) -> Result<Channel, String> {
        if let Some((known, channel)) = self.channels.get(&(target, purpose))
            && known == address
        {
            return Ok(channel.clone());
        }
        let node = NodeId::new(target).map_err(|e| e.to_string())?;
        let dialer = &self.config.dialer;
        let channel = match purpose {
            Purpose::Urgent | Purpose::Bulk => dialer.dial(node, address),
            Purpose::Snapshots => dialer.dial_for_snapshots(node, address),
        };
        let channel = channel.map_err(|e| e.to_string())?;
        self.channels.insert((target, purpose), (address.to_string(), channel.clone()));
        Ok(channel)
    }

    fn client(&mut self, target: u64, peer: &Peer, heartbeats: bool) -> Client {
        let mut connect = |purpose| {
            self.channel(target, &peer.address, purpose).map(|channel| {
                RaftClient::new(channel)
                    .max_decoding_message_size(limits::MESSAGE_BYTES)
                    .max_encoding_message_size(limits::MESSAGE_BYTES)
            })
        };
        Client {
            urgent: connect(Purpose::Urgent),
            bulk: connect(Purpose::Bulk),
            snapshots: connect(Purpose::Snapshots),
            target,
            heartbeats,
            config: self.config.clone(),
        }
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &Peer) -> Client {
        self.client(target, node, false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Peer) -> Client {
        self.client(target, node, true)
    }
}

/// Speaks to one peer.
pub(in crate::raft) struct Client {
    urgent: Result<RaftClient<Channel>, String>,
    bulk: Result<RaftClient<Channel>, String>,
    snapshots: Result<RaftClient<Channel>, String>,
    target: u64,
    heartbeats: bool,
    config: PeersConfig,
}

/// A failed call in the library's words. It backs off from a peer that cannot be reached, or refuses.
fn failed(status: &Status) -> RPCError<Types> {
    match status.code() {
        Code::Unavailable | Code::FailedPrecondition | Code::Unauthenticated => {
            RPCError::Unreachable(Unreachable::from_string(status.message()))
        }
        _ => RPCError::Network(NetworkError::from_string(format!("{}: {}", status.code(), status.message()))),
    }
}

fn network(why: impl ToString) -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string(why))
}

fn unreachable(why: &str) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::from_string(why))
}

/// A call that ends within `ttl`, whatever the network does.
async fn within<T>(
    ttl: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, RPCError<Types>> {
    match tokio::time::timeout(ttl, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(status)) => Err(failed(&status)),
        Err(_) => Err(network(format!("no answer within {ttl:?}"))),
    }
}

impl Client {
    fn urgent(&self) -> Result<RaftClient<Channel>, RPCError<Types>> {
        self.urgent.clone().map_err(|e| unreachable(&e))
    }

    fn bulk(&self) -> Result<RaftClient<Channel>, RPCError<Types>> {
        self.bulk.clone().map_err(|e| unreachable(&e))
    }

    fn envelope(&self) -> v1::RaftEnvelope {
        self.config.identity.envelope(self.target, self.config.stores.meant(self.target))
    }

    fn appended(
        &self,
        response: v1::RaftAppendResponse,
    ) -> Result<StreamAppendResult<Types>, RPCError<Types>> {
        if !self.config.stores.answered(self.target, response.store) {
            // Its empty log would look like one that went back, which the library takes for a broken invariant.
            return Err(unreachable("the node lost its store: remove it, and add a new one under a new id"));
        }
        wire::appended_in(response).map_err(network)
    }

    /// An answer to a request that was sent when the peer had acknowledged this much to the leader of that term. One that
    /// lacks some of it comes from a log that went back, which the library takes for a broken invariant of its own.
    fn kept(
        &self,
        had: Option<u64>,
        result: StreamAppendResult<Types>,
    ) -> Result<StreamAppendResult<Types>, RPCError<Types>> {
        match &result {
            Err(StreamAppendError::Conflict(at)) if had.is_some_and(|had| at.index() <= had) => {
                Err(unreachable(&format!(
                    "node {} lost entry {}, which it had acknowledged: remove it, and add a new one under a new id",
                    self.target,
                    at.index()
                )))
            }
            _ => Ok(result),
        }
    }

    async fn beat(
        &self,
        request: &AppendEntriesRequest<Types>,
        ttl: Duration,
    ) -> Result<StreamAppendResult<Types>, RPCError<Types>> {
        // It names the last entry that the peer has acknowledged in this term.
        let had = request.prev_log_id.as_ref().map(openraft::LogId::index);
        let request = self.config.identity.request(wire::append_out(request, self.envelope()));
        let mut client = self.urgent()?;
        let response = within(ttl, async { client.heartbeat(request).await }).await?;
        self.kept(had, self.appended(response.into_inner())?)
    }

    async fn append_stream<'s, S>(
        &'s self,
        input: S,
    ) -> Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let mut client = self.bulk()?;
        let flight = Arc::new(Flight::new());
        let (sending, envelope) = (Arc::clone(&flight), self.envelope());
        // A connection is to one life of a process, so what was acknowledged before it was made is what can be missing.
        let begun = Arc::new(OnceLock::new());
        let (begins, stores, target) = (Arc::clone(&begun), self.config.stores.clone(), self.target);
        let out = stream::unfold(input, move |mut input| {
            let (flight, envelope) = (Arc::clone(&sending), envelope.clone());
            let (begins, stores) = (Arc::clone(&begins), stores.clone());
            async move {
                flight.room().await;
                let request = input.next().await?;
                let term = request.vote.leader_id.term;
                begins.get_or_init(|| (term, stores.acknowledged(target, term)));
                flight.sent();
                Some((wire::append_out(&request, envelope), input))
            }
        });
        let patience = self.config.append_patience;
        let request = self.config.identity.request(out);
        let inbound = within(patience, async { client.append(request).await }).await?.into_inner();
        let answers = stream::unfold(Some(inbound), move |inbound| {
            let (flight, begun) = (Arc::clone(&flight), Arc::clone(&begun));
            async move {
                let mut inbound = inbound?;
                let next = loop {
                    if flight.waiting() {
                        break within(patience, inbound.message()).await;
                    }
                    // Nothing is owed: wait as long as it takes, until something is.
                    tokio::select! {
                        biased;
                        answer = inbound.message() => break answer.map_err(|status| failed(&status)),
                        () = flight.something_sent() => {}
                    }
                };
                match next {
                    Ok(None) => None,
                    Ok(Some(response)) => {
                        flight.answered();
                        let (term, had) = begun.get().copied().unwrap_or_default();
                        let result = self.appended(response).and_then(|result| self.kept(had, result));
                        if let Ok(Ok(Some(upto))) = &result {
                            self.config.stores.acknowledges(self.target, term, upto.index());
                        }
                        let goes_on = matches!(result, Ok(Ok(_)));
                        Some((result, goes_on.then_some(inbound)))
                    }
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        Ok(answers.boxed())
    }
}

/// Counts requests of one stream that are not answered yet.
struct Flight {
    room: Semaphore,
    sent: AtomicU64,
    answered: AtomicU64,
    news: Notify,
}

impl Flight {
    fn new() -> Flight {
        Flight {
            room: Semaphore::new(limits::APPENDS_IN_FLIGHT),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            news: Notify::new(),
        }
    }

    async fn room(&self) {
        // The semaphore is never closed.
        if let Ok(permit) = self.room.acquire().await {
            permit.forget();
        }
    }

    fn sent(&self) {
        self.sent.fetch_add(1, Ordering::AcqRel);
        self.news.notify_one();
    }

    async fn something_sent(&self) {
        self.news.notified().await;
    }

    fn answered(&self) {
        self.answered.fetch_add(1, Ordering::AcqRel);
        self.room.add_permits(1);
    }

    fn waiting(&self) -> bool {
        self.sent.load(Ordering::Acquire) > self.answered.load(Ordering::Acquire)
    }
}

impl NetBackoff<Types> for Client {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl NetStreamAppend<Types> for Client {
    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        Box::pin(async move {
            if !self.heartbeats {
                return self.append_stream(input).await;
            }
            // A heartbeat is one request: a stream for each would cost three times the messages.
            let Some(request) = input.next().await else { return Ok(stream::empty().boxed()) };
            let result = self.beat(&request, option.hard_ttl()).await;
            Ok(stream::once(async move { result }).boxed())
        })
    }
}

impl NetVote<Types> for Client {
    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = self.config.identity.request(wire::ask_out(&request, self.envelope()));
        let mut client = self.urgent()?;
        let response = within(self.config.vote_patience, async { client.vote(request).await }).await?;
        wire::voted_in(response.into_inner()).map_err(network)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = self.config.identity.request(wire::ask_out(&request, self.envelope()));
        let mut client = self.urgent()?;
        // It costs no flush, but may wait behind one. It is not to be held against a leader that came up meanwhile.
        let response = within(self.config.append_patience, async { client.pre_vote(request).await }).await?;
        wire::voted_in(response.into_inner()).map_err(network)
    }
}

impl NetSnapshot<Types> for Client {
    type SnapshotData = Bytes;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: LibrarySnapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let chunks = snapshot::chunks(self.envelope(), &vote, &snapshot).map_err(network)?;
        let progress = Arc::new(Notify::new());
        let moved = Arc::clone(&progress);
        let chunks = stream::iter(chunks).inspect(move |_| moved.notify_one());
        let request = self.config.identity.request(chunks);
        let mut client = self.snapshots.clone().map_err(|e| unreachable(&e))?;
        let answer = client.install_snapshot(request);
        // However large it is and however slow the link: it is given up only when it stands still.
        let patience = option.hard_ttl();
        let standstill = async {
            while tokio::time::timeout(patience, progress.notified()).await.is_ok() {}
            network(format!("a snapshot on its way has not moved for {patience:?}"))
        };
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            answer = answer => {
                let response = answer.map_err(|status| failed(&status))?.into_inner();
                Ok(SnapshotResponse::new(wire::vote_in(response.vote).map_err(network)?))
            }
            error = standstill => Err(error.into()),
        }
    }
}

impl NetTransferLeader<Types> for Client {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let request = self.config.identity.request(wire::transfer_out(&request, self.envelope()));
        let mut client = self.urgent()?;
        let response = within(option.hard_ttl(), async { client.transfer_leadership(request).await }).await?;
        match response.into_inner().refused {
            refused if refused.is_empty() => Ok(Ok(())),
            // The library only logs it; its own kind of error would need positions that nobody reads.
            refused => Err(network(format!("the transfer was refused: {refused}"))),
        }
    }
}
