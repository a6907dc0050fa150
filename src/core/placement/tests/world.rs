//! A keyspace to plan for, and the carrying out of plans.

use crate::ids::{KeyspaceName, WorkerId};
use crate::placement::{
    Candidate, Plan, PlanError, PlannedMove, Rules, Spot, View, Weight, WorkerIx, WorkerStanding, ZoneIx,
    plan,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) keyspace: KeyspaceName,
    pub(super) workers: Vec<Candidate>,
    pub(super) spots: Vec<Spot>,
    /// Each partition's load.
    pub(super) weighed: Option<Vec<u32>>,
    pub(super) rules: Rules,
}

pub(super) fn ix(index: usize) -> WorkerIx {
    WorkerIx::new(index as u32)
}

pub(super) fn candidate(name: &str, weight: u32) -> Candidate {
    Candidate::new(WorkerId::new(name).unwrap(), Weight::new(weight).unwrap())
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
            weighed: None,
            rules: Rules::default(),
        }
    }

    /// The same after its first plan.
    pub(super) fn settled(weights: &[u32], partitions: usize) -> World {
        let mut world = World::vacant(weights, partitions);
        let plan = world.plan();
        world.carry_out(&plan.moves);
        world
    }

    pub(super) fn view(&self) -> View<'_> {
        let view = View::new(&self.keyspace, &self.workers, &self.spots).with_rules(self.rules);
        self.weighed.as_ref().map_or(view, |loads| view.with_loads(loads))
    }

    pub(super) fn try_plan(&self) -> Result<Plan, PlanError> {
        plan(&self.view())
    }

    /// Puts the workers into zones, in turn: with 2 zones every other worker is in the same one.
    pub(super) fn in_zones(mut self, zones: u32) -> World {
        for (index, worker) in (0..).zip(&mut self.workers) {
            worker.zone = Some(ZoneIx::new(index % zones));
        }
        self
    }

    pub(super) fn set(&mut self, worker: usize, standing: WorkerStanding) {
        self.workers[worker].standing = standing;
    }

    pub(super) fn takes(&self, worker: WorkerIx) -> bool {
        self.workers[worker.get()].standing == WorkerStanding::Takes
    }

    /// The same world once all moves of its plan are done, and that plan.
    pub(super) fn planned(&self) -> (World, Plan) {
        let (mut after, plan) = (self.clone(), self.plan());
        after.carry_out(&plan.moves);
        (after, plan)
    }

    pub(super) fn plan(&self) -> Plan {
        self.try_plan().unwrap()
    }

    pub(super) fn carry_out(&mut self, moves: &[PlannedMove]) {
        self.carry_out_as(moves, Spot::owned);
    }

    pub(super) fn carry_out_as(&mut self, moves: &[PlannedMove], spot: impl Fn(WorkerIx) -> Spot) {
        for m in moves {
            self.spots[m.partition.get() as usize] = Spot { standing: spot(m.to).standing, ..self.spot(m) };
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
