//! `ringfence settings` and `ringfence directives`: what is set, by whom, and what operators decided.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::Table;
use crate::shape::{DirectiveShape, some};
use crate::text::{ago, plain};
use clap::Args;
use ringfence::admin::{Directive, PartitionSettings, Settings, WorkerSettings};
use serde::Serialize;

/// Arguments of `ringfence settings`.
#[derive(Debug, Args)]
#[command(after_help = "\
What a worker or a partition is set to belongs to its name, whether it is there or not. `worker remove` forgets those of a
worker that is gone for good.")]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Arguments of `ringfence directives`.
#[derive(Debug, Args)]
pub(crate) struct DirectivesArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Serialize)]
struct SettingsShape {
    cluster_frozen: Option<DirectiveShape>,
    keyspaces_frozen: Vec<FrozenShape>,
    /// At most 1000.
    workers: Vec<WorkerSettingsShape>,
    /// How many more there are.
    more_workers: u32,
    /// At most 1000.
    partitions: Vec<PartitionSettingsShape>,
    /// How many more there are.
    more_partitions: u32,
}

/// A keyspace in which planned moves are stopped.
#[derive(Debug, Serialize)]
pub(crate) struct FrozenShape {
    keyspace: String,
    directive: DirectiveShape,
}

impl FrozenShape {
    /// All that are frozen.
    pub(crate) fn all(settings: &Settings) -> Vec<FrozenShape> {
        let frozen = |(keyspace, by): &(_, Directive)| FrozenShape {
            keyspace: ToString::to_string(keyspace),
            directive: by.into(),
        };
        settings.keyspaces_frozen.iter().map(frozen).collect()
    }
}

/// What is set about a worker. `null`: it is off, and the weight is the worker's own.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerSettingsShape {
    worker: String,
    drained: Option<DirectiveShape>,
    drained_until_join: Option<DirectiveShape>,
    cordoned: Option<DirectiveShape>,
    frozen: Option<DirectiveShape>,
    weight: Option<u32>,
    weighed: Option<DirectiveShape>,
}

impl From<&WorkerSettings> for WorkerSettingsShape {
    fn from(from: &WorkerSettings) -> WorkerSettingsShape {
        WorkerSettingsShape {
            worker: from.worker.to_string(),
            drained: from.drained.as_ref().map(Into::into),
            drained_until_join: from.drained_until_join.as_ref().map(Into::into),
            cordoned: from.cordoned.as_ref().map(Into::into),
            frozen: from.frozen.as_ref().map(Into::into),
            weight: from.weight,
            weighed: from.weighed.as_ref().map(Into::into),
        }
    }
}

#[derive(Debug, Serialize)]
struct PartitionSettingsShape {
    keyspace: String,
    partition: u32,
    pin: Option<String>,
    pinned: Option<DirectiveShape>,
    frozen: Option<DirectiveShape>,
    weight: Option<u32>,
    weighed: Option<DirectiveShape>,
}

impl From<&PartitionSettings> for PartitionSettingsShape {
    fn from(from: &PartitionSettings) -> PartitionSettingsShape {
        PartitionSettingsShape {
            keyspace: from.keyspace.to_string(),
            partition: from.partition.get(),
            pin: from.pin.as_ref().map(|(worker, _)| worker.to_string()),
            pinned: from.pin.as_ref().map(|(_, by)| by.into()),
            frozen: from.frozen.as_ref().map(Into::into),
            weight: from.weight,
            weighed: from.weighed.as_ref().map(Into::into),
        }
    }
}

/// Runs `ringfence settings`.
pub(crate) async fn run(args: SettingsArgs) -> Outcome {
    let settings = args.common.admin().settings().await?;
    let shape = SettingsShape {
        cluster_frozen: settings.cluster_frozen.as_ref().map(Into::into),
        keyspaces_frozen: FrozenShape::all(&settings),
        workers: settings.workers.iter().map(Into::into).collect(),
        more_workers: settings.more_workers,
        partitions: settings.partitions.iter().map(Into::into).collect(),
        more_partitions: settings.more_partitions,
    };
    args.common.output().show(&shape, || text(&settings))?;
    Ok(Exit::Done)
}

