//! A drill: an owner is replaced on purpose, and sends a write that it stamped before.

use crate::error::{Error, ErrorKind};
use ringfence_api::DRILL_TIMEOUT;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1::{self, WriteOutcome};
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, SessionId, WorkerId};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A drill to be run: whom, and how.
///
/// The worker must have been built with [`allow_drill`](crate::worker::Builder::allow_drill). It makes one probe write,
/// which the storage must accept, stamps a second one and holds it. Its partition goes to another worker, under a higher
/// epoch. When that one is ready, the held write is sent, and the storage must refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drill {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition; `None`: one of the worker's, or of the drillable worker that owns the fewest.
    pub partition: Option<PartitionId>,
    /// The worker that is replaced; `None`: whoever owns the partition.
    pub worker: Option<WorkerId>,
    /// How it is replaced.
    pub mode: DrillMode,
    /// How long the drill may take, to the answer of the held write: [`Drill::TIMEOUT`], and for a stall at least twice
    /// the worker's TTL.
    pub timeout: Duration,
}

/// How a drill replaces an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrillMode {
    /// By a planned move of the one partition. Nothing else moves.
    Move,
    /// The worker stops renewing, as if its process stood still: its lease runs out, and *all* of its partitions go to
    /// others. It joins anew when the drill is over, and when its timeout is at the latest.
    Stall,
}

/// What a drill would do, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrillPlan {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition whose fence is tried.
    pub partition: PartitionId,
    /// How its owner is replaced.
    pub mode: DrillMode,
    /// The owner that is replaced.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// Its epoch, which the held write carries.
    pub epoch: Epoch,
    /// Its lease.
    pub ttl: Duration,
    /// Who is granted the partition; `None` when that is decided later.
    pub heir: Option<WorkerId>,
    /// How many partitions the owner gives up.
    pub moves: u32,
}

/// What a drill found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrillReport {
    /// What it did.
    pub plan: DrillPlan,
    /// The new owner, which was ready when the held write was sent.
    pub new_worker: WorkerId,
    /// Its session.
    pub new_session: SessionId,
    /// Its epoch.
    pub new_epoch: Epoch,
    /// What became of the held write.
    pub write: HeldWrite,
    /// Reads under the lease of the deposed ownership that the SDK refused.
    pub stale_reads_refused: u32,
    /// And that it let pass.
    pub stale_reads_accepted: u32,
    /// From the last moment at which the old owner could start a write until it was told that the new one is ready, on
    /// the old owner's clock.
    pub gap: Duration,
}

/// What became of the write that a drill held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldWrite {
    /// The storage refused it.
    Refused,
    /// The storage took it, and should not have.
    Accepted,
    /// The probe failed, with this error.
    Unknown(String),
}

/// What a drill shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The stale write was refused, and nothing stale was accepted.
    Fenced,
    /// The storage took a write of an owner that had been replaced.
    StaleWriteAccepted,
    /// The storage refused the write, and the SDK let a read of the replaced owner pass.
    StaleReadAccepted,
    /// The probe failed, so that nothing is known.
    Unproven,
}

impl DrillReport {
    /// What it shows.
    pub fn verdict(&self) -> Verdict {
        match self.write {
            HeldWrite::Accepted => Verdict::StaleWriteAccepted,
            _ if self.stale_reads_accepted > 0 => Verdict::StaleReadAccepted,
            HeldWrite::Refused => Verdict::Fenced,
            HeldWrite::Unknown(_) => Verdict::Unproven,
        }
    }
}

impl Drill {
    /// How long a drill may be given: 1 s to 30 min.
    pub const TIMEOUT: RangeInclusive<Duration> = DRILL_TIMEOUT;

    /// # Errors
    /// [`ErrorKind::Invalid`] when its timeout is out of bounds.
    pub(super) fn check(&self) -> Result<(), Error> {
        if Self::TIMEOUT.contains(&self.timeout) {
            return Ok(());
        }
        let (shortest, longest) = (Self::TIMEOUT.start(), Self::TIMEOUT.end());
        let told = format!("a drill is given {shortest:?} to {longest:?}, and not {:?}", self.timeout);
        Err(Error::own(ErrorKind::Invalid, told))
    }

    pub(super) fn to_wire(&self, dry_run: bool, directive: Option<v1::Directive>) -> v1::RunDrillRequest {
        let mode = match self.mode {
            DrillMode::Move => v1::DrillMode::Move,
            DrillMode::Stall => v1::DrillMode::Stall,
        };
        v1::RunDrillRequest {
            keyspace: self.keyspace.to_string(),
            partition: self.partition.map(PartitionId::get),
            worker: self.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
            mode: mode.into(),
            timeout_ms: checked::millis(self.timeout),
            dry_run,
            directive,
        }
    }
}

impl TryFrom<v1::RunDrillResponse> for DrillPlan {
    type Error = InvalidField;

    fn try_from(wire: v1::RunDrillResponse) -> Result<DrillPlan, InvalidField> {
        let mode = match wire.mode() {
            v1::DrillMode::Move => DrillMode::Move,
            v1::DrillMode::Stall => DrillMode::Stall,
            v1::DrillMode::Unspecified => return Err(InvalidField::new("mode", "it is not known here")),
        };
        let heir = Some(&wire.new_worker).filter(|worker| !worker.is_empty());
        Ok(DrillPlan {
            keyspace: checked::keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            mode,
            worker: checked::worker_id("old_worker", &wire.old_worker)?,
            session: checked::session("old_session", wire.old_session)?,
            epoch: checked::epoch("old_epoch", wire.old_epoch)?,
            ttl: Duration::from_millis(wire.ttl_ms),
            heir: heir.map(|worker| checked::worker_id("new_worker", worker)).transpose()?,
            moves: wire.partitions_moved,
        })
    }
}

impl TryFrom<v1::RunDrillResponse> for DrillReport {
    type Error = InvalidField;

    fn try_from(mut wire: v1::RunDrillResponse) -> Result<DrillReport, InvalidField> {
        let finding = wire.finding.take().ok_or_else(|| InvalidField::missing("finding"))?;
        let write = match finding.write() {
            WriteOutcome::Refused => HeldWrite::Refused,
            WriteOutcome::Accepted => HeldWrite::Accepted,
            WriteOutcome::Unknown | WriteOutcome::Unspecified => HeldWrite::Unknown(finding.error),
        };
        Ok(DrillReport {
            new_worker: checked::worker_id("new_worker", &wire.new_worker)?,
            new_session: checked::session("new_session", wire.new_session)?,
            new_epoch: checked::epoch("new_epoch", wire.new_epoch)?,
            write,
            stale_reads_refused: finding.stale_reads_refused,
            stale_reads_accepted: finding.stale_reads_accepted,
            gap: Duration::from_millis(finding.gap_ms),
            plan: wire.try_into()?,
        })
    }
}
