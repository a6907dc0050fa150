//! `ringfence rebalance`: what a policy would do, before it is trusted.

use crate::args::Common;
use crate::exit::Outcome;
use crate::simulate;
use clap::{Args, Subcommand};

/// Arguments of `ringfence rebalance`.
#[derive(Debug, Args)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Replay what happens to workers over time, to see what a policy would do; no cluster is asked
    Simulate(Box<simulate::SimulateArgs>),
}

/// Runs `ringfence rebalance`.
pub(crate) async fn run(args: RebalanceArgs) -> Outcome {
    let common = &args.common;
    match args.verb {
        Verb::Simulate(args) => simulate::run(common.output(), &args),
    }
}
