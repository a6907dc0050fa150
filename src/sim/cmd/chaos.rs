//! `ringfence-sim chaos`.

use super::out::{note, print, say};
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
    #[arg(long, value_name = "N", default_value = "1", value_parser = minutes)]
    minutes: Duration,
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
    #[arg(long, value_name = "FILE", value_parser = chaos::product_at)]
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
    let options = Options {
        length: args.minutes,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        fence: !args.no_fence,
        ringfence: args.ringfence.clone().map_or_else(chaos::product, Ok)?,
        keep: args.keep,
        quiet: args.output == Format::Json,
    };
    note(format_args!("seed {}", options.seed));
    let report = chaos::run(&options)?;
    let shortfall = report.shortfall();
    // Whether it can be printed or not, the exit code says first what the run showed.
    let printed = match args.output {
        Format::Json => say!("{}", serde_json::to_string(&report)?),
        Format::Table if shortfall.is_some() => print(format_args!("{report}")),
        Format::Table if report.fence => say!("{report}everything held"),
        Format::Table => say!("{report}this is what the fence prevents; without --no-fence it is refused"),
    };
    if let Some(why) = shortfall {
        note(format_args!("error: the run did not show what it should: {why}"));
        return Ok(ExitCode::FAILURE);
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    Duration::try_from_secs_f64(minutes * 60.0)
        .ok()
        .filter(|length| *length >= Duration::from_secs(1) && *length <= Duration::from_secs(7 * 24 * 3600))
        .ok_or_else(|| "it is not between 0.02 and a week (10080)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_between_a_second_and_a_week() {
        assert_eq!(minutes("0.5"), Ok(Duration::from_secs(30)));
        assert_eq!(minutes("10080"), Ok(Duration::from_secs(7 * 24 * 3600)));
        for bad in ["", "x", "0", "-1", "nan", "inf", "1e300", "0.001", "10081"] {
            assert!(minutes(bad).is_err(), "{bad}");
        }
    }
}
