//! The minder: the process between `ringfence run` and a child. It starts the command, hears from its parent until when the child may
//! live, and kills the whole process group, itself included, when that is over or the parent has gone.
//!
//! It is the leader of the group, so the group has a name for as long as the minder lives, and standing signals never meet another
//! process. Neither a parent that stands still nor one that was killed leaves a child behind; a machine that stands still as a
//! whole does, until it goes on. What the child still sends then is for the fence to refuse.
//!
//! Its standard input is a socket to the parent, and the parent's end is in no other process: that it closes says that the parent is
//! gone. Over it come lines `until NANOS` (of the clock that runs through a suspend), and `ready` goes back. With `--forward` it
//! is the child's standard input and output instead.

use super::clock;
use clap::Args;
use rustix::process::{Signal, kill_current_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The variable that names the descriptor for saying `ready`.
const READY_FD: &str = "RINGFENCE_READY_FD";

/// The most that waits to be read by the child, in bytes: some hundred thousand lines. A child that lets more gather does not read,
/// and is killed.
const MAX_UNREAD_BYTES: usize = 8 << 20;

/// How long what a child has said is still read when it has ended and a process of its own holds its output open.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How long to wait for the deadline at most before the clock is read again: timers stand still through a suspend.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Arguments of the minder.
#[derive(Debug, Args)]
pub(crate) struct MinderArgs {
    /// When to kill, in nanoseconds since the boot
    #[arg(long)]
    until: Option<u64>,
    /// The socket is the child's standard input and output
    #[arg(long)]
    forward: bool,
    /// The child says when it is ready
    #[arg(long)]
    wait_ready: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command, and ends as it ends: with its exit code, or 128 and the signal's number.
pub(crate) fn run(args: MinderArgs) -> ExitCode {
    match mind(args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: the minder of a child: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mind(args: MinderArgs) -> io::Result<ExitCode> {
    // First of all: some shells take descriptors of one digit only.
    let ready = if args.wait_ready { Some(io::pipe()?) } else { None };
    let socket = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // What the group is sent is for the child to act on. A handler, unlike a signal that is ignored, is not inherited.
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let _handlers = kinds.map(signal).into_iter().collect::<io::Result<Vec<_>>>()?;
        let (from, to) = UnixStream::from_std(socket)?.into_split();
        let mut command = Command::new(&args.command[0]);
        command.args(&args.command[1..]);
        if args.forward {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            command.stdin(Stdio::null());
        }
        let ready = match ready {
            Some((reader, writer)) => {
                rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())?;
                command.env(READY_FD, writer.as_raw_fd().to_string());
                Some((pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?, writer))
            }
            None => None,
        };
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let program = args.command[0].display();
                let _ = writeln!(io::stderr(), "error: {program} could not be started: {error}");
                return Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }));
            }
        };
        // The child alone has the other end now.
        let ready = ready.map(|(reader, _)| reader);
        let watched = if args.forward {
            forward(child, from, to).await
        } else {
            watch(child, from, to, args.until, ready).await
        };
        match watched {
            Ok(status) => Ok(code(status)),
            // Nobody minds the child from here on.
            Err(error) => {
                let _ = writeln!(io::stderr(), "error: the minder of a child: {error}; the child is killed");
                kill_group();
                Err(error)
            }
        }
    })
}

/// Waits for the child, until the deadline that the parent names.
async fn watch(
    mut child: Child,
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut until: Option<u64>,
    mut ready: Option<pipe::Receiver>,
) -> io::Result<ExitStatus> {
    let mut lines = BufReader::new(from).lines();
    loop {
        let left = until.map_or(LOOK_AGAIN, |until| Duration::from_nanos(until).saturating_sub(clock::now()));
        if left.is_zero() {
            kill_group();
        }
        tokio::select! {
            biased;
            status = child.wait() => return status,
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    let named = line.strip_prefix("until ").and_then(|nanos| nanos.parse().ok());
                    until = named.or(until);
                }
                // The parent is gone.
                Ok(None) | Err(_) => kill_group(),
            },
            said = said(&mut ready) => {
                ready = None;
                if said {
                    // A parent that cannot hear it is gone, which is found above.
                    let _ = to.write_all(b"ready\n").await;
                }
            }
            () = tokio::time::sleep(left.min(LOOK_AGAIN)) => {}
        }
    }
}

/// Waits until the child says something, or has closed the descriptor without a word; for ever when it is not asked.
async fn said(ready: &mut Option<pipe::Receiver>) -> bool {
    match ready {
        Some(reader) => reader.read_u8().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Waits for the child, and passes on what it is told and what it says.
async fn forward(
    mut child: Child,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<ExitStatus> {
    let mut output = child.stdout.take();
    let mut input = child.stdin.take();
    let mut saying = tokio::spawn(async move {
        if let Some(output) = &mut output {
            // The parent that reads no more is gone, which is found below.
            let _ = tokio::io::copy(output, &mut to).await;
        }
    });
    let mut unread = VecDeque::new();
    let mut bytes = [0; 4 * 1024];
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            read = from.read(&mut bytes) => match read {
                Ok(n @ 1..) => unread.extend(&bytes[..n]),
                Ok(0) | Err(_) => kill_group(),
            },
            written = pass_on(&mut input, &unread), if !unread.is_empty() => match written {
                Ok(n) => drop(unread.drain(..n)),
                // It has closed its input, and wants to hear no more.
                Err(_) => input = None,
            },
        }
        if input.is_none() {
            unread.clear();
        } else if unread.len() > MAX_UNREAD_BYTES {
            let _ = writeln!(io::stderr(), "error: the child does not read what it is told, and is killed");
            kill_group();
        }
    };
    let _ = tokio::time::timeout(LAST_LINES, &mut saying).await;
    Ok(status)
}

async fn pass_on(input: &mut Option<ChildStdin>, unread: &VecDeque<u8>) -> io::Result<usize> {
    match input {
        Some(input) => input.write(unread.as_slices().0).await,
        None => std::future::pending().await,
    }
}

/// The whole group, this process included: it does not return.
fn kill_group() {
    if let Err(error) = kill_current_process_group(Signal::KILL) {
        let _ = writeln!(io::stderr(), "error: the child's process group could not be killed: {error}");
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
