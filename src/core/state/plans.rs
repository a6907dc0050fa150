//! Plans that an operator approved: the moves, and how far they are.
//!
//! A plan is put into the log before its first move begins, in entries that each fit the bounds, and starts when the
//! last of them has applied. From then on whoever leads carries it out, within the budget, and a leader that fails takes
//! nothing of it along.

use super::State;
use super::apply::Change;
use super::directive::{DIRECTIVES_LEN, Directive};
use super::outcome::{Event, Outcome, Refused};
use super::partition::{Partition, Phase};
use super::undo::Undo;
use crate::ids::{Epoch, KeyspaceId, LogIndex, PartitionId, PartitionKey, Revision, WorkerId};
use crate::mutant;
use std::collections::BTreeSet;

/// How many moves a plan may have.
pub const MAX_PLAN_MOVES: u32 = 1_000_000;
/// How many plans that have started are remembered. One that is being written is not among them, and takes nobody's place
/// before it starts.
pub const PLANS_LEN: usize = 2;

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovedPlan {
    /// Its id: the log index of the directive that approved it.
    pub id: LogIndex,
    /// The map that it was made from, when no partition may have been granted since.
    pub map: Option<Revision>,
    /// The plan that it undoes.
    pub undoes: Option<LogIndex>,
    /// How many moves it has.
    pub size: u32,
    /// Those in the log so far, ascending by partition.
    pub moves: Vec<PlanMove>,
    /// Where it is.
    pub stage: PlanStage,
    /// How many of those in the log have not begun.
    pub waiting: u32,
    /// Who wants it and why. With its start that is a directive like any other as well: a plan that is refused in between was
    /// never one, and of one that is remembered it is known however many directives are given after it.
    pub given: Option<Box<Directive>>,
}

/// Where a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanStage {
    /// Its moves are still being written into the log. None has begun.
    Open,
    /// Its moves are being carried out.
    Running,
    /// Every move has begun or was passed over. Those that have begun may not have ended: see [`State::moving`].
    Done,
    /// An operator stopped it. What had begun goes on.
    Cancelled,
}

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanMove {
    /// The partition.
    pub partition: PartitionKey,
    /// The epoch under which it is to be taken from its owner. At another one the move is passed over. Of a partition that
    /// `arrives`, the epoch from which it is on its way.
    pub epoch: Epoch,
    /// The owner.
    pub from: WorkerId,
    /// Who shall have it next.
    pub to: WorkerId,
    /// It is on its way to `from`, and is taken from there once it has arrived. When the move begins, this is over.
    pub arrives: bool,
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
    /// The partition was pinned to another worker meanwhile, which may have it.
    Pinned,
}

impl ApprovedPlan {
    fn place(&self, partition: PartitionKey) -> Option<usize> {
        self.moves.binary_search_by_key(&partition, |planned| planned.partition).ok()
    }
}

impl State {
    /// The plans remembered, oldest first; at most one is open or running, and that is the last.
    pub fn plans(&self) -> impl DoubleEndedIterator<Item = &ApprovedPlan> {
        self.plans.iter()
    }

    /// The plan that is being carried out.
    pub fn running_plan(&self) -> Option<&ApprovedPlan> {
        self.plans.iter().find(|plan| plan.stage == PlanStage::Running)
    }

    /// Whether a plan of so many moves of this keyspace could be opened now, or once this one, when it is being carried out,
    /// is stopped.
    ///
    /// # Errors
    /// [`Refused`]: another is being carried out, it has no or too many moves, or the map has changed since.
    pub fn check_plan(
        &self,
        size: u32,
        keyspace: KeyspaceId,
        map: Option<Revision>,
        stopped: Option<LogIndex>,
    ) -> Result<(), Refused> {
        self.room_for_plan(size, stopped)?;
        map.map_or(Ok(()), |map| self.unchanged_since(map, keyspace))
    }

    /// Whether these moves could be part of a plan now.
    ///
    /// # Errors
    /// [`Refused`]: of the first that could not.
    pub fn check_moves(&self, moves: &[PlanMove]) -> Result<(), Refused> {
        moves.iter().try_for_each(|planned| self.fits(planned))
    }

    fn room_for_plan(&self, size: u32, stopped: Option<LogIndex>) -> Result<(), Refused> {
        if let Some(running) = self.running_plan().filter(|running| stopped != Some(running.id)) {
            return Err(Refused::PlanRunning(running.id));
        }
        if !(1..=MAX_PLAN_MOVES).contains(&size) {
            let what = "the number of a plan's moves, which is 1 at the least,";
            return Err(Refused::Limit { what, bound: u64::from(MAX_PLAN_MOVES) });
        }
        Ok(())
    }

