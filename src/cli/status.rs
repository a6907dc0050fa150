//! `ringfence status`: one screen for the person on call.
//!
//! The question it answers is whether somebody is needed, and the exit code says so. What the coordinator does by
//! itself (a move, a worker that has been silent for a moment) is shown and needs nobody.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::fence::{self, RefusalsShape};
use crate::output::Table;
use crate::settings::{self, StopShape};
use crate::shape::{ClusterShape, PartitionShape, WorkerShape, some};
use crate::text::plain;
use crate::{cluster, partition, worker};
use clap::Args;
use ringfence::ErrorKind;
use ringfence::admin::{Admin, ClusterStatus, Health, Keyspace, OwnerlessReason, Sample, Settings};
use ringfence::ids::KeyspaceName;
use serde::Serialize;

/// How many partitions of a kind the screen has room for.
const LINES: usize = 10;

/// Arguments of `ringfence status`.
#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 1 when somebody is needed: nobody leads or no coordinator answers, a node cannot be reached, partitions
have no owner or their owners' tasks fail, owners have the wrong labels and nobody else takes partitions, the leader is
sick, a keyspace cannot be planned, or repairs are slowed down by the brake. Moves, workers that have been silent for
less than their TTL, and what operators have stopped are shown, and need nobody.

Example:
  ringfence status || page-somebody")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The screen for programs.
#[derive(Debug, Serialize)]
struct StatusShape {
    needs_somebody: bool,
    /// Why, in words; empty when nobody is needed.
    reasons: Vec<String>,
    cluster: ClusterShape,
    /// `null` when no leader answered; so are the lists below.
    counts: Option<CountsShape>,
    ownerless: Option<OwnerlessShape>,
    moving: Option<SampleShape>,
    failing: Option<SampleShape>,
    suspected: Option<Vec<WorkerShape>>,
    /// Why repairs are slowed down.
    brake: Option<String>,
    /// Keyspaces whose partitions have to go and nobody may take.
    misplaced: Option<Vec<String>>,
    /// Keyspaces that gave up exclusive leases for speed.
    fence_takeover: Option<Vec<String>>,
    /// Keyspaces whose partitions are being split.
    splitting: Option<Vec<SplittingShape>>,
    /// Writes of replaced owners that storage refused lately.
    refusals: Option<RefusalsShape>,
    /// Freezes, drains and cordons.
    stopped: Option<Vec<StopShape>>,
}

#[derive(Debug, Serialize)]
struct SplittingShape {
    keyspace: String,
    /// How many partitions there are, and how many there were before.
    partitions: u32,
    split_from: u32,
}

#[derive(Debug, Serialize)]
struct CountsShape {
    keyspaces: u64,
    workers: u64,
    partitions: u64,
    owned: u64,
    ready: u64,
}

/// At most 100 partitions, and how many there are.
#[derive(Debug, Serialize)]
struct SampleShape {
    total: u64,
    first: Vec<PartitionShape>,
}

/// The same of those that have no owner, and why.
#[derive(Debug, Serialize)]
struct OwnerlessShape {
    total: u64,
    first: Vec<PartitionShape>,
    /// Each reason once, those of which there are the most first.
    reasons: Vec<ReasonShape>,
}

#[derive(Debug, Serialize)]
struct ReasonShape {
    /// One word.
    reason: String,
    partitions: u64,
    /// The same for people, and what to do.
    means: String,
}

impl From<&Health> for OwnerlessShape {
    fn from(from: &Health) -> OwnerlessShape {
        let reason = |why: &OwnerlessReason| ReasonShape {
            reason: why.reason.clone(),
            partitions: why.partitions,
            means: why.means.clone(),
        };
        let SampleShape { total, first } = (&from.ownerless).into();
        OwnerlessShape { total, first, reasons: from.ownerless_reasons.iter().map(reason).collect() }
    }
}

impl From<&Sample> for SampleShape {
    fn from(from: &Sample) -> SampleShape {
        SampleShape { total: from.total, first: from.first.iter().map(PartitionShape::from).collect() }
    }
}

