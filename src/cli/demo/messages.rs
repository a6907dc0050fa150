//! What the demo and its workers tell each other: a line of JSON each, over the worker's standard input and output.

use serde::{Deserialize, Serialize};

/// From a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// It owns the partition and has loaded it.
    Ready { partition: u32, epoch: u64 },
    /// The store has taken this write.
    Acked { partition: u32, epoch: u64, seq: u64 },
    /// It has stamped this write, and stops itself before it sends it.
    Stopping { partition: u32, epoch: u64, seq: u64 },
    /// It runs again.
    Resumed { partition: u32, epoch: u64, seq: u64 },
    /// The fence refused this write.
    Refused { partition: u32, epoch: u64, seq: u64, highest: u64 },
    /// It does not own the partition any more.
    Ended { partition: u32, epoch: u64 },
    /// It cannot go on.
    Failed { error: String },
}

/// To a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tell {
    /// Stop yourself with SIGSTOP the next time you have stamped a write and not sent it.
    StopAfterStamping,
    /// Give everything back, and leave.
    Leave,
}
