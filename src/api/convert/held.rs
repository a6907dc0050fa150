//! What a session holds, as its worker is told.

use super::checked::{epoch, keyspace_name, millis};
use super::field::InvalidField;
use super::keyspace::partition_count;
use crate::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, PartitionKey, SessionId};
use ringfence_core::lease::lessee::Lineage;
use ringfence_core::placement::PartitionCount;
use ringfence_core::state::{Born, Phase, State};
use std::time::Duration;

/// A partition that a session holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// The epoch of the grant.
    pub epoch: Epoch,
    /// The worker has said that it is ready.
    pub ready: bool,
    /// The coordinator wants it back.
    pub draining: bool,
    /// Which keys it has, and which partitions it was split from.
    pub lineage: Lineage,
}

/// A partition that a session holds no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// The epoch under which the session held it.
    pub epoch: Epoch,
}

/// A drain in progress, and what was left of it when the renewal was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DrainLeft {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// The epoch that is drained.
    pub epoch: Epoch,
    /// What is left of it.
    pub left: Duration,
}

impl Held {
    /// The partition as its owner is told of it; `None` when `session` does not own it.
    pub fn read(state: &State, session: SessionId, key: PartitionKey) -> Option<Held> {
        let partition = state.partition(key).filter(|partition| partition.owner() == Some(session))?;
        let keyspace = state.keyspace(key.keyspace)?;
        Some(Held {
            keyspace: keyspace.name().clone(),
            partition: key.partition,
            epoch: partition.epoch()?,
            ready: partition.ready(),
            draining: matches!(partition.phase(), Phase::Draining(_)),
            lineage: Lineage::read(keyspace, key.partition),
        })
    }
}

impl From<Held> for v1::Held {
    fn from(from: Held) -> v1::Held {
        v1::Held {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            epoch: from.epoch.get(),
            ready: from.ready,
            draining: from.draining,
            divisor: from.lineage.of.map_or(0, PartitionCount::get),
            ancestors: from.lineage.ancestors.iter().map(ancestor_to_wire).collect(),
        }
    }
}

fn ancestor_to_wire(born: &Born) -> v1::Ancestor {
    v1::Ancestor { partition: born.parent.get(), epoch: born.epoch.get() }
}

/// What a grant says of where its partition comes from.
///
/// # Errors
/// [`InvalidField`] when an epoch or the divisor is out of bounds.
pub fn lineage(divisor: u32, ancestors: &[v1::Ancestor]) -> Result<Lineage, InvalidField> {
    let of = match divisor {
        0 => None,
        number => Some(partition_count("divisor", number)?),
    };
    let ancestors = ancestors.iter().enumerate().map(|(place, wire)| {
        let epoch = epoch("epoch", wire.epoch).map_err(|e| e.at("ancestors", place))?;
        Ok(Born { parent: PartitionId::new(wire.partition), epoch, by: None })
    });
    Ok(Lineage { of, ancestors: ancestors.collect::<Result<_, InvalidField>>()? })
}

impl TryFrom<v1::Held> for Held {
    type Error = InvalidField;

    fn try_from(wire: v1::Held) -> Result<Held, InvalidField> {
        Ok(Held {
            keyspace: keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            epoch: epoch("epoch", wire.epoch)?,
            ready: wire.ready,
            draining: wire.draining,
            lineage: lineage(wire.divisor, &wire.ancestors)?,
        })
    }
}

impl From<Gone> for v1::Gone {
    fn from(from: Gone) -> v1::Gone {
        v1::Gone {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            epoch: from.epoch.get(),
        }
    }
}

impl TryFrom<v1::Gone> for Gone {
    type Error = InvalidField;

    fn try_from(wire: v1::Gone) -> Result<Gone, InvalidField> {
        Ok(Gone {
            keyspace: keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            epoch: epoch("epoch", wire.epoch)?,
        })
    }
}

/// What is left is cut to milliseconds downwards: a worker that stops too early harms nobody.
impl From<DrainLeft> for v1::DrainLeft {
    fn from(from: DrainLeft) -> v1::DrainLeft {
        v1::DrainLeft {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            epoch: from.epoch.get(),
            left_ms: millis(from.left),
        }
    }
}

impl TryFrom<v1::DrainLeft> for DrainLeft {
    type Error = InvalidField;

    fn try_from(wire: v1::DrainLeft) -> Result<DrainLeft, InvalidField> {
        Ok(DrainLeft {
            keyspace: keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            epoch: epoch("epoch", wire.epoch)?,
            left: Duration::from_millis(wire.left_ms),
        })
    }
}