/// Runs `ringfence status`.
pub(crate) async fn run(args: StatusArgs) -> Outcome {
    let admin = args.common.admin();
    let (shape, screen) = match admin.health().await {
        Ok(health) => {
            let splitting = splitting(&admin.keyspaces().await?);
            let settings = admin.settings().await?;
            let screen = screen_of(&health) + &splits(&splitting) + &stopped(&settings);
            (shape_of(&health, splitting, settings::stops(&settings)), screen)
        }
        Err(error) => without_leader(&admin, error).await?,
    };
    let needs_somebody = shape.needs_somebody;
    args.common.output().show(&shape, || verdict(&shape.reasons) + &screen)?;
    Ok(if needs_somebody { Exit::Failed } else { Exit::Done })
}

/// No leader answered: what any node knows is better than nothing, and the person on call sees which nodes there are.
async fn without_leader(admin: &Admin, error: ringfence::Error) -> Result<(StatusShape, String), Failed> {
    if error.kind() == ErrorKind::Unreachable {
        return Err(error.into());
    }
    let Ok(status) = admin.cluster_status().await else { return Err(error.into()) };
    let shape = StatusShape {
        needs_somebody: true,
        // Whether the others have a leader a node that was removed cannot tell.
        reasons: vec![some(&status.removed).unwrap_or_else(|| error.to_string())],
        cluster: (&status).into(),
        counts: None,
        ownerless: None,
        moving: None,
        failing: None,
        suspected: None,
        brake: None,
        misplaced: None,
        fence_takeover: None,
        splitting: None,
        refusals: None,
        stopped: None,
    };
    Ok((shape, nodes(&status)))
}

fn splitting(all: &[Keyspace]) -> Vec<SplittingShape> {
    let shape = |keyspace: &Keyspace| {
        let (split, split_from) = keyspace.split_progress()?;
        Some(SplittingShape {
            keyspace: keyspace.name.to_string(),
            partitions: split_from + split,
            split_from,
        })
    };
    all.iter().filter_map(shape).collect()
}

fn splits(splitting: &[SplittingShape]) -> String {
    let line = |shape: &SplittingShape| {
        let SplittingShape { keyspace, partitions, split_from } = shape;
        format!("\nBeing split: {keyspace}, {} of {split_from} partitions are\n", partitions - split_from)
    };
    splitting.iter().map(line).collect()
}

/// What operators have stopped needs nobody, for somebody wanted it so; whoever is called at night has to see it all the same.
fn stopped(settings: &Settings) -> String {
    let Some((table, more)) = settings::stops_table(settings, LINES) else { return String::new() };
    let mut text = String::new();
    section(&mut text, "Stopped by operators", &table);
    if more > 0 {
        text.push_str(&format!("  and {more} more: `ringfence settings` lists them\n"));
    }
    text
}

fn shape_of(health: &Health, splitting: Vec<SplittingShape>, stopped: Vec<StopShape>) -> StatusShape {
    let reasons = reasons(health);
    StatusShape {
        needs_somebody: !reasons.is_empty(),
        reasons,
        cluster: (&health.cluster).into(),
        counts: Some(CountsShape {
            keyspaces: health.keyspaces,
            workers: health.workers,
            partitions: health.partitions,
            owned: health.owned,
            ready: health.ready,
        }),
        ownerless: Some(health.into()),
        moving: Some((&health.moving).into()),
        failing: Some((&health.failing).into()),
        suspected: Some(health.suspected.iter().map(WorkerShape::from).collect()),
        brake: Some(health.brake.clone()).filter(|brake| !brake.is_empty()),
        misplaced: Some(health.misplaced.clone()),
        fence_takeover: Some(health.fence_takeover.iter().map(ToString::to_string).collect()),
        splitting: Some(splitting),
        refusals: Some(health.into()),
        stopped: Some(stopped),
    }
}

