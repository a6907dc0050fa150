//! How far approved plans are, and what is paused.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::Table;
use crate::settings::{FrozenShape, by};
use crate::shape::DirectiveShape;
use crate::text::plain;
use ringfence::admin::{ApprovedMove, ApprovedPlan, MoveStep, Settings};
use ringfence::ids::{Epoch, LogIndex};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct StatusShape {
    /// Oldest first: the last two that have started, and one that is being written.
    plans: Vec<ApprovedPlanShape>,
    cluster_frozen: Option<DirectiveShape>,
    keyspaces_frozen: Vec<FrozenShape>,
}

#[derive(Debug, Serialize)]
struct ApprovedPlanShape {
    plan: u64,
    keyspace: Option<String>,
    /// `open`, `running`, `ending`, `done` or `cancelled`.
    stage: String,
    size: u32,
    /// How many have not begun, and may.
    waiting: u32,
    begun: u32,
    skipped: u32,
    /// How many of those that have begun have not ended.
    moving: u32,
    /// The plan that it undoes.
    undoes: Option<u64>,
    directive: Option<DirectiveShape>,
    /// How many had not begun when it was cancelled.
    cancelled: u32,
    /// What keeps all of it from going on, and what to do.
    held: Vec<String>,
    /// `null` unless they were asked for.
    moves: Option<Vec<ApprovedMoveShape>>,
}

#[derive(Debug, Serialize)]
struct ApprovedMoveShape {
    partition: u32,
    epoch: Option<u64>,
    from: Option<String>,
    to: String,
    /// `waiting`, `begun`, `skipped` or `cancelled`.
    step: &'static str,
    /// Where its partition is, when it has begun: `moving`, `there` or `elsewhere`.
    now: Option<&'static str>,
    /// Why it was passed over, or is elsewhere; what it waits for, unless that is room.
    why: Option<String>,
}

impl From<&ApprovedMove> for ApprovedMoveShape {
    fn from(from: &ApprovedMove) -> ApprovedMoveShape {
        let (step, now, why) = match &from.step {
            MoveStep::Begun => {
                let (now, why) = begun(from);
                ("begun", now, why)
            }
            MoveStep::Skipped(why) => ("skipped", None, Some(why.clone())),
            MoveStep::Cancelled => ("cancelled", None, None),
            // Or a step of a later version of the SDK, which this program is built with.
            _ => ("waiting", None, from.waits_for.clone()),
        };
        ApprovedMoveShape {
            partition: from.partition.get(),
            epoch: from.epoch.map(Epoch::get),
            from: from.from.as_ref().map(ToString::to_string),
            to: from.to.to_string(),
            step,
            now,
            why,
        }
    }
}

/// Where the partition of a move is that has begun, and why it is not where it should be.
fn begun(planned: &ApprovedMove) -> (Option<&'static str>, Option<String>) {
    match planned.now.as_deref() {
        None => (None, None),
        Some("moving") => (Some("moving"), None),
        Some("there") => (Some("there"), None),
        Some(why) => (Some("elsewhere"), Some(why.to_owned())),
    }
}

/// The same for people.
fn step(planned: &ApprovedMove) -> String {
    match (&planned.step, begun(planned)) {
        (MoveStep::Begun, (Some("moving"), _)) => "begun, not ended".to_owned(),
        (MoveStep::Begun, (Some("there"), _)) => "moved".to_owned(),
        (MoveStep::Begun, (_, Some(why))) => why,
        (MoveStep::Waiting, _) => match &planned.waits_for {
            Some(what) => format!("waiting: {what}"),
            None => MoveStep::Waiting.to_string(),
        },
        (step, _) => step.to_string(),
    }
}

impl ApprovedPlanShape {
    fn of(plan: &ApprovedPlan, with_moves: bool) -> ApprovedPlanShape {
        ApprovedPlanShape {
            plan: plan.id.get(),
            keyspace: plan.keyspace.as_ref().map(ToString::to_string),
            stage: plan.stage.to_string(),
            size: plan.size,
            waiting: plan.waiting,
            begun: plan.begun,
            skipped: plan.skipped,
            moving: plan.moving,
            undoes: plan.undoes.map(LogIndex::get),
            directive: plan.directive.as_ref().map(Into::into),
            cancelled: plan.cancelled,
            held: plan.held.clone(),
            moves: with_moves.then(|| plan.moves.iter().map(Into::into).collect()),
        }
    }
}

/// Runs `ringfence rebalance status`.
pub(super) async fn run(common: &Common, with_moves: bool) -> Outcome {
    let admin = common.admin();
    let plans = admin.plans(with_moves).await?;
    let settings = admin.settings().await?;
    let shape = StatusShape {
        plans: plans.iter().map(|plan| ApprovedPlanShape::of(plan, with_moves)).collect(),
        cluster_frozen: settings.cluster_frozen.as_ref().map(Into::into),
        keyspaces_frozen: FrozenShape::all(&settings),
    };
    common.output().show(&shape, || text(&plans, &settings, with_moves))?;
    Ok(Exit::Done)
}

/// What names a plan, and which one it undoes: `17, undoes 10`.
fn number(plan: &ApprovedPlan) -> String {
    let id = plan.id.get();
    plan.undoes.map_or(id.to_string(), |undone| format!("{id}, undoes {}", undone.get()))
}

