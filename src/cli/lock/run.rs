//! `ringfence lock run`: one command under a lock, as `flock` does on one machine. The contract is in `docs/locks.md`.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::run::alone::{Alone, Ended, Under, Wanted};
use clap::Args;
use ringfence::ids::LockName;
use ringfence::lock::{EfficiencyGuard, LockGuard, Locks};
use ringfence::{Error, ErrorKind};
use std::ffi::OsString;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

pub(super) const AFTER_HELP: &str = "\
The command has RINGFENCE_LOCK, RINGFENCE_EPOCH and RINGFENCE_TOKEN in its environment. It raises the fence of its storage to the token
first, then reads, then works, and stamps each write with the token: a lock alone does not stop a late write. When the lock cannot be kept,
the command gets SIGTERM while a quarter of the lease is left, and SIGKILL before it is over. Its standard input is empty.

With --efficiency there is no token, and a lock that is lost ends nothing: it is for work that may be done twice.

Exit codes: the command's own, or 128 and the number of the signal that ended it; 75 the lock is not free, or was not in time; 76 it was
lost while the command ran; 1 refused or failed; 2 bad usage; 126 the command cannot be executed; 127 there is no such command.

Examples:
  ringfence lock run nightly -- ./rollup.sh
  ringfence lock run report --efficiency --fail-open --wait 30s -- ./report.sh";

/// Arguments of `ringfence lock run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The lock
    #[arg(value_name = "NAME")]
    lock: LockName,
    /// A correctness lock: the command gets a token for its writes, and is ended when the lock is lost [default]
    #[arg(long, conflicts_with = "efficiency")]
    fenced: bool,
    /// An efficiency lock: it saves doing the same work twice, and protects nothing
    #[arg(long)]
    efficiency: bool,
    /// Run the command without the lock when no coordinator answers
    #[arg(long, requires = "efficiency")]
    fail_open: bool,
    /// Together with others who share the lock
    #[arg(long)]
    shared: bool,
    /// Wait for the lock for so long [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// How long the lock rests when it was lost and not given back, 0 to 60s; for resources that check no token
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "0s")]
    lock_delay: Duration,
    /// The lease: so long the next one waits when this machine dies, 1s to 10m
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10s")]
    ttl: Duration,
    /// Tell operators when it is held for longer than this, 1ms to 30 days
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    alert_after: Option<Duration>,
    /// The name that operators are shown [default: a random one]
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// How long before the end of the lease the command is killed
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "250ms")]
    kill_margin: Duration,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What the command runs under.
enum Held {
    Fenced(LockGuard),
    Efficiency(EfficiencyGuard),
}

impl Under for Held {
    fn left(&self) -> Option<Duration> {
        match self {
            Held::Fenced(guard) if guard.is_held() => Some(guard.time_left()),
            Held::Fenced(_) => Some(Duration::ZERO),
            Held::Efficiency(_) => None,
        }
    }
}

/// Takes the lock, runs the command, gives the lock back.
pub(super) async fn run(common: &Common, args: RunArgs) -> Outcome {
    Alone::check(&args.command)?;
    if args.kill_margin.is_zero() || args.kill_margin >= args.ttl / 2 {
        return Err(Failed::usage("--kill-margin is more than nothing, and less than half of --ttl"));
    }
    // Before anything is started, so that no signal is missed.
    let mut signals = Signals::new()?;
    let taken = tokio::select! {
        taken = take(common, &args) => taken?,
        number = signals.next() => return Ok(Exit::Of(signalled(number))),
    };
    let (locks, held) = taken;
    let name = args.lock.to_string();
    let mut environment = vec![("RINGFENCE_LOCK", name.clone())];
    if let Held::Fenced(guard) = &held {
        environment.extend([
            ("RINGFENCE_EPOCH", guard.epoch().get().to_string()),
            ("RINGFENCE_TOKEN", guard.token().to_string()),
        ]);
    }
    let alone = Alone { name, command: args.command, environment, kill_margin: args.kill_margin };
    let (want, wanted) = watch::channel(Wanted::Run);
    let mut end = alone.start(held, wanted)?;
    let mut told = None;
    let ended = loop {
        tokio::select! {
            ended = &mut end => break ended,
            number = signals.next() => {
                want.send_replace(if told.is_none() { Wanted::End } else { Wanted::Die });
                told.get_or_insert(number);
            }
        }
    };
    let ended = ended.map_err(|_| Failed::refused("the thread of the command ended unexpectedly"))?;
    finish(locks, ended, told).await
}

