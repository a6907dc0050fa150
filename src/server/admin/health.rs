//! What a person on call wants to know, in one answer of bounded size.

use super::{cluster, workers};
use crate::context::Context;
use crate::fences;
use crate::formation::Formation;
use ringfence_api::Failure;
use ringfence_api::convert::Partition;
use ringfence_api::v1::{self, health_response::OwnerlessReason};
use ringfence_core::ids::{KeyspaceId, PartitionId, PartitionKey};
use ringfence_core::lead::{Brake, Ownerless};
use ringfence_core::state::{Keyspace, Phase, State, Takeover};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many partitions, or workers, are named one by one.
const NAMED: usize = 100;

/// The state of everything, from the leader.
pub(super) async fn health(
    formation: &Formation,
    context: &Context,
    leaderless: Duration,
) -> Result<v1::HealthResponse, Failure> {
    let (term, _) = context.confirm().await?;
    let mut health = v1::HealthResponse {
        cluster: Some(cluster::status(formation, Some(context), leaderless)),
        sick: context.raft.status().borrow().sick.clone().unwrap_or_default(),
        ..v1::HealthResponse::default()
    };
    let ids: Vec<KeyspaceId> = {
        let now = context.clock.now();
        let local = &mut *context.replica.lock();
        let state = &local.state;
        fences::add_to_health(&mut health, state, context.clock.unix_ms());
        health.workers = count(state.sessions().count());
        health.keyspaces = count(state.keyspaces().count());
        let suspected = state.sessions().filter(|session| session.suspicion().is_some());
        health.suspected = suspected.take(NAMED).map(|session| workers::shown(state, session)).collect();
        if let Some(leadership) = local.leadership.as_ref().filter(|led| led.term() == term) {
            if let Some(Brake { lost, of, window }) = leadership.placing.brake(now, state) {
                health.brake = format!(
                    "{lost} of {of} sessions ran out within {}ms: repairs run at the budget of moves until that has passed; \
                     look at the network before the workers, and when they are gone for good: ringfence rebalance \
                     release-brake",
                    window.as_millis()
                );
            }
            let errors = leadership.placing.errors();
            health.planning_errors =
                errors.map(|(id, error)| format!("{}: {error}", name(state, id))).take(NAMED).collect();
        }
        state.keyspaces().map(Keyspace::id).collect()
    };
    // One keyspace at a time, so that what is applied does not wait for millions of partitions to be counted.
    let mut reasons: BTreeMap<Ownerless, u64> = BTreeMap::new();
    for id in ids {
        if health.misplaced.len() < NAMED {
            let (now, local) = (context.clock.now(), context.replica.lock());
            let leadership = local.leadership.as_ref().filter(|led| led.term() == term);
            let misplaced = leadership.and_then(|led| led.misplaced(now, &local.state, id));
            health.misplaced.extend(misplaced.map(|(partitions, why)| {
                let partitions = if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") };
                format!(
                    "{partitions} of keyspace {} cannot leave workers whose labels do not fit it, for nobody else takes \
                     partitions: {why}",
                    name(&local.state, id)
                )
            }));
        }
        let now = context.clock.now();
        let local = context.replica.lock();
        let ownerless = health.ownerless_total;
        add_keyspace(&mut health, &local.state, id);
        let leadership = local.leadership.as_ref().filter(|led| led.term() == term);
        if let Some(led) = leadership.filter(|_| health.ownerless_total > ownerless) {
            for (why, partitions) in led.ownerless(now, &local.state, id) {
                *reasons.entry(why).or_default() += partitions;
            }
        }
    }
    health.ownerless_reasons = told(reasons);
    Ok(health)
}

/// The reasons, those of which there are the most first.
fn told(reasons: BTreeMap<Ownerless, u64>) -> Vec<OwnerlessReason> {
    let mut reasons: Vec<(Ownerless, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(why, partitions)| (Reverse(*partitions), *why));
    let told = |(why, partitions): (Ownerless, u64)| OwnerlessReason {
        reason: why.code().to_owned(),
        partitions,
        means: why.to_string(),
    };
    reasons.into_iter().map(told).collect()
}

fn add_keyspace(health: &mut v1::HealthResponse, state: &State, id: KeyspaceId) {
    let Some(keyspace) = state.keyspace(id) else { return };
    if keyspace.policy().takeover() == Takeover::Fence {
        health.fence_takeover.push(keyspace.name().to_string());
    }
    health.partitions += count(keyspace.partitions().len());
    for (number, partition) in (0u32..).zip(keyspace.partitions()) {
        let shown = || {
            let key = PartitionKey { keyspace: id, partition: PartitionId::new(number) };
            Partition::read(state, key).map(v1::Partition::from)
        };
        let name = |named: &mut Vec<v1::Partition>, total: &mut u64| {
            *total += 1;
            if named.len() < NAMED {
                named.extend(shown());
            }
        };
        health.owned += u64::from(partition.owner().is_some());
        health.ready += u64::from(partition.ready());
        match partition.phase() {
            Phase::Vacant | Phase::Cooling(_) => name(&mut health.ownerless, &mut health.ownerless_total),
            Phase::Draining(_) => name(&mut health.moving, &mut health.moving_total),
            Phase::Owned { .. } => {}
        }
        if partition.setback().is_some() {
            name(&mut health.failing, &mut health.failing_total);
        }
    }
}

fn name(state: &State, id: KeyspaceId) -> String {
    state.keyspace(id).map_or_else(|| id.to_string(), |keyspace| keyspace.name().to_string())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
