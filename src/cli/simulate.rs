//! `ringfence rebalance simulate`: a trace is replayed against a leader, without a cluster.

use crate::exit::{Exit, Failed, Outcome};
use crate::keyspace::BalanceByArg;
use crate::output::{Output, Table, properties};
use crate::shape::balance_by;
use crate::text::{plain, short};
use clap::Args;
use ringfence::ErrorKind;
use ringfence::admin::{BalanceBy, PolicyChange};
use ringfence_server::simulation::{
    Line, MAX_COOL_DOWN, MAX_LINE_BYTES, MAX_STEP, MIN_STEP, Moves, Report, Sample, Setup, Simulation,
    Totals, TraceReader,
};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const AFTER_HELP: &str = "\
A trace says how one keyspace is run and what happens: workers join, leave and fail, operators drain, pin and freeze,
loads are measured. What moves is decided by the code that a coordinator runs, so the same trace gives the same answer
always; two policies are compared by giving one of them here. The form of a trace: docs/placement.md.

Examples:
  ringfence rebalance simulate examples/rollout.jsonl --every 1m
  ringfence rebalance simulate examples/rollout.jsonl --max-moves-in-flight 16 --moves-per-minute 0 -o json";

/// Arguments of `ringfence rebalance simulate`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SimulateArgs {
    /// A file with one JSON object a line, or - for standard input; docs/placement.md has its form
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    every: Duration,
    #[command(flatten)]
    instead: Instead,
}

/// What to take instead of what the trace says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Instead of what the trace says")]
struct Instead {
    /// How many planned moves run at once
    #[arg(long, value_name = "NUMBER")]
    max_moves_in_flight: Option<u32>,
    /// How many planned moves begin in a minute; 0 for no bound
    #[arg(long, value_name = "NUMBER")]
    moves_per_minute: Option<u32>,
    /// Whether partitions are balanced by themselves
    #[arg(long, value_name = "BOOL")]
    balance: Option<bool>,
    /// What balancing evens out: how many partitions, with the loads of the trace as their weights; or the loads that owners
    /// measure
    #[arg(long)]
    balance_by: Option<BalanceByArg>,
    /// Whether partitions are spread over zones
    #[arg(long, value_name = "BOOL")]
    spread_zones: Option<bool>,
    /// How long a lease lasts
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// How long balancing waits after the last join or end of a worker
    #[arg(long, value_name = "DURATION", value_parser = settle)]
    settle: Option<Duration>,
    /// How long a partition that an operator moved is not balanced away
    #[arg(long, value_name = "DURATION", value_parser = cool_down)]
    cool_down: Option<Duration>,
    /// How long an owner takes to give a partition up
    #[arg(long, value_name = "DURATION", value_parser = step)]
    release: Option<Duration>,
    /// How long a new owner takes until it is ready
    #[arg(long, value_name = "DURATION", value_parser = step)]
    load: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    within(text, MIN_STEP, Duration::MAX)
}

fn settle(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, MAX_STEP)
}

fn cool_down(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, MAX_COOL_DOWN)
}

fn step(text: &str) -> Result<Duration, String> {
    within(text, MIN_STEP, MAX_STEP)
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < least {
        return Err(format!("it is {} or more", short(least)));
    }
    if duration > most {
        return Err(format!("it is at most {}", short(most)));
    }
    Ok(duration)
}

impl Instead {
    fn of(&self, setup: Setup) -> Result<Setup, Failed> {
        let change = PolicyChange {
            max_moves_in_flight: self.max_moves_in_flight,
            moves_per_minute: self.moves_per_minute,
            balance: self.balance,
            spread_zones: self.spread_zones,
            balance_by: self.balance_by.map(BalanceBy::from),
            ttl: self.ttl,
            ..PolicyChange::default()
        };
        let mut setup = setup.with(&change).map_err(|error| Failed::usage(error.to_string()))?;
        setup.pacing.settle = self.settle.unwrap_or(setup.pacing.settle);
        setup.pacing.cool_down = self.cool_down.unwrap_or(setup.pacing.cool_down);
        setup.release = self.release.unwrap_or(setup.release);
        setup.load = self.load.unwrap_or(setup.load);
        Ok(setup)
    }
}

