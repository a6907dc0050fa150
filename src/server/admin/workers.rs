//! Workers, as an operator sees them.

use super::Pieces;
use crate::context::Context;
use futures_util::stream;
use prost::Message as _;
use ringfence_api::convert::checked::millis;
use ringfence_api::{Failure, PIECE_BYTES, v1};
use ringfence_core::ids::WorkerId;
use ringfence_core::state::{Partition, Session, State};
use std::collections::VecDeque;

/// All workers that have a session, by name. Each piece is made when it is sent, from what is there then; a worker that
/// left meanwhile is not in it.
pub(super) async fn list(context: &Context) -> Result<Pieces<v1::ListWorkersResponse>, Failure> {
    context.confirm().await?;
    let mut names: Vec<WorkerId> =
        context.replica.lock().state.sessions().map(|session| session.worker().clone()).collect();
    names.sort();
    let next = (context.clone(), VecDeque::from(names));
    Ok(Box::pin(stream::unfold(next, |(context, mut names)| async move {
        let workers = piece(&context, &mut names);
        (!workers.is_empty()).then(|| (Ok(v1::ListWorkersResponse { workers }), (context, names)))
    })))
}

fn piece(context: &Context, names: &mut VecDeque<WorkerId>) -> Vec<v1::Worker> {
    let local = context.replica.lock();
    let (mut workers, mut bytes) = (Vec::new(), 0);
    while bytes < PIECE_BYTES
        && let Some(name) = names.pop_front()
    {
        if let Some(session) = local.state.session_of(&name) {
            let worker = shown(&local.state, session);
            bytes += worker.encoded_len();
            workers.push(worker);
        }
    }
    workers
}

/// A worker and what it owns.
pub(super) fn shown(state: &State, session: &Session) -> v1::Worker {
    let holds = session.holds();
    let ready = holds.iter().filter(|key| state.partition(**key).is_some_and(Partition::ready)).count();
    let keyspaces = session.keyspaces().iter().filter_map(|id| state.keyspace(*id));
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    v1::Worker {
        worker: session.worker().to_string(),
        session: session.id().get(),
        address: session.address().to_owned(),
        weight: session.weight().get(),
        labels: session.labels().clone().into_iter().collect(),
        keyspaces: keyspaces.map(|keyspace| keyspace.name().to_string()).collect(),
        ttl_ms: millis(session.ttl()),
        suspicion_thirds: session.suspicion().map_or(0, |suspicion| suspicion.thirds.into()),
        partitions: count(holds.len()),
        ready: count(ready),
        joined_unix_ms: session.joined_unix_ms(),
        locks: count(session.locks().len()),
        awaited_locks: count(session.waits().len()),
    }
}
