//! A plan that an operator approved: which of its moves begin now, and which cannot be made any more.

use super::MAX_COMMANDS;
use super::budget::Budget;
use super::receive::{Unfit, receive};
use crate::ids::{Epoch, KeyspaceId, SessionId};
use crate::mutant;
use crate::state::{
    ApprovedPlan, Command, GrantReason, Phase, PlanMove, PlanStep, SkipReason, State, Subject,
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

/// What is to become of a move now.
enum Next {
    /// From this epoch on.
    Begin(Epoch),
    Wait,
    Skip(SkipReason),
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
            match (next(state, planned, absent), keyspace) {
                (Next::Begin(epoch), Some(keyspace)) => {
                    budget.begins(keyspace, key, now);
                    begin.push(Command::Drain {
                        partition: key,
                        epoch,
                        to: planned.to.clone(),
                        deadline: keyspace.policy().drain_deadline(),
                        why: GrantReason::Plan,
                    });
                }
                (Next::Skip(why), _) => {
                    skip.push(Command::SkipPlanned { plan: plan.id, partition: key, why });
                }
                (Next::Wait | Next::Begin(_), _) => {}
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

fn next(state: &State, planned: &PlanMove, absent: &BTreeSet<SessionId>) -> Next {
    let key = planned.partition;
    let (Some(keyspace), Some(now)) = (state.keyspace(key.keyspace), state.partition(key)) else {
        return Next::Skip(SkipReason::MovedOn);
    };
    let arrives = planned.arrives && now.epoch() == Some(planned.epoch);
    if arrives && !matches!(now.phase(), Phase::Owned { .. }) {
        return Next::Wait;
    }
    let epoch = state.epoch_to_end(planned);
    let owner = now.owner().and_then(|owner| state.session(owner));
    let overtaken = epoch.is_none() || owner.is_none_or(|owner| *owner.worker() != planned.from);
    if overtaken && !mutant!("overtaken-move-kept") {
        return Next::Skip(SkipReason::MovedOn);
    }
    let epoch = epoch.unwrap_or(planned.epoch);
    match now.phase() {
        // Ready or not: an owner that never gets ready has to be emptied, too.
        Phase::Owned { .. } => {}
        Phase::Draining(_) => return Next::Wait,
        Phase::Vacant | Phase::Cooling(_) => return Next::Skip(SkipReason::MovedOn),
    }
    let Some(target) = state.session_of(&planned.to) else { return Next::Skip(SkipReason::TargetGone) };
    let frozen = state.freeze_of_move(key, &planned.to);
    match (receive(state, keyspace, target, absent), frozen) {
        (Err(Unfit::Frozen), _) | (_, Some(Subject::Partition(_) | Subject::Worker(_))) => {
            Next::Skip(SkipReason::Frozen)
        }
        (Err(Unfit::Suspected | Unfit::Absent), _) => Next::Wait,
        (
            Err(Unfit::NotServing | Unfit::Leaving | Unfit::Drained | Unfit::Cordoned | Unfit::Ineligible(_)),
            _,
        ) => Next::Skip(SkipReason::TargetGone),
        (Ok(()), Some(_)) if mutant!("plan-through-freeze") => Next::Begin(epoch),
        (Ok(()), Some(Subject::Cluster | Subject::Keyspace(_))) => Next::Wait,
        (Ok(()), None) => Next::Begin(epoch),
    }
}
