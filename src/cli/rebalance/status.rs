//! How far approved plans are, and what is paused.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::Table;
use crate::settings::{FrozenShape, by};
use crate::shape::DirectiveShape;
use crate::text::plain;
use ringfence::admin::{ApprovedMove, ApprovedPlan, MoveStep, Settings};
use ringfence::ids::Epoch;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct StatusShape {
    /// Oldest first, at most two.
    plans: Vec<ApprovedPlanShape>,
    cluster_frozen: Option<DirectiveShape>,
    keyspaces_frozen: Vec<FrozenShape>,
}

#[derive(Debug, Serialize)]
struct ApprovedPlanShape {
    plan: u64,
    keyspace: Option<String>,
    /// `open`, `running`, `done` or `cancelled`.
    stage: String,
    size: u32,
    waiting: u32,
    begun: u32,
    skipped: u32,
    directive: Option<DirectiveShape>,
    /// `null` unless they were asked for.
    moves: Option<Vec<ApprovedMoveShape>>,
}

#[derive(Debug, Serialize)]
struct ApprovedMoveShape {
    partition: u32,
    epoch: Option<u64>,
    from: Option<String>,
    to: String,
    /// `waiting`, `begun` or `skipped`.
    step: &'static str,
    /// Why it was passed over.
    why: Option<String>,
}

impl From<&ApprovedMove> for ApprovedMoveShape {
    fn from(from: &ApprovedMove) -> ApprovedMoveShape {
        let (step, why) = match &from.step {
            MoveStep::Waiting => ("waiting", None),
            MoveStep::Begun => ("begun", None),
            MoveStep::Skipped(why) => ("skipped", Some(why.clone())),
            // A step of a later version of the SDK, which this program is built with.
            _ => ("waiting", None),
        };
        ApprovedMoveShape {
            partition: from.partition.get(),
            epoch: from.epoch.map(Epoch::get),
            from: from.from.as_ref().map(ToString::to_string),
            to: from.to.to_string(),
            step,
            why,
        }
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
            directive: plan.directive.as_ref().map(Into::into),
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

fn text(plans: &[ApprovedPlan], settings: &Settings, with_moves: bool) -> String {
    let mut text = String::new();
    if plans.is_empty() {
        text.push_str("no plan was approved\n");
    } else {
        let mut table =
            Table::new(["PLAN", "KEYSPACE", "STAGE", "MOVES", "WAITING", "BEGUN", "PASSED OVER", "BY"]);
        for plan in plans {
            table.row([
                plan.id.get().to_string(),
                plan.keyspace.as_ref().map(ToString::to_string).unwrap_or_default(),
                plan.stage.to_string(),
                plan.size.to_string(),
                plan.waiting.to_string(),
                plan.begun.to_string(),
                plan.skipped.to_string(),
                plan.directive.as_ref().map(by).unwrap_or_default(),
            ]);
        }
        text.push_str(&table.text());
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
                planned.step.to_string(),
            ]);
        }
        text.push_str(&format!("\nplan {}\n{}", plan.id.get(), table.indented(2)));
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
            directive: None,
            moves: Some(vec![ApprovedMoveShape {
                partition: 3,
                epoch: Some(5),
                from: Some("w1".to_owned()),
                to: "w2".to_owned(),
                step: "skipped",
                why: Some("passed over: its owner had changed".to_owned()),
            }]),
        };
        assert_eq!(
            json(&shape).unwrap(),
            r#"{"plan":77,"keyspace":"orders","stage":"running","size":2,"waiting":0,"begun":1,"skipped":1,"#
                .to_owned()
                + r#""directive":null,"moves":[{"partition":3,"epoch":5,"from":"w1","to":"w2","step":"skipped","#
                + r#""why":"passed over: its owner had changed"}]}"#
        );
    }

    #[test]
    fn nothing_approved_is_said() {
        assert_eq!(text(&[], &Settings::default(), false), "no plan was approved\n");
    }
}
