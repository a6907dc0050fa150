//! What the checker found.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What was broken. Each has a bad history in the tests that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The history contradicts itself: nothing can be said about it.
    Unreadable,
    /// G2, I2: in one log, a grant's epoch was not above the one before.
    EpochsGrow,
    /// G2: one epoch was granted to two sessions.
    GrantedOnce,
    /// I3: one epoch named two owners.
    OneOwner,
    /// Somebody owned, or wrote, under an epoch that was never granted.
    Ungranted,
    /// Two nodes led in one term.
    OneLeader,
    /// A router went back to an older owner.
    RoutesForward,
    /// G3: two processes both answered "I own it".
    TwoOwners,
    /// I1: a store's fence went back.
    FenceWentBack,
    /// G1: a store took a write below an epoch that it had seen.
    StaleAccepted,
    /// I1: a store took a write that nobody asked for, or another than was asked for.
    TakenUnasked,
    /// I1: two processes used one epoch of a partition.
    TwoUsers,
    /// A fence refused what it must take, or named an epoch that it never saw.
    WronglyRefused,
    /// I8: a store took one operation twice.
    AppliedTwice,
    /// I7: an operation that was refused took effect.
    RefusedApplied,
    /// G5: what was acknowledged is not what was read: the operations on a key fit in no order.
    Lost,
    /// I4: what was acknowledged under an epoch was not seen by a later owner.
    HiddenFromNextOwner,
    /// I9: a tenure began twice.
    BeganTwice,
    /// I9: a tenure ended twice, or ended without a beginning.
    EndedTwice,
    /// I9: one process had two tenures of one partition at once.
    TenuresOverlap,
    /// I9: a tenure did not end although its partition had gone to another.
    NeverEnded,
    /// G4: a partition had no live, ready owner in time.
    NoOwner,
    /// G4: a partition whose owner went while all was well was not granted again within the promised bound.
    GrantedLate,
    /// I6: something changed hands while nothing was to.
    NotQuiet,
    /// I6: all was mended, and it never grew calm although the machine had time.
    NeverCalm,
    /// Nothing happened: a keyspace was never there, or nobody led, owned, or wrote.
    Inert,
    /// A planned move began of what an operator had frozen.
    FrozenMoved,
    /// A worker got a partition that is drained, cordoned or frozen.
    GrantedToNoTaker,
    /// A partition was granted to another worker while it was to wait for its last owner, which is being restarted.
    HoldBroken,
    /// When all was steady a drained worker still owned something.
    DrainUnfinished,
    /// When all was steady a pinned partition was elsewhere, although its worker takes partitions.
    PinIgnored,
    /// When all was steady an approved plan had not come to its end.
    PlanUnfinished,
    /// G2: the epoch that a split minted was granted, or a partition was granted under one that is not above that of the
    /// split it came from.
    SplitEpoch,
    /// When all was steady a split had not come to its end.
    SplitUnfinished,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What happened, with both sides of it.
    pub text: String,
    /// The events that show it, by their index in the history.
    pub events: Vec<usize>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} (events {:?})", self.rule, self.text, self.events)
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Every violation.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// True when everything held.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }

    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }

    pub(super) fn found(&mut self, rule: Rule, events: impl Into<Vec<usize>>, text: String) {
        self.violations.push(Violation { rule, text, events: events.into() });
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.held() {
            return write!(f, "everything held");
        }
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}
