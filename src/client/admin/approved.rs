//! A plan that is put to the coordinator, how far it has come, and the way back.

use super::directives::Directive;
use super::explain::worker_or_none;
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::{InvalidField, Partition, Phase, checked};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, LogIndex, PartitionId, Revision, WorkerId};
use ringfence_core::state::MAX_PLAN_MOVES;
use std::collections::BTreeMap;

/// Moves to be approved together: of a [`Plan`](super::Plan), or back again ([`Undo`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The moves, ascending by partition, 1 to 1 000 000.
    pub moves: Vec<ProposedMove>,
    /// The plan that they undo.
    pub undoes: Option<LogIndex>,
    /// The map that they were made from: they are refused when a partition of the keyspace was granted since. `None`:
    /// only the owners of the partitions that move have to be the same.
    pub revision: Option<Revision>,
    /// The history that the revision belongs to: they are refused when the cluster was restored since. `None`: not compared.
    pub lineage: Option<u64>,
}

/// What stands in the way of some moves of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Hindrance {
    /// They would be passed over for good; `false`: they would wait until it ends.
    pub passed_over: bool,
    /// What it is, and what to do; a sentence. Escaped.
    pub why: String,
    /// How many moves.
    pub moves: usize,
}

/// One move to be approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedMove {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch under which it is taken from its owner. At another one the proposal is refused.
    pub epoch: Epoch,
    /// The owner.
    pub from: WorkerId,
    /// Who gets it.
    pub to: WorkerId,
    /// It is on its way to `from`, under this epoch, and is taken from there once it has arrived. When it arrives elsewhere it
    /// is passed over.
    pub arrives: bool,
}

/// The way back from a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undo {
    /// The plan.
    pub plan: LogIndex,
    /// Who approved it; `None` when that was forgotten. Escaped.
    pub by: Option<String>,
    /// The moves back: of each partition that the plan has moved and that is still where it brought it, and of each that is
    /// on its way there.
    pub proposal: Proposal,
    /// How many of the plan's partitions have moved on elsewhere, and are left there.
    pub left: usize,
}

/// A plan that an operator approved. The last two that have started are remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovedPlan {
    /// What names it: the log index of the directive that approved it.
    pub id: LogIndex,
    /// The keyspace; `None` when it was deleted, or no move of the plan is in the log yet.
    pub keyspace: Option<KeyspaceName>,
    /// Where it is.
    pub stage: PlanStage,
    /// How many moves it has.
    pub size: u32,
    /// How many of them have not begun, and may.
    pub waiting: u32,
    /// How many had not begun when it was cancelled, and will not.
    pub cancelled: u32,
    /// How many have begun.
    pub begun: u32,
    /// How many were passed over.
    pub skipped: u32,
    /// How many of those that have begun have not ended: their new owner is not ready yet.
    pub moving: u32,
    /// The plan that it undoes.
    pub undoes: Option<LogIndex>,
    /// What keeps all of it from going on now, a sentence each, with what to do. Escaped.
    pub held: Vec<String>,
    /// Who approved it; `None` when that is so long ago that it was forgotten.
    pub directive: Option<Directive>,
    /// Its moves, when they were asked for.
    pub moves: Vec<ApprovedMove>,
}

/// Where a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanStage {
    /// Its moves are still being written. None has begun.
    Open,
    /// Its moves are being carried out.
    Running,
    /// Every move has begun or was passed over, and some have not ended.
    Ending,
    /// Every move has ended or was passed over.
    Done,
    /// An operator stopped it. What had begun goes on.
    Cancelled,
}

/// One move of an approved plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovedMove {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch under which it is taken from its owner.
    pub epoch: Option<Epoch>,
    /// The owner.
    pub from: Option<WorkerId>,
    /// Who gets it.
    pub to: WorkerId,
    /// What has become of it.
    pub step: MoveStep,
    /// Where its partition is, when it has begun: `moving` (the new owner is not ready yet), `there`, or in words where it is
    /// instead, and why. Escaped.
    pub now: Option<String>,
    /// Of one that waits for something else than room: what for, in words. Escaped.
    pub waits_for: Option<String>,
}

/// What has become of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveStep {
    /// It has not begun.
    Waiting,
    /// Its partition drains, or has been granted on.
    Begun,
    /// It had not begun when its plan was cancelled, and does not.
    Cancelled,
    /// It was passed over, and why. Escaped.
    Skipped(String),
}

impl PlanStage {
    /// It is over: no further move of it begins. Moves that have begun may go on: see [`ApprovedPlan::moving`].
    pub fn is_over(self) -> bool {
        matches!(self, PlanStage::Ending | PlanStage::Done | PlanStage::Cancelled)
    }
}

impl std::fmt::Display for PlanStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            PlanStage::Open => "open",
            PlanStage::Running => "running",
            PlanStage::Ending => "ending",
            PlanStage::Done => "done",
            PlanStage::Cancelled => "cancelled",
        })
    }
}

