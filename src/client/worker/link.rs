//! The session's stream: renewals out, acknowledgements and assignments in.
//!
//! However a stream ends, it means "connect anew", with one exception: the coordinator says, confirmed by a quorum,
//! that the session has ended.

use super::session::Session;
use crate::error::{Error, ErrorKind};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, Target, Trouble, worker};
use futures_util::future::BoxFuture;
use ringfence_api::v1::{AttachRequest, AttachResponse, attach_request, attach_response};
use ringfence_api::{ErrorKind as Answer, PROTOCOL};
use ringfence_core::lease::lessee::MAX_UNANSWERED;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// How many renewals may wait to be written: as many as may be without an answer. A connection that takes no more is
/// stuck, and is left for it.
const MAX_UNSENT: usize = MAX_UNANSWERED;
/// The wait before the first new connection, and the longest one.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What became of the stream.
pub(super) enum LinkEvent {
    /// It is open. What comes over it starts with a complete picture.
    Opened,
    Message(attach_response::Message),
    /// It is gone, or could not be opened; it will be tried again.
    Closed {
        why: String,
    },
    /// The coordinator has said that the session is over.
    SessionOver {
        why: String,
    },
}

pub(super) struct Link {
    coordinator: Coordinator,
    open: attach_request::Open,
    ttl: Duration,
    state: State,
    backoff: Backoff,
}

enum State {
    Waiting(Instant),
    Opening(BoxFuture<'static, Result<Stream, Error>>),
    Open(Box<Stream>),
    /// Nobody wants it any more.
    Off,
}

struct Stream {
    target: Target,
    incoming: Streaming<AttachResponse>,
    outgoing: mpsc::Sender<AttachRequest>,
}

impl Link {
    /// `drills` names the keyspaces of which the worker allows drills.
    pub(super) fn new(coordinator: Coordinator, session: &Session, drills: Vec<String>) -> Link {
        let open = attach_request::Open {
            protocol: PROTOCOL,
            cluster: session.cluster.to_string(),
            session: session.id.get(),
            secret: session.secret.bytes().into(),
            drills,
        };
        let state = State::Waiting(Instant::now());
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        Link { coordinator, open, ttl: session.timing.ttl(), state, backoff }
    }

    /// Drives it: connects, and connects anew. Cancel safe.
    pub(super) async fn next(&mut self) -> LinkEvent {
        loop {
            match &mut self.state {
                State::Off => std::future::pending().await,
                State::Waiting(until) => {
                    sleep_until(*until).await;
                    self.state =
                        State::Opening(Box::pin(open(self.coordinator.clone(), self.open.clone(), self.ttl)));
                }
                State::Opening(opening) => match opening.await {
                    Ok(stream) => {
                        self.state = State::Open(Box::new(stream));
                        return LinkEvent::Opened;
                    }
                    Err(error) => return self.failed(&error),
                },
                State::Open(stream) => {
                    let ended = match stream.incoming.message().await {
                        Ok(Some(AttachResponse { message: Some(message) })) => {
                            return LinkEvent::Message(message);
                        }
                        // A message from the future says nothing that is needed now.
                        Ok(Some(AttachResponse { message: None })) => continue,
                        Ok(None) => None,
                        Err(status) => Some(status),
                    };
                    let trouble = self.coordinator.stream_ended(&stream.target, ended.as_ref());
                    return self.ended(&trouble);
                }
            }
        }
    }

    /// Sends a renewal. False when the connection takes no more.
    pub(super) fn renew(&mut self, number: u64) -> bool {
        let State::Open(stream) = &self.state else { return false };
        let message = attach_request::Message::Renew(attach_request::Renew { number });
        stream.outgoing.try_send(AttachRequest { message: Some(message) }).is_ok()
    }

    /// Tells of loads, which need not arrive: when renewals wait to be written they are left out.
    pub(super) fn tell(&mut self, loads: attach_request::Loads) {
        let State::Open(stream) = &self.state else { return };
        if stream.outgoing.capacity() > MAX_UNSENT / 2 {
            let message = Some(attach_request::Message::Loads(loads));
            // It has room: nobody else writes to it.
            let _ = stream.outgoing.try_send(AttachRequest { message });
        }
    }

    /// Nothing came for longer than it may take: the peer is gone without a word.
    pub(super) fn silent(&mut self) {
        if let State::Open(stream) = &self.state {
            self.coordinator.stream_silent(&stream.target);
            self.wait();
        }
    }

    /// What came makes no sense. Another connection may do better.
    pub(super) fn reset(&mut self) {
        if matches!(self.state, State::Open(_)) {
            self.wait();
        }
    }

    /// A renewal was acknowledged: the connection is good.
    pub(super) fn is_good(&mut self) {
        self.backoff.reset();
    }

    /// Hangs up, for good.
    pub(super) fn hang_up(&mut self) {
        self.state = State::Off;
    }

    fn wait(&mut self) {
        self.state = State::Waiting(Instant::now() + self.backoff.wait());
    }

    fn failed(&mut self, error: &Error) -> LinkEvent {
        self.wait();
        let why = error.to_string();
        match error.kind() {
            ErrorKind::SessionEnded | ErrorKind::WrongSecret => LinkEvent::SessionOver { why },
            _ => LinkEvent::Closed { why },
        }
    }

    fn ended(&mut self, trouble: &Trouble) -> LinkEvent {
        self.wait();
        let why = trouble.reason().to_owned();
        match trouble {
            Trouble::Answer(failure)
                if matches!(failure.kind(), Answer::SessionEnded | Answer::WrongSecret) =>
            {
                LinkEvent::SessionOver { why }
            }
            _ => LinkEvent::Closed { why },
        }
    }
}

async fn open(coordinator: Coordinator, open: attach_request::Open, ttl: Duration) -> Result<Stream, Error> {
    let patience = (ttl / 8).clamp(Duration::from_millis(100), Duration::from_secs(2));
    let call = Call::new(Route::Leader, Effect::Repeatable).within(ttl / 2).patience(patience);
    let (target, (incoming, outgoing)) = coordinator
        .call_at(call, |channel| {
            let (outgoing, requests) = mpsc::channel(MAX_UNSENT);
            let message = Some(attach_request::Message::Open(open.clone()));
            // The channel is new and has room.
            let opened = outgoing.try_send(AttachRequest { message });
            async move {
                opened.map_err(|error| tonic::Status::internal(error.to_string()))?;
                let answer = worker(channel).attach(ReceiverStream::new(requests)).await?;
                Ok(answer.map(|incoming| (incoming, outgoing)))
            }
        })
        .await?;
    Ok(Stream { target, incoming, outgoing })
}
