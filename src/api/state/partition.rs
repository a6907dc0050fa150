//! Keyspaces and their partitions in a snapshot.

use super::directive;
use super::fields::{directive_from_wire, directive_to_wire, reason_from_wire, reason_to_wire};
use super::format::split_epoch;
use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked, partition_count};
use crate::v1;
use crate::v1::state_partition::{self as wire, Phase as Wire};
use ringfence_core::ids::{Epoch, EpochFloor, KeyspaceId, LogIndex, MoveId, PartitionId, SessionId};
use ringfence_core::state::{
    Born, Cooling, CoolingWhy, Drain, KeyspaceParts, PartitionParts, Phase, Policy, Setback, Tenure,
};
use std::time::Duration;

pub(super) fn keyspace_to_wire(keyspace: &KeyspaceParts, workers: &mut Places) -> v1::StateKeyspace {
    let midway = keyspace.base.get() as usize != keyspace.partitions.len();
    v1::StateKeyspace {
        keyspace: keyspace.id.get(),
        name: keyspace.name.to_string(),
        policy: Some((&keyspace.policy).into()),
        epoch_floor: keyspace.floor.get(),
        split_from: if midway { keyspace.base.get() } else { 0 },
        split_by_index: directive_to_wire(keyspace.split),
        settings: directive::partitions_to_wire(&keyspace.settings, workers),
        frozen_by_index: directive_to_wire(keyspace.frozen),
        partitions: keyspace.partitions.iter().map(|partition| to_wire(partition, workers)).collect(),
        raised: keyspace.raised.iter().map(raised_to_wire).collect(),
    }
}

pub(super) fn keyspace_from_wire(
    wire: v1::StateKeyspace,
    workers: &Names,
) -> Result<KeyspaceParts, InvalidField> {
    let policy = wire.policy.ok_or_else(|| InvalidField::missing("policy"))?;
    // More partitions than a number can say are no keyspace's; the state refuses them.
    let partitions = u32::try_from(wire.partitions.len()).unwrap_or(u32::MAX);
    let base = if wire.split_from == 0 { partitions } else { wire.split_from };
    let base = partition_count("partitions", base)?;
    let partitions = wire.partitions.into_iter().enumerate();
    Ok(KeyspaceParts {
        id: KeyspaceId::new(wire.keyspace),
        name: checked::keyspace_name("name", &wire.name)?,
        policy: Policy::try_from(policy).map_err(|e| e.within("policy"))?,
        floor: checked::floor("epoch_floor", wire.epoch_floor)?,
        settings: directive::partitions_from_wire(&wire.settings, workers)?,
        frozen: directive_from_wire(wire.frozen_by_index),
        base,
        split: directive_from_wire(wire.split_by_index),
        raised: wire.raised.iter().map(raised_from_wire).collect::<Result<_, _>>()?,
        partitions: partitions
            .map(|(place, partition)| from_wire(partition, workers).map_err(|e| e.at("partitions", place)))
            .collect::<Result<_, _>>()?,
    })
}

fn raised_to_wire((partition, floor): &(PartitionId, EpochFloor)) -> v1::StateRaised {
    v1::StateRaised { partition: partition.get(), floor: floor.get() }
}

fn raised_from_wire(wire: &v1::StateRaised) -> Result<(PartitionId, EpochFloor), InvalidField> {
    Ok((PartitionId::new(wire.partition), checked::floor("raised.floor", wire.floor)?))
}

/// The epoch is that of the last grant, and is written only when there is none or it is another.
fn to_wire(partition: &PartitionParts, workers: &mut Places) -> v1::StatePartition {
    v1::StatePartition {
        inherited_epoch: if partition.history.is_empty() { partition.epoch.get() } else { 0 },
        history: partition.history.iter().map(|tenure| tenure_to_wire(tenure, workers)).collect(),
        phase: Some(phase_to_wire(&partition.phase, workers)),
        setback: partition.setback.as_ref().map(|setback| v1::StateSetback {
            count: setback.count,
            worker: workers.of(&setback.worker),
            error: setback.error.clone(),
        }),
        split_epoch: split_epoch(partition).map_or(0, Epoch::get),
        born: partition.born.map(|born| wire::Born {
            parent: born.parent.get(),
            epoch: born.epoch.get(),
            by_index: directive_to_wire(born.by),
        }),
    }
}

fn from_wire(wire: v1::StatePartition, workers: &Names) -> Result<PartitionParts, InvalidField> {
    let history = wire.history.iter().enumerate();
    let history: Vec<Tenure> = history
        .map(|(place, tenure)| tenure_from_wire(tenure, workers).map_err(|e| e.at("history", place)))
        .collect::<Result<_, _>>()?;
    let setback = wire.setback.map(|setback| {
        let worker = workers.at("setback.worker", setback.worker)?;
        Ok(Setback { count: setback.count, worker, error: setback.error })
    });
    Ok(PartitionParts {
        epoch: match history.last() {
            Some(tenure) => {
                let split = checked::epoch_or_none("split_epoch", wire.split_epoch)?;
                EpochFloor::of(split.unwrap_or(tenure.epoch))
            }
            None => checked::floor("inherited_epoch", wire.inherited_epoch)?,
        },
        phase: phase_from_wire(wire.phase.ok_or_else(|| InvalidField::missing("phase"))?, workers)?,
        history,
        setback: setback.transpose()?,
        born: wire.born.map(born_from_wire).transpose()?,
    })
}

