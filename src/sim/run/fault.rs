//! What goes wrong, or is done by an operator.

use super::choice::Choice;
use crate::world::{Host, Ms};
use std::fmt;

/// A fault and its time.
#[derive(Clone, Debug)]
pub struct Timed {
    /// When it begins.
    pub at: Ms,
    /// What it is.
    pub fault: Fault,
    /// Decides what it leaves open, so that a world without another fault has the same one.
    pub seed: u64,
}

/// Something that goes wrong, or that an operator does. Durations are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process does not run for a while.
    Pause(Host, u64),
    /// A machine is suspended for a while.
    Suspend(Host, u64),
    /// A process is killed, and started again after a while.
    Kill(Host, u64),
    /// A machine loses power, and comes back after a while.
    PowerLoss(Host, u64),
    /// A node's machine loses power in the middle of a write: at this one from now.
    PowerLossInWrite(Host, u32, u64),
    /// All nodes are killed at once.
    KillNodes(u64),
    /// All nodes lose power at once.
    NodesLosePower(u64),
    /// Nothing gets from one host to another.
    OneWay(Host, Host, u64),
    /// Nothing gets between two hosts.
    Cut(Host, Host, u64),
    /// A host is cut off from all others.
    Isolate(Host, u64),
    /// Nothing gets from the nodes to a host: requests arrive, answers do not.
    LostReplies(Host, u64),
    /// A way is slow and loses much, both ways.
    Slow(Host, Host, u64),
    /// All connections between two hosts break.
    Reset(Host, Host),
    /// A node's disk is full for a while.
    DiskFull(Host, u64),
    /// A node's disk fails its next flush.
    FlushFails(Host),
    /// A node's disk is slow for a while.
    SlowDisk(Host, u64),
    /// A node's wall clock jumps by so many milliseconds.
    WallJump(Host, i64),
    /// A host reaches the store badly for a while.
    StoreWeather(Host, u64),
    /// A worker leaves and comes back.
    Leave(Host, u64),
    /// An operator moves a partition: keyspace, partition, worker.
    Move(usize, u32, Host),
    /// An operator lets another node lead.
    Transfer,
    /// An operator has every partition of a keyspace split in two.
    Split(usize),
    /// An operator takes that back, where nothing is split yet.
    CancelSplit(usize),
    /// Whoever leads is killed, and started again after a while.
    KillLeader(u64),
    /// A new node is added, and another removed.
    Replace(Host, Host),
    /// A node's data directory is gone; what comes back under its id must be refused, and a new node takes its place.
    Wipe(Host, Host),
    /// A keyspace is deleted and created again, and the workers started anew.
    Recreate(usize),
    /// A second process runs under a worker's name for a while.
    Twin(Host, Host, u64),
    /// A node's disk answers nothing for a while.
    FreezeDisk(Host, u64),
    /// The disk of the leader answers nothing any more, for good; where it says so the leader also reaches no other node but
    /// one follower, while all others reach each other. A worker is killed in that moment and comes back after a while, so that
    /// there is something to decide. Progress must come back all the same.
    StickLeader(bool, Host, u64),
    /// When all is steady a worker is killed, and stays away: what it had is granted again within the promised bound.
    KillAtRest(Host),
    /// A node is added, and when it is in, another is removed.
    Exchange(Option<Host>, Option<Host>),
    /// Somebody copies a node's data directory.
    CopyDisk(Host),
    /// A node is stopped and its data directory replaced by that copy; it comes back after a while.
    OldCopy(Host, u64),
    /// A node's disk acknowledges flushes that it does not do.
    DiskLies(Host),
    /// Answers to a worker take so many milliseconds, for a while.
    LateAnswers(Host, u64, u64),
    /// All workers are killed at once.
    KillWorkers(u64),
    /// All nodes are killed at once and are back after a while, while nothing is an excuse: nothing changes hands.
    RestartNodes(u64),
    /// An operator decides something about where partitions are.
    Decide(Choice),
    /// A worker is restarted after it has said so, and comes back after a while.
    Restart(Host, u64),
    /// An operator drains a worker; when it is empty it leaves, comes back after a while, and is let in again.
    Roll(Host, u64),
    /// The same, and it is no excuse: nothing changes hands.
    Unnoticed(Box<Fault>),
}

impl Fault {
    /// How many kinds of faults there are.
    #[cfg(test)]
    pub(super) const KINDS: usize = 42;

    /// It strikes when all others are over, and stays to the end.
    #[cfg(test)]
    pub(super) fn is_for_good(&self) -> bool {
        matches!(self, Fault::StickLeader(..) | Fault::KillAtRest(_))
    }

    /// Owners must not notice it, so for the judge it is none.
    pub(super) fn is_no_excuse(&self) -> bool {
        matches!(self, Fault::RestartNodes(_) | Fault::Unnoticed(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
