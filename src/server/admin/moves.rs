//! Planned moves that an operator asks for, and the end of a cooling.

use super::request::{Answer, run};
use crate::context::Context;
use crate::map::{no_such_keyspace, no_such_partition};
use crate::placement::directive::{directed, said};
use crate::placement::whose;
use crate::refusal;
use crate::replica::Local;
use ringfence_api::Failure;
use ringfence_api::convert::{RequestId, checked};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, MoveId, PartitionId, PartitionKey, SessionId, WorkerId};
use ringfence_core::lead::{NoMove, PinElsewhere, Unfit, operators_move, pinned_elsewhere, unfit};
use ringfence_core::state::{Command, Outcome, Partition, Phase, State, Subject};
use ringfence_core::time::Instant;
use std::collections::BTreeSet;

/// Begins a planned move; grants at once what nobody owns; does nothing when the worker owns it already.
pub(super) async fn begin(
    context: &Context,
    request: v1::MovePartitionRequest,
) -> Result<v1::MovePartitionResponse, Failure> {
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    let to = checked::worker_id("to", &request.to)?;
    if request.dry_run {
        return would(context, &keyspace, number, &to).await;
    }
    let id = RequestId::try_from(request.request)?;
    let given = said(&context.replica.lock().state, request.directive);
    let what = format!("move partition {keyspace}/{} to worker {to}", number.get());
    let answer = run(context, id, |local| {
        let Some(step) = step(local, context.clock.now(), &keyspace, number, &to)? else {
            return Ok(Vec::new());
        };
        let subject = Subject::Partition(find(&local.state, &keyspace, number)?);
        Ok(directed(subject, given.as_ref(), &what, step))
    });
    let answer = answer.await?;
    let local = context.replica.lock();
    let key = find(&local.state, &keyspace, number)?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::info!(partition = refusal::partition(key, &local.state), %to, "an operator moves a partition");
    }
    let note = note(&local, context.clock.now(), key, &to);
    Ok(match answer.outcome() {
        Some(Outcome::Draining(move_id)) => v1::MovePartitionResponse {
            r#move: move_id.get(),
            from_epoch: drained(&local.state, key, *move_id).map_or(0, Epoch::get),
            would_change: false,
            note,
        },
        _ => v1::MovePartitionResponse { note, ..v1::MovePartitionResponse::default() },
    })
}

