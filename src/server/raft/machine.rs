//! The one thing this module needs from what it replicates.

use ringfence_core::ids::{LogIndex, Term};
use std::fmt;

/// Where an entry stands in the log, and which leadership put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The term of the leader that proposed the entry.
    pub term: Term,
    /// The entry's place in the log.
    pub index: LogIndex,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.term, self.index)
    }
}

/// What is replicated: a deterministic machine that entries are applied to.
///
/// It lives in memory. After a restart it is restored from the newest snapshot and sees the entries behind it again, so
/// its answers may depend on nothing but what was applied.
pub trait Machine: Send + 'static {
    /// What applying an entry answers to its proposer.
    type Answer: Send + 'static;

    /// Applies one committed entry. Called once per entry, in order, also for those that carry nothing (a new leader's
    /// first entry, a membership), with `None`, so that the machine always knows its position.
    ///
    /// # Errors
    /// [`MachineError`] when the entry cannot be understood. The node then stops: to skip an entry that other nodes
    /// applied would make two different states under one index. A command that is merely refused is an answer.
    fn apply(&mut self, at: Position, payload: Option<&[u8]>) -> Result<Self::Answer, MachineError>;

    /// Captures the state now, cheaply, for serialization on another thread later. Entries applied in between must not
    /// show in it.
    fn snapshot(&self) -> Box<dyn FnOnce() -> Vec<u8> + Send>;

    /// Replaces everything by a snapshot taken at `at`. Nothing of the earlier state may remain.
    ///
    /// # Errors
    /// [`MachineError`] when the snapshot cannot be understood; the node then stops.
    fn restore(&mut self, at: Position, bytes: &[u8]) -> Result<(), MachineError>;
}

/// Bytes that the machine cannot understand: an entry or snapshot of a newer version, or a broken one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    /// An error that says what could not be understood and what to do about it.
    pub fn new(what: impl Into<String>) -> MachineError {
        MachineError(what.into())
    }
}
