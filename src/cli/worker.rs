//! `ringfence worker`: the workers that have a session.

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::output::Table;
use crate::shape::WorkerShape;
use crate::text::{ago, short};
use clap::{Args, Subcommand};
use ringfence::admin::Worker;
use ringfence::ids::KeyspaceName;

/// Arguments of `ringfence worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List all workers that have a session
    List,
}

/// Runs `ringfence worker`.
pub(crate) async fn run(args: WorkerArgs) -> Outcome {
    let Verb::List = args.verb;
    let workers = args.common.admin().workers().await?;
    let shapes: Vec<_> = workers.iter().map(WorkerShape::from).collect();
    args.common.output().show(&shapes, || table(&workers).text())?;
    Ok(Exit::Done)
}

/// Workers for people.
pub(crate) fn table(workers: &[Worker]) -> Table {
    let mut table = Table::new([
        "WORKER",
        "SESSION",
        "ADDRESS",
        "PARTITIONS",
        "READY",
        "TTL",
        "SILENT",
        "JOINED",
        "KEYSPACES",
    ]);
    for worker in workers {
        let names: Vec<&str> = worker.keyspaces.iter().map(KeyspaceName::as_str).collect();
        table.row([
            worker.worker.to_string(),
            worker.session.to_string(),
            worker.address.clone(),
            worker.partitions.to_string(),
            worker.ready.to_string(),
            short(worker.ttl),
            silence(worker.suspicion_thirds),
            ago(worker.joined_unix_ms),
            names.join(","),
        ]);
    }
    table
}

fn silence(thirds: u32) -> String {
    match thirds {
        0 => String::new(),
        thirds => format!("{thirds}/3 of its ttl"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_worker_is_seen_to_be_silent() {
        assert_eq!(silence(0), "");
        assert_eq!(silence(2), "2/3 of its ttl");
    }
}
