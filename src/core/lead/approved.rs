//! A plan that an operator approved: which of its moves begin now, and which cannot be made any more.

use super::MAX_COMMANDS;
use super::budget::Budget;
use super::receive::{PinElsewhere, Unfit, pinned_elsewhere, receive, unfit};
use crate::ids::{Epoch, KeyspaceId, SessionId, WorkerId};
use crate::mutant;
use crate::state::{
    ApprovedPlan, Command, GrantReason, Keyspace, Phase, PlanMove, PlanStep, Session, SkipReason, State,
    Subject,
};
use crate::time::Instant;
use std::collections::BTreeSet;

/// What one leadership knows of the plan it carries out.
#[derive(Clone, Debug, Default, Hash)]
pub struct Approved {
    /// Its last look found nothing to do, and nothing has happened since.
    rests: bool,
    /// Something waits for time to pass.
    again_at: Option<Instant>,
}

/// What a leader does with a move of a plan as things are, when there is room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It begins, and ends this epoch.
    Begins(Epoch),
    /// It waits, and may begin later.
    Waits(Hindrance),
    /// It is passed over for good.
    PassedOver(SkipReason, Hindrance),
}

/// What stands in the way of a move of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// The partition has another epoch or another owner than the plan says, or none.
    MovedOn,
    /// It is on its way, and has to arrive first.
    OnItsWay,
    /// The worker has no session.
    NoSession(WorkerId),
    /// The worker may not have it, for all of these reasons.
    Unfit(WorkerId, Vec<Unfit>),
    /// This is frozen.
    Frozen(Subject),
    /// It is pinned to another worker, which may have it and takes it back.
    Pinned(WorkerId),
    /// It is pinned to another worker, which may take it back as soon as this has passed.
    PinAway(WorkerId, Unfit),
}

impl Approved {
    /// Something has happened: a partition or a worker is not what it was, or something was set or let go on.
    pub fn look_again(&mut self) {
        self.rests = false;
    }

    /// The commands for the moves of the running plan: those that begin within the budgets, and those to pass over. A
    /// move that waits holds up no other.
    ///
    /// What is handed out may be lost on its way to the log, so the plan is looked at again until a look finds nothing to
    /// do; only then does it wait for something to happen.
    pub fn due(
        &mut self,
        now: Instant,
        state: &State,
        absent: &BTreeSet<SessionId>,
        budget: &mut Budget,
    ) -> Vec<Vec<Command>> {
        let waits = self.rests && self.again_at.is_none_or(|at| now < at);
        let Some(plan) = state.running_plan().filter(|_| !waits) else { return Vec::new() };
        self.again_at = None;
        let entries = self.step(now, state, plan, absent, budget);
        self.rests = entries.is_empty();
        entries
    }

    fn step(
        &mut self,
        now: Instant,
        state: &State,
        plan: &ApprovedPlan,
        absent: &BTreeSet<SessionId>,
        budget: &mut Budget,
    ) -> Vec<Vec<Command>> {
        let (mut begin, mut skip) = (Vec::new(), Vec::new());
        let mut full: BTreeSet<KeyspaceId> = BTreeSet::new();
        for planned in plan.moves.iter().filter(|planned| planned.step == PlanStep::Waiting) {
            let key = planned.partition;
            let keyspace = state.keyspace(key.keyspace);
            // Of a large plan most moves wait for room. They are not looked at before there is some.
            if let Some(keyspace) = keyspace.filter(|keyspace| !budget.has_room_for(keyspace, key, now)) {
                if full.insert(key.keyspace) {
                    self.again_at = self.again_at.into_iter().chain(budget.opens(keyspace, now)).min();
                }
                continue;
            }
            // Nobody reads here what stands in the way, and a plan may have a million moves.
            match (judge(state, planned, absent, |_, _| Vec::new()), keyspace) {
                (Prospect::Begins(epoch), Some(keyspace)) => {
                    budget.begins(keyspace, key, now);
                    begin.push(Command::Drain {
                        partition: key,
                        epoch,
                        to: planned.to.clone(),
                        deadline: keyspace.policy().drain_deadline(),
                        why: GrantReason::Plan,
                    });
                }
                (Prospect::PassedOver(why, _), _) => {
                    skip.push(Command::SkipPlanned { plan: plan.id, partition: key, why });
                }
                (Prospect::Waits(_) | Prospect::Begins(_), _) => {}
            }
        }
        // What begins is refused when the plan was cancelled meanwhile, so what is passed over goes in entries of its own.
        let skipped = skip.chunks(MAX_COMMANDS).map(<[Command]>::to_vec);
        let under = |moves: &[Command]| {
            let directive = std::iter::once(Command::Under { directive: plan.id });
            directive.chain(moves.iter().cloned()).collect()
        };
        skipped.chain(begin.chunks(MAX_COMMANDS - 1).map(under)).collect()
    }
}

