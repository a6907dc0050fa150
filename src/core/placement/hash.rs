//! Key to partition: the one function on which every router, in every language, must agree.
//!
//! It is SipHash-2-4 with a zero key over the key's bytes and nothing else, taken modulo the number of partitions.
//! `proto/golden/key_to_partition.tsv` has answers to test another implementation with. The function never changes:
//! another one would put a key into two partitions, each with an owner of its own. It is no defence against somebody
//! who chooses keys so that they fall into one partition, for the key of the hash is public.

use crate::ids::PartitionId;
use siphasher::sip::SipHasher24;
use std::fmt;
use std::num::NonZeroU32;

/// The most partitions a keyspace may have.
pub const MAX_PARTITIONS: u32 = 1_000_000;

/// The name of the function behind [`partition_of`]. A router that states another one is to be refused, for it would
/// send keys to the wrong owners.
pub const PARTITIONER: &str = "siphash-2-4-zero-key/mod";

/// How many partitions a keyspace has: 1 to [`MAX_PARTITIONS`]. It changes by splitting all of them in two, and in no
/// other way: see [`Partitioner`](super::Partitioner).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionCount(NonZeroU32);

impl PartitionCount {
    /// This many partitions.
    ///
    /// # Errors
    /// [`PartitionCountError`] when it is zero or above [`MAX_PARTITIONS`].
    pub const fn new(number: u32) -> Result<PartitionCount, PartitionCountError> {
        match NonZeroU32::new(number) {
            Some(n) if number <= MAX_PARTITIONS => Ok(PartitionCount(n)),
            _ => Err(PartitionCountError { number }),
        }
    }

    /// The number, for a wire field.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether the keyspace has this partition: they are numbered from 0.
    pub const fn contains(self, partition: PartitionId) -> bool {
        partition.get() < self.0.get()
    }

    /// Every partition, in the order of their numbers.
    pub fn partitions(self) -> impl ExactSizeIterator<Item = PartitionId> + Clone {
        (0..self.0.get()).map(PartitionId::new)
    }
}

impl fmt::Display for PartitionCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that cannot be a number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not a number of partitions: a keyspace has between 1 and {MAX_PARTITIONS}")]
pub struct PartitionCountError {
    /// The number refused.
    pub number: u32,
}

/// The partition to which a key belongs in a keyspace of which no partition is being split.
#[inline]
pub fn partition_of(key: &[u8], count: PartitionCount) -> PartitionId {
    // The remainder is below the count, so it fits.
    PartitionId::new((sip(key) % u64::from(count.get())) as u32)
}

/// SipHash-2-4 with a zero key, over the bytes alone: no length prefix and no terminator, unlike `Hash` for `[u8]` and
/// `str`.
#[inline]
pub(super) fn sip(bytes: &[u8]) -> u64 {
    SipHasher24::new().hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../../proto/golden/key_to_partition.tsv");

    fn bytes_of(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn f061_a_key_stays_in_its_partition_for_ever() {
        let mut lines = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
            let [key, count, partition] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line:?}")
            };
            let count = PartitionCount::new(count.parse().unwrap()).unwrap();
            assert_eq!(partition_of(&bytes_of(key), count).get().to_string(), partition, "{line:?}");
            lines += 1;
        }
        assert!(lines > 100, "the golden file has only {lines} answers");
    }

    #[test]
    fn f061_another_count_is_another_partitioner() {
        let of = |key: u32, count| partition_of(&key.to_le_bytes(), PartitionCount::new(count).unwrap());
        let moved = (0..1_000).filter(|key| of(*key, 64) != of(*key, 128)).count();
        assert!(
            (400..600).contains(&moved),
            "half of the keys change partition when the count doubles: {moved}"
        );
    }

    #[test]
    fn a_count_is_between_1_and_a_million() {
        assert_eq!(PartitionCount::new(0), Err(PartitionCountError { number: 0 }));
        assert_eq!(PartitionCount::new(MAX_PARTITIONS).map(PartitionCount::get), Ok(1_000_000));
        let error = PartitionCount::new(1_000_001).unwrap_err().to_string();
        assert!(error.contains("between 1 and 1000000"), "{error}");
    }

    #[test]
    fn partitions_are_numbered_from_0() {
        let count = PartitionCount::new(3).unwrap();
        assert_eq!(count.partitions().map(PartitionId::get).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(count.contains(PartitionId::new(2)) && !count.contains(PartitionId::new(3)));
    }
}
