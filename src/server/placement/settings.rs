//! What operators set about workers and partitions, and freezes.

use super::directive::{Given, direct};
use crate::admin::moves::find;
use crate::admin::request::{Answer, run};
use crate::context::Context;
use crate::map::no_such_keyspace;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, RequestId, checked};
use ringfence_api::v1;
use ringfence_core::ids::{PartitionId, WorkerId};
use ringfence_core::placement::Weight;
use ringfence_core::state::{Command, Keyspace, PartitionChange, Session, Subject, WorkerChange};

/// Changes what is set about a worker.
pub(super) async fn worker(
    context: &Context,
    request: v1::SetWorkerRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let worker = checked::worker_id("worker", &request.worker)?;
    let weight = |number| match number {
        0 => Ok(None),
        number => Weight::new(number).map(Some).map_err(|why| InvalidField::new("weight", why)),
    };
    let change = WorkerChange {
        drained: request.drained,
        drained_until_join: request.drained_until_join,
        cordoned: request.cordoned,
        frozen: request.frozen,
        weight: request.weight.map(weight).transpose()?,
    };
    let what = worker_in_words(&worker, &change);
    let commands =
        vec![direct(Subject::Worker(worker.clone()), &given, &what), Command::SetWorker { worker, change }];
    changed(&given, &what, run(context, id, |_| Ok(commands.clone())).await?)
}

/// Forgets what is set about a worker that is gone for good.
pub(super) async fn forget(
    context: &Context,
    request: v1::ForgetWorkerRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let worker = checked::worker_id("worker", &request.worker)?;
    let what = format!("forget worker {worker}");
    let commands =
        vec![direct(Subject::Worker(worker.clone()), &given, &what), Command::ForgetWorker { worker }];
    changed(&given, &what, run(context, id, |_| Ok(commands.clone())).await?)
}

/// Ends a worker's session and keeps the worker out: it would join again at once, for all that is wrong with it.
pub(super) async fn evict(
    context: &Context,
    request: v1::EvictWorkerRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let worker = checked::worker_id("worker", &request.worker)?;
    let what = format!("evict worker {worker}");
    let answer = run(context, id, |local| {
        let state = &local.state;
        let session = state.session_of(&worker).map(Session::id);
        let settings = state.worker_settings().get(&worker);
        if session.is_none() && settings.is_none() && !state.all_ended().any(|ended| ended.worker == worker) {
            return Err(Failure::not_found(format_args!("nothing is known of a worker {worker}")));
        }
        let drain = WorkerChange { drained: Some(true), ..WorkerChange::default() };
        let keep_out = Command::SetWorker { worker: worker.clone(), change: drain };
        let end = session.map(|session| Command::Evict { session });
        let direct = direct(Subject::Worker(worker.clone()), &given, &what);
        Ok([direct, keep_out].into_iter().chain(end).collect())
    });
    changed(&given, &what, answer.await?)
}

/// Changes what is set about a partition.
pub(super) async fn partition(
    context: &Context,
    request: v1::SetPartitionRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let number = PartitionId::new(request.partition);
    let pin = |name: String| {
        if name.is_empty() { Ok(None) } else { checked::worker_id("pin", &name).map(Some) }
    };
    let change = PartitionChange {
        pin: request.pin.map(pin).transpose()?,
        frozen: request.frozen,
        weight: request.weight.map(|number| (number > 0).then_some(number)),
    };
    let what = partition_in_words(&format!("{keyspace}/{}", number.get()), &change);
    let answer = run(context, id, |local| {
        let key = find(&local.state, &keyspace, number)?;
        let change = change.clone();
        Ok(vec![
            direct(Subject::Partition(key), &given, &what),
            Command::SetPartition { partition: key, change },
        ])
    });
    changed(&given, &what, answer.await?)
}

/// Stops planned moves, or lets them go on.
pub(super) async fn freeze(
    context: &Context,
    request: v1::FreezeRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let frozen = request.frozen;
    let name = match request.keyspace.as_str() {
        "" => None,
        name => Some(checked::keyspace_name("keyspace", name)?),
    };
    let verb = if frozen { "freeze" } else { "unfreeze" };
    let what = match &name {
        None => format!("{verb} the cluster"),
        Some(name) => format!("{verb} keyspace {name}"),
    };
    let answer = run(context, id, |local| {
        let named = name.as_ref().map(|name| {
            local.state.keyspace_named(name).map(Keyspace::id).ok_or_else(|| no_such_keyspace(name))
        });
        let keyspace = named.transpose()?;
        let subject = keyspace.map_or(Subject::Cluster, Subject::Keyspace);
        Ok(vec![direct(subject, &given, &what), Command::Freeze { keyspace, frozen }])
    });
    changed(&given, &what, answer.await?)
}

/// Tells the log and the caller what became of a directive.
pub(super) fn changed(given: &Given, what: &str, answer: Answer) -> Result<v1::PlacementChanged, Failure> {
    let changed = answer.changed();
    if let (true, Answer::Now { .. }) = (changed, &answer) {
        tracing::info!(by = ?given.by, reason = ?given.reason, "an operator: {what}");
    }
    Ok(v1::PlacementChanged { changed })
}

fn worker_in_words(worker: &WorkerId, change: &WorkerChange) -> String {
    let WorkerChange { drained, drained_until_join, cordoned, frozen, weight } = change;
    let switch = |on: Option<bool>, yes: &str, no: &str| on.map(|on| (if on { yes } else { no }).to_owned());
    // An undrain ends both.
    let until_join = drained_until_join.filter(|on| *on || *drained != Some(false));
    let parts = [
        switch(*drained, "drain", "undrain"),
        switch(until_join, "drain until it joins", "undrain"),
        switch(*cordoned, "cordon", "uncordon"),
        switch(*frozen, "freeze", "unfreeze"),
        weight.map(|weight| match weight {
            Some(weight) => format!("weight {weight} for"),
            None => "its own weight for".to_owned(),
        }),
    ];
    in_words(parts, &format!("worker {worker}"))
}

fn partition_in_words(partition: &str, change: &PartitionChange) -> String {
    let parts = [
        change.pin.as_ref().map(|pin| match pin {
            Some(worker) => format!("pin to worker {worker}"),
            None => "unpin".to_owned(),
        }),
        change.frozen.map(|on| (if on { "freeze" } else { "unfreeze" }).to_owned()),
        change.weight.map(|weight| match weight {
            Some(weight) => format!("weight {weight} for"),
            None => "no weight for".to_owned(),
        }),
    ];
    in_words(parts, &format!("partition {partition}"))
}

fn in_words(parts: impl IntoIterator<Item = Option<String>>, of: &str) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { format!("nothing about {of}") } else { format!("{} {of}", parts.join(", ")) }
}
