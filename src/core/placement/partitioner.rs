//! Key to partition while the number of partitions doubles, one partition at a time.
//!
//! It is linear hashing (Litwin, VLDB 1980). A keyspace had `base` partitions when it was last whole, and has `count` of
//! them now: partitions 0 to `count - base - 1` are split, each into itself and a child whose number is higher by
//! `base`. A key belongs to its hash modulo `2 * base` when there is such a partition, and to its hash modulo `base`
//! otherwise. So a split moves keys from one partition to one new one and touches no other, and when all are split it is
//! the plain remainder again.
//!
//! The rule: which keys a partition has changes by its own split and by nothing else.

use super::hash::{MAX_PARTITIONS, PartitionCount, sip};
use crate::ids::PartitionId;

/// How the keys of a keyspace are spread over its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partitioner {
    base: PartitionCount,
    /// At least `base`, and below twice that.
    count: PartitionCount,
}

/// Two counts that cannot be those of one keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} partitions cannot come from splitting {base}: it is at least that many, and fewer than twice"
)]
pub struct PartitionerError {
    /// How many it had when it was last whole.
    pub base: u32,
    /// How many it has.
    pub count: u32,
}

/// The keys of one partition: those whose hash leaves the partition's number when it is divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The partition.
    pub partition: PartitionId,
    /// The divisor.
    pub of: PartitionCount,
}

impl Share {
    /// Whether the key is among them.
    #[inline]
    pub fn contains(self, key: &[u8]) -> bool {
        sip(key) % u64::from(self.of.get()) == u64::from(self.partition.get())
    }
}

impl Partitioner {
    /// That of a keyspace of which no partition is being split.
    pub const fn whole(count: PartitionCount) -> Partitioner {
        Partitioner { base: count, count }
    }

    /// That of a keyspace which had `base` partitions when it was last whole, and has `count` now.
    ///
    /// # Errors
    /// [`PartitionerError`] when that cannot be.
    pub const fn new(base: PartitionCount, count: PartitionCount) -> Result<Partitioner, PartitionerError> {
        if count.get() < base.get() || count.get() - base.get() >= base.get() {
            return Err(PartitionerError { base: base.get(), count: count.get() });
        }
        Ok(Partitioner { base, count })
    }

    /// How many partitions there were when it was last whole.
    pub const fn base(self) -> PartitionCount {
        self.base
    }

    /// How many partitions there are.
    pub const fn count(self) -> PartitionCount {
        self.count
    }

    /// How many there will be when all are split; `None` when that is more than a keyspace may have.
    pub const fn doubled(self) -> Option<PartitionCount> {
        if self.base.get() > MAX_PARTITIONS / 2 {
            return None;
        }
        match PartitionCount::new(self.base.get() * 2) {
            Ok(doubled) => Some(doubled),
            Err(_) => None,
        }
    }

    /// Some partitions are split, and some not yet.
    pub const fn is_midway(self) -> bool {
        self.count.get() != self.base.get()
    }

    /// The partition to which a key belongs.
    #[inline]
    pub fn partition_of(self, key: &[u8]) -> PartitionId {
        let (hash, base) = (sip(key), u64::from(self.base.get()));
        let number = match self.is_midway() {
            false => hash % base,
            true => match hash % (2 * base) {
                number if number < u64::from(self.count.get()) => number,
                // Its partition is not born yet.
                number => number - base,
            },
        };
        // A remainder, below the count.
        PartitionId::new(number as u32)
    }

    /// The keys of a partition.
    pub fn share(self, partition: PartitionId) -> Share {
        let number = partition.get();
        let is_split = number >= self.base.get() || number < self.next_parent().get();
        let of = self.doubled().filter(|_| self.is_midway() && is_split).unwrap_or(self.base);
        Share { partition, of }
    }

    /// The partition that is split next.
    pub const fn next_parent(self) -> PartitionId {
        PartitionId::new(self.count.get() - self.base.get())
    }

