//! A plan as it would be.

use super::saved::SavedPlan;
use super::what_if::WhatIfArg;
use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::output::{Table, properties};
use crate::shape::{PlannedMoveShape, balance_by, some};
use crate::text::plain;
use ringfence::admin::{BeforeAfter, Plan, PlanWorker, PlannedMove, WhatIf};
use ringfence::ids::KeyspaceName;
use serde::Serialize;
use std::path::Path;

/// How many moves the screen has room for.
const LINES: usize = 50;

#[derive(Debug, Serialize)]
struct PlanShape {
    keyspace: String,
    /// The history that the revision belongs to.
    lineage: String,
    /// The map that it was made from.
    revision: u64,
    /// It answers a "what if", and cannot be applied.
    supposed: bool,
    /// `count` or `load`.
    balanced_by: &'static str,
    spread: SpreadShape,
    zone_spread: SpreadShape,
    workers: Vec<PlanWorkerShape>,
    reasons: Vec<ReasonShape>,
    obstacles: Vec<String>,
    more_obstacles: u32,
    moves: Vec<PlannedMoveShape>,
    /// The file that it was written to.
    saved: Option<String>,
}

#[derive(Debug, Serialize)]
struct SpreadShape {
    before: u64,
    after: u64,
}

#[derive(Debug, Serialize)]
struct PlanWorkerShape {
    worker: String,
    zone: Option<String>,
    weight: u32,
    standing: String,
    before: u64,
    after: u64,
    /// 0 when it takes none.
    share: u64,
}

#[derive(Debug, Serialize)]
struct ReasonShape {
    reason: String,
    moves: u32,
}

impl From<BeforeAfter> for SpreadShape {
    fn from(BeforeAfter { before, after }: BeforeAfter) -> SpreadShape {
        SpreadShape { before, after }
    }
}

impl From<&PlanWorker> for PlanWorkerShape {
    fn from(from: &PlanWorker) -> PlanWorkerShape {
        PlanWorkerShape {
            worker: from.worker.to_string(),
            zone: some(&from.zone),
            weight: from.weight,
            standing: from.standing.clone(),
            before: from.holds.before,
            after: from.holds.after,
            share: from.share,
        }
    }
}

impl PlanShape {
    fn of(plan: &Plan, saved: Option<&Path>) -> PlanShape {
        let reason = |(reason, moves): &(String, u32)| ReasonShape { reason: reason.clone(), moves: *moves };
        PlanShape {
            keyspace: plan.keyspace.to_string(),
            lineage: plan.lineage.to_string(),
            revision: plan.revision.get(),
            supposed: plan.supposed,
            balanced_by: balance_by(plan.balanced_by),
            spread: plan.spread.into(),
            zone_spread: plan.zone_spread.into(),
            workers: plan.workers.iter().map(Into::into).collect(),
            reasons: plan.reasons.iter().map(reason).collect(),
            obstacles: plan.obstacles.clone(),
            more_obstacles: plan.more_obstacles,
            moves: plan.moves.iter().map(Into::into).collect(),
            saved: saved.map(|path| path.display().to_string()),
        }
    }
}

/// Runs `ringfence rebalance plan`.
pub(super) async fn run(
    common: &Common,
    keyspace: &KeyspaceName,
    what_if: Vec<WhatIfArg>,
    save: Option<&Path>,
) -> Outcome {
    let admin = common.admin();
    let what_if: Vec<WhatIf> = what_if.into_iter().map(|WhatIfArg(what)| what).collect();
    let plan = admin.plan(keyspace.as_str(), &what_if).await?;
    if let Some(path) = save {
        let cluster = admin.cluster_status().await?.cluster;
        let cluster = cluster.ok_or_else(|| Failed::refused("the cluster still forms; try again"))?;
        SavedPlan::of(&plan, &cluster)?.write(path)?;
    }
    common.output().show(&PlanShape::of(&plan, save), || text(&plan, save))?;
    Ok(Exit::Done)
}

