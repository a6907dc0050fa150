//! The plan: the moves from what is to what should be.

use super::hash::PartitionCount;
use super::keys::{PartitionKeys, seed_of};
use super::quota::{Load, Quota, Shares};
use super::ring::Ring;
use super::rooms::Rooms;
use super::view::{Candidate, PlanError, Spot, Standing, View, WorkerIx};
use crate::ids::PartitionId;

/// What should change. It consists of moves alone, each to a worker: no plan takes a partition from its owner without
/// naming the next.
///
/// The moves may be carried out in any order, and a part of them with a new plan after it: what remains is exactly what
/// was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The changes. Vacant partitions come first, then balancing; each in the order of the partitions' numbers.
    pub moves: Vec<PlannedMove>,
    /// Vacant partitions that nobody can take, in the order of their numbers.
    pub unplaced: Vec<(PartitionId, Unplaced)>,
    /// How far apart the accepting workers are now: the largest less the smallest of what each holds above the whole
    /// part of its share. With equal weights that is the most less the fewest partitions; with any weights, workers are
    /// balanced when it is 0 or 1.
    pub spread_before: u32,
    /// The same once all moves are done.
    pub spread_after: u32,
}

/// One partition that should change hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlannedMove {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it now, if anybody does.
    pub from: Option<WorkerIx>,
    /// Who should own it.
    pub to: WorkerIx,
    /// Why.
    pub reason: Reason,
}

/// Why a partition should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nobody owns it.
    Vacant,
    /// Its owner holds more than its share, and the new one less.
    Balance,
}

/// Why nobody can take a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unplaced {
    /// There is no worker.
    NoWorkers,
    /// There are workers, and none of them accepts partitions.
    NoneAccepting,
}

/// The plan for a keyspace: the fewest moves after which every accepting worker holds its share, rounded down or up.
///
/// It is a function of the view alone. Where the bounds leave a choice, a partition goes to its home, then to the first
/// worker clockwise with room; an owner above its share gives up first what would go home, and last what is at home;
/// and between equals, hashes and then ids and numbers decide.
///
/// # Errors
/// [`PlanError`] when the view contradicts itself. Nothing is to be changed then.
pub fn plan(view: &View<'_>) -> Result<Plan, PlanError> {
    let count = view.check()?;
    let (built_ring, built_keys);
    let ring = match view.ring {
        Some(ring) => ring,
        None => {
            built_ring = Ring::new(view.workers)?;
            &built_ring
        }
    };
    let keys = match view.keys {
        Some(keys) => keys,
        None => {
            built_keys = PartitionKeys::new(view.keyspace, count);
            &built_keys
        }
    };
    Ok(Planner::new(view, count, ring, keys.as_slice()).plan())
}

struct Planner<'a> {
    workers: &'a [Candidate],
    partitions: &'a [Spot],
    ring: &'a Ring,
    keys: &'a [u64],
    seed: u64,
    /// How many partitions the accepting workers share.
    pool: u32,
    /// What every worker holds, with the moves planned so far.
    loads: Vec<Load>,
    moves: Vec<PlannedMove>,
    unplaced: Vec<(PartitionId, Unplaced)>,
}

