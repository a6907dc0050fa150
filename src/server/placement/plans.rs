//! Plans that an operator approved: written into the log piece by piece, stopped, listed.

use super::directive::{Given, direct, named};
use super::settings::changed;
use super::{whose, words};
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
use ringfence_core::ids::{KeyspaceId, LogIndex, PartitionId, PartitionKey, Revision, SessionId};
use ringfence_core::lead::{Hindrance, MAX_COMMANDS, Prospect, prospect};
use ringfence_core::state::{
    ApprovedPlan, Command, Course, Outcome, PlanMove, PlanStage, PlanStep, Refused, SkipReason, State,
    Subject, Tenure,
};
use ringfence_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Opens a plan.
pub(super) async fn open(
    context: &Context,
    request: v1::OpenPlanRequest,
) -> Result<v1::OpenPlanResponse, Failure> {
    let keyspace = checked::keyspace_name("keyspace", &request.keyspace)?;
    let size = request.size;
    let map = Some(request.revision).filter(|revision| *revision > 0).map(Revision::new);
    let undoes = Some(LogIndex::new(request.undoes)).filter(|_| request.undoes > 0);
    let lineage = Some(request.lineage).filter(|lineage| *lineage > 0);
    // What is refused here was not opened. The state looks again when the plan is complete.
    let check = |state: &State, stopped: Option<LogIndex>| {
        let id = state.keyspace_named(&keyspace).ok_or_else(|| no_such_keyspace(&keyspace))?.id();
        of_this_life(lineage, state)?;
        state.check_plan(size, id, map, stopped).map_err(|why| not_now(&why, state))?;
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
) -> Result<v1::ExtendPlanResponse, Failure> {
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
        let local = context.replica.lock();
        let moves = of_keyspace(&local.state)?;
        local.state.check_moves(&moves).map_err(|why| not_now(&why, &local.state))?;
        let hindrances = hindrances(&local, context.clock.now(), &moves);
        return Ok(v1::ExtendPlanResponse { changed: false, hindrances });
    }
    let id = RequestId::try_from(request.request)?;
    let extend = |local: &Local| {
        let state = &local.state;
        if !state.plans().any(|found| found.id == plan) {
            return Err(Failure::not_found(whose::gone(plan, state)));
        }
        let moves = of_keyspace(state)?;
        state.check_moves(&moves).map_err(|why| not_now(&why, state))?;
        Ok(vec![Command::ExtendPlan { plan, moves }])
    };
    match run(context, id, extend).await {
        Ok(answer) => Ok(v1::ExtendPlanResponse { changed: answer.changed(), hindrances: Vec::new() }),
        Err(failure) => {
            if is_final(failure.kind()) {
                give_up(context, plan).await;
            }
            Err(failure)
        }
    }
}

/// A plan may be kept in a file while the cluster is restored from a copy: what it says of epochs is of another history then.
fn of_this_life(lineage: Option<u64>, state: &State) -> Result<(), Failure> {
    let here = state.cluster().map_or(0, |cluster| cluster.lineage);
    match lineage.filter(|made_in| *made_in != here) {
        None => Ok(()),
        Some(made_in) => Err(Failure::refused(format_args!(
            "the cluster was restored since the plan was made: its lineage was {made_in} then and is {here} now; plan again"
        ))),
    }
}

/// The same as everywhere, and who has moved a partition since, as far as that is remembered.
fn not_now(why: &Refused, state: &State) -> Failure {
    let failure = refusal::failure(why, state);
    let Refused::StaleEpoch { partition: key, .. } = why else { return failure };
    let granted = state.partition(*key).and_then(|partition| partition.history().last());
    let Some(Tenure { epoch, worker, directive, .. }) = granted else { return failure };
    let name = refusal::partition(*key, state);
    let by = directive.map_or(String::new(), |by| match state.plans().any(|plan| plan.id == by) {
        true => format!(", by plan {}, which was applied by {}", by.get(), whose::whose(state, by)),
        false => format!(", by the word of {}", whose::whose(state, by)),
    });
    failure.saying(format_args!("partition {name} was granted to worker {worker} under {epoch} since{by}"))
}

/// What stands in the way of some of these moves, each reason once.
fn hindrances(local: &Local, now: Instant, moves: &[PlanMove]) -> Vec<v1::PlanHindrance> {
    let absent = local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default();
    let mut counts: BTreeMap<(bool, Hindrance), u32> = BTreeMap::new();
    for planned in moves {
        let (passed_over, why) = match prospect(&local.state, planned, &absent) {
            Prospect::Begins(_) => continue,
            // An undo takes back what has not arrived yet: that it waits for it is what was asked for.
            Prospect::Waits(Hindrance::OnItsWay) if planned.arrives => continue,
            Prospect::Waits(why) => (false, why),
            Prospect::PassedOver(_, why) => (true, why),
        };
        *counts.entry((passed_over, why)).or_default() += 1;
    }
    let told = |((passed_over, why), moves)| {
        let why = words::hindrance(&why, &local.state);
        v1::PlanHindrance { passed_over, why, moves }
    };
    counts.into_iter().map(told).collect()
}

/// What keeps all of a plan from going on.
fn held(local: &Local, now: Instant, plan: &ApprovedPlan) -> Vec<String> {
    if plan.stage != PlanStage::Running {
        return Vec::new();
    }
    let state = &local.state;
    let keyspace = plan.moves.first().map(|planned| planned.partition.keyspace);
    let frozen = keyspace.map_or_else(Vec::new, |id| whose::frozen_whole(id, state));
    let frozen = frozen.iter().map(|what| whose::frozen(what, state));
    let braked = local.leadership.as_ref().is_some_and(|led| led.placing.braked(now, state));
    let brake = braked.then(|| {
        "the brake is on: many workers were lost together; wait, or `ringfence rebalance release-brake` when they are gone for \
         good"
            .to_owned()
    });
    frozen.chain(brake).collect()
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
        let what = whose::stop(plan);
        Ok(vec![direct(Subject::Cluster, &given, &what), Command::CancelPlan { plan, only_open: false }])
    });
    changed(&given, "stop a plan", answer.await?)
}

