//! What storage refused, and fences that are raised again.

use super::Directive;
use super::handle::{Admin, CHANGE, READ};
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{
    Epoch, KeyspaceName, LogIndex, PartitionId, Scope, SessionId, StoreName, WorkerId,
};

/// Writes that the same storage refused for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedWrites {
    /// What they were of: `orders/17`, or `@locks/NAME`.
    pub scope: Scope,
    /// The epoch that they were made under.
    pub own: Epoch,
    /// The highest epoch that the fence had seen.
    pub highest: Epoch,
    /// The storage, as the program that told calls it.
    pub store: StoreName,
    /// The fence only observes: they were written.
    pub observed: bool,
    /// How many.
    pub count: u64,
    /// When the first and the last was refused, by the clock of the leader that was told; for display.
    pub first_unix_ms: u64,
    /// See `first_unix_ms`.
    pub last_unix_ms: u64,
    /// Who had that epoch, when that is remembered.
    pub writer: Option<Holder>,
    /// Who was granted the partition after that, when that is remembered.
    pub successor: Option<Holder>,
    /// The worker whose program told of the last one, as it called itself.
    pub reporter: Option<WorkerId>,
    /// For how long at least the writer had been replaced when the first one reached the storage, in milliseconds.
    pub late_ms: Option<u64>,
    /// The same in a few sentences, and what to do. Escaped.
    pub means: String,
}

/// A holder of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Its session then.
    pub session: SessionId,
    /// The epoch.
    pub epoch: Epoch,
    /// When it was granted, for display.
    pub granted_unix_ms: u64,
    /// That session lives.
    pub lives: bool,
}

/// What was told of refused writes, those told last first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedList {
    /// At most 256.
    pub refusals: Vec<RefusedWrites>,
    /// The leader's clock at the answer.
    pub now_unix_ms: u64,
}

/// An order to raise fences again, or what it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassertOrder {
    /// What names it; `None` when it was only asked about, or another one has taken its place.
    pub order: Option<LogIndex>,
    /// How many partitions it is about.
    pub partitions: u32,
    /// How many of them have an owner.
    pub owned: u32,
}

/// How far an order to raise fences again is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reassert {
    /// What names it.
    pub order: LogIndex,
    /// When it was given, by the leader's clock.
    pub unix_ms: u64,
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// One partition of it; all, when `None`.
    pub partition: Option<PartitionId>,
    /// Who gave it, and why.
    pub directive: Option<Directive>,
    /// How many partitions it is about.
    pub partitions: u32,
    /// The owners of so many have raised their fences since.
    pub done: u32,
    /// Nobody has so many; whoever gets them raises first.
    pub ownerless: u32,
    /// What is neither, at most 100 of them.
    pub waiting: Vec<WaitingPartition>,
    /// How many are neither.
    pub waiting_total: u32,
    /// The workers that have any of those, by name, with how many.
    pub workers: Vec<(String, u32)>,
}

/// A partition whose fences are not raised again yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingPartition {
    /// Its number.
    pub partition: PartitionId,
    /// Its epoch.
    pub epoch: Option<Epoch>,
    /// Who has it.
    pub worker: String,
    /// How far it is.
    pub step: ReassertStep,
    /// What keeps it from being taken, in a sentence; empty when nothing does.
    pub frozen: String,
}

/// How far a partition is whose fences are raised again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReassertStep {
    /// Its owner was not told yet.
    Held,
    /// Its owner was told, and its task has not ended.
    Ending,
    /// It was granted anew, and its owner is not ready.
    Raising,
    /// Something that an operator froze keeps it from being taken.
    Frozen,
    /// A coordinator of a later version says something else.
    Other,
}

impl ReassertStep {
    /// One word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            ReassertStep::Held => "held",
            ReassertStep::Ending => "ending",
            ReassertStep::Raising => "raising",
            ReassertStep::Frozen => "frozen",
            ReassertStep::Other => "other",
        }
    }
}

