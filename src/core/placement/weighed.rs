//! The moves when partitions have loads.
//!
//! A worker's share is the sum of all loads times its weight over the sum of the weights, and its *excess* what it holds
//! less that. All of it is computed exactly.
//!
//! What has no worker is placed first, the heaviest first: at home when the home is below its share, else at the first
//! worker clockwise that is; there always is one. So one partition is the most by which that puts anybody above a share.
//!
//! Then the workers are brought closer together. The one with the greatest excess gives to the one with the least,
//! each time the partition that closes the gap best, which is the one whose load is nearest to half of it. Only a
//! partition smaller than the gap by a quarter of the tolerance is moved, so every move brings the two closer together,
//! and one that turns the gap round makes it smaller by what it is worth to move; hence it ends. It ends where for every
//! two workers the excess of one is above the other's by no more than the smallest partition it could give and that
//! quarter, or by no more than the tolerance.
//!
//! Loads are never quite even, and what was measured changes all the time. So balancing begins only when two workers
//! are further apart than the tolerance, and then goes on to half of it: after that there is something in hand before
//! it begins again.
//!
//! Zones are a preference here and no bound: of the workers least loaded, within a quarter of the tolerance, the one in
//! the zone that is furthest below its share receives.

use super::balance::{shared_load, tolerance};
use super::candidate::WorkerIx;
use super::desk::{Desk, Stance};
use super::rooms::Rooms;
use crate::mutant;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Of so many of the least loaded workers the zone may choose one.
const CHOICE: usize = 16;

/// Plans the moves of everything that no pin has decided.
pub(super) fn place(desk: &mut Desk<'_>, loads: &[u32]) {
    let mut scales = Scales::new(desk, loads);
    let mut at: Vec<Option<WorkerIx>> = vec![None; loads.len()];
    place_homeless(desk, loads, &mut scales, &mut at);
    let mut gave = Vec::new();
    if scales.takers > 0 && !desk.rules.repairs_only && desk.rules.even_out {
        gave = even_out(desk, loads, &mut scales, &mut at);
    }
    // In the order in which they bring workers closer together, so that whoever carries out a few and plans again goes on
    // from there, and not round in a circle.
    let mut once = BTreeSet::new();
    for partition in gave.into_iter().filter(|partition| once.insert(*partition)) {
        if let (Stance::Movable(from), Some(to)) = (desk.stances[partition as usize], at[partition as usize])
            && to != from
        {
            desk.push(partition, Some(from), to);
        }
    }
    for (partition, at) in (0..).zip(at) {
        match (desk.stances[partition as usize], at) {
            (Stance::ToPlace { from }, Some(to)) => desk.push(partition, from, to),
            (Stance::ToPlace { .. }, None) => desk.leave(partition),
            _ => {}
        }
    }
}

/// Every worker's excess, times the sum of the weights, so that it is a whole number.
struct Scales {
    excess: Vec<i128>,
    zones: Vec<i128>,
    weights: i128,
    takers: usize,
    tolerance: i128,
}

impl Scales {
    fn new(desk: &Desk<'_>, loads: &[u32]) -> Scales {
        let mut held = vec![0_i128; desk.workers.len()];
        for (stance, load) in desk.stances.iter().zip(loads) {
            if let Some((worker, _)) = stance.counts_at() {
                held[worker.get()] += i128::from(*load);
            }
        }
        let takers = || (0..).zip(desk.workers).filter(|(_, worker)| worker.standing.takes());
        let weights = takers().map(|(_, worker)| i128::from(worker.weight.get())).sum::<i128>();
        let shared = shared_load(desk, loads);
        let mut scales = Scales {
            excess: vec![0; held.len()],
            zones: vec![0; desk.zones.numbers().iter().max().map_or(0, |most| *most as usize + 1)],
            weights,
            takers: takers().count(),
            tolerance: 0,
        };
        // At most 10^12 times 10^9 on either side.
        scales.tolerance = i128::from(tolerance(desk, loads, shared, scales.takers)) * weights;
        if mutant!("loads-without-tolerance") {
            scales.tolerance = 0;
        }
        for (index, worker) in takers() {
            let excess = held[index] * weights - i128::from(shared) * i128::from(worker.weight.get());
            scales.excess[index] = excess;
            scales.zones[desk.zones.of(index)] += excess;
        }
        scales
    }

    fn of(&self, worker: WorkerIx) -> i128 {
        self.excess[worker.get()]
    }

    /// What is too little to move anything for.
    fn slack(&self) -> i128 {
        self.tolerance / 4
    }

    fn add(&mut self, desk: &Desk<'_>, worker: WorkerIx, load: i128) {
        self.excess[worker.get()] += load * self.weights;
        self.zones[desk.zones.of(worker.get())] += load * self.weights;
    }
}

