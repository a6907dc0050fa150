//! Release and grant in one entry: the owner of a planned move gives the partition back, and the next one gets it.

use super::receive::{Unfit, receive_in_flight};
use super::splitting;
use crate::ids::{Epoch, PartitionKey, SessionId};
use crate::state::{Command, GrantReason, Keyspace, Phase, Released, Session, State};
use std::collections::BTreeSet;

/// The commands for a release: with the grant that completes a planned move, when its target lives and is not `absent`;
/// and with the split before it, when it is the partition's turn.
///
/// What follows may be refused together with the release when the state has moved on between this look and the entry. The
/// release alone is then what to propose: it must count whatever became of the target.
pub fn release(
    state: &State,
    partition: PartitionKey,
    epoch: Epoch,
    session: SessionId,
    how: Released,
    absent: &BTreeSet<SessionId>,
) -> (Command, Vec<Command>) {
    let follows = match state.partition(partition).map(|p| (p.epoch(), p.phase())) {
        Some((Some(current), Phase::Draining(drain)))
            if current == epoch
                && drain.session == session
                && !matches!(how, Released::Failed(_) | Released::Behind(_)) =>
        {
            let target = state.session_of(&drain.to).zip(state.keyspace(partition.keyspace));
            // One that is cordoned gets nothing, and keeps what it has: both halves of it.
            let stays = matches!(drain.why, GrantReason::Split | GrantReason::Reassert);
            let keeps = |to: &Session| stays && to.id() == session;
            let fits =
                |(to, keyspace): &(&Session, &Keyspace)| match receive_in_flight(state, keyspace, to, absent)
                {
                    Err(Unfit::Cordoned) => keeps(to),
                    answer => answer.is_ok(),
                };
            target.filter(fits).map_or_else(Vec::new, |(to, _)| {
                let (to, why) = (to.id(), drain.why);
                splitting::at_release(state, partition, to, why)
                    .unwrap_or_else(|| vec![Command::Grant { partition, replaces: Some(epoch), to, why }])
            })
        }
        // Its storage has seen more. It tries once more, above that; who says so again waits like one whose task failed.
        Some((Some(current), Phase::Owned { session: owner, .. }))
            if current == epoch && *owner == session && matches!(how, Released::Behind(_)) =>
        {
            let first = state.partition(partition).is_some_and(|p| p.setback().is_none());
            let target = state.session(session).zip(state.keyspace(partition.keyspace));
            let fits = |(to, keyspace): &(&Session, &Keyspace)| {
                matches!(receive_in_flight(state, keyspace, to, absent), Ok(()) | Err(Unfit::Cordoned))
            };
            let why = GrantReason::Behind;
            let grant = Command::Grant { partition, replaces: Some(epoch), to: session, why };
            target.filter(|both| first && fits(both)).map_or_else(Vec::new, |_| vec![grant])
        }
        _ => Vec::new(),
    };
    (Command::Release { partition, epoch, session, how }, follows)
}
