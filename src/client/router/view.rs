//! One picture of the map of partitions. It is never changed: a change makes another picture, which shares with this
//! one all that stayed.

use super::owner::{Holder, Owner};
use ringfence_api::convert::Phase;
use ringfence_core::ids::{ClusterId, Epoch, EpochFloor, KeyspaceName, PartitionId, Revision};
use ringfence_core::mutant;
use ringfence_core::placement::{PartitionCount, Partitioner};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How many partitions are copied when one of them changes: the price of a change against the length of the spine that
/// every change copies as well.
const CHUNK: usize = 256;

/// A consistent picture of the map: everything in it was so at one revision.
#[derive(Clone)]
pub struct View {
    pub(super) cluster: Option<ClusterId>,
    pub(super) lineage: Arc<str>,
    pub(super) revision: Revision,
    pub(super) keyspaces: HashMap<Arc<str>, Arc<KeyspaceView>>,
}

impl View {
    pub(super) fn empty() -> View {
        View { cluster: None, lineage: Arc::from(""), revision: Revision::new(0), keyspaces: HashMap::new() }
    }

    /// The cluster it shows; `None` only before the first picture.
    pub fn cluster(&self) -> Option<&ClusterId> {
        self.cluster.as_ref()
    }

    /// The history its revision belongs to. Revisions of two lineages do not compare: a restored cluster has another.
    pub fn lineage(&self) -> &str {
        &self.lineage
    }

    /// It shows at least what was so at this revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// One keyspace, if it exists and is watched.
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceView> {
        self.keyspaces.get(name).map(|keyspace| &**keyspace)
    }

    /// The keyspaces watched, in no order.
    pub fn keyspaces(&self) -> impl ExactSizeIterator<Item = &KeyspaceView> {
        self.keyspaces.values().map(|keyspace| &**keyspace)
    }

    /// The owner of the partition that this key belongs to; `None` when nobody owns it or the keyspace is not here.
    pub fn owner(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Option<Owner> {
        let keyspace = self.keyspaces.get(keyspace)?;
        keyspace.owner(keyspace.partition_of(key))
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("cluster", &self.cluster)
            .field("lineage", &self.lineage)
            .field("revision", &self.revision)
            .field("keyspaces", &self.keyspaces.len())
            .finish()
    }
}

/// The partitions of one keyspace in one picture.
#[derive(Clone)]
pub struct KeyspaceView {
    name: KeyspaceName,
    partitioner: Partitioner,
    chunks: Vec<Arc<[Slot]>>,
}

/// What is known of one partition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) epoch: EpochFloor,
    pub(super) phase: Phase,
    pub(super) ready: bool,
    pub(super) holder: Option<Arc<Holder>>,
}

impl Slot {
    const NEW: Slot = Slot { epoch: EpochFloor::NONE, phase: Phase::Vacant, ready: false, holder: None };

    fn owner(&self, partition: PartitionId) -> Option<Owner> {
        let (holder, epoch) = (self.holder.clone()?, self.epoch.epoch()?);
        Some(Owner { holder, partition, epoch, ready: self.ready })
    }
}

impl KeyspaceView {
    /// A keyspace of which nothing else is known.
    pub(super) fn new(name: KeyspaceName, partitioner: Partitioner) -> KeyspaceView {
        let total = partitioner.count().get() as usize;
        let full: Arc<[Slot]> = vec![Slot::NEW; CHUNK.min(total)].into();
        // The chunks are one and the same until they differ.
        let mut chunks = vec![full; total / CHUNK];
        if !total.is_multiple_of(CHUNK) {
            chunks.push(vec![Slot::NEW; total % CHUNK].into());
        }
        KeyspaceView { name, partitioner, chunks }
    }

    /// The same keyspace with more partitions, which were split from others.
    pub(super) fn grown(&self, partitioner: Partitioner) -> KeyspaceView {
        let (have, total) = (self.count().get() as usize, partitioner.count().get() as usize);
        let mut chunks = self.chunks.clone();
        if let Some(last) = chunks.pop_if(|last| last.len() < CHUNK) {
            let room = CHUNK.min(last.len() + total.saturating_sub(have));
            chunks.push(last.iter().cloned().chain(std::iter::repeat(Slot::NEW)).take(room).collect());
        }
        // As in a new view: what nothing is known of is one and the same chunk.
        if let Some(whole) = (total / CHUNK).checked_sub(chunks.len()).filter(|whole| *whole > 0) {
            let full: Arc<[Slot]> = vec![Slot::NEW; CHUNK].into();
            chunks.extend(std::iter::repeat_n(full, whole));
        }
        if chunks.len() * CHUNK < total {
            chunks.push(vec![Slot::NEW; total % CHUNK].into());
        }
        KeyspaceView { name: self.name.clone(), partitioner, chunks }
    }

    /// The same keyspace with nothing but the epochs: the start of a new picture.
    pub(super) fn only_epochs(&self) -> KeyspaceView {
        let bare = |slot: &Slot| Slot { epoch: slot.epoch, ..Slot::NEW };
        let chunks = self.chunks.iter().map(|chunk| chunk.iter().map(bare).collect()).collect();
        KeyspaceView { name: self.name.clone(), partitioner: self.partitioner, chunks }
    }

    /// Its name.
    pub fn name(&self) -> &KeyspaceName {
        &self.name
    }

    /// How many partitions it has.
    pub fn count(&self) -> PartitionCount {
        self.partitioner.count()
    }

