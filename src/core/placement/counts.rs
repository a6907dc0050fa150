//! The moves when every partition counts the same: the fewest after which everybody holds the share rounded down or up.

use super::candidate::WorkerIx;
use super::desk::{Desk, Stance};
use super::quota::{Load, Quota};
use super::reason::Reason;
use super::rooms::Rooms;
use super::zones::Zones;

/// Plans the moves of everything that no pin has decided.
pub(super) fn place(desk: &mut Desk<'_>) {
    let loads = desk.counted();
    let pool = desk.pool(&loads);
    let mut planner = Planner { desk, pool, loads };
    let homeless = planner.place_kept_apart();
    let quota = planner.quota();
    let zonal = planner.due_to_zones(&quota);
    let surplus = planner.surplus(&quota);
    planner.distribute(&quota, homeless, surplus);
    planner.name_zones(zonal);
}

struct Planner<'d, 'a> {
    desk: &'d mut Desk<'a>,
    /// How many partitions the workers share that take some.
    pool: u32,
    /// What every worker holds, with the moves planned so far.
    loads: Vec<Load>,
}

impl Planner<'_, '_> {
    fn quota(&self) -> Quota {
        self.quota_within(&self.desk.zones)
    }

    fn quota_within(&self, zones: &Zones) -> Quota {
        Quota::new(self.desk.workers, zones, &self.loads, self.pool, self.desk.seed)
    }

    /// Places the partitions without a worker that are to be kept from some worker, and returns the others.
    ///
    /// They come before the quota is settled, because their choice is the narrower one. One goes to the first worker
    /// clockwise that can take it at no further move; when only the worker to avoid could, to the first that accepts,
    /// which then gives up another partition in exchange. It counts as fixed there from now on.
    fn place_kept_apart(&mut self) -> Vec<u32> {
        let (apart, mut rest): (Vec<_>, Vec<_>) =
            self.desk.to_place().partition(|partition| self.desk.spot(*partition).avoid.is_some());
        if apart.is_empty() {
            return rest;
        }
        let mut quota = self.quota();
        let (mut free, mut any) = (Rooms::new(self.desk.ring), Rooms::new(self.desk.ring));
        for partition in apart {
            let (key, avoid) = (self.desk.key(partition), self.desk.spot(partition).avoid);
            let to = free
                .first(key, avoid, |w| self.desk.takes(w) && quota.could_take(w, self.loads[w.get()]))
                .or_else(|| any.first(key, avoid, |w| self.desk.takes(w)));
            match to {
                Some(to) => {
                    quota.take(to, &mut self.loads[to.get()]);
                    self.push(partition, to);
                }
                // Nobody else takes any: better there than nowhere.
                None => rest.push(partition),
            }
        }
        rest
    }

    /// The partitions that workers above their targets give up: first those whose home has room for them, then those of
    /// other strangers, then those at home; last those that are to be kept from some worker, which may find no place.
    fn surplus(&self, quota: &Quota) -> Vec<u32> {
        let above: Vec<u32> = (0..self.loads.len())
            .map(|worker| self.loads[worker].total.saturating_sub(quota.target(WorkerIx::new(worker as u32))))
            .collect();
        if above.iter().all(|above| *above == 0) {
            return Vec::new();
        }
        let offered =
            above.iter().zip(&self.loads).map(|(above, load)| if *above == 0 { 0 } else { load.total });
        let mut offers: Vec<Vec<(u8, u64, u32)>> =
            offered.map(|offered| Vec::with_capacity(offered as usize)).collect();
        for (partition, stance) in (0..).zip(&self.desk.stances) {
            let Stance::Movable(owner) = *stance else { continue };
            if above[owner.get()] == 0 {
                continue;
            }
            let key = self.desk.key(partition);
            let class = match self.desk.ring.home(key) {
                _ if self.desk.spot(partition).avoid.is_some() => 3_u8,
                Some(home) if home == owner => 2,
                Some(home) if self.has_room(quota, home) => 0,
                _ => 1,
            };
            offers[owner.get()].push((class, key, partition));
        }
        let mut surplus = Vec::new();
        for (mut offers, above) in offers.into_iter().zip(above) {
            let above = above as usize;
            if above < offers.len() {
                offers.select_nth_unstable(above);
                offers.truncate(above);
            }
            surplus.extend(offers.into_iter().map(|(_, _, partition)| partition));
        }
        surplus.sort_unstable();
        surplus
    }

    /// Gives a worker to every partition without one and to every one given up. There is room for all: the targets sum
    /// to the pool, so what is below them makes up for what is above and for what has no worker.
    fn distribute(&mut self, quota: &Quota, homeless: Vec<u32>, surplus: Vec<u32>) {
        let mut rooms = Rooms::new(self.desk.ring);
        // The narrower choice first again. One that finds no place stays where it is.
        let (apart, surplus): (Vec<_>, Vec<_>) =
            surplus.into_iter().partition(|partition| self.desk.spot(*partition).avoid.is_some());
        for partition in apart {
            let avoid = self.desk.spot(partition).avoid;
            let to = rooms.first(self.desk.key(partition), avoid, |w| self.has_room(quota, w));
            if let Some(to) = to {
                self.give(partition, to);
            }
        }
        // Whoever can go home does so before the others take the room there.
        let mut strangers = Vec::new();
        for partition in homeless.into_iter().chain(surplus) {
            let home = self.desk.ring.home(self.desk.key(partition));
            match home.filter(|home| self.has_room(quota, *home)) {
                Some(home) => self.give(partition, home),
                None => strangers.push(partition),
            }
        }
        for partition in strangers {
            match rooms.first(self.desk.key(partition), None, |w| self.has_room(quota, w)) {
                Some(to) => self.give(partition, to),
                None => self.desk.leave(partition),
            }
        }
    }

    fn has_room(&self, quota: &Quota, worker: WorkerIx) -> bool {
        self.desk.takes(worker) && self.loads[worker.get()].total < quota.target(worker)
    }

    fn give(&mut self, partition: u32, to: WorkerIx) {
        if let Stance::Movable(from) = self.desk.stances[partition as usize] {
            self.loads[from.get()].total -= 1;
        }
        self.loads[to.get()].total += 1;
        self.push(partition, to);
    }

    fn push(&mut self, partition: u32, to: WorkerIx) {
        let from = match self.desk.stances[partition as usize] {
            Stance::Movable(from) => Some(from),
            Stance::ToPlace { from } => from,
            Stance::Fixed(_) | Stance::Ordered { .. } | Stance::Waits => None,
        };
        self.desk.push(partition, from, to);
    }

    /// How many partitions each worker gives up that it would keep if there were no zones.
    fn due_to_zones(&self, quota: &Quota) -> Vec<u32> {
        if self.desk.zones.named() == 0 {
            return Vec::new();
        }
        let without = self.quota_within(&Zones::none(self.loads.len()));
        let kept = |worker: usize| {
            let (ix, held) = (WorkerIx::new(worker as u32), self.loads[worker].total);
            held.min(without.target(ix)).saturating_sub(quota.target(ix))
        };
        (0..self.loads.len()).map(kept).collect()
    }

    /// Gives the zones as the reason of so many of each worker's moves, where no reason is nearer.
    fn name_zones(&mut self, mut due: Vec<u32>) {
        for planned in self.desk.moves.iter_mut().filter(|planned| planned.reason == Reason::Balance) {
            if let Some(due) = planned.from.and_then(|from| due.get_mut(from.get())).filter(|due| **due > 0) {
                *due -= 1;
                planned.reason = Reason::Zone;
            }
        }
    }
}
