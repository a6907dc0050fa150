//! The ring: every worker's points on the circle of 64-bit hashes. The only file that names `hashring`.
//!
//! A partition's *home* is the worker of the first point at or after the partition's key; the points after it give its
//! order of preference among the rest. A worker that leaves takes only its own points with it.
//!
//! Three things that the `hashring` crate leaves to its user are settled here. It has no virtual nodes, so its node is
//! one of ours. It hashes what `Hash` feeds it, and what std feeds differs by platform and by version, so a node writes
//! one buffer of fixed width. And it orders equal hashes by insertion, so the ring is always built whole, from workers
//! in the order of their ids, and never changed: the same set of workers is the same ring, whatever collides.

use super::candidate::{Candidate, WorkerIx};
use super::error::PlanError;
use super::hash::sip;
use super::view::MAX_WORKERS;
use super::weight::Weight;
use crate::ids::WorkerId;
use hashring::{DefaultHashBuilder, HashRing};
use std::hash::{BuildHasher, Hash, Hasher};

/// Points of a worker whose weight equals the unit (see [`unit_of`]), so 16 to 31 for one of mean weight. Balance does
/// not rest on them, the quota sees to that. Four times as many would leave 94 partitions of 100 at home instead of 89,
/// and make the ring of ten thousand workers, which costs more than the plan itself, four times as dear.
const POINTS_PER_UNIT: u64 = 16;

/// Every worker has some points, or its share would come from the leftovers of others and never be at home.
const MIN_POINTS: u64 = 4;

/// No worker has more points than this, however heavy it is.
const MAX_POINTS: u64 = 256;

/// The workers of a cluster on the ring. It is the same for every keyspace, so a caller may keep it until a worker or
/// a weight changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    members: Vec<(WorkerId, Weight)>,
    keys: Vec<u64>,
    owners: Vec<WorkerIx>,
    /// For each value of a key's leading bits, the first point that is not below it. One step here and a short walk
    /// replace a binary search, most of whose steps miss the cache.
    starts: Vec<u32>,
    shift: u32,
}

impl Ring {
    /// The ring of a set of workers. Their order does not matter, and neither does one named twice (the larger weight
    /// counts). A worker's standing does not matter either, so a drained worker keeps its homes for
    /// when it returns.
    ///
    /// # Errors
    /// [`PlanError::TooManyWorkers`] when there are more than [`MAX_WORKERS`].
    pub fn new(workers: &[Candidate]) -> Result<Ring, PlanError> {
        Ring::hashed_by(workers, |worker| sip(worker.as_str().as_bytes()))
    }

    /// [`Ring::new`] with the hash of names as an argument, so that a test can make names collide.
    fn hashed_by(workers: &[Candidate], hash: impl Fn(&WorkerId) -> u64) -> Result<Ring, PlanError> {
        if workers.len() > MAX_WORKERS {
            return Err(PlanError::TooManyWorkers { workers: workers.len() });
        }
        let mut members: Vec<_> = workers.iter().map(|w| (w.worker.clone(), w.weight)).collect();
        members.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        members.dedup_by(|later, earlier| later.0 == earlier.0);
        let points = points(&members, hash);
        Ok(Ring::flatten(members, points))
    }

    fn flatten(members: Vec<(WorkerId, Weight)>, points: Vec<Point>) -> Ring {
        let mut ring: HashRing<Point> = HashRing::new();
        ring.batch_add(points);
        let len = ring.len();
        let (mut keys, mut owners) = (Vec::with_capacity(len), Vec::with_capacity(len));
        for point in ring {
            keys.push(point.key());
            owners.push(point.owner);
        }
        // About one point in each bucket. One bit at the least, for a shift by 64 is none.
        let bits = (usize::BITS - len.leading_zeros()).clamp(1, 24);
        let shift = u64::BITS - bits;
        let mut starts = Vec::with_capacity(1 << bits);
        let mut position = 0;
        for bucket in 0..1_u64 << bits {
            while keys.get(position).is_some_and(|key| key >> shift < bucket) {
                position += 1;
            }
            starts.push(position as u32);
        }
        Ring { members, keys, owners, starts, shift }
    }

