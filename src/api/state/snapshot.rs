//! The whole state as bytes.

use super::error::DecodeError;
use super::fields::{directive_from_wire, directive_to_wire, id_from_wire, id_to_wire};
use super::format::{format_of_state, read};
use super::workers::{Names, Places};
use super::{directive, lock, outcome, partition, plan, refusal, session};
use crate::convert::{InvalidField, checked};
use crate::v1;
use prost::Message as _;
use ringfence_core::ids::{ClusterId, LogIndex};
use ringfence_core::state::{Cluster, Deleted, OperatorAnswer, State, StateParts};

const WHAT: &str = "snapshot";

/// The state as the bytes of a snapshot. The same state gives the same bytes on every node.
///
/// Durations are written in milliseconds, as in the entries that the state was made by.
pub fn encode_state(state: &State) -> Vec<u8> {
    to_wire(&state.to_parts()).encode_to_vec()
}

/// The state in these bytes.
///
/// # Errors
/// [`DecodeError`] when they are damaged, of a format that this version does not read, or contradict themselves. Never a
/// panic.
pub fn decode_state(bytes: &[u8]) -> Result<State, DecodeError> {
    let wire: v1::StateSnapshot = read(WHAT, bytes)?;
    let parts = from_wire(wire).map_err(|why| DecodeError::Field { what: WHAT, why })?;
    Ok(State::from_parts(parts)?)
}

fn to_wire(parts: &StateParts) -> v1::StateSnapshot {
    let mut workers = Places::default();
    let keyspaces = parts.keyspaces.iter();
    let keyspaces = keyspaces.map(|keyspace| partition::keyspace_to_wire(keyspace, &mut workers)).collect();
    let sessions = parts.sessions.iter().map(|session| session::to_wire(session, &mut workers)).collect();
    let ended = parts.ended.iter().map(|ended| session::ended_to_wire(ended, &mut workers)).collect();
    let settings = parts.worker_settings.iter();
    let worker_settings =
        settings.map(|(name, s)| directive::worker_to_wire(name, s, &mut workers)).collect();
    let plans = parts.plans.iter().map(|plan| plan::to_wire(plan, &mut workers)).collect();
    let refusals = parts.refusals.iter().map(|of| refusal::writes_to_wire(of, &mut workers)).collect();
    let locks = parts.locks.iter().map(|lock| lock::to_wire(lock, &mut workers)).collect();
    v1::StateSnapshot {
        format: format_of_state(parts),
        cluster: parts
            .cluster
            .as_ref()
            .map(|cluster| v1::StateCluster { cluster: cluster.id.to_string(), lineage: cluster.lineage }),
        epoch_floor: parts.floor.get(),
        next_keyspace: parts.next_keyspace,
        next_session: parts.next_session,
        next_move: parts.next_move,
        revision: parts.revision.get(),
        applied_index: parts.applied.get(),
        nodes: parts.nodes.iter().map(|node| node.get()).collect(),
        workers: workers.into_names(),
        keyspaces,
        sessions,
        ended,
        deleted: parts.deleted.iter().map(deleted_to_wire).collect(),
        answers: parts.answers.iter().map(answer_to_wire).collect(),
        answers_dropped_index: parts.answers_dropped.map(LogIndex::get),
        directives: parts.directives.iter().map(directive::to_wire).collect(),
        worker_settings,
        frozen_by_index: directive_to_wire(parts.frozen),
        plans,
        refusals,
        reasserts: parts.reasserts.iter().map(refusal::order_to_wire).collect(),
        lock_epoch: parts.lock_epoch.get(),
        locks,
    }
}

fn from_wire(wire: v1::StateSnapshot) -> Result<StateParts, InvalidField> {
    let workers = Names::new(&wire.workers)?;
    let nodes = wire.nodes.into_iter();
    Ok(StateParts {
        cluster: wire.cluster.map(cluster_from_wire).transpose()?,
        floor: checked::floor("epoch_floor", wire.epoch_floor)?,
        next_keyspace: wire.next_keyspace,
        next_session: wire.next_session,
        next_move: wire.next_move,
        revision: LogIndex::new(wire.revision),
        applied: LogIndex::new(wire.applied_index),
        nodes: nodes.map(|node| checked::node_id("nodes", node)).collect::<Result<_, _>>()?,
        keyspaces: each("keyspaces", wire.keyspaces, |k| partition::keyspace_from_wire(k, &workers))?,
        sessions: each("sessions", wire.sessions, |s| session::from_wire(s, &workers))?,
        ended: each("ended", wire.ended, |e| session::ended_from_wire(&e, &workers))?,
        deleted: each("deleted", wire.deleted, |d| deleted_from_wire(&d))?,
        answers: each("answers", wire.answers, answer_from_wire)?,
        answers_dropped: wire.answers_dropped_index.map(LogIndex::new),
        directives: each("directives", wire.directives, directive::from_wire)?,
        worker_settings: each("worker_settings", wire.worker_settings, |s| {
            directive::worker_from_wire(&s, &workers)
        })?,
        frozen: directive_from_wire(wire.frozen_by_index),
        plans: each("plans", wire.plans, |p| plan::from_wire(p, &workers))?,
        refusals: each("refusals", wire.refusals, |w| refusal::writes_from_wire(w, &workers))?,
        reasserts: each("reasserts", wire.reasserts, |o| refusal::order_from_wire(&o))?,
        lock_epoch: checked::floor("lock_epoch", wire.lock_epoch)?,
        locks: each("locks", wire.locks, |l| lock::from_wire(l, &workers))?,
    })
}

/// Every item of a repeated field; an error names the place.
fn each<W, T>(
    field: &str,
    wire: Vec<W>,
    mut one: impl FnMut(W) -> Result<T, InvalidField>,
) -> Result<Vec<T>, InvalidField> {
    let items = wire.into_iter().enumerate();
    items.map(|(place, item)| one(item).map_err(|e| e.at(field, place))).collect()
}

fn cluster_from_wire(wire: v1::StateCluster) -> Result<Cluster, InvalidField> {
    let id = ClusterId::new(&wire.cluster).map_err(|why| InvalidField::new("cluster.cluster", why))?;
    Ok(Cluster { id, lineage: wire.lineage })
}

fn deleted_to_wire(deleted: &Deleted) -> v1::StateDeleted {
    v1::StateDeleted {
        name: deleted.name.to_string(),
        lease_ms: u64::try_from(deleted.lease.as_millis()).unwrap_or(u64::MAX),
    }
}

fn deleted_from_wire(wire: &v1::StateDeleted) -> Result<Deleted, InvalidField> {
    let name = checked::keyspace_name("name", &wire.name)?;
    Ok(Deleted { name, lease: std::time::Duration::from_millis(wire.lease_ms) })
}

fn answer_to_wire(answer: &OperatorAnswer) -> v1::StateOperatorAnswer {
    v1::StateOperatorAnswer {
        id: id_to_wire(answer.id),
        answered_index: answer.at.get(),
        outcomes: outcome::to_wire(&answer.outcomes),
    }
}

fn answer_from_wire(wire: v1::StateOperatorAnswer) -> Result<OperatorAnswer, InvalidField> {
    Ok(OperatorAnswer {
        id: id_from_wire("id", &wire.id)?,
        at: LogIndex::new(wire.answered_index),
        outcomes: outcome::from_wire(wire.outcomes)?,
    })
}
