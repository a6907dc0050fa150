//! What the demo showed, for people and for programs.

use serde::Serialize;
use std::fmt;

/// The result. With `-o json` it is printed as one object; the fields stay what they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// Whether the store checked tokens.
    pub(super) fence: bool,
    /// Writes that a worker was told are on disk.
    pub(super) acknowledged_writes: u64,
    /// Writes of a deposed owner that the fence refused.
    pub(super) stale_writes_refused: u64,
    /// Writes of a deposed owner that the store took after it had taken one of the next owner.
    pub(super) stale_writes_accepted: u64,
    /// Acknowledged writes that are not in the file any more.
    pub(super) acknowledged_writes_lost: u64,
    /// Changes of owner or epoch, over all partitions.
    pub(super) handoffs: u64,
    /// The 99th percentile of planned moves, from the last write under the old epoch to the first under the new.
    pub(super) planned_handoff_ms_p99: f64,
    /// How many planned moves that is of.
    pub(super) planned_handoffs: u64,
    /// From SIGKILL of a worker to the first acknowledged write in the last of its partitions.
    pub(super) worker_failover_ms: f64,
    /// From SIGKILL of the leader to the first change that the coordinator acknowledged.
    pub(super) leader_failover_ms: f64,
    /// Partitions that changed owner or epoch because the leader was killed.
    pub(super) partitions_lost_at_leader_failover: u64,
    /// The lease, in milliseconds.
    pub(super) ttl_ms: u64,
}

impl Report {
    /// Why it did not show what it should; `None` when it did.
    pub(super) fn shortfall(&self) -> Option<&'static str> {
        if !self.fence {
            return (self.stale_writes_accepted == 0)
                .then_some("without the fence no stale write was accepted: the pause did not bite");
        }
        if self.stale_writes_accepted > 0 {
            Some("a stale write was accepted")
        } else if self.acknowledged_writes_lost > 0 {
            Some("an acknowledged write was lost")
        } else if self.stale_writes_refused == 0 {
            Some("no stale write was refused: the pause did not bite")
        } else {
            None
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            writeln!(f, "  {name:<52} {value:>10}")
        };
        writeln!(f, "what the file shows{}:", if self.fence { "" } else { ", WITHOUT the fence" })?;
        line(f, "writes acknowledged", &self.acknowledged_writes)?;
        line(f, "stale writes refused by the fence", &self.stale_writes_refused)?;
        line(f, "stale writes accepted", &self.stale_writes_accepted)?;
        line(f, "acknowledged writes lost", &self.acknowledged_writes_lost)?;
        line(f, "handoffs", &self.handoffs)?;
        line(f, "planned handoff, p99, ms", &format!("{:.1}", self.planned_handoff_ms_p99))?;
        let worker = format!("worker killed to all its partitions written, ms (ttl {})", self.ttl_ms);
        line(f, &worker, &format!("{:.0}", self.worker_failover_ms))?;
        line(
            f,
            "leader killed to first acknowledged change, ms",
            &format!("{:.0}", self.leader_failover_ms),
        )?;
        line(f, "partitions that changed hands because of it", &self.partitions_lost_at_leader_failover)
    }
}
