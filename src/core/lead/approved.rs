//! A plan that an operator approved: which of its moves begin now, and which cannot be made any more.

use super::MAX_COMMANDS;
use super::pace::Pace;
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, Revision, SessionId};
use crate::state::{
    ApprovedPlan, Command, GrantReason, Keyspace, Phase, PlanMove, PlanStep, SkipReason, State,
    WorkerSettings,
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
    pub fn due(
        &mut self,
        now: Instant,
        state: &State,
        absent: &BTreeSet<SessionId>,
        pace: &mut Pace,
    ) -> Vec<Vec<Command>> {
        let Some(plan) = state.running_plan() else {
            self.looked = None;
            return Vec::new();
        };
        let look = Some((plan.id, state.revision()));
        if self.looked == look && self.again_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.looked = look;
        self.again_at = None;
        self.step(now, state, plan, absent, pace)
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
            let key = planned.partition;
            match next(state, planned, absent) {
                Next::Wait => {}
                Next::Skip(why) => skip.push(Command::SkipPlanned { plan: plan.id, partition: key, why }),
                Next::Begin => {
                    let Some(keyspace) = state.keyspace(key.keyspace) else { continue };
                    let room = rooms.entry(key.keyspace).or_insert_with(|| {
                        let rate = pace.room(key.keyspace, keyspace.policy().moves_per_minute(), now);
                        if rate == 0 {
                            let opens = pace.opens(key.keyspace);
                            self.again_at = self.again_at.into_iter().chain(opens).min();
                        }
                        rate.min(room_for_moves(keyspace))
                    });
                    if *room > 0 {
                        *room -= 1;
                        pace.began(key.keyspace, 1, now);
                        begin.push(Command::Drain {
                            partition: key,
                            epoch: planned.epoch,
                            to: planned.to.clone(),
                            deadline: keyspace.policy().drain_deadline(),
                            why: GrantReason::Plan,
                        });
                    }
                }
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

/// How many more moves the keyspace's budget allows. A move is in flight until its new owner is ready.
fn room_for_moves(keyspace: &Keyspace) -> usize {
    let in_flight = |phase: &Phase| match phase {
        Phase::Draining(_) | Phase::Owned { ready: false, .. } => true,
        Phase::Owned { ready: true, .. } | Phase::Vacant | Phase::Cooling(_) => false,
    };
    let budget = keyspace.policy().max_moves_in_flight() as usize;
    budget.saturating_sub(keyspace.partitions().iter().filter(|p| in_flight(p.phase())).count())
}

fn next(state: &State, planned: &PlanMove, absent: &BTreeSet<SessionId>) -> Next {
    let PartitionKey { keyspace: id, partition } = planned.partition;
    let (Some(keyspace), Some(now)) = (state.keyspace(id), state.partition(planned.partition)) else {
        return Next::Skip(SkipReason::MovedOn);
    };
    if now.epoch() != Some(planned.epoch) {
        return Next::Skip(SkipReason::MovedOn);
    }
    match now.phase() {
        Phase::Owned { ready: true, .. } => {}
        Phase::Owned { ready: false, .. } | Phase::Draining(_) => return Next::Wait,
        Phase::Vacant | Phase::Cooling(_) => return Next::Skip(SkipReason::MovedOn),
    }
    let settings = |worker| state.worker_settings().get(worker);
    let target = state.session_of(&planned.to);
    let takes =
        |set: Option<&WorkerSettings>| set.is_none_or(|set| set.drained.is_none() && set.cordoned.is_none());
    match target {
        Some(session)
            if session.keyspaces().contains(&id) && !session.withdrawn() && takes(settings(&planned.to)) =>
        {
            let frozen = |worker| settings(worker).is_some_and(|set| set.frozen.is_some());
            let partition_frozen =
                keyspace.settings().get(&partition).is_some_and(|set| set.frozen.is_some());
            if partition_frozen || frozen(&planned.from) || frozen(&planned.to) {
                return Next::Skip(SkipReason::Frozen);
            }
            let stopped = state.frozen().is_some() || keyspace.frozen().is_some();
            let away = absent.contains(&session.id()) || session.suspicion().is_some();
            if stopped || away { Next::Wait } else { Next::Begin }
        }
        _ => Next::Skip(SkipReason::TargetGone),
    }
}
