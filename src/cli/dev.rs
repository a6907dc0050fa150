//! `ringfence dev`: a coordinator of one node in memory, to try things out.

use crate::exit::{Failed, Outcome};
use crate::serve::host;
use clap::Args;
use ringfence_server::Coordinator;

/// Arguments of `ringfence dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
It forgets everything when it stops: a worker that comes back finds no keyspace.

Example:
  ringfence dev &
  ringfence keyspace create orders --partitions 16")]
pub(crate) struct DevArgs {
    /// The address to listen on
    #[arg(long, env = "RINGFENCE_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:7600")]
    listen: String,
}

/// Runs the node until it is told to stop.
pub(crate) async fn run(args: DevArgs) -> Outcome {
    let launch = Coordinator::in_memory().listen(&args.listen);
    let launch = launch.map_err(|error| Failed::usage(error.to_string()))?;
    host(launch, ", in memory: it forgets everything when it stops").await
}
