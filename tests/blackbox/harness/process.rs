//! One process of the binary.

use super::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// The binary, free of settings that the tests' own environment may have.
pub(super) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RINGFENCE_"))
    {
        command.env_remove(name);
    }
    // The kernel ends it when the test's thread ends, however that does.
    command.arg("--die-with-parent");
    command
}

thread_local! {
    static ENVIRONMENT: RefCell<Vec<(String, String)>> = const { RefCell::new(Vec::new()) };
}

/// Every process that this test starts from now on has these variables.
pub(crate) fn set_environment(variables: &[(&str, &str)]) {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ENVIRONMENT.set(variables.collect());
}

/// A process that runs in the background. Dropping it kills it.
pub(crate) struct Process {
    pub(crate) name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `ringfence ARGS`; its log is a file of `dir`.
    pub(crate) fn start(name: &str, dir: &Path, args: &[&str]) -> Process {
        let log = dir.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = binary();
        command
            .args(args)
            .env("RINGFENCE_LOG", "info,openraft=error")
            .envs(ENVIRONMENT.with_borrow(Vec::clone));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        Process { name: name.to_owned(), log, child: command.spawn().unwrap() }
    }

    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.child.stdin.take().unwrap(), self.child.stdout.take().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// SIGSTOP, and waits until the kernel says that it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        self.wait_stopped();
    }

    /// Waits until `/proc/PID/stat` says T.
    pub(crate) fn wait_stopped(&self) {
        wait_for(&format!("{} is stopped", self.name), || self.is_stopped().then_some(()));
    }

    /// The state follows the command in parentheses, which may itself contain anything.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// The exit status, if it has ended.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        wait_for(&what, || self.has_ended())
    }

    /// Everything it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n  ");
            eprintln!("the last lines of {}'s log:\n  {tail}", self.name);
        }
    }
}
