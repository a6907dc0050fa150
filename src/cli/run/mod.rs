//! `ringfence run`: any program as a sharded worker. The contract of the child is in `docs/run.md`.
//!
//! | file | idea |
//! |---|---|
//! | `course` | when a child is started, asked to end, killed, started again; pure |
//! | `steward` | the thread that does so |
//! | `life` | one life of a child: its processes |
//! | `minder` | the process between this one and the command, which outlives this one by a moment |
//! | `each` | one child for each partition |
//! | `alone` | one command, once, under a lock |
//! | `all`, `hub`, `talk` | one child for all of them, what it holds, and the lines in which it is told |
//! | `program` | finds the command, before anything is joined |
//! | `clock` | the clock of the deadlines |

mod all;
pub(crate) mod alone;
mod clock;
mod course;
mod each;
mod hub;
mod life;
pub(crate) mod minder;
mod program;
mod steward;
mod talk;

use crate::exit::{Exit, Failed, Outcome};
use crate::serve::Signals;
use crate::text::short;
use all::All;
use clap::Args;
use course::{End, Policy};
use each::Each;
use life::Recipe;
use ringfence::Worker;
use ringfence::ids::{KeyspaceName, WorkerId};
use ringfence::net::Endpoints;
use ringfence::worker::Builder;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use steward::StopBy;
use tokio::sync::{oneshot, watch};

/// How much longer than its children a worker that leaves is waited for.
const LAST_WORD: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
A child has RINGFENCE_KEYSPACE, RINGFENCE_PARTITION, RINGFENCE_EPOCH, RINGFENCE_TOKEN, RINGFENCE_WORKER and RINGFENCE_ENDPOINTS in its
environment. It raises the fence of its storage to the token first, then reads, then works, and stamps each write with the token. SIGTERM
says that the partition is wanted back; it is given to the next owner when the child and all of its process group have ended. A child that
ends by itself is started again.

Exit codes: 0 it was told to leave, and gave everything back; 1 refused or failed; 2 bad usage; 126 the command cannot be executed; 127
there is no such command.

Example:
  ringfence run --keyspace orders --id worker-1 -- python3 worker.py";

/// Arguments of `ringfence run`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// The keyspace whose partitions it owns
    #[arg(long, value_name = "NAME", value_parser = KeyspaceName::new)]
    keyspace: KeyspaceName,
    /// The worker's stable name, such as its host; two processes may not have one name at the same time
    #[arg(long, value_name = "NAME", value_parser = WorkerId::new)]
    id: WorkerId,
    /// Coordinators, comma-separated; one that is up is enough
    #[arg(long, env = "RINGFENCE_ENDPOINTS", value_name = "URLS", default_value = "http://127.0.0.1:7600")]
    endpoints: Endpoints,
    /// Where callers reach this worker; shown by routers
    #[arg(long, value_name = "TEXT", default_value = "")]
    address: String,
    /// The worker's share relative to others, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 1)]
    weight: u32,
    /// A label, such as zone=eu-1a; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// One child for all partitions; it is told in lines on its standard input, and answers in lines
    #[arg(long, conflicts_with_all = ["wait_ready", "prefix"])]
    one_child: bool,
    /// A partition is ready when its child has written something to the descriptor RINGFENCE_READY_FD [default: when it was started]
    #[arg(long)]
    wait_ready: bool,
    /// Pass the children's output on line by line, each with its partition before it
    #[arg(long)]
    prefix: bool,
    /// How often in a row a child that ends by itself is started again; then its partition goes to another worker
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_restarts: u32,
    /// How long before the end of its ownership a child is killed
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "250ms")]
    kill_margin: Duration,
    /// When this process is told to stop: how long the children may take to end before they are killed
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "25s")]
    stop_within: Duration,
    /// How long to look for a coordinator at the start
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10s")]
    join_within: Duration,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `zone=eu-1a`
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as zone=eu-1a")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl RunArgs {
    fn policy(&self) -> Policy {
        Policy { max_restarts: self.max_restarts, kill_margin: self.kill_margin }
    }

    /// What all children have in their environment.
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("RINGFENCE_KEYSPACE", self.keyspace.to_string()),
            ("RINGFENCE_WORKER", self.id.to_string()),
            ("RINGFENCE_ENDPOINTS", self.endpoints.to_string()),
        ]
    }

    fn builder(&self) -> Builder {
        let builder = Worker::builder(self.id.as_str())
            .coordinator(self.endpoints.clone())
            .address(&self.address)
            .weight(self.weight)
            .join_within(self.join_within)
            // The children are killed before it is over.
            .shutdown_limit(Some(self.stop_within.saturating_add(LAST_WORD)));
        self.label.iter().fold(builder, |builder, (key, value)| builder.label(key, value))
    }
}