    /// Whether this is the ring of exactly these workers at these weights, which are sorted by id.
    pub(crate) fn is_of(&self, workers: &[Candidate]) -> bool {
        self.members.len() == workers.len()
            && self
                .members
                .iter()
                .zip(workers)
                .all(|((id, weight), w)| *id == w.worker && *weight == w.weight)
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The position of the first point at or after the key, around the end of the circle: what `HashRing::get` finds.
    pub(super) fn position(&self, key: u64) -> usize {
        let mut position = self.starts[(key >> self.shift) as usize] as usize;
        while self.keys.get(position).is_some_and(|&point| point < key) {
            position += 1;
        }
        if position == self.keys.len() { 0 } else { position }
    }

    /// The worker of the point at this position.
    pub(super) fn owner(&self, position: usize) -> WorkerIx {
        self.owners[position]
    }

    /// The worker that a key prefers; `None` when there is no worker at all.
    pub(super) fn home(&self, key: u64) -> Option<WorkerIx> {
        self.owners.get(self.position(key)).copied()
    }
}

/// The points of all workers, in the order of the workers' ids and of the points' numbers. `batch_add` sorts stably, so
/// this order decides between equal hashes.
fn points(members: &[(WorkerId, Weight)], hash: impl Fn(&WorkerId) -> u64) -> Vec<Point> {
    let unit = unit_of(members);
    let mut points = Vec::with_capacity(members.len() * 32);
    for (index, (worker, weight)) in members.iter().enumerate() {
        let (name, owner) = (hash(worker), WorkerIx::new(index as u32));
        let count = (POINTS_PER_UNIT * u64::from(weight.get()) / unit).clamp(MIN_POINTS, MAX_POINTS);
        points.extend((0..count as u32).map(|number| Point { name, number, owner }));
    }
    points
}

/// The weight that is worth [`POINTS_PER_UNIT`] points: the largest power of two not above the mean weight. It is rough
/// on purpose. Were it the mean itself, one worker's weight would change the number of everybody's points.
fn unit_of(members: &[(WorkerId, Weight)]) -> u64 {
    let total: u64 = members.iter().map(|(_, weight)| u64::from(weight.get())).sum();
    let mean = total / (members.len() as u64).max(1);
    1 << mean.max(1).ilog2()
}

/// A virtual node of the ring.
#[derive(Clone, Copy)]
struct Point {
    name: u64,
    number: u32,
    owner: WorkerIx,
}

impl Point {
    fn key(&self) -> u64 {
        DefaultHashBuilder.hash_one(self)
    }
}

/// One write of fixed width, little-endian, that starts with a tag: `v`, the hash of the worker's name, the point's
/// number. The owner's index takes no part, for it changes when others join.
impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut buffer = [0_u8; 13];
        buffer[0] = b'v';
        buffer[1..9].copy_from_slice(&self.name.to_le_bytes());
        buffer[9..].copy_from_slice(&self.number.to_le_bytes());
        state.write(&buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[(&str, u32)]) -> Vec<Candidate> {
        let candidate = |&(name, weight): &(&str, u32)| {
            Candidate::new(WorkerId::new(name).unwrap(), Weight::new(weight).unwrap())
        };
        weights.iter().map(candidate).collect()
    }

    fn permutations(of: &[Candidate]) -> Vec<Vec<Candidate>> {
        if of.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for i in 0..of.len() {
            let mut rest = of.to_vec();
            let first = rest.remove(i);
            all.extend(permutations(&rest).into_iter().map(|p| [vec![first.clone()], p].concat()));
        }
        all
    }

    /// The key of a point, from an implementation of SipHash-2-4 that is not ours.
    #[test]
    fn a_point_hashes_the_same_bytes_on_every_platform() {
        let point = Point { name: 1, number: 2, owner: WorkerIx::new(9) };
        assert_eq!(point.key(), 0x66d6_ce10_5e57_ffe3);
    }

