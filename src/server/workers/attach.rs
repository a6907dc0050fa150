//! The session's stream.
//!
//! One task a stream decides what is sent, in order: an acknowledgement is held back until the assignment it names has
//! gone out. It is woken when something of its session changed, and looks; nothing is queued for it but
//! acknowledgements, and of those only as many as the worker has renewals under way.

use super::assignment::Told;
use super::join::MAX_JOINED_KEYSPACES;
use super::loads;
use super::renewals::{Renewal, Renewals};
use crate::context::Context;
use crate::credentials::{check, check_origin, session_id};
use crate::drills::Seat;
use ringfence_api::Failure;
use ringfence_api::convert::checked;
use ringfence_api::v1::{self, attach_request, attach_response};
use ringfence_core::ids::{KeyspaceName, SessionId, Term};
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

/// Renewals of one stream that are not answered yet, or whose answer it has not read. A worker has one or two under way; a
/// stream with more is ended, so that nobody fills the queue that all renewals share.
const MAX_UNANSWERED: usize = 64;
/// How long a stream may take to say whose it is.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// What a worker's stream yields.
pub(super) type Attached = Pin<Box<dyn Stream<Item = Result<v1::AttachResponse, Status>> + Send>>;

/// What others put into a stream.
pub(super) struct Outbox {
    inner: Mutex<Waiting>,
    waker: Arc<Notify>,
    /// Nobody reads any more. A renewal of such a stream must not extend a lease: its answer would reach nobody.
    closed: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    /// Renewals taken in and not answered yet.
    under_way: usize,
    acknowledgements: VecDeque<v1::Acknowledgement>,
    failure: Option<Failure>,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            inner: Mutex::new(Waiting::default()),
            waker: Arc::new(Notify::new()),
            closed: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a renewal in; false when too many are under way.
    pub(super) fn admit(&self) -> bool {
        let mut waiting = self.lock();
        let admitted = waiting.under_way + waiting.acknowledgements.len() < MAX_UNANSWERED;
        waiting.under_way += usize::from(admitted);
        admitted
    }

    /// A renewal will not be answered.
    pub(super) fn give_up(&self) {
        let mut waiting = self.lock();
        waiting.under_way = waiting.under_way.saturating_sub(1);
    }

    /// How many acknowledgements nobody has sent yet.
    #[cfg(test)]
    pub(super) fn acknowledged(&self) -> usize {
        self.lock().acknowledgements.len()
    }

    /// Nobody reads any more.
    pub(super) fn hang_up(&self) {
        self.closed.cancel();
    }

    /// Something was put in, or the session may have ended.
    pub(super) async fn woken(&self) {
        self.waker.notified().await;
    }

    /// The acknowledgement that came first.
    ///
    /// # Errors
    /// What was put in instead of one.
    pub(super) fn take_acknowledged(&self) -> Result<Option<v1::Acknowledgement>, Failure> {
        let mut waiting = self.lock();
        match waiting.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(waiting.acknowledgements.pop_front()),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) fn acknowledge(&self, acknowledgement: v1::Acknowledgement) {
        {
            let mut waiting = self.lock();
            waiting.under_way = waiting.under_way.saturating_sub(1);
            waiting.acknowledgements.push_back(acknowledgement);
        }
        self.wake();
    }

    pub(super) fn fail(&self, failure: Failure) {
        self.lock().failure.get_or_insert(failure);
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.waker.notify_one();
    }
}

/// Opens the stream: finds out whose it is, and that this node may serve it.
pub(super) async fn attach(
    context: &Context,
    renewals: &Arc<Renewals>,
    mut incoming: Streaming<v1::AttachRequest>,
    stop: CancellationToken,
) -> Result<Attached, Failure> {
    let first = tokio::time::timeout(OPEN_PATIENCE, incoming.message()).await;
    let first = first.map_err(|_| Failure::invalid("the stream was not opened in time: send Open first"))?;
    let open = match first.map_err(|status| Failure::decode(&status))?.and_then(|m| m.message) {
        Some(attach_request::Message::Open(open)) => open,
        _ => return Err(Failure::invalid("message: the first message of a stream is Open")),
    };
    check_origin(context, open.protocol, &open.cluster)?;
    let session = session_id(open.session)?;
    let drills = drills(&open.drills)?;
    check(context, session, &open.secret).await?;

    let outbox = Arc::new(Outbox::new());
    let presence = Presence::enter(context, session, Arc::clone(&outbox)).await?;
    let term = presence.term;
    let reader = Reader { context: context.clone(), renewals: Arc::clone(renewals), session, term };
    tokio::spawn(reader.run(incoming, Arc::clone(&outbox)));

    let seat = (!drills.is_empty()).then(|| context.drills.sit(session, drills, Arc::clone(&outbox.waker)));
    let stream = Sender {
        context: context.clone(),
        seat,
        told: Told::nothing(session),
        queue: VecDeque::new(),
        outbox,
        presence,
        stop,
        over: false,
    };
    Ok(Box::pin(futures_util::stream::unfold(stream, Sender::next)))
}

/// The keyspaces of which the worker allows drills.
fn drills(names: &[String]) -> Result<BTreeSet<KeyspaceName>, Failure> {
    if names.len() > MAX_JOINED_KEYSPACES {
        return Err(Failure::invalid(format!(
            "drills: a worker joins at most {MAX_JOINED_KEYSPACES} keyspaces"
        )));
    }
    names.iter().map(|name| Ok(checked::keyspace_name("drills", name)?)).collect()
}

/// A stream counts as the session's presence as long as this lives.
struct Presence {
    context: Context,
    session: SessionId,
    term: Term,
    outbox: Arc<Outbox>,
}

