//! The brake: when many sessions ran out together, repairs go on at the budget of moves. It was probably not they who were
//! ill.

use crate::ids::KeyspaceId;
use crate::mutant;
use crate::state::{DEFAULT_TTL, MAX_TTL, Session, State};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Under the brake, and with the budget used up, one partition is repaired this often all the same: an owner that never
/// gets ready must not stop the repairs of all others.
pub(super) const BRAKE_PACE: Duration = Duration::from_millis(100);

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    part: u16,
    of: u16,
}

impl Share {
    /// A third: from there on it is hardly the workers that are ill.
    pub const THIRD: Share = Share { part: 1, of: 3 };

    /// So many in a hundred; 100 is never exceeded.
    pub const fn percent(percent: u16) -> Share {
        Share { part: percent, of: 100 }
    }

    /// Whether so many of all are more than this.
    fn is_less_than(self, some: usize, all: usize) -> bool {
        some as u128 * u128::from(self.of) > all as u128 * u128::from(self.part)
    }
}

/// Why repairs are slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Brake {
    /// How many sessions ran out within the window, and nobody has said that it was meant.
    pub lost: usize,
    /// Of how many.
    pub of: usize,
    /// Within so long; the brake lets go when it has passed.
    pub window: Duration,
}

/// The sessions that one leadership saw run out.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Losses {
    /// When leases ran out, as far as no operator has let the brake go since.
    expired: VecDeque<Instant>,
    /// Somebody was told that the brake is on.
    told: bool,
    /// When it next lets a partition of a keyspace through above the budget. Each keyspace has turns of its own: one in
    /// which much is vacant must not take them all.
    opens: BTreeMap<KeyspaceId, Instant>,
}

impl Losses {
    /// A lease has run out.
    pub(super) fn lost(&mut self, now: Instant) {
        self.expired.push_back(now);
    }

    /// Those until now were meant.
    pub(super) fn meant(&mut self) {
        self.expired.clear();
    }

    /// Those that no window reaches back to do not count any more.
    pub(super) fn forget_old(&mut self, now: Instant) {
        while self.expired.front().is_some_and(|at| now.since(*at) > MAX_TTL) {
            self.expired.pop_front();
        }
    }

    /// A keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.opens.remove(&id);
    }

    /// The brake, if it is on when so many more are about to run out.
    pub(super) fn brake(&self, now: Instant, state: &State, expiring: usize, share: Share) -> Option<Brake> {
        if self.expired.len() + expiring <= 2 || mutant!("brake-off") {
            return None;
        }
        let window = state.sessions().map(Session::ttl).max().unwrap_or(DEFAULT_TTL);
        let ended = self.expired.iter().rev().take_while(|at| now.since(**at) <= window).count();
        let (lost, of) = (ended + expiring, state.sessions.len() + ended);
        (lost > 2 && share.is_less_than(lost, of)).then_some(Brake { lost, of, window })
    }

    /// The brake, when it has come on since the last call.
    pub(super) fn news(&mut self, brake: Option<Brake>) -> Option<Brake> {
        let told = std::mem::replace(&mut self.told, brake.is_some());
        brake.filter(|_| !told)
    }

    /// Whether one partition of the keyspace is repaired now although its budget is used up.
    pub(super) fn lets_one_through(&mut self, id: KeyspaceId, now: Instant) -> bool {
        let open = self.opens.get(&id).is_none_or(|opens| now >= *opens) && !mutant!("brake-at-zero");
        if open {
            self.opens.insert(id, now + BRAKE_PACE);
        }
        open
    }
}
