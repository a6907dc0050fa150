//! Where a partition is in its handoff, without the details that only the coordinator needs.

use super::checked::unknown_value;
use super::field::InvalidField;
use crate::v1;
use ringfence_core::state;
use std::fmt;

/// Where a partition is in its handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nobody owns it; it is granted as soon as a worker may have it.
    Vacant,
    /// Nobody owns it, and it waits: for an earlier owner's lease, a lock delay, or a back-off after failures.
    Cooling,
    /// A worker owns it.
    Owned,
    /// Its owner was told to stop.
    Draining,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Vacant => "vacant",
            Phase::Cooling => "cooling",
            Phase::Owned => "owned",
            Phase::Draining => "draining",
        })
    }
}

impl From<&state::Phase> for Phase {
    fn from(from: &state::Phase) -> Phase {
        match from {
            state::Phase::Vacant => Phase::Vacant,
            state::Phase::Cooling(_) => Phase::Cooling,
            state::Phase::Owned { .. } => Phase::Owned,
            state::Phase::Draining(_) => Phase::Draining,
        }
    }
}

impl From<Phase> for v1::Phase {
    fn from(phase: Phase) -> v1::Phase {
        match phase {
            Phase::Vacant => v1::Phase::Vacant,
            Phase::Cooling => v1::Phase::Cooling,
            Phase::Owned => v1::Phase::Owned,
            Phase::Draining => v1::Phase::Draining,
        }
    }
}

/// From the number in a message's `phase`. A phase that a newer coordinator knows is an error: whoever took it for
/// another one could call a worker that does not own the partition.
impl TryFrom<i32> for Phase {
    type Error = InvalidField;

    fn try_from(number: i32) -> Result<Phase, InvalidField> {
        match v1::Phase::try_from(number) {
            Ok(v1::Phase::Vacant) => Ok(Phase::Vacant),
            Ok(v1::Phase::Cooling) => Ok(Phase::Cooling),
            Ok(v1::Phase::Owned) => Ok(Phase::Owned),
            Ok(v1::Phase::Draining) => Ok(Phase::Draining),
            Ok(v1::Phase::Unspecified) | Err(_) => Err(unknown_value("phase", number)),
        }
    }
}
