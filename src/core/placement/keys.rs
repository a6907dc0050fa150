//! Where a keyspace's partitions lie on the ring.

use super::hash::{PartitionCount, sip};
use crate::ids::KeyspaceName;

/// The place of every partition of a keyspace on the ring.
///
/// It depends on the keyspace's name and its number of partitions alone, so a caller may keep it for the keyspace's
/// life. The name takes part so that partition 0 of a thousand keyspaces does not lie on one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeys {
    keyspace: KeyspaceName,
    keys: Vec<u64>,
}

impl PartitionKeys {
    /// The keys of a keyspace's partitions.
    pub fn new(keyspace: &KeyspaceName, count: PartitionCount) -> PartitionKeys {
        let seed = seed_of(keyspace);
        let keys = (0..count.get()).map(|partition| key_of(seed, partition)).collect();
        PartitionKeys { keyspace: keyspace.clone(), keys }
    }

    /// Whether these are the keys of that keyspace with that many partitions.
    pub fn are_of(&self, keyspace: &KeyspaceName, count: usize) -> bool {
        self.keyspace == *keyspace && self.keys.len() == count
    }

    /// The keys, indexed by the partition's number.
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.keys
    }
}

/// What makes one keyspace differ from another in everything that placement decides by hash.
pub(super) fn seed_of(keyspace: &KeyspaceName) -> u64 {
    sip(keyspace.as_str().as_bytes())
}

/// One buffer of fixed width, little-endian, that starts with a tag: `p`, the keyspace's seed, the partition's number.
fn key_of(seed: u64, partition: u32) -> u64 {
    let mut buffer = [0_u8; 13];
    buffer[0] = b'p';
    buffer[1..9].copy_from_slice(&seed.to_le_bytes());
    buffer[9..].copy_from_slice(&partition.to_le_bytes());
    sip(&buffer)
}