fn place_homeless(desk: &Desk<'_>, loads: &[u32], scales: &mut Scales, at: &mut [Option<WorkerIx>]) {
    let load = |partition: u32| loads[partition as usize];
    let mut homeless: Vec<_> = desk
        .to_place()
        .map(|partition| {
            let kept_apart = desk.spot(partition).avoid.is_some();
            (!kept_apart, Reverse(load(partition)), desk.key(partition), partition)
        })
        .collect();
    // The narrower choice first.
    homeless.sort_unstable();
    let (mut below, mut any) = (Rooms::new(desk.ring), Rooms::new(desk.ring));
    for (_, _, key, partition) in homeless {
        let avoid = desk.spot(partition).avoid;
        let to = below
            .first(key, avoid, |worker| desk.takes(worker) && scales.of(worker) < 0)
            .or_else(|| any.first(key, avoid, |worker| desk.takes(worker)))
            .or_else(|| any.first(key, None, |worker| desk.takes(worker)));
        if let Some(to) = to {
            scales.add(desk, to, load(partition).into());
            at[partition as usize] = Some(to);
        }
    }
}

/// A partition that a worker could give: its load, whether it is at home, its key, its number.
type Gift = (u32, bool, u64, u32);

/// Brings the workers closer together. Returns the partitions given, in order.
fn even_out(desk: &Desk<'_>, loads: &[u32], scales: &mut Scales, at: &mut [Option<WorkerIx>]) -> Vec<u32> {
    let mut gave = Vec::new();
    let mut gifts = gifts(desk, loads, at);
    let takers = (0..desk.workers.len() as u32).map(WorkerIx::new).filter(|worker| desk.takes(*worker));
    let mut order: BTreeSet<(i128, WorkerIx)> = takers.map(|worker| (scales.of(worker), worker)).collect();
    // Those that may have something to give to the least loaded.
    let mut sources = order.clone();
    let mut until = scales.tolerance;
    while let (Some(&(most, from)), Some(&(least, lightest))) = (sources.last(), order.first()) {
        if most - least <= until {
            break;
        }
        let smallest = gifts[from.get()].first().map(|gift| i128::from(gift.0) * scales.weights);
        if smallest.is_none_or(|smallest| smallest + scales.slack() >= most - least) {
            // What it could give is too large. The least load only grows, so that stays so, until it receives.
            sources.remove(&(most, from));
            continue;
        }
        until = scales.tolerance / 2;
        let preferred = receiver(desk, scales, &order);
        let choice = |to: WorkerIx| best(&gifts[from.get()], most - scales.of(to), scales);
        let found = choice(preferred).map(|gift| (preferred, gift));
        let Some((to, gift)) = found.or_else(|| choice(lightest).map(|gift| (lightest, gift))) else { break };

        let partition = gift.3;
        gave.push(partition);
        gifts[from.get()].remove(&gift);
        let at_home = desk.ring.home(desk.key(partition)) == Some(to);
        gifts[to.get()].insert((gift.0, at_home, gift.2, partition));
        at[partition as usize] = Some(to);
        for (worker, load) in [(from, -i128::from(gift.0)), (to, i128::from(gift.0))] {
            order.remove(&(scales.of(worker), worker));
            sources.remove(&(scales.of(worker), worker));
            scales.add(desk, worker, load);
            order.insert((scales.of(worker), worker));
            sources.insert((scales.of(worker), worker));
        }
    }
    gave
}

/// What every worker could give. One that is to be kept from some worker has its place, and is not moved for balance.
fn gifts(desk: &Desk<'_>, loads: &[u32], at: &[Option<WorkerIx>]) -> Vec<BTreeSet<Gift>> {
    let mut gifts = vec![Vec::new(); desk.workers.len()];
    for (partition, stance) in (0..).zip(&desk.stances) {
        let owner = match *stance {
            Stance::Movable(owner) => Some(owner),
            Stance::ToPlace { .. } => at[partition as usize],
            _ => None,
        };
        if let Some(owner) = owner.filter(|_| desk.spot(partition).avoid.is_none()) {
            let key = desk.key(partition);
            let at_home = desk.ring.home(key) == Some(owner);
            gifts[owner.get()].push((loads[partition as usize], at_home, key, partition));
        }
    }
    gifts.into_iter().map(BTreeSet::from_iter).collect()
}

/// The worker to receive: the least loaded, or one nearly so whose zone needs it more.
fn receiver(desk: &Desk<'_>, scales: &Scales, order: &BTreeSet<(i128, WorkerIx)>) -> WorkerIx {
    let least = order.first().map_or(0, |(excess, _)| *excess);
    let near = order.iter().take_while(|(excess, _)| *excess <= least + scales.slack()).take(CHOICE);
    let in_zone = near.map(|&(excess, worker)| (scales.zones[desk.zones.of(worker.get())], excess, worker));
    in_zone.min().map_or(WorkerIx::new(0), |(_, _, worker)| worker)
}

/// The partition that closes a gap best.
fn best(gifts: &BTreeSet<Gift>, gap: i128, scales: &Scales) -> Option<Gift> {
    let denominator = scales.weights;
    let half = u32::try_from((gap / 2 / denominator).clamp(0, u32::MAX.into())).unwrap_or(u32::MAX);
    let above = (half.saturating_add(1), false, 0, 0);
    let first_of = |load: u32| gifts.range((load, false, 0, 0)..).next().copied();
    let smaller = gifts.range(..above).next_back().and_then(|gift| first_of(gift.0));
    let larger = gifts.range(above..).next().copied();
    let fit = |gift: Gift| (gap - 2 * i128::from(gift.0) * denominator).abs();
    let useful = |gift: &Gift| i128::from(gift.0) * denominator + scales.slack() < gap;
    [smaller, larger].into_iter().flatten().filter(useful).min_by_key(|gift| (fit(*gift), *gift))
}
