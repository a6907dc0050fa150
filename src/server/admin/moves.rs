//! Planned moves that an operator asks for, and the end of a cooling.

use super::request::{Answer, run, run_one};
use crate::context::Context;
use crate::map::{no_such_keyspace, no_such_partition};
use crate::placement::directive::{Given, direct};
use crate::refusal;
use crate::replica::Local;
use ringfence_api::Failure;
use ringfence_api::convert::{RequestId, checked};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, MoveId, PartitionId, PartitionKey, SessionId, WorkerId};
use ringfence_core::lead::standing;
use ringfence_core::placement::WorkerStanding;
use ringfence_core::state::{Command, GrantReason, Outcome, Partition, Phase, Session, State, Subject};
use ringfence_core::time::Instant;
use std::collections::BTreeSet;

/// Begins a planned move; grants at once what nobody owns; does nothing when the worker owns it already.
pub(super) async fn begin(
    context: &Context,
    request: v1::MovePartitionRequest,
) -> Result<v1::MovePartitionResponse, Failure> {
    let id = RequestId::try_from(request.request)?;
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    let to = checked::worker_id("to", &request.to)?;

    let given = request.directive.map(|given| Given::from(Some(given)));
    let what = format!("move partition {keyspace}/{} to worker {to}", number.get());
    let answer = run(context, id, |local| {
        let Some(step) = step(local, context.clock.now(), &keyspace, number, &to)? else {
            return Ok(Vec::new());
        };
        let subject = Subject::Partition(find(&local.state, &keyspace, number)?);
        Ok(given.iter().map(|given| direct(subject.clone(), given, &what)).chain([step]).collect())
    });
    let answer = answer.await?;
    let local = &mut *context.replica.lock();
    let key = find(&local.state, &keyspace, number)?;
    if let Answer::Now { term, .. } = &answer {
        tracing::info!(partition = refusal::partition(key, &local.state), %to, "an operator moves a partition");
        // Balancing would carry it back at once.
        let now = context.clock.now();
        if let Some(leadership) = local.leading(*term) {
            leadership.placing.moved_by_operator(key, now);
        }
    }
    Ok(match answer.outcome() {
        Some(Outcome::Draining(move_id)) => v1::MovePartitionResponse {
            r#move: move_id.get(),
            from_epoch: drained(&local.state, key, *move_id).map_or(0, Epoch::get),
        },
        _ => v1::MovePartitionResponse::default(),
    })
}

/// What brings the partition to the worker, as things are.
fn step(
    local: &Local,
    now: Instant,
    keyspace: &KeyspaceName,
    number: PartitionId,
    to: &WorkerId,
) -> Result<Option<Command>, Failure> {
    let state = &local.state;
    let key = find(state, keyspace, number)?;
    let name = refusal::partition(key, state);
    let partition =
        state.partition(key).ok_or_else(|| Failure::not_found(format_args!("there is no {name}")))?;
    let absent = local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default();
    let target = target(state, &absent, key, to)?;
    let why = GrantReason::Operator;
    match (partition.phase(), partition.epoch()) {
        (Phase::Vacant, replaces) => {
            Ok(Some(Command::Grant { partition: key, replaces, to: target.id(), why }))
        }
        (Phase::Owned { session, .. }, _) if *session == target.id() => Ok(None),
        (Phase::Owned { .. }, Some(epoch)) => {
            let deadline = state.keyspace(key.keyspace).map(|k| k.policy().drain_deadline());
            let deadline = deadline.ok_or_else(|| no_such_keyspace(keyspace))?;
            Ok(Some(Command::Drain { partition: key, epoch, to: to.clone(), deadline, why }))
        }
        // Draining again answers with the move in progress, and changes nothing.
        (Phase::Draining(drain), Some(epoch)) if drain.to == *to => {
            let deadline = drain.deadline;
            Ok(Some(Command::Drain { partition: key, epoch, to: to.clone(), deadline, why: drain.why }))
        }
        (Phase::Draining(drain), _) => Err(Failure::refused(format_args!(
            "partition {name} is on its way to worker {} (move {}); wait for that move to end",
            drain.to, drain.move_id
        ))),
        (Phase::Cooling(_), _) => Err(Failure::refused(format_args!(
            "nobody owns partition {name} and it cools; wait, or end its cooling first"
        ))),
        // An owner without an epoch: a grant mints one, so there is none.
        (Phase::Owned { .. }, None) => Err(Failure::refused(format_args!("partition {name} has no epoch"))),
    }
}

