//! One life of a child: the processes of it, and the socket to its minder.

use super::clock;
use super::talk::read_line;
use nix::sys::signal::Signal as Name;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, test_kill_process_group, waitid,
    waitpgid,
};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a child may be told by its environment.
const NAMES: [&str; 7] = [
    "RINGFENCE_KEYSPACE",
    "RINGFENCE_PARTITION",
    "RINGFENCE_EPOCH",
    "RINGFENCE_TOKEN",
    "RINGFENCE_WORKER",
    "RINGFENCE_LOCK",
    "RINGFENCE_READY_FD",
];

/// A minder that does not read is not waited for.
const NO_WAIT: Duration = Duration::from_millis(1);

/// What happens to a life.
#[derive(Debug)]
pub(super) enum Event {
    /// Something changed that the child works under.
    Look,
    /// The leader of the group has ended.
    Ended(How),
    /// The child says that it is ready.
    Ready,
    /// It cannot be told anything any more, and is to die for it.
    Deaf,
}

/// How a leader ended.
#[derive(Debug)]
pub(super) struct How {
    /// For people.
    pub(super) text: String,
    /// Its exit code, or 128 and the number of the signal.
    pub(super) code: Option<u8>,
}

/// What a child is made of.
pub(super) struct Recipe {
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// Beside what this process has.
    pub(super) environment: Vec<(&'static str, String)>,
    /// The child says when it is ready.
    pub(super) wait_ready: bool,
    /// Its output is passed on line by line, with this before each.
    pub(super) prefix: Option<String>,
    /// It is told and asked over its standard input and output.
    pub(super) forward: bool,
}

/// The processes of one life. Dropping it closes the socket, and the minder kills what is left.
pub(super) struct Life {
    group: Pid,
    control: UnixStream,
}

impl Life {
    /// Starts the minder, which starts the command. What happens is sent to `events`; with `forward` the other end of the child's
    /// standard input and output is [`Life::voice`].
    pub(super) fn start(
        recipe: &Recipe,
        until: Option<Duration>,
        events: &Sender<Event>,
    ) -> io::Result<Life> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(if recipe.forward { None } else { Some(NO_WAIT) })?;
        let mut command = Command::new(own_program()?);
        command.arg0("ringfence").arg("minder");
        if let Some(until) = until {
            command.arg("--until").arg(until.as_nanos().to_string());
        }
        for (flag, given) in [("--forward", recipe.forward), ("--wait-ready", recipe.wait_ready)] {
            if given {
                command.arg(flag);
            }
        }
        command.arg("--").args(&recipe.command);
        // Of what this process itself may run under nothing is left: another scope's token would be taken for the child's own.
        for name in NAMES {
            command.env_remove(name);
        }
        command.envs(recipe.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        if recipe.prefix.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the system gave a process no id"))?;
        let life = Life { group, control };
        // From here on a failure drops the life, and the minder goes.
        if let Some(prefix) = &recipe.prefix {
            let ends = [
                child.stdout.take().map(|out| (File::from(OwnedFd::from(out)), false)),
                child.stderr.take().map(|err| (File::from(OwnedFd::from(err)), true)),
            ];
            for (from, to_stderr) in ends.into_iter().flatten() {
                let prefix = prefix.clone();
                spawn("output", move || pass_on(from, &prefix, to_stderr))?;
            }
        }
        if recipe.wait_ready {
            let (said, events) = (life.control.try_clone()?, events.clone());
            spawn("ready", move || {
                let (mut from, mut line) = (BufReader::new(&said), Vec::new());
                while read_line(&mut from, &mut line).unwrap_or(false) {
                    // Nobody listens when the child is over.
                    let _ = events.send(Event::Ready);
                }
            })?;
        }
        let events = events.clone();
        spawn("wait", move || drop(events.send(Event::Ended(ended(group)))))?;
        Ok(life)
    }

    /// The socket that is the child's standard input and output.
    pub(super) fn voice(&self) -> io::Result<UnixStream> {
        self.control.try_clone()
    }

    /// The leader of the group.
    pub(super) fn group(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Tells the minder until when the child may live. One that cannot hear it goes by what it heard last, which is earlier.
    pub(super) fn live_until(&self, until: Duration) {
        let _ = (&self.control).write_all(format!("until {}\n", until.as_nanos()).as_bytes());
    }

    /// SIGTERM to the group.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
        // One that is stopped acts on nothing else; a life that goes on is what it was asked to end.
        self.signal(Signal::CONT);
    }

    /// SIGKILL to the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        match kill_process_group(self.group, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => {
                tracing::error!(group = self.group(), ?signal, %error, "a child could not be signalled");
            }
        }
    }

    /// Whether nothing of the group lives. To be asked when its leader has ended, and not again after a yes: the id is free then.
    ///
    /// What the child left behind was given to this process when it ended, so it is waited for here.
    pub(super) fn is_gone(&self) -> bool {
        loop {
            match waitpgid(self.group, WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return test_kill_process_group(self.group) == Err(Errno::SRCH),
            }
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Other handles of the socket, of threads that read from it, do not keep the minder.
        let _ = self.control.shutdown(Shutdown::Both);
    }
}

/// This very program, also when its file was replaced since.
fn own_program() -> io::Result<std::path::PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_path_buf()) } else { std::env::current_exe() }
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("run-{name}")).spawn(work)
}

/// Waits for the leader of a group and leaves it where it is, so that the group keeps its name.
fn ended(leader: Pid) -> How {
    let status = loop {
        match waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(Errno::INTR) => {}
            status => break status,
        }
    };
    let (text, code) = match status {
        Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code @ 129..=192), _) => (format!("ended by {}", name(code - 128)), Some(code)),
            (Some(code), _) => (format!("ended with exit code {code}"), Some(code)),
            (None, Some(signal)) => (format!("ended by {}", name(signal)), Some(128 + signal)),
            (None, None) => ("ended".to_owned(), None),
        },
        Ok(None) => ("ended".to_owned(), None),
        Err(error) => (format!("ended, and nobody knows how: {error}"), None),
    };
    How { text, code: code.and_then(|code| u8::try_from(code).ok()) }
}

fn name(signal: i32) -> String {
    Name::try_from(signal).map_or_else(|_| format!("signal {signal}"), |name| name.as_str().to_owned())
}

/// Passes lines on, each with a prefix, to standard output or error.
fn pass_on(from: impl Read, prefix: &str, to_stderr: bool) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while read_line(&mut from, &mut line).unwrap_or(false) {
        let mut whole = format!("{prefix}: ").into_bytes();
        whole.extend_from_slice(&line);
        if whole.last() != Some(&b'\n') {
            whole.push(b'\n');
        }
        // Nobody may be reading, and the child goes on.
        let _ = if to_stderr { io::stderr().write_all(&whole) } else { say(&whole) };
    }
}

/// Writes to standard output, at once.
pub(super) fn say(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// The moment of a deadline that is so far away.
pub(super) fn moment(left: Duration) -> Duration {
    clock::now().saturating_add(left)
}
