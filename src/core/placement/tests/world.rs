//! A keyspace to plan for, and the carrying out of plans.

use crate::ids::{KeyspaceName, WorkerId};
use crate::placement::{Candidate, Plan, PlanError, PlannedMove, Spot, View, Weight, WorkerIx, plan};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) keyspace: KeyspaceName,
    pub(super) workers: Vec<Candidate>,
    pub(super) spots: Vec<Spot>,
}

pub(super) fn ix(index: usize) -> WorkerIx {
    WorkerIx::new(index as u32)
}

pub(super) fn candidate(name: &str, weight: u32) -> Candidate {
    Candidate { worker: WorkerId::new(name).unwrap(), weight: Weight::new(weight).unwrap(), accepting: true }
}

impl World {
    /// Workers `w000`, `w001` and so on with these weights, and partitions that nobody owns.
    pub(super) fn vacant(weights: &[u32], partitions: usize) -> World {
        let workers =
            weights.iter().enumerate().map(|(i, weight)| candidate(&format!("w{i:03}"), *weight)).collect();
        World {
            keyspace: KeyspaceName::new("orders").unwrap(),
            workers,
            spots: vec![Spot::VACANT; partitions],
        }
    }

    /// The same after its first plan.
    pub(super) fn settled(weights: &[u32], partitions: usize) -> World {
        let mut world = World::vacant(weights, partitions);
        let plan = world.plan();
        world.carry_out(&plan.moves);
        world
    }

    pub(super) fn try_plan(&self) -> Result<Plan, PlanError> {
        plan(&View::new(&self.keyspace, &self.workers, &self.spots))
    }

    pub(super) fn plan(&self) -> Plan {
        self.try_plan().unwrap()
    }

    pub(super) fn carry_out(&mut self, moves: &[PlannedMove]) {
        self.carry_out_as(moves, Spot::owned);
    }

    pub(super) fn carry_out_as(&mut self, moves: &[PlannedMove], spot: impl Fn(WorkerIx) -> Spot) {
        for m in moves {
            self.spots[m.partition.get() as usize] = Spot { avoid: self.spot(m).avoid, ..spot(m.to) };
        }
    }

    pub(super) fn spot(&self, m: &PlannedMove) -> Spot {
        self.spots[m.partition.get() as usize]
    }

    /// What each worker holds.
    pub(super) fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.workers.len()];
        self.spots.iter().filter_map(Spot::counts_at).for_each(|worker| loads[worker.get()] += 1);
        loads
    }

    /// A worker joins, in its place by id.
    pub(super) fn join(&mut self, name: &str, weight: u32) -> WorkerIx {
        let newcomer = candidate(name, weight);
        let at = self.workers.partition_point(|w| w.worker < newcomer.worker);
        self.workers.insert(at, newcomer);
        self.renumber(|old| Some(if old < at { old } else { old + 1 }));
        ix(at)
    }

    /// A worker is gone, and what it had is vacant.
    pub(super) fn leave(&mut self, index: usize) {
        self.workers.remove(index);
        self.renumber(|old| match old.cmp(&index) {
            std::cmp::Ordering::Less => Some(old),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(old - 1),
        });
    }

    fn renumber(&mut self, new: impl Fn(usize) -> Option<usize>) {
        for spot in &mut self.spots {
            if let Some(owner) = spot.counts_at() {
                *spot = new(owner.get()).map_or(Spot::VACANT, |owner| Spot::owned(ix(owner)));
            }
        }
    }

    /// Owners by name, for comparing worlds whose workers have other indices.
    pub(super) fn owners(&self) -> Vec<&str> {
        let name = |worker: WorkerIx| self.workers[worker.get()].worker.as_str();
        self.spots.iter().map(|spot| spot.counts_at().map_or("-", name)).collect()
    }
}
