//! What comes out of a replay.

use std::collections::BTreeMap;

/// How many samples a report has at the most.
pub const MAX_SAMPLES: usize = 100_000;

/// Moves by reason; a reason without moves is left out.
///
/// `first`, `failover` and `vacated` are repairs, which wait for nothing. `join`, `weight`, `zone`, `load` and `balance` are
/// for balance; `pin`, `drain`, `label` and `operator` because an operator wants it so.
pub type Moves = BTreeMap<&'static str, u64>;

/// One look at the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds since the beginning.
    pub at_ms: u64,
    /// Workers that are up.
    pub workers: usize,
    /// Partitions that nobody owns who is alive.
    pub ownerless: u64,
    /// Partitions whose owner loads them.
    pub loading: u64,
    /// How far apart the workers that take partitions are: 0 or 1 is even. With loads it is a sum of smoothed loads.
    pub spread: u64,
    /// The same of the zones.
    pub zone_spread: u64,
    /// Zones that hold more than their share, rounded up; with loads, by more than the tolerance.
    pub zone_violations: u64,
    /// The most that a worker holds of what it should, in thousandths: the measured load of its partitions (1 each where
    /// none were measured) over its share by weight of what all hold that take partitions. `None` when nobody takes any, or
    /// they hold nothing.
    pub imbalance_permille: Option<u64>,
    /// Planned moves that have begun, and whose new owner is not ready.
    pub in_flight: u64,
    /// What has begun since the last sample.
    pub moves: Moves,
}

/// What there was from the beginning to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How long it lasted.
    pub end_ms: u64,
    /// Nothing is left to do: no move is in flight, and none will begin until something happens.
    pub at_rest: bool,
    /// Moves that have begun.
    pub moves: Moves,
    /// Moves that an operator asked for, and that were not possible.
    pub moves_refused: u64,
    /// The most planned moves in flight at once.
    pub max_in_flight: u64,
    /// How long workers were further apart than plans leave them, or a zone held too much.
    pub out_of_balance_ms: u64,
    /// The sum, over all partitions, of the time in which nobody alive owned them.
    pub ownerless_partition_ms: u64,
    /// The sum, over all partitions, of the time in which their owner loaded them.
    pub loading_partition_ms: u64,
    /// How often the partition that moved most often has moved; its first owner does not count.
    pub max_moves_of_a_partition: u32,
}

/// What comes out of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// At the beginning, at each interval, and at the end.
    pub samples: Vec<Sample>,
    /// Of all of it.
    pub totals: Totals,
}
