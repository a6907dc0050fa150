//! The demo's processes: nodes and workers, started from this very binary. They die with the demo, however it ends.

use super::messages::{Tell, Told};
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child as Process, ChildStdin, Command};
use tokio::sync::mpsc;

/// Lines of a worker that wait to be read. The demo reads all the time; a worker that outruns it waits.
const LINES: usize = 4_096;

/// What a worker, by name, has said.
pub(super) type Heard = (String, Told);

/// One process. Dropping it kills it.
pub(super) struct Child {
    pub(super) name: String,
    process: Process,
    log: PathBuf,
    input: Option<ChildStdin>,
}

impl Child {
    /// Starts `ringfence ARGS` with its log in a file of `dir`.
    fn start(name: &str, dir: &Path, args: &[String], output: Stdio) -> anyhow::Result<Child> {
        let binary = std::env::current_exe().context("finding the program's own file")?;
        let log = dir.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log)?;
        let process = Command::new(binary)
            // The kernel ends the child when the demo ends, also when the demo is killed or the child is stopped.
            .arg("--die-with-parent")
            .args(args)
            .env("RINGFENCE_LOG", "info")
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Child { name: name.to_string(), process, log, input: None })
    }

    /// Starts a node.
    pub(super) fn node(name: &str, dir: &Path, args: &[String]) -> anyhow::Result<Child> {
        Child::start(name, dir, args, Stdio::null())
    }

    /// Starts a worker whose lines go to `told`.
    pub(super) fn worker(
        name: &str,
        dir: &Path,
        args: &[String],
        told: mpsc::Sender<Heard>,
    ) -> anyhow::Result<Child> {
        let mut child = Child::start(name, dir, args, Stdio::piped())?;
        child.input = child.process.stdin.take();
        let output = child.process.stdout.take().context("the worker has no standard output")?;
        let name = name.to_string();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            // A worker that is killed leaves half a line at the most.
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(line) = serde_json::from_str(&line)
                    && told.send((name.clone(), line)).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(child)
    }

    /// Lines a channel for workers should hold.
    pub(super) fn channel() -> (mpsc::Sender<Heard>, mpsc::Receiver<Heard>) {
        mpsc::channel(LINES)
    }

    /// Tells a worker something over its pipe.
    pub(super) async fn tell(&mut self, tell: Tell) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("only a worker is told things")?;
        let line = serde_json::to_string(&tell)? + "\n";
        input.write_all(line.as_bytes()).await.with_context(|| format!("telling {} something", self.name))?;
        Ok(input.flush().await?)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.with_context(|| format!("{} has ended", self.name))?;
        kill_process(pid, signal).with_context(|| format!("signalling {}", self.name))
    }

    /// SIGCONT.
    pub(super) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await.with_context(|| format!("killing {}", self.name))
    }

    /// SIGTERM, and waits until it is gone.
    pub(super) async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        Ok(self.process.wait().await?)
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.process.wait().await?)
    }

    /// The exit status, if it has ended.
    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// True when the kernel says that it is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        let Some(id) = self.process.id() else { return false };
        // The state follows the command in parentheses, which may itself contain anything.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// The last lines of its log.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n  ");
        format!("the last lines of {}'s log:\n  {tail}", self.name)
    }
}
