//! May this worker be given a partition: the one answer, for grants, for moves that leaders plan or operators approve, and
//! for those that operators ask for.

use super::picture::standing_by_settings;
use crate::ids::{MoveId, PartitionKey, SessionId, WorkerId};
use crate::mutant;
use crate::placement::{Constraint, WorkerStanding, unmet};
use crate::state::{
    Command, GrantReason, Keyspace, Partition, Phase, Session, State, Subject, WorkerSettings,
};
use std::collections::BTreeSet;

/// Why a worker is given nothing in a keyspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// What a partition's pin to another worker means for a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinElsewhere {
    /// Its worker may have the partition, and takes it back.
    Counts(WorkerId),
    /// Its worker may have the partition, but is suspected or has no connection. That passes in a moment, or its session
    /// ends: to move the partition before that is known may mean to move it twice.
    MayCount(WorkerId, Unfit),
    /// Its worker may not have the partition, and nobody can tell until when: it holds up nothing.
    NoEffect(WorkerId),
}

/// The pin of a partition to another worker than this one; `None` without such a pin.
pub fn pinned_elsewhere(
    state: &State,
    absent: &BTreeSet<SessionId>,
    key: PartitionKey,
    to: &WorkerId,
) -> Option<PinElsewhere> {
    let keyspace = state.keyspace(key.keyspace)?;
    let (worker, _) = keyspace.settings().get(&key.partition)?.pin.as_ref().filter(|(pin, _)| pin != to)?;
    let may_have_it = state.pin_of(key).and_then(|pin| state.session_of(pin));
    Some(match may_have_it.map(|session| receive(state, keyspace, session, absent)) {
        Some(Ok(())) => PinElsewhere::Counts(worker.clone()),
        Some(Err(why @ (Unfit::Suspected | Unfit::Absent))) => PinElsewhere::MayCount(worker.clone(), why),
        Some(Err(_)) | None => PinElsewhere::NoEffect(worker.clone()),
    })
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
    /// It is pinned to another worker, which may have it and takes it back.
    Pinned(WorkerId),
    /// It is pinned to another worker, which may take it back as soon as this has passed.
    PinAway(WorkerId, Unfit),
}

/// What brings the partition to the worker because an operator says so: a planned move, a grant when nobody owns it, and
/// nothing when the worker has it, whatever is frozen.
///
/// A pin goes before it: what would be taken back is not begun. A pin whose worker may not have the partition holds nothing up,
/// and one whose worker is only suspected or without a connection does. What is on its way to the worker has begun.
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
    let is_on_its_way = matches!(partition.phase(), Phase::Draining(move_) if move_.to == *to);
    let pin = pinned_elsewhere(state, absent, key, to).filter(|_| !is_on_its_way);
    match pin.filter(|_| !mutant!("moved-from-its-pin")) {
        Some(PinElsewhere::Counts(pin)) => return Err(NoMove::Pinned(pin)),
        Some(PinElsewhere::MayCount(pin, why)) => return Err(NoMove::PinAway(pin, why)),
        Some(PinElsewhere::NoEffect(_)) | None => {}
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
        // Draining again answers with the move in progress, and changes nothing, whatever was pinned meanwhile.
        (Phase::Draining(move_), Some(epoch)) if move_.to == *to => Ok(Some(drain(epoch, move_.deadline))),
        (Phase::Draining(move_), _) => Err(NoMove::OnItsWay { to: move_.to.clone(), move_id: move_.move_id }),
        // An owner without an epoch: a grant mints one, so there is none.
        (Phase::Cooling(_) | Phase::Owned { .. }, _) => Err(NoMove::Cools),
    }
}

fn is_with(partition: &Partition, session: SessionId) -> bool {
    matches!(partition.phase(), Phase::Owned { session: owner, .. } if *owner == session)
}
