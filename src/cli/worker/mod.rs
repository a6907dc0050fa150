//! `ringfence worker`: the workers, what is set about them, and the way to stop one.
//!
//! | file | idea |
//! |---|---|
//! | `set` | what is set about a worker, and forgotten; its eviction |
//! | `drain` | a worker gives up all it has, and is safe to stop |
//! | `show` | one worker, and what became of it |

mod drain;
mod set;
mod show;

use crate::args::Common;
use crate::exit::{Exit, Outcome};
use crate::operator::{Sure, Who};
use crate::output::Table;
use crate::shape::WorkerShape;
use crate::text::{ago, short};
use clap::{Args, Subcommand};
use ringfence::admin::{Admin, Worker, WorkerChange, WorkerDetail};
use ringfence::ids::{KeyspaceName, WorkerId};
use ringfence::{Error, ErrorKind};
use std::time::Duration;

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
    /// Show one worker and what is set about it, whether it has a session or not
    Show {
        /// Its name
        worker: WorkerId,
    },
    /// What became of a worker: joins, ends, and what operators decided
    History {
        /// Its name
        worker: WorkerId,
    },
    /// Let a worker give up all it has; it gets nothing until it is undrained
    #[command(after_help = drain::AFTER_HELP)]
    Drain {
        /// Its name; it need not have a session
        worker: WorkerId,
        /// Only until it joins again: for a restart, whose drain nobody has to take back
        #[arg(long)]
        until_join: bool,
        /// Wait until it holds nothing and no move goes to it, for so long; then the exit code is 1
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        wait: Option<Duration>,
        /// Change nothing and say whether its process may be stopped: exit code 0 when it may, 1 when not yet
        #[arg(long, conflicts_with_all = ["until_join", "wait", "yes", "dry_run", "reason"])]
        check: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Let a drained worker have partitions again
    Undrain {
        /// Its name
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
    },
    /// Let a worker keep what it has and get nothing more
    Cordon {
        /// Its name; it need not have a session
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
    },
    /// Let a cordoned worker have partitions again
    Uncordon {
        /// Its name
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
    },
    /// Give a worker another share of the partitions than it asked for when it joined
    Weight {
        /// Its name; it need not have a session
        worker: WorkerId,
        /// 1 to 10000, relative to the other workers; or `own`: what it says itself
        #[arg(value_name = "N|own", value_parser = set::weight)]
        weight: set::WeightArg,
        #[command(flatten)]
        who: Who,
    },
    /// End the session of a worker whose process cannot be stopped; it gets nothing until it is undrained
    #[command(after_help = "\
For a worker that renews its lease and does nothing else, where nobody can reach its process. What it held waits for as
long as its lease and then goes to others; its fences refuse what it still writes. Where the process can be stopped,
stop it: that is sooner. A drain is gentler.")]
    Evict {
        /// Its name
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Forget what is set about a worker that is gone for good
    #[command(after_help = "\
It is refused while the worker has a session. A worker of this name that joins later is like any other.")]
    Remove {
        /// Its name
        worker: WorkerId,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
}

/// Runs `ringfence worker`.
pub(crate) async fn run(args: WorkerArgs) -> Outcome {
    let common = &args.common;
    match args.verb {
        Verb::List => list(common).await,
        Verb::Show { worker } => show::show(common, &worker).await,
        Verb::History { worker } => show::history(common, &worker).await,
        Verb::Drain { worker, check: true, .. } => drain::check(common, &worker).await,
        Verb::Drain { worker, until_join, wait, who, sure, .. } => {
            drain::drain(common, &worker, until_join, wait, &who, sure).await
        }
        Verb::Undrain { worker, who } => {
            let (drained, drained_until_join) = (Some(false), Some(false));
            let change = WorkerChange { drained, drained_until_join, ..WorkerChange::default() };
            set::set(common, &worker, &change, &who).await
        }
        Verb::Cordon { worker, who } => {
            let change = WorkerChange { cordoned: Some(true), ..WorkerChange::default() };
            set::set(common, &worker, &change, &who).await
        }
        Verb::Uncordon { worker, who } => {
            let change = WorkerChange { cordoned: Some(false), ..WorkerChange::default() };
            set::set(common, &worker, &change, &who).await
        }
        Verb::Weight { worker, weight: set::WeightArg(weight), who } => {
            let change = WorkerChange { weight: Some(weight), ..WorkerChange::default() };
            set::set(common, &worker, &change, &who).await
        }
        Verb::Evict { worker, who, sure } => set::evict(common, &worker, &who, sure).await,
        Verb::Remove { worker, who, sure } => set::remove(common, &worker, &who, sure).await,
    }
}

async fn list(common: &Common) -> Outcome {
    let workers = common.admin().workers().await?;
    let shapes: Vec<_> = workers.iter().map(WorkerShape::from).collect();
    common.output().show(&shapes, || table(&workers).text())?;
    Ok(Exit::Done)
}

/// What is known of a worker; `None` when nothing is.
pub(crate) async fn known(admin: &Admin, worker: &WorkerId) -> Result<Option<WorkerDetail>, Error> {
    match admin.worker(worker).await {
        Ok(detail) => Ok(Some(detail)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Workers for people.
pub(crate) fn table(workers: &[Worker]) -> Table {
    let mut table = Table::new([
        "WORKER",
        "SESSION",
        "ADDRESS",
        "PARTITIONS",
        "READY",
        "LOCKS",
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
            worker.locks.to_string(),
            short(worker.ttl),
            silence(worker.suspicion_thirds),
            ago(worker.joined_unix_ms),
            serves(&names),
        ]);
    }
    table
}

/// The keyspaces of a worker. Nobody plans for one that has none.
fn serves(names: &[&str]) -> String {
    if names.is_empty() { "(only locks)".to_owned() } else { names.join(",") }
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

    #[test]
    fn a_worker_that_only_takes_locks_is_said_to() {
        assert_eq!(serves(&["orders", "users"]), "orders,users");
        assert_eq!(serves(&[]), "(only locks)");
    }
}