/// Runs until it is told to leave.
pub(crate) async fn run(args: RunArgs) -> Outcome {
    program::check(&args.command[0], std::env::var_os("PATH").as_deref())?;
    // Before anything is started, so that no signal is missed.
    let mut signals = Signals::new()?;
    adopt_orphans()?;
    let (stop, stop_by) = watch::channel(StopBy::default());
    let (builder, children) = if args.one_child {
        let all = All::new();
        let owner = all.owner();
        let builder =
            args.builder().own(args.keyspace.as_str(), move |ownership| owner.clone().own(ownership));
        (builder, Children::One(Some((all, stop_by))))
    } else {
        let mut each = Each::new(args.command.clone(), args.environment(), args.policy(), stop_by);
        (each.wait_ready, each.prefix) = (args.wait_ready, args.prefix);
        let each = Arc::new(each);
        let owner = Arc::clone(&each);
        let builder =
            args.builder().own(args.keyspace.as_str(), move |ownership| Arc::clone(&owner).own(ownership));
        (builder, Children::Each(each))
    };
    let worker = tokio::select! {
        joined = builder.join() => joined?,
        () = signals.next() => return Ok(Exit::Done),
    };
    tracing::info!(worker = %args.id, keyspace = %args.keyspace, "serving");
    let mut children = children.started(&args)?;
    let ended = tokio::select! {
        ended = worker.ended() => Some(ended),
        failed = children.failed() => {
            if let Some(left) = leave(worker, &args, &stop, &mut signals).await {
                left?;
            }
            return Err(Failed::refused(format!("the child {failed}, and did so too often")));
        }
        () = signals.next() => None,
    };
    let left = match ended {
        Some(ended) => {
            stop.send_replace(StopBy::within(Duration::ZERO));
            ended.map(|()| Exit::Done).map_err(Failed::from)
        }
        None => match leave(worker, &args, &stop, &mut signals).await {
            Some(left) => left,
            None => {
                return Err(Failed::refused(
                    "told to stop three times: ended without giving everything back",
                ));
            }
        },
    };
    children.emptied().await;
    left
}

/// Asks the children to end and gives everything back. Told again, it kills them; told a third time, it waits for nothing, and there is
/// no outcome.
async fn leave(
    worker: Worker,
    args: &RunArgs,
    stop: &watch::Sender<StopBy>,
    signals: &mut Signals,
) -> Option<Outcome> {
    tracing::info!(within = %short(args.stop_within), "the children are asked to end");
    // The margin is taken off again.
    stop.send_replace(StopBy::within(args.stop_within.saturating_add(args.kill_margin)));
    let mut left = std::pin::pin!(worker.leave());
    tokio::select! {
        left = &mut left => return Some(left.map(|()| Exit::Done).map_err(Failed::from)),
        () = signals.next() => {}
    }
    tracing::warn!("told to stop twice: the children are killed");
    stop.send_replace(StopBy::within(Duration::ZERO));
    tokio::select! {
        left = left => Some(left.map_err(Failed::from).and_then(|()| {
            Err(Failed::refused("told to stop twice: the children were killed; everything was given back"))
        })),
        () = signals.next() => None,
    }
}

/// What this worker's children left behind when they ended is given to it, so that it can wait for them. Elsewhere than on Linux
/// that is the system's affair.
fn adopt_orphans() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The children of this worker.
enum Children {
    Each(Arc<Each>),
    /// Not started yet.
    One(Option<(All, watch::Receiver<StopBy>)>),
    /// How it came to be over.
    Started(oneshot::Receiver<End>),
    Over,
}

impl Children {
    /// With the one child started, if there is one for all.
    fn started(self, args: &RunArgs) -> std::io::Result<Children> {
        let Children::One(Some((all, stop_by))) = self else { return Ok(self) };
        let recipe = Recipe {
            command: args.command.clone(),
            environment: args.environment(),
            wait_ready: false,
            prefix: None,
            forward: true,
        };
        Ok(Children::Started(all.start(recipe, args.policy(), stop_by)?))
    }

    /// Waits until the one child has ended by itself too often, and says how it did.
    async fn failed(&mut self) -> String {
        if let Children::Started(end) = self {
            let end = end.await;
            *self = Children::Over;
            match end {
                Ok(End::Failed(how)) => return how,
                Ok(End::Asked) => {}
                Err(_) => return "has no thread any more".to_owned(),
            }
        }
        std::future::pending().await
    }

    /// Waits until no child lives.
    async fn emptied(self) {
        match self {
            Children::Each(each) => each.emptied().await,
            Children::Started(end) => drop(end.await),
            Children::One(_) | Children::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(line: &str) -> Result<RunArgs, String> {
        let words = std::iter::once("run").chain(line.split_whitespace());
        Only::try_parse_from(words).map(|only| only.run).map_err(|error| error.to_string())
    }

    #[test]
    fn what_comes_after_the_dashes_is_the_programs() {
        let args =
            parse("--keyspace orders --id w1 --label zone=a=b -- worker --id other -- -o json").unwrap();
        assert_eq!(args.command, ["worker", "--id", "other", "--", "-o", "json"]);
        assert_eq!((args.id.as_str(), &args.label[0].1[..]), ("w1", "a=b"));
    }

    #[test]
    fn what_makes_no_sense_is_bad_usage() {
        for line in [
            "--keyspace orders --id w1",
            "--keyspace orders --id w1 --",
            "--keyspace Orders! --id w1 -- true",
            "--id w1 -- true",
            "--keyspace orders --id w1 --label zone -- true",
            "--keyspace orders --id w1 --one-child --wait-ready -- true",
            "--keyspace orders --id w1 --one-child --prefix -- true",
            "--keyspace orders --id w1 --kill-margin soon -- true",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
