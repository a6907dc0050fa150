//! Plans that an operator approved: the moves, and how far they are.
//!
//! A plan is put into the log before its first move begins, in entries that each fit the bounds, and starts when the
//! last of them has applied. From then on whoever leads carries it out, within the budget, and a leader that fails takes
//! nothing of it along.

use super::State;
use super::apply::Change;
use super::outcome::{Event, Outcome, Refused};
use super::partition::Partition;
use super::undo::Undo;
use crate::ids::{Epoch, KeyspaceId, LogIndex, PartitionId, PartitionKey, Revision, WorkerId};
use crate::mutant;
use std::collections::BTreeSet;

/// How many moves a plan may have.
pub const MAX_PLAN_MOVES: u32 = 1_000_000;
/// How many plans are remembered: the one before the last can still be undone while the last is being written.
pub const PLANS_LEN: usize = 2;

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovedPlan {
    /// Its id: the log index of the directive that approved it.
    pub id: LogIndex,
    /// The map that it was made from.
    pub map: Revision,
    /// How many moves it has.
    pub size: u32,
    /// Those in the log so far, ascending by partition.
    pub moves: Vec<PlanMove>,
    /// Where it is.
    pub stage: PlanStage,
    /// How many of those in the log have not begun.
    pub waiting: u32,
}

/// Where a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanStage {
    /// Its moves are still being written into the log. None has begun.
    Open,
    /// Its moves are being carried out.
    Running,
    /// Every move has begun or was passed over.
    Done,
    /// An operator stopped it. What had begun goes on.
    Cancelled,
}

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanMove {
    /// The partition.
    pub partition: PartitionKey,
    /// The epoch under which it is to be taken from its owner. At another one the move is passed over.
    pub epoch: Epoch,
    /// The owner.
    pub from: WorkerId,
    /// Who shall have it next.
    pub to: WorkerId,
    /// What has become of it.
    pub step: PlanStep,
}

/// What has become of a plan's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanStep {
    /// It has not begun.
    Waiting,
    /// Its partition drains, or has been granted on.
    Begun,
    /// It was passed over.
    Skipped(SkipReason),
}

/// Why a planned move was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// The partition has another epoch than the plan was made for, or no owner.
    MovedOn,
    /// The worker it should have gone to has no session, or takes nothing.
    TargetGone,
    /// The partition or one of the workers was frozen meanwhile.
    Frozen,
}

impl ApprovedPlan {
    fn place(&self, partition: PartitionKey) -> Option<usize> {
        self.moves.binary_search_by_key(&partition, |planned| planned.partition).ok()
    }
}

impl State {
    /// The plans remembered, oldest first; at most one is open or running.
    pub fn plans(&self) -> impl DoubleEndedIterator<Item = &ApprovedPlan> {
        self.plans.iter()
    }

    /// The plan that is being carried out.
    pub fn running_plan(&self) -> Option<&ApprovedPlan> {
        self.plans.iter().find(|plan| plan.stage == PlanStage::Running)
    }

    /// Whether a move can be made as it was planned.
    fn fits(&self, planned: &PlanMove) -> Result<(), Refused> {
        let key = planned.partition;
        let partition = self.partition(key).ok_or(Refused::NoSuchPartition(key))?;
        if partition.epoch() != Some(planned.epoch) && !mutant!("plan-move-of-another-epoch") {
            let (named, current) = (Some(planned.epoch), partition.epoch());
            return Err(Refused::StaleEpoch { partition: key, named, current });
        }
        let owner = partition.owner().ok_or(Refused::NotOwned(key))?;
        let owner = self.session(owner).ok_or(Refused::NotOwned(key))?;
        if *owner.worker() != planned.from || planned.from == planned.to {
            return Err(Refused::NoSuchMove(key));
        }
        Ok(())
    }

    /// Whether no partition of a keyspace was granted since: a plan that balances one map need not balance the next,
    /// also when none of the partitions that it moves has moved.
    fn unchanged_since(&self, map: Revision, keyspace: KeyspaceId) -> Result<(), Refused> {
        let partitions = self.keyspace(keyspace).into_iter().flat_map(|keyspace| &keyspace.partitions);
        let granted = |partition: &Partition| {
            partition.history().last().is_some_and(|t| t.at.get() > map.get())
                && !mutant!("plan-of-another-map")
        };
        match (0u32..).zip(partitions).find(|(_, partition)| granted(partition)) {
            Some((number, partition)) => {
                let partition_id = PartitionId::new(number);
                let key = PartitionKey { keyspace, partition: partition_id };
                Err(Refused::StaleEpoch { partition: key, named: None, current: partition.epoch() })
            }
            None => Ok(()),
        }
    }

    pub(super) fn unopen_plan(&mut self, gone: Vec<ApprovedPlan>) {
        self.plans.pop_back();
        self.plans.extend(gone);
        self.plans.make_contiguous().sort_by_key(|plan| plan.id);
    }

    pub(super) fn unextend_plan(&mut self, id: LogIndex, before: usize) {
        if let Some(plan) = self.plan_mut(id) {
            plan.moves.truncate(before);
            plan.waiting = before as u32;
            plan.stage = PlanStage::Open;
        }
    }

    pub(super) fn unstep_plan(&mut self, id: LogIndex, place: usize) {
        if let Some(plan) = self.plan_mut(id) {
            plan.moves[place].step = PlanStep::Waiting;
            plan.waiting += 1;
            plan.stage = PlanStage::Running;
        }
    }

