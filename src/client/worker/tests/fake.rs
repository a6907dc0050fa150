//! A scripted coordinator on loopback: it answers as the contract says, and misbehaves on request.

mod locks;

pub(super) use locks::Lock;

use ringfence_api::Failure;
use ringfence_api::convert::SessionEnd;
use ringfence_api::v1::lock_service_server::LockServiceServer;
use ringfence_api::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use ringfence_api::v1::{self, attach_request, attach_response, drill_request, drill_response, report_item};
use ringfence_core::ids::SessionId;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// How long a test waits for what has to happen.
const PATIENCE: Duration = Duration::from_secs(20);

type Push = mpsc::UnboundedSender<Result<v1::AttachResponse, Status>>;

/// What has happened, and what is to happen.
pub(super) struct World {
    pub(super) ttl: Duration,
    pub(super) takeover: v1::Takeover,
    /// Renewals are answered.
    pub(super) answering: bool,
    /// Joins under a name that is held are refused, whatever they say.
    pub(super) duplicate: bool,
    /// The keyspace is not there.
    pub(super) missing: bool,
    /// Joins take effect, and their answers are lost.
    pub(super) join_answers_lost: bool,
    /// The next reports fail with these.
    pub(super) report_failures: Vec<Status>,
    /// Reports that hold an item of this partition are refused.
    pub(super) poisonous: Option<u32>,
    /// It is of a version that takes no word of storage that has seen more.
    pub(super) knows_no_behind: bool,
    pub(super) joins: Vec<v1::JoinRequest>,
    pub(super) renewals: u64,
    pub(super) attached: u64,
    /// What was reported, as `ready 3@1`, in order; `withdraw` among it.
    pub(super) said: Vec<String>,
    pub(super) left: Vec<u64>,
    /// What acknowledgements ask for, and what was told.
    pub(super) measure: Option<v1::Measure>,
    pub(super) loads: Vec<(String, u32, u64)>,
    /// The keyspaces of which the worker allows drills, as its last stream said.
    pub(super) drills: Vec<String>,
    /// What was said on the streams of drills, and how many of them the worker has ended.
    pub(super) drilled: Vec<drill_request::Message>,
    pub(super) drills_ended: u64,
    /// The locks, by name, and what was asked of them.
    pub(super) locks: BTreeMap<String, Lock>,
    pub(super) acquires: Vec<v1::AcquireLockRequest>,
    /// `release nightly@5`, `abandon nightly#3`, in order.
    pub(super) returned: Vec<String>,
    /// The next calls about locks fail with these, without effect.
    pub(super) lock_failures: Vec<Status>,
    /// The next acquire takes effect, and its answer is lost.
    pub(super) acquire_answer_lost: bool,
    /// Acquires are taken, and answered with nothing.
    pub(super) acquires_held: bool,
    /// Changes of locks are not told, except in a complete picture.
    pub(super) silent_about_locks: bool,
    pub(super) lock_epoch: u64,
    lock_answers: BTreeMap<u64, v1::AcquireLockResponse>,
    drill: Option<mpsc::UnboundedSender<Result<v1::DrillResponse, Status>>>,
    session: Option<Session>,
    sessions: u64,
    gone: bool,
    revision: u64,
    partitions: BTreeMap<u32, Partition>,
    streams: Vec<Push>,
}

struct Session {
    id: u64,
    nonce: Vec<u8>,
    secret: Vec<u8>,
}

#[derive(Default)]
struct Partition {
    epoch: u64,
    owned: bool,
    ready: bool,
    drain: Option<Instant>,
    divisor: u32,
    ancestors: Vec<v1::Ancestor>,
}

/// The coordinator: a handle to the world and to its server.
#[derive(Clone)]
pub(super) struct Fake {
    world: Arc<Mutex<World>>,
    changed: Arc<Notify>,
    pub(super) url: String,
    server: AbortHandle,
}

