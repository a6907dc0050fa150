//! The leader's side of the leases: when a session was last heard from, when it is suspected, when it has run out.
//!
//! A lessor belongs to one term. It is made when the node has applied an entry of its own term, arms every session from
//! that moment on its own monotonic clock, and is thrown away with its unanswered renewals when the term ends. Why two
//! workers never both believe (G3):
//!
//! ```text
//! t_send <= arrival < start of round < acks of a quorum < votes of any later term < arming there
//! ```
//!
//! A renewal is acknowledged only after a confirmation round that began after its arrival. The holder counts its lease
//! from `t_send`, and a lessor of a later term counts the same lease from its own arming, which is later: so the holder
//! stops first. Within one term the lessor counts from `arrival`, which is not before `t_send` either.
//!
//! Renewals are no log entries, so an expiry cannot see one. It rests on a *committed* suspicion instead, and from the
//! moment a suspicion is proposed until a later clear has applied no renewal of that session is acknowledged: each rule
//! alone has a counterexample. "Later" is meant literally. The outcome of a proposal may be unknown for seconds, so a
//! clear that applies may stand below the latest suspicion in the log; it does not take that one back.

use crate::ids::{LogIndex, SessionId, Term};
use crate::mutant;
use crate::state::{Event, Session, State};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// The leases of one term.
#[derive(Clone, Debug, Hash)]
pub struct Lessor {
    term: Term,
    leases: BTreeMap<SessionId, Lease>,
    /// When the leases of sessions that ended early run out: partitions that such a session held cool until then.
    departed: BTreeMap<SessionId, Instant>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Lease {
    ttl: Duration,
    /// When this leader learnt of the session.
    since: Instant,
    /// The arrival of the last renewal that was acknowledged; before the first, the moment of arming.
    heard: Instant,
    /// How many thirds of the TTL earlier leaders had measured when this one armed. Their intervals and ours are
    /// disjoint, because an earlier leader's suspicion is applied here before we arm.
    before: u8,
    /// Renewals that have arrived and are not answered yet.
    unanswered: u32,
    mark: Mark,
}

/// Whether a suspicion was proposed, or was committed by an earlier leader, and no later clear has applied.
///
/// Proposals reach the log in the order in which they are handed out, and some of them never do. So the n-th clear that
/// applies was handed out as the n-th or later: it stands above every suspicion that was handed out before the n-th.
#[derive(Clone, Copy, Debug, Hash)]
struct Mark {
    set: bool,
    /// Clears handed out.
    clears: u64,
    /// Those of them that have applied.
    applied: u64,
    /// Those handed out before the latest suspicion.
    below: u64,
}

impl Mark {
    fn new(set: bool) -> Mark {
        Mark { set, clears: 0, applied: 0, below: 0 }
    }

    fn suspicion_handed_out(&mut self) {
        self.set = true;
        self.below = self.clears;
    }

    fn clear_applied(&mut self) {
        // One that this lessor did not hand out says nothing about its own suspicions.
        if self.applied < self.clears {
            self.applied += 1;
            self.set &= self.applied <= self.below && !mutant!("clears-not-counted");
        }
    }
}

impl Lease {
    fn third(&self) -> Duration {
        self.ttl / 3
    }

    fn end(&self) -> Instant {
        let short = u8::from(mutant!("remainder-third-short") && self.before > 0);
        self.heard + (self.ttl - self.third() * u32::from(self.before + short))
    }

    /// How many thirds of its TTL the session has been silent, as measured by this leader (two at the most) and those
    /// before it.
    fn thirds(&self, now: Instant) -> u8 {
        let silent = now.since(self.heard);
        let here = [self.third(), self.third() * 2].into_iter().filter(|third| silent >= *third).count();
        self.before.saturating_add(u8::try_from(here).unwrap_or(2))
    }
}

/// What to say to a renewal that a quorum has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lease is extended.
    Acknowledge,
    /// The session is suspected: answer when a clear has applied.
    Hold,
    /// The session has ended.
    Ended,
}

/// What the leases ask for now. Each list goes into the log as one command of one entry, but for the expiries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasesDue {
    /// Sessions to suspect, with the thirds they have been silent.
    pub suspect: Vec<(SessionId, u8)>,
    /// Sessions heard from again.
    pub clear: Vec<SessionId>,
    /// Sessions whose lease has run out, with the suspicion that the expiry rests on.
    pub expire: Vec<(SessionId, LogIndex)>,
}

impl Lessor {
    /// Arms every session. The caller has applied an entry of `term` and leads in it.
    pub fn new(term: Term, now: Instant, state: &State) -> Lessor {
        let from = |session: &Session| {
            if mutant!("new-leader-does-not-rearm") { now - session.ttl() / 2 } else { now }
        };
        let leases = state.sessions().map(|session| (session.id(), arm(session, from(session)))).collect();
        Lessor { term, leases, departed: BTreeMap::new() }
    }