    /// The number of its child.
    pub const fn next_child(self) -> PartitionId {
        PartitionId::new(self.count.get())
    }

    /// This with the next partition split; `None` at the bound.
    pub fn grown(self) -> Option<Partitioner> {
        let doubled = self.doubled()?;
        let count = PartitionCount::new(self.count.get() + 1).ok()?;
        Some(if count == doubled {
            Partitioner::whole(doubled)
        } else {
            Partitioner { base: self.base, count }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::partition_of;
    use super::*;

    const GOLDEN: &str = include_str!("../../../proto/golden/key_to_partition_midway.tsv");

    fn count(number: u32) -> PartitionCount {
        PartitionCount::new(number).unwrap()
    }

    fn keys() -> impl Iterator<Item = [u8; 4]> {
        (0..2_000_u32).map(u32::to_le_bytes)
    }

    #[test]
    fn a_whole_keyspace_has_the_plain_remainder() {
        for n in [1, 2, 3, 64, 1_000_000] {
            assert!(
                keys().all(
                    |key| Partitioner::whole(count(n)).partition_of(&key) == partition_of(&key, count(n))
                )
            );
        }
    }

    #[test]
    fn f061_a_split_moves_keys_from_one_partition_to_its_child_and_touches_no_other() {
        for base in [1, 2, 3, 5, 16] {
            let mut now = Partitioner::whole(count(base));
            for parent in 0..base {
                assert_eq!((now.next_parent().get(), now.next_child().get()), (parent, parent + base));
                let grown = now.grown().unwrap();
                for key in keys() {
                    let (before, after) = (now.partition_of(&key).get(), grown.partition_of(&key).get());
                    assert!(before == after || (before == parent && after == parent + base));
                    assert!(grown.count().contains(PartitionId::new(after)));
                }
                now = grown;
            }
            assert_eq!(now, Partitioner::whole(count(2 * base)));
        }
    }

    /// What an owner was told of its keys stays true until its own partition is split.
    #[test]
    fn the_keys_of_a_partition_are_those_that_belong_to_it_and_change_by_its_own_split_only() {
        let mut now = Partitioner::whole(count(5));
        for parent in 0..5 {
            for partition in now.count().partitions() {
                let share = now.share(partition);
                assert!(keys().all(|key| share.contains(&key) == (now.partition_of(&key) == partition)));
            }
            let grown = now.grown().unwrap();
            let of = |spread: Partitioner, n| spread.share(PartitionId::new(n)).of.get();
            for other in (0..now.count().get()).filter(|other| *other != parent) {
                assert_eq!(of(grown, other), of(now, other), "{other} at {now:?}");
            }
            assert_eq!((of(now, parent), of(grown, parent), of(grown, parent + 5)), (5, 10, 10));
            now = grown;
        }
    }

    #[test]
    fn counts_that_cannot_be_are_refused_with_both() {
        assert_eq!(Partitioner::new(count(4), count(7)).map(Partitioner::is_midway), Ok(true));
        for (base, n) in [(4, 3), (4, 8), (4, 9), (1, 2), (1_000_000, 1)] {
            let error = Partitioner::new(count(base), count(n)).unwrap_err().to_string();
            assert!(error.contains(&base.to_string()) && error.contains(&n.to_string()), "{error}");
        }
        assert_eq!(Partitioner::whole(count(500_001)).grown(), None);
        assert_eq!(Partitioner::whole(count(500_000)).doubled(), Some(count(1_000_000)));
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn f061_a_key_is_in_one_partition_for_every_language_also_midway() {
        let mut lines = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
            let [key, base, n, partition] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line:?}")
            };
            let spread = Partitioner::new(count(base.parse().unwrap()), count(n.parse().unwrap())).unwrap();
            assert_eq!(spread.partition_of(&bytes_of(key)).get().to_string(), partition, "{line:?}");
            lines += 1;
        }
        assert!(lines > 100, "the golden file has only {lines} answers");
    }
}