    #[test]
    fn f043_the_ring_is_a_function_of_the_set_even_when_every_point_collides() {
        let workers = candidates(&[("a", 1), ("b", 2), ("c", 1), ("d", 3), ("e", 1)]);
        // All names hash alike: every worker's points coincide with everybody's. Two names: half of them do.
        for hash in [
            (|_| 0) as fn(&WorkerId) -> u64,
            |w| w.as_str().len() as u64 % 2,
            |w| u64::from(w.as_str() < "c"),
        ] {
            let expected = Ring::hashed_by(&workers, hash).unwrap();
            for order in permutations(&workers) {
                assert_eq!(Ring::hashed_by(&order, hash), Ok(expected.clone()));
                let twice = [order.clone(), order].concat();
                assert_eq!(Ring::hashed_by(&twice, hash), Ok(expected.clone()));
            }
            assert_eq!(expected.len(), 16 + 32 + 16 + 48 + 16, "no point may vanish in a collision");
        }
    }

    /// The control of the test above: without the sorting, the crate's ring does depend on the order.
    #[test]
    fn f043_control_the_crate_alone_orders_equal_hashes_by_insertion() {
        let point = |owner| Point { name: 0, number: 0, owner: WorkerIx::new(owner) };
        let owners = |points: Vec<Point>| {
            let mut ring: HashRing<Point> = HashRing::new();
            ring.batch_add(points);
            ring.into_iter().map(|point| point.owner).collect::<Vec<_>>()
        };
        assert_ne!(owners(vec![point(0), point(1)]), owners(vec![point(1), point(0)]));
    }

    #[test]
    fn f043_a_worker_named_twice_counts_once_at_its_larger_weight() {
        let once = Ring::new(&candidates(&[("a", 1), ("b", 3)]));
        assert_eq!(Ring::new(&candidates(&[("b", 1), ("a", 1), ("b", 3)])), once);
        assert_eq!(Ring::new(&candidates(&[("b", 3), ("a", 1), ("b", 1)])), once);
    }

    #[test]
    fn a_position_is_what_the_crate_would_have_found() {
        let names: Vec<String> = (0..50).map(|i| format!("worker-{i}")).collect();
        let workers = candidates(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
        let flat = Ring::new(&workers).unwrap();
        let mut ring: HashRing<Point> = HashRing::new();
        ring.batch_add(points(&flat.members, |worker| sip(worker.as_str().as_bytes())));
        for number in 0..20_000 {
            let probe = Point { name: 7, number, owner: WorkerIx::new(0) };
            assert_eq!(flat.home(probe.key()), ring.get(&probe).map(|point| point.owner));
        }
        assert_eq!(flat.position(u64::MAX), 0, "past the last point the circle begins again");
        assert_eq!(flat.position(0), 0);
    }

    #[test]
    fn f091_f103_a_weight_that_changes_moves_no_point_of_another_worker() {
        let points_of = |workers: &[Candidate], name: &str| {
            let ring = Ring::new(workers).unwrap();
            let index =
                ring.members.iter().position(|(id, _)| id.as_str() == name).map(|i| WorkerIx::new(i as u32));
            let mine = ring.keys.iter().zip(&ring.owners).filter(|(_, owner)| Some(**owner) == index);
            mine.map(|(key, _)| *key).collect::<Vec<_>>()
        };
        let before = candidates(&[("a", 4), ("b", 4), ("c", 4), ("d", 4)]);
        let after = candidates(&[("a", 8), ("b", 4), ("c", 4), ("d", 4)]);
        assert_eq!(points_of(&before, "b"), points_of(&after, "b"));
        let (few, many) = (points_of(&before, "a"), points_of(&after, "a"));
        assert!(few.len() < many.len() && few.iter().all(|point| many.contains(point)));
    }

    #[test]
    fn an_empty_ring_has_no_home() {
        let ring = Ring::new(&[]).unwrap();
        assert_eq!((ring.len(), ring.home(0), ring.home(u64::MAX)), (0, None, None));
    }
}