    /// The term it belongs to.
    pub fn term(&self) -> Term {
        self.term
    }

    /// A renewal has arrived. From now on, and until it is answered or dropped, its session is not suspected.
    pub fn arrived(&mut self, session: SessionId) {
        if let Some(lease) = self.leases.get_mut(&session) {
            lease.unanswered = lease.unanswered.saturating_add(1);
            lease.mark.set &= !mutant!("suspicion-cleared-without-entry");
        }
    }

    /// A renewal will not be answered here: its round failed, or its stream has gone.
    pub fn dropped(&mut self, session: SessionId) {
        if let Some(lease) = self.leases.get_mut(&session) {
            lease.unanswered = lease.unanswered.saturating_sub(1);
        }
    }

    /// Answers a renewal that arrived at `arrival`, after a confirmation round that began later has succeeded in this
    /// lessor's term. On `Hold` it stays unanswered.
    pub fn answer(&mut self, session: SessionId, arrival: Instant) -> Verdict {
        let Some(lease) = self.leases.get_mut(&session) else { return Verdict::Ended };
        if lease.mark.set && !mutant!("suspected-acknowledged") {
            return Verdict::Hold;
        }
        lease.unanswered = lease.unanswered.saturating_sub(1);
        // Nothing of what earlier leaders measured counts against a lease that is acknowledged now.
        lease.heard = lease.heard.max(arrival);
        lease.before = 0;
        Verdict::Acknowledge
    }

    /// Takes note of what an entry changed, when it was applied.
    pub fn observe(&mut self, event: &Event, now: Instant, state: &State) {
        match event {
            Event::Joined(id) => {
                if let Some(session) = state.session(*id) {
                    self.leases.insert(*id, arm(session, now));
                }
            }
            Event::Ended { session, .. } => {
                if let Some(lease) = self.leases.remove(session) {
                    self.departed.insert(*session, lease.end());
                }
            }
            Event::Suspected(id) => {
                if let Some(lease) = self.leases.get_mut(id) {
                    lease.mark.set = true;
                }
            }
            Event::Cleared(id) => {
                if let Some(lease) = self.leases.get_mut(id) {
                    lease.mark.clear_applied();
                }
            }
            _ => {}
        }
    }

    /// How long this leader has known the session: less than its age, under a leader that did not see it join.
    pub fn known_for(&self, session: SessionId, now: Instant) -> Option<Duration> {
        self.leases.get(&session).map(|lease| now.since(lease.since))
    }

    /// When the lease of a session that ended runs out. An earlier leader's promises are not known here: then it is a
    /// full TTL from now.
    pub fn lease_end(&self, session: SessionId, ttl: Duration, now: Instant) -> Instant {
        let unknown = if mutant!("unknown-lease-cools-not") { now } else { now + ttl };
        self.departed.get(&session).copied().unwrap_or(unknown)
    }

    /// What to propose now, in this order and before what a later call returns. Suspicions are marked here, when they are
    /// handed out, not when they apply.
    pub fn due(&mut self, now: Instant, state: &State) -> LeasesDue {
        let mut due = LeasesDue::default();
        self.departed.retain(|_, end| *end > now);
        for (id, lease) in &mut self.leases {
            if lease.unanswered > 0 && !mutant!("suspected-over-a-renewal") {
                if lease.mark.set {
                    lease.mark.clears += 1;
                    due.clear.push(*id);
                }
                continue;
            }
            // What is committed has set the mark. So nearly every session of a quiet cluster is passed over here, without
            // a look at the state.
            let thirds = lease.thirds(now).min(2);
            if thirds == 0 && !lease.mark.set {
                continue;
            }
            let Some(session) = state.session(*id) else { continue };
            let committed = session.suspicion();
            if let Some(suspicion) = committed
                && (now >= lease.end() || mutant!("takeover-before-lease-end"))
            {
                due.expire.push((*id, suspicion.at));
            } else if thirds > committed.map_or(0, |suspicion| suspicion.thirds) {
                if !mutant!("suspicion-marked-when-applied") {
                    lease.mark.suspicion_handed_out();
                }
                due.suspect.push((*id, thirds));
            }
        }
        due
    }
}

fn arm(session: &Session, now: Instant) -> Lease {
    let unsuspected = u8::from(mutant!("unsuspected-armed-short"));
    let before = session.suspicion().map_or(unsuspected, |suspicion| suspicion.thirds);
    let mark = Mark::new(before > 0);
    Lease { ttl: session.ttl(), since: now, heard: now, before, unanswered: 0, mark }
}