/// The plans that are remembered. They are copied at once, so that all pieces are of one moment. What moves wait for is told in a
/// few sentences, and each of up to a million moves gets its own when the state is let go of.
pub(super) async fn list(
    context: &Context,
    request: v1::ListPlansRequest,
) -> Result<Pieces<v1::ListPlansResponse>, Failure> {
    context.confirm().await?;
    let (now, local) = (context.clock.now(), context.replica.lock());
    let absent = local.leadership.as_ref().map(|led| led.presence.absent(now)).unwrap_or_default();
    let mut pieces = Vec::new();
    let mut reasons = Reasons::default();
    for plan in local.state.plans() {
        let shown = shown(&local, now, plan);
        // What keeps all of it from going on is said once.
        let each = plan.stage == PlanStage::Running && shown.held.is_empty();
        pieces.push((Piece::Plan(shown), Vec::new()));
        if request.with_moves {
            let moves = plan.moves.chunks(MAX_COMMANDS);
            pieces.extend(moves.map(|moves| {
                let shown = moves.iter().map(|planned| shown_move(&local.state, plan, planned));
                let why = moves
                    .iter()
                    .map(|planned| each.then(|| reasons.of(&local.state, planned, &absent)).flatten());
                (Piece::Moves(v1::ApprovedMoves { moves: shown.collect() }), why.collect())
            }));
        }
    }
    drop(local);
    let sentences = reasons.sentences;
    let pieces = pieces.into_iter().map(move |(piece, why)| {
        let piece = Some(explained(piece, &why, &sentences));
        Ok(v1::ListPlansResponse { piece })
    });
    Ok(Box::pin(stream::iter(pieces)))
}

/// What moves wait for, each reason once.
#[derive(Default)]
struct Reasons {
    known: BTreeMap<Hindrance, usize>,
    sentences: Vec<String>,
}

impl Reasons {
    /// Which of the sentences says what a move waits for.
    fn of(&mut self, state: &State, planned: &PlanMove, absent: &BTreeSet<SessionId>) -> Option<usize> {
        if planned.step != PlanStep::Waiting {
            return None;
        }
        let Prospect::Waits(why) = prospect(state, planned, absent) else { return None };
        if let Some(known) = self.known.get(&why) {
            return Some(*known);
        }
        self.sentences.push(words::hindrance(&why, state));
        let place = self.sentences.len() - 1;
        self.known.insert(why, place);
        Some(place)
    }
}

fn explained(piece: Piece, why: &[Option<usize>], sentences: &[String]) -> Piece {
    let Piece::Moves(mut moves) = piece else { return piece };
    for (shown, why) in moves.moves.iter_mut().zip(why) {
        shown.waits_for = why.and_then(|at| sentences.get(at)).cloned().unwrap_or_default();
    }
    Piece::Moves(moves)
}

fn shown(local: &Local, now: Instant, plan: &ApprovedPlan) -> v1::ApprovedPlan {
    let state = &local.state;
    let moving = state.moving(plan);
    let stage = match plan.stage {
        PlanStage::Open => v1::PlanStage::Open,
        PlanStage::Running => v1::PlanStage::Running,
        PlanStage::Done if moving > 0 => v1::PlanStage::Ending,
        PlanStage::Done => v1::PlanStage::Done,
        PlanStage::Cancelled => v1::PlanStage::Cancelled,
    };
    let cancelled = plan.stage == PlanStage::Cancelled;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let begun = count(plan.moves.iter().filter(|planned| planned.step == PlanStep::Begun).count());
    let keyspace = plan.moves.first().and_then(|planned| state.keyspace(planned.partition.keyspace));
    v1::ApprovedPlan {
        plan: plan.id.get(),
        keyspace: keyspace.map_or(String::new(), |keyspace| keyspace.name().to_string()),
        stage: stage.into(),
        size: plan.size,
        waiting: if cancelled { 0 } else { plan.waiting },
        cancelled: if cancelled { plan.waiting } else { 0 },
        begun,
        skipped: count(plan.moves.len()) - plan.waiting - begun,
        directive: Some(named(state, plan.id)),
        undoes: plan.undoes.map_or(0, LogIndex::get),
        moving: count(moving),
        held: held(local, now, plan),
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

fn shown_move(state: &State, plan: &ApprovedPlan, planned: &PlanMove) -> v1::ApprovedMove {
    let step = match planned.step {
        PlanStep::Waiting if plan.stage == PlanStage::Cancelled => "cancelled",
        PlanStep::Waiting => "waiting",
        PlanStep::Begun => "begun",
        PlanStep::Skipped(SkipReason::MovedOn) => "passed over: its owner had changed",
        PlanStep::Skipped(SkipReason::TargetGone) => "passed over: its target was gone or took nothing",
        PlanStep::Skipped(SkipReason::Frozen) => "passed over: it or one of the workers was frozen",
        PlanStep::Skipped(SkipReason::Pinned) => "passed over: it was pinned to another worker",
    };
    v1::ApprovedMove {
        partition: planned.partition.partition.get(),
        epoch: planned.epoch.get(),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
        step: step.to_owned(),
        now: now(state, planned),
        waits_for: String::new(),
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
