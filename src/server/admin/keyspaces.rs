//! Keyspaces: create, update, delete, list.

use super::request::{Answer, run_one};
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::raft::Timings;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, Keyspace, RequestId, checked, partition_count};
use ringfence_api::v1;
use ringfence_core::ids::KeyspaceName;
use ringfence_core::state::{Command, Outcome, Policy, PolicyChange};
use std::time::Duration;

/// The shortest lease that outlives an election: three times the leader's lease. A node stands for election after one
/// to two of those, and the third is for being elected and heard by the workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortestTtl {
    election_max: Duration,
}

impl ShortestTtl {
    pub(super) fn new(timings: &Timings) -> ShortestTtl {
        ShortestTtl { election_max: timings.election_max }
    }

    fn check(self, policy: &Policy) -> Result<(), Failure> {
        let (ttl, shortest) = (policy.ttl(), self.election_max * 3);
        if ttl >= shortest {
            return Ok(());
        }
        Err(Failure::invalid(format_args!(
            "ttl {}ms is less than three times the election-max-ms of this cluster, {}: an ordinary election would end \
             every lease; give a ttl of at least {}ms",
            ttl.as_millis(),
            self.election_max.as_millis(),
            shortest.as_millis()
        )))
    }
}

/// Creates a keyspace.
pub(super) async fn create(
    context: &Context,
    shortest: ShortestTtl,
    request: v1::CreateKeyspaceRequest,
) -> Result<v1::Keyspace, Failure> {
    let id = RequestId::try_from(request.request)?;
    let name = checked::keyspace_name("name", &request.name)?;
    let partitions = partition_count("partitions", request.partitions)?;
    let policy = Policy::default().with(&change(request.policy)?).map_err(Failure::invalid)?;
    shortest.check(&policy)?;
    let asked = Keyspace { name: name.clone(), partitions, split_from: None, policy: policy.clone() };
    let create = Command::CreateKeyspace { keyspace: name, partitions, policy };
    let answer = run_one(context, id, |_| Ok(Some(create.clone()))).await?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::info!(keyspace = %asked.name, partitions = partitions.get(), "created a keyspace");
    }
    let local = context.replica.lock();
    let now = match answer.outcome() {
        Some(Outcome::Created(id)) => local.state.keyspace(*id).map(v1::Keyspace::from),
        _ => None,
    };
    // It was deleted since: what was created is what was asked for.
    Ok(now.unwrap_or_else(|| (&asked).into()))
}

/// Changes how a keyspace is run.
pub(super) async fn update(
    context: &Context,
    shortest: ShortestTtl,
    request: v1::UpdateKeyspaceRequest,
) -> Result<v1::Keyspace, Failure> {
    let id = RequestId::try_from(request.request)?;
    let name = checked::keyspace_name("name", &request.name)?;
    let change = change(request.policy)?;
    let answer = run_one(context, id, |local| {
        let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?;
        shortest.check(&keyspace.policy().with(&change).map_err(Failure::invalid)?)?;
        Ok(Some(Command::UpdateKeyspace { keyspace: keyspace.id(), change: change.clone() }))
    })
    .await?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::info!(keyspace = %name, "changed a keyspace's policy");
    }
    let local = context.replica.lock();
    local.state.keyspace_named(&name).map(v1::Keyspace::from).ok_or_else(|| no_such_keyspace(&name))
}

/// Deletes a keyspace. Its highest epoch stays behind as a floor.
pub(super) async fn delete(context: &Context, request: v1::DeleteKeyspaceRequest) -> Result<(), Failure> {
    let id = RequestId::try_from(request.request)?;
    let name = checked::keyspace_name("name", &request.name)?;
    let answer = run_one(context, id, |local| {
        let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?;
        Ok(Some(Command::DeleteKeyspace { keyspace: keyspace.id() }))
    })
    .await?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::warn!(keyspace = %name, "deleted a keyspace");
    }
    Ok(())
}

/// All keyspaces, by name. There are at most a thousand, of some 150 bytes each.
pub(super) async fn list(context: &Context) -> Result<Vec<v1::Keyspace>, Failure> {
    context.confirm().await?;
    let local = context.replica.lock();
    let mut keyspaces: Vec<_> = local.state.keyspaces().collect();
    keyspaces.sort_by_key(|keyspace| KeyspaceName::as_str(keyspace.name()));
    Ok(keyspaces.into_iter().map(v1::Keyspace::from).collect())
}

fn change(wire: Option<v1::KeyspaceChange>) -> Result<PolicyChange, InvalidField> {
    wire.map_or(Ok(PolicyChange::default()), |wire| {
        PolicyChange::try_from(wire).map_err(|e| e.within("policy"))
    })
}
