//! What operators decided and set, to the wire and back.

use super::fields::{directive_from_wire, directive_to_wire, key_from_wire, key_to_wire, weight_from_wire};
use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked};
use crate::v1;
use crate::v1::directive_subject::{Cluster, Subject as Wire};
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId, WorkerId};
use ringfence_core::placement::Weight;
use ringfence_core::state::{Directive, PartitionSettings, Subject, WorkerSettings};

pub(super) fn subject_to_wire(subject: &Subject) -> v1::DirectiveSubject {
    let subject = match subject {
        Subject::Cluster => Wire::Cluster(Cluster {}),
        Subject::Keyspace(id) => Wire::Keyspace(id.get()),
        Subject::Partition(key) => Wire::Partition(key_to_wire(*key)),
        Subject::Worker(worker) => Wire::Worker(worker.to_string()),
        Subject::Lock(name) => Wire::Lock(name.to_string()),
    };
    v1::DirectiveSubject { subject: Some(subject) }
}

pub(super) fn subject_from_wire(wire: Option<v1::DirectiveSubject>) -> Result<Subject, InvalidField> {
    let subject = wire.and_then(|wire| wire.subject).ok_or_else(|| InvalidField::missing("subject"))?;
    Ok(match subject {
        Wire::Cluster(_) => Subject::Cluster,
        Wire::Keyspace(number) => Subject::Keyspace(KeyspaceId::new(number)),
        Wire::Partition(key) => Subject::Partition(key_from_wire(Some(key))?),
        Wire::Worker(name) => Subject::Worker(checked::worker_id("subject.worker", &name)?),
        Wire::Lock(name) => Subject::Lock(checked::lock_name("subject.lock", &name)?),
    })
}

pub(super) fn to_wire(directive: &Directive) -> v1::StateDirective {
    v1::StateDirective {
        index: directive.at.get(),
        unix_ms: directive.unix_ms,
        subject: Some(subject_to_wire(&directive.subject)),
        by: directive.by.clone(),
        what: directive.what.clone(),
        reason: directive.reason.clone(),
    }
}

pub(super) fn from_wire(wire: v1::StateDirective) -> Result<Directive, InvalidField> {
    Ok(Directive {
        at: LogIndex::new(wire.index),
        unix_ms: wire.unix_ms,
        subject: subject_from_wire(wire.subject)?,
        by: wire.by,
        what: wire.what,
        reason: wire.reason,
    })
}

pub(super) fn worker_to_wire(
    worker: &WorkerId,
    settings: &WorkerSettings,
    workers: &mut Places,
) -> v1::StateWorkerSettings {
    v1::StateWorkerSettings {
        worker: workers.of(worker),
        drained_by_index: directive_to_wire(settings.drained),
        cordoned_by_index: directive_to_wire(settings.cordoned),
        frozen_by_index: directive_to_wire(settings.frozen),
        weight: settings.weight().map_or(0, Weight::get),
        weight_by_index: directive_to_wire(settings.weight.map(|(_, by)| by)),
        drained_until_join_by_index: directive_to_wire(settings.drained_until_join),
    }
}

pub(super) fn worker_from_wire(
    wire: &v1::StateWorkerSettings,
    workers: &Names,
) -> Result<(WorkerId, WorkerSettings), InvalidField> {
    let settings = WorkerSettings {
        drained: directive_from_wire(wire.drained_by_index),
        drained_until_join: directive_from_wire(wire.drained_until_join_by_index),
        cordoned: directive_from_wire(wire.cordoned_by_index),
        frozen: directive_from_wire(wire.frozen_by_index),
        weight: match wire.weight {
            0 => None,
            number => Some((weight_from_wire(number)?, LogIndex::new(wire.weight_by_index))),
        },
    };
    Ok((workers.at("worker", wire.worker)?, settings))
}

pub(super) fn partitions_to_wire(
    settings: &[(PartitionId, PartitionSettings)],
    workers: &mut Places,
) -> Vec<v1::StatePartitionSettings> {
    let one = |(partition, settings): &(PartitionId, PartitionSettings)| v1::StatePartitionSettings {
        partition: partition.get(),
        pin_worker: settings.pin.as_ref().map(|(worker, _)| workers.of(worker)),
        pinned_by_index: directive_to_wire(settings.pin.as_ref().map(|(_, by)| *by)),
        frozen_by_index: directive_to_wire(settings.frozen),
        weight: settings.weight().unwrap_or(0),
        weight_by_index: directive_to_wire(settings.weight.map(|(_, by)| by)),
    };
    settings.iter().map(one).collect()
}

pub(super) fn partitions_from_wire(
    wire: &[v1::StatePartitionSettings],
    workers: &Names,
) -> Result<Vec<(PartitionId, PartitionSettings)>, InvalidField> {
    let one = |wire: &v1::StatePartitionSettings| {
        let pin = match (wire.pin_worker, directive_from_wire(wire.pinned_by_index)) {
            (None, None) => None,
            (Some(place), Some(by)) => Some((workers.at("pin_worker", place)?, by)),
            _ => return Err(InvalidField::new("pin_worker", "a pin has a worker and a directive")),
        };
        let frozen = directive_from_wire(wire.frozen_by_index);
        let weight = (wire.weight > 0).then_some((wire.weight, LogIndex::new(wire.weight_by_index)));
        Ok((PartitionId::new(wire.partition), PartitionSettings { pin, frozen, weight }))
    };
    wire.iter().enumerate().map(|(place, s)| one(s).map_err(|e| e.at("settings", place))).collect()
}