impl<'a> Planner<'a> {
    fn new(view: &View<'a>, count: PartitionCount, ring: &'a Ring, keys: &'a [u64]) -> Planner<'a> {
        let mut loads = vec![Load::default(); view.workers.len()];
        for spot in view.partitions {
            if let Some(worker) = spot.counts_at() {
                let load = &mut loads[worker.get()];
                load.total += 1;
                load.fixed += u32::from(spot.movable_from().is_none());
            }
        }
        let drained = view.workers.iter().zip(&loads).filter(|(candidate, _)| !candidate.accepting);
        let pool = count.get() - drained.map(|(_, load)| load.total).sum::<u32>();
        Planner {
            workers: view.workers,
            partitions: view.partitions,
            ring,
            keys,
            seed: seed_of(view.keyspace),
            pool,
            loads,
            moves: Vec::new(),
            unplaced: Vec::new(),
        }
    }

    fn plan(mut self) -> Plan {
        let spread_before = self.spread();
        let vacant = self.place_kept_apart();
        let quota = self.quota();
        let surplus = self.surplus(&quota);
        self.place(&quota, vacant, surplus);
        // A stable sort, because it is quick with the few sorted runs that these are.
        self.moves.sort_by_key(|m| (m.reason == Reason::Balance, m.partition));
        let spread_after = self.spread();
        Plan { moves: self.moves, unplaced: self.unplaced, spread_before, spread_after }
    }

    fn quota(&self) -> Quota {
        Quota::new(self.workers, &self.loads, self.pool, self.seed)
    }

    /// Places the vacant partitions that are to be kept from some worker, and returns the other vacant ones.
    ///
    /// They come before the quota is settled, because their choice is the narrower one. One goes to the first worker
    /// clockwise that can take it at no further move; when only the worker to avoid could, to the first that accepts,
    /// which then gives up another partition in exchange. It counts as fixed there from now on.
    fn place_kept_apart(&mut self) -> Vec<u32> {
        let vacant = numbered(self.partitions).filter(|(_, spot)| spot.standing == Standing::Vacant);
        let (apart, mut rest): (Vec<_>, Vec<_>) = vacant.partition(|(_, spot)| spot.avoid.is_some());
        if !apart.is_empty() {
            let mut quota = self.quota();
            let (mut free, mut any) = (Rooms::new(self.ring), Rooms::new(self.ring));
            for (partition, spot) in apart {
                let key = self.keys[partition as usize];
                let to = free
                    .first(key, spot.avoid, |w| quota.could_take(w, self.loads[w.get()]))
                    .or_else(|| any.first(key, spot.avoid, |w| self.workers[w.get()].accepting));
                match to {
                    Some(to) => {
                        quota.take(to, &mut self.loads[to.get()]);
                        self.push(partition, None, to);
                    }
                    // Nobody else accepts: better there than nowhere.
                    None => rest.push((partition, spot)),
                }
            }
        }
        rest.into_iter().map(|(partition, _)| partition).collect()
    }

    /// The partitions that workers above their targets give up: first those whose home has room for them, then those of
    /// other strangers, then those at home; last those that are to be kept from some worker, which may find no place.
    fn surplus(&self, quota: &Quota) -> Vec<u32> {
        let mut offers = Vec::new();
        for (partition, spot) in numbered(self.partitions) {
            let Some(owner) = spot.movable_from() else { continue };
            if self.loads[owner.get()].total <= quota.target(owner) {
                continue;
            }
            let key = self.keys[partition as usize];
            let class = match self.ring.home(key) {
                _ if spot.avoid.is_some() => 3_u8,
                Some(home) if home == owner => 2,
                Some(home) if self.has_room(quota, home) => 0,
                _ => 1,
            };
            offers.push((owner, class, key, partition));
        }
        offers.sort_unstable();
        let mut surplus = Vec::new();
        for offers in offers.chunk_by(|a, b| a.0 == b.0) {
            let owner = offers[0].0;
            let above = self.loads[owner.get()].total - quota.target(owner);
            surplus.extend(offers.iter().take(above as usize).map(|offer| offer.3));
        }
        surplus.sort_unstable();
        surplus
    }

    /// Gives a worker to every vacant partition and to every one given up. There is room for all: the targets sum to
    /// the pool, so what is below them makes up for what is above and for what is vacant.
    fn place(&mut self, quota: &Quota, vacant: Vec<u32>, surplus: Vec<u32>) {
        let mut rooms = Rooms::new(self.ring);
        // The narrower choice first again. One that finds no place stays where it is.
        let (apart, surplus): (Vec<_>, Vec<_>) =
            surplus.into_iter().partition(|partition| self.partitions[*partition as usize].avoid.is_some());
        for partition in apart {
            let avoid = self.partitions[partition as usize].avoid;
            let to = rooms.first(self.keys[partition as usize], avoid, |w| self.has_room(quota, w));
            if let Some(to) = to {
                self.give(partition, to);
            }
        }
        // Whoever can go home does so before the others take the room there.
        let mut strangers = Vec::new();
        for partition in vacant.into_iter().chain(surplus) {
            match self.ring.home(self.keys[partition as usize]).filter(|home| self.has_room(quota, *home)) {
                Some(home) => self.give(partition, home),
                None => strangers.push(partition),
            }
        }
        for partition in strangers {
            match rooms.first(self.keys[partition as usize], None, |w| self.has_room(quota, w)) {
                Some(to) => self.give(partition, to),
                None => self.leave(partition),
            }
        }
    }

    fn has_room(&self, quota: &Quota, worker: WorkerIx) -> bool {
        self.workers[worker.get()].accepting && self.loads[worker.get()].total < quota.target(worker)
    }

    fn give(&mut self, partition: u32, to: WorkerIx) {
        let from = self.partitions[partition as usize].movable_from();
        if let Some(from) = from {
            self.loads[from.get()].total -= 1;
        }
        self.loads[to.get()].total += 1;
        self.push(partition, from, to);
    }

    fn push(&mut self, partition: u32, from: Option<WorkerIx>, to: WorkerIx) {
        let reason = if from.is_some() { Reason::Balance } else { Reason::Vacant };
        self.moves.push(PlannedMove { partition: PartitionId::new(partition), from, to, reason });
    }

    fn leave(&mut self, partition: u32) {
        if self.partitions[partition as usize].standing == Standing::Vacant {
            let why = if self.workers.is_empty() { Unplaced::NoWorkers } else { Unplaced::NoneAccepting };
            self.unplaced.push((PartitionId::new(partition), why));
        }
    }

    fn spread(&self) -> u32 {
        let accepting: Vec<bool> = self.workers.iter().map(|candidate| candidate.accepting).collect();
        let shares = Shares::new(self.workers, &accepting, self.pool);
        let above = |worker: usize| i64::from(self.loads[worker].total) - i64::from(shares.whole(worker));
        let above = (0..self.workers.len()).filter(|worker| accepting[*worker]).map(above);
        match (above.clone().max(), above.min()) {
            (Some(most), Some(least)) => (most - least) as u32,
            _ => 0,
        }
    }
}

fn numbered(partitions: &[Spot]) -> impl Iterator<Item = (u32, &Spot)> {
    (0..).zip(partitions)
}
