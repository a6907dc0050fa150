//! Plans that an operator approved: written into the log piece by piece, stopped, listed.

use super::directive::{Given, direct, named};
use super::settings::changed;
use crate::admin::Pieces;
use crate::admin::request::run;
use crate::context::Context;
use crate::map::no_such_keyspace;
use crate::refusal;
use crate::replica::Local;
use futures_util::stream;
use ringfence_api::convert::{InvalidField, RequestId, checked};
use ringfence_api::v1;
use ringfence_api::v1::list_plans_response::Piece;
use ringfence_api::{ErrorKind, Failure};
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId, PartitionKey, Revision};
use ringfence_core::lead::MAX_COMMANDS;
use ringfence_core::state::{
    ApprovedPlan, Command, Course, Outcome, PlanMove, PlanStage, PlanStep, SkipReason, State, Subject,
};

/// Opens a plan.
pub(super) async fn open(
    context: &Context,
    request: v1::OpenPlanRequest,
) -> Result<v1::OpenPlanResponse, Failure> {
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let size = request.size;
    let map = Some(request.revision).filter(|revision| *revision > 0).map(Revision::new);
    let undoes = Some(LogIndex::new(request.undoes)).filter(|_| request.undoes > 0);
    // What is refused here was not opened. The state looks again when the plan is complete.
    let check = |state: &State, stopped: Option<LogIndex>| {
        let id = state.keyspace_named(&keyspace).ok_or_else(|| no_such_keyspace(&keyspace))?.id();
        state.check_plan(size, id, map, stopped).map_err(|why| refusal::failure(&why, state))?;
        Ok::<_, Failure>(id)
    };
    if request.dry_run {
        context.confirm().await?;
        // Whoever undoes a plan that is being carried out stops it first.
        check(&context.replica.lock().state, undoes)?;
        return Ok(v1::OpenPlanResponse { plan: 0 });
    }
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let what = match request.undoes {
        0 => format!("a plan of {size} moves in keyspace {keyspace}"),
        plan => format!("undo plan {plan} in keyspace {keyspace}, {size} moves"),
    };
    let answer = run(context, id, |local| {
        let id = check(&local.state, None)?;
        Ok(vec![direct(Subject::Keyspace(id), &given, &what), Command::OpenPlan { size, map, undoes }])
    });
    match answer.await?.outcome() {
        Some(Outcome::Planned(plan)) => Ok(v1::OpenPlanResponse { plan: plan.get() }),
        _ => Err(Failure::refused("the plan was not opened; look at the plans and try again")),
    }
}

/// Adds moves to an open plan.
pub(super) async fn extend(
    context: &Context,
    request: v1::ExtendPlanRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    if request.moves.len() > MAX_COMMANDS {
        let why = format!("{} moves at once: send at most {MAX_COMMANDS}", request.moves.len());
        return Err(InvalidField::new("moves", why).into());
    }
    let plan = LogIndex::new(request.plan);
    let moves = request.moves.iter().enumerate();
    let moves = moves.map(|(place, wire)| planned(wire).map_err(|e| e.at("moves", place)));
    let moves: Vec<PlanMove> = moves.collect::<Result<_, _>>()?;
    let of_keyspace = |state: &State| {
        let id = state.keyspace_named(&keyspace).ok_or_else(|| no_such_keyspace(&keyspace))?.id();
        let mut moves = moves.clone();
        moves.iter_mut().for_each(|planned| planned.partition.keyspace = id);
        Ok::<_, Failure>(moves)
    };
    if request.dry_run {
        context.confirm().await?;
        let state = &context.replica.lock().state;
        state.check_moves(&of_keyspace(state)?).map_err(|why| refusal::failure(&why, state))?;
        return Ok(v1::PlacementChanged { changed: false });
    }
    let id = RequestId::try_from(request.request)?;
    let extend = |local: &Local| Ok(vec![Command::ExtendPlan { plan, moves: of_keyspace(&local.state)? }]);
    match run(context, id, extend).await {
        Ok(answer) => Ok(v1::PlacementChanged { changed: answer.changed() }),
        Err(failure) => {
            if is_final(failure.kind()) {
                give_up(context, plan).await;
            }
            Err(failure)
        }
    }
}

/// Nobody asks again under the same request id, so the plan gets no more pieces. After any other failure somebody does, and
/// the plan has to be there.
fn is_final(failure: ErrorKind) -> bool {
    !failure.is_retryable()
}

/// Drops a plan of which a piece was refused. When that fails, because this node does not lead any more, it lies there until
/// the next one is opened, and takes nobody's place. One that has started meanwhile, by the same piece sent again, goes on.
async fn give_up(context: &Context, plan: LogIndex) {
    let Ok((term, _)) = context.confirm().await else { return };
    let open = |found: &ApprovedPlan| found.id == plan && found.stage == PlanStage::Open;
    if context.replica.lock().state.plans().any(open) {
        let drop = Command::CancelPlan { plan, only_open: true };
        let dropped = context.propose(None, vec![drop], Some(term)).await;
        if !matches!(dropped, Ok(Ok(_))) {
            tracing::debug!(plan = plan.get(), "a refused plan could not be dropped");
        }
    }
}

/// A move to be approved. Which keyspace it is of only the state knows by number.
fn planned(wire: &v1::PlannedMove) -> Result<PlanMove, InvalidField> {
    let partition = PartitionId::new(wire.partition);
    Ok(PlanMove {
        partition: PartitionKey { keyspace: KeyspaceId::new(0), partition },
        epoch: checked::epoch("epoch", wire.epoch)?,
        from: checked::worker_id("from", &wire.from)?,
        to: checked::worker_id("to", &wire.to)?,
        arrives: wire.arrives,
        step: PlanStep::Waiting,
    })
}

