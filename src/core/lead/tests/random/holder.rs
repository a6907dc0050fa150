//! The holder's side: the shipped lessee, or a naive one.
//!
//! The shipped lessee is stricter than the protocol asks: a lease that has run out never comes back, and a bound never
//! moves back. Behind that strictness a leader could break its own rules unnoticed. The naive one does what the protocol
//! asks and no more, and takes out the rules that are the holder's.

use super::rules::Rule;
use super::world::TTL_MS;
use crate::ids::{Epoch, LogIndex, PartitionKey};
use crate::lease::lessee::{Acknowledgement, Assignment, DRIFT_PERCENT, Event, Lessee, Loss, MARGIN, Timing};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(super) enum Holder {
    Shipped(Box<Lessee<PartitionKey>>),
    Naive(Naive),
}

#[derive(Default)]
pub(super) struct Naive {
    rule: Option<Rule>,
    up: bool,
    over: bool,
    next_renewal: Option<Instant>,
    renewals: u64,
    sent: BTreeMap<u64, Instant>,
    lease: Option<Instant>,
    revision: Option<LogIndex>,
    marks: BTreeMap<PartitionKey, Epoch>,
    held: BTreeMap<PartitionKey, Tenure>,
    waiting: Vec<(Instant, Acknowledgement<PartitionKey>)>,
    events: VecDeque<Event<PartitionKey>>,
}

struct Tenure {
    epoch: Epoch,
    revoked: bool,
    bound: Option<Instant>,
}

impl Holder {
    pub(super) fn shipped(now: Instant) -> Holder {
        let timing = Timing::new(Duration::from_millis(TTL_MS)).unwrap();
        Holder::Shipped(Box::new(Lessee::new(timing, now)))
    }

    pub(super) fn naive(rule: Option<Rule>) -> Holder {
        Holder::Naive(Naive { rule, ..Naive::default() })
    }

    pub(super) fn connected(&mut self, now: Instant) {
        match self {
            Holder::Shipped(lessee) => lessee.connected(now),
            Holder::Naive(naive) => {
                naive.up = true;
                naive.sent.clear();
                naive.renewals = 0;
                naive.next_renewal = Some(now);
            }
        }
    }

    pub(super) fn disconnected(&mut self, now: Instant) {
        match self {
            Holder::Shipped(lessee) => lessee.disconnected(now),
            Holder::Naive(naive) => naive.up = false,
        }
    }

    pub(super) fn renew(&mut self, now: Instant, random: u32) -> Option<u64> {
        match self {
            Holder::Shipped(lessee) => lessee.renew(now, random),
            Holder::Naive(naive) => {
                let due = naive.up && naive.next_renewal.is_some_and(|next| now >= next);
                due.then(|| {
                    naive.next_renewal = Some(now + Duration::from_millis(TTL_MS / 6));
                    naive.renewals += 1;
                    naive.sent.insert(naive.renewals, now);
                    naive.renewals
                })
            }
        }
    }

    pub(super) fn acknowledge(&mut self, now: Instant, ack: Acknowledgement<PartitionKey>) {
        match self {
            Holder::Shipped(lessee) => lessee.acknowledge(now, ack),
            Holder::Naive(naive) => naive.acknowledge(now, ack),
        }
    }

    pub(super) fn assign(&mut self, now: Instant, picture: Assignment<PartitionKey>) {
        match self {
            Holder::Shipped(lessee) => lessee.assign(now, picture),
            Holder::Naive(naive) => naive.assign(picture),
        }
    }

    pub(super) fn give_back(&mut self, key: PartitionKey, epoch: Epoch) {
        match self {
            Holder::Shipped(lessee) => lessee.give_back(&key, epoch),
            Holder::Naive(naive) => {
                if naive.held.get(&key).is_some_and(|tenure| tenure.epoch == epoch) {
                    naive.held.remove(&key);
                }
            }
        }
    }

