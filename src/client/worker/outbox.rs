//! What the coordinator is to be told about partitions, until it knows.
//!
//! Items go in batches, one call at a time: what comes up while a call is under way goes with the next, so a thousand
//! owners that end together make two calls. A call that failed is made again until it succeeds or the session has
//! ended; every item names its epoch and counts once, so a repeat does no harm.

use super::session::Session;
use super::wire::Place;
use crate::error::{Error, ErrorKind};
use crate::net::{Backoff, Call, Coordinator, Effect, Route, worker};
use futures_util::future::BoxFuture;
use ringfence_api::v1::{ReportItem, ReportRequest, report_item};
use ringfence_core::ids::{ClusterId, Epoch, SessionId};
use ringfence_core::mutant;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How many items go with one call; the coordinator takes no more.
const MAX_ITEMS: usize = 1_000;
/// How much of an owner's error is sent, in bytes; the coordinator keeps 256.
const MAX_ERROR_BYTES: usize = 256;

/// One thing to tell, about one partition under one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) place: Place,
    pub(super) epoch: Epoch,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Ready,
    /// Its task ended because it was revoked.
    Released,
    /// The same, and the worker is being restarted.
    Restarting,
    /// Its task ended by itself.
    Returned,
    Failed(String),
    /// Its task was not started: storage has seen this epoch.
    Behind {
        seen: Epoch,
        cluster: ClusterId,
        error: String,
    },
    RevokeSeen,
}

/// What became of a call.
pub(super) enum Sent {
    /// The coordinator knows.
    Known(Vec<Item>),
    /// Not yet; it goes again.
    Delayed,
    /// The session is over, and nobody wants to know.
    SessionOver { why: String },
}

/// What is to be told. At most a handful of items for each partition that the session held.
pub(super) struct Outbox {
    coordinator: Coordinator,
    session: SessionId,
    secret: Vec<u8>,
    ttl: Duration,
    queue: VecDeque<Item>,
    /// The session takes no more grants: to be said.
    withdraw: bool,
    under_way: Option<UnderWay>,
    not_before: Option<Instant>,
    backoff: Backoff,
    /// The next so many items go one by one: a call with several was refused, and one of them is why.
    singly: usize,
}

struct UnderWay {
    items: Vec<Item>,
    withdraw: bool,
    call: BoxFuture<'static, Result<(), Error>>,
}

impl Outbox {
    pub(super) fn new(coordinator: Coordinator, session: &Session) -> Outbox {
        Outbox {
            coordinator,
            session: session.id,
            secret: session.secret.bytes(),
            ttl: session.timing.ttl(),
            queue: VecDeque::new(),
            withdraw: false,
            under_way: None,
            not_before: None,
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            singly: 0,
        }
    }

    pub(super) fn push(&mut self, item: Item) {
        self.queue.push_back(item);
    }

    /// Says that the session takes no more grants.
    pub(super) fn withdraw(&mut self) {
        self.withdraw = true;
    }

