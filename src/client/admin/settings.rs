//! What operators set about workers, partitions, keyspaces and the cluster, and who set it.

use super::directives::Directive;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{KeyspaceName, PartitionId, WorkerId};

/// What is set about a worker. It belongs to the name, and outlives the worker's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// Its name.
    pub worker: WorkerId,
    /// By whom it is drained: it gives up all it has and gets nothing. `None`: it is not.
    pub drained: Option<Directive>,
    /// By whom it is drained until it joins again.
    pub drained_until_join: Option<Directive>,
    /// By whom it is cordoned: it keeps what it has and gets nothing.
    pub cordoned: Option<Directive>,
    /// By whom it is frozen: nothing is moved to it or away from it.
    pub frozen: Option<Directive>,
    /// Its weight, 1 to 10 000; `None`: what the worker says itself.
    pub weight: Option<u32>,
    /// Who set the weight; `None` when none is set.
    pub weighed: Option<Directive>,
}

/// What is set about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionSettings {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The partition in it.
    pub partition: PartitionId,
    /// The worker that it belongs to while that one has a session, and who said so.
    pub pin: Option<(WorkerId, Directive)>,
    /// By whom it is frozen: no planned move takes it from its owner.
    pub frozen: Option<Directive>,
    /// How much it counts compared with the others; `None`: 1.
    pub weight: Option<u32>,
    /// Who set the weight; `None` when none is set.
    pub weighed: Option<Directive>,
}

/// All that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// By whom planned moves are stopped everywhere.
    pub cluster_frozen: Option<Directive>,
    /// In which keyspaces they are stopped, and by whom.
    pub keyspaces_frozen: Vec<(KeyspaceName, Directive)>,
    /// At most 1000 workers about which something is set, by name; they need not have a session.
    pub workers: Vec<WorkerSettings>,
    /// How many more there are.
    pub more_workers: u32,
    /// At most 1000 partitions about which something is set.
    pub partitions: Vec<PartitionSettings>,
    /// How many more there are.
    pub more_partitions: u32,
}

impl WorkerSettings {
    /// By whom it is drained, for good or until it joins again. `None`: it is not.
    pub fn drain(&self) -> Option<&Directive> {
        self.drained.as_ref().or(self.drained_until_join.as_ref())
    }
}

impl TryFrom<v1::WorkerSettings> for WorkerSettings {
    type Error = InvalidField;

    fn try_from(wire: v1::WorkerSettings) -> Result<WorkerSettings, InvalidField> {
        Ok(WorkerSettings {
            worker: checked::worker_id("worker", &wire.worker)?,
            drained: wire.drained.map(Into::into),
            drained_until_join: wire.drained_until_join.map(Into::into),
            cordoned: wire.cordoned.map(Into::into),
            frozen: wire.frozen.map(Into::into),
            weight: Some(wire.weight).filter(|weight| *weight > 0),
            weighed: wire.weighed.map(Into::into),
        })
    }
}

impl TryFrom<v1::PartitionSettings> for PartitionSettings {
    type Error = InvalidField;

    fn try_from(wire: v1::PartitionSettings) -> Result<PartitionSettings, InvalidField> {
        let pin = match (wire.pin.as_str(), wire.pinned) {
            ("", _) => None,
            (_, None) => return Err(InvalidField::missing("pinned")),
            (worker, Some(by)) => Some((checked::worker_id("pin", worker)?, by.into())),
        };
        Ok(PartitionSettings {
            keyspace: checked::keyspace_name("keyspace", &wire.keyspace)?,
            partition: PartitionId::new(wire.partition),
            pin,
            frozen: wire.frozen.map(Into::into),
            weight: Some(wire.weight).filter(|weight| *weight > 0),
            weighed: wire.weighed.map(Into::into),
        })
    }
}

impl TryFrom<v1::ListSettingsResponse> for Settings {
    type Error = InvalidField;

    fn try_from(wire: v1::ListSettingsResponse) -> Result<Settings, InvalidField> {
        let frozen = |(place, frozen): (usize, v1::list_settings_response::FrozenKeyspace)| {
            let name = checked::keyspace_name("keyspace", &frozen.keyspace);
            let by = frozen.directive.ok_or_else(|| InvalidField::missing("directive"));
            match (name, by) {
                (Ok(name), Ok(by)) => Ok((name, by.into())),
                (Err(wrong), _) | (_, Err(wrong)) => Err(wrong.at("keyspaces_frozen", place)),
            }
        };
        let worker = |(place, set)| {
            WorkerSettings::try_from(set).map_err(|wrong: InvalidField| wrong.at("workers", place))
        };
        let partition = |(place, set)| {
            PartitionSettings::try_from(set).map_err(|wrong: InvalidField| wrong.at("partitions", place))
        };
        Ok(Settings {
            cluster_frozen: wire.cluster_frozen.map(Into::into),
            keyspaces_frozen: wire
                .keyspaces_frozen
                .into_iter()
                .enumerate()
                .map(frozen)
                .collect::<Result<_, _>>()?,
            workers: wire.workers.into_iter().enumerate().map(worker).collect::<Result<_, _>>()?,
            more_workers: wire.more_workers,
            partitions: wire.partitions.into_iter().enumerate().map(partition).collect::<Result<_, _>>()?,
            more_partitions: wire.more_partitions,
        })
    }
}
