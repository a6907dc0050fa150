//! Calls of workers, callers and operators, to a node that serves them.
//!
//! Each input is a few calls, one after the other, to a new node that is a cluster of its own; what an input does is
//! decided by the input alone. They go through a connection and the services that are shipped, so that a message is
//! decoded, checked and carried out as in production. The clock is a paused one: it runs when nothing else does.

use crate::fuzz::judge::{caught, error_is_fit};
use crate::world::Disk;
use bytes::{Buf as _, BufMut as _, Bytes};
use fastrand::Rng;
use hyper_util::rt::TokioIo;
use prost::Message;
use ringfence_api::Failure;
use ringfence_api::state::{decode_state, encode_state};
use ringfence_api::v1::{self, attach_response, drill_request};
use ringfence_core::ids::NodeId;
use ringfence_server::clock::TokioClock;
use ringfence_server::raft::{DialError, Dialer, TcpDialer};
use ringfence_server::{Connection, Coordinator, Incoming, Settings, Surroundings};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// The most calls of one input.
const MAX_CALLS: usize = 24;
/// The most messages of one stream.
const MAX_MESSAGES: usize = 100;
/// Within this a call with one answer has it: what waits for the log, for a quorum or for another node gives up before.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// For this long a stream is listened to before the next call. It stays open.
const LISTENED: Duration = Duration::from_millis(300);
/// The most partitions of a keyspace that is created here. A million of them are allowed, and take seconds.
const MAX_PARTITIONS: u32 = 1_000;

/// What is called: the method, and how it answers. An input names one by its place, so a new one goes to the end.
pub(crate) const METHODS: [(&str, Kind); 50] = [
    ("AdminService/CreateKeyspace", Kind::Answer),
    ("AdminService/UpdateKeyspace", Kind::Answer),
    ("AdminService/DeleteKeyspace", Kind::Answer),
    ("AdminService/ListKeyspaces", Kind::Answer),
    ("AdminService/ListWorkers", Kind::Answer),
    ("AdminService/ListPartitions", Kind::Answer),
    ("AdminService/GetPartition", Kind::Answer),
    ("AdminService/MovePartition", Kind::Answer),
    ("AdminService/EndCooling", Kind::Answer),
    ("AdminService/RunDrill", Kind::Long),
    ("AdminService/ClusterStatus", Kind::Answer),
    ("AdminService/Health", Kind::Answer),
    ("AdminService/AddNode", Kind::Answer),
    ("AdminService/RemoveNode", Kind::Answer),
    ("AdminService/TransferLeadership", Kind::Answer),
    ("MapService/Watch", Kind::Long),
    ("MapService/Lookup", Kind::Answer),
    ("WorkerService/Join", Kind::Answer),
    ("WorkerService/Attach", Kind::Open),
    ("WorkerService/Renew", Kind::Answer),
    ("WorkerService/Report", Kind::Answer),
    ("WorkerService/Leave", Kind::Answer),
    ("WorkerService/Drill", Kind::Open),
    ("PlacementService/SetWorker", Kind::Answer),
    ("PlacementService/ForgetWorker", Kind::Answer),
    ("PlacementService/SetPartition", Kind::Answer),
    ("PlacementService/Freeze", Kind::Answer),
    ("PlacementService/Plan", Kind::Answer),
    ("PlacementService/OpenPlan", Kind::Answer),
    ("PlacementService/ExtendPlan", Kind::Answer),
    ("PlacementService/CancelPlan", Kind::Answer),
    ("PlacementService/ListPlans", Kind::Answer),
    ("PlacementService/Explain", Kind::Answer),
    ("PlacementService/GetWorker", Kind::Answer),
    ("PlacementService/ListSettings", Kind::Answer),
    ("PlacementService/ListDirectives", Kind::Answer),
    ("PlacementService/EvictWorker", Kind::Answer),
    ("PlacementService/ReleaseBrake", Kind::Answer),
    ("FenceService/ReportRefusals", Kind::Answer),
    ("FenceService/ListRefusals", Kind::Answer),
    ("FenceService/Reassert", Kind::Answer),
    ("FenceService/ListReasserts", Kind::Answer),
    ("AdminService/SplitKeyspace", Kind::Answer),
    ("LockService/Acquire", Kind::Answer),
    ("LockService/Release", Kind::Answer),
    ("LockService/Abandon", Kind::Answer),
    ("LockService/List", Kind::Answer),
    ("LockService/Get", Kind::Answer),
    ("LockService/Observe", Kind::Long),
    ("LockService/Break", Kind::Answer),
];