impl Fake {
    pub(super) async fn start(ttl: Duration) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let world = World {
            ttl,
            takeover: v1::Takeover::Lease,
            answering: true,
            duplicate: false,
            missing: false,
            join_answers_lost: false,
            report_failures: Vec::new(),
            poisonous: None,
            knows_no_behind: false,
            joins: Vec::new(),
            renewals: 0,
            attached: 0,
            said: Vec::new(),
            left: Vec::new(),
            measure: None,
            loads: Vec::new(),
            drills: Vec::new(),
            drilled: Vec::new(),
            drills_ended: 0,
            locks: BTreeMap::new(),
            acquires: Vec::new(),
            returned: Vec::new(),
            lock_failures: Vec::new(),
            acquire_answer_lost: false,
            acquires_held: false,
            silent_about_locks: false,
            lock_epoch: 0,
            lock_answers: BTreeMap::new(),
            drill: None,
            session: None,
            sessions: 100,
            gone: false,
            revision: 10,
            partitions: BTreeMap::new(),
            streams: Vec::new(),
        };
        let world = Arc::new(Mutex::new(world));
        let changed = Arc::new(Notify::new());
        let service = Service { world: Arc::clone(&world), changed: Arc::clone(&changed) };
        let server = tonic::transport::Server::builder()
            .add_service(LockServiceServer::new(service.clone()))
            .add_service(WorkerServiceServer::new(service))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { drop(server.await) }).abort_handle();
        Fake { world, changed, url, server }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Waits until the world is so; says what it is when that takes too long.
    pub(super) async fn until(&self, what: &str, so: impl Fn(&World) -> bool) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if so(&self.world()) {
                    return;
                }
                // The timeout covers what changes without a notice.
                let _ = tokio::time::timeout(Duration::from_millis(20), changed).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("never came true: {what}; said {:?}", self.world().said);
        }
    }

    /// Waits until this was reported.
    pub(super) async fn heard(&self, said: &str) {
        self.until(said, |world| world.said.iter().any(|one| one == said)).await;
    }

    /// Grants a partition to the session; returns the epoch.
    pub(super) fn grant(&self, partition: u32) -> u64 {
        let mut world = self.world();
        let place = world.partitions.entry(partition).or_default();
        *place = Partition { epoch: place.epoch + 1, owned: true, ..Default::default() };
        let epoch = place.epoch;
        world.push_held(partition);
        epoch
    }

    /// The same, of a partition that has the keys whose hash modulo `divisor` is its number, and comes from these.
    pub(super) fn grant_split(&self, partition: u32, divisor: u32, ancestors: Vec<v1::Ancestor>) {
        let mut world = self.world();
        let place = world.partitions.entry(partition).or_default();
        let epoch = place.epoch + 1;
        *place = Partition { epoch, owned: true, divisor, ancestors, ..Default::default() };
        world.push_held(partition);
    }

    /// Somebody else had it meanwhile, and nothing was told in between.
    pub(super) fn away_and_back(&self, partition: u32) -> u64 {
        self.world().partitions.get_mut(&partition).unwrap().epoch += 1;
        self.grant(partition)
    }

    /// It is somebody else's from now on, and the session is told.
    pub(super) fn take(&self, partition: u32) {
        self.world().free(partition);
    }

    pub(super) fn drain(&self, partition: u32, left: Duration) {
        let mut world = self.world();
        world.partitions.get_mut(&partition).unwrap().drain = Some(Instant::now() + left);
        world.push_held(partition);
    }

    /// The session has ended.
    pub(super) fn end_session(&self, how: SessionEnd) {
        let mut world = self.world();
        let Some(session) = world.session.take() else { return };
        world.partitions.values_mut().for_each(|place| place.owned = false);
        world.forget_locks();
        let over = Failure::session_ended(SessionId::new(session.id).unwrap(), how);
        for stream in world.streams.drain(..) {
            let _ = stream.send(Err(over.clone().into()));
        }
    }

    /// Every stream ends: with a failure, or as if all were well.
    pub(super) fn close_streams(&self, why: Option<Failure>) {
        for stream in self.world().streams.drain(..) {
            if let Some(why) = &why {
                let _ = stream.send(Err(why.clone().into()));
            }
        }
    }

    /// Sends this to every stream.
    pub(super) fn push(&self, message: attach_response::Message) {
        self.world().push(message);
    }

    /// Orders the worker to a drill.
    pub(super) fn order(&self, order: v1::DrillOrder) {
        self.push(attach_response::Message::Drill(order));
    }

    /// A newer owner is ready.
    pub(super) fn send_now(&self, epoch: u64) {
        let send = drill_response::Message::Send(drill_response::Send { epoch });
        let world = self.world();
        let drill = world.drill.as_ref().unwrap();
        drill.send(Ok(v1::DrillResponse { message: Some(send) })).unwrap();
    }

    /// The drill is over, for the coordinator.
    pub(super) fn end_drill(&self) {
        self.world().drill = None;
    }

    /// The machine is gone: no connection is taken, and none that is open is answered.
    pub(super) fn stop(&self) {
        self.world().gone = true;
        self.server.abort();
        self.close_streams(None);
    }

    /// Opens a session that nobody joined for, with this secret; returns its number.
    pub(super) fn open_session(&self, secret: &[u8]) -> u64 {
        let mut world = self.world();
        world.sessions += 1;
        let id = world.sessions;
        world.session = Some(Session { id, nonce: Vec::new(), secret: Sha256::digest(secret).to_vec() });
        id
    }

    pub(super) fn session(&self) -> Option<u64> {
        self.world().session.as_ref().map(|session| session.id)
    }
}