impl std::fmt::Display for MoveStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            MoveStep::Waiting => "waiting",
            MoveStep::Begun => "begun",
            MoveStep::Cancelled => "cancelled",
            MoveStep::Skipped(why) => why,
        })
    }
}

impl Proposal {
    /// Whether it can be opened at all.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.moves.is_empty() {
            return Err(Error::own(ErrorKind::Refused, "there is no move to approve"));
        }
        if self.moves.len() > MAX_PLAN_MOVES as usize {
            let why = format!("{} moves: a plan has at most {MAX_PLAN_MOVES}", self.moves.len());
            return Err(Error::own(ErrorKind::Limit, why));
        }
        if !self.moves.is_sorted_by(|a, b| a.partition < b.partition) {
            return Err(Error::own(ErrorKind::Invalid, "the moves are not ascending by partition"));
        }
        Ok(())
    }
}

impl From<&ProposedMove> for v1::PlannedMove {
    fn from(from: &ProposedMove) -> v1::PlannedMove {
        v1::PlannedMove {
            partition: from.partition.get(),
            epoch: from.epoch.get(),
            from: from.from.to_string(),
            to: from.to.to_string(),
            reason: String::new(),
            load: 0,
            arrives: from.arrives,
        }
    }
}

impl Undo {
    /// The plan that is to be undone: this one, or else the last one that has moved something, is over, and undoes no other.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] while another is being carried out or when it moved nothing, [`ErrorKind::NotFound`] when it is
    /// not remembered.
    pub(super) fn which(
        plans: &[ApprovedPlan],
        named: Option<LogIndex>,
    ) -> Result<(&ApprovedPlan, &KeyspaceName), Error> {
        let running = plans.iter().find(|plan| plan.stage == PlanStage::Running);
        if let Some(running) = running.filter(|running| named != Some(running.id)) {
            let why = format!("plan {} is being carried out: cancel it, or wait for it", running.id.get());
            return Err(Error::own(ErrorKind::Refused, why));
        }
        let meant = |plan: &&ApprovedPlan| match named {
            Some(named) => plan.id == named,
            // Whoever says it twice does not want the plan's moves made again.
            None => plan.undoes.is_none(),
        };
        let has_moved = |plan: &&ApprovedPlan| plan.stage != PlanStage::Open && plan.begun > 0;
        let Some(plan) = plans.iter().filter(meant).rfind(has_moved) else {
            return Err(Undo::none_of(plans, named));
        };
        let keyspace = plan.keyspace.as_ref().ok_or_else(|| {
            let why = format!("the keyspace of plan {} was deleted", plan.id.get());
            Error::own(ErrorKind::Refused, why)
        })?;
        Ok((plan, keyspace))
    }

    /// Why there is no plan to be undone.
    fn none_of(plans: &[ApprovedPlan], named: Option<LogIndex>) -> Error {
        let Some(id) = named else {
            let undo = plans.iter().rfind(|plan| plan.undoes.is_some());
            let why = undo.map_or("the last two are remembered".to_owned(), |undo| {
                let id = undo.id.get();
                format!("the last one, {id}, is an undo itself; name it to make its plan's moves again")
            });
            return Error::own(ErrorKind::NotFound, format!("there is no plan to undo: {why}"));
        };
        let known = plans.iter().any(|plan| plan.id == id);
        let (kind, why) = match known {
            true => (ErrorKind::Refused, "has moved nothing: there is nothing to undo".to_owned()),
            false => (ErrorKind::NotFound, format!("is not remembered: {}", Undo::remembered(plans))),
        };
        Error::own(kind, format!("plan {} {why}", id.get()))
    }

    /// Which plans are remembered, those that have started.
    fn remembered(plans: &[ApprovedPlan]) -> String {
        let started = plans.iter().filter(|plan| plan.stage != PlanStage::Open);
        let ids: Vec<String> = started.map(|plan| plan.id.get().to_string()).collect();
        match &ids[..] {
            [] => "none is".to_owned(),
            [only] => format!("only {only} is"),
            several => format!("the last two that have started are, {}", several.join(" and ")),
        }
    }

    /// The way back from this plan, as the partitions are now.
    pub(super) fn of(plan: &ApprovedPlan, keyspace: &KeyspaceName, partitions: &[Partition]) -> Undo {
        let now: BTreeMap<PartitionId, &Partition> =
            partitions.iter().map(|partition| (partition.partition, partition)).collect();
        let begun = plan.moves.iter().filter(|planned| planned.step == MoveStep::Begun);
        let mut moves: Vec<ProposedMove> = Vec::new();
        let mut left = 0;
        for planned in begun {
            match now.get(&planned.partition).map(|now| back(planned, now)) {
                Some(Back::By(back)) => moves.push(back),
                Some(Back::Already) => {}
                Some(Back::Gone) | None => left += 1,
            }
        }
        moves.sort_by_key(|back| back.partition);
        let proposal = Proposal {
            keyspace: keyspace.clone(),
            moves,
            undoes: Some(plan.id),
            revision: None,
            lineage: None,
        };
        let by = plan.directive.as_ref().map(|directive| directive.by.clone());
        Undo { plan: plan.id, by, proposal, left }
    }
}

