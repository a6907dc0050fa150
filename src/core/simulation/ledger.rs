//! What is counted while a trace is replayed: who is without an owner, what moves and why, and for how long.

use super::report::Moves;
use crate::ids::{PartitionId, WorkerId};
use crate::state::GrantReason;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a partition is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Nobody alive owns it.
    Ownerless,
    /// Its owner loads it.
    Loading,
    /// Its owner is ready.
    Served,
}

/// The books of one replay.
#[derive(Debug)]
pub(super) struct Ledger {
    service: Vec<Service>,
    pub(super) ownerless: u64,
    pub(super) loading: u64,
    /// Partitions in a planned move, and where they go.
    moving: BTreeMap<PartitionId, WorkerId>,
    times_moved: Vec<u32>,
    pub(super) since_sample: Moves,
    pub(super) moves: Moves,
    pub(super) refused: u64,
    pub(super) max_in_flight: u64,
    /// In partition-nanoseconds: a million partitions for a year are far below its end.
    ownerless_time: u128,
    loading_time: u128,
    out_of_balance: Duration,
}

impl Ledger {
    pub(super) fn new(partitions: u32) -> Ledger {
        Ledger {
            service: vec![Service::Ownerless; partitions as usize],
            ownerless: partitions.into(),
            loading: 0,
            moving: BTreeMap::new(),
            times_moved: vec![0; partitions as usize],
            since_sample: Moves::new(),
            moves: Moves::new(),
            refused: 0,
            max_in_flight: 0,
            ownerless_time: 0,
            loading_time: 0,
            out_of_balance: Duration::ZERO,
        }
    }

    pub(super) fn serve(&mut self, partition: PartitionId, service: Service) {
        let before = std::mem::replace(&mut self.service[partition.get() as usize], service);
        match before {
            Service::Ownerless => self.ownerless -= 1,
            Service::Loading => self.loading -= 1,
            Service::Served => {}
        }
        match service {
            Service::Ownerless => self.ownerless += 1,
            Service::Loading => self.loading += 1,
            Service::Served => {}
        }
    }

    /// A planned move has begun.
    pub(super) fn planned(&mut self, partition: PartitionId, to: &WorkerId, why: GrantReason) {
        self.moving.insert(partition, to.clone());
        self.max_in_flight = self.max_in_flight.max(self.in_flight());
        self.count(partition, why);
    }

    /// A partition was granted. The end of a planned move was counted when that began.
    pub(super) fn granted(&mut self, partition: PartitionId, to: &WorkerId, why: GrantReason) {
        if self.moving.get(&partition) != Some(to) {
            self.moving.remove(&partition);
            self.count(partition, why);
        }
    }

    /// A planned move has ended: its new owner is ready, or it came to nothing and nobody owns the partition.
    pub(super) fn ended(&mut self, partition: PartitionId) {
        self.moving.remove(&partition);
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.moving.len() as u64
    }

    pub(super) fn max_moves_of_a_partition(&self) -> u32 {
        self.times_moved.iter().copied().max().unwrap_or(0)
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, time: Duration, in_balance: bool) {
        self.ownerless_time += u128::from(self.ownerless) * time.as_nanos();
        self.loading_time += u128::from(self.loading) * time.as_nanos();
        if !in_balance {
            self.out_of_balance += time;
        }
    }

    pub(super) fn ownerless_partition_ms(&self) -> u64 {
        (self.ownerless_time / 1_000_000) as u64
    }

    pub(super) fn loading_partition_ms(&self) -> u64 {
        (self.loading_time / 1_000_000) as u64
    }

    pub(super) fn out_of_balance_ms(&self) -> u64 {
        self.out_of_balance.as_millis() as u64
    }

    fn count(&mut self, partition: PartitionId, why: GrantReason) {
        let name = name(why);
        *self.moves.entry(name).or_default() += 1;
        *self.since_sample.entry(name).or_default() += 1;
        if why != GrantReason::First {
            self.times_moved[partition.get() as usize] += 1;
        }
    }
}

fn name(why: GrantReason) -> &'static str {
    match why {
        GrantReason::First => "first",
        GrantReason::Failover => "failover",
        GrantReason::Vacated => "vacated",
        GrantReason::Balance => "balance",
        GrantReason::Operator => "operator",
        GrantReason::Join => "join",
        GrantReason::Drain => "drain",
        GrantReason::Weight => "weight",
        GrantReason::Zone => "zone",
        GrantReason::Pin => "pin",
        GrantReason::Load => "load",
        GrantReason::Label => "label",
        GrantReason::Plan => "plan",
        GrantReason::Returned => "returned",
        GrantReason::Split => "split",
        GrantReason::Reassert => "reassert",
        GrantReason::Behind => "behind",
    }
}