impl World {
    pub(super) fn said(&self, what: &str) -> usize {
        self.said.iter().filter(|said| *said == what).count()
    }

    fn push(&self, message: attach_response::Message) {
        for stream in &self.streams {
            let _ = stream.send(Ok(v1::AttachResponse { message: Some(message.clone()) }));
        }
    }

    fn held(&self, partition: u32) -> v1::Held {
        let place = &self.partitions[&partition];
        v1::Held {
            keyspace: "orders".to_owned(),
            partition,
            epoch: place.epoch,
            ready: place.ready,
            draining: place.drain.is_some(),
            divisor: place.divisor,
            ancestors: place.ancestors.clone(),
        }
    }

    fn push_held(&mut self, partition: u32) {
        self.revision += 1;
        let held = vec![self.held(partition)];
        self.push(attach_response::Message::Assignment(v1::Assignment {
            revision: self.revision,
            held,
            ..Default::default()
        }));
    }

    fn free(&mut self, partition: u32) {
        let Some(place) = self.partitions.get_mut(&partition).filter(|place| place.owned) else { return };
        place.owned = false;
        place.drain = None;
        let gone = v1::Gone { keyspace: "orders".to_owned(), partition, epoch: place.epoch };
        self.revision += 1;
        self.push(attach_response::Message::Assignment(v1::Assignment {
            revision: self.revision,
            gone: vec![gone],
            ..Default::default()
        }));
    }

    fn picture(&self) -> v1::Assignment {
        let owned = self.partitions.iter().filter(|(_, place)| place.owned);
        let held = owned.map(|(partition, _)| self.held(*partition)).collect();
        let locks = self.held_locks();
        v1::Assignment { revision: self.revision, complete: true, held, locks, ..Default::default() }
    }

    fn acknowledgement(&self, number: u64) -> v1::Acknowledgement {
        let drains = self.partitions.iter().filter_map(|(partition, place)| {
            let left = place.drain.filter(|_| place.owned)?.saturating_duration_since(Instant::now());
            Some(v1::DrainLeft {
                keyspace: "orders".to_owned(),
                partition: *partition,
                epoch: place.epoch,
                left_ms: left.as_millis() as u64,
            })
        });
        let measure = self.measure.clone();
        v1::Acknowledgement { number, revision: self.revision, drains: drains.collect(), measure }
    }