/// A plan for people.
pub(super) fn text(plan: &Plan, saved: Option<&Path>) -> String {
    let change = |of: BeforeAfter| format!("{} -> {}", of.before, of.after);
    let zones = plan.workers.iter().any(|worker| !worker.zone.is_empty());
    let mut text = properties([
        ("keyspace", plan.keyspace.to_string()),
        ("balanced by", balance_by(plan.balanced_by).to_owned()),
        ("moves", count(plan)),
        ("spread", change(plan.spread)),
        ("spread of zones", if zones { change(plan.zone_spread) } else { String::new() }),
    ]);
    let mut workers = Table::new(["WORKER", "ZONE", "WEIGHT", "STANDING", "BEFORE", "AFTER", "SHARE"]);
    for worker in &plan.workers {
        workers.row([
            worker.worker.to_string(),
            worker.zone.clone(),
            worker.weight.to_string(),
            worker.standing.clone(),
            worker.holds.before.to_string(),
            worker.holds.after.to_string(),
            worker.share.to_string(),
        ]);
    }
    text.push_str(&format!("\n{}", workers.text()));
    if !plan.moves.is_empty() {
        let shown = &plan.moves[..plan.moves.len().min(LINES)];
        text.push_str(&format!("\n{}", moves(plan, shown).text()));
        if plan.moves.len() > shown.len() {
            text.push_str(&format!("and {} more; see -o json\n", plan.moves.len() - shown.len()));
        }
    }
    if !plan.obstacles.is_empty() {
        text.push_str("\nWhat could not be done:\n");
        for obstacle in &plan.obstacles {
            text.push_str(&format!("  - {}\n", plain(obstacle)));
        }
        if plan.more_obstacles > 0 {
            text.push_str(&format!("  and {} more\n", plan.more_obstacles));
        }
    }
    match saved {
        Some(path) => {
            let path = plain(&path.display().to_string());
            text.push_str(&format!("\nsaved: review it, then `ringfence rebalance apply {path}`\n"));
        }
        None if plan.supposed => text.push_str("\nthis supposes what is not so; nothing was done\n"),
        None => {}
    }
    text
}

/// `12 (8 a worker joined, 4 balance)`
fn count(plan: &Plan) -> String {
    let reasons: Vec<String> =
        plan.reasons.iter().map(|(reason, moves)| format!("{moves} {reason}")).collect();
    match reasons.as_slice() {
        [] => plan.moves.len().to_string(),
        reasons => format!("{} ({})", plan.moves.len(), reasons.join(", ")),
    }
}

fn moves(plan: &Plan, shown: &[PlannedMove]) -> Table {
    let mut table = Table::new(["PARTITION", "FROM", "TO", "EPOCH", "LOAD", "WHY"]);
    for planned in shown {
        table.row([
            format!("{}/{}", plan.keyspace, planned.partition.get()),
            planned.from.as_ref().map(ToString::to_string).unwrap_or_default(),
            planned.to.to_string(),
            planned.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            planned.load.map(|load| load.to_string()).unwrap_or_default(),
            planned.reason.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn the_json_shapes_of_a_plan_are_a_contract() {
        let worker = PlanWorkerShape {
            worker: "w1".to_owned(),
            zone: None,
            weight: 1,
            standing: "takes".to_owned(),
            before: 8,
            after: 5,
            share: 5,
        };
        let plan = PlanShape {
            keyspace: "orders".to_owned(),
            lineage: "18446744073709551615".to_owned(),
            revision: 7,
            supposed: false,
            balanced_by: "load",
            spread: SpreadShape { before: 7, after: 1 },
            zone_spread: SpreadShape { before: 0, after: 0 },
            workers: vec![worker],
            reasons: vec![ReasonShape { reason: "balance".to_owned(), moves: 1 }],
            obstacles: vec![],
            more_obstacles: 0,
            moves: vec![PlannedMoveShape {
                partition: 3,
                epoch: Some(5),
                from: Some("w1".to_owned()),
                to: "w2".to_owned(),
                reason: "balance".to_owned(),
                load: Some(40),
            }],
            saved: None,
        };
        assert_eq!(
            json(&plan).unwrap(),
            r#"{"keyspace":"orders","lineage":"18446744073709551615","revision":7,"supposed":false,"balanced_by":"load","#
                .to_owned()
                + r#""spread":{"before":7,"after":1},"zone_spread":{"before":0,"after":0},"#
                + r#""workers":[{"worker":"w1","zone":null,"weight":1,"standing":"takes","before":8,"after":5,"share":5}],"#
                + r#""reasons":[{"reason":"balance","moves":1}],"obstacles":[],"more_obstacles":0,"#
                + r#""moves":[{"partition":3,"epoch":5,"from":"w1","to":"w2","reason":"balance","load":40}],"saved":null}"#
        );
    }
}
