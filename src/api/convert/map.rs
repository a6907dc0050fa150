//! One line of the map that callers follow: a partition and who owns it.

use super::address::Owner;
use super::checked::{epoch_or_none, keyspace_name};
use super::field::InvalidField;
use super::phase::Phase;
use crate::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, PartitionKey, SessionId};
use ringfence_core::state::State;

/// A partition as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapEntry {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// The last epoch granted, `None` when it never was.
    pub epoch: Option<Epoch>,
    /// Where it is in its handoff.
    pub phase: Phase,
    /// The owner has raised its fences and loaded: callers may come.
    pub ready: bool,
    /// Who owns it.
    pub owner: Option<Owner>,
}

impl MapEntry {
    /// The partition as the state has it; `None` when there is no such partition.
    pub fn read(state: &State, key: PartitionKey) -> Option<MapEntry> {
        let partition = state.partition(key)?;
        Some(MapEntry {
            keyspace: state.keyspace(key.keyspace)?.name().clone(),
            partition: key.partition,
            epoch: partition.epoch(),
            phase: partition.phase().into(),
            ready: partition.ready(),
            owner: partition.owner().and_then(|session| Owner::read(state, session)),
        })
    }
}

impl Owner {
    /// The worker of a live session.
    pub fn read(state: &State, session: SessionId) -> Option<Owner> {
        let session = state.session(session)?;
        Some(Owner {
            worker: session.worker().clone(),
            session: session.id(),
            address: session.address().to_owned(),
        })
    }
}

impl From<MapEntry> for v1::MapEntry {
    fn from(from: MapEntry) -> v1::MapEntry {
        v1::MapEntry {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            epoch: from.epoch.map_or(0, Epoch::get),
            phase: v1::Phase::from(from.phase).into(),
            ready: from.ready,
            owner: from.owner.map(Into::into),
        }
    }
}

impl TryFrom<v1::MapEntry> for MapEntry {
    type Error = InvalidField;

    fn try_from(wire: v1::MapEntry) -> Result<MapEntry, InvalidField> {
        Ok(MapEntry {
            keyspace: keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            epoch: epoch_or_none("epoch", wire.epoch)?,
            phase: wire.phase.try_into()?,
            ready: wire.ready,
            owner: wire
                .owner
                .map(|owner| Owner::try_from(owner).map_err(|e| e.within("owner")))
                .transpose()?,
        })
    }
}
