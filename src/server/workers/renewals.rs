//! Renewals, answered together.
//!
//! A renewal notes its arrival and waits. One task takes all that wait, asks a quorum once whether this node still
//! leads, and answers them by the state applied then. The round begins after every arrival it answers for; renewals
//! that arrive meanwhile wait for the next. So the cost of a round is shared by as many as arrive during one, and a
//! quiet cluster answers each at once.

use super::attach::Outbox;
use super::loads;
use crate::context::{Context, not_leader};
use crate::replica::Local;
use ringfence_api::Failure;
use ringfence_api::v1;
use ringfence_core::ids::{SessionId, Term};
use ringfence_core::lease::Verdict;
use ringfence_core::mutant;
use ringfence_core::time::Instant;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many renewals may wait. A worker sends one every sixth of its TTL; what is above this is dropped, and sent again.
const MAX_WAITING: usize = 100_000;

/// A renewal that waits for its answer.
pub(super) struct Renewal {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) arrival: Instant,
    /// The term whose lessor noted the arrival: another one's answer would rest on a clock armed later.
    pub(super) term: Term,
    pub(super) outbox: Arc<Outbox>,
}

/// The renewals of one node.
pub(super) struct Renewals {
    context: Context,
    waiting: Mutex<Vec<Renewal>>,
    arrived: Notify,
}

impl Renewals {
    pub(super) fn new(context: Context) -> Renewals {
        Renewals { context, waiting: Mutex::new(Vec::new()), arrived: Notify::new() }
    }

    /// Takes a renewal in, or drops it when too many wait.
    pub(super) fn push(&self, renewal: Renewal) {
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= MAX_WAITING {
                drop(waiting);
                self.drop_one(&renewal);
                return;
            }
            waiting.push(renewal);
        }
        self.arrived.notify_one();
    }

    fn drop_one(&self, renewal: &Renewal) {
        renewal.outbox.give_up();
        if let Some(leadership) = self.context.replica.lock().leading(renewal.term) {
            leadership.lessor.dropped(renewal.session);
        }
    }

    /// Answers renewals until `stop` is cancelled.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut held: Vec<Renewal> = Vec::new();
        let mut applied = self.context.replica.applied();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.arrived.notified() => {}
                // Those held wait for a clear to apply.
                changed = applied.changed(), if !held.is_empty() => if changed.is_err() { return },
            }
            let mut batch = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            batch.append(&mut held);
            if batch.is_empty() {
                continue;
            }
            if mutant!("renewals-unconfirmed") {
                let term = self.context.raft.status().borrow().term;
                held = self.answer(batch, term);
                continue;
            }
            match self.context.raft.confirm().await {
                Ok(confirmed) => held = self.answer(batch, confirmed.term),
                Err(error) => self.refuse(batch, &not_leader(error)),
            }
        }
    }

    /// Answers what can be answered in this term; returns what is held until a clear applies.
    pub(super) fn answer(&self, batch: Vec<Renewal>, term: Term) -> Vec<Renewal> {
        let now = self.context.clock.now();
        let mut held = Vec::new();
        let mut elsewhere = Vec::new();
        let (batch, unread): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|renewal| !renewal.outbox.is_closed() || mutant!("unread-renewal-counts"));
        unread.iter().for_each(|renewal| self.drop_one(renewal));
        {
            let local = &mut *self.context.replica.lock();
            for renewal in batch {
                if renewal.term != term && !mutant!("renewal-of-another-term-answered") {
                    elsewhere.push(renewal);
                    continue;
                }
                let Local { state, leadership, .. } = local;
                let Some(leadership) = leadership.as_mut().filter(|led| led.term() == term) else {
                    elsewhere.push(renewal);
                    continue;
                };
                // t_send <= arrival < start of round < acks of a quorum < votes of any later term < arming there.
                match leadership.lessor.answer(renewal.session, renewal.arrival) {
                    Verdict::Hold => held.push(renewal),
                    // Its stream sees the end in the state, and says so.
                    Verdict::Ended => renewal.outbox.wake(),
                    Verdict::Acknowledge => {
                        let Some(session) = state.session(renewal.session) else {
                            renewal.outbox.wake();
                            continue;
                        };
                        let drains = leadership.timers.drains_of(renewal.session, now);
                        let drains = drains.into_iter().filter_map(|(key, epoch, left)| {
                            Some(v1::DrainLeft {
                                keyspace: state.keyspace(key.keyspace)?.name().to_string(),
                                partition: key.partition.get(),
                                epoch: epoch.get(),
                                left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                            })
                        });
                        renewal.outbox.acknowledge(v1::Acknowledgement {
                            number: renewal.number,
                            revision: session.assignment().get(),
                            drains: drains.collect(),
                            measure: loads::wanted(leadership, state, session),
                        });
                    }
                }
            }
        }
        self.refuse(elsewhere, &Failure::no_leader());
        held
    }

    /// The round failed, or the term is over: the workers go to whoever leads.
    fn refuse(&self, batch: Vec<Renewal>, failure: &Failure) {
        for renewal in batch {
            self.drop_one(&renewal);
            renewal.outbox.fail(failure.clone());
        }
    }
}
