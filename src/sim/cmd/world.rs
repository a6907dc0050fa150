//! One world in this process: what the runner of many starts for each seed, and what a person starts to look at one.

use super::out::{print, say};
use clap::{Args, ValueEnum};
use ringfence_sim::history::What;
use ringfence_sim::run::{Outcome, Plan, run};
use ringfence_sim::seeds::{Report, Trial};
use std::hash::{DefaultHasher, Hasher};
use std::process::ExitCode;
use std::time::Instant;

/// Runs the world of one seed and says what happened.
#[derive(Debug, Args)]
pub(crate) struct World {
    /// The seed: it decides everything.
    #[arg(long)]
    seed: u64,
    /// Only so many of the faults that the seed has.
    #[arg(long)]
    faults: Option<usize>,
    /// Without these of them, by number from 0.
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// With a store that believes whoever comes: a stale write must be found.
    #[arg(long)]
    no_fence: bool,
    /// Only so many simulated milliseconds of it: what comes after is not asked for.
    #[arg(long, value_name = "MS")]
    until: Option<u64>,
    /// Print everything that happened.
    #[arg(long)]
    transcript: bool,
    /// Print the log of the product too, filtered as by RUST_LOG.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How the report is printed.
    #[arg(short, long, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl World {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(filter) = &self.log {
            tracing_subscriber::fmt().with_env_filter(filter.clone()).with_writer(std::io::stderr).init();
        }
        crate::dice::load(self.seed);
        let trial = Trial {
            seed: self.seed,
            faults: self.faults,
            without: self.without.clone(),
            no_fence: self.no_fence,
            until: self.until,
        };
        let mut plan = Plan::of(self.seed);
        let all = plan.faults.len();
        trial.trim(&mut plan);
        let began = Instant::now();
        // A thread that was not there before the dice were loaded.
        let world = std::thread::scope(|scope| {
            let world = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || {
                fastrand::seed(plan.seed);
                run(&plan)
            })?;
            world.join().map_err(|_| anyhow::anyhow!("the world itself panicked"))?
        });
        let outcome = world?;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let report = Report { took_ms, faults: all as u64, ..report(&plan, &outcome)? };
        if self.transcript {
            say!("{}", outcome.history)?;
        }
        match self.output {
            Format::Json => say!("{}", serde_json::to_string(&report)?)?,
            Format::Text => print(format_args!("{report}"))?,
        }
        Ok(if report.held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// As much as a program's first thread has.
const STACK: usize = 8 << 20;
/// How many violations a report tells.
const TOLD: usize = 8;

fn report(plan: &Plan, outcome: &Outcome) -> anyhow::Result<Report> {
    let events = &outcome.history.events;
    let count = |is: fn(&What) -> bool| events.iter().filter(|event| is(&event.what)).count() as u64;
    let broken = outcome.broken.iter().cloned();
    let violations = outcome.verdict.violations.iter().map(ToString::to_string);
    let steady = events.iter().position(|event| matches!(event.what, What::Steady)).map(|at| &events[at..]);
    let steady_us = steady.and_then(|events| Some(events.last()?.at - events.first()?.at)).unwrap_or(0);
    let granted =
        steady.unwrap_or_default().iter().filter(|event| matches!(event.what, What::Granted { .. }));
    Ok(Report {
        seed: plan.seed,
        held: outcome.held(),
        violations: broken.chain(violations).take(TOLD).collect(),
        events: events.len() as u64,
        faults: plan.faults.len() as u64,
        elections: outcome.figures.elections,
        tenures: count(|what| matches!(what, What::Began { .. })),
        moves: count(|what| matches!(what, What::MoveBegan { .. })),
        splits: count(|what| matches!(what, What::Split { .. })),
        writes: count(|what| matches!(what, What::Applied { .. })),
        refused: count(|what| matches!(what, What::RefusedStale { .. } | What::RefusedSession { .. })),
        simulated_ms: outcome.figures.simulated_ms,
        steady_ms: steady_us / 1_000,
        moved_when_steady: granted.count() as u64,
        took_ms: 0,
        history: fingerprint(outcome)?,
    })
}

/// A number of everything that happened, nothing of it left out.
fn fingerprint(outcome: &Outcome) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    outcome.history.write_jsonl(&mut lines)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&lines);
    Ok(format!("{:016x}", hasher.finish()))
}
