//! Sessions in a snapshot, live and ended.

use super::fields::{
    id_from_wire, id_to_wire, keyspaces_from_wire, keyspaces_to_wire, labels_from_wire, labels_to_wire,
    weight_from_wire,
};
use super::outcome;
use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked};
use crate::v1;
use prost::bytes::Bytes;
use ringfence_core::ids::LogIndex;
use ringfence_core::state::{EndReason, Ended, Life, SessionParts, Suspicion};
use std::time::Duration;

pub(super) fn to_wire(session: &SessionParts, workers: &mut Places) -> v1::StateSession {
    v1::StateSession {
        session: session.id.get(),
        worker: workers.of(&session.worker),
        ttl_ms: checked::millis(session.ttl),
        nonce: id_to_wire(session.nonce),
        secret_sha256: Bytes::copy_from_slice(&session.secret_hash),
        address: session.address.clone(),
        weight: session.weight.get(),
        labels: labels_to_wire(&session.labels),
        keyspaces: keyspaces_to_wire(&session.keyspaces),
        withdrawn: session.withdrawn,
        suspicion_thirds: session.suspicion.map_or(0, |suspicion| u32::from(suspicion.thirds)),
        suspicion_index: session.suspicion.map_or(0, |suspicion| suspicion.at.get()),
        assignment_index: session.assignment.get(),
        joined_index: session.joined.get(),
        joined_unix_ms: session.joined_unix_ms,
        settled_below: session.settled_below,
        splits: session.splits,
        answers: session
            .answers
            .iter()
            .map(|(number, outcomes)| v1::StateSessionAnswer {
                number: *number,
                outcomes: outcome::to_wire(outcomes),
            })
            .collect(),
    }
}

pub(super) fn from_wire(wire: v1::StateSession, workers: &Names) -> Result<SessionParts, InvalidField> {
    let answers = wire.answers.into_iter().enumerate();
    Ok(SessionParts {
        id: checked::session("session", wire.session)?,
        worker: workers.at("worker", wire.worker)?,
        ttl: Duration::from_millis(wire.ttl_ms),
        nonce: id_from_wire("nonce", &wire.nonce)?,
        secret_hash: checked::bytes("secret_sha256", &wire.secret_sha256)?,
        address: wire.address,
        weight: weight_from_wire(wire.weight)?,
        labels: labels_from_wire(wire.labels),
        keyspaces: keyspaces_from_wire(wire.keyspaces),
        withdrawn: wire.withdrawn,
        suspicion: suspicion_from_wire(wire.suspicion_thirds, wire.suspicion_index)?,
        assignment: LogIndex::new(wire.assignment_index),
        joined: LogIndex::new(wire.joined_index),
        joined_unix_ms: wire.joined_unix_ms,
        settled_below: wire.settled_below,
        splits: wire.splits,
        answers: answers
            .map(|(place, answer)| {
                let outcomes = outcome::from_wire(answer.outcomes).map_err(|e| e.at("answers", place))?;
                Ok((answer.number, outcomes))
            })
            .collect::<Result<_, _>>()?,
    })
}

fn suspicion_from_wire(thirds: u32, at: u64) -> Result<Option<Suspicion>, InvalidField> {
    if thirds == 0 {
        return Ok(None);
    }
    let thirds = u8::try_from(thirds);
    let thirds = thirds.map_err(|_| InvalidField::new("suspicion_thirds", "it is not 0, 1 or 2"))?;
    Ok(Some(Suspicion { thirds, at: LogIndex::new(at) }))
}

pub(super) fn ended_to_wire(ended: &Ended, workers: &mut Places) -> v1::StateEnded {
    let why = match ended.why {
        EndReason::Left => v1::SessionEnd::Left,
        EndReason::Expired => v1::SessionEnd::Expired,
        EndReason::Replaced => v1::SessionEnd::Replaced,
        EndReason::Evicted => v1::SessionEnd::Evicted,
    };
    v1::StateEnded {
        session: ended.session.get(),
        worker: workers.of(&ended.worker),
        why: why.into(),
        ended_index: ended.at.get(),
        life: ended.life.as_ref().map(life_to_wire),
    }
}

pub(super) fn ended_from_wire(wire: &v1::StateEnded, workers: &Names) -> Result<Ended, InvalidField> {
    let why = match v1::SessionEnd::try_from(wire.why) {
        Ok(v1::SessionEnd::Left) => EndReason::Left,
        Ok(v1::SessionEnd::Expired) => EndReason::Expired,
        Ok(v1::SessionEnd::Replaced) => EndReason::Replaced,
        Ok(v1::SessionEnd::Evicted) => EndReason::Evicted,
        Ok(v1::SessionEnd::Unspecified | v1::SessionEnd::Unknown) | Err(_) => {
            return Err(checked::unknown_value("why", wire.why));
        }
    };
    Ok(Ended {
        session: checked::session("session", wire.session)?,
        worker: workers.at("worker", wire.worker)?,
        why,
        at: LogIndex::new(wire.ended_index),
        life: wire.life.as_ref().map(life_from_wire),
    })
}

fn life_to_wire(life: &Life) -> v1::state_ended::Life {
    v1::state_ended::Life {
        joined_index: life.joined.get(),
        joined_unix_ms: life.joined_unix_ms,
        address: life.address.clone(),
        ended_unix_ms: life.ended_unix_ms,
    }
}

fn life_from_wire(wire: &v1::state_ended::Life) -> Life {
    Life {
        joined: LogIndex::new(wire.joined_index),
        joined_unix_ms: wire.joined_unix_ms,
        address: wire.address.clone(),
        ended_unix_ms: wire.ended_unix_ms,
    }
}