/// Runs `ringfence directives`.
pub(crate) async fn run_directives(args: DirectivesArgs) -> Outcome {
    let directives = args.common.admin().directives().await?;
    let shapes: Vec<DirectiveShape> = directives.iter().map(Into::into).collect();
    args.common.output().show(&shapes, || directives_table(&directives).text())?;
    Ok(Exit::Done)
}

/// Directives for people.
pub(crate) fn directives_table(directives: &[Directive]) -> Table {
    let mut table = Table::new(["NUMBER", "WHEN", "BY", "WHAT", "WHY"]);
    for directive in directives {
        table.row([
            directive.at.get().to_string(),
            some_time(directive.unix_ms).unwrap_or_default(),
            directive.by.clone(),
            directive.what.clone(),
            directive.reason.clone(),
        ]);
    }
    table
}

/// How long ago it was, when that is known.
pub(crate) fn some_time(unix_ms: u64) -> Option<String> {
    (unix_ms > 0).then(|| ago(unix_ms))
}

/// Who decided it and why: `ada, 3m 20s ago: the disk is slow`.
pub(crate) fn by(directive: &Directive) -> String {
    if directive.by.is_empty() && directive.what.is_empty() {
        return format!("directive {}, long ago", directive.at.get());
    }
    let mut text = some(&directive.by).unwrap_or_else(|| "somebody".to_owned());
    if let Some(when) = some_time(directive.unix_ms) {
        text = format!("{text}, {when}");
    }
    if directive.reason.is_empty() { text } else { format!("{text}: {}", directive.reason) }
}

/// One thing that is set.
struct Row<'a> {
    what: String,
    set: String,
    by: Option<&'a Directive>,
    /// It keeps planned moves from being made, or a worker from getting any.
    stops: bool,
}

fn rows(settings: &Settings) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut row =
        |what: &str, set: String, by, stops| rows.push(Row { what: what.to_owned(), set, by, stops });
    if let Some(directive) = &settings.cluster_frozen {
        row("the cluster", "frozen".to_owned(), Some(directive), true);
    }
    for (keyspace, directive) in &settings.keyspaces_frozen {
        row(&format!("keyspace {keyspace}"), "frozen".to_owned(), Some(directive), true);
    }
    for worker in &settings.workers {
        let what = format!("worker {}", worker.worker);
        for (how, directive) in [
            ("drained", &worker.drained),
            ("drained until it joins", &worker.drained_until_join),
            ("cordoned", &worker.cordoned),
            ("frozen", &worker.frozen),
        ] {
            if let Some(directive) = directive {
                row(&what, how.to_owned(), Some(directive), true);
            }
        }
        if let Some(weight) = worker.weight {
            row(&what, format!("weight {weight}"), worker.weighed.as_ref(), false);
        }
    }
    for partition in &settings.partitions {
        let what = format!("partition {}/{}", partition.keyspace, partition.partition.get());
        if let Some((worker, directive)) = &partition.pin {
            row(&what, format!("pinned to {worker}"), Some(directive), false);
        }
        if let Some(directive) = &partition.frozen {
            row(&what, "frozen".to_owned(), Some(directive), true);
        }
        if let Some(weight) = partition.weight {
            row(&what, format!("weight {weight}"), partition.weighed.as_ref(), false);
        }
    }
    rows
}

fn table<'a>(rows: impl IntoIterator<Item = &'a Row<'a>>) -> Table {
    let mut table = Table::new(["WHAT", "SET", "BY"]);
    for row in rows {
        table.row([row.what.clone(), row.set.clone(), row.by.map(by).unwrap_or_default()]);
    }
    table
}

fn text(settings: &Settings) -> String {
    let rows = rows(settings);
    if rows.is_empty() {
        return "nothing is set\n".to_owned();
    }
    let mut text = table(&rows).text();
    for (more, what) in [(settings.more_workers, "workers"), (settings.more_partitions, "partitions")] {
        if more > 0 {
            text.push_str(&format!("and {more} more {what}\n"));
        }
    }
    text
}

/// A freeze, a drain or a cordon.
#[derive(Debug, Serialize)]
pub(crate) struct StopShape {
    /// `the cluster`, `keyspace orders`, `worker w1` or `partition orders/17`.
    what: String,
    /// `frozen`, `drained`, `drained until it joins` or `cordoned`.
    set: String,
    directive: Option<DirectiveShape>,
}

