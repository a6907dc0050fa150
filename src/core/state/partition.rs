//! One partition: its epoch, its phase, its last owners.

use crate::ids::{Epoch, EpochFloor, LogIndex, MoveId, PartitionId, SessionId, WorkerId};
use crate::mutant;
use std::time::Duration;

/// How many of a partition's last owners are remembered.
pub const HISTORY_LEN: usize = 4;
/// How much of a failed task's error is kept, in bytes.
pub const MAX_FAILURE_BYTES: usize = 256;

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The last epoch minted: that of the last grant, or of the split since.
    pub(crate) epoch: EpochFloor,
    pub(crate) phase: Phase,
    /// The last owners, oldest first, at most [`HISTORY_LEN`].
    pub(crate) history: Vec<Tenure>,
    pub(crate) setback: Option<Box<Setback>>,
    /// The partition that it was split from.
    pub(crate) born: Option<Born>,
}

/// Where a partition comes from that was not there when its keyspace was created.
///
/// An owner of the parent from before the split may still write the child's keys, under the parent's scope. So the
/// split mints an epoch of the parent that is granted to nobody, and every owner of the child raises the parent's fence
/// to it. The child's own epochs begin above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Born {
    /// The partition that it was split from.
    pub parent: PartitionId,
    /// The epoch of the parent that the split minted.
    pub epoch: Epoch,
    /// The directive by which it was split, where that is told.
    pub by: Option<LogIndex>,
}

/// Where a partition is in its handoff.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nobody owns it.
    Vacant,
    /// Nobody owns it, and it waits.
    Cooling(Cooling),
    /// A session owns it.
    Owned {
        /// The owner.
        session: SessionId,
        /// It has raised its fences and loaded its state.
        ready: bool,
    },
    /// Its owner was told to give it back. It never goes back to `Owned` under the same epoch.
    Draining(Box<Drain>),
}

/// What a cooling partition waits for: first the lease, then the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cooling {
    /// A session that was ended before its lease had run out, and the TTL of that lease.
    pub lease_of: Option<(SessionId, Duration)>,
    /// After that: a lock delay, or the back-off after a failure.
    pub then: Duration,
    /// Why `then` is what it is.
    pub why: CoolingWhy,
}

/// Why a partition cools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoolingWhy {
    /// Its owner's session was replaced, or left without releasing it.
    Lease,
    /// The keyspace's lock delay.
    LockDelay,
    /// Its owner's task failed.
    Backoff,
    /// Its last owner is being restarted, and gets it back when it joins again.
    Hold,
}

/// A planned move in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Drain {
    /// The owner that gives the partition up.
    pub session: SessionId,
    /// The move.
    pub move_id: MoveId,
    /// Who shall have it next.
    pub to: WorkerId,
    /// How long the owner has, from the moment the leader applied the drain.
    pub deadline: Duration,
    /// Why it moves.
    pub why: GrantReason,
    /// The owner has learnt of the drain and of its deadline from an acknowledgement.
    pub revoke_seen: bool,
    /// The directive it follows from, when it follows from one.
    pub directive: Option<LogIndex>,
}

/// One grant of a partition, for the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// Its epoch.
    pub epoch: Epoch,
    /// The session it was granted to.
    pub session: SessionId,
    /// The worker of that session.
    pub worker: WorkerId,
    /// The entry that granted it.
    pub at: LogIndex,
    /// The leader's wall clock then, for display.
    pub unix_ms: u64,
    /// Why it was granted.
    pub why: GrantReason,
    /// The directive it follows from, when it follows from one.
    pub directive: Option<LogIndex>,
}

/// Why a partition was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantReason {
    /// It had no owner yet.
    First,
    /// Its owner's session ended while it had it, or its drain deadline passed.
    Failover,
    /// Its owner gave it back, or its task ended.
    Vacated,
    /// A planned move for balance.
    Balance,
    /// A planned move that an operator asked for.
    Operator,
    /// A planned move to a worker that joined.
    Join,
    /// A planned move away from a worker that an operator drains.
    Drain,
    /// A planned move because a worker's weight changed.
    Weight,
    /// A planned move to spread partitions over zones.
    Zone,
    /// A planned move to the worker it is pinned to.
    Pin,
    /// A planned move to spread load.
    Load,
    /// A planned move away from a worker whose labels do not fit the keyspace.
    Label,
    /// A move of a plan that an operator approved.
    Plan,
    /// Its owner was restarted and has come back.
    Returned,
    /// It was split from another partition, or another was split from it.
    Split,
    /// A planned move to the worker that has it: its fences are raised again.
    Reassert,
    /// Storage had seen a higher epoch than its owner's; it was granted above that.
    Behind,
}

