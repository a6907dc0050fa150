//! How a session ended, as a worker is told.

use crate::v1;
use ringfence_core::state::EndReason;
use std::fmt;

/// How a session ended. It is final in each case: the worker stops its tasks and may join anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEnd {
    /// The worker left.
    Left,
    /// Its lease ran out.
    Expired,
    /// The same worker id joined again.
    Replaced,
    /// An operator evicted the worker.
    Evicted,
    /// It is not known any more: it ended long ago, or never was.
    Unknown,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SessionEnd::Left => "the worker left",
            SessionEnd::Expired => "its lease ran out",
            SessionEnd::Replaced => "the same worker id joined again",
            SessionEnd::Evicted => "an operator evicted the worker",
            SessionEnd::Unknown => "it ended too long ago to be remembered, or never was",
        })
    }
}

impl From<Option<EndReason>> for SessionEnd {
    fn from(known: Option<EndReason>) -> SessionEnd {
        match known {
            Some(EndReason::Left) => SessionEnd::Left,
            Some(EndReason::Expired) => SessionEnd::Expired,
            Some(EndReason::Replaced) => SessionEnd::Replaced,
            Some(EndReason::Evicted) => SessionEnd::Evicted,
            None => SessionEnd::Unknown,
        }
    }
}

impl From<SessionEnd> for v1::SessionEnd {
    fn from(end: SessionEnd) -> v1::SessionEnd {
        match end {
            SessionEnd::Left => v1::SessionEnd::Left,
            SessionEnd::Expired => v1::SessionEnd::Expired,
            SessionEnd::Replaced => v1::SessionEnd::Replaced,
            SessionEnd::Evicted => v1::SessionEnd::Evicted,
            SessionEnd::Unknown => v1::SessionEnd::Unknown,
        }
    }
}

/// A way of ending that a newer coordinator names and this code does not know is still an end.
impl From<v1::SessionEnd> for SessionEnd {
    fn from(wire: v1::SessionEnd) -> SessionEnd {
        match wire {
            v1::SessionEnd::Left => SessionEnd::Left,
            v1::SessionEnd::Expired => SessionEnd::Expired,
            v1::SessionEnd::Replaced => SessionEnd::Replaced,
            v1::SessionEnd::Evicted => SessionEnd::Evicted,
            v1::SessionEnd::Unknown | v1::SessionEnd::Unspecified => SessionEnd::Unknown,
        }
    }
}
