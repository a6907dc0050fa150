//! Which worker should own what, and why: a pure function from a view of one keyspace to a plan.
//!
//! Consistent hashing gives every partition its order of preference among the workers. A quota, the worker's weighted
//! share rounded down or up, bounds what each may hold. Whoever owns a partition keeps it while the bounds hold. So
//! the spread is at most one partition, a plan makes the fewest moves that the bounds allow, and a plan of which any
//! part was carried out leaves exactly the rest to do.
//!
//! The leader plans and the log carries the moves; nobody plans inside `State::apply`. The answer is nevertheless the
//! same on every node and in every version, and golden files pin it: two leaders in a row then agree on where things
//! belong, and do not undo each other's moves.
//!
//! | file | idea |
//! |---|---|
//! | `hash` | key to partition, fixed for every language |
//! | `weight` | a worker's weight |
//! | `ring` | the workers' points on the ring of hashes |
//! | `keys` | a keyspace's partitions on the same ring |
//! | `view` | what a plan is made from, and when it is refused |
//! | `quota` | how many partitions each worker should hold |
//! | `rooms` | the first worker clockwise that has room |
//! | `plan` | the plan |

mod hash;
mod keys;
mod plan;
mod quota;
mod ring;
mod rooms;
mod view;
mod weight;

#[cfg(test)]
mod tests;

pub use hash::{MAX_PARTITIONS, PARTITIONER, PartitionCount, PartitionCountError, partition_of};
pub use keys::PartitionKeys;
pub use plan::{Plan, PlannedMove, Reason, Unplaced, plan};
pub use ring::Ring;
pub use view::{Candidate, MAX_WORKERS, PlanError, Spot, Standing, View, WorkerIx};
pub use weight::{Weight, WeightError};