/// How a partition comes back from where a plan has moved it.
enum Back {
    By(ProposedMove),
    /// It is where it was, or on its way there.
    Already,
    /// It has moved on, and is nobody's to take back.
    Gone,
}

fn back(planned: &ApprovedMove, now: &Partition) -> Back {
    let Some(home) = &planned.from else { return Back::Gone };
    let is = |worker: Option<&WorkerId>, name: &WorkerId| worker == Some(name);
    let owner = now.owner.as_ref().map(|owner| &owner.worker);
    let goes_to = now.moving.as_ref().map(|(to, _)| to);
    let proposed = |epoch, arrives| {
        let (partition, from, to) = (planned.partition, planned.to.clone(), home.clone());
        Back::By(ProposedMove { partition, epoch, from, to, arrives })
    };
    match (now.phase, now.epoch) {
        // Under the epoch that the plan was to end, the move has not been made.
        (Phase::Owned, Some(epoch)) if is(owner, &planned.to) && Some(epoch) > planned.epoch => {
            proposed(epoch, false)
        }
        (Phase::Owned, _) if is(owner, home) => Back::Already,
        (Phase::Draining, _) if is(goes_to, home) => Back::Already,
        (Phase::Draining, Some(epoch)) if is(goes_to, &planned.to) && Some(epoch) == planned.epoch => {
            proposed(epoch, true)
        }
        // It was given up, and waits to be granted.
        (Phase::Vacant | Phase::Cooling, Some(epoch)) if Some(epoch) == planned.epoch => {
            proposed(epoch, true)
        }
        _ => Back::Gone,
    }
}

impl ApprovedPlan {
    /// Plans from the pieces in which they come.
    pub(super) fn gathered(pieces: Vec<v1::ListPlansResponse>) -> Result<Vec<ApprovedPlan>, InvalidField> {
        use v1::list_plans_response::Piece;
        let mut plans: Vec<ApprovedPlan> = Vec::new();
        for (place, piece) in pieces.into_iter().enumerate() {
            match (piece.piece, plans.last_mut()) {
                (Some(Piece::Plan(plan)), _) => {
                    plans.push(ApprovedPlan::try_from(plan).map_err(|e| e.at("plans", place))?);
                }
                (Some(Piece::Moves(piece)), Some(plan)) => {
                    for wire in piece.moves {
                        let place = plan.moves.len();
                        plan.moves.push(ApprovedMove::try_from(wire).map_err(|e| e.at("moves", place))?);
                    }
                }
                (Some(Piece::Moves(_)), None) => return Err(InvalidField::missing("plan")),
                (None, _) => return Err(InvalidField::missing("piece")),
            }
        }
        Ok(plans)
    }
}

impl TryFrom<v1::ApprovedPlan> for ApprovedPlan {
    type Error = InvalidField;

    fn try_from(wire: v1::ApprovedPlan) -> Result<ApprovedPlan, InvalidField> {
        let stage = match wire.stage() {
            v1::PlanStage::Open => PlanStage::Open,
            v1::PlanStage::Running => PlanStage::Running,
            v1::PlanStage::Ending => PlanStage::Ending,
            v1::PlanStage::Done => PlanStage::Done,
            v1::PlanStage::Cancelled => PlanStage::Cancelled,
            v1::PlanStage::Unspecified => return Err(InvalidField::missing("stage")),
        };
        let keyspace = match wire.keyspace.as_str() {
            "" => None,
            name => Some(checked::keyspace_name("keyspace", name)?),
        };
        Ok(ApprovedPlan {
            id: LogIndex::new(wire.plan),
            keyspace,
            stage,
            size: wire.size,
            waiting: wire.waiting,
            cancelled: wire.cancelled,
            begun: wire.begun,
            skipped: wire.skipped,
            moving: wire.moving,
            undoes: Some(LogIndex::new(wire.undoes)).filter(|_| wire.undoes > 0),
            held: wire.held.iter().map(|what| checked::text(what)).collect(),
            directive: wire.directive.map(Into::into),
            moves: Vec::new(),
        })
    }
}

impl TryFrom<v1::ApprovedMove> for ApprovedMove {
    type Error = InvalidField;

    fn try_from(wire: v1::ApprovedMove) -> Result<ApprovedMove, InvalidField> {
        Ok(ApprovedMove {
            partition: PartitionId::new(wire.partition),
            epoch: checked::epoch_or_none("epoch", wire.epoch)?,
            from: worker_or_none("from", &wire.from)?,
            to: checked::worker_id("to", &wire.to)?,
            step: match wire.step.as_str() {
                "waiting" => MoveStep::Waiting,
                "begun" => MoveStep::Begun,
                "cancelled" => MoveStep::Cancelled,
                why => MoveStep::Skipped(checked::text(why)),
            },
            now: Some(checked::text(&wire.now)).filter(|now| !now.is_empty()),
            waits_for: Some(checked::text(&wire.waits_for)).filter(|what| !what.is_empty()),
        })
    }
}
