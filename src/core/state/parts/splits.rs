//! Split partitions, as parts.

use super::KeyspaceParts;
use super::check::PartsError;
use crate::ids::{Epoch, EpochFloor, KeyspaceId, PartitionId, PartitionKey, SessionId};
use crate::placement::{PartitionCount, Partitioner};
use crate::state::keyspace::Keyspace;
use crate::state::session::Session;
use std::collections::BTreeMap;

/// How many partitions it has, or will have when they are split.
pub(super) fn reserved(part: &KeyspaceParts) -> u64 {
    let whole = u64::from(part.base.get());
    if part.split.is_some() { 2 * whole } else { part.partitions.len() as u64 }
}

/// How its keys are spread, when every partition comes from where the order of splits says.
pub(super) fn partitioner(part: &KeyspaceParts, count: PartitionCount) -> Result<Partitioner, PartsError> {
    let wrong = |why| Err(PartsError::Split { keyspace: part.id, why });
    let Ok(partitioner) = Partitioner::new(part.base, count) else {
        return wrong("it has fewer partitions than before it was split, or twice as many and more");
    };
    if part.split.is_none() && partitioner.is_midway() {
        return wrong("some of its partitions are split and some are not, and no split is under way");
    }
    if part.split.is_some() && partitioner.doubled().is_none() {
        return wrong("its partitions are being split, and would be too many");
    }
    let from = |number: u32| part.partitions.get(number as usize)?.born.map(|born| born.parent.get());
    // Round by round, the last one first: each has doubled the one before.
    let (mut first, mut end) = (part.base.get(), count.get());
    loop {
        if !(first..end).all(|number| from(number) == Some(number - first)) {
            return wrong("a partition was not split from the one whose turn it was");
        }
        end = first;
        if !end.is_multiple_of(2) || from(end - 1).is_none() {
            break;
        }
        first = end / 2;
    }
    if (0..end).any(|number| from(number).is_some()) {
        return wrong("a partition was split from another before its turn");
    }
    Ok(partitioner)
}

/// The epochs of partitions that their last splits minted. What a split mints is granted to nobody, and is not above
/// what the partition has come to.
pub(super) fn minted(part: &KeyspaceParts) -> Result<BTreeMap<PartitionId, Epoch>, PartsError> {
    let mut minted = BTreeMap::new();
    for born in part.partitions.iter().filter_map(|partition| partition.born) {
        let key = PartitionKey { keyspace: part.id, partition: born.parent };
        let wrong = |why| Err(PartsError::Partition { partition: key, why });
        let Some(parent) = part.partitions.get(born.parent.get() as usize) else {
            return wrong("another was split from it, and it is not there");
        };
        let granted = parent.history.iter().any(|tenure| tenure.epoch == born.epoch);
        if granted || EpochFloor::of(born.epoch) > parent.epoch {
            return wrong("the epoch of a split was granted, or never minted");
        }
        if minted.insert(born.parent, born.epoch).is_some_and(|earlier| earlier >= born.epoch) {
            return wrong("the epochs of its splits do not grow");
        }
    }
    Ok(minted)
}

/// Nobody serves split partitions without knowing what that means.
pub(super) fn sessions(
    keyspaces: &BTreeMap<KeyspaceId, Keyspace>,
    sessions: &BTreeMap<SessionId, Session>,
) -> Result<(), PartsError> {
    let needs = |id: &KeyspaceId| keyspaces.get(id).is_some_and(Keyspace::needs_splits);
    match sessions.values().find(|session| !session.splits && session.keyspaces.iter().any(needs)) {
        None => Ok(()),
        Some(old) => {
            let why = "it serves a keyspace with split partitions, and cannot own them";
            Err(PartsError::Session { session: old.id, why })
        }
    }
}