impl Presence {
    async fn enter(context: &Context, session: SessionId, outbox: Arc<Outbox>) -> Result<Presence, Failure> {
        if let Some(term) = Presence::try_enter(context, session, &outbox) {
            return Ok(Presence { context: context.clone(), session, term, outbox });
        }
        // It may lead and not have begun yet: a confirmation waits for what is missing, and knows who leads otherwise.
        context.confirm().await?;
        let term = Presence::try_enter(context, session, &outbox).ok_or_else(Failure::no_leader)?;
        Ok(Presence { context: context.clone(), session, term, outbox })
    }

    fn try_enter(context: &Context, session: SessionId, outbox: &Outbox) -> Option<Term> {
        let local = &mut *context.replica.lock();
        let leadership = local.leadership.as_mut()?;
        leadership.presence.connected(session);
        local.streams.open(session, Arc::clone(&outbox.waker));
        Some(leadership.term())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.outbox.closed.cancel();
        let now = self.context.clock.now();
        let local = &mut *self.context.replica.lock();
        local.streams.close(self.session, &self.outbox.waker);
        if let Some(leadership) = local.leading(self.term) {
            leadership.presence.disconnected(self.session, now);
        }
    }
}

/// Takes renewals in.
struct Reader {
    context: Context,
    renewals: Arc<Renewals>,
    session: SessionId,
    term: Term,
}

impl Reader {
    async fn run(self, mut incoming: Streaming<v1::AttachRequest>, outbox: Arc<Outbox>) {
        let mut told = loads::Told::default();
        loop {
            let message = tokio::select! {
                () = outbox.closed.cancelled() => return,
                message = incoming.message() => match message {
                    Ok(Some(message)) => message.message,
                    // The worker has hung up, or its connection broke: the sender's side is dropped with it.
                    Ok(None) | Err(_) => return outbox.fail(Failure::unavailable("the stream was closed")),
                },
            };
            let renew = match message {
                Some(attach_request::Message::Renew(renew)) => renew,
                Some(attach_request::Message::Loads(message)) => {
                    let now = self.context.clock.now();
                    let local = &mut *self.context.replica.lock();
                    match told.take(now, local, self.term, self.session, &message) {
                        Ok(()) => continue,
                        Err(failure) => return outbox.fail(failure),
                    }
                }
                Some(attach_request::Message::Open(_)) | None => {
                    let why = "message: after Open a stream carries Renew and Loads only";
                    return outbox.fail(Failure::invalid(why));
                }
            };
            if !outbox.admit() {
                let limit =
                    format!("a stream has at most {MAX_UNANSWERED} renewals unanswered; open another");
                return outbox.fail(Failure::limit(limit));
            }
            let arrival = self.context.clock.now();
            match self.context.replica.lock().leading(self.term) {
                Some(leadership) => leadership.lessor.arrived(self.session),
                None => return outbox.fail(Failure::no_leader()),
            }
            self.renewals.push(Renewal {
                session: self.session,
                number: renew.number,
                arrival,
                term: self.term,
                outbox: Arc::clone(&outbox),
            });
        }
    }
}

/// Decides what is sent.
struct Sender {
    context: Context,
    /// Where orders to a drill are put, when the worker allows any.
    seat: Option<Seat>,
    told: Told,
    queue: VecDeque<attach_response::Message>,
    outbox: Arc<Outbox>,
    presence: Presence,
    stop: CancellationToken,
    over: bool,
}

impl Sender {
    async fn next(mut self) -> Option<(Result<v1::AttachResponse, Status>, Sender)> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return Some((Ok(v1::AttachResponse { message: Some(message) }), self));
            }
            if self.over {
                return None;
            }
            if let Err(failure) = self.gather() {
                self.over = true;
                return Some((Err(failure.into()), self));
            }
            if self.queue.is_empty() {
                tokio::select! {
                    () = self.outbox.waker.notified() => {}
                    () = self.stop.cancelled() => {
                        self.over = true;
                        let failure = Failure::unavailable("this node is stopping; ask another");
                        return Some((Err(failure.into()), self));
                    }
                }
            }
        }
    }

    /// Collects what is to be sent now. An end of the session that is in the state was committed, and is final.
    fn gather(&mut self) -> Result<(), Failure> {
        let (acknowledgements, failure) = {
            let mut waiting = self.outbox.lock();
            (std::mem::take(&mut waiting.acknowledgements), waiting.failure.take())
        };
        {
            let local = &mut *self.context.replica.lock();
            let session = self.presence.session;
            if local.state.session(session).is_none()
                && let Some(ended) = local.state.ended(session)
            {
                return Err(Failure::session_ended(session, Some(ended.why)));
            }
            if local.leading(self.presence.term).is_none() {
                return Err(Failure::no_leader());
            }
            // It lived in this very state when the stream was opened, and ended too long ago to be remembered.
            if local.state.session(session).is_none() {
                return Err(Failure::session_ended(session, None));
            }
            self.queue
                .extend(self.told.catch_up(local).into_iter().map(attach_response::Message::Assignment));
        }
        // Answered before the look above, so the assignment they name is in it, or in what was sent before.
        for acknowledgement in acknowledgements {
            if self.told.covers(acknowledgement.revision) {
                self.queue.push_back(attach_response::Message::Acknowledgement(acknowledgement));
            }
        }
        // After the assignment that it speaks of.
        let order = self.seat.as_ref().and_then(Seat::take_order);
        self.queue.extend(order.map(attach_response::Message::Drill));
        failure.map_or(Ok(()), Err)
    }
}