fn text(plans: &[ApprovedPlan], settings: &Settings, with_moves: bool) -> String {
    let mut text = String::new();
    if plans.is_empty() {
        text.push_str("no plan was approved\n");
    } else {
        let mut table = Table::new([
            "PLAN",
            "KEYSPACE",
            "STAGE",
            "MOVES",
            "WAITING",
            "BEGUN",
            "NOT ENDED",
            "PASSED OVER",
            "CANCELLED",
            "BY",
        ]);
        for plan in plans {
            table.row([
                number(plan),
                plan.keyspace.as_ref().map(ToString::to_string).unwrap_or_default(),
                plan.stage.to_string(),
                plan.size.to_string(),
                plan.waiting.to_string(),
                plan.begun.to_string(),
                plan.moving.to_string(),
                plan.skipped.to_string(),
                plan.cancelled.to_string(),
                plan.directive.as_ref().map(by).unwrap_or_default(),
            ]);
        }
        text.push_str(&table.text());
    }
    for (plan, held) in plans.iter().flat_map(|plan| plan.held.iter().map(move |held| (plan, held))) {
        text.push_str(&plain(&format!("plan {} waits: {held}", plan.id.get())));
        text.push('\n');
    }
    if let Some(directive) = &settings.cluster_frozen {
        text.push_str(&plain(&format!("paused everywhere by {}", by(directive))));
        text.push('\n');
    }
    for (keyspace, directive) in &settings.keyspaces_frozen {
        text.push_str(&plain(&format!("paused in keyspace {keyspace} by {}", by(directive))));
        text.push('\n');
    }
    for plan in plans.iter().filter(|_| with_moves) {
        let mut table = Table::new(["PARTITION", "FROM", "TO", "EPOCH", "STEP"]);
        for planned in &plan.moves {
            table.row([
                planned.partition.get().to_string(),
                planned.from.as_ref().map(ToString::to_string).unwrap_or_default(),
                planned.to.to_string(),
                planned.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
                step(planned),
            ]);
        }
        text.push_str(&format!("\nplan {}\n{}", number(plan), table.indented(2)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shape_of_an_approved_plan_is_a_contract() {
        let shape = ApprovedPlanShape {
            plan: 77,
            keyspace: Some("orders".to_owned()),
            stage: "running".to_owned(),
            size: 2,
            waiting: 0,
            begun: 1,
            skipped: 1,
            moving: 1,
            undoes: Some(70),
            directive: None,
            cancelled: 0,
            held: vec!["frozen".to_owned()],
            moves: Some(vec![ApprovedMoveShape {
                partition: 3,
                epoch: Some(5),
                from: Some("w1".to_owned()),
                to: "w2".to_owned(),
                step: "skipped",
                now: None,
                why: Some("passed over: its owner had changed".to_owned()),
            }]),
        };
        assert_eq!(
            json(&shape).unwrap(),
            r#"{"plan":77,"keyspace":"orders","stage":"running","size":2,"waiting":0,"begun":1,"skipped":1,"moving":1,"undoes":70,"#
                .to_owned()
                + r#""directive":null,"cancelled":0,"held":["frozen"],"moves":[{"partition":3,"epoch":5,"from":"w1","to":"w2","step":"skipped","now":null,"#
                + r#""why":"passed over: its owner had changed"}]}"#
        );
    }

    /// Of a plan that was cancelled nothing waits, and an undo names its plan.
    #[test]
    fn a_cancelled_plan_and_an_undo_are_told_as_what_they_are() {
        use ringfence_api::v1;
        let step = |partition, step: &str, waits_for: &str| {
            let wire = v1::ApprovedMove {
                partition,
                epoch: 5,
                from: "w1".to_owned(),
                to: "w2".to_owned(),
                step: step.to_owned(),
                waits_for: waits_for.to_owned(),
                ..Default::default()
            };
            ApprovedMove::try_from(wire).unwrap()
        };
        let plan = |plan, undoes, stage: v1::PlanStage, held: &[&str]| {
            let held = held.iter().map(|held| (*held).to_owned()).collect();
            let wire =
                v1::ApprovedPlan { plan, stage: stage.into(), size: 3, undoes, held, ..Default::default() };
            ApprovedPlan::try_from(wire).unwrap()
        };
        let mut cancelled = plan(70, 0, v1::PlanStage::Cancelled, &[]);
        cancelled.cancelled = 2;
        cancelled.moves = vec![step(1, "cancelled", ""), step(2, "waiting", "worker w2 is away")];
        let running = plan(77, 70, v1::PlanStage::Running, &["keyspace orders is frozen"]);
        let shape = ApprovedMoveShape::from(&cancelled.moves[0]);
        assert_eq!((shape.step, shape.why), ("cancelled", None));
        let text = text(&[cancelled, running], &Settings::default(), true);
        assert!(
            text.contains("77, undoes 70") && text.contains("plan 77 waits: keyspace orders is frozen"),
            "{text}"
        );
        assert!(text.contains("cancelled\n") && text.contains("waiting: worker w2 is away"), "{text}");
    }

    #[test]
    fn nothing_approved_is_said() {
        assert_eq!(text(&[], &Settings::default(), false), "no plan was approved\n");
    }
}