/// Why somebody is needed.
fn reasons(health: &Health) -> Vec<String> {
    let mut reasons = Vec::new();
    // First: what follows may be what the brake waits for.
    if !health.brake.is_empty() {
        reasons.push(format!("THE BRAKE IS ON: {}", health.brake));
    }
    if health.cluster.leader.is_none() {
        reasons.push("no node leads".to_owned());
    }
    if !health.cluster.forming.is_empty() {
        reasons.push(format!("the cluster forms: {}", health.cluster.forming));
    }
    for node in health.cluster.nodes.iter().filter(|node| node.reachable == Some(false)) {
        reasons.push(format!("node {} at {} cannot be reached", node.id.get(), node.address));
    }
    if health.partitions > 0 && health.workers == 0 {
        reasons.push("no worker has a session".to_owned());
    }
    if health.ownerless.total > 0 {
        let mut text = format!("{} without an owner", partitions(health.ownerless.total));
        let why = |why: &OwnerlessReason| format!("{} of them: {}", why.partitions, why.means);
        let why: Vec<String> = match &health.ownerless_reasons[..] {
            [only] if only.partitions == health.ownerless.total => vec![only.means.clone()],
            several => several.iter().map(why).collect(),
        };
        if !why.is_empty() {
            text.push_str(&format!(": {}", why.join("; ")));
        }
        reasons.push(text);
    }
    reasons.extend(health.misplaced.iter().cloned());
    if !health.sick.is_empty() {
        let leader = health.cluster.leader.map_or("?".to_owned(), |id| id.get().to_string());
        reasons.push(format!("node {leader}, which leads, works badly: {}", health.sick));
    }
    for error in &health.planning_errors {
        reasons.push(format!("a keyspace stays as it is, for it cannot be planned: {error}"));
    }
    if health.failing.total > 0 {
        reasons.push(format!("{} whose owners' tasks fail", partitions(health.failing.total)));
    }
    reasons
}

fn partitions(count: u64) -> String {
    if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") }
}

fn verdict(reasons: &[String]) -> String {
    if reasons.is_empty() {
        return "Nobody is needed.\n\n".to_owned();
    }
    let mut text = "SOMEBODY IS NEEDED:\n".to_owned();
    for reason in reasons {
        text.push_str(&format!("  - {}\n", plain(reason)));
    }
    text + "\n"
}

fn screen_of(health: &Health) -> String {
    let mut screen = nodes(&health.cluster);
    screen.push_str(&format!(
        "\nkeyspaces {}   workers {}   partitions {}   owned {}   ready {}\n",
        health.keyspaces, health.workers, health.partitions, health.owned, health.ready
    ));
    for (title, sample) in [
        ("Without an owner", &health.ownerless),
        ("Failing", &health.failing),
        ("On the move", &health.moving),
    ] {
        if sample.total > 0 {
            let shown = &sample.first[..sample.first.len().min(LINES)];
            section(&mut screen, &format!("{title}: {}", sample.total), &partition::table(shown));
            if sample.total > shown.len() as u64 {
                screen.push_str(&format!("  and {} more\n", sample.total - shown.len() as u64));
            }
        }
    }
    if !health.suspected.is_empty() {
        section(&mut screen, "Silent workers", &worker::table(&health.suspected));
    }
    if let Some(line) = fence::line(health) {
        screen.push_str(&format!("\n{line}\n"));
    }
    if !health.fence_takeover.is_empty() {
        let names: Vec<&str> = health.fence_takeover.iter().map(KeyspaceName::as_str).collect();
        screen.push_str(&format!(
            "\nTake over by fence: {} (there, two workers may both believe that they own a partition for a while)\n",
            names.join(", ")
        ));
    }
    screen
}

fn nodes(status: &ClusterStatus) -> String {
    let name = status.cluster.as_ref().map_or("not formed yet".to_owned(), ToString::to_string);
    let leader = status.leader.map_or("nobody".to_owned(), |id| format!("node {}", id.get()));
    let mut text = format!("cluster {name}   leader {leader}   term {}\n", status.term.get());
    text.push_str(&cluster::nodes(status).indented(2));
    text
}

fn section(screen: &mut String, title: &str, table: &Table) {
    screen.push_str(&format!("\n{title}\n{}", table.indented(2)));
}
