//! What an operator asks of the cluster, in types of our own.
//!
//! [`Admin`] has one method for each thing to ask. A call that changes something draws one request id and keeps it over
//! all of its retries, so that it takes effect once, also when the leader dies before it answers. Reads are answered by
//! the leader after a quorum confirmed it, except [`Admin::cluster_status`], which any node answers from what it knows.
//!
//! ```no_run
//! # async fn example() -> Result<(), ringfence::Error> {
//! use ringfence::admin::{Admin, PolicyChange};
//! use std::time::Duration;
//!
//! let admin = Admin::at("http://127.0.0.1:7600")?;
//! let policy = PolicyChange { ttl: Some(Duration::from_secs(5)), ..PolicyChange::default() };
//! admin.create_keyspace("orders", 64, &policy).await?;
//! for partition in admin.partitions("orders").await? {
//!     println!("{} is {}", partition.partition, partition.phase);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `handle` | [`Admin`] |
//! | `cluster` | the nodes, as one of them sees them |
//! | `worker` | the workers that have a session |
//! | `partition` | what is known of one partition |
//! | `placement` | the half of [`Admin`] that is about where partitions are |
//! | `settings` | what is set about workers and partitions, and by whom |
//! | `plan` | a plan as it would be |
//! | `approved` | a plan that is put to the coordinator, and the way back |
//! | `split` | every partition of a keyspace in two |
//! | `explain` | why a partition is where it is |
//! | `locks` | named locks: who holds one, who waits, and taking one away |
//! | `fences` | what storage refused, and fences that are raised again |
//! | `directives` | what operators decided, and what became of a worker |
//! | `drill` | an owner that is replaced on purpose, to see its late write refused |
//! | `health` | what a person on call wants to know |

mod approved;
mod cluster;
mod directives;
mod drill;
mod explain;
mod fences;
mod handle;
mod health;
mod locks;
mod partition;
mod placement;
mod plan;
mod settings;
mod split;
#[cfg(test)]
mod tests;
mod worker;

pub use approved::{
    ApprovedMove, ApprovedPlan, Hindrance, MoveStep, PlanStage, Proposal, ProposedMove, Undo,
};
pub use cluster::{ClusterStatus, Node, NodeRole};
pub use directives::{Directive, WorkerDetail, WorkerEvent};
pub use drill::{Drill, DrillMode, DrillPlan, DrillReport, HeldWrite, Verdict};
pub use explain::{Explanation, WhyNot};
pub use fences::{
    Holder, Reassert, ReassertOrder, ReassertStep, RefusedList, RefusedWrites, WaitingPartition,
};
pub use handle::{Admin, KeyspaceUpdate};
pub use health::{Health, OwnerlessReason, Sample};
pub use locks::{BrokenLock, LockDetail, LockList, held_for, is_over_alert};
pub use partition::{Located, MoveStarted, PartitionDetail, WouldMove};
pub use plan::{BeforeAfter, Plan, PlanWorker, PlannedMove, WhatIf};
pub use ringfence_api::convert::{Keyspace, Lock, LockHolder, LockWaiter, Owner, Partition, Phase, Tenure};
pub use ringfence_core::placement::{Constraint, PartitionCount, Weight};
pub use ringfence_core::state::{
    BalanceBy, LockCooling, LockMode, LockWish, MAX_PARTITION_WEIGHT, PartitionChange, Policy, PolicyChange,
    Takeover, WorkerChange,
};
pub use settings::{PartitionSettings, Settings, WorkerSettings};
pub use worker::Worker;
