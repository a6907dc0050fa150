//! The answers that are kept for retries.

use crate::convert::{InvalidField, checked};
use crate::v1;
use crate::v1::state_outcome::{Done, LeftVacant, Outcome as Wire, Unchanged};
use ringfence_core::ids::{KeyspaceId, LogIndex, MoveId};
use ringfence_core::state::Outcome;

pub(super) fn to_wire(outcomes: &[Outcome]) -> Vec<v1::StateOutcome> {
    let one = |outcome: &Outcome| match outcome {
        Outcome::Done => Wire::Done(Done {}),
        Outcome::Unchanged => Wire::Unchanged(Unchanged {}),
        Outcome::LeftVacant => Wire::LeftVacant(LeftVacant {}),
        Outcome::Created(id) => Wire::Created(id.get()),
        Outcome::Joined(id) => Wire::Joined(id.get()),
        Outcome::Granted(epoch) => Wire::Granted(epoch.get()),
        Outcome::Draining(id) => Wire::Draining(id.get()),
        Outcome::Planned(id) => Wire::PlannedIndex(id.get()),
        Outcome::Queued(place) => Wire::Queued(*place),
    };
    outcomes.iter().map(|outcome| v1::StateOutcome { outcome: Some(one(outcome)) }).collect()
}

pub(super) fn from_wire(wire: Vec<v1::StateOutcome>) -> Result<Vec<Outcome>, InvalidField> {
    let one = |outcome: v1::StateOutcome| {
        Ok(match outcome.outcome.ok_or_else(|| InvalidField::missing("outcome"))? {
            Wire::Done(_) => Outcome::Done,
            Wire::Unchanged(_) => Outcome::Unchanged,
            Wire::LeftVacant(_) => Outcome::LeftVacant,
            Wire::Created(number) => Outcome::Created(KeyspaceId::new(number)),
            Wire::Joined(number) => Outcome::Joined(checked::session("joined", number)?),
            Wire::Granted(number) => Outcome::Granted(checked::epoch("granted", number)?),
            Wire::Draining(number) => Outcome::Draining(MoveId::new(number)),
            Wire::PlannedIndex(number) => Outcome::Planned(LogIndex::new(number)),
            Wire::Queued(place) => Outcome::Queued(place),
        })
    };
    let outcomes = wire.into_iter().enumerate();
    outcomes.map(|(place, outcome)| one(outcome).map_err(|e: InvalidField| e.at("outcomes", place))).collect()
}