impl Reassert {
    /// Every owner has raised its fences, and nothing is without one.
    pub fn is_done(&self) -> bool {
        self.done == self.partitions
    }
}

impl Admin {
    /// Writes that storage refused, or would have refused, as far as it was told and is kept. Only of one keyspace, when it
    /// is named.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such keyspace.
    pub async fn refused_writes(&self, keyspace: Option<&str>) -> Result<RefusedList, Error> {
        let keyspace = keyspace.map(KeyspaceName::new).transpose()?;
        let keyspace = keyspace.map(|name| name.to_string()).unwrap_or_default();
        let request = v1::ListRefusalsRequest { keyspace };
        let answer = self.ask_fences(READ, request, async |mut c, r| c.list_refusals(r).await).await?;
        let refusals = answer.refusals.into_iter().enumerate();
        let one = |(place, of): (usize, v1::RefusedWrites)| {
            RefusedWrites::try_from(of).map_err(|e| Error::malformed(e.at("refusals", place)))
        };
        Ok(RefusedList {
            refusals: refusals.map(one).collect::<Result<_, _>>()?,
            now_unix_ms: answer.now_unix_ms,
        })
    }

    /// Orders the fences of a keyspace, or of one partition, to be raised again: for storage that was restored from a copy or
    /// has failed over, and may have forgotten who is deposed.
    ///
    /// Each partition is taken from its owner and granted to the same worker at a higher epoch: the owner function ends, the
    /// declared fences are raised, it is called again. Keep the storage closed from its restore until that is done: in
    /// between a deposed owner may write. Returns when the order is committed; [`Admin::reasserts`] says how far it is.
    ///
    /// With `above`, which is said of one partition, its next epoch is above that as well: for storage that has seen more
    /// than the coordinator has granted, because the coordinator was restored from an old copy.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Refused`] when something is frozen, or `above` is more than 2^48 above what the
    /// partition stands at; [`ErrorKind::Limit`] when 64 other orders are under way; [`ErrorKind::Invalid`].
    pub async fn reassert(
        &self,
        keyspace: &str,
        partition: Option<u32>,
        above: Option<Epoch>,
    ) -> Result<ReassertOrder, Error> {
        self.order(keyspace, partition, above, false).await
    }

    /// What [`Admin::reassert`] would be about, by the coordinator's judgement. Nothing is done.
    ///
    /// # Errors
    /// As [`Admin::reassert`].
    pub async fn would_reassert(
        &self,
        keyspace: &str,
        partition: Option<u32>,
        above: Option<Epoch>,
    ) -> Result<ReassertOrder, Error> {
        self.order(keyspace, partition, above, true).await
    }

    async fn order(
        &self,
        keyspace: &str,
        partition: Option<u32>,
        above: Option<Epoch>,
        dry_run: bool,
    ) -> Result<ReassertOrder, Error> {
        let keyspace = KeyspaceName::new(keyspace)?;
        if above.is_some() && partition.is_none() {
            let message = "`above` is said of one partition: name it";
            return Err(Error::own(ErrorKind::Invalid, message));
        }
        let request = v1::ReassertRequest {
            request: if dry_run { None } else { Some(self.request_id().await?) },
            keyspace: keyspace.to_string(),
            partition,
            above: above.map_or(0, Epoch::get),
            directive: if dry_run { None } else { Some(self.directive()) },
            dry_run,
        };
        let call = if dry_run { READ } else { CHANGE };
        let answer = self.ask_fences(call, request, async |mut c, r| c.reassert(r).await).await?;
        Ok(ReassertOrder {
            order: Some(answer.order).filter(|order| *order > 0).map(LogIndex::new),
            partitions: answer.partitions,
            owned: answer.owned,
        })
    }

