//! What a person on call wants to know.

use super::cluster::ClusterStatus;
use super::fences::RefusedWrites;
use super::worker::Worker;
use ringfence_api::convert::{InvalidField, Partition, checked};
use ringfence_api::v1;
use ringfence_core::ids::KeyspaceName;

/// The state of the whole cluster on one screen, from the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The nodes.
    pub cluster: ClusterStatus,
    /// How many keyspaces there are.
    pub keyspaces: u64,
    /// How many workers have a session.
    pub workers: u64,
    /// How many partitions there are.
    pub partitions: u64,
    /// How many of them have an owner.
    pub owned: u64,
    /// How many of them have an owner that is ready.
    pub ready: u64,
    /// Partitions without an owner.
    pub ownerless: Sample,
    /// Why they have none, each reason once, those of which there are the most first. Empty from a coordinator of an older
    /// version.
    pub ownerless_reasons: Vec<OwnerlessReason>,
    /// Partitions on the move.
    pub moving: Sample,
    /// Partitions whose owner tasks fail.
    pub failing: Sample,
    /// Workers that are silent.
    pub suspected: Vec<Worker>,
    /// Why repairs are slowed down; empty when they are not.
    pub brake: String,
    /// Keyspaces that gave up exclusive leases for speed (`takeover = fence`).
    pub fence_takeover: Vec<KeyspaceName>,
    /// Keyspaces that cannot be planned, each with the reason, at most 100. Their assignments stay as they are.
    pub planning_errors: Vec<String>,
    /// Keyspaces whose partitions are with workers that may not have them, while no other may: a sentence each, at most 100.
    pub misplaced: Vec<String>,
    /// Why the leader works badly, such as a disk that takes seconds to flush; empty when it is well.
    pub sick: String,
    /// How many writes of replaced owners storage refused in the last day, as far as it was told.
    pub refusals: u64,
    /// How many it only observed, and took.
    pub refusals_observed: u64,
    /// The last of all these.
    pub last_refusal: Option<RefusedWrites>,
}

/// Why partitions have no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerlessReason {
    /// One word for programs, such as `lease`, `brake` or `all_drained`. More may come.
    pub reason: String,
    /// Of how many partitions.
    pub partitions: u64,
    /// The same for people, and what to do.
    pub means: String,
}

impl From<v1::health_response::OwnerlessReason> for OwnerlessReason {
    fn from(wire: v1::health_response::OwnerlessReason) -> OwnerlessReason {
        OwnerlessReason {
            reason: checked::text(&wire.reason),
            partitions: wire.partitions,
            means: checked::text(&wire.means),
        }
    }
}

/// At most 100 partitions of a kind, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// At most 100 of them.
    pub first: Vec<Partition>,
    /// How many there are.
    pub total: u64,
}

impl Sample {
    fn read(field: &str, wire: Vec<v1::Partition>, total: u64) -> Result<Sample, InvalidField> {
        let one = |(place, partition): (usize, v1::Partition)| {
            Partition::try_from(partition).map_err(|e| e.at(field, place))
        };
        let first = wire.into_iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(Sample { first, total })
    }
}

impl TryFrom<v1::HealthResponse> for Health {
    type Error = InvalidField;

    fn try_from(wire: v1::HealthResponse) -> Result<Health, InvalidField> {
        let cluster = wire.cluster.ok_or_else(|| InvalidField::missing("cluster"))?;
        let worker = |(place, worker): (usize, v1::Worker)| {
            Worker::try_from(worker).map_err(|e| e.at("suspected", place))
        };
        let name = |name: &String| checked::keyspace_name("fence_takeover", name);
        Ok(Health {
            cluster: ClusterStatus::try_from(cluster).map_err(|e| e.within("cluster"))?,
            keyspaces: wire.keyspaces,
            workers: wire.workers,
            partitions: wire.partitions,
            owned: wire.owned,
            ready: wire.ready,
            ownerless: Sample::read("ownerless", wire.ownerless, wire.ownerless_total)?,
            ownerless_reasons: wire.ownerless_reasons.into_iter().map(Into::into).collect(),
            moving: Sample::read("moving", wire.moving, wire.moving_total)?,
            failing: Sample::read("failing", wire.failing, wire.failing_total)?,
            suspected: wire.suspected.into_iter().enumerate().map(worker).collect::<Result<_, _>>()?,
            brake: wire.brake,
            fence_takeover: wire.fence_takeover.iter().map(name).collect::<Result<_, _>>()?,
            planning_errors: wire.planning_errors,
            misplaced: wire.misplaced,
            sick: wire.sick,
            refusals: wire.refusals,
            refusals_observed: wire.refusals_observed,
            last_refusal: wire
                .last_refusal
                .map(|of| RefusedWrites::try_from(of).map_err(|e| e.within("last_refusal")))
                .transpose()?,
        })
    }
}
