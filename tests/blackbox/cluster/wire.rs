//! Sessions spoken by hand, for what the SDK never says and for replies that are lost at a given moment.

use super::{soon, until};
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::map_service_client::MapServiceClient;
use ringfence_api::v1::worker_service_client::WorkerServiceClient;
use ringfence_api::v1::{self, attach_request, attach_response, report_item};
use ringfence_api::{ErrorKind, Failure, PROTOCOL};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

/// The secret of every session that is spoken by hand.
pub(crate) const SECRET: &[u8] = b"swordfish-that-nobody-prints";

pub(crate) async fn channel(endpoint: &str) -> Channel {
    Channel::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap()
}

pub(crate) async fn admin(endpoint: &str) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel(endpoint).await)
}

pub(crate) async fn map(endpoint: &str) -> MapServiceClient<Channel> {
    MapServiceClient::new(channel(endpoint).await)
}

pub(crate) async fn workers(endpoint: &str) -> WorkerServiceClient<Channel> {
    WorkerServiceClient::new(channel(endpoint).await)
}

/// A request id that nobody has used.
pub(crate) fn request_id() -> v1::RequestId {
    v1::RequestId { id: fastrand::u128(1..).to_be_bytes().to_vec().into(), seen_index: u64::MAX }
}

/// The kind of a refusal that a coordinator wrote.
pub(crate) fn refused<T>(answer: Result<Response<T>, Status>) -> ErrorKind {
    let status = answer.err().expect("it must not be accepted");
    Failure::from_status(&status).unwrap_or_else(|| panic!("no coordinator wrote this: {status}")).kind()
}

/// A join that is accepted.
pub(crate) fn join(worker: &str, keyspace: &str) -> v1::JoinRequest {
    v1::JoinRequest {
        protocol: PROTOCOL,
        worker: worker.to_owned(),
        nonce: fastrand::u128(1..).to_be_bytes().to_vec().into(),
        secret_sha256: Sha256::digest(SECRET).to_vec().into(),
        keyspaces: vec![keyspace.to_owned()],
        ..v1::JoinRequest::default()
    }
}

/// The first message of a stream.
pub(crate) fn open(session: u64, secret: &[u8]) -> attach_request::Open {
    attach_request::Open {
        protocol: PROTOCOL,
        cluster: String::new(),
        session,
        secret: secret.to_vec().into(),
        drills: Vec::new(),
    }
}

/// A stream that has begun, or why it did not. The sender keeps it open.
pub(crate) async fn attach(
    client: &mut WorkerServiceClient<Channel>,
    first: attach_request::Message,
) -> (mpsc::Sender<v1::AttachRequest>, Result<Response<Streaming<v1::AttachResponse>>, Status>) {
    let (requests, outgoing) = mpsc::channel(8);
    requests.send(v1::AttachRequest { message: Some(first) }).await.unwrap();
    let answer = soon("the stream is answered", client.attach(ReceiverStream::new(outgoing))).await;
    (requests, answer)
}

/// One session with its stream.
pub(crate) struct Session {
    pub(crate) client: WorkerServiceClient<Channel>,
    pub(crate) id: u64,
    pub(crate) cluster: String,
    requests: mpsc::Sender<v1::AttachRequest>,
    answers: Streaming<v1::AttachResponse>,
    renewals: u64,
}

impl Session {
    pub(crate) async fn open(endpoint: &str, worker: &str, keyspace: &str) -> Session {
        let mut client = workers(endpoint).await;
        let joined = client.join(join(worker, keyspace)).await.unwrap().into_inner();
        let first = attach_request::Message::Open(open(joined.session, SECRET));
        let (requests, answers) = attach(&mut client, first).await;
        let answers = answers.unwrap().into_inner();
        Session { client, id: joined.session, cluster: joined.cluster, requests, answers, renewals: 0 }
    }

    /// Sends a renewal.
    pub(crate) async fn renew(&mut self) {
        self.renewals += 1;
        let renew = attach_request::Renew { number: self.renewals };
        let message = Some(attach_request::Message::Renew(renew));
        // A stream that has ended takes none; its end is read with the answers.
        let _ = self.requests.send(v1::AttachRequest { message }).await;
    }

    /// The next message, or how the stream ended.
    pub(crate) async fn next(&mut self) -> Result<attach_response::Message, Failure> {
        loop {
            match soon("the stream says something", self.answers.message()).await {
                Ok(Some(answer)) => {
                    if let Some(message) = answer.message {
                        return Ok(message);
                    }
                }
                Ok(None) => return Err(Failure::transport("the stream ended without a word")),
                Err(status) => return Err(Failure::decode(&status)),
            }
        }
    }

    /// The next grant of a partition, under a higher epoch than `above`.
    pub(crate) async fn granted(&mut self, above: u64) -> v1::Held {
        loop {
            if let attach_response::Message::Assignment(assignment) = self.next().await.unwrap()
                && let Some(held) = assignment.held.into_iter().find(|held| held.epoch > above)
            {
                return held;
            }
        }
    }

    /// Tells what became of a partition.
    pub(crate) fn item(held: &v1::Held, what: report_item::What) -> v1::ReportItem {
        v1::ReportItem {
            keyspace: held.keyspace.clone(),
            partition: held.partition,
            epoch: held.epoch,
            what: Some(what),
        }
    }

    pub(crate) fn report_of(&self, items: Vec<v1::ReportItem>) -> v1::ReportRequest {
        v1::ReportRequest { session: self.id, secret: SECRET.to_vec().into(), items, withdraw: false }
    }

    pub(crate) fn release_of(&self, held: &v1::Held) -> v1::ReportRequest {
        let released = report_item::What::Released(report_item::Released {});
        self.report_of(vec![Session::item(held, released)])
    }

    pub(crate) async fn release(&mut self, held: &v1::Held) {
        let report = self.release_of(held);
        self.client.report(report).await.unwrap();
    }

    /// Releases it and takes no more.
    pub(crate) async fn withdraw(&mut self, held: &v1::Held) {
        let report = v1::ReportRequest { withdraw: true, ..self.release_of(held) };
        self.client.report(report).await.unwrap();
    }

    pub(crate) async fn leave(&mut self) {
        let leave = v1::LeaveRequest { session: self.id, secret: SECRET.to_vec().into() };
        self.client.leave(leave).await.unwrap();
    }
}

/// Asks each of these endpoints until one of them, the leader, answers.
pub(crate) async fn at_the_leader<T>(
    endpoints: &[String],
    ask: impl AsyncFn(AdminServiceClient<Channel>) -> Result<Response<T>, Status>,
) -> T {
    until("a leader answers", async || {
        for endpoint in endpoints {
            let Ok(connection) = Channel::from_shared(endpoint.clone()).unwrap().connect().await else {
                continue;
            };
            match ask(AdminServiceClient::new(connection)).await {
                Ok(answer) => return Some(answer.into_inner()),
                Err(status) => {
                    let failure = Failure::decode(&status);
                    assert!(failure.is_retryable(), "{failure}");
                }
            }
        }
        None
    })
    .await
}