    /// How far the orders to raise fences again are, newest first. At most 64 are remembered.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such keyspace.
    pub async fn reasserts(&self, keyspace: Option<&str>) -> Result<Vec<Reassert>, Error> {
        let keyspace = keyspace.map(KeyspaceName::new).transpose()?;
        let keyspace = keyspace.map(|name| name.to_string()).unwrap_or_default();
        let request = v1::ListReassertsRequest { keyspace };
        let answer = self.ask_fences(READ, request, async |mut c, r| c.list_reasserts(r).await).await?;
        let orders = answer.reasserts.into_iter().enumerate();
        let one = |(place, of): (usize, v1::Reassert)| {
            Reassert::try_from(of).map_err(|e| Error::malformed(e.at("reasserts", place)))
        };
        orders.map(one).collect()
    }
}

impl TryFrom<v1::RefusedWrites> for RefusedWrites {
    type Error = InvalidField;

    fn try_from(wire: v1::RefusedWrites) -> Result<RefusedWrites, InvalidField> {
        let holder = |field: &str, holder: v1::refused_writes::Holder| {
            Holder::try_from(holder).map_err(|e| e.within(field))
        };
        let reporter = Some(wire.reporter).filter(|name| !name.is_empty());
        Ok(RefusedWrites {
            scope: checked::scope("scope", &wire.scope)?,
            own: checked::epoch("own_epoch", wire.own_epoch)?,
            highest: checked::epoch("highest_epoch", wire.highest_epoch)?,
            store: checked::store_name("store", &wire.store)?,
            observed: wire.observed,
            count: wire.count,
            first_unix_ms: wire.first_unix_ms,
            last_unix_ms: wire.last_unix_ms,
            writer: wire.writer.map(|of| holder("writer", of)).transpose()?,
            successor: wire.successor.map(|of| holder("successor", of)).transpose()?,
            reporter: reporter.map(|name| checked::worker_id("reporter", &name)).transpose()?,
            late_ms: wire.late_ms,
            means: checked::text(&wire.means),
        })
    }
}

impl TryFrom<v1::refused_writes::Holder> for Holder {
    type Error = InvalidField;

    fn try_from(wire: v1::refused_writes::Holder) -> Result<Holder, InvalidField> {
        Ok(Holder {
            worker: checked::worker_id("worker", &wire.worker)?,
            session: checked::session("session", wire.session)?,
            epoch: checked::epoch("epoch", wire.epoch)?,
            granted_unix_ms: wire.granted_unix_ms,
            lives: wire.lives,
        })
    }
}

impl TryFrom<v1::Reassert> for Reassert {
    type Error = InvalidField;

    fn try_from(wire: v1::Reassert) -> Result<Reassert, InvalidField> {
        let waiting = wire.waiting.into_iter().enumerate();
        let one = |(place, of): (usize, v1::reassert::Waiting)| {
            WaitingPartition::try_from(of).map_err(|e| e.at("waiting", place))
        };
        Ok(Reassert {
            order: LogIndex::new(wire.order),
            unix_ms: wire.unix_ms,
            keyspace: checked::keyspace_name("keyspace", &wire.keyspace)?,
            partition: wire.partition.map(PartitionId::new),
            directive: wire.directive.map(Directive::from),
            partitions: wire.partitions,
            done: wire.done,
            ownerless: wire.ownerless,
            waiting: waiting.map(one).collect::<Result<_, _>>()?,
            waiting_total: wire.waiting_total,
            workers: wire.workers.into_iter().map(|of| (checked::text(&of.worker), of.partitions)).collect(),
        })
    }
}

impl TryFrom<v1::reassert::Waiting> for WaitingPartition {
    type Error = InvalidField;

    fn try_from(wire: v1::reassert::Waiting) -> Result<WaitingPartition, InvalidField> {
        use v1::reassert::Step;
        Ok(WaitingPartition {
            partition: PartitionId::new(wire.partition),
            epoch: checked::epoch_or_none("epoch", wire.epoch)?,
            step: match wire.step() {
                Step::Held => ReassertStep::Held,
                Step::Ending => ReassertStep::Ending,
                Step::Raising => ReassertStep::Raising,
                Step::Frozen => ReassertStep::Frozen,
                Step::Unspecified => ReassertStep::Other,
            },
            worker: checked::text(&wire.worker),
            frozen: checked::text(&wire.frozen),
        })
    }
}
