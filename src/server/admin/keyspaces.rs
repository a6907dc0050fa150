//! Keyspaces: create, update, delete, list.

use super::request::{Answer, run};
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::placement::directive::{directed, said};
use crate::raft::Timings;
use crate::refusal;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, Keyspace, RequestId, checked, partition_count};
use ringfence_api::v1;
use ringfence_core::ids::KeyspaceName;
use ringfence_core::state::{
    self, BalanceBy, Command, Outcome, Policy, PolicyChange, State, Subject, Takeover,
};
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
    let name = checked::keyspace_name("name", &request.name)?;
    let partitions = partition_count("partitions", request.partitions)?;
    let policy = Policy::default().with(&change(request.policy)?).map_err(Failure::invalid)?;
    shortest.check(&policy)?;
    let asked = Keyspace { name: name.clone(), partitions, split_from: None, policy: policy.clone() };
    if request.dry_run {
        context.confirm().await?;
        let state = &context.replica.lock().state;
        state.check_create(&asked.name, partitions).map_err(|why| refusal::failure(&why, state))?;
        return Ok((&asked).into());
    }
    let id = RequestId::try_from(request.request)?;
    let given = said(&context.replica.lock().state, request.directive);
    let create = Command::CreateKeyspace { keyspace: name, partitions, policy };
    let what = format!("create keyspace {} with {} partitions", asked.name, partitions.get());
    // It has no number yet by which it could be what the directive is about.
    let commands = directed(Subject::Cluster, given.as_ref(), &what, create);
    let answer = run(context, id, |_| Ok(commands.clone())).await?;
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
) -> Result<v1::UpdateKeyspaceResponse, Failure> {
    let name = checked::keyspace_name("name", &request.name)?;
    let change = change(request.policy)?;
    if request.dry_run {
        context.confirm().await?;
        let state = &context.replica.lock().state;
        let (keyspace, then) = updated(state, shortest, &name, &change)?;
        let unchanged = *keyspace.policy() == then;
        let keyspace = v1::Keyspace { policy: Some((&then).into()), ..keyspace.into() };
        return Ok(v1::UpdateKeyspaceResponse { keyspace: Some(keyspace), unchanged });
    }
    let id = RequestId::try_from(request.request)?;
    let given = said(&context.replica.lock().state, request.directive);
    let what = format!("update keyspace {name}: {}", in_words(&change));
    let answer = run(context, id, |local| {
        let keyspace = updated(&local.state, shortest, &name, &change)?.0.id();
        let update = Command::UpdateKeyspace { keyspace, change: change.clone() };
        Ok(directed(Subject::Keyspace(keyspace), given.as_ref(), &what, update))
    })
    .await?;
    if matches!(answer, Answer::Now { .. }) && answer.changed() {
        tracing::info!(keyspace = %name, "changed a keyspace's policy");
    }
    let local = context.replica.lock();
    let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?;
    Ok(v1::UpdateKeyspaceResponse { keyspace: Some(keyspace.into()), unchanged: !answer.changed() })
}

/// The keyspace, and the policy that it would have.
fn updated<'a>(
    state: &'a State,
    shortest: ShortestTtl,
    name: &KeyspaceName,
    change: &PolicyChange,
) -> Result<(&'a state::Keyspace, Policy), Failure> {
    let keyspace = state.keyspace_named(name).ok_or_else(|| no_such_keyspace(name))?;
    let then = keyspace.policy().with(change).map_err(Failure::invalid)?;
    shortest.check(&then)?;
    Ok((keyspace, then))
}

/// Deletes a keyspace. Its highest epoch stays behind as a floor.
pub(super) async fn delete(context: &Context, request: v1::DeleteKeyspaceRequest) -> Result<(), Failure> {
    let id = RequestId::try_from(request.request)?;
    let name = checked::keyspace_name("name", &request.name)?;
    let given = said(&context.replica.lock().state, request.directive);
    let what = format!("delete keyspace {name}");
    let answer = run(context, id, |local| {
        let keyspace = local.state.keyspace_named(&name).ok_or_else(|| no_such_keyspace(&name))?.id();
        let delete = Command::DeleteKeyspace { keyspace };
        Ok(directed(Subject::Keyspace(keyspace), given.as_ref(), &what, delete))
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

/// What is changed, in words.
fn in_words(change: &PolicyChange) -> String {
    let PolicyChange {
        ttl,
        takeover,
        drain_deadline,
        lock_delay,
        max_moves_in_flight,
        balance,
        moves_per_minute,
        rejoin_hold,
        spread_zones,
        constraints,
        balance_by,
    } = change;
    let ms = |name: &str, time: &Option<Duration>| time.map(|time| format!("{name} {}ms", time.as_millis()));
    let switch =
        |name: &str, on: &Option<bool>| on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
    let number = |name: &str, number: &Option<u32>| number.map(|number| format!("{name} {number}"));
    let takeover = takeover.map(|takeover| match takeover {
        Takeover::Lease => "takeover by lease".to_owned(),
        Takeover::Fence => "takeover by fence".to_owned(),
    });
    let balance_by = balance_by.map(|by| match by {
        BalanceBy::Count => "balance by count".to_owned(),
        BalanceBy::Load => "balance by load".to_owned(),
    });
    let labels = constraints.as_ref().map(|labels| {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        if labels.is_empty() { "no labels".to_owned() } else { format!("labels {}", labels.join(" ")) }
    });
    let parts = [
        ms("ttl", ttl),
        takeover,
        ms("drain deadline", drain_deadline),
        ms("lock delay", lock_delay),
        number("max moves in flight", max_moves_in_flight),
        switch("balance", balance),
        number("moves per minute", moves_per_minute),
        ms("rejoin hold", rejoin_hold),
        switch("spread zones", spread_zones),
        labels,
        balance_by,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}