    /// Everything was said, and is known.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.under_way.is_none() && !self.withdraw
    }

    /// What was given back and is not known to the coordinator. It is said no more from here.
    pub(super) fn take_given_back(&mut self) -> Vec<Item> {
        let under_way = self.under_way.take().into_iter().flat_map(|under_way| under_way.items);
        let gives_back = |item: &Item| !matches!(item.what, What::Ready | What::RevokeSeen);
        under_way.chain(self.queue.drain(..)).filter(gives_back).collect()
    }

    /// Nothing more is said.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.withdraw = false;
        self.under_way = None;
    }

    /// Drives the calls; waits for ever while there is nothing to say. Cancel safe.
    pub(super) async fn next(&mut self) -> Sent {
        loop {
            if let Some(under_way) = &mut self.under_way {
                let result = (&mut under_way.call).await;
                return self.came_back(result);
            }
            if self.is_empty() {
                std::future::pending::<()>().await;
            }
            if let Some(at) = self.not_before {
                sleep_until(at).await;
                self.not_before = None;
            }
            self.send();
        }
    }

    fn send(&mut self) {
        let most = if self.singly > 0 { 1 } else { MAX_ITEMS };
        let items: Vec<Item> = self.queue.drain(..self.queue.len().min(most)).collect();
        self.singly = self.singly.saturating_sub(items.len());
        let withdraw = std::mem::take(&mut self.withdraw);
        let request = ReportRequest {
            session: self.session.get(),
            secret: self.secret.clone().into(),
            items: items.iter().map(to_wire).collect(),
            withdraw,
        };
        let coordinator = self.coordinator.clone();
        let call = Call::new(Route::Leader, Effect::Repeatable).within(self.ttl / 2).patience(self.ttl / 4);
        let call = Box::pin(async move {
            coordinator
                .call(call, |channel| {
                    let request = request.clone();
                    async move { worker(channel).report(request).await }
                })
                .await
                .map(drop)
        });
        self.under_way = Some(UnderWay { items, withdraw, call });
    }

    fn came_back(&mut self, result: Result<(), Error>) -> Sent {
        let Some(UnderWay { items, withdraw, .. }) = self.under_way.take() else { return Sent::Delayed };
        let error = match result {
            Ok(()) => {
                self.backoff.reset();
                return Sent::Known(items);
            }
            Err(error) => error,
        };
        match error.kind() {
            _ if mutant!("report-said-once") => return Sent::Known(Vec::new()),
            ErrorKind::SessionEnded | ErrorKind::WrongSecret => {
                return Sent::SessionOver { why: error.to_string() };
            }
            kind if error.is_retryable() || kind == ErrorKind::UnknownOutcome => {
                tracing::debug!(%error, items = items.len(), "the coordinator could not be told yet");
            }
            // Of several, the one that is wrong must not hold up the others.
            _ if items.len() > 1 => {
                tracing::debug!(%error, items = items.len(), "a report was refused; its items go one by one");
                self.singly = self.singly.max(items.len());
            }
            // A coordinator of an older version knows no such item; that the task has ended it has to know all the same.
            _ if let Some(plain) = without_behind(&items) => {
                tracing::warn!(%error, "the coordinator does not take it that storage has seen more; it is told as a failure");
                self.queue.push_front(plain);
                self.withdraw |= withdraw;
                return Sent::Delayed;
            }
            _ => {
                tracing::error!(%error, ?items, "the coordinator refuses this report, and it is dropped");
                // The item was refused, and not what went with it; a call without an item was refused for itself.
                self.withdraw |= withdraw && !items.is_empty();
                return Sent::Known(Vec::new());
            }
        }
        self.withdraw |= withdraw;
        for item in items.into_iter().rev() {
            self.queue.push_front(item);
        }
        self.not_before = Some(Instant::now() + self.backoff.wait());
        Sent::Delayed
    }
}

/// What is left to say of the one item when its storage's epoch is not taken.
fn without_behind(items: &[Item]) -> Option<Item> {
    match items {
        [Item { place, epoch, what: What::Behind { error, .. } }] => {
            Some(Item { place: place.clone(), epoch: *epoch, what: What::Failed(error.clone()) })
        }
        _ => None,
    }
}

fn to_wire(item: &Item) -> ReportItem {
    let what = match &item.what {
        What::Ready => report_item::What::Ready(report_item::Ready {}),
        What::Released => report_item::What::Released(report_item::Released {}),
        What::Restarting => report_item::What::Restarting(report_item::Restarting {}),
        What::Returned => report_item::What::Returned(report_item::Returned {}),
        What::Failed(error) => report_item::What::Failed(report_item::Failed { error: cut(error) }),
        What::Behind { seen, cluster, .. } => {
            let (seen, cluster) = (seen.get(), cluster.to_string());
            report_item::What::Behind(report_item::Behind { seen, cluster })
        }
        What::RevokeSeen => report_item::What::RevokeSeen(report_item::RevokeSeen {}),
    };
    ReportItem {
        keyspace: item.place.keyspace.to_string(),
        partition: item.place.partition.get(),
        epoch: item.epoch.get(),
        what: Some(what),
    }
}

/// The error, cut to what the coordinator takes.
pub(super) fn cut(error: &str) -> String {
    let mut end = error.len().min(MAX_ERROR_BYTES);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error[..end].to_owned()
}