    /// Whether a move can be made as it was planned.
    fn fits(&self, planned: &PlanMove) -> Result<(), Refused> {
        let key = planned.partition;
        let partition = self.partition(key).ok_or(Refused::NoSuchPartition(key))?;
        if planned.from == planned.to {
            return Err(Refused::NoSuchMove(key));
        }
        if planned.arrives && partition.is_leaving(planned) {
            return Ok(());
        }
        if self.epoch_to_end(planned).is_none() && !mutant!("plan-move-of-another-epoch") {
            let (named, current) = (Some(planned.epoch), partition.epoch());
            return Err(Refused::StaleEpoch { partition: key, named, current });
        }
        let owner = partition.owner().ok_or(Refused::NotOwned(key))?;
        let owner = self.session(owner).ok_or(Refused::NotOwned(key))?;
        if *owner.worker() != planned.from {
            return Err(Refused::NoSuchMove(key));
        }
        Ok(())
    }

    /// The epoch that a planned move would end now: the one that it names, or the one after it when the partition was to
    /// arrive first and has. `None` when the partition has moved on, or has not arrived yet.
    pub fn epoch_to_end(&self, planned: &PlanMove) -> Option<Epoch> {
        let partition = self.partition(planned.partition)?;
        let epoch = match planned.arrives {
            false => planned.epoch,
            true => partition.next_after(planned)?.epoch,
        };
        (partition.epoch() == Some(epoch)).then_some(epoch)
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

    /// The plan that is being written is no more.
    fn take_open_plan(&mut self) -> Option<ApprovedPlan> {
        let open = self.plans.back().is_some_and(|plan| plan.stage == PlanStage::Open);
        if open { self.plans.pop_back() } else { None }
    }

    pub(super) fn unopen_plan(&mut self, gone: Option<ApprovedPlan>) {
        self.plans.pop_back();
        self.plans.extend(gone);
    }

    pub(super) fn unextend_plan(&mut self, id: LogIndex, before: usize) {
        if let Some(plan) = self.plan_mut(id) {
            plan.moves.truncate(before);
            plan.waiting = before as u32;
        }
    }

    pub(super) fn unstart_plan(&mut self, id: LogIndex, oldest: Option<ApprovedPlan>) {
        if let Some(plan) = self.plan_mut(id) {
            plan.stage = PlanStage::Open;
        }
        oldest.into_iter().for_each(|plan| self.plans.push_front(plan));
    }

    pub(super) fn unstep_plan(&mut self, id: LogIndex, place: usize, before: PlanMove) {
        if let Some(plan) = self.plan_mut(id) {
            plan.moves[place] = before;
            plan.waiting += 1;
            plan.stage = PlanStage::Running;
        }
    }

    pub(super) fn plan_mut(&mut self, id: LogIndex) -> Option<&mut ApprovedPlan> {
        self.plans.iter_mut().find(|plan| plan.id == id)
    }
}

impl Partition {
    /// It is under the epoch from which a planned move is to bring it somewhere first, and its owner has been told to give
    /// it up.
    fn is_leaving(&self, planned: &PlanMove) -> bool {
        self.epoch() == Some(planned.epoch) && !matches!(self.phase, Phase::Owned { .. })
    }
}

impl Change<'_> {
    /// Opens a plan of so many moves. One that was never completed makes room: whoever wrote it has given up, or has
    /// failed. A running one does not: two plans at once would undo each other's moves.
    pub(super) fn open_plan(
        &mut self,
        size: u32,
        map: Option<Revision>,
        undoes: Option<LogIndex>,
    ) -> Result<Outcome, Refused> {
        self.state.room_for_plan(size, None)?;
        if let Some(never) = undoes.filter(|undoes| !(LogIndex::new(1)..self.index).contains(undoes)) {
            return Err(Refused::NoSuchPlan(never));
        }
        let now = Revision::new(self.index.get());
        let (id, given) = (self.index, self.hold_directive());
        let gone = self.state.take_open_plan();
        self.journal.push(Undo::PlanOpened(gone));
        self.state.plans.push_back(ApprovedPlan {
            id,
            map: map.map(|map| map.min(now)),
            undoes,
            size,
            moves: Vec::new(),
            stage: PlanStage::Open,
            waiting: 0,
            given,
        });
        Ok(Outcome::Planned(id))
    }

    /// Takes the directive of this entry out of those that are remembered.
    fn hold_directive(&mut self) -> Option<Box<Directive>> {
        let place = self.journal.iter().rposition(|undo| matches!(undo, Undo::Directed(_)))?;
        let Undo::Directed(forgotten) = self.journal.remove(place) else { return None };
        let held = self.state.directives.pop_back();
        forgotten.into_iter().for_each(|directive| self.state.directives.push_front(directive));
        held.map(Box::new)
    }

