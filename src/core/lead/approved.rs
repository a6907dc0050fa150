//! A plan that an operator approved: which of its moves begin now, and which cannot be made any more.

use super::MAX_COMMANDS;
use super::pace::Pace;
use super::picture::{room_for_moves, standing};
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, Revision, SessionId};
use crate::placement::WorkerStanding;
use crate::state::{
    ApprovedPlan, Command, GrantReason, Keyspace, Phase, PlanMove, PlanStep, Policy, Session, SkipReason,
    State,
};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// What one leadership knows of the plan it carries out.
#[derive(Clone, Debug, Default, Hash)]
pub struct Approved {
    /// The plan, and the map it was looked at last.
    looked: Option<(LogIndex, Revision)>,
    /// Something waits for time to pass.
    again_at: Option<Instant>,
}

/// What is to become of a move now.
enum Next {
    Begin,
    Wait,
    Skip(SkipReason),
}

impl Approved {
    /// Looks again although the map has not changed: a worker is back, or something was let go on.
    pub fn look_again(&mut self) {
        self.looked = None;
    }

    /// The commands for the moves of the running plan: those that begin within the budgets, and those to pass over. A
    /// move that waits holds up no other.
    ///
    /// What is handed out may be lost on its way to the log, so the plan is looked at again until a look finds nothing to
    /// do; only then does it wait for the map to change.
    pub fn due(
        &mut self,
        now: Instant,
        state: &State,
        absent: &BTreeSet<SessionId>,
        pace: &mut Pace,
    ) -> Vec<Vec<Command>> {
        let look = state.running_plan().map(|plan| (plan.id, state.revision()));
        let waits = self.looked == look && self.again_at.is_none_or(|at| now < at);
        let Some(plan) = state.running_plan().filter(|_| !waits) else { return Vec::new() };
        self.again_at = None;
        let entries = self.step(now, state, plan, absent, pace);
        self.looked = look.filter(|_| entries.is_empty());
        entries
    }

    fn step(
        &mut self,
        now: Instant,
        state: &State,
        plan: &ApprovedPlan,
        absent: &BTreeSet<SessionId>,
        pace: &mut Pace,
    ) -> Vec<Vec<Command>> {
        let mut rooms: BTreeMap<KeyspaceId, usize> = BTreeMap::new();
        let (mut begin, mut skip) = (Vec::new(), Vec::new());
        for planned in plan.moves.iter().filter(|planned| planned.step == PlanStep::Waiting) {
            let PartitionKey { keyspace: id, .. } = planned.partition;
            let policy = state.keyspace(id).map(Keyspace::policy);
            let room = rooms.entry(id).or_insert_with(|| {
                let rate = pace.room(id, policy.map_or(0, Policy::moves_per_minute), now);
                if rate == 0 {
                    self.again_at = self.again_at.into_iter().chain(pace.opens(id)).min();
                }
                rate.min(state.keyspace(id).map_or(usize::MAX, room_for_moves))
            });
            // Of a large plan most moves wait for room. They are not looked at before there is some.
            if *room == 0 {
                continue;
            }
            match (next(state, planned, absent), policy) {
                (Next::Begin, Some(policy)) => {
                    *room -= 1;
                    pace.began(id, 1, now);
                    begin.push(Command::Drain {
                        partition: planned.partition,
                        epoch: planned.epoch,
                        to: planned.to.clone(),
                        deadline: policy.drain_deadline(),
                        why: GrantReason::Plan,
                    });
                }
                (Next::Skip(why), _) => {
                    skip.push(Command::SkipPlanned { plan: plan.id, partition: planned.partition, why });
                }
                (Next::Wait | Next::Begin, _) => {}
            }
        }
        // A drain whose owner has changed meanwhile is refused and takes its entry with it, so what is passed over goes in
        // entries of its own.
        let skipped = skip.chunks(MAX_COMMANDS).map(<[Command]>::to_vec);
        let under = |moves: &[Command]| {
            let directive = std::iter::once(Command::Under { directive: plan.id });
            directive.chain(moves.iter().cloned()).collect()
        };
        skipped.chain(begin.chunks(MAX_COMMANDS - 1).map(under)).collect()
    }
}

/// How many moves these entries begin, by keyspace: balancing has so much less room.
pub(super) fn begun(entries: &[Vec<Command>]) -> BTreeMap<KeyspaceId, usize> {
    let mut begun = BTreeMap::new();
    for command in entries.iter().flatten() {
        if let Command::Drain { partition, .. } = command {
            *begun.entry(partition.keyspace).or_default() += 1;
        }
    }
    begun
}

fn next(state: &State, planned: &PlanMove, absent: &BTreeSet<SessionId>) -> Next {
    let PartitionKey { keyspace: id, partition } = planned.partition;
    let (Some(keyspace), Some(now)) = (state.keyspace(id), state.partition(planned.partition)) else {
        return Next::Skip(SkipReason::MovedOn);
    };
    if now.epoch() != Some(planned.epoch) {
        return Next::Skip(SkipReason::MovedOn);
    }
    let owner = match now.phase() {
        Phase::Owned { ready: true, session } => state.session(*session).map(Session::worker),
        Phase::Owned { ready: false, .. } | Phase::Draining(_) => return Next::Wait,
        Phase::Vacant | Phase::Cooling(_) => return Next::Skip(SkipReason::MovedOn),
    };
    let target = state.session_of(&planned.to);
    let Some(target) = target.filter(|to| to.keyspaces().contains(&id) && !to.withdrawn()) else {
        return Next::Skip(SkipReason::TargetGone);
    };
    let owner_settings = owner.and_then(|owner| state.worker_settings().get(owner));
    let partition_settings = keyspace.settings().get(&partition);
    if owner_settings.is_some_and(|set| set.frozen.is_some())
        || partition_settings.is_some_and(|set| set.frozen.is_some())
    {
        return Next::Skip(SkipReason::Frozen);
    }
    match standing(state, keyspace, target, absent) {
        WorkerStanding::Away => Next::Wait,
        WorkerStanding::Frozen => Next::Skip(SkipReason::Frozen),
        WorkerStanding::Drained | WorkerStanding::Cordoned | WorkerStanding::Ineligible(_) => {
            Next::Skip(SkipReason::TargetGone)
        }
        WorkerStanding::Takes if state.frozen().is_some() || keyspace.frozen().is_some() => Next::Wait,
        WorkerStanding::Takes => Next::Begin,
    }
}