fn born_from_wire(wire: wire::Born) -> Result<Born, InvalidField> {
    let epoch = checked::epoch("born.epoch", wire.epoch)?;
    Ok(Born { parent: PartitionId::new(wire.parent), epoch, by: directive_from_wire(wire.by_index) })
}

fn phase_to_wire(phase: &Phase, workers: &mut Places) -> Wire {
    match phase {
        Phase::Vacant => Wire::Vacant(wire::Vacant {}),
        Phase::Cooling(cooling) => Wire::Cooling(wire::Cooling {
            lease_of_session: cooling.lease_of.map_or(0, |(session, _)| session.get()),
            lease_ttl_ms: cooling.lease_of.map_or(0, |(_, ttl)| checked::millis(ttl)),
            then_ms: checked::millis(cooling.then),
            why: cooling_to_wire(cooling.why).into(),
        }),
        Phase::Owned { session, ready } => Wire::Owned(wire::Owned { session: session.get(), ready: *ready }),
        Phase::Draining(drain) => Wire::Draining(wire::Draining {
            session: drain.session.get(),
            r#move: drain.move_id.get(),
            to_worker: workers.of(&drain.to),
            deadline_ms: checked::millis(drain.deadline),
            why: reason_to_wire(drain.why),
            revoke_seen: drain.revoke_seen,
            directive_index: directive_to_wire(drain.directive),
        }),
    }
}

fn phase_from_wire(wire: Wire, workers: &Names) -> Result<Phase, InvalidField> {
    Ok(match wire {
        Wire::Vacant(_) => Phase::Vacant,
        Wire::Cooling(cooling) => {
            let ttl = Duration::from_millis(cooling.lease_ttl_ms);
            Phase::Cooling(Cooling {
                lease_of: SessionId::new(cooling.lease_of_session).map(|session| (session, ttl)),
                then: Duration::from_millis(cooling.then_ms),
                why: cooling_from_wire("cooling.why", cooling.why)?,
            })
        }
        Wire::Owned(owned) => {
            Phase::Owned { session: checked::session("owned.session", owned.session)?, ready: owned.ready }
        }
        Wire::Draining(drain) => Phase::Draining(Box::new(Drain {
            session: checked::session("draining.session", drain.session)?,
            move_id: MoveId::new(drain.r#move),
            to: workers.at("draining.to_worker", drain.to_worker)?,
            deadline: Duration::from_millis(drain.deadline_ms),
            why: reason_from_wire(drain.why).map_err(|e| e.within("draining"))?,
            revoke_seen: drain.revoke_seen,
            directive: directive_from_wire(drain.directive_index),
        })),
    })
}

fn cooling_to_wire(why: CoolingWhy) -> v1::CoolingReason {
    match why {
        CoolingWhy::Lease => v1::CoolingReason::Lease,
        CoolingWhy::LockDelay => v1::CoolingReason::LockDelay,
        CoolingWhy::Backoff => v1::CoolingReason::Backoff,
        CoolingWhy::Hold => v1::CoolingReason::Hold,
    }
}

fn cooling_from_wire(field: &str, number: i32) -> Result<CoolingWhy, InvalidField> {
    match v1::CoolingReason::try_from(number) {
        Ok(v1::CoolingReason::Lease) => Ok(CoolingWhy::Lease),
        Ok(v1::CoolingReason::LockDelay) => Ok(CoolingWhy::LockDelay),
        Ok(v1::CoolingReason::Backoff) => Ok(CoolingWhy::Backoff),
        Ok(v1::CoolingReason::Hold) => Ok(CoolingWhy::Hold),
        Ok(v1::CoolingReason::Unspecified) | Err(_) => Err(checked::unknown_value(field, number)),
    }
}

fn tenure_to_wire(tenure: &Tenure, workers: &mut Places) -> v1::StateTenure {
    v1::StateTenure {
        epoch: Epoch::get(tenure.epoch),
        session: tenure.session.get(),
        worker: workers.of(&tenure.worker),
        granted_index: tenure.at.get(),
        granted_unix_ms: tenure.unix_ms,
        why: reason_to_wire(tenure.why),
        directive_index: directive_to_wire(tenure.directive),
    }
}

fn tenure_from_wire(wire: &v1::StateTenure, workers: &Names) -> Result<Tenure, InvalidField> {
    Ok(Tenure {
        epoch: checked::epoch("epoch", wire.epoch)?,
        session: checked::session("session", wire.session)?,
        worker: workers.at("worker", wire.worker)?,
        at: LogIndex::new(wire.granted_index),
        unix_ms: wire.granted_unix_ms,
        why: reason_from_wire(wire.why)?,
        directive: directive_from_wire(wire.directive_index),
    })
}
