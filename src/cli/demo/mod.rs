//! `ringfence demo`: real processes lose and take over partitions while a real database refuses the deposed owner.
//!
//! Three durable nodes and three workers, on loopback and in a temporary folder. Everything a fault does is done by the
//! kernel: SIGSTOP, SIGCONT, SIGKILL. Nothing in the SDK, the fence or the coordinator knows that it is a demo; the
//! worker is an ordinary worker that can be told over a pipe when to stop itself.
//!
//! | module | what it is |
//! |---|---|
//! | `stage` | the processes together, and waiting for what they do |
//! | `story` | what happens, in order |
//! | `cluster`, `children` | the processes |
//! | `worker` | the worker |
//! | `store` | the SQLite file, fenced and not |
//! | `audit` | what the file shows |

mod audit;
mod children;
mod clock;
mod cluster;
mod ledger;
mod messages;
mod report;
mod stage;
mod store;
mod story;
mod timeline;
mod worker;

pub(crate) use worker::{WorkerArgs, run_worker};

use crate::exit::{Exit, Failed, Outcome};
use crate::output::{Format, write_json};
use anyhow::Context as _;
use clap::Args;
use report::Report;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use timeline::Timeline;
use tokio::signal::unix::{SignalKind, signal};

/// The demo's temporary folder is named after its process.
const PREFIX: &str = "ringfence-demo-";

/// Arguments of `ringfence demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Swap the fenced store for one that ignores the token, and change nothing else: the demo then shows the
    /// corruption that the fence prevents
    #[arg(long)]
    no_fence: bool,

    /// A timeline and a table for people, or one JSON object for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Runs the demo. The exit code is 0 exactly when it showed what it should.
pub(crate) async fn run(args: DemoArgs) -> Outcome {
    perform(args).await.map_err(|error| Failed::refused(format!("{error:#}")))?
}

async fn perform(args: DemoArgs) -> anyhow::Result<Outcome> {
    let timeline = Timeline::new(args.output.is_json());
    // Dropped on every way out of here, an interrupt too; it takes the processes' files with it.
    sweep();
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("making a temporary folder")?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let report = tokio::select! {
        report = story::tell(dir.path(), !args.no_fence, &timeline) => report?,
        // The children are killed as the story is dropped, before the folder goes.
        _ = interrupt.recv() => return Ok(Err(Failed::refused("interrupted"))),
        _ = terminate.recv() => return Ok(Err(Failed::refused("terminated"))),
    };
    if let Err(closed) = show(&report, args.output) {
        return Ok(Err(closed.into()));
    }
    if let Some(why) = report.shortfall() {
        // The result is on standard output already, also in JSON.
        eprintln!("error: the demo did not show what it should: {why}");
        return Ok(Ok(Exit::Failed));
    }
    Ok(Ok(Exit::Done))
}

/// Removes the folders of demos that were killed: they are named after processes that are no more.
fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let pid = owner.and_then(|(pid, _)| pid.parse::<i32>().ok()).and_then(Pid::from_raw);
        if pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            // Somebody else's, or being removed already: then it is not ours to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn show(report: &Report, format: Format) -> std::io::Result<()> {
    use std::io::Write as _;
    if format.is_json() {
        write_json(report)?;
    } else {
        let mut out = std::io::stdout().lock();
        write!(out, "\n{report}")?;
        let verdict = match (report.fence, report.shortfall()) {
            (true, None) => {
                "the fence held: every write of a deposed owner was refused, and nothing acknowledged was lost"
            }
            (false, None) => "this is what the fence prevents; run `ringfence demo` to see it refused",
            (_, Some(_)) => "",
        };
        writeln!(out, "\n{verdict}")?;
    }
    Ok(())
}
