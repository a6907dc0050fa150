//! Release and grant in one entry: the owner of a planned move gives the partition back, and the next one gets it.

use super::receive::receive_in_flight;
use crate::ids::{Epoch, PartitionKey, SessionId};
use crate::state::{Command, Phase, Released, State};
use std::collections::BTreeSet;

/// The commands for a release: with the grant that completes a planned move, when its target lives and is not `absent`.
///
/// The grant may be refused together with the release when the state has moved on between this look and the entry. The
/// release alone is then what to propose: it must count whatever became of the target.
pub fn release(
    state: &State,
    partition: PartitionKey,
    epoch: Epoch,
    session: SessionId,
    how: Released,
    absent: &BTreeSet<SessionId>,
) -> (Command, Option<Command>) {
    let grant = match state.partition(partition).map(|p| (p.epoch(), p.phase())) {
        Some((Some(current), Phase::Draining(drain)))
            if current == epoch && drain.session == session && !matches!(how, Released::Failed(_)) =>
        {
            let target = state.session_of(&drain.to).zip(state.keyspace(partition.keyspace));
            target.filter(|(to, keyspace)| receive_in_flight(state, keyspace, to, absent).is_ok()).map(
                |(to, _)| Command::Grant { partition, replaces: Some(epoch), to: to.id(), why: drain.why },
            )
        }
        _ => None,
    };
    (Command::Release { partition, epoch, session, how }, grant)
}