    /// How keys are spread over them.
    pub(super) fn partitioner(&self) -> Partitioner {
        self.partitioner
    }

    /// The partition that a key belongs to. It changes only when that partition is split in two, and then to the new one.
    pub fn partition_of(&self, key: impl AsRef<[u8]>) -> PartitionId {
        if mutant!("router-hashes-by-the-old-count") {
            return Partitioner::whole(self.partitioner.base()).partition_of(key.as_ref());
        }
        self.partitioner.partition_of(key.as_ref())
    }

    /// The owner of a partition; `None` when nobody owns it or there is no such partition.
    pub fn owner(&self, partition: PartitionId) -> Option<Owner> {
        self.slot(partition)?.owner(partition)
    }

    /// What is known of a partition; `None` when there is no such partition.
    pub fn partition(&self, partition: PartitionId) -> Option<PartitionView> {
        let slot = self.slot(partition)?;
        Some(PartitionView { partition, phase: slot.phase, epoch: slot.epoch, owner: slot.owner(partition) })
    }

    /// All partitions, by number.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView> + '_ {
        self.count().partitions().filter_map(|partition| self.partition(partition))
    }

    /// The partitions that differ from those of an earlier picture of the same keyspace, by number; all of them when
    /// that one had another count. What the two pictures share costs nothing to compare.
    pub fn changed_since<'a>(
        &'a self,
        earlier: &'a KeyspaceView,
    ) -> impl Iterator<Item = PartitionView> + 'a {
        let before = |at: usize| earlier.chunks.get(at).filter(|_| earlier.count() == self.count());
        let differs =
            move |(at, chunk): &(usize, &Arc<[Slot]>)| before(*at).is_none_or(|b| !Arc::ptr_eq(b, chunk));
        self.chunks.iter().enumerate().filter(differs).flat_map(move |(at, chunk)| {
            let changed = move |within: &usize| before(at).is_none_or(|b| b[*within] != chunk[*within]);
            let number = move |within: usize| u32::try_from(at * CHUNK + within).ok();
            (0..chunk.len())
                .filter(changed)
                .filter_map(move |within| self.partition(PartitionId::new(number(within)?)))
        })
    }

    pub(super) fn slot(&self, partition: PartitionId) -> Option<&Slot> {
        let at = partition.get() as usize;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(super) fn slot_mut(&mut self, partition: PartitionId) -> Option<&mut Slot> {
        let at = partition.get() as usize;
        Arc::make_mut(self.chunks.get_mut(at / CHUNK)?).get_mut(at % CHUNK)
    }
}

impl fmt::Debug for KeyspaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyspaceView")
            .field("name", &self.name)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// One partition in one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    partition: PartitionId,
    phase: Phase,
    epoch: EpochFloor,
    owner: Option<Owner>,
}

impl PartitionView {
    /// Its number.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Where it is in its handoff.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The highest epoch seen of it, which never goes back; `None` when it was never granted.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch.epoch()
    }

    /// Who owns it.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(count: u32) -> KeyspaceView {
        let count = PartitionCount::new(count).unwrap();
        KeyspaceView::new(KeyspaceName::new("orders").unwrap(), Partitioner::whole(count))
    }

    #[test]
    fn a_change_copies_one_chunk_and_leaves_the_earlier_picture_alone() {
        let before = view(1_000);
        let mut after = before.clone();
        after.slot_mut(PartitionId::new(999)).unwrap().phase = Phase::Cooling;
        assert_eq!(before.slot(PartitionId::new(999)).unwrap().phase, Phase::Vacant);
        assert_eq!(after.slot(PartitionId::new(999)).unwrap().phase, Phase::Cooling);
        let shared = before.chunks.iter().zip(&after.chunks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!((before.chunks.len(), shared), (4, 3));
        assert!(after.slot_mut(PartitionId::new(1_000)).is_none());
        let changed: Vec<u32> = after.changed_since(&before).map(|p| p.partition().get()).collect();
        assert_eq!(changed, [999]);
        let other = view(300);
        assert_eq!(other.changed_since(&before).count(), 300);
    }

    /// A picture that is passed on keeps its count while the next one grows.
    #[test]
    fn a_split_adds_partitions_and_leaves_the_earlier_picture_alone() {
        for (base, steps) in [(1, 1), (255, 3), (256, 2), (600, 600)] {
            let mut now = view(base);
            now.slot_mut(PartitionId::new(base - 1)).unwrap().phase = Phase::Cooling;
            let before = now.clone();
            let mut partitioner = before.partitioner();
            for _ in 0..steps {
                partitioner = partitioner.grown().unwrap();
                now = now.grown(partitioner);
                let count = partitioner.count().get();
                assert_eq!(now.partitions().count(), count as usize, "{base}");
                assert!(now.slot(PartitionId::new(count)).is_none());
                assert_eq!(now.slot(PartitionId::new(count - 1)), Some(&Slot::NEW));
                assert_eq!(now.slot(PartitionId::new(base - 1)).unwrap().phase, Phase::Cooling);
            }
            assert_eq!(before.partitions().count(), base as usize);
            // From an empty picture to the whole one, at once.
            assert_eq!(before.only_epochs().grown(partitioner).partitions().count(), (base + steps) as usize);
        }
    }

    #[test]
    fn every_count_has_exactly_its_partitions() {
        for count in [1, 255, 256, 257, 512] {
            let keyspace = view(count);
            assert_eq!(keyspace.partitions().count(), count as usize);
            assert!(keyspace.slot(PartitionId::new(count)).is_none());
        }
    }
}