/// Stands for the number of the drill that was ordered last, which nobody can know before.
pub(crate) const DRILL: [u8; 16] = [0xd; 16];

/// How a method answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At once.
    Answer,
    /// For as long as it takes, or as the caller listens.
    Long,
    /// As long, and the caller goes on asking.
    Open,
}

/// What a client does.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Calls {
    #[prost(message, repeated, tag = "1")]
    pub(crate) calls: Vec<OneCall>,
}

/// One call. A stream's requests stay open.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OneCall {
    /// Of [`METHODS`], counted around.
    #[prost(uint32, tag = "1")]
    pub(crate) method: u32,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) messages: Vec<Vec<u8>>,
}

/// Every call is answered, or refused in words that a program can act on; afterwards the node serves, and its state can be
/// written and read again.
pub(super) fn calls(input: &[u8]) -> Result<(), String> {
    let wire = Calls::decode(input).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(tokio::runtime::RngSeed::from_bytes(b"calls"))
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(Box::pin(async {
        let mut world = World::start().await;
        let mut refused = None;
        for call in wire.calls.into_iter().take(MAX_CALLS) {
            let (method, kind) = METHODS[call.method as usize % METHODS.len()];
            if method.ends_with("/CreateKeyspace") && is_large(&call) {
                continue;
            }
            if let Err(status) = world.call(method, kind, call.messages).await {
                refused = refused.or(Some(fit(method, &status)));
            }
        }
        world.serves().await;
        if let Some(panic) = caught() {
            panic!("in a task: {panic}");
        }
        refused.map_or(Ok(()), Err)
    }))
}

fn is_large(call: &OneCall) -> bool {
    let create = call.messages.first().and_then(|bytes| v1::CreateKeyspaceRequest::decode(&**bytes).ok());
    create.is_some_and(|create| create.partitions > MAX_PARTITIONS)
}

/// A refusal says what kind it is, in its details. Of what is no message at all the library says so.
fn fit(method: &str, status: &Status) -> String {
    let message = status.message();
    if let Some(wrong) = error_is_fit(message) {
        panic!("{method}: {wrong}");
    }
    let typed = Failure::from_status(status).is_some();
    let library = match status.code() {
        Code::Internal => {
            message.contains("failed to decode Protobuf message") || message == "Missing request message."
        }
        _ => false,
    };
    assert!(typed || library, "{method}: a refusal that says no kind: {status:?}");
    message.to_owned()
}

