//! Telling of writes that storage refused, and listing them.

use super::gathered::Full;
use super::words;
use crate::context::{Context, not_leader};
use crate::map::no_such_keyspace;
use crate::raft::NotLeader;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_api::v1::refused_writes as wire;
use ringfence_core::ids::{KeyspaceName, Scope, WorkerId};
use ringfence_core::state::{Holder, MAX_REFUSALS_NOTED, RefusalNote, RefusedWrite, RefusedWrites, State};

/// How far back a report may reach, in milliseconds: 30 days. An older one is told as so old.
const MAX_AGO_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// What `status` counts: a day.
const LATELY_MS: u64 = 24 * 3_600 * 1_000;

/// Takes a report. It is noted a moment later.
pub(super) fn report(context: &Context, request: v1::ReportRefusalsRequest) -> Result<(), Failure> {
    let now = context.clock.unix_ms();
    let notes = {
        let status = context.raft.status().borrow().clone();
        let local = context.replica.lock();
        if local.leadership.is_none() {
            let leader = status.leader.clone().filter(|_| !status.leads());
            return Err(not_leader(NotLeader::Elsewhere { leader }));
        }
        let Some(cluster) = local.state.cluster() else {
            return Err(Failure::unavailable("the cluster is not formed yet; ask again"));
        };
        if request.cluster != cluster.id.as_str() {
            return Err(Failure::wrong_cluster(&request.cluster, &cluster.id));
        }
        read(&local.state, request, now)?
    };
    context.gathered.add(notes).map_err(|Full| {
        Failure::limit(format_args!(
            "{MAX_REFUSALS_NOTED} different refusals were told within a second, and no more are kept; tell it again later"
        ))
    })
}

/// The notes of a report. What it says of partitions that are not there is passed over: nothing more is to be said of them.
fn read(state: &State, request: v1::ReportRefusalsRequest, now: u64) -> Result<Vec<RefusalNote>, Failure> {
    if request.items.is_empty() || request.items.len() > MAX_REFUSALS_NOTED {
        return Err(Failure::invalid(format_args!("items: a report has 1 to {MAX_REFUSALS_NOTED}")));
    }
    let reporter = match request.worker.as_str() {
        "" => None,
        name => Some(checked::worker_id("worker", name)?),
    };
    let mut notes = Vec::with_capacity(request.items.len());
    for (place, item) in request.items.into_iter().enumerate() {
        let note = note(item, reporter.clone(), now).map_err(|e| e.at("items", place))?;
        if is_there(state, &note.what.scope) {
            notes.push(note);
        }
    }
    Ok(notes)
}

fn note(item: v1::RefusalItem, reporter: Option<WorkerId>, now: u64) -> Result<RefusalNote, InvalidField> {
    let what = RefusedWrite {
        scope: checked::scope("scope", &item.scope)?,
        own: checked::epoch("own_epoch", item.own_epoch)?,
        highest: checked::epoch("highest_epoch", item.highest_epoch)?,
        store: checked::store_name("store", &item.store)?,
        observed: item.observed,
    };
    if what.own >= what.highest {
        let why = format_args!("{} is not above {}, and so nothing was refused", what.highest, what.own);
        return Err(InvalidField::new("highest_epoch", why));
    }
    if item.count == 0 {
        return Err(InvalidField::new("count", "it is 0: nothing was refused"));
    }
    let ago = |ms: u64| now.saturating_sub(ms.min(MAX_AGO_MS));
    let (first, last) = (ago(item.first_ago_ms.max(item.last_ago_ms)), ago(item.last_ago_ms));
    Ok(RefusalNote { what, count: item.count, first_unix_ms: first, last_unix_ms: last, reporter })
}

fn is_there(state: &State, scope: &Scope) -> bool {
    match scope {
        Scope::Partition(name, number) => {
            state.keyspace_named(name).is_some_and(|keyspace| number.get() < keyspace.count().get())
        }
        Scope::Lock(_) => true,
    }
}

/// What was told, those that were told last first.
pub(super) async fn list(
    context: &Context,
    request: v1::ListRefusalsRequest,
) -> Result<v1::ListRefusalsResponse, Failure> {
    let only = match request.keyspace.as_str() {
        "" => None,
        name => Some(checked::keyspace_name("keyspace", name)?),
    };
    context.confirm().await?;
    let now_unix_ms = context.clock.unix_ms();
    let local = context.replica.lock();
    let state = &local.state;
    let is_of = |writes: &&RefusedWrites| {
        let of = |name: &KeyspaceName| matches!(&writes.what.scope, Scope::Partition(k, _) if k == name);
        only.as_ref().is_none_or(of)
    };
    let refusals: Vec<_> = state.refusals().rev().filter(is_of).map(|writes| shown(state, writes)).collect();
    // One that was deleted may still have something to tell.
    if let Some(name) = only.filter(|name| refusals.is_empty() && state.keyspace_named(name).is_none()) {
        return Err(no_such_keyspace(&name));
    }
    Ok(v1::ListRefusalsResponse { refusals, now_unix_ms })
}

/// What `status` says of refused writes.
pub(crate) fn add_to_health(health: &mut v1::HealthResponse, state: &State, now_unix_ms: u64) {
    let lately = |writes: &&RefusedWrites| writes.last_unix_ms.saturating_add(LATELY_MS) >= now_unix_ms;
    for writes in state.refusals().filter(lately) {
        let sum = match writes.what.observed {
            true => &mut health.refusals_observed,
            false => &mut health.refusals,
        };
        *sum = sum.saturating_add(writes.count);
    }
    let last = state.refusals().filter(lately).max_by_key(|writes| (writes.last_unix_ms, writes.at));
    health.last_refusal = last.map(|writes| shown(state, writes));
}

fn shown(state: &State, writes: &RefusedWrites) -> v1::RefusedWrites {
    let holder = |holder: &Holder| wire::Holder {
        worker: holder.worker.to_string(),
        session: holder.session.get(),
        epoch: holder.epoch.get(),
        granted_unix_ms: holder.granted_unix_ms,
        lives: state.session(holder.session).is_some(),
    };
    v1::RefusedWrites {
        scope: writes.what.scope.to_string(),
        own_epoch: writes.what.own.get(),
        highest_epoch: writes.what.highest.get(),
        store: writes.what.store.to_string(),
        observed: writes.what.observed,
        count: writes.count,
        first_unix_ms: writes.first_unix_ms,
        last_unix_ms: writes.last_unix_ms,
        writer: writes.writer.as_ref().map(holder),
        successor: writes.successor.as_ref().map(holder),
        reporter: writes.reporter.as_ref().map(ToString::to_string).unwrap_or_default(),
        late_ms: writes.late_ms(),
        means: words::means(state, writes),
    }
}
