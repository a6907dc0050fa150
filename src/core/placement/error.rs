//! Why a plan was refused.

use super::hash::PartitionCountError;
use super::view::{MAX_LOAD, MAX_WORKERS};
use crate::ids::{KeyspaceName, PartitionId, WorkerId};

/// Why no plan could be made. Whoever asked keeps the assignment there is: a plan consists of moves alone, so not even
/// an empty one takes anything from anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No partitions, or more than a keyspace may have.
    #[error(transparent)]
    Partitions(#[from] PartitionCountError),
    /// More workers than a plan is made for.
    #[error("{workers} workers: a plan is made for at most {MAX_WORKERS}")]
    TooManyWorkers {
        /// How many there are.
        workers: usize,
    },
    /// The workers are not in the order of their ids, or one is there twice. Ties between workers are decided by this
    /// order, so another one would be another plan.
    #[error("workers are not in the order of their ids, each once: {before} is followed by {after}")]
    Unsorted {
        /// The worker that comes first.
        before: WorkerId,
        /// The worker right after it.
        after: WorkerId,
    },
    /// A partition names a worker that is not in the list.
    #[error(
        "partition {partition} names worker number {index} of {workers}, counted from 0; a partition whose owner is no \
         candidate is vacant"
    )]
    NoSuchWorker {
        /// The partition.
        partition: PartitionId,
        /// The index it names.
        index: usize,
        /// How many workers there are.
        workers: usize,
    },
    /// There is no partition of this number.
    #[error("there is no partition {partition}: the keyspace has {partitions}, numbered from 0")]
    NoSuchPartition {
        /// The partition asked for.
        partition: PartitionId,
        /// How many there are.
        partitions: usize,
    },
    /// The ring that was passed in is one of other workers or other weights.
    #[error(
        "the ring is not of these workers at these weights: build it again when a worker or a weight changes"
    )]
    ForeignRing,
    /// The keys that were passed in are of another keyspace or of another number of partitions.
    #[error("the partition keys are not those of keyspace {keyspace} with this number of partitions")]
    ForeignKeys {
        /// The keyspace of the view.
        keyspace: KeyspaceName,
    },
    /// The loads are not one for each partition.
    #[error("{loads} loads for {partitions} partitions: give one for each, or none at all")]
    LoadCount {
        /// How many loads there are.
        loads: usize,
        /// How many partitions there are.
        partitions: usize,
    },
    /// A partition's load is not between 1 and [`MAX_LOAD`].
    #[error("partition {partition} has the load {load}: a load is between 1 and {MAX_LOAD}")]
    Load {
        /// The partition.
        partition: PartitionId,
        /// Its load.
        load: u32,
    },
}