/// Owner tasks that ended when they should not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setback {
    /// How many in a row.
    pub count: u32,
    /// The worker of the last one: another gets the partition, if there is one.
    pub worker: WorkerId,
    /// The error of the last one that failed; empty when it returned by itself.
    pub error: String,
}

impl GrantReason {
    /// A leader moves it by itself, or because of a plan or of something set; not by an operator's order to move it.
    pub fn is_planned(self) -> bool {
        self != GrantReason::Operator
    }
}

impl Setback {
    /// How long the partition waits: 1 s, doubled with each failure, at most 60 s.
    pub fn backoff(&self) -> Duration {
        Duration::from_secs(60.min(1u64 << self.count.saturating_sub(1).min(6)))
    }
}

impl Partition {
    pub(crate) fn new() -> Partition {
        let (epoch, phase) = (EpochFloor::NONE, Phase::Vacant);
        Partition { epoch, phase, history: Vec::new(), setback: None, born: None }
    }

    /// The child of a partition that nobody owns. Whom that one waits for may also believe to own the child's keys, so it
    /// waits as long; a back-off, or a worker that is awaited, is the parent's own affair.
    pub(crate) fn split_from(parent: PartitionId, epoch: Epoch, by: LogIndex, phase: &Phase) -> Partition {
        let phase = match phase {
            Phase::Cooling(_) if mutant!("child-cools-not") => Phase::Vacant,
            Phase::Cooling(cooling) if matches!(cooling.why, CoolingWhy::Lease | CoolingWhy::LockDelay) => {
                Phase::Cooling(*cooling)
            }
            _ => Phase::Vacant,
        };
        let born = Some(Born { parent, epoch, by: Some(by) });
        Partition { epoch: EpochFloor::of(epoch), phase, history: Vec::new(), setback: None, born }
    }

    /// A partition of a keyspace whose name was used before: owners of the earlier one may still believe, for as long as
    /// their lease. It stands at the epoch that the earlier one left behind.
    pub(crate) fn after_deleted(floor: EpochFloor, lease: Duration) -> Partition {
        let cooling = Cooling { lease_of: None, then: lease, why: CoolingWhy::Lease };
        let phase = Phase::Cooling(cooling);
        Partition { epoch: floor, phase, history: Vec::new(), setback: None, born: None }
    }

    /// The last epoch minted for it, `None` when none was: that of its last grant, or of a split since.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch.epoch()
    }

    /// Where it is in its handoff.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Its last owners, oldest first.
    pub fn history(&self) -> &[Tenure] {
        &self.history
    }

    /// Owner tasks that ended when they should not have.
    pub fn setback(&self) -> Option<&Setback> {
        self.setback.as_deref()
    }

    /// Where it comes from, when it was split from another.
    pub fn born(&self) -> Option<Born> {
        self.born
    }

    /// Who owns it, draining or not.
    pub fn owner(&self) -> Option<SessionId> {
        match &self.phase {
            Phase::Owned { session, .. } => Some(*session),
            Phase::Draining(drain) => Some(drain.session),
            Phase::Vacant | Phase::Cooling(_) => None,
        }
    }

    /// Callers may come: it has an owner that is ready and was not told to stop.
    pub fn ready(&self) -> bool {
        matches!(self.phase, Phase::Owned { ready: true, .. })
    }

    pub(crate) fn remember(&mut self, tenure: Tenure) {
        if self.history.len() == HISTORY_LEN {
            self.history.remove(0);
        }
        // A vector that doubles would hold four tenures for the partitions, most of them, that had one owner.
        self.history.reserve_exact(1);
        self.history.push(tenure);
    }
}