/// Connects and takes the lock. Without a session when it goes on without the lock.
async fn take(common: &Common, args: &RunArgs) -> Result<(Option<Locks>, Held), Failed> {
    let mut builder = Locks::builder_over(&common.coordinator()).ttl(args.ttl);
    if let Some(within) = common.given_timeout() {
        builder = builder.connect_within(within);
    }
    if let Some(id) = &args.id {
        builder = builder.id(id);
    }
    let locks = match builder.connect().await {
        Ok(locks) => locks,
        Err(error) if args.fail_open && error.is_retryable() => {
            tracing::warn!(lock = %args.lock, %error, "going on without the lock");
            return Ok((None, Held::Efficiency(EfficiencyGuard::unprotected())));
        }
        Err(error) => return Err(error.into()),
    };
    let held = acquire(&locks, args).await;
    match held {
        Ok(held) => Ok((Some(locks), held)),
        Err(error) => {
            // The session is of no more use; when that cannot be told, it ends by itself.
            let _ = locks.close().await;
            Err(failed(error))
        }
    }
}

async fn acquire(locks: &Locks, args: &RunArgs) -> Result<Held, Error> {
    let name = args.lock.as_str();
    if args.efficiency {
        let mut request = locks.efficiency(name).lock_delay(args.lock_delay).fail_open(args.fail_open);
        request = if args.shared { request.shared() } else { request };
        if let Some(after) = args.alert_after {
            request = request.alert_after(after);
        }
        let guard = match args.wait {
            Some(within) => request.acquire_within(within).await?,
            None => request.try_acquire().await?,
        };
        return Ok(Held::Efficiency(guard));
    }
    let mut request = locks.lock(name).lock_delay(args.lock_delay);
    request = if args.shared { request.shared() } else { request };
    if let Some(after) = args.alert_after {
        request = request.alert_after(after);
    }
    let guard = match args.wait {
        Some(within) => request.acquire_within(within).await?,
        None => request.try_acquire().await?,
    };
    Ok(Held::Fenced(guard))
}

/// Gives the lock back, and says how it went.
async fn finish(locks: Option<Locks>, ended: Ended<Held>, told: Option<i32>) -> Outcome {
    let Ended { under, code, lost } = ended;
    let (released, fenced) = match under {
        Held::Fenced(guard) => (guard.release().await, true),
        Held::Efficiency(guard) => (guard.release().await, false),
    };
    if let Some(locks) = locks
        && let Err(error) = locks.close().await
    {
        tracing::warn!(%error, "the session could not be ended; the lock is free when its lease has run out");
    }
    let not_held = released.err().filter(|error| error.kind() == ErrorKind::NotHeld);
    if fenced && (lost || not_held.is_some()) {
        let why = not_held
            .map_or_else(|| "its lease was not renewed in time".to_owned(), |error| error.to_string());
        return Err(Failed::Error {
            code: ErrorKind::NotHeld.as_str(),
            message: format!("the lock was lost while the command ran, and the command was ended: {why}"),
            exit: Exit::Lost,
        });
    }
    if let Some(error) = not_held {
        tracing::warn!(%error, "the lock was lost while the command ran: the same work may have been done twice");
    }
    match (code, told) {
        (Some(code), _) => Ok(Exit::Of(code)),
        (None, Some(number)) => Ok(Exit::Of(signalled(number))),
        (None, None) => Err(Failed::refused("the command could not be started; the log says why")),
    }
}

fn failed(error: Error) -> Failed {
    let (kind, message) = (error.kind(), error.to_string());
    match kind {
        ErrorKind::Busy => Failed::Error { code: kind.as_str(), message, exit: Exit::Busy },
        _ => error.into(),
    }
}

/// How a process ends that a signal has ended, as shells say it.
fn signalled(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// The signals that say to stop, by number.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    const TERMINATE: i32 = 15;
    const INTERRUPT: i32 = 2;

    fn new() -> std::io::Result<Signals> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt })
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => Signals::TERMINATE,
            _ = self.interrupt.recv() => Signals::INTERRUPT,
        }
    }
}