/// What a move would do, as the move itself would find.
async fn would(
    context: &Context,
    keyspace: &KeyspaceName,
    number: PartitionId,
    to: &WorkerId,
) -> Result<v1::MovePartitionResponse, Failure> {
    context.confirm().await?;
    let local = context.replica.lock();
    let step = step(&local, context.clock.now(), keyspace, number, to)?;
    let key = find(&local.state, keyspace, number)?;
    let in_flight = match local.state.partition(key).map(Partition::phase) {
        Some(Phase::Draining(drain)) => drain.move_id.get(),
        _ => 0,
    };
    Ok(v1::MovePartitionResponse {
        r#move: in_flight,
        from_epoch: match step {
            Some(Command::Drain { epoch, .. }) => epoch.get(),
            _ => 0,
        },
        would_change: step.is_some() && in_flight == 0,
        note: note(&local, context.clock.now(), key, to),
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
    let key = find(&local.state, keyspace, number)?;
    let absent = absent(local, now);
    operators_move(&local.state, &absent, key, to).map_err(|why| no_move(&why, key, &local.state, &absent))
}

fn no_move(why: &NoMove, key: PartitionKey, state: &State, absent: &BTreeSet<SessionId>) -> Failure {
    let name = refusal::partition(key, state);
    match why {
        NoMove::NoSuchPartition(_) => Failure::not_found(format_args!("there is no partition {name}")),
        NoMove::NoSuchWorker(worker) => {
            Failure::not_found(format_args!("there is no worker {worker}; it has no session"))
        }
        NoMove::Unfit(worker, unfit) => {
            let all = all_unfit(state, absent, key, worker);
            let all = if all.is_empty() { std::slice::from_ref(unfit) } else { &all[..] };
            Failure::refused(format_args!("worker {worker} {}", all_told_of(worker, all, state)))
        }
        NoMove::Frozen(what) => Failure::refused(whose::frozen(what, state)),
        NoMove::Pinned(worker) => Failure::refused(whose::pinned(key, worker, state)),
        NoMove::PinAway(worker, unfit) => Failure::refused(format_args!(
            "partition {name} is pinned to worker {worker}{}, which {}; it takes the partition back when it is there again: wait \
             until it is, or until its session has ended, or unpin the partition (`ringfence partition unpin {name}`)",
            whose::pinned_by(key, state),
            away(unfit)
        )),
        NoMove::OnItsWay { to, move_id } => Failure::refused(format_args!(
            "partition {name} is on its way to worker {to} (move {move_id}); wait for that move to end"
        )),
        NoMove::Cools => Failure::refused(format_args!(
            "nobody owns partition {name} and it cools; wait, or end its cooling first"
        )),
    }
}

/// Why a partition that a worker has, or is to get, may not stay there: a pin elsewhere.
fn note(local: &Local, now: Instant, key: PartitionKey, to: &WorkerId) -> String {
    let state = &local.state;
    let Some(pin) = pinned_elsewhere(state, &absent(local, now), key, to) else { return String::new() };
    let (pin, how) = match pin {
        PinElsewhere::Counts(pin) => (pin, "which takes it when nothing keeps it here".to_owned()),
        PinElsewhere::MayCount(pin, unfit) => {
            (pin, format!("which {}; it goes there when that is over", away(&unfit)))
        }
        PinElsewhere::NoEffect(pin) => {
            (pin, "which may not have it now; it goes there when that may".to_owned())
        }
    };
    let name = refusal::partition(key, state);
    format!(
        "partition {name} is pinned to worker {pin}{}, {how}, unless it is unpinned",
        whose::pinned_by(key, state)
    )
}

/// What passes by itself: of a worker that a partition waits for.
pub(crate) fn away(unfit: &Unfit) -> &'static str {
    match unfit {
        Unfit::Absent => "has no connection to the coordinator now",
        _ => "has not renewed its lease for a while",
    }
}

fn absent(local: &Local, now: Instant) -> BTreeSet<SessionId> {
    local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default()
}

/// All of it in words, of this worker, with who froze it.
pub(crate) fn all_told_of(worker: &WorkerId, all: &[Unfit], state: &State) -> String {
    let told = |unfit: &Unfit| match unfit {
        Unfit::Frozen => whose::is_frozen(&Subject::Worker(worker.clone()), state),
        unfit => told(unfit),
    };
    joined(all.iter().map(told))
}

fn joined(told: impl Iterator<Item = String>) -> String {
    told.collect::<Vec<_>>().join("; and it ")
}

/// All that stands in the way of a worker that is to be given something in a partition's keyspace.
pub(crate) fn all_unfit(
    state: &State,
    absent: &BTreeSet<SessionId>,
    key: PartitionKey,
    worker: &WorkerId,
) -> Vec<Unfit> {
    let found = state.keyspace(key.keyspace).zip(state.session_of(worker));
    found.map_or_else(Vec::new, |(keyspace, session)| unfit(state, keyspace, session, absent))
}

/// The same in words, one after the other.
pub(crate) fn all_told(all: &[Unfit]) -> String {
    joined(all.iter().map(told))
}

/// Why a worker is given nothing, and what to do.
pub(crate) fn told(unfit: &Unfit) -> String {
    let text = match unfit {
        Unfit::NotServing => "does not serve this keyspace; name it when the worker joins",
        Unfit::Leaving => "is about to leave and takes no more partitions",
        Unfit::Suspected => "has not renewed its lease for a while and may be gone; look at it first",
        Unfit::Absent => {
            "has no connection to the coordinator now and would not learn of it; look at it first"
        }
        // It would be moved away again.
        Unfit::Drained => "is drained and takes no partitions; undrain it first",
        Unfit::Cordoned => "is cordoned and takes no partitions; uncordon it first",
        Unfit::Frozen => "is frozen: nothing moves to it or from it; unfreeze it first",
        Unfit::Ineligible(constraint) => {
            return format!(
                "may own nothing in this keyspace, whose constraint on labels is {constraint}; start it with labels that meet \
                 it, or change the keyspace's constraints"
            );
        }
    };
    text.to_owned()
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
    let given = said(&context.replica.lock().state, request.directive);
    let what = format!("end the cooling of partition {keyspace}/{}", number.get());
    // The operator named the epoch, so there is nothing to decide anew when the state has moved on.
    let decide = |local: &Local| {
        let partition = find(&local.state, &keyspace, number)?;
        let end = Command::EndCooling { partition, epoch };
        Ok(directed(Subject::Partition(partition), given.as_ref(), &what, end))
    };
    let answer = run(context, id, decide).await?;
    if matches!(answer, Answer::Now { .. }) {
        tracing::warn!(%keyspace, partition = number.get(), %epoch, "an operator ended a cooling");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::LogIndex;
    use ringfence_core::state::{Entry, WorkerChange};

    #[test]
    fn what_keeps_a_worker_from_a_partition_names_who_did_it_and_the_ways_out() {
        let (mut state, worker) = (State::new(), WorkerId::new("w2").unwrap());
        let direct = Command::Direct {
            subject: Subject::Worker(worker.clone()),
            by: "ada".to_owned(),
            what: "freeze worker w2".to_owned(),
            reason: "incident 42".to_owned(),
        };
        let change = WorkerChange { frozen: Some(true), ..WorkerChange::default() };
        let set = Command::SetWorker { worker: worker.clone(), change };
        let entry = Entry { request: None, proposed_unix_ms: 0, commands: vec![direct, set] };
        state.apply(LogIndex::new(1), &entry).outcome.unwrap();
        let all = [Unfit::Frozen, Unfit::Ineligible("disk=ssd".parse().unwrap())];
        assert_eq!(
            all_told_of(&worker, &all, &state),
            "is frozen, by ada (incident 42): no planned move begins there; unfreeze it first (`ringfence unfreeze worker w2`); \
             and it may own nothing in this keyspace, whose constraint on labels is disk=ssd; start it with labels that meet \
             it, or change the keyspace's constraints"
        );
    }
}
