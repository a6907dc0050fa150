//! What is set, by whom, and what became of a worker.

use super::directive::named;
use crate::context::Context;
use ringfence_api::Failure;
use ringfence_api::convert::{Directive, checked};
use ringfence_api::v1;
use ringfence_core::ids::{LogIndex, PartitionId, PartitionKey, SessionId, WorkerId};
use ringfence_core::placement::Weight;
use ringfence_core::state::{
    EndReason, Ended, Keyspace, Partition, PartitionSettings, Phase, Session, State, Subject, WorkerSettings,
};

/// How many workers and how many partitions with settings are listed.
const LISTED: usize = 1_000;

/// One worker: its settings, its session, and what is known of its past.
pub(super) async fn worker(
    context: &Context,
    request: v1::GetWorkerRequest,
) -> Result<v1::GetWorkerResponse, Failure> {
    let worker = checked::worker_id("worker", &request.worker)?;
    context.confirm().await?;
    let local = context.replica.lock();
    let state = &local.state;
    let session = state.session_of(&worker);
    let none = WorkerSettings::default();
    let settings = state.worker_settings().get(&worker);
    let events = events(state, &worker);
    if session.is_none() && settings.is_none() && events.is_empty() {
        return Err(Failure::not_found(format_args!("nothing is known of a worker {worker}")));
    }
    let arriving = state
        .keyspaces()
        .flat_map(Keyspace::partitions)
        .filter(|partition| matches!(partition.phase(), Phase::Draining(drain) if drain.to == worker));
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(v1::GetWorkerResponse {
        settings: Some(worker_settings(state, &worker, settings.unwrap_or(&none))),
        session: session.map_or(0, |session| session.id().get()),
        partitions: session.map_or(0, |session| count(session.holds().len())),
        arriving: count(arriving.count()),
        events,
    })
}

/// Joins, ends and directives, newest first.
fn events(state: &State, worker: &WorkerId) -> Vec<v1::WorkerEvent> {
    let joined = state
        .session_of(worker)
        .map(|session| joined(session.id(), session.joined(), session.joined_unix_ms(), session.address()));
    let past = || state.all_ended().filter(|ended| ended.worker == *worker);
    let began = past().filter_map(|ended| {
        let life = ended.life.as_ref()?;
        Some(self::joined(ended.session, life.joined, life.joined_unix_ms, &life.address))
    });
    let ended = past().map(ended).chain(began);
    let about = Subject::Worker(worker.clone());
    let directives = state.directives().filter(|directive| directive.subject == about).map(|directive| {
        let v1::GivenDirective { index, unix_ms, by, what, reason } = Directive::from(directive).into();
        v1::WorkerEvent { index, unix_ms, what, by, reason }
    });
    let mut events: Vec<v1::WorkerEvent> = joined.into_iter().chain(ended).chain(directives).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.index));
    events
}

fn joined(session: SessionId, at: LogIndex, unix_ms: u64, address: &str) -> v1::WorkerEvent {
    let place = if address.is_empty() { ", without an address".to_owned() } else { format!(" at {address}") };
    let what = format!("joined as session {session}{place}");
    v1::WorkerEvent { index: at.get(), unix_ms, what, ..v1::WorkerEvent::default() }
}

fn ended(ended: &Ended) -> v1::WorkerEvent {
    let how = match ended.why {
        EndReason::Left => "it left",
        EndReason::Expired => "its lease ran out",
        EndReason::Replaced => "another process joined under its name",
        EndReason::Evicted => "it was evicted",
    };
    let what = format!("session {} ended: {how}", ended.session);
    let unix_ms = ended.life.as_ref().map_or(0, |life| life.ended_unix_ms);
    v1::WorkerEvent { index: ended.at.get(), unix_ms, what, ..v1::WorkerEvent::default() }
}