/// The whole answer: how the keyspace was run, and what came of it.
#[derive(Debug, Serialize)]
struct SimulationShape {
    keyspace: String,
    partitions: u32,
    ttl_ms: u64,
    max_moves_in_flight: u32,
    /// 0: no bound.
    moves_per_minute: u32,
    balance: bool,
    /// `count` or `load`.
    balance_by: &'static str,
    spread_zones: bool,
    settle_ms: u64,
    cool_down_ms: u64,
    release_ms: u64,
    load_ms: u64,
    every_ms: u64,
    totals: TotalsShape,
    samples: Vec<SampleShape>,
}

#[derive(Debug, Serialize)]
struct TotalsShape {
    end_ms: u64,
    at_rest: bool,
    moves: Moves,
    moves_refused: u64,
    max_in_flight: u64,
    max_moves_of_a_partition: u32,
    out_of_balance_ms: u64,
    ownerless_partition_ms: u64,
    loading_partition_ms: u64,
}

#[derive(Debug, Serialize)]
struct SampleShape {
    at_ms: u64,
    workers: usize,
    ownerless: u64,
    loading: u64,
    in_flight: u64,
    spread: u64,
    zone_spread: u64,
    zone_violations: u64,
    /// Thousandths; `null` when nobody takes partitions.
    imbalance_permille: Option<u64>,
    moves: Moves,
}

impl SimulationShape {
    fn new(setup: &Setup, every: Duration, report: Report) -> SimulationShape {
        let Report { samples, totals } = report;
        let Totals { end_ms, at_rest, moves, moves_refused, max_in_flight, .. } = totals;
        SimulationShape {
            keyspace: setup.keyspace.to_string(),
            partitions: setup.partitions.get(),
            ttl_ms: ms(setup.policy.ttl()),
            max_moves_in_flight: setup.policy.max_moves_in_flight(),
            moves_per_minute: setup.policy.moves_per_minute(),
            balance: setup.policy.balance(),
            balance_by: balance_by(setup.policy.balance_by()),
            spread_zones: setup.policy.spread_zones(),
            settle_ms: ms(setup.pacing.settle),
            cool_down_ms: ms(setup.pacing.cool_down),
            release_ms: ms(setup.release),
            load_ms: ms(setup.load),
            every_ms: ms(every),
            totals: TotalsShape {
                end_ms,
                at_rest,
                moves,
                moves_refused,
                max_in_flight,
                max_moves_of_a_partition: totals.max_moves_of_a_partition,
                out_of_balance_ms: totals.out_of_balance_ms,
                ownerless_partition_ms: totals.ownerless_partition_ms,
                loading_partition_ms: totals.loading_partition_ms,
            },
            samples: samples.into_iter().map(SampleShape::from).collect(),
        }
    }
}

impl From<Sample> for SampleShape {
    fn from(from: Sample) -> SampleShape {
        SampleShape {
            at_ms: from.at_ms,
            workers: from.workers,
            ownerless: from.ownerless,
            loading: from.loading,
            in_flight: from.in_flight,
            spread: from.spread,
            zone_spread: from.zone_spread,
            zone_violations: from.zone_violations,
            imbalance_permille: from.imbalance_permille,
            moves: from.moves,
        }
    }
}

/// Runs `ringfence rebalance simulate`. Nothing is shown of a trace that cannot be read to its end.
pub(crate) fn run(output: Output, args: &SimulateArgs) -> Outcome {
    let shape = if args.trace == Path::new("-") {
        simulate(io::stdin().lock(), "standard input", args)?
    } else {
        let name = plain(&args.trace.display().to_string());
        let file = File::open(&args.trace).map_err(|error| unreadable(&name, &error))?;
        simulate(BufReader::new(file), &name, args)?
    };
    output.show(&shape, || text(&shape))?;
    Ok(Exit::Done)
}

