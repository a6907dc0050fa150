//! Who owns a partition.

use ringfence_core::ids::{Epoch, PartitionId, SessionId, WorkerId};
use std::fmt;
use std::sync::Arc;

/// One session of a worker: the same for all of its partitions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) worker: WorkerId,
    pub(super) session: SessionId,
    pub(super) address: Box<str>,
}

/// The owner of one partition, as of one picture. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(super) holder: Arc<Holder>,
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    pub(super) ready: bool,
}

impl Owner {
    /// The worker.
    pub fn worker(&self) -> &WorkerId {
        &self.holder.worker
    }

    /// The life of the worker that was granted the partition.
    pub fn session(&self) -> SessionId {
        self.holder.session
    }

    /// Where callers reach the worker, as it said when it joined; may be empty.
    pub fn address(&self) -> &str {
        &self.holder.address
    }

    /// The partition it owns.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The epoch of its grant. Sent along with a call, it lets the worker tell a caller that is behind from one that is
    /// ahead.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// It has raised its fences and loaded its state: callers may come.
    pub fn is_ready(&self) -> bool {
        self.ready
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) under {}", self.worker(), self.session(), self.epoch)
    }
}
