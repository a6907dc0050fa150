//! One command, run once under something that may be lost: it is ended before that is over, and nothing of it lives on.

use super::course::{Claim, Policy};
use super::life::{Event, Recipe, spawn};
use super::steward::{Charge, drive};
use super::{adopt_orphans, program};
use crate::exit::Failed;
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// What something that cannot be lost is worth, seen from any moment.
const NO_END: Duration = Duration::from_secs(86_400);

/// What the command runs under.
pub(crate) trait Under: Send + 'static {
    /// How long it holds if nothing more is heard; zero when it is lost. `None` when the command may run on in any case.
    fn left(&self) -> Option<Duration>;
}

/// What is wanted of a command that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Run,
    /// It is to end in good order.
    End,
    /// At once.
    Die,
}

/// The command and what it is told.
pub(crate) struct Alone {
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// How long before what it runs under is over it is killed.
    pub(crate) kill_margin: Duration,
}

/// Nothing of it lives.
pub(crate) struct Ended<U> {
    pub(crate) under: U,
    /// As it ended: its exit code, or 128 and the number of the signal. `None` when it never was started.
    pub(crate) code: Option<u8>,
    /// It was ended because what it ran under was lost, or about to be.
    pub(crate) lost: bool,
}

impl Alone {
    /// Fails when there is no such program, or it cannot be executed.
    pub(crate) fn check(command: &[OsString]) -> Result<(), Failed> {
        let Some(program) = command.first() else { return Err(Failed::usage("there is no command to run")) };
        program::check(program, std::env::var_os("PATH").as_deref())
    }

    /// Runs it once.
    pub(crate) fn start<U: Under>(
        self,
        under: U,
        mut wanted: watch::Receiver<Wanted>,
    ) -> io::Result<oneshot::Receiver<Ended<U>>> {
        adopt_orphans()?;
        let Alone { name, command, environment, kill_margin } = self;
        let (events, news) = channel();
        let (over, end) = oneshot::channel();
        let recipe = Recipe { command, environment, wait_ready: false, prefix: None, forward: false };
        let charge = Only {
            name,
            under,
            wanted: wanted.clone(),
            kill_margin,
            most_left: Cell::new(Duration::ZERO),
            lost: Cell::new(false),
            code: None,
        };
        let alarm = events.clone();
        spawn("child", move || {
            let (mut charge, policy) = (charge, Policy { max_restarts: 0, kill_margin });
            drive(&recipe, policy, &mut charge, &events, &news);
            let Only { under, lost, code, .. } = charge;
            // Nobody waits when this process is going.
            let _ = over.send(Ended { under, code, lost: lost.get() });
        })?;
        tokio::spawn(async move {
            while wanted.changed().await.is_ok() {
                // A steward that is done hears nothing.
                let _ = alarm.send(Event::Look);
            }
        });
        Ok(end)
    }
}

struct Only<U> {
    name: String,
    under: U,
    wanted: watch::Receiver<Wanted>,
    kill_margin: Duration,
    most_left: Cell<Duration>,
    lost: Cell<bool>,
    code: Option<u8>,
}

impl<U: Under> Charge for Only<U> {
    fn claim(&self) -> Claim {
        let wanted = *self.wanted.borrow();
        let left = self.under.left();
        let known = left.unwrap_or(NO_END);
        let most = self.most_left.get().max(known);
        self.most_left.set(most);
        // What is asked to end because the lease is not renewed is not begun anew when it is after all. The last quarter is for that.
        if left.is_some() && known <= (most / 4).max(self.kill_margin) {
            self.lost.set(true);
        }
        let left = if wanted == Wanted::Die { Duration::ZERO } else { known };
        Claim { wanted: wanted == Wanted::Run && !self.lost.get(), left }
    }

    fn ready(&mut self) {}

    fn ended(&mut self, code: Option<u8>) {
        self.code = code;
    }

    fn name(&self) -> &str {
        &self.name
    }
}
