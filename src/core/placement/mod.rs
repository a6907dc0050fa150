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
//! What operators want goes before balance: standings of workers (cordoned, drained, frozen, ineligible by label), pins
//! and freezes. What cannot be done is named in the plan. [`explain`] tells of one partition why it is where it is.
//!
//! `docs/placement.md` states the promises and the bounds.
//!
//! | file | idea |
//! |---|---|
//! | `hash` | key to partition, fixed for every language |
//! | `partitioner` | the same while the number of partitions doubles |
//! | `weight` | a worker's weight |
//! | `labels` | which workers may own a keyspace's partitions at all |
//! | `ring` | the workers' points on the ring of hashes |
//! | `keys` | a keyspace's partitions on the same ring |
//! | `candidate`, `spot` | a worker and a partition as a plan sees them |
//! | `view`, `error` | what a plan is made from, and when it is refused |
//! | `quota` | how many partitions each worker should hold |
//! | `zones` | how zones bind that |
//! | `rooms` | the first worker clockwise that has room |
//! | `desk` | standings, pins and freezes taken together |
//! | `counts` | the moves when every partition counts the same |
//! | `weighed` | the moves when partitions have loads |
//! | `smoothing` | from measured loads to loads that a plan can rest on |
//! | `balance` | how even what workers hold is |
//! | `reason` | why a partition should move |
//! | `obstacles` | what a plan cannot do, and why |
//! | `plan` | the plan |
//! | `explain` | one partition: why it is where it is |

mod balance;
mod candidate;
mod counts;
mod desk;
mod error;
mod explain;
mod hash;
mod keys;
mod labels;
mod obstacles;
mod partitioner;
mod plan;
mod quota;
mod reason;
mod ring;
mod rooms;
mod smoothing;
mod spot;
mod view;
mod weighed;
mod weight;
mod zones;

#[cfg(test)]
mod tests;

pub use balance::{Balance, Evenness};
pub use candidate::{Candidate, Newly, WorkerIx, WorkerStanding, ZoneIx};
pub use error::PlanError;
pub use explain::{Because, Explanation, Hold, MAX_OTHERS, WhyNot, explain};
pub use hash::{MAX_PARTITIONS, PARTITIONER, PartitionCount, PartitionCountError, partition_of};
pub use keys::PartitionKeys;
pub use labels::{Constraint, Label, LabelError, unmet};
pub use obstacles::{Kept, Overfull, PinObstacle, Takers, UnmetPin, Unplaced};
pub use partitioner::{Partitioner, PartitionerError, Share};
pub use plan::{Plan, PlannedMove, plan};
pub use reason::Reason;
pub use ring::Ring;
pub use smoothing::SmoothedLoad;
pub(crate) use smoothing::about;
pub use spot::{Pin, Spot, Standing, Vacancy};
pub use view::{MAX_LOAD, MAX_WORKERS, Rules, View};
pub use weight::{Weight, WeightError};