    fn check(&self, session: u64, secret: &[u8]) -> Result<(), Failure> {
        let id = SessionId::new(session).unwrap();
        match &self.session {
            Some(live) if live.id == session => {
                let shown = Sha256::digest(secret).to_vec();
                if shown == live.secret { Ok(()) } else { Err(Failure::wrong_secret(id)) }
            }
            _ => Err(Failure::session_ended(id, SessionEnd::Expired)),
        }
    }
}

#[derive(Clone)]
struct Service {
    world: Arc<Mutex<World>>,
    changed: Arc<Notify>,
}

impl Service {
    /// Returns only while the machine is there.
    async fn there(&self) {
        let gone = self.world.lock().unwrap().gone;
        if gone {
            std::future::pending::<()>().await;
        }
    }
}

#[tonic::async_trait]
impl WorkerService for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::AttachResponse, Status>> + Send>>;

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.joins.push(request.clone());
        self.changed.notify_waiters();
        if world.missing {
            return Err(Failure::not_found("there is no keyspace orders").into());
        }
        if world.duplicate {
            return Err(Failure::duplicate_identity(&request.worker, "10.0.0.1:1", &request.address).into());
        }
        let again = world.session.as_ref().is_some_and(|session| session.nonce == request.nonce);
        if !again {
            if world.session.is_some() && !request.replace {
                return Err(
                    Failure::duplicate_identity(&request.worker, "10.0.0.1:1", &request.address).into()
                );
            }
            world.sessions += 1;
            world.forget_locks();
            world.partitions.values_mut().for_each(|place| place.owned = false);
            world.session = Some(Session {
                id: world.sessions,
                nonce: request.nonce.to_vec(),
                secret: request.secret_sha256.to_vec(),
            });
        }
        if world.join_answers_lost {
            return Err(Failure::unknown_outcome().into());
        }
        let policy = v1::KeyspacePolicy {
            ttl_ms: 10_000,
            takeover: world.takeover.into(),
            max_moves_in_flight: 10,
            balance: true,
            ..Default::default()
        };
        if request.keyspaces.is_empty() {
            return Ok(Response::new(v1::JoinResponse {
                cluster: "test".to_owned(),
                session: world.sessions,
                ttl_ms: request.ttl_ms,
                keyspaces: Vec::new(),
            }));
        }
        Ok(Response::new(v1::JoinResponse {
            cluster: "test".to_owned(),
            session: world.sessions,
            ttl_ms: world.ttl.as_millis() as u64,
            keyspaces: vec![v1::Keyspace {
                name: "orders".to_owned(),
                partitions: 64,
                policy: Some(policy),
                ..Default::default()
            }],
        }))
    }

    async fn attach(
        &self,
        request: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        self.there().await;
        let mut incoming = request.into_inner();
        let Some(attach_request::Message::Open(open)) = incoming.message().await?.and_then(|m| m.message)
        else {
            return Err(Failure::invalid("the first message is Open").into());
        };
        let (push, out) = mpsc::unbounded_channel();
        {
            let mut world = self.world.lock().unwrap();
            world.check(open.session, &open.secret)?;
            world.attached += 1;
            world.drills = open.drills;
            let picture = attach_response::Message::Assignment(world.picture());
            let _ = push.send(Ok(v1::AttachResponse { message: Some(picture) }));
            world.streams.push(push.clone());
        }
        self.changed.notify_waiters();
        let (world, changed) = (Arc::clone(&self.world), Arc::clone(&self.changed));
        // Weak, so that closing a stream means dropping the one sender in the world.
        let push = push.downgrade();
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                let renew = match message.message {
                    Some(attach_request::Message::Renew(renew)) => renew,
                    Some(attach_request::Message::Loads(told)) => {
                        let told = told.keyspaces.into_iter().flat_map(|of| {
                            let pairs = of.partitions.into_iter().zip(of.loads);
                            pairs.map(move |(partition, load)| (of.keyspace.clone(), partition, load))
                        });
                        world.lock().unwrap().loads.extend(told);
                        changed.notify_waiters();
                        continue;
                    }
                    _ => return,
                };
                let mut world = world.lock().unwrap();
                world.renewals += 1;
                if world.answering
                    && let Some(push) = push.upgrade()
                {
                    let ack = attach_response::Message::Acknowledgement(world.acknowledgement(renew.number));
                    let _ = push.send(Ok(v1::AttachResponse { message: Some(ack) }));
                }
                changed.notify_waiters();
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(out))))
    }

    async fn renew(&self, _: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        Err(Status::unimplemented("a worker renews over its stream"))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        if !world.report_failures.is_empty() {
            return Err(world.report_failures.remove(0));
        }
        world.check(request.session, &request.secret)?;
        if request.items.iter().any(|item| Some(item.partition) == world.poisonous) {
            return Err(Failure::invalid("items: one of them is wrong").into());
        }
        if request.withdraw {
            world.said.push("withdraw".to_owned());
        }
        for item in request.items {
            let Some(what) = item.what else { return Err(Failure::invalid("what").into()) };
            let what = match what {
                report_item::What::Ready(_) => "ready".to_owned(),
                report_item::What::Released(_) => "released".to_owned(),
                report_item::What::Restarting(_) => "restarting".to_owned(),
                report_item::What::Returned(_) => "returned".to_owned(),
                report_item::What::Failed(failed) => format!("failed ({})", failed.error),
                report_item::What::Behind(_) if world.knows_no_behind => {
                    return Err(Failure::invalid("items[0].what: it is missing").into());
                }
                report_item::What::Behind(behind) => format!("behind {} of {}", behind.seen, behind.cluster),
                report_item::What::RevokeSeen(_) => "revoke seen".to_owned(),
            };
            let current = world.partitions.get(&item.partition).is_some_and(|p| p.epoch == item.epoch);
            match what.as_str() {
                "ready" if current => {
                    world.partitions.get_mut(&item.partition).unwrap().ready = true;
                    world.push_held(item.partition);
                }
                "ready" | "revoke seen" => {}
                _ if current => world.free(item.partition),
                _ => {}
            }
            world.said.push(format!("{what} {}@{}", item.partition, item.epoch));
        }
        self.changed.notify_waiters();
        Ok(Response::new(v1::ReportResponse {}))
    }

    type DrillStream = UnboundedReceiverStream<Result<v1::DrillResponse, Status>>;

    async fn drill(
        &self,
        request: Request<Streaming<v1::DrillRequest>>,
    ) -> Result<Response<Self::DrillStream>, Status> {
        self.there().await;
        let mut incoming = request.into_inner();
        let Some(drill_request::Message::Begin(begin)) = incoming.message().await?.and_then(|m| m.message)
        else {
            return Err(Failure::invalid("the first message is Begin").into());
        };
        let (tell, told) = mpsc::unbounded_channel();
        {
            let mut world = self.world.lock().unwrap();
            world.check(begin.session, &begin.secret)?;
            world.drill = Some(tell);
        }
        let (world, changed) = (Arc::clone(&self.world), Arc::clone(&self.changed));
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                world.lock().unwrap().drilled.extend(message.message);
                changed.notify_waiters();
            }
            world.lock().unwrap().drills_ended += 1;
            changed.notify_waiters();
        });
        Ok(Response::new(UnboundedReceiverStream::new(told)))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        self.there().await;
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.left.push(request.session);
        if world.check(request.session, &request.secret).is_ok() {
            world.session = None;
            world.forget_locks();
            world.partitions.values_mut().for_each(|place| place.owned = false);
            world.streams.clear();
        }
        self.changed.notify_waiters();
        Ok(Response::new(v1::LeaveResponse {}))
    }
}