    pub(super) fn session_ended(&mut self) {
        match self {
            Holder::Shipped(lessee) => lessee.session_ended(),
            Holder::Naive(naive) => {
                naive.over = true;
                naive.held.clear();
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Holder::Shipped(lessee) = self {
            lessee.handle_timeout(now);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event<PartitionKey>> {
        match self {
            Holder::Shipped(lessee) => lessee.poll_event(),
            Holder::Naive(naive) => naive.events.pop_front(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Holder::Shipped(lessee) => lessee.is_over(),
            Holder::Naive(naive) => naive.over,
        }
    }

    /// What it answers "I own it" for now.
    pub(super) fn believes(&self, now: Instant) -> Vec<(PartitionKey, Epoch)> {
        match self {
            Holder::Shipped(lessee) => {
                let valid = |key, epoch| lessee.valid_until(key, epoch).is_some_and(|until| now < until);
                let held = lessee.holds().filter(|(key, epoch)| valid(key, *epoch));
                held.map(|(key, epoch)| (*key, epoch)).collect()
            }
            Holder::Naive(naive) => {
                if naive.lease.is_none_or(|lease| now >= lease) {
                    return Vec::new();
                }
                let held = naive.held.iter().filter(|(_, t)| t.bound.is_none_or(|bound| now < bound));
                held.map(|(key, tenure)| (*key, tenure.epoch)).collect()
            }
        }
    }
}

impl Naive {
    fn is(&self, rule: Rule) -> bool {
        self.rule == Some(rule)
    }

    fn until(&self, sent: Instant, span: Duration) -> Instant {
        if self.is(Rule::AllowsForDrift) {
            return sent + span;
        }
        sent + (span - span * DRIFT_PERCENT / 100).saturating_sub(MARGIN)
    }

    fn acknowledge(&mut self, now: Instant, ack: Acknowledgement<PartitionKey>) {
        let Some(sent) = self.sent.remove(&ack.number) else { return };
        let counted_from = if self.is(Rule::CountsFromSending) { now } else { sent };
        self.waiting.push((counted_from, ack));
        self.catch_up();
    }

    fn assign(&mut self, picture: Assignment<PartitionKey>) {
        if self.revision.is_some_and(|seen| picture.revision < seen) {
            return;
        }
        self.revision = Some(picture.revision);
        let named: BTreeMap<PartitionKey, Epoch> =
            picture.held.iter().map(|held| (held.key, held.epoch)).collect();
        let lost = |(key, tenure): (&PartitionKey, &Tenure)| {
            (named.get(key) != Some(&tenure.epoch)).then_some((*key, tenure.epoch))
        };
        let lost: Vec<_> = self.held.iter().filter_map(lost).collect();
        for (key, epoch) in lost {
            self.held.remove(&key);
            self.events.push_back(Event::Lost { key, epoch, why: Loss::Taken });
        }
        for held in picture.held {
            let (key, epoch, takeover, lineage) = (held.key, held.epoch, held.takeover, held.lineage);
            if self.marks.get(&key).is_none_or(|mark| *mark < epoch) {
                self.marks.insert(key, epoch);
                self.held.insert(key, Tenure { epoch, revoked: false, bound: None });
                self.events.push_back(Event::Granted { key, epoch, takeover, lineage });
            }
            if held.draining {
                self.revoke(key, epoch);
            }
        }
        self.catch_up();
    }

    fn revoke(&mut self, key: PartitionKey, epoch: Epoch) {
        if let Some(tenure) = self.held.get_mut(&key).filter(|t| t.epoch == epoch && !t.revoked) {
            tenure.revoked = true;
            self.events.push_back(Event::Revoked { key, epoch });
        }
    }

    fn catch_up(&mut self) {
        let blind = self.is(Rule::AcknowledgementsNameTheRevision);
        let Some(revision) = self.revision else { return };
        for (sent, ack) in std::mem::take(&mut self.waiting) {
            if ack.revision > revision && !blind {
                self.waiting.push((sent, ack));
                continue;
            }
            let until = self.until(sent, Duration::from_millis(TTL_MS));
            self.lease = Some(self.lease.map_or(until, |earlier| earlier.max(until)));
            if self.is(Rule::AcknowledgementsNameDrains) {
                continue;
            }
            for drain in ack.drains {
                self.revoke(drain.key, drain.epoch);
                let bound = self.until(sent, drain.left);
                if let Some(tenure) = self.held.get_mut(&drain.key).filter(|t| t.epoch == drain.epoch) {
                    // The latest word, not the earliest.
                    tenure.bound = Some(bound);
                    self.events.push_back(Event::Bounded {
                        key: drain.key,
                        epoch: drain.epoch,
                        until: bound,
                    });
                }
            }
        }
    }
}
