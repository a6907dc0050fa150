//! The holder's side of a lease: what one session may believe, and until when.
//!
//! A worker has one session, and the session one lease for all the partitions it holds. The [`Lessee`] is told when a
//! renewal was sent, what was acknowledged, and what the coordinator assigned; it answers what is believed until when.
//! It has no clock and no connection: each call that needs one takes `now`, a reading of a clock that runs during
//! suspend.
//!
//! The rules. Each was model-checked, and taken out gave two workers that both believed (`PROTOCOL.md` tells how):
//!
//! 1. Only an **acknowledged renewal** extends the lease, counted from the moment before *that attempt* was sent:
//!    `sent + ttl * (1 - drift) - margin`. The answer to a join, a grant, or a lost renewal extends nothing.
//! 2. An acknowledgement names the **revision** of the assignment it speaks of. A lessee that is behind it extends
//!    nothing until it has caught up; it remembers the acknowledgement and extends when the picture arrives. Otherwise
//!    a lost "gone" would be renewed for ever.
//! 3. An acknowledgement says what is **left of each drain**; from then on that partition is valid until
//!    `sent + left * (1 - drift) - margin` at most. A bound never moves back.
//! 4. The **picture only moves forward**: by revision, and by a high-water mark of epochs for each partition. A grant
//!    that arrives after its release, or its loss, is not believed.
//! 5. What was lost is lost: an expired lease does not come back with a late acknowledgement, and a partition that went
//!    away and came back is `Lost` under its old epoch and `Granted` under the new one.
//!
//! Where a keyspace is taken over by fence, its partitions are besides not believed from [`CONNECTION_GRACE`] after the
//! connection was lost until a renewal sent over a new one is acknowledged. That is a pause, not a loss.

mod message;
mod timing;

#[cfg(test)]
mod tests;

pub use message::{Acknowledgement, Assignment, DrainLeft, Event, Gone, Held, Lineage, Loss};
pub use timing::{CONNECTION_GRACE, DRIFT_PERCENT, MARGIN, RENEWALS_PER_TTL, Timing, TtlTooShort};

use crate::ids::{Epoch, LogIndex};
use crate::mutant;
use crate::state::Takeover;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many renewals may be without an answer. At six a TTL, an older one could extend nothing any more.
pub const MAX_UNANSWERED: usize = 16;
/// How many acknowledgements may wait for the picture they speak of. Messages of one stream are ordered, so a
/// coordinator that keeps its contract makes none wait; a forgotten one costs an extension, nothing else.
pub const MAX_WAITING: usize = 4;

/// One session's lease and what it holds. `K` names a partition, or one grant of a lock.
///
/// Deterministic, and small enough to be model-checked: equal histories make equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lessee<K> {
    timing: Timing,
    lease: Lease,
    /// Every partition this session ever held: its high-water mark, and the tenure that is believed.
    places: BTreeMap<K, Place>,
    /// The tenures with a bound, by its end.
    bounds: BTreeSet<(Instant, K)>,
    revision: Option<LogIndex>,
    /// The pieces of a picture whose last has not arrived.
    pieces: Option<Assignment<K>>,
    connection: Connection,
    /// Renewals of this connection without an answer, oldest first.
    unanswered: VecDeque<(u64, Instant)>,
    /// Acknowledgements that are ahead of the picture.
    waiting: VecDeque<Waiting<K>>,
    events: VecDeque<Event<K>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lease {
    /// No renewal was acknowledged yet.
    None,
    Until(Instant),
    /// It ran out, or the session ended. There is no way back from here.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// The highest epoch believed so far. Nothing at or below it is believed anew.
    mark: Epoch,
    tenure: Option<Tenure>,
}

