//! One process of the run. It dies with the run, however that ends, and when it is dropped.

use anyhow::Context as _;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What the kernel does at once takes no longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process in the background.
pub(super) struct Process {
    pub(super) name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; its log is a file of `dir`. It must be started by the main thread: the kernel ends it with the thread that
    /// started it.
    pub(super) fn start(name: &str, dir: &Path, mut command: Command) -> anyhow::Result<Process> {
        let log = dir.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log)?;
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("RINGFENCE_") {
                command.env_remove(variable);
            }
        }
        let filter = std::env::var("RINGFENCE_LOG").unwrap_or_else(|_| "info,openraft=error".to_owned());
        command.env("RINGFENCE_LOG", filter);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
        Ok(Process { name: name.to_owned(), child: child.with_context(|| format!("starting {name}"))?, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its pipes, once.
    pub(super) fn pipes(&mut self) -> anyhow::Result<(ChildStdin, ChildStdout)> {
        let pipes = self.child.stdin.take().zip(self.child.stdout.take());
        pipes.with_context(|| format!("the pipes of {} were taken before", self.name))
    }

    fn raw_pid(&self) -> anyhow::Result<Pid> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        pid.with_context(|| format!("{} has no process id", self.name))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.raw_pid()?, signal).with_context(|| format!("signalling {}", self.name))
    }

    /// SIGSTOP, and waits until the kernel says that it is stopped.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        self.wait("stop", |process| process.is_stopped() || process.has_ended().is_some())
    }

    /// SIGCONT.
    pub(super) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended by itself; kills it when that takes too long, and says so.
    pub(super) fn end(&mut self, within: Duration) -> bool {
        let ended = self.ends_within(within);
        if !ended {
            self.kill();
        }
        ended
    }

    /// Whether it ends by itself within this time.
    pub(super) fn ends_within(&mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.has_ended().is_none() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// The exit status, if it has ended.
    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// True when the kernel says that it is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        // The state follows the command in parentheses, which may itself contain anything.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Process) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            anyhow::ensure!(Instant::now() < deadline, "{} did not {what} within {PATIENCE:?}", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Leaves it so many free file descriptors from here on; returns the limit before. The kernel gives out the lowest
    /// number that is free, and refuses it when it is not below the limit.
    pub(super) fn limit_files(&self, free: usize) -> anyhow::Result<Rlimit> {
        let names = std::fs::read_dir(format!("/proc/{}/fd", self.pid()))?;
        let open: BTreeSet<u64> =
            names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect();
        let first_refused = (0..).filter(|number| !open.contains(number)).nth(free).unwrap_or(u64::MAX);
        let before = rustix::process::getrlimit(Resource::Nofile);
        let tight = Rlimit { current: Some(first_refused), maximum: before.maximum };
        Ok(prlimit(Some(self.raw_pid()?), Resource::Nofile, tight)?)
    }

    /// Puts the limit back.
    pub(super) fn unlimit_files(&self, limit: Rlimit) -> anyhow::Result<()> {
        prlimit(Some(self.raw_pid()?), Resource::Nofile, limit)?;
        Ok(())
    }

    /// The last lines of its log.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(12)..].join("\n  ");
        format!("the last lines of {}'s log:\n  {tail}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
