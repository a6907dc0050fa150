//! `ringfence-sim chaos`: real nodes and real workers with real storage, broken in many ways at once, and judged.
//!
//! Nothing in the product knows that it is broken on purpose: the faults come from the kernel, from a network of proxies,
//! and from libraries put before libc. A run is made of rounds. In each, workers start, faults come and go as the seed
//! says, everything is mended and grows calm, the workers leave, and the checker judges what all of them said happened.
//! The seed says what is broken when; what the machine does in between is its own affair, so a run is not repeated exactly.
//!
//! | module | what it is |
//! |---|---|
//! | `world` | all that runs; a round |
//! | `faults`, `mend` | what is broken, and how it is mended |
//! | `nodes`, `fleet`, `process` | the processes |
//! | `network` | a proxy before each node, with a weather for each that connects |
//! | `worker`, `store` | the worker, and what it writes to |
//! | `operator`, `grants` | what the coordinator itself acknowledges, and whom it grants |
//! | `tools`, `shim.c` | what the machine lends for faults |

mod clock;
mod faults;
mod fleet;
mod grants;
mod mend;
mod network;
mod nodes;
mod operator;
mod process;
mod report;
mod store;
mod tools;
mod worker;
mod world;

pub use report::{Figures, Report};
pub use tools::go_inside;
pub use worker::{WorkerArgs, run as run_worker};
pub use world::rules;

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use world::World;

/// The temporary folder of a run is named after its process.
const PREFIX: &str = "ringfence-chaos-";
/// Marks a folder that a run kept for whoever looks into what it found.
const KEPT: &str = "kept";
/// How long faults come in one round.
const ROUND: Duration = Duration::from_secs(20);

/// What a run is asked for.
#[derive(Debug)]
pub struct Options {
    /// How long faults come, in all.
    pub length: Duration,
    /// What decides on faults.
    pub seed: u64,
    /// The workers' storage checks tokens.
    pub fence: bool,
    /// The binary of the product.
    pub ringfence: PathBuf,
    /// Histories and logs stay, whatever is found.
    pub keep: bool,
    /// No progress is shown.
    pub quiet: bool,
}

/// Runs it. The thread that calls it is the one that the processes live and die with.
///
/// # Errors
/// What kept it from running, or from going on.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    sweep();
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let mut dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("making a temporary folder")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stop = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            stop.store(true, Ordering::SeqCst);
        });
        anyhow::Ok(())
    })?;
    // The processes end as the world is dropped, before the folder goes.
    let report = perform(options, dir.path(), runtime.handle(), stop);
    if !matches!(&report, Ok(report) if report.kept.is_none()) {
        let _ = std::fs::write(dir.path().join(KEPT), "");
        dir.disable_cleanup(true);
    }
    tools::unmount_disk(&dir.path().join("data-3"));
    runtime.shutdown_background();
    report.with_context(|| format!("logs are kept in {}", dir.path().display()))
}

fn perform(
    options: &Options,
    dir: &Path,
    runtime: &tokio::runtime::Handle,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Report> {
    let started = Instant::now();
    let mut world = World::start(options, dir, runtime, stop)?;
    let mut left = options.length;
    while !left.is_zero() {
        let length = left.min(ROUND);
        if let Err(error) = world.round(length) {
            // What went wrong before matters more than what goes wrong in writing it down.
            let _ = world.give_up(&error);
            return Err(error);
        }
        left -= length;
    }
    let mut report = world.report();
    report.seconds = started.elapsed().as_secs();
    Ok(report)
}

/// The binary of the product, next to this one. Under cargo it is built first, so that it is never an old one.
///
/// # Errors
/// It is not there, or could not be built.
pub fn product() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding the program's own file")?;
    let dir = this.parent().context("the program's own file is in no folder")?;
    let binary = dir.join("ringfence");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "ringfence-cli"]);
        if dir.ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().context("building the ringfence binary with cargo")?;
        anyhow::ensure!(status.success(), "cargo could not build the ringfence binary");
    }
    if !binary.exists() {
        bail!(
            "there is no {}: build it into the same folder, with `cargo build -p ringfence-cli`, and with --release if \
             this binary was built so",
            binary.display()
        );
    }
    Ok(binary)
}

/// A binary of the product that somebody names, looked at before anything is made.
///
/// # Errors
/// It is not there, cannot be run, or is something else.
pub fn product_at(path: &str) -> Result<PathBuf, String> {
    // Absolute, so that no search for a name decides what is run.
    let path = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
    if !path.is_file() {
        return Err("it is no file".to_owned());
    }
    let answer = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    if !answer.status.success() || !answer.stdout.starts_with(b"ringfence ") {
        return Err("it does not say that it is ringfence when it is asked for its --version".to_owned());
    }
    Ok(path)
}

/// Removes the folders of runs that were killed: they are named after processes that are no more.
fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let pid = owner.and_then(|(pid, _)| pid.parse::<i32>().ok()).and_then(Pid::from_raw);
        // What a run kept on purpose has a mark.
        let kept = entry.path().join(KEPT).exists();
        if !kept && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            // Somebody else's, or being removed already: then it is not ours to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// One line that is written over and over, for somebody who watches.
struct Progress {
    shown: bool,
    started: Instant,
    last: Instant,
}

impl Progress {
    fn new(quiet: bool) -> Progress {
        let now = Instant::now();
        Progress { shown: !quiet && std::io::stderr().is_terminal(), started: now, last: now }
    }

    fn show(&mut self, report: &Report, events: usize) {
        const EVERY: Duration = Duration::from_millis(500);
        if !self.shown || self.last.elapsed() < EVERY {
            return;
        }
        self.last = Instant::now();
        let faults: u64 = report.faults.values().sum();
        let _ = write!(
            std::io::stderr(),
            "\r\u{1b}[K{:>5} s  round {}  {faults} faults  {events} events  so far: {} tenures, {} writes, {} stale refused, {} violations",
            self.started.elapsed().as_secs(),
            report.rounds + 1,
            report.tenures,
            report.writes_acknowledged,
            report.stale_writes_refused,
            report.violations.len(),
        );
    }

    fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_is_none_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "no program").unwrap();
        let refused = |path: &Path| product_at(path.to_str().unwrap()).unwrap_err();
        assert!(refused(Path::new("/nonexistent")).contains("No such file"));
        assert!(refused(dir.path()).contains("no file"));
        assert!(refused(&plain).contains("cannot be run"));
        assert!(refused(Path::new("/bin/true")).contains("ringfence"));
    }
}
