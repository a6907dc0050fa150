//! What a trace says: how the keyspace is run, and what happens.

use crate::ids::{KeyspaceName, PartitionId, WorkerId};
use crate::lead::Settings;
use crate::placement::{PartitionCount, Weight};
use crate::state::{PartitionChange, Policy, PolicyChange, PolicyError, WorkerChange};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest that settling, releasing or loading may take.
pub const MAX_STEP: Duration = Duration::from_secs(3_600);
/// The shortest that releasing or loading may take, so that time goes on.
pub const MIN_STEP: Duration = Duration::from_millis(1);
/// The longest cool-down.
pub const MAX_COOL_DOWN: Duration = Duration::from_secs(86_400);

/// The head of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The keyspace. Its name matters: where the bounds leave a choice, hashes of it decide.
    pub keyspace: KeyspaceName,
    /// How many partitions it has.
    pub partitions: PartitionCount,
    /// How it is run.
    pub policy: Policy,
    /// How the leader paces its moves.
    pub pacing: Settings,
    /// How long an owner takes to give a partition up: [`MIN_STEP`] to [`MAX_STEP`].
    pub release: Duration,
    /// How long a new owner takes from its grant until it is ready, within the same bounds.
    pub load: Duration,
}

impl Setup {
    /// The same under another policy.
    ///
    /// # Errors
    /// [`PolicyError`] when that cannot work; it names the setting and its bounds.
    pub fn with(self, change: &PolicyChange) -> Result<Setup, PolicyError> {
        Ok(Setup { policy: self.policy.with(change)?, ..self })
    }
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker starts. After it failed, it does so under its old name.
    Join {
        /// Its name.
        worker: WorkerId,
        /// Its weight.
        weight: Weight,
        /// Its labels, its zone among them.
        labels: BTreeMap<String, String>,
    },
    /// A worker releases all it has, and leaves.
    Leave(WorkerId),
    /// A worker dies without a word.
    Fail(WorkerId),
    /// An operator changes what is set about a worker.
    Worker(WorkerId, WorkerChange),
    /// An operator changes what is set about a partition.
    Partition(PartitionId, PartitionChange),
    /// An operator freezes the keyspace, or lets it go on.
    Freeze(bool),
    /// An operator moves a partition.
    Move(PartitionId, WorkerId),
    /// Loads were measured. They are smoothed before the leader sees them.
    Load(Vec<(PartitionId, u64)>),
    /// The trace ends here.
    End,
}