/// What operators have stopped, for programs.
pub(crate) fn stops(settings: &Settings) -> Vec<StopShape> {
    let shape = |row: Row<'_>| StopShape { what: row.what, set: row.set, directive: row.by.map(Into::into) };
    rows(settings).into_iter().filter(|row| row.stops).map(shape).collect()
}

/// The same for people, at most this many, and how many more there are. `None`: nothing is stopped.
pub(crate) fn stops_table(settings: &Settings, most: usize) -> Option<(Table, usize)> {
    let rows: Vec<Row<'_>> = rows(settings).into_iter().filter(|row| row.stops).collect();
    let shown = rows.len().min(most);
    (shown > 0).then(|| (table(&rows[..shown]), rows.len() - shown))
}

/// What is said of a directive in a sentence: `drain worker w1 (ada, 3m 20s ago: the disk is slow)`.
pub(crate) fn told(directive: &Directive) -> String {
    let what = some(&directive.what).unwrap_or_else(|| "a directive".to_owned());
    plain(&format!("{what} ({})", by(directive)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;
    use ringfence::ids::{KeyspaceName, LogIndex};

    fn directive() -> Directive {
        Directive {
            at: LogIndex::new(40),
            unix_ms: 1_700_000_000_000,
            by: "ada".to_owned(),
            what: "freeze keyspace orders".to_owned(),
            reason: "a bug\u{1b}[2J".to_owned(),
        }
    }

    fn forgotten() -> Directive {
        let nothing = String::new();
        Directive { unix_ms: 0, by: nothing.clone(), what: nothing.clone(), reason: nothing, ..directive() }
    }

    #[test]
    fn the_json_shape_of_a_directive_is_a_contract() {
        assert_eq!(
            json(&DirectiveShape::from(&directive())).unwrap(),
            r#"{"index":40,"given_unix_ms":1700000000000,"by":"ada","what":"freeze keyspace orders","#
                .to_owned()
                + r#""reason":"a bug\u001b[2J"}"#
        );
        assert_eq!(
            json(&DirectiveShape::from(&forgotten())).unwrap(),
            r#"{"index":40,"given_unix_ms":null,"by":null,"what":null,"reason":null}"#
        );
    }

    #[test]
    fn f021_who_decided_it_is_told_and_cannot_write_to_the_terminal() {
        assert!(by(&directive()).starts_with("ada, ") && by(&directive()).contains(" ago: a bug"));
        assert!(told(&directive()).contains("a bug\\u{1b}[2J"));
        assert_eq!(by(&forgotten()), "directive 40, long ago");
        let table = directives_table(&[directive(), forgotten()]).text();
        assert!(!table.contains('\u{1b}') && table.lines().count() == 3, "{table}");
        assert!(table.lines().skip(1).all(|line| line.starts_with("40 ")), "{table}");
    }

    #[test]
    fn what_is_set_is_listed_with_by_whom() {
        assert_eq!(text(&Settings::default()), "nothing is set\n");
        let mut settings = Settings::default();
        settings.cluster_frozen = Some(directive());
        settings.keyspaces_frozen = vec![(KeyspaceName::new("orders").unwrap(), forgotten())];
        settings.more_partitions = 3;
        let text = text(&settings);
        assert!(text.contains("the cluster      frozen  ada, "), "{text}");
        assert!(
            text.contains("keyspace orders  frozen  directive 40, long ago\nand 3 more partitions\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_stopped_is_listed_within_a_bound() {
        let mut settings = Settings::default();
        assert!(stops_table(&settings, 10).is_none() && stops(&settings).is_empty());
        settings.cluster_frozen = Some(directive());
        settings.keyspaces_frozen = vec![(KeyspaceName::new("orders").unwrap(), directive())];
        let (table, more) = stops_table(&settings, 1).unwrap();
        assert!(table.text().contains("the cluster  frozen  ada, ") && more == 1, "{}", table.text());
        let stops: Vec<_> = stops(&settings).into_iter().map(|stop| (stop.what, stop.set)).collect();
        let told = [("the cluster", "frozen"), ("keyspace orders", "frozen")];
        assert_eq!(stops, told.map(|(what, set)| (what.to_owned(), set.to_owned())));
    }
}
