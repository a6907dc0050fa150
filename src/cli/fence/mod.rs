//! `ringfence fence`: what storage refused, and fences that are raised again.

mod reassert;
mod refusals;

pub(crate) use refusals::{RefusalsShape, line};

use crate::args::Common;
use crate::exit::Outcome;
use clap::{Args, Subcommand};
use ringfence::ids::KeyspaceName;

/// Arguments of `ringfence fence`.
#[derive(Debug, Args)]
pub(crate) struct FenceArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Writes of replaced owners that storage refused: who was paused, for how long at least, and what to do
    #[command(after_help = refusals::AFTER_HELP)]
    Refusals {
        /// Only of this keyspace
        keyspace: Option<KeyspaceName>,
        /// Go on, with a line whenever more is told
        #[arg(long)]
        watch: bool,
    },
    /// Raise fences again, after storage was restored or has failed over
    #[command(after_help = reassert::AFTER_HELP)]
    Reassert(reassert::ReassertArgs),
    /// How far such orders are, and which workers have not raised yet
    Status {
        /// Only of this keyspace
        keyspace: Option<KeyspaceName>,
    },
}

/// Runs `ringfence fence`.
pub(crate) async fn run(args: FenceArgs) -> Outcome {
    let FenceArgs { common, verb } = args;
    match verb {
        Verb::Refusals { keyspace, watch: true } => refusals::watch(&common, keyspace.as_ref()).await,
        Verb::Refusals { keyspace, watch: false } => refusals::run(&common, keyspace.as_ref()).await,
        Verb::Reassert(args) => reassert::run(&common, args).await,
        Verb::Status { keyspace } => reassert::status(&common, keyspace.as_ref()).await,
    }
}
