//! What programs and owners told of their storage, as parts.

use super::check::{Check, PartsError, ascending, bound};
use crate::ids::{EpochFloor, KeyspaceId, PartitionId, PartitionKey};
use crate::state::keyspace::Keyspace;
use crate::state::partition::Partition;
use crate::state::reasserts::{REASSERTS_LEN, Reassert};
use crate::state::refusals::{REFUSALS_LEN, RefusedWrites};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl Check {
    pub(super) fn refusals(&self, parts: Vec<RefusedWrites>) -> Result<VecDeque<RefusedWrites>, PartsError> {
        bound("the number of refused writes remembered", parts.len(), REFUSALS_LEN)?;
        let mut seen = BTreeSet::new();
        if !parts.is_sorted_by_key(|writes| writes.at) || !parts.iter().all(|w| seen.insert(&w.what)) {
            return Err(PartsError::Order { what: "the refused writes" });
        }
        for writes in &parts {
            self.applied("the report of a refused write", writes.at)?;
            for holder in writes.writer.iter().chain(&writes.successor) {
                self.given_session(holder.session)?;
            }
        }
        Ok(parts.into())
    }

    pub(super) fn reasserts(
        &self,
        parts: Vec<Reassert>,
        keyspaces: &BTreeMap<KeyspaceId, Keyspace>,
    ) -> Result<VecDeque<Reassert>, PartsError> {
        bound("the number of orders to raise fences again", parts.len(), REASSERTS_LEN)?;
        if !parts.is_sorted_by_key(|order| order.at) {
            return Err(PartsError::Order { what: "the orders to raise fences again" });
        }
        for order in &parts {
            self.applied("an order to raise fences again", order.at)?;
            self.directed(Some(order.by))?;
            let keyspace = keyspaces.get(&order.keyspace);
            let number = order.partition.unwrap_or(PartitionId::new(0));
            if keyspace.and_then(|keyspace| keyspace.partitions.get(number.get() as usize)).is_none() {
                let partition = PartitionKey { keyspace: order.keyspace, partition: number };
                let why = "its fences are to be raised again, and it is not there";
                return Err(PartsError::Partition { partition, why });
            }
        }
        Ok(parts.into())
    }
}

/// A floor is kept while it is above what its partition stands at.
pub(super) fn raised(
    keyspace: KeyspaceId,
    partitions: &[Partition],
    parts: Vec<(PartitionId, EpochFloor)>,
) -> Result<BTreeMap<PartitionId, EpochFloor>, PartsError> {
    ascending("the floors of partitions", parts.iter().map(|(partition, _)| *partition))?;
    for (partition, floor) in &parts {
        if partitions.get(partition.get() as usize).is_none_or(|of| of.epoch >= *floor) {
            let partition = PartitionKey { keyspace, partition: *partition };
            let why = "it has a floor that is not above its epoch, or is not there";
            return Err(PartsError::Partition { partition, why });
        }
    }
    Ok(parts.into_iter().collect())
}
