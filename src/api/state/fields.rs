//! Fields that commands and snapshots have in common.

use crate::convert::{InvalidField, checked};
use crate::v1;
use prost::bytes::Bytes;
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId, PartitionKey};
use ringfence_core::placement::Weight;
use ringfence_core::state::GrantReason;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn key_to_wire(key: PartitionKey) -> v1::LogPartition {
    v1::LogPartition { keyspace: key.keyspace.get(), partition: key.partition.get() }
}

pub(super) fn key_from_wire(wire: Option<v1::LogPartition>) -> Result<PartitionKey, InvalidField> {
    let wire = wire.ok_or_else(|| InvalidField::missing("partition"))?;
    Ok(PartitionKey { keyspace: KeyspaceId::new(wire.keyspace), partition: PartitionId::new(wire.partition) })
}

pub(super) fn reason_to_wire(why: GrantReason) -> i32 {
    let wire = match why {
        GrantReason::First => v1::GrantReason::First,
        GrantReason::Failover => v1::GrantReason::Failover,
        GrantReason::Vacated => v1::GrantReason::Vacated,
        GrantReason::Balance => v1::GrantReason::Balance,
        GrantReason::Operator => v1::GrantReason::Operator,
        GrantReason::Join => v1::GrantReason::Join,
        GrantReason::Drain => v1::GrantReason::Drain,
        GrantReason::Weight => v1::GrantReason::Weight,
        GrantReason::Zone => v1::GrantReason::Zone,
        GrantReason::Pin => v1::GrantReason::Pin,
        GrantReason::Load => v1::GrantReason::Load,
        GrantReason::Label => v1::GrantReason::Label,
        GrantReason::Plan => v1::GrantReason::Plan,
        GrantReason::Returned => v1::GrantReason::Returned,
        GrantReason::Split => v1::GrantReason::Split,
        GrantReason::Reassert => v1::GrantReason::Reassert,
        GrantReason::Behind => v1::GrantReason::Behind,
    };
    wire.into()
}

pub(super) fn reason_from_wire(number: i32) -> Result<GrantReason, InvalidField> {
    match v1::GrantReason::try_from(number) {
        Ok(v1::GrantReason::First) => Ok(GrantReason::First),
        Ok(v1::GrantReason::Failover) => Ok(GrantReason::Failover),
        Ok(v1::GrantReason::Vacated) => Ok(GrantReason::Vacated),
        Ok(v1::GrantReason::Balance) => Ok(GrantReason::Balance),
        Ok(v1::GrantReason::Operator) => Ok(GrantReason::Operator),
        Ok(v1::GrantReason::Join) => Ok(GrantReason::Join),
        Ok(v1::GrantReason::Drain) => Ok(GrantReason::Drain),
        Ok(v1::GrantReason::Weight) => Ok(GrantReason::Weight),
        Ok(v1::GrantReason::Zone) => Ok(GrantReason::Zone),
        Ok(v1::GrantReason::Pin) => Ok(GrantReason::Pin),
        Ok(v1::GrantReason::Load) => Ok(GrantReason::Load),
        Ok(v1::GrantReason::Label) => Ok(GrantReason::Label),
        Ok(v1::GrantReason::Plan) => Ok(GrantReason::Plan),
        Ok(v1::GrantReason::Returned) => Ok(GrantReason::Returned),
        Ok(v1::GrantReason::Split) => Ok(GrantReason::Split),
        Ok(v1::GrantReason::Reassert) => Ok(GrantReason::Reassert),
        Ok(v1::GrantReason::Behind) => Ok(GrantReason::Behind),
        Ok(v1::GrantReason::Unspecified) | Err(_) => Err(checked::unknown_value("why", number)),
    }
}

/// No entry has index 0, so it stands for none.
pub(super) fn directive_to_wire(by: Option<LogIndex>) -> u64 {
    by.map_or(0, LogIndex::get)
}

pub(super) fn directive_from_wire(index: u64) -> Option<LogIndex> {
    (index > 0).then(|| LogIndex::new(index))
}

pub(super) fn id_to_wire(id: u128) -> Bytes {
    Bytes::copy_from_slice(&id.to_be_bytes())
}

pub(super) fn id_from_wire(field: &str, wire: &[u8]) -> Result<u128, InvalidField> {
    checked::bytes(field, wire).map(u128::from_be_bytes)
}

pub(super) fn weight_from_wire(number: u32) -> Result<Weight, InvalidField> {
    Weight::new(number).map_err(|why| InvalidField::new("weight", why))
}

pub(super) fn labels_to_wire(labels: &BTreeMap<String, String>) -> Vec<v1::StateLabel> {
    labels.iter().map(|(key, value)| v1::StateLabel { key: key.clone(), value: value.clone() }).collect()
}

pub(super) fn labels_from_wire(wire: Vec<v1::StateLabel>) -> BTreeMap<String, String> {
    wire.into_iter().map(|label| (label.key, label.value)).collect()
}

pub(super) fn keyspaces_to_wire(keyspaces: &BTreeSet<KeyspaceId>) -> Vec<u32> {
    keyspaces.iter().map(|id| id.get()).collect()
}

pub(super) fn keyspaces_from_wire(wire: Vec<u32>) -> BTreeSet<KeyspaceId> {
    wire.into_iter().map(KeyspaceId::new).collect()
}
