//! Plans that operators approved, to the wire and back.

use super::directive;
use super::fields::{directive_from_wire, directive_to_wire, key_from_wire, key_to_wire};
use super::workers::{Names, Places};
use crate::convert::{InvalidField, checked};
use crate::v1;
use crate::v1::log_command::extend_plan;
use crate::v1::state_plan::{Move, Stage};
use ringfence_core::ids::{LogIndex, Revision};
use ringfence_core::state::{ApprovedPlan, PlanMove, PlanStage, PlanStep, SkipReason};

pub(super) fn to_wire(plan: &ApprovedPlan, workers: &mut Places) -> v1::StatePlan {
    let stage = match plan.stage {
        PlanStage::Open => Stage::Open,
        PlanStage::Running => Stage::Running,
        PlanStage::Done => Stage::Done,
        PlanStage::Cancelled => Stage::Cancelled,
    };
    let one = |planned: &PlanMove| Move {
        partition: Some(key_to_wire(planned.partition)),
        epoch: planned.epoch.get(),
        arrives: planned.arrives,
        from_worker: workers.of(&planned.from),
        to_worker: workers.of(&planned.to),
        begun: planned.step == PlanStep::Begun,
        skipped: match planned.step {
            PlanStep::Skipped(why) => skip_to_wire(why),
            PlanStep::Waiting | PlanStep::Begun => v1::PlanSkip::Unspecified.into(),
        },
    };
    v1::StatePlan {
        index: plan.id.get(),
        map_revision: plan.map.map_or(0, Revision::get),
        undoes_index: directive_to_wire(plan.undoes),
        given: plan.given.as_deref().map(directive::to_wire),
        size: plan.size,
        stage: stage.into(),
        moves: plan.moves.iter().map(one).collect(),
    }
}

/// How many moves wait follows from the moves.
pub(super) fn from_wire(wire: v1::StatePlan, workers: &Names) -> Result<ApprovedPlan, InvalidField> {
    let stage = match Stage::try_from(wire.stage) {
        Ok(Stage::Open) => PlanStage::Open,
        Ok(Stage::Running) => PlanStage::Running,
        Ok(Stage::Done) => PlanStage::Done,
        Ok(Stage::Cancelled) => PlanStage::Cancelled,
        Ok(Stage::Unspecified) | Err(_) => return Err(checked::unknown_value("stage", wire.stage)),
    };
    let one = |wire: Move| {
        let step = match (wire.begun, wire.skipped) {
            (true, 0) => PlanStep::Begun,
            (false, 0) => PlanStep::Waiting,
            (false, why) => PlanStep::Skipped(skip_from_wire("skipped", why)?),
            (true, _) => return Err(InvalidField::new("skipped", "the move has begun")),
        };
        Ok(PlanMove {
            partition: key_from_wire(wire.partition)?,
            epoch: checked::epoch("epoch", wire.epoch)?,
            from: workers.at("from_worker", wire.from_worker)?,
            to: workers.at("to_worker", wire.to_worker)?,
            arrives: wire.arrives,
            step,
        })
    };
    let moves = wire.moves.into_iter().enumerate();
    let moves: Vec<PlanMove> =
        moves.map(|(place, m)| one(m).map_err(|e| e.at("moves", place))).collect::<Result<_, _>>()?;
    let waiting = moves.iter().filter(|planned| planned.step == PlanStep::Waiting).count() as u32;
    let given = wire.given.map(directive::from_wire).transpose().map_err(|e| e.within("given"))?;
    Ok(ApprovedPlan {
        id: LogIndex::new(wire.index),
        map: Some(Revision::new(wire.map_revision)).filter(|_| wire.map_revision > 0),
        undoes: directive_from_wire(wire.undoes_index),
        size: wire.size,
        moves,
        stage,
        waiting,
        given: given.map(Box::new),
    })
}

pub(super) fn move_to_wire(planned: &PlanMove) -> extend_plan::Move {
    extend_plan::Move {
        partition: Some(key_to_wire(planned.partition)),
        epoch: planned.epoch.get(),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
        arrives: planned.arrives,
    }
}

pub(super) fn move_from_wire(wire: extend_plan::Move) -> Result<PlanMove, InvalidField> {
    Ok(PlanMove {
        partition: key_from_wire(wire.partition)?,
        epoch: checked::epoch("epoch", wire.epoch)?,
        from: checked::worker_id("from", &wire.from)?,
        to: checked::worker_id("to", &wire.to)?,
        arrives: wire.arrives,
        step: PlanStep::Waiting,
    })
}

pub(super) fn skip_to_wire(why: SkipReason) -> i32 {
    let wire = match why {
        SkipReason::MovedOn => v1::PlanSkip::MovedOn,
        SkipReason::TargetGone => v1::PlanSkip::TargetGone,
        SkipReason::Frozen => v1::PlanSkip::Frozen,
        SkipReason::Pinned => v1::PlanSkip::Pinned,
    };
    wire.into()
}

pub(super) fn skip_from_wire(field: &str, number: i32) -> Result<SkipReason, InvalidField> {
    match v1::PlanSkip::try_from(number) {
        Ok(v1::PlanSkip::MovedOn) => Ok(SkipReason::MovedOn),
        Ok(v1::PlanSkip::TargetGone) => Ok(SkipReason::TargetGone),
        Ok(v1::PlanSkip::Frozen) => Ok(SkipReason::Frozen),
        Ok(v1::PlanSkip::Pinned) => Ok(SkipReason::Pinned),
        Ok(v1::PlanSkip::Unspecified) | Err(_) => Err(checked::unknown_value(field, number)),
    }
}