    /// Adds moves to an open plan, in the order of their partitions. It starts with the last one.
    ///
    /// Each is held against the map when it comes, and again with all others when the plan starts: what was approved
    /// was approved of one map.
    pub(super) fn extend_plan(&mut self, id: LogIndex, moves: &[PlanMove]) -> Result<Outcome, Refused> {
        let plan = self.state.plans.iter().find(|plan| plan.id == id).ok_or(Refused::NoSuchPlan(id))?;
        if plan.stage != PlanStage::Open {
            return Err(Refused::PlanNotOpen { plan: id, stage: plan.stage });
        }
        self.state.check_moves(moves)?;
        let before = plan.moves.len();
        let chain = plan.moves.last().into_iter().chain(moves).map(|planned| planned.partition);
        if !chain.is_sorted_by(|a, b| a < b) || before + moves.len() > plan.size as usize {
            return Err(Refused::PlanOutOfOrder(id));
        }
        let starts = before + moves.len() == plan.size as usize;
        if starts {
            self.state.check_moves(&plan.moves)?;
            let keyspaces: BTreeSet<KeyspaceId> =
                plan.moves.iter().chain(moves).map(|planned| planned.partition.keyspace).collect();
            let unchanged = |id| plan.map.map_or(Ok(()), |map| self.state.unchanged_since(map, id));
            keyspaces.into_iter().try_for_each(unchanged)?;
        }
        if let Some(plan) = self.state.plan_mut(id) {
            plan.waiting += moves.len() as u32;
            plan.moves.extend(moves.iter().cloned().map(|m| PlanMove { step: PlanStep::Waiting, ..m }));
        }
        self.journal.push(Undo::PlanExtended(id, before));
        if starts {
            self.start_plan(id);
        }
        self.events.push(Event::PlanChanged(id));
        Ok(Outcome::Done)
    }

    /// The plan is complete. Its directive is remembered in the place that its id gives it, and the oldest plan forgotten.
    fn start_plan(&mut self, id: LogIndex) {
        let started = self.state.plans.iter().filter(|plan| plan.stage != PlanStage::Open).count();
        let oldest = (started >= PLANS_LEN).then(|| self.state.plans.pop_front()).flatten();
        let before = self.state.directives.clone();
        let Some(plan) = self.state.plan_mut(id) else { return };
        plan.stage = PlanStage::Running;
        if let Some(given) = plan.given.clone() {
            let place = self.state.directives.partition_point(|directive| directive.at < given.at);
            self.state.directives.insert(place, *given);
            if self.state.directives.len() > DIRECTIVES_LEN {
                self.state.directives.pop_front();
            }
        }
        self.journal.push(Undo::PlanStarted(id, before, oldest));
    }

    /// A move that cannot be made any more. The rest of the plan goes on.
    pub(super) fn skip_planned(&mut self, id: LogIndex, partition: PartitionKey, why: SkipReason) -> Outcome {
        self.planned(id, partition, PlanStep::Skipped(why))
    }

    /// Notes that a running plan's move has begun, and which epoch it ends. Of any other directive than a plan it notes
    /// nothing.
    pub(super) fn begun(&mut self, id: LogIndex, partition: PartitionKey, epoch: Epoch) {
        if self.planned(id, partition, PlanStep::Begun) == Outcome::Unchanged {
            return;
        }
        let Some(plan) = self.state.plan_mut(id) else { return };
        let Some(place) = plan.place(partition) else { return };
        (plan.moves[place].epoch, plan.moves[place].arrives) = (epoch, false);
    }

    fn planned(&mut self, id: LogIndex, partition: PartitionKey, step: PlanStep) -> Outcome {
        let running = self.state.plan_mut(id).filter(|plan| plan.stage == PlanStage::Running);
        let Some(plan) = running else { return Outcome::Unchanged };
        let waiting = |place: &usize| plan.moves[*place].step == PlanStep::Waiting;
        let Some(place) = plan.place(partition).filter(waiting) else { return Outcome::Unchanged };
        let before = plan.moves[place].clone();
        plan.moves[place].step = step;
        plan.waiting -= 1;
        if plan.waiting == 0 {
            plan.stage = PlanStage::Done;
        }
        self.journal.push(Undo::PlanStep(id, place, before));
        self.events.push(Event::PlanChanged(id));
        Outcome::Done
    }

    /// Stops a plan. What has begun goes on. Of one that is still being written nothing is left.
    pub(super) fn cancel_plan(&mut self, id: LogIndex, only_open: bool) -> Result<Outcome, Refused> {
        let plan = self.state.plan_mut(id).ok_or(Refused::NoSuchPlan(id))?;
        let before = plan.stage;
        match before {
            PlanStage::Done | PlanStage::Cancelled => return Ok(Outcome::Unchanged),
            PlanStage::Running if only_open => return Ok(Outcome::Unchanged),
            PlanStage::Running => {
                plan.stage = PlanStage::Cancelled;
                self.journal.push(Undo::PlanStage(id, before));
            }
            PlanStage::Open => {
                let dropped = self.state.take_open_plan();
                self.journal.extend(dropped.map(Undo::PlanDropped));
            }
        }
        self.events.push(Event::PlanChanged(id));
        Ok(Outcome::Done)
    }
}
