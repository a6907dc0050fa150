//! May this worker be given a partition: the one answer, for grants, for moves that leaders plan or operators approve, and
//! for those that operators ask for.

use super::picture::standing_by_settings;
use crate::ids::{MoveId, PartitionId, PartitionKey, SessionId, WorkerId};
use crate::mutant;
use crate::placement::{Constraint, WorkerStanding, unmet};
use crate::state::{
    Command, GrantReason, Keyspace, Partition, Phase, Session, State, Subject, WorkerSettings,
};
use std::collections::BTreeSet;

/// Why a worker is given nothing in a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It did not join the keyspace.
    NotServing,
    /// It is about to leave.
    Leaving,
    /// It has not renewed its lease for a while.
    Suspected,
    /// It has no connection to this leader, and would not learn of it.
    Absent,
    /// Nothing is moved to it or from it.
    Frozen,
    /// Its labels do not fit this constraint of the keyspace.
    Ineligible(Constraint),
    /// It is drained.
    Drained,
    /// It is cordoned.
    Cordoned,
}

/// Whether the worker of this session may be given something in the keyspace.
///
/// # Errors
/// Why not. What may pass by itself comes first: nobody can tell what such a worker would do.
pub fn receive(
    state: &State,
    keyspace: &Keyspace,
    session: &Session,
    absent: &BTreeSet<SessionId>,
) -> Result<(), Unfit> {
    if !session.keyspaces().contains(&keyspace.id()) {
        return Err(Unfit::NotServing);
    }
    if session.withdrawn() {
        return Err(Unfit::Leaving);
    }
    if session.suspicion().is_some() {
        return Err(Unfit::Suspected);
    }
    if absent.contains(&session.id()) {
        return Err(Unfit::Absent);
    }
    match standing_by_settings(state, keyspace, session.worker(), session.labels()) {
        // The settings say nothing of who is away.
        WorkerStanding::Takes | WorkerStanding::Away => Ok(()),
        WorkerStanding::Frozen | WorkerStanding::FrozenOut => Err(Unfit::Frozen),
        WorkerStanding::Ineligible(constraint) => Err(Unfit::Ineligible(constraint)),
        WorkerStanding::Drained => Err(Unfit::Drained),
        WorkerStanding::Cordoned => Err(Unfit::Cordoned),
    }
}

/// All that stands in the way of that, the first of which is what [`receive`] says: whoever mends that one alone would be told
/// the next.
pub fn unfit(
    state: &State,
    keyspace: &Keyspace,
    session: &Session,
    absent: &BTreeSet<SessionId>,
) -> Vec<Unfit> {
    let set = state.worker_settings().get(session.worker());
    let is_set = |of: fn(&WorkerSettings) -> bool| set.is_some_and(of);
    let all = [
        (!session.keyspaces().contains(&keyspace.id())).then_some(Unfit::NotServing),
        session.withdrawn().then_some(Unfit::Leaving),
        session.suspicion().is_some().then_some(Unfit::Suspected),
        absent.contains(&session.id()).then_some(Unfit::Absent),
        is_set(|set| set.frozen.is_some()).then_some(Unfit::Frozen),
        unmet(keyspace.policy().constraints(), session.labels()).cloned().map(Unfit::Ineligible),
        is_set(|set| set.drain().is_some()).then_some(Unfit::Drained),
        is_set(|set| set.cordoned.is_some()).then_some(Unfit::Cordoned),
    ];
    all.into_iter().flatten().collect()
}

/// The worker that a partition is pinned to, when that may have it: then it belongs nowhere else.
pub(super) fn pinned_to<'a>(
    state: &'a State,
    keyspace: &'a Keyspace,
    partition: PartitionId,
    absent: &BTreeSet<SessionId>,
) -> Option<&'a WorkerId> {
    let (worker, _) = keyspace.settings().get(&partition)?.pin.as_ref()?;
    let session = state.session_of(worker)?;
    receive(state, keyspace, session, absent).is_ok().then_some(worker)
}

/// The same for the move that is in flight to it: a freeze does not stop what has begun.
pub(super) fn receive_in_flight(
    state: &State,
    keyspace: &Keyspace,
    session: &Session,
    absent: &BTreeSet<SessionId>,
) -> Result<(), Unfit> {
    match receive(state, keyspace, session, absent) {
        Err(Unfit::Frozen) => Ok(()),
        answer => answer,
    }
}

/// Why a move that an operator asks for cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMove {
    /// There is no such partition.
    NoSuchPartition(PartitionKey),
    /// The worker has no session.
    NoSuchWorker(WorkerId),
    /// The worker may not have it.
    Unfit(WorkerId, Unfit),
    /// What is frozen.
    Frozen(Subject),
    /// It is on its way to another worker.
    OnItsWay {
        /// Where it goes.
        to: WorkerId,
        /// The move.
        move_id: MoveId,
    },
    /// Nobody owns it, and it cools.
    Cools,
    /// It is pinned to another worker, which may have it and would get it back.
    Pinned(WorkerId),
}

/// What brings the partition to the worker because an operator says so: a planned move, a grant when nobody owns it, and
/// nothing when the worker has it, whatever is frozen.
///
/// A pin goes before it: what would be taken back is not begun. A pin whose worker may not have the partition holds nothing up.
///
/// # Errors
/// [`NoMove`].
pub fn operators_move(
    state: &State,
    absent: &BTreeSet<SessionId>,
    key: PartitionKey,
    to: &WorkerId,
) -> Result<Option<Command>, NoMove> {
    let found = state.keyspace(key.keyspace).zip(state.partition(key));
    let (keyspace, partition) = found.ok_or(NoMove::NoSuchPartition(key))?;
    let target = state.session_of(to).ok_or_else(|| NoMove::NoSuchWorker(to.clone()))?;
    if is_with(partition, target.id()) {
        return Ok(None);
    }
    let pinned = pinned_to(state, keyspace, key.partition, absent).filter(|pin| *pin != to);
    if let Some(pin) = pinned.filter(|_| !mutant!("moved-from-its-pin")) {
        return Err(NoMove::Pinned(pin.clone()));
    }
    receive(state, keyspace, target, absent).map_err(|why| NoMove::Unfit(to.clone(), why))?;
    let why = GrantReason::Operator;
    let drain = |epoch, deadline| Command::Drain { partition: key, epoch, to: to.clone(), deadline, why };
    match (partition.phase(), partition.epoch()) {
        (Phase::Vacant, replaces) => {
            Ok(Some(Command::Grant { partition: key, replaces, to: target.id(), why }))
        }
        (Phase::Owned { .. }, Some(epoch)) => match state.freeze_of_move(key, to) {
            Some(frozen) => Err(NoMove::Frozen(frozen)),
            None => Ok(Some(drain(epoch, keyspace.policy().drain_deadline()))),
        },
        // Draining again answers with the move in progress, and changes nothing.
        (Phase::Draining(move_), Some(epoch)) if move_.to == *to => Ok(Some(drain(epoch, move_.deadline))),
        (Phase::Draining(move_), _) => Err(NoMove::OnItsWay { to: move_.to.clone(), move_id: move_.move_id }),
        // An owner without an epoch: a grant mints one, so there is none.
        (Phase::Cooling(_) | Phase::Owned { .. }, _) => Err(NoMove::Cools),
    }
}

fn is_with(partition: &Partition, session: SessionId) -> bool {
    matches!(partition.phase(), Phase::Owned { session: owner, .. } if *owner == session)
}
