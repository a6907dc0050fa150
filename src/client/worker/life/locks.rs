//! The session's locks: what its stream tells of them goes to the table, and what the table wants is done.

mod calls;
mod table;

use super::super::wire::{Key, LockKey};
use super::Life;
use crate::error::{Error, ErrorKind};
use crate::lock::desk::Command;
use crate::ownership::{SessionLease, Why};
use crate::worker::keeper::Keeper;
use crate::worker::session::Session;
use calls::{Calls, Done};
use ringfence_core::ids::Epoch;
use ringfence_core::lease::lessee::Loss;
use ringfence_core::state::Takeover;
use ringfence_core::time::Instant;
use std::sync::Arc;
use table::{Effect, Grantee, Table};

pub(in crate::worker) use calls::Caller;
pub(in crate::worker) use table::Return;

pub(super) struct Locks {
    table: Table,
    calls: Calls,
}

impl Locks {
    pub(super) fn new(keeper: &Keeper, session: &Session, lease: &Arc<SessionLease>) -> Locks {
        let grantee = Grantee {
            cluster: session.cluster.clone(),
            session: session.id,
            worker: keeper.profile.id.clone(),
            address: keeper.profile.address.clone(),
            ttl: session.timing.ttl(),
            lease: Arc::clone(lease),
            desk: keeper.lock_desk.clone(),
        };
        let calls = Calls::new(Caller::new(keeper.coordinator.clone(), session));
        Locks { table: Table::new(grantee), calls }
    }

    /// Drives the calls. Cancel safe.
    pub(super) async fn next(&mut self) -> Called {
        Called(self.calls.next().await)
    }

    /// Nothing is asked for, held or given back.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many locks were not given back, or the coordinator does not know.
    pub(super) fn unreleased(&self) -> usize {
        self.table.unreleased()
    }

    /// Gives everything back, and takes nothing more.
    pub(super) fn close(&mut self, now: Instant) {
        self.table.close(now);
    }

    /// Nobody renews any more.
    pub(super) fn let_go(&mut self, now: Instant) {
        self.table.let_go(now);
    }

    pub(super) fn picture_changed(&mut self) {
        self.table.picture_changed();
    }

    pub(super) fn granted(&mut self, key: LockKey, epoch: Epoch, takeover: Takeover, now: Instant) {
        self.table.granted(key, epoch, takeover, now);
    }

    pub(super) fn lost(&mut self, key: &LockKey, epoch: Epoch, loss: Loss, now: Instant) {
        let why = match loss {
            Loss::Taken | Loss::DrainOver => Why::Taken,
            Loss::Expired => Why::Expired,
            Loss::SessionEnded => Why::SessionEnded,
        };
        self.table.lost(key, epoch, why, now);
    }

    /// The session is over. What the coordinator is to be told, if it does not know that.
    pub(super) fn end(&mut self, confirmed: bool) -> Vec<(LockKey, Return)> {
        self.table.end(confirmed)
    }
}

/// What came of a call.
pub(super) struct Called(Done);

impl Life<'_> {
    /// Somebody in this process wants something of a lock.
    pub(super) fn on_lock_command(&mut self, command: Command) {
        let now = self.keeper.clock.now();
        match command {
            Command::Ask(ask) => self.locks.table.ask(ask, now),
            Command::Cancel { lock, ask } => self.locks.table.cancel(&lock, ask, now),
            Command::Release { lock, session, number, answer } => {
                self.locks.table.release(&lock, session, number, answer, now);
            }
        }
    }

    /// The coordinator has answered something about a lock.
    pub(super) fn on_lock_called(&mut self, Called(done): Called) {
        let now = self.keeper.clock.now();
        match done {
            Done::Acquired(_, Err(error)) | Done::Returned(_, Err(error)) if is_over(&error) => {
                self.on_session_over(&error.to_string());
            }
            Done::Acquired(key, result) => self.locks.table.answered(&key, result, now),
            Done::Returned(key, result) => {
                if let Err(error) = &result {
                    tracing::error!(%error, lock = %key.lock, "the coordinator refuses to take a lock back, and it is dropped");
                }
                self.locks.table.returned(&key, result.is_ok(), now);
            }
            Done::Stopped => {}
        }
    }

    /// Hands out what is valid, and does what the table wants.
    pub(super) fn settle_locks(&mut self, now: Instant) {
        for (key, epoch) in self.locks.table.fresh() {
            let valid = self.lessee.valid_until(&Key::Lock(key.clone()), epoch);
            if valid.is_some_and(|until| now < until) {
                self.locks.table.hand_out(&key, now);
            }
        }
        self.locks.table.look_again(now);
        while let Some(effect) = self.locks.table.poll_effect() {
            match effect {
                Effect::Acquire { key, settled_below, wish, waits, standing } => {
                    self.locks.calls.acquire(key, settled_below, wish, waits, standing);
                }
                Effect::Stop { number } => self.locks.calls.stop(number),
                Effect::GiveBack(key, epoch) => self.lessee.give_back(&Key::Lock(key), epoch),
                Effect::Return(key, how) => self.locks.calls.give_back(key, how),
                Effect::Forget(key) => self.lessee.forget(&Key::Lock(key)),
            }
        }
    }
}

fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::SessionEnded | ErrorKind::WrongSecret)
}