/// All that is set.
pub(super) async fn settings(context: &Context) -> Result<v1::ListSettingsResponse, Failure> {
    context.confirm().await?;
    let local = context.replica.lock();
    let state = &local.state;
    let frozen = |keyspace: &Keyspace| {
        Some(v1::list_settings_response::FrozenKeyspace {
            keyspace: keyspace.name().to_string(),
            directive: Some(named(state, keyspace.frozen()?)),
        })
    };
    let of_partitions =
        || state.keyspaces().flat_map(|keyspace| keyspace.settings().iter().map(move |set| (keyspace, set)));
    let listed = of_partitions()
        .take(LISTED)
        .map(|(keyspace, (number, set))| partition_settings(state, keyspace, *number, set));
    let workers = state.worker_settings();
    let more = |all: usize| u32::try_from(all.saturating_sub(LISTED)).unwrap_or(u32::MAX);
    Ok(v1::ListSettingsResponse {
        cluster_frozen: state.frozen().map(|by| named(state, by)),
        keyspaces_frozen: state.keyspaces().filter_map(frozen).collect(),
        workers: workers
            .iter()
            .take(LISTED)
            .map(|(worker, set)| worker_settings(state, worker, set))
            .collect(),
        more_workers: more(workers.len()),
        partitions: listed.collect(),
        more_partitions: more(of_partitions().count()),
    })
}

/// What operators decided, newest first.
pub(super) async fn directives(context: &Context) -> Result<v1::ListDirectivesResponse, Failure> {
    context.confirm().await?;
    let local = context.replica.lock();
    let newest_first = local.state.directives().rev();
    Ok(v1::ListDirectivesResponse { directives: newest_first.map(|d| Directive::from(d).into()).collect() })
}

/// The directives that bear on a partition: of itself, of its keyspace and cluster, of its owner.
pub(super) fn bearing_on(state: &State, key: PartitionKey) -> Vec<v1::GivenDirective> {
    let keyspace = state.keyspace(key.keyspace);
    let set = keyspace.and_then(|keyspace| keyspace.settings().get(&key.partition));
    let owner = state.partition(key).and_then(Partition::owner);
    let owner = owner.and_then(|session| state.session(session)).map(Session::worker);
    let of_owner = owner.and_then(|worker| state.worker_settings().get(worker));
    let mut at: Vec<LogIndex> = [
        set.and_then(|set| set.frozen),
        set.and_then(|set| set.pin.as_ref().map(|(_, by)| *by)),
        set.and_then(|set| set.weight.map(|(_, by)| by)),
        keyspace.and_then(Keyspace::frozen),
        state.frozen(),
        of_owner.and_then(|set| set.drained),
        of_owner.and_then(|set| set.drained_until_join),
        of_owner.and_then(|set| set.cordoned),
        of_owner.and_then(|set| set.frozen),
    ]
    .into_iter()
    .flatten()
    .collect();
    at.sort_unstable();
    at.dedup();
    at.into_iter().map(|at| named(state, at)).collect()
}

fn worker_settings(state: &State, worker: &WorkerId, set: &WorkerSettings) -> v1::WorkerSettings {
    let by = |at: Option<LogIndex>| at.map(|at| named(state, at));
    v1::WorkerSettings {
        worker: worker.to_string(),
        drained: by(set.drained),
        drained_until_join: by(set.drained_until_join),
        cordoned: by(set.cordoned),
        frozen: by(set.frozen),
        weight: set.weight().map_or(0, Weight::get),
        weighed: by(set.weight.map(|(_, by)| by)),
    }
}

fn partition_settings(
    state: &State,
    keyspace: &Keyspace,
    number: PartitionId,
    set: &PartitionSettings,
) -> v1::PartitionSettings {
    v1::PartitionSettings {
        keyspace: keyspace.name().to_string(),
        partition: number.get(),
        pin: set.pin.as_ref().map_or(String::new(), |(worker, _)| worker.to_string()),
        pinned: set.pin.as_ref().map(|(_, by)| named(state, *by)),
        frozen: set.frozen.map(|by| named(state, by)),
        weight: set.weight().unwrap_or(0),
        weighed: set.weight.map(|(_, by)| named(state, by)),
    }
}
