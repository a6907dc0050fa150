//! Who is connected to this leader, for keyspaces that take over by fence.
//!
//! A session whose last stream to this leader is lost, and does not come back within a grace, loses its partitions in
//! such keyspaces and goes on living. A lost connection says little: an election, or a proxy that restarts, closes them
//! all at once. So nothing is taken in a leader's first third of a TTL, and those that were lost in a crowd (the brake)
//! are left to their leases: to take from them a second later would be the same stampede, a second later.
//!
//! Whoever has been without a stream for longer than the grace is granted nothing anywhere: it would not learn of it.

use crate::ids::SessionId;
use crate::mutant;
use crate::state::State;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long a lost connection may take to come back.
pub const GRACE: Duration = Duration::from_millis(200);
/// Losses within this long count together for the brake.
const BRAKE_WINDOW: Duration = Duration::from_secs(1);
/// The brake needs more losses than this, whatever their share.
const BRAKE_LOSSES: usize = 2;

/// The streams of one leadership.
#[derive(Clone, Debug, Hash)]
pub struct Presence {
    began: Instant,
    streams: BTreeMap<SessionId, u32>,
    lost: BTreeMap<SessionId, Lost>,
    recent: VecDeque<Instant>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Lost {
    at: Instant,
    /// It was lost together with many others, and is left to its lease.
    in_a_crowd: bool,
    /// It has joined and not opened a stream yet. That is no loss, but it would not learn of a grant either.
    awaited: bool,
}

impl Presence {
    /// Nobody has connected to this leader yet, and so nobody is lost.
    pub fn new(now: Instant) -> Presence {
        Presence { began: now, streams: BTreeMap::new(), lost: BTreeMap::new(), recent: VecDeque::new() }
    }

    /// The session was opened under this leader.
    pub fn joined(&mut self, session: SessionId, now: Instant) {
        self.lost.insert(session, Lost { at: now, in_a_crowd: false, awaited: true });
    }

    /// A stream of the session was opened.
    pub fn connected(&mut self, session: SessionId) {
        *self.streams.entry(session).or_insert(0) += 1;
        self.lost.remove(&session);
    }

    /// A stream of the session has gone. A rotated connection opens the new one first, and nothing is lost.
    pub fn disconnected(&mut self, session: SessionId, now: Instant) {
        let Some(count) = self.streams.get_mut(&session) else { return };
        *count -= 1;
        if *count == 0 {
            self.streams.remove(&session);
            self.lost.insert(session, Lost { at: now, in_a_crowd: false, awaited: false });
            self.recent.push_back(now);
        }
    }

    /// The session has ended. That its streams close after it is no loss.
    pub fn ended(&mut self, session: SessionId) {
        self.streams.remove(&session);
        self.lost.remove(&session);
    }

    /// How long ago the session lost its stream here; `None` when it has one, or had none under this leader.
    pub fn lost_for(&self, session: SessionId, now: Instant) -> Option<Duration> {
        self.lost.get(&session).filter(|lost| !lost.awaited).map(|lost| now.since(lost.at))
    }

    /// Many were lost at once: it is rather us, or the network.
    pub fn braked(&mut self, now: Instant, state: &State) -> bool {
        while self.recent.front().is_some_and(|at| now.since(*at) > BRAKE_WINDOW) {
            self.recent.pop_front();
        }
        let sessions = state.sessions.len();
        self.recent.len() > BRAKE_LOSSES && self.recent.len() * 10 > sessions
    }

    /// Sessions that have been without a stream for longer than the grace.
    pub fn absent(&self, now: Instant) -> BTreeSet<SessionId> {
        let long = |lost: &Lost| now.since(lost.at) >= GRACE && !mutant!("absent-counted-as-there");
        self.lost.iter().filter(|(_, lost)| long(lost)).map(|(id, _)| *id).collect()
    }

    /// Sessions to take from, in keyspaces that take over by fence.
    pub fn gone(&mut self, now: Instant, state: &State) -> Vec<SessionId> {
        if self.lost.is_empty() {
            return Vec::new();
        }
        // A stream may have been opened while its session ended.
        self.lost.retain(|id, _| state.session(*id).is_some());
        if self.braked(now, state) && !mutant!("lost-in-a-crowd-taken") {
            for lost in self.lost.values_mut().filter(|lost| now.since(lost.at) <= BRAKE_WINDOW) {
                lost.in_a_crowd = true;
            }
        }
        let long_enough = |id: &SessionId| {
            state.session(*id).is_some_and(|session| now.since(self.began) >= session.ttl() / 3)
                || mutant!("fence-takes-in-the-first-third")
        };
        let gone = |(id, lost): &(&SessionId, &Lost)| {
            !lost.in_a_crowd && !lost.awaited && now.since(lost.at) >= GRACE && long_enough(id)
        };
        self.lost.iter().filter(gone).map(|(id, _)| *id).collect()
    }
}