/// What is believed of a partition, under the epoch of its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tenure {
    takeover: Takeover,
    revoked: bool,
    bound: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Connection {
    /// Counts the connections of this session.
    number: u64,
    up: bool,
    /// The number of its last renewal.
    renewals: u64,
    next_renewal: Instant,
    /// A connection was lost, and no renewal over a later one is acknowledged yet: the end of the grace.
    grace_until: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting<K> {
    sent: Instant,
    connection: u64,
    ack: Acknowledgement<K>,
}

impl<K: Clone + Ord> Lessee<K> {
    /// A session that was opened just now. It holds nothing and has no lease.
    pub fn new(timing: Timing, now: Instant) -> Lessee<K> {
        Lessee {
            timing,
            lease: Lease::None,
            places: BTreeMap::new(),
            bounds: BTreeSet::new(),
            revision: None,
            pieces: None,
            connection: Connection {
                number: 0,
                up: false,
                renewals: 0,
                next_renewal: now,
                grace_until: None,
            },
            unanswered: VecDeque::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The times of this lease.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// A stream to the coordinator is open. Renewals are numbered from 1 again, and the first is due at once.
    pub fn connected(&mut self, now: Instant) {
        self.handle_timeout(now);
        self.forget_connection();
        self.connection.number += 1;
        self.connection.up = true;
        self.connection.renewals = 0;
        self.connection.next_renewal = now;
    }

    /// The stream is gone, however it ended. That is not a loss: the lease runs on.
    pub fn disconnected(&mut self, now: Instant) {
        self.handle_timeout(now);
        if self.connection.up {
            self.forget_connection();
            self.connection.up = false;
            // A second loss before the first was made good does not renew the grace.
            self.connection.grace_until.get_or_insert(now + CONNECTION_GRACE);
        }
    }

    /// Takes the renewal that is due, to be sent after this call returns: `now` is what its lease counts from. `random`
    /// is any number; it spreads the renewals of many sessions. `None` when none is due or there is no connection.
    #[must_use = "a renewal that was taken has to be sent"]
    pub fn renew(&mut self, now: Instant, random: u32) -> Option<u64> {
        self.handle_timeout(now);
        if !self.renewal_due(now) {
            return None;
        }
        self.connection.next_renewal = self.timing.next_renewal(now, random);
        self.connection.renewals += 1;
        if self.unanswered.len() == MAX_UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((self.connection.renewals, now));
        Some(self.connection.renewals)
    }

    /// True when [`Lessee::renew`] has one to send.
    pub fn renewal_due(&self, now: Instant) -> bool {
        self.connection.up && now >= self.connection.next_renewal && self.lease != Lease::Over
    }

    /// Puts the renewal that is due off, because the process should not be renewed for now: its lease runs down.
    pub fn defer_renewal(&mut self, to: Instant) {
        self.connection.next_renewal = self.connection.next_renewal.max(to);
    }

    /// When the oldest renewal of this connection without an answer was sent. A silent connection is a dead one.
    pub fn oldest_unanswered(&self) -> Option<Instant> {
        self.unanswered.front().map(|(_, sent)| *sent)
    }

    /// A renewal of the connection that is up was acknowledged.
    pub fn acknowledge(&mut self, now: Instant, ack: Acknowledgement<K>) {
        self.handle_timeout(now);
        let Some(at) = self.unanswered.iter().position(|(number, _)| *number == ack.number) else { return };
        // Those before it were sent earlier, and could extend nothing that this one does not.
        let Some((_, sent)) = self.unanswered.drain(..=at).next_back() else { return };
        let sent = if mutant!("deadline-from-receipt") { now } else { sent };
        if self.lease == Lease::Over {
            return;
        }
        // A bound only shortens what is believed, so it need not wait for the picture.
        self.bound(sent, &ack.drains);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting { sent, connection: self.connection.number, ack });
        self.catch_up();
        self.handle_timeout(now);
    }

    /// The coordinator said what the session holds, over the connection that is up.
    pub fn assign(&mut self, now: Instant, piece: Assignment<K>) {
        self.handle_timeout(now);
        if self.lease == Lease::Over {
            return;
        }
        let Some(picture) = self.gather(piece) else { return };
        // An older leader, or a push that was overtaken.
        let older = self.revision.is_some_and(|seen| picture.revision < seen);
        let seen_before = !picture.complete && self.revision == Some(picture.revision);
        if (older || seen_before) && !mutant!("older-picture-believed") {
            return;
        }
        self.revision = Some(picture.revision);
        for gone in &picture.gone {
            if self.believed(&gone.key).is_some_and(|epoch| epoch <= gone.epoch) {
                self.lose(&gone.key, Loss::Taken);
            }
        }
        if picture.complete {
            let named: BTreeMap<&K, Epoch> =
                picture.held.iter().map(|held| (&held.key, held.epoch)).collect();
            let gone: Vec<K> = self
                .holds()
                .filter(|(key, epoch)| named.get(key) != Some(epoch))
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                self.lose(&key, Loss::Taken);
            }
        }
        for held in picture.held {
            self.believe(held);
        }
        self.catch_up();
        self.handle_timeout(now);
    }

    /// The owner's task has ended, and the partition is about to be released. From here on nothing at or below this
    /// epoch is believed: neither a push that was on its way nor a picture taken before the release.
    pub fn give_back(&mut self, key: &K, epoch: Epoch) {
        if self.believed(key) == Some(epoch) {
            self.take_tenure(key);
        }
        if mutant!("late-grant-believed") {
            self.places.remove(key);
        }
    }

    /// Keeps nothing of a key that is not believed. It is for keys that are granted once, when the coordinator knows that it
    /// was given back: the high-water mark of one that may be granted again is what rule 4 rests on.
    pub fn forget(&mut self, key: &K) {
        if self.believed(key).is_none() {
            self.places.remove(key);
        }
    }

    /// The coordinator has said, confirmed by a quorum, that the session has ended.
    pub fn session_ended(&mut self) {
        self.over(Loss::SessionEnded);
    }

    /// Somebody found the lease at its end and acted on it, before an acknowledgement that would have extended it
    /// became visible to them. What was said stands: the lease is over.
    pub fn expire(&mut self) {
        self.over(Loss::Expired);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.lease, Lease::Until(until) if now >= until) && !mutant!("expired-lease-revived") {
            self.over(Loss::Expired);
        }
        while let Some((until, key)) = self.bounds.first().cloned() {
            if now < until {
                break;
            }
            self.lose(&key, Loss::DrainOver);
        }
    }

    /// When [`Lessee::handle_timeout`] or [`Lessee::renew`] has something to do, if time were all that happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.lease == Lease::Over {
            return None;
        }
        let renewal = self.connection.up.then_some(self.connection.next_renewal);
        let bound = self.bounds.first().map(|(until, _)| *until);
        [renewal, bound, self.lease_until()].into_iter().flatten().min()
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event<K>> {
        self.events.pop_front()
    }

    /// The end of the lease; `None` when none was acknowledged yet, or it is over.
    pub fn lease_until(&self) -> Option<Instant> {
        match self.lease {
            Lease::Until(until) => Some(until),
            Lease::None | Lease::Over => None,
        }
    }

    /// When partitions of keyspaces that are taken over by fence are not believed any more, while the connection is
    /// gone.
    pub fn grace_until(&self) -> Option<Instant> {
        self.connection.grace_until
    }

    /// The lease ran out or the session ended. Open another session.
    pub fn is_over(&self) -> bool {
        self.lease == Lease::Over
    }

    /// The end of what is believed about a partition under an epoch, as things are; `None` when nothing is.
    ///
    /// A caller that answers for the partition compares this with its clock before and after it computes the answer.
    pub fn valid_until(&self, key: &K, epoch: Epoch) -> Option<Instant> {
        let place = self.places.get(key)?;
        let tenure = place.tenure.filter(|_| place.mark == epoch)?;
        let grace = self.grace_until().filter(|_| tenure.takeover == Takeover::Fence);
        let lease = self.lease_until()?;
        Some([tenure.bound, grace].into_iter().flatten().fold(lease, Instant::min))
    }

    /// What is believed, in order.
    pub fn holds(&self) -> impl Iterator<Item = (&K, Epoch)> {
        self.places.iter().filter(|(_, place)| place.tenure.is_some()).map(|(key, place)| (key, place.mark))
    }

    fn believed(&self, key: &K) -> Option<Epoch> {
        self.places.get(key).filter(|place| place.tenure.is_some()).map(|place| place.mark)
    }

    /// What was on its way over the last connection belongs to nothing.
    fn forget_connection(&mut self) {
        self.unanswered.clear();
        self.pieces = None;
    }

    /// Adds a piece to its picture; returns the picture with its last piece.
    fn gather(&mut self, piece: Assignment<K>) -> Option<Assignment<K>> {
        let mut picture = match self.pieces.take() {
            Some(mut earlier) if (earlier.revision, earlier.complete) == (piece.revision, piece.complete) => {
                earlier.held.extend(piece.held);
                earlier.gone.extend(piece.gone);
                earlier
            }
            // A picture that was begun and not ended is no picture.
            _ => Assignment { more: false, ..piece },
        };
        if piece.more {
            picture.more = false;
            self.pieces = Some(picture);
            return None;
        }
        Some(picture)
    }

    fn believe(&mut self, held: Held<K>) {
        let Held { key, epoch, draining, takeover, lineage } = held;
        match self.places.get_mut(&key) {
            Some(place) if epoch < place.mark => return,
            Some(place) if epoch == place.mark => {
                // The mark without a tenure: it was given back, or lost, and this is the late word of the grant.
                let Some(tenure) = &mut place.tenure else { return };
                tenure.takeover = takeover;
            }
            _ => {
                self.lose(&key, Loss::Taken);
                let tenure = Some(Tenure { takeover, revoked: false, bound: None });
                self.places.insert(key.clone(), Place { mark: epoch, tenure });
                self.events.push_back(Event::Granted { key: key.clone(), epoch, takeover, lineage });
            }
        }
        if draining {
            self.revoke(&key);
        }
    }

    fn revoke(&mut self, key: &K) {
        let Some(place) = self.places.get_mut(key) else { return };
        if let Some(tenure) = place.tenure.as_mut().filter(|tenure| !tenure.revoked) {
            tenure.revoked = true;
            self.events.push_back(Event::Revoked { key: key.clone(), epoch: place.mark });
        }
    }

    /// Rule 3. The earliest end ever named stands: a new leader that arms a drain in full gives nothing back.
    fn bound(&mut self, sent: Instant, drains: &[DrainLeft<K>]) {
        for DrainLeft { key, epoch, left } in drains {
            if self.believed(key) != Some(*epoch) {
                continue;
            }
            self.revoke(key);
            let until = self.timing.deadline(sent, *left);
            let Some(tenure) = self.places.get_mut(key).and_then(|place| place.tenure.as_mut()) else {
                continue;
            };
            if tenure.bound.is_some_and(|earlier| earlier <= until) && !mutant!("bound-moves-back") {
                continue;
            }
            if let Some(earlier) = tenure.bound.replace(until) {
                self.bounds.remove(&(earlier, key.clone()));
            }
            self.bounds.insert((until, key.clone()));
            self.events.push_back(Event::Bounded { key: key.clone(), epoch: *epoch, until });
        }
    }

    /// Rules 1 and 2: what the acknowledgements that the picture has reached are worth.
    fn catch_up(&mut self) {
        let Some(revision) = self.revision else { return };
        let (reached, ahead): (VecDeque<_>, VecDeque<_>) = self.waiting.drain(..).partition(|waiting| {
            waiting.ack.revision <= revision || mutant!("acknowledgement-without-revision")
        });
        self.waiting = ahead;
        for Waiting { sent, connection, ack } in reached {
            // A drain of a partition that the picture has only now shown.
            self.bound(sent, &ack.drains);
            let until = self.timing.lease_from(sent);
            self.lease = match self.lease {
                Lease::None => Lease::Until(until),
                Lease::Until(earlier) => Lease::Until(earlier.max(until)),
                Lease::Over => Lease::Over,
            };
            if connection == self.connection.number && self.connection.up {
                self.connection.grace_until = None;
            }
        }
    }

    fn over(&mut self, why: Loss) {
        if self.lease == Lease::Over {
            return;
        }
        self.lease = Lease::Over;
        let held: Vec<K> = self.holds().map(|(key, _)| key.clone()).collect();
        for key in held {
            self.lose(&key, why);
        }
        self.waiting.clear();
        self.forget_connection();
    }

    fn lose(&mut self, key: &K, why: Loss) {
        if let Some(epoch) = self.take_tenure(key) {
            self.events.push_back(Event::Lost { key: key.clone(), epoch, why });
        }
    }

    /// Ends a tenure; the mark stays. Returns the epoch that was believed.
    fn take_tenure(&mut self, key: &K) -> Option<Epoch> {
        let place = self.places.get_mut(key)?;
        let tenure = place.tenure.take()?;
        if let Some(until) = tenure.bound {
            self.bounds.remove(&(until, key.clone()));
        }
        Some(place.mark)
    }
}
