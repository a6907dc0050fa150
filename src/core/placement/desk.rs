//! A view on the planner's desk: what may be done with each partition, once standings, pins and freezes are taken
//! together; and the moves decided so far.

use super::candidate::{Candidate, WorkerIx, WorkerStanding};
use super::keys::seed_of;
use super::plan::PlannedMove;
use super::quota::Load;
use super::reason::Reason;
use super::ring::Ring;
use super::spot::{Spot, Standing, Vacancy};
use super::view::{Rules, View};
use super::zones::Zones;
use crate::ids::PartitionId;
use crate::mutant;

/// What may be done with one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// It needs a worker: nobody owns it, or its owner is to give it up.
    ToPlace { from: Option<WorkerIx> },
    /// Its owner keeps it, unless balance wants it elsewhere.
    Movable(WorkerIx),
    /// It stays where it counts.
    Fixed(WorkerIx),
    /// Its pin sends it to a worker.
    Ordered { from: Option<WorkerIx>, to: WorkerIx },
    /// Nothing can be done with it now.
    Waits,
}

impl Stance {
    fn of(spot: &Spot, workers: &[Candidate], rules: Rules, anybody_takes: bool) -> Stance {
        let pin = spot.pinned_to().filter(|worker| workers[worker.get()].standing.takes());
        match (spot.standing, pin) {
            (Standing::Vacant(_), Some(to)) => Stance::Ordered { from: None, to },
            (Standing::Vacant(_), None) => Stance::ToPlace { from: None },
            (Standing::Held, _) => Stance::Waits,
            (Standing::InFlight { to }, _) => Stance::Fixed(to),
            (Standing::Owned { by, movable: false }, _) => Stance::Fixed(by),
            (Standing::Owned { by, movable: true }, pin) => match (&workers[by.get()].standing, pin) {
                _ if rules.repairs_only && !mutant!("freeze-ignored") => Stance::Fixed(by),
                (WorkerStanding::Frozen | WorkerStanding::FrozenOut | WorkerStanding::Away, _) => {
                    Stance::Fixed(by)
                }
                (_, Some(to)) if to == by => Stance::Fixed(by),
                (_, Some(to)) => Stance::Ordered { from: Some(by), to },
                (WorkerStanding::Takes, None) => Stance::Movable(by),
                (WorkerStanding::Cordoned, None) => Stance::Fixed(by),
                (WorkerStanding::Drained | WorkerStanding::Ineligible(_), None) if anybody_takes => {
                    Stance::ToPlace { from: Some(by) }
                }
                (WorkerStanding::Drained | WorkerStanding::Ineligible(_), None) => Stance::Fixed(by),
            },
        }
    }

    /// The worker at which it counts from the start, and whether it is fixed there.
    pub(super) fn counts_at(self) -> Option<(WorkerIx, bool)> {
        match self {
            Stance::Movable(by) => Some((by, false)),
            Stance::Fixed(at) | Stance::Ordered { to: at, .. } => Some((at, true)),
            Stance::ToPlace { .. } | Stance::Waits => None,
        }
    }
}

pub(super) struct Desk<'a> {
    pub(super) workers: &'a [Candidate],
    pub(super) partitions: &'a [Spot],
    pub(super) ring: &'a Ring,
    pub(super) keys: &'a [u64],
    pub(super) seed: u64,
    pub(super) rules: Rules,
    pub(super) zones: Zones,
    pub(super) stances: Vec<Stance>,
    pub(super) moves: Vec<PlannedMove>,
    pub(super) unplaced: Vec<u32>,
    weighed: bool,
}

impl<'a> Desk<'a> {
    /// The desk with what the pins decide already decided.
    pub(super) fn new(view: &View<'a>, ring: &'a Ring, keys: &'a [u64]) -> Desk<'a> {
        let anybody_takes = view.workers.iter().any(|worker| worker.standing.takes());
        let stance = |spot| Stance::of(spot, view.workers, view.rules, anybody_takes);
        let mut desk = Desk {
            workers: view.workers,
            partitions: view.partitions,
            ring,
            keys,
            seed: seed_of(view.keyspace),
            rules: view.rules,
            zones: Zones::in_view(view.workers),
            stances: view.partitions.iter().map(stance).collect(),
            moves: Vec::new(),
            unplaced: Vec::new(),
            weighed: view.loads.is_some(),
        };
        for partition in 0..desk.stances.len() as u32 {
            if let Stance::Ordered { from, to } = desk.stances[partition as usize] {
                desk.push(partition, from, to);
            }
        }
        desk
    }

    /// What every worker holds to begin with.
    pub(super) fn counted(&self) -> Vec<Load> {
        let mut loads = vec![Load::default(); self.workers.len()];
        for (worker, fixed) in self.stances.iter().filter_map(|stance| stance.counts_at()) {
            let load = &mut loads[worker.get()];
            load.total += 1;
            load.fixed += u32::from(fixed);
        }
        loads
    }

    /// How many partitions the workers that take some have to share.
    pub(super) fn pool(&self, counted: &[Load]) -> u32 {
        let kept = self.workers.iter().zip(counted).filter(|(worker, _)| !worker.standing.takes());
        self.partitions.len() as u32 - kept.map(|(_, load)| load.total).sum::<u32>()
    }

    pub(super) fn takes(&self, worker: WorkerIx) -> bool {
        self.workers[worker.get()].standing.takes()
    }

    pub(super) fn spot(&self, partition: u32) -> &'a Spot {
        &self.partitions[partition as usize]
    }

    pub(super) fn key(&self, partition: u32) -> u64 {
        self.keys[partition as usize]
    }

    /// The partitions that need a worker, in the order of their numbers.
    pub(super) fn to_place(&self) -> impl Iterator<Item = u32> {
        let stances = (0..).zip(&self.stances);
        stances.filter(|(_, stance)| matches!(stance, Stance::ToPlace { .. })).map(|(partition, _)| partition)
    }

    /// Plans a move.
    pub(super) fn push(&mut self, partition: u32, from: Option<WorkerIx>, to: WorkerIx) {
        let reason = self.reason(partition, from, to);
        self.moves.push(PlannedMove { partition: PartitionId::new(partition), from, to, reason });
    }

    /// Nobody can take it. It stays with its owner, when it has one.
    pub(super) fn leave(&mut self, partition: u32) {
        if matches!(self.spot(partition).standing, Standing::Vacant(_)) {
            self.unplaced.push(partition);
        }
    }

    fn reason(&self, partition: u32, from: Option<WorkerIx>, to: WorkerIx) -> Reason {
        let Some(from) = from else {
            return match self.spot(partition).standing {
                Standing::Vacant(Vacancy::First) => Reason::First,
                Standing::Vacant(Vacancy::Failed) => Reason::Failure,
                Standing::Vacant(Vacancy::Returned) => Reason::Returned,
                _ => Reason::Leave,
            };
        };
        let [source, target] = [from, to].map(|worker| &self.workers[worker.get()]);
        match (&self.stances[partition as usize], &source.standing) {
            (Stance::Ordered { .. }, _) => Reason::Pin,
            (_, WorkerStanding::Drained) => Reason::Drain,
            (_, WorkerStanding::Ineligible(_)) => Reason::Label,
            _ => Reason::of_balance(source.newly, target.newly, self.weighed),
        }
    }
}
