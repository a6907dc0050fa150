//! `ringfence-sim chaos`.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use ringfence_sim::chaos::{self, Options};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
It exits with 0 exactly when it showed what it should: nothing violated and no stale write accepted; or, with --no-fence,
stale writes accepted and found. See docs/chaos.md.";

/// Arguments of `chaos`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ChaosArgs {
    /// How long things are broken, in all
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// What decides on faults [default: a random one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Write without a fence, and change nothing else: stale writes must be accepted then, and be found
    #[arg(long)]
    no_fence: bool,
    /// Keep histories and logs also when everything held, and say where
    #[arg(long)]
    keep: bool,
    /// The binary of the product [default: the one next to this one; under cargo it is built first]
    #[arg(long, value_name = "FILE")]
    ringfence: Option<PathBuf>,
    /// A table for people, or one JSON object for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Runs it.
pub(crate) fn run(args: &ChaosArgs) -> anyhow::Result<ExitCode> {
    chaos::go_inside();
    let length = Duration::try_from_secs_f64(args.minutes * 60.0)
        .ok()
        .filter(|length| *length >= Duration::from_secs(1) && *length <= Duration::from_secs(7 * 24 * 3600))
        .with_context(|| format!("--minutes {} is not between 0.02 and a week", args.minutes))?;
    let options = Options {
        length,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        fence: !args.no_fence,
        ringfence: args.ringfence.clone().map_or_else(chaos::product, Ok)?,
        keep: args.keep,
        quiet: args.output == Format::Json,
    };
    eprintln!("seed {}", options.seed);
    let report = chaos::run(&options)?;
    match args.output {
        Format::Json => println!("{}", serde_json::to_string(&report)?),
        Format::Table => print!("{report}"),
    }
    if let Some(why) = report.shortfall() {
        eprintln!("error: the run did not show what it should: {why}");
        return Ok(ExitCode::FAILURE);
    }
    if args.output == Format::Table {
        println!(
            "{}",
            if report.fence {
                "everything held"
            } else {
                "this is what the fence prevents; without --no-fence it is refused"
            }
        );
    }
    Ok(ExitCode::SUCCESS)
}