    pub(super) fn plan_mut(&mut self, id: LogIndex) -> Option<&mut ApprovedPlan> {
        self.plans.iter_mut().find(|plan| plan.id == id)
    }
}

impl Change<'_> {
    /// Opens a plan of so many moves. One that was never completed makes room: whoever wrote it has given up, or has
    /// failed. A running one does not: two plans at once would undo each other's moves.
    pub(super) fn open_plan(&mut self, size: u32, map: Option<Revision>) -> Result<Outcome, Refused> {
        if let Some(running) = self.state.running_plan() {
            return Err(Refused::PlanRunning(running.id));
        }
        if !(1..=MAX_PLAN_MOVES).contains(&size) {
            let bound = u64::from(MAX_PLAN_MOVES);
            return Err(Refused::Limit {
                what: "the number of a plan's moves, which is 1 at the least,",
                bound,
            });
        }
        let (gone, kept) = std::mem::take(&mut self.state.plans)
            .into_iter()
            .partition::<Vec<_>, _>(|plan| plan.stage == PlanStage::Open);
        self.state.plans = kept.into();
        let oldest = (self.state.plans.len() >= PLANS_LEN).then(|| self.state.plans.pop_front()).flatten();
        self.journal.push(Undo::PlanOpened(oldest.into_iter().chain(gone).collect()));
        let now = Revision::new(self.index.get());
        let (moves, stage, map) = (Vec::new(), PlanStage::Open, map.map_or(now, |map| map.min(now)));
        self.state.plans.push_back(ApprovedPlan { id: self.index, map, size, moves, stage, waiting: 0 });
        Ok(Outcome::Planned(self.index))
    }

    /// Adds moves to an open plan, in the order of their partitions. It starts with the last one.
    ///
    /// Each is held against the map when it comes, and again with all others when the plan starts: what was approved
    /// was approved of one map.
    pub(super) fn extend_plan(&mut self, id: LogIndex, moves: &[PlanMove]) -> Result<Outcome, Refused> {
        moves.iter().try_for_each(|planned| self.state.fits(planned))?;
        let plan = self.state.plans.iter().find(|plan| plan.id == id && plan.stage == PlanStage::Open);
        let plan = plan.ok_or(Refused::NoOpenPlan(id))?;
        let before = plan.moves.len();
        let chain = plan.moves.last().into_iter().chain(moves).map(|planned| planned.partition);
        if !chain.is_sorted_by(|a, b| a < b) || before + moves.len() > plan.size as usize {
            return Err(Refused::PlanOutOfOrder(id));
        }
        let starts = before + moves.len() == plan.size as usize;
        if starts {
            plan.moves.iter().try_for_each(|planned| self.state.fits(planned))?;
            let keyspaces: BTreeSet<KeyspaceId> =
                plan.moves.iter().chain(moves).map(|planned| planned.partition.keyspace).collect();
            keyspaces.into_iter().try_for_each(|keyspace| self.state.unchanged_since(plan.map, keyspace))?;
        }
        if let Some(plan) = self.state.plan_mut(id) {
            plan.waiting += moves.len() as u32;
            plan.moves.extend(moves.iter().cloned().map(|m| PlanMove { step: PlanStep::Waiting, ..m }));
            if starts {
                plan.stage = PlanStage::Running;
            }
        }
        self.journal.push(Undo::PlanExtended(id, before));
        self.events.push(Event::PlanChanged(id));
        Ok(Outcome::Done)
    }

    /// A move that cannot be made any more. The rest of the plan goes on.
    pub(super) fn skip_planned(&mut self, id: LogIndex, partition: PartitionKey, why: SkipReason) -> Outcome {
        self.planned(id, partition, PlanStep::Skipped(why))
    }

    /// Notes that a running plan's move has begun. Of any other directive than a plan it notes nothing.
    pub(super) fn begun(&mut self, id: LogIndex, partition: PartitionKey) {
        self.planned(id, partition, PlanStep::Begun);
    }

    fn planned(&mut self, id: LogIndex, partition: PartitionKey, step: PlanStep) -> Outcome {
        let running = self.state.plan_mut(id).filter(|plan| plan.stage == PlanStage::Running);
        let Some(plan) = running else { return Outcome::Unchanged };
        let waiting = |place: &usize| plan.moves[*place].step == PlanStep::Waiting;
        let Some(place) = plan.place(partition).filter(waiting) else { return Outcome::Unchanged };
        plan.moves[place].step = step;
        plan.waiting -= 1;
        if plan.waiting == 0 {
            plan.stage = PlanStage::Done;
        }
        self.journal.push(Undo::PlanStep(id, place));
        self.events.push(Event::PlanChanged(id));
        Outcome::Done
    }

    /// Stops a plan. What has begun goes on.
    pub(super) fn cancel_plan(&mut self, id: LogIndex) -> Result<Outcome, Refused> {
        let plan = self.state.plan_mut(id).ok_or(Refused::NoOpenPlan(id))?;
        let before = plan.stage;
        if matches!(before, PlanStage::Done | PlanStage::Cancelled) {
            return Ok(Outcome::Unchanged);
        }
        plan.stage = PlanStage::Cancelled;
        self.journal.push(Undo::PlanStage(id, before));
        self.events.push(Event::PlanChanged(id));
        Ok(Outcome::Done)
    }
}
