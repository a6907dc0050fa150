//! What an operator may decide about where partitions are, drawn from a world's dice.

use super::plan::Plan;
use crate::actors::decision::Decision;
use crate::world::Host;
use fastrand::Rng;
use ringfence::admin::{PartitionChange, Weight, WorkerChange};
use ringfence::ids::{PartitionId, WorkerId};

/// A decision, by hosts and numbers: keyspaces count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A worker is drained, or no longer.
    Drain(Host, bool),
    /// A worker is cordoned, or no longer.
    Cordon(Host, bool),
    /// Nothing is moved to a worker or away from it, or is again.
    FreezeWorker(Host, bool),
    /// A worker has this weight, or its own.
    Weight(Host, Option<u32>),
    /// A partition is pinned to a worker, or to none.
    Pin(usize, u32, Option<Host>),
    /// A partition counts as so many others, or as one.
    Weigh(usize, u32, Option<u32>),
    /// A partition stays, or may move.
    FreezePartition(usize, u32, bool),
    /// A keyspace, or all there is, stays as it is; or may change.
    Freeze(Option<usize>, bool),
    /// A keyspace is balanced by itself, or is not.
    Balance(usize, bool),
    /// A plan for a keyspace is made and approved.
    Apply(usize),
    /// The last plan is undone.
    Undo,
    /// The plan that is being carried out is stopped.
    Cancel,
    /// A worker is put out, and drained.
    Evict(Host),
}

impl Choice {
    /// One of them. The first worker is always left free to take partitions: what nobody may have has no owner.
    pub(super) fn draw(plan: &Plan, random: &mut Rng) -> Choice {
        let some = |random: &mut Rng| plan.workers[random.usize(1..plan.workers.len())];
        let any = |random: &mut Rng| plan.workers[random.usize(..plan.workers.len())];
        let (keyspace, partition) = (random.usize(..2), random.u32(..plan.partitions));
        // What was begun is taken back about as often, so that worlds do not end with everything frozen.
        let (on, off) = (random.bool(), random.u8(..3) > 0);
        match random.u8(..21) {
            0 | 1 => Choice::Drain(some(random), on),
            2 => Choice::Cordon(some(random), on),
            3 => Choice::FreezeWorker(some(random), on && !off),
            4 => Choice::Weight(any(random), on.then(|| random.u32(1..=5))),
            5..=7 => Choice::Pin(keyspace, partition, off.then(|| any(random))),
            8 => Choice::Weigh(keyspace, partition, on.then(|| random.u32(1..=6))),
            9 | 10 => Choice::FreezePartition(keyspace, partition, on),
            11 => Choice::Freeze(Some(keyspace), on),
            12 => Choice::Freeze(None, on && !off),
            13 => Choice::Balance(keyspace, on),
            14..=16 => Choice::Apply(keyspace),
            17 | 18 => Choice::Undo,
            19 => Choice::Cancel,
            _ => Choice::Evict(some(random)),
        }
    }

    /// The same by name. `None`: there is no such worker.
    pub(super) fn decision(
        &self,
        name: impl Fn(Host) -> Option<WorkerId>,
    ) -> anyhow::Result<Option<Decision>> {
        let keyspace = |number: usize| Plan::keyspaces()[number].to_owned();
        let of_worker = |host: Host, change| name(host).map(|worker| Decision::Worker(worker, change));
        let of_partition = |number: usize, partition: u32, change| {
            Some(Decision::Partition(keyspace(number), PartitionId::new(partition), change))
        };
        let (worker, partition) = (WorkerChange::default(), PartitionChange::default());
        Ok(match *self {
            Choice::Drain(host, on) => of_worker(host, WorkerChange { drained: Some(on), ..worker }),
            Choice::Cordon(host, on) => of_worker(host, WorkerChange { cordoned: Some(on), ..worker }),
            Choice::FreezeWorker(host, on) => of_worker(host, WorkerChange { frozen: Some(on), ..worker }),
            Choice::Weight(host, weight) => {
                let weight = Some(weight.map(Weight::new).transpose()?);
                of_worker(host, WorkerChange { weight, ..worker })
            }
            Choice::Pin(of, number, to) => {
                let pin = match to {
                    None => Some(None),
                    Some(to) => name(to).map(Some),
                };
                of_partition(of, number, PartitionChange { pin, ..partition })
            }
            Choice::Weigh(of, number, weight) => {
                of_partition(of, number, PartitionChange { weight: Some(weight), ..partition })
            }
            Choice::FreezePartition(of, number, on) => {
                of_partition(of, number, PartitionChange { frozen: Some(on), ..partition })
            }
            Choice::Freeze(of, on) => Some(Decision::Freeze(of.map(keyspace), on)),
            Choice::Balance(of, on) => Some(Decision::Balance(keyspace(of), on)),
            Choice::Apply(of) => Some(Decision::Apply(keyspace(of))),
            Choice::Undo => Some(Decision::Undo),
            Choice::Cancel => Some(Decision::Cancel),
            Choice::Evict(host) => name(host).map(Decision::Evict),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_decision_is_drawn_and_the_first_worker_is_left_alone() {
        let plan = Plan::of(5);
        let mut random = Rng::with_seed(7);
        let mut kinds = BTreeSet::new();
        for _ in 0..2_000 {
            let choice = Choice::draw(&plan, &mut random);
            let kept_empty = match choice {
                Choice::Drain(host, _) | Choice::Cordon(host, _) => Some(host),
                Choice::FreezeWorker(host, _) | Choice::Evict(host) => Some(host),
                _ => None,
            };
            assert_ne!(kept_empty, Some(plan.workers[0]), "{choice:?}");
            let decision = choice.decision(|host| WorkerId::new(&format!("w{}", host.0)).ok()).unwrap();
            assert!(decision.is_some(), "{choice:?}");
            kinds.insert(format!("{choice:?}").split('(').next().map(str::to_owned));
        }
        assert_eq!(kinds.len(), 13, "{kinds:?}");
    }
}