/// What becomes of a move of a plan that has not begun, as things are, when there is room for it; one that cannot be made any more
/// is passed over then as well. Of a plan that is still to be approved it is what would become of it.
pub fn prospect(state: &State, planned: &PlanMove, absent: &BTreeSet<SessionId>) -> Prospect {
    judge(state, planned, absent, |keyspace, target| unfit(state, keyspace, target, absent))
}

/// The same; `all` tells what stands in the way of a worker that may not have it.
fn judge(
    state: &State,
    planned: &PlanMove,
    absent: &BTreeSet<SessionId>,
    all: impl Fn(&Keyspace, &Session) -> Vec<Unfit>,
) -> Prospect {
    let moved_on = || Prospect::PassedOver(SkipReason::MovedOn, Hindrance::MovedOn);
    let key = planned.partition;
    let (Some(keyspace), Some(now)) = (state.keyspace(key.keyspace), state.partition(key)) else {
        return moved_on();
    };
    let arrives = planned.arrives && now.epoch() == Some(planned.epoch);
    if arrives && !matches!(now.phase(), Phase::Owned { .. }) {
        return Prospect::Waits(Hindrance::OnItsWay);
    }
    let epoch = state.epoch_to_end(planned);
    let owner = now.owner().and_then(|owner| state.session(owner));
    let overtaken = epoch.is_none() || owner.is_none_or(|owner| *owner.worker() != planned.from);
    if overtaken && !mutant!("overtaken-move-kept") {
        return moved_on();
    }
    let epoch = epoch.unwrap_or(planned.epoch);
    match now.phase() {
        // Ready or not: an owner that never gets ready has to be emptied, too.
        Phase::Owned { .. } => {}
        Phase::Draining(_) => return Prospect::Waits(Hindrance::OnItsWay),
        Phase::Vacant | Phase::Cooling(_) => return moved_on(),
    }
    let to = &planned.to;
    let Some(target) = state.session_of(to) else {
        return Prospect::PassedOver(SkipReason::TargetGone, Hindrance::NoSession(to.clone()));
    };
    let hindered = || Hindrance::Unfit(to.clone(), all(keyspace, target));
    match receive(state, keyspace, target, absent) {
        Ok(()) => {}
        Err(Unfit::Frozen) => return Prospect::PassedOver(SkipReason::Frozen, hindered()),
        Err(Unfit::Suspected | Unfit::Absent) => return Prospect::Waits(hindered()),
        Err(Unfit::NotServing | Unfit::Leaving | Unfit::Drained | Unfit::Cordoned | Unfit::Ineligible(_)) => {
            return Prospect::PassedOver(SkipReason::TargetGone, hindered());
        }
    }
    match pinned_elsewhere(state, absent, key, to).filter(|_| !mutant!("moved-from-its-pin")) {
        Some(PinElsewhere::Counts(pin)) => {
            return Prospect::PassedOver(SkipReason::Pinned, Hindrance::Pinned(pin));
        }
        Some(PinElsewhere::MayCount(pin, why)) => return Prospect::Waits(Hindrance::PinAway(pin, why)),
        Some(PinElsewhere::NoEffect(_)) | None => {}
    }
    match state.freeze_of_move(key, to) {
        None => Prospect::Begins(epoch),
        Some(what @ (Subject::Partition(_) | Subject::Worker(_))) => {
            Prospect::PassedOver(SkipReason::Frozen, Hindrance::Frozen(what))
        }
        Some(Subject::Cluster | Subject::Keyspace(_) | Subject::Lock(_))
            if mutant!("plan-through-freeze") =>
        {
            Prospect::Begins(epoch)
        }
        Some(what @ (Subject::Cluster | Subject::Keyspace(_) | Subject::Lock(_))) => {
            Prospect::Waits(Hindrance::Frozen(what))
        }
    }
}
