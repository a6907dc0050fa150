//! Why a partition should move.

use super::candidate::Newly;
use std::fmt;

/// Why a partition should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Nobody ever owned it.
    First,
    /// Its owner left.
    Leave,
    /// Its owner was lost, or failed.
    Failure,
    /// Its owner gave it back by itself.
    Returned,
    /// It is pinned to the new owner.
    Pin,
    /// Its owner is drained.
    Drain,
    /// A label of its owner forbids it, or one is missing.
    Label,
    /// The new owner has joined and is due its share.
    Join,
    /// The weight of its owner or of the new one has changed.
    Weight,
    /// Its owner's zone holds more than its share; without zones it would stay.
    Zone,
    /// Its owner's load is above its share, and the new one's below.
    Load,
    /// Its owner holds more than its share, and the new one less, for none of the reasons above.
    Balance,
}

impl Reason {
    /// All there are.
    pub const ALL: [Reason; 12] = [
        Reason::First,
        Reason::Leave,
        Reason::Failure,
        Reason::Returned,
        Reason::Pin,
        Reason::Drain,
        Reason::Label,
        Reason::Join,
        Reason::Weight,
        Reason::Zone,
        Reason::Load,
        Reason::Balance,
    ];

    /// The reason of a move between two workers of which neither has to give up what it has.
    pub(super) fn of_balance(source: Option<Newly>, target: Option<Newly>, weighed: bool) -> Reason {
        match (source, target) {
            (_, Some(Newly::Joined)) => Reason::Join,
            (Some(Newly::Reweighted), _) | (_, Some(Newly::Reweighted)) => Reason::Weight,
            _ if weighed => Reason::Load,
            _ => Reason::Balance,
        }
    }

    /// Whether the partition has no owner: such a move is a repair, which waits for nothing.
    pub fn is_repair(self) -> bool {
        self.class() == 0
    }

    /// Whether it is for balance alone, so that it can as well wait.
    pub fn is_balance(self) -> bool {
        self.class() == 2
    }

    /// The place in a plan: what has no owner, what an operator demands, what balance wants.
    pub(super) fn class(self) -> u8 {
        match self {
            Reason::First | Reason::Leave | Reason::Failure | Reason::Returned => 0,
            Reason::Pin | Reason::Drain | Reason::Label => 1,
            Reason::Join | Reason::Weight | Reason::Zone | Reason::Load | Reason::Balance => 2,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::First => "first owner",
            Reason::Leave => "its owner left",
            Reason::Failure => "its owner failed",
            Reason::Returned => "its owner gave it back",
            Reason::Pin => "pinned",
            Reason::Drain => "its owner is drained",
            Reason::Label => "its owner's labels",
            Reason::Join => "a worker joined",
            Reason::Weight => "a weight changed",
            Reason::Zone => "zone balance",
            Reason::Load => "load balance",
            Reason::Balance => "balance",
        })
    }
}