/// The worker, if it may have the partition.
fn target<'a>(
    state: &'a State,
    absent: &BTreeSet<SessionId>,
    key: PartitionKey,
    to: &WorkerId,
) -> Result<&'a Session, Failure> {
    let unknown = || Failure::not_found(format_args!("there is no worker {to}; it has no session"));
    let session = state.session_of(to).ok_or_else(unknown)?;
    if !session.keyspaces().contains(&key.keyspace) {
        let keyspace = state.keyspace(key.keyspace).map(|k| k.name().to_string()).unwrap_or_default();
        return Err(Failure::refused(format_args!(
            "worker {to} does not serve keyspace {keyspace}; name it when the worker joins"
        )));
    }
    if session.withdrawn() {
        return Err(Failure::refused(format_args!(
            "worker {to} is about to leave and takes no more partitions"
        )));
    }
    if session.suspicion().is_some() {
        return Err(Failure::refused(format_args!(
            "worker {to} has not renewed its lease for a while and may be gone; look at it first"
        )));
    }
    if absent.contains(&session.id()) {
        return Err(Failure::refused(format_args!(
            "worker {to} has no connection to the coordinator now and would not learn of it; look at it first"
        )));
    }
    let keyspace = state.keyspace(key.keyspace);
    match keyspace.map(|keyspace| standing(state, keyspace, session, absent)) {
        None | Some(WorkerStanding::Takes | WorkerStanding::Away) => Ok(session),
        // It would be moved away again.
        Some(WorkerStanding::Drained) => Err(Failure::refused(format_args!(
            "worker {to} is drained and takes no partitions; undrain it first"
        ))),
        Some(WorkerStanding::Cordoned) => Err(Failure::refused(format_args!(
            "worker {to} is cordoned and takes no partitions; uncordon it first"
        ))),
        Some(WorkerStanding::Frozen) => Err(Failure::refused(format_args!(
            "worker {to} is frozen: nothing moves to it or from it; unfreeze it first"
        ))),
        Some(WorkerStanding::Ineligible(constraint)) => Err(Failure::refused(format_args!(
            "worker {to} may own nothing in this keyspace, whose constraint on labels is {constraint}"
        ))),
    }
}

pub(crate) fn find(
    state: &State,
    keyspace: &KeyspaceName,
    number: PartitionId,
) -> Result<PartitionKey, Failure> {
    let keyspace = state.keyspace_named(keyspace).ok_or_else(|| no_such_keyspace(keyspace))?;
    if number.get() >= keyspace.count().get() {
        return Err(no_such_partition(keyspace, number));
    }
    Ok(PartitionKey { keyspace: keyspace.id(), partition: number })
}

/// The epoch that a move drains; or drained, when the answer is an old one and the move is over.
fn drained(state: &State, key: PartitionKey, move_id: MoveId) -> Option<Epoch> {
    let partition = state.partition(key)?;
    match partition.phase() {
        Phase::Draining(drain) if drain.move_id == move_id => partition.epoch(),
        Phase::Vacant | Phase::Cooling(_) => partition.epoch(),
        // Granted since: the move ended some epoch below the current one, and "over" is all that counts.
        Phase::Owned { .. } | Phase::Draining(_) => before_last(partition),
    }
}

fn before_last(partition: &Partition) -> Option<Epoch> {
    partition.history().iter().rev().nth(1).map(|tenure| tenure.epoch)
}

/// Ends a partition's cooling now.
pub(super) async fn end_cooling(context: &Context, request: v1::EndCoolingRequest) -> Result<(), Failure> {
    let id = RequestId::try_from(request.request)?;
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    let epoch = checked::epoch("epoch", request.epoch)?;
    // The operator named the epoch, so there is nothing to decide anew when the state has moved on.
    let decide = |local: &Local| {
        let partition = find(&local.state, &keyspace, number)?;
        Ok(Some(Command::EndCooling { partition, epoch }))
    };
    let answer = run_one(context, id, decide).await?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::warn!(%keyspace, partition = number.get(), %epoch, "an operator ended a cooling");
    }
    Ok(())
}