fn simulate(mut from: impl BufRead, name: &str, args: &SimulateArgs) -> Result<SimulationShape, Failed> {
    let (mut reader, mut line, mut replay) = (TraceReader::new(), Vec::new(), None);
    loop {
        line.clear();
        // One byte more than a line may have: it is refused then, and what follows is never held.
        let mut rest = from.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        if rest.read_until(b'\n', &mut line).map_err(|error| unreadable(name, &error))? == 0 {
            break;
        }
        let read = reader.read(&line).map_err(|error| invalid(name, &error))?;
        match (read, &mut replay) {
            (None, _) => {}
            (Some(Line::Setup(setup)), replay) => {
                let setup = args.instead.of(*setup)?;
                let simulation =
                    Simulation::new(setup.clone(), args.every).map_err(|error| invalid(name, &error))?;
                *replay = Some((setup, simulation));
            }
            (Some(Line::Event(at_ms, event)), Some((_, simulation))) => {
                let at = format_args!("line {}: ", reader.line()).to_string();
                simulation.happen(at_ms, event).map_err(|error| invalid(name, &format!("{at}{error}")))?;
            }
            (Some(Line::Event(..)), None) => unreachable!("the reader reads the head first"),
        }
    }
    reader.finish().map_err(|error| invalid(name, &error))?;
    let Some((setup, simulation)) = replay else { unreachable!("a trace that is not empty has a head") };
    let report = simulation.finish().map_err(|error| invalid(name, &error))?;
    Ok(SimulationShape::new(&setup, args.every, report))
}

fn unreadable(name: &str, error: &io::Error) -> Failed {
    Failed::Error { code: "io", message: format!("cannot read {name}: {error}"), exit: Exit::Failed }
}

fn invalid(name: &str, error: &impl Display) -> Failed {
    let code = ErrorKind::Invalid.as_str();
    Failed::Error { code, message: format!("{name}: {error}"), exit: Exit::Failed }
}

fn text(shape: &SimulationShape) -> String {
    let mut table = Table::new([
        "TIME",
        "WORKERS",
        "OWNERLESS",
        "LOADING",
        "IN FLIGHT",
        "SPREAD",
        "ZONES",
        "ZONES OFF",
        "IMBALANCE",
        "MOVES",
    ]);
    for sample in &shape.samples {
        table.row([
            span(sample.at_ms),
            sample.workers.to_string(),
            sample.ownerless.to_string(),
            sample.loading.to_string(),
            sample.in_flight.to_string(),
            sample.spread.to_string(),
            sample.zone_spread.to_string(),
            sample.zone_violations.to_string(),
            sample.imbalance_permille.map_or(String::new(), thousandths),
            listed(&sample.moves),
        ]);
    }
    let totals = &shape.totals;
    let all: u64 = totals.moves.values().sum();
    let rate = match shape.moves_per_minute {
        0 => String::new(),
        bound => format!(", at most {bound} moves begun in a minute"),
    };
    let balance = if shape.balance { "" } else { ", not balanced by itself" };
    let run = format!(
        "at most {} moves in flight{rate}{balance}, settles for {}",
        shape.max_moves_in_flight,
        span(shape.settle_ms)
    );
    let mut text = table.text();
    text.push('\n');
    text.push_str(&properties([
        ("keyspace", format!("{}, {} partitions", shape.keyspace, shape.partitions)),
        ("run with", run),
        (
            "ended",
            format!(
                "after {}, {}",
                span(totals.end_ms),
                if totals.at_rest { "at rest" } else { "not at rest" }
            ),
        ),
        ("moves", format!("{all}: {}", if all == 0 { "-".to_owned() } else { listed(&totals.moves) })),
        ("moves refused", totals.moves_refused.to_string()),
        ("most in flight", totals.max_in_flight.to_string()),
        ("most of one partition", totals.max_moves_of_a_partition.to_string()),
        ("out of balance", span(totals.out_of_balance_ms)),
        ("without an owner", format!("{} partition-seconds", thousandths(totals.ownerless_partition_ms))),
        ("loading", format!("{} partition-seconds", thousandths(totals.loading_partition_ms))),
    ]));
    text
}

/// `12 join, 3 zone`
fn listed(moves: &Moves) -> String {
    moves.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

fn thousandths(number: u64) -> String {
    format!("{}.{:03}", number / 1_000, number % 1_000)
}

fn span(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