/// A call that goes on: its method, its requests where they do not end, and its task.
type Going = (&'static str, Option<mpsc::Sender<Vec<u8>>>, JoinHandle<Result<(), Status>>);

/// A node in memory, and a client of it.
struct World {
    node: Coordinator,
    channel: Channel,
    /// Calls that go on.
    open: Vec<Going>,
    /// The drill that a worker was last ordered to.
    ordered: Arc<Mutex<Bytes>>,
}

impl World {
    async fn start() -> World {
        let (accept, accepted) = mpsc::unbounded_channel::<io::Result<Connection>>();
        let incoming: Incoming = Box::pin(UnboundedReceiverStream::new(accepted));
        let surroundings = Surroundings {
            files: Arc::new(Disk::new(Rng::with_seed(1))),
            dialer: Arc::new(NobodyThere),
            clock: Arc::new(TokioClock::new()),
            seed: Some(1),
        };
        let launch = Coordinator::with(Settings::in_memory()).surroundings(surroundings).incoming(incoming);
        let node = launch.start().await.expect("a node in memory starts");
        let connect = tower::service_fn(move |_| {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let sent = accept.send(Ok(Connection::new(theirs)));
            let sent = sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
            std::future::ready(sent.map(|()| TokioIo::new(ours)))
        });
        let channel = Endpoint::from_static("http://node.invalid:7600").connect_with_connector_lazy(connect);
        World { node, channel, open: Vec::new(), ordered: Arc::default() }
    }

    /// One call, until it is answered; one that stays open, for a while.
    async fn call(&mut self, method: &'static str, kind: Kind, messages: Vec<Vec<u8>>) -> Result<(), Status> {
        let (requests, sent) = mpsc::channel(MAX_MESSAGES);
        for message in messages.into_iter().take(MAX_MESSAGES) {
            let message = if method.ends_with("/Drill") { self.as_ordered(message) } else { message };
            requests.try_send(message).expect("there is room for all");
        }
        let within = match kind {
            Kind::Answer => ANSWER_WITHIN,
            Kind::Long | Kind::Open => LISTENED,
        };
        let requests = (kind == Kind::Open).then_some(requests);
        let mut task = tokio::spawn(talk(self.channel.clone(), method, sent, Arc::clone(&self.ordered)));
        if let Ok(ended) = timeout(within, &mut task).await {
            return ended.expect("a client does not panic");
        }
        assert!(kind != Kind::Answer, "{method}: no answer within {within:?}");
        self.open.push((method, requests, task));
        Ok(())
    }

    /// The first message of a drill's stream, with the number that the coordinator drew.
    fn as_ordered(&self, message: Vec<u8>) -> Vec<u8> {
        let mut wire = match v1::DrillRequest::decode(&*message) {
            Ok(wire) => wire,
            Err(_) => return message,
        };
        if let Some(drill_request::Message::Begin(begin)) = &mut wire.message
            && begin.drill == DRILL[..]
        {
            begin.drill = lock(&self.ordered).clone();
            return wire.encode_to_vec();
        }
        message
    }

    /// The node still does what it is there for, and its state is one.
    async fn serves(&mut self) {
        for method in ["AdminService/ClusterStatus", "AdminService/Health", "AdminService/ListKeyspaces"] {
            let answer = self.call(method, Kind::Answer, vec![Vec::new()]).await;
            answer.unwrap_or_else(|status| panic!("{method} of a node that should serve: {status:?}"));
        }
        let request = v1::RequestId { id: vec![0xff; 16].into(), seen_index: u64::MAX };
        let name = "made-when-all-was-said".to_owned();
        let create =
            v1::CreateKeyspaceRequest { request: Some(request), name, partitions: 2, ..Default::default() };
        let create = vec![create.encode_to_vec()];
        let made = self.call("AdminService/CreateKeyspace", Kind::Answer, create).await;
        made.unwrap_or_else(|status| panic!("a keyspace that should be made: {status:?}"));
        for (method, _requests, task) in self.open.drain(..) {
            if !task.is_finished() {
                task.abort();
            } else if let Err(status) = task.await.expect("a client does not panic") {
                fit(method, &status);
            }
        }
        let context = self.node.context().expect("it belongs to a cluster");
        let state = context.replica.lock().state.clone();
        let bytes = encode_state(&state);
        let again = decode_state(&bytes);
        assert!(again.as_ref() == Ok(&state), "the state does not come back: {:?}", again.err());
    }
}

/// One call, to its end.
async fn talk(
    channel: Channel,
    method: &'static str,
    sent: mpsc::Receiver<Vec<u8>>,
    ordered: Arc<Mutex<Bytes>>,
) -> Result<(), Status> {
    let path = PathAndQuery::try_from(format!("/ringfence.v1.{method}")).expect("it is a path");
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
    let mut answers = grpc.streaming(Request::new(ReceiverStream::new(sent)), path, Raw).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        if method.ends_with("/Attach")
            && let Ok(v1::AttachResponse { message: Some(attach_response::Message::Drill(order)) }) =
                v1::AttachResponse::decode(answer)
        {
            *lock(&ordered) = order.drill;
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dials into the void: a node that was added answers nothing.
struct NobodyThere;

impl Dialer for NobodyThere {
    fn dial(&self, _: NodeId, address: &str) -> Result<Channel, DialError> {
        let endpoint = TcpDialer::default().endpoint(address)?;
        let nobody = || {
            std::future::ready(Err::<TokioIo<tokio::io::DuplexStream>, _>(io::Error::from(
                io::ErrorKind::ConnectionRefused,
            )))
        };
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_| nobody())))
    }
}

/// Messages as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}
