//! Why a partition is where it is, and how it came there.

use super::PartitionArg;
use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, properties};
use crate::settings::{by, told};
use crate::shape::{DirectiveShape, PartitionShape, PlannedMoveShape, TenureShape};
use crate::text::{ago, plain};
use ringfence::admin::{Explanation, Tenure};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct ExplanationShape {
    partition: PartitionShape,
    /// The worker that the ring prefers for it.
    home: Option<String>,
    because: String,
    /// What keeps it there and what it would take.
    holds: Vec<String>,
    /// The move that is planned for it.
    planned: Option<PlannedMoveShape>,
    /// Why others do not have it, in the order in which it prefers them.
    others: Vec<WhyNotShape>,
    /// The directives that bear on it.
    directives: Vec<DirectiveShape>,
    /// How much it counts; `null` when all count alike.
    load: Option<u32>,
    /// Who says so.
    load_source: Option<String>,
    /// The worker that it is pinned to.
    pin: Option<String>,
}

#[derive(Debug, Serialize)]
struct WhyNotShape {
    worker: String,
    why: String,
}

impl From<&Explanation> for ExplanationShape {
    fn from(from: &Explanation) -> ExplanationShape {
        let why_not = |other: &ringfence::admin::WhyNot| WhyNotShape {
            worker: other.worker.to_string(),
            why: other.why.clone(),
        };
        ExplanationShape {
            partition: (&from.partition).into(),
            home: from.home.as_ref().map(ToString::to_string),
            because: from.because.clone(),
            holds: from.holds.clone(),
            planned: from.planned.as_ref().map(Into::into),
            others: from.others.iter().map(why_not).collect(),
            directives: from.directives.iter().map(Into::into).collect(),
            load: from.load.as_ref().map(|(load, _)| *load),
            load_source: from.load.as_ref().map(|(_, source)| source.clone()),
            pin: from.pin.as_ref().map(ToString::to_string),
        }
    }
}

/// Runs `ringfence partition explain`.
pub(super) async fn explain(common: &Common, partition: &PartitionArg) -> Outcome {
    let told = common.admin().explain(partition.keyspace.as_str(), partition.partition).await?;
    common.output().show(&ExplanationShape::from(&told), || text(partition, &told))?;
    Ok(Exit::Done)
}

/// Runs `ringfence partition history`.
pub(super) async fn history(common: &Common, partition: &PartitionArg) -> Outcome {
    let detail = common.admin().partition(partition.keyspace.as_str(), partition.partition).await?;
    let shapes: Vec<TenureShape> = detail.history.iter().map(Into::into).collect();
    common.output().show(&shapes, || tenures(&detail.history).text())?;
    Ok(Exit::Done)
}

/// A partition's owners, newest first, for people.
pub(super) fn tenures(history: &[Tenure]) -> Table {
    let mut table = Table::new(["EPOCH", "OWNER", "SESSION", "GRANTED", "REASON", "BY"]);
    for tenure in history {
        table.row([
            tenure.epoch.to_string(),
            tenure.worker.to_string(),
            tenure.session.to_string(),
            ago(tenure.granted_unix_ms),
            tenure.reason.clone(),
            tenure.directive.as_ref().map(by).unwrap_or_default(),
        ]);
    }
    table
}

fn text(partition: &PartitionArg, told: &Explanation) -> String {
    let owner = told.partition.owner.as_ref();
    let mut text = properties([
        ("partition", partition.to_string()),
        ("phase", told.partition.phase.to_string()),
        ("owner", owner.map(|owner| owner.worker.to_string()).unwrap_or_default()),
        ("moves to", told.partition.moving.as_ref().map(|(to, _)| to.to_string()).unwrap_or_default()),
        ("home", told.home.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("pinned to", told.pin.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("because", told.because.clone()),
        ("load", told.load.as_ref().map_or(String::new(), |(load, source)| format!("{load} ({source})"))),
    ]);
    if let Some(planned) = &told.planned {
        let is_to = if told.holds.is_empty() { "It is to move" } else { "A plan would move it" };
        text.push_str(&format!("\n{is_to} to {}: {}.\n", planned.to, plain(&planned.reason)));
    }
    list(&mut text, "What keeps it there", told.holds.iter().map(String::as_str));
    if !told.others.is_empty() {
        let mut table = Table::new(["WORKER", "WHY NOT"]);
        for other in &told.others {
            table.row([other.worker.to_string(), other.why.clone()]);
        }
        text.push_str(&format!("\n{}", table.text()));
    }
    let directives: Vec<String> = told.directives.iter().map(self::told).collect();
    list(&mut text, "What operators decided about it", directives.iter().map(String::as_str));
    text
}

fn list<'a>(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = &'a str>) {
    if lines.len() > 0 {
        text.push_str(&format!("\n{title}:\n"));
        for line in lines {
            text.push_str(&format!("  - {}\n", plain(line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_api::v1;

    #[test]
    fn f021_the_planned_move_begins_a_line_and_its_reason_cannot() {
        let planned = v1::PlannedMove {
            epoch: 5,
            from: "w1".to_owned(),
            to: "w2".to_owned(),
            reason: "balance\n\u{1b}[2J".to_owned(),
            ..v1::PlannedMove::default()
        };
        let partition = v1::Partition {
            keyspace: "orders".to_owned(),
            phase: v1::Phase::Vacant.into(),
            ..v1::Partition::default()
        };
        let wire = v1::ExplainResponse {
            partition: Some(partition),
            planned: Some(planned),
            because: "nobody has it".to_owned(),
            ..v1::ExplainResponse::default()
        };
        let arg: PartitionArg = "orders/0".parse().unwrap();
        let screen = text(&arg, &Explanation::try_from(wire).unwrap());
        let last = screen.lines().next_back().unwrap();
        assert!(last.starts_with("It is to move to w2: balance") && last.ends_with('.'), "{screen}");
        assert!(!screen.contains('\u{1b}') && screen.ends_with(".\n"), "{screen:?}");
        assert_eq!(screen.lines().filter(|line| line.is_empty()).count(), 1, "{screen}");
        assert!(!screen.contains("\\nIt is to move"), "{screen}");
    }
}