/// Stops a plan.
pub(super) async fn cancel(
    context: &Context,
    request: v1::CancelPlanRequest,
) -> Result<v1::PlacementChanged, Failure> {
    let id = RequestId::try_from(request.request)?;
    let given = Given::from(request.directive);
    let answer = run(context, id, |local| {
        let under_way = |plan: &&ApprovedPlan| matches!(plan.stage, PlanStage::Open | PlanStage::Running);
        let plan = match request.plan {
            0 => match local.state.plans().find(under_way) {
                Some(plan) => plan.id,
                None => return Ok(Vec::new()),
            },
            index => LogIndex::new(index),
        };
        let what = format!("stop plan {}", plan.get());
        Ok(vec![direct(Subject::Cluster, &given, &what), Command::CancelPlan { plan, only_open: false }])
    });
    changed(&given, "stop a plan", answer.await?)
}

/// The plans that are remembered. They are copied at once, so that all pieces are of one moment.
pub(super) async fn list(
    context: &Context,
    request: v1::ListPlansRequest,
) -> Result<Pieces<v1::ListPlansResponse>, Failure> {
    context.confirm().await?;
    let local = context.replica.lock();
    let mut pieces = Vec::new();
    for plan in local.state.plans() {
        pieces.push(Piece::Plan(shown(&local.state, plan)));
        if request.with_moves {
            let moves = plan.moves.chunks(MAX_COMMANDS);
            pieces.extend(moves.map(|moves| {
                let shown = moves.iter().map(|planned| shown_move(&local.state, planned));
                Piece::Moves(v1::ApprovedMoves { moves: shown.collect() })
            }));
        }
    }
    let pieces = pieces.into_iter().map(|piece| Ok(v1::ListPlansResponse { piece: Some(piece) }));
    Ok(Box::pin(stream::iter(pieces)))
}

fn shown(state: &State, plan: &ApprovedPlan) -> v1::ApprovedPlan {
    let moving = state.moving(plan);
    let stage = match plan.stage {
        PlanStage::Open => v1::PlanStage::Open,
        PlanStage::Running => v1::PlanStage::Running,
        PlanStage::Done if moving > 0 => v1::PlanStage::Ending,
        PlanStage::Done => v1::PlanStage::Done,
        PlanStage::Cancelled => v1::PlanStage::Cancelled,
    };
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let begun = count(plan.moves.iter().filter(|planned| planned.step == PlanStep::Begun).count());
    let keyspace = plan.moves.first().and_then(|planned| state.keyspace(planned.partition.keyspace));
    v1::ApprovedPlan {
        plan: plan.id.get(),
        keyspace: keyspace.map_or(String::new(), |keyspace| keyspace.name().to_string()),
        stage: stage.into(),
        size: plan.size,
        waiting: plan.waiting,
        begun,
        skipped: count(plan.moves.len()) - plan.waiting - begun,
        directive: Some(named(state, plan.id)),
        undoes: plan.undoes.map_or(0, LogIndex::get),
        moving: count(moving),
    }
}

/// What has become of a move that has begun, for people and programs.
fn now(state: &State, planned: &PlanMove) -> String {
    let (owner, first) = match state.course(planned) {
        Course::Waiting | Course::Skipped(_) => return String::new(),
        Course::Moving => return "moving".to_owned(),
        Course::There => return "there".to_owned(),
        Course::Elsewhere { owner, first } => (owner, first),
    };
    let now =
        owner.as_ref().map_or("nobody owns it now".to_owned(), |owner| format!("it is with {owner} now"));
    match first {
        Some(first) if first == planned.to => format!("it arrived, and {now}"),
        Some(first) => {
            let went =
                format!("its target was gone or took nothing when it was to get it, and it went to {first}");
            if owner == Some(first) { went } else { format!("{went}; {now}") }
        }
        None => now,
    }
}

fn shown_move(state: &State, planned: &PlanMove) -> v1::ApprovedMove {
    let step = match planned.step {
        PlanStep::Waiting => "waiting",
        PlanStep::Begun => "begun",
        PlanStep::Skipped(SkipReason::MovedOn) => "passed over: its owner had changed",
        PlanStep::Skipped(SkipReason::TargetGone) => "passed over: its target was gone or took nothing",
        PlanStep::Skipped(SkipReason::Frozen) => "passed over: it or one of the workers was frozen",
    };
    v1::ApprovedMove {
        partition: planned.partition.partition.get(),
        epoch: planned.epoch.get(),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
        step: step.to_owned(),
        now: now(state, planned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client sends the piece again under its id after a failure that passes, and the plan must be there.
    #[test]
    fn a_plan_is_dropped_only_after_a_failure_that_nobody_repeats() {
        let repeated = [
            Failure::no_leader(),
            Failure::not_leader(None),
            Failure::unavailable("this node has stopped; ask another"),
            Failure::unknown_outcome(),
        ];
        for failure in repeated {
            assert!(!is_final(failure.kind()), "{failure}");
        }
        let refused = [
            Failure::refused("no"),
            Failure::stale_epoch(None, None),
            Failure::not_found("no"),
            Failure::limit("no"),
        ];
        for failure in refused {
            assert!(is_final(failure.kind()), "{failure}");
        }
    }
}
