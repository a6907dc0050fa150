//! What a guard has of a lock, and gives back when it is dropped.

use super::NotHeld;
use super::desk::{Command, LockDesk};
use crate::error::{Error, ErrorKind};
use crate::ownership::{Phase, Tenure, Why};
use ringfence_core::ids::LockName;
use ringfence_core::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a tenure of a lock has beside the token and its validity.
pub(crate) struct Locked {
    pub(crate) lock: LockName,
    /// The session's request that it was granted to.
    pub(crate) number: u64,
    pub(crate) shared: bool,
    pub(crate) since: Instant,
}

/// One guard's part of a lock. Those who share the session's grant have one tenure.
pub(crate) struct Hold {
    tenure: Arc<Tenure<Locked>>,
    desk: LockDesk,
    /// It was given back, or nobody ever had it.
    over: bool,
}

impl Hold {
    pub(crate) fn new(tenure: Arc<Tenure<Locked>>, desk: LockDesk) -> Hold {
        Hold { tenure, desk, over: false }
    }

    /// Nobody had it: it is not given back.
    pub(crate) fn forget(mut self) {
        self.over = true;
    }

    pub(super) fn tenure(&self) -> &Arc<Tenure<Locked>> {
        &self.tenure
    }

    pub(super) fn desk(&self) -> &LockDesk {
        &self.desk
    }

    pub(super) fn check(&self) -> Result<(), NotHeld> {
        self.tenure.check().map_err(NotHeld::from)
    }

    pub(super) async fn lost(&self) -> NotHeld {
        lost(&self.tenure).await
    }

    pub(super) fn held_for(&self) -> Duration {
        self.desk.clock.now().since(self.tenure.particulars().since)
    }

    /// Gives it back and waits until the coordinator knows.
    pub(super) async fn release(mut self) -> Result<(), Error> {
        // A pause of the connection is none of the lock: it is given back all the same.
        if let Err(lost) = self.check()
            && lost.is_final()
        {
            return Err(lost.into());
        }
        self.over = true;
        if !self.end()
            && let Some(ended) = self.tenure.ended()
        {
            // It was lost in this moment. Whoever has ended it may not have given it back, and twice does no harm.
            self.give_back(None);
            return Err(NotHeld::from(ended).into());
        }
        let (answer, answered) = oneshot::channel();
        self.give_back(Some(answer));
        match answered.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                let lock = &self.tenure.particulars().lock;
                let message = format!(
                    "lock {lock} was given back, and the coordinator could not be told: it is free when the lease has run out"
                );
                Err(Error::own(ErrorKind::NotReleased, message))
            }
        }
    }

    /// Nobody can stamp with it any more; false when it was over. Others who share it go on.
    fn end(&self) -> bool {
        self.tenure.particulars().shared && self.tenure.ended().is_none() || self.tenure.end(Why::TaskEnded)
    }

    fn give_back(&self, answer: Option<oneshot::Sender<bool>>) {
        let Locked { lock, number, .. } = self.tenure.particulars();
        let (lock, session, number) = (lock.clone(), self.tenure.session(), *number);
        self.desk.tell(Command::Release { lock, session, number, answer });
    }
}

/// Waits until a lock is not held any more.
pub(super) async fn lost(tenure: &Tenure<Locked>) -> NotHeld {
    loop {
        tenure.reached(Phase::Ended).await;
        if let Some(ended) = tenure.ended() {
            return ended.into();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.over && !self.desk.is_elsewhere() {
            self.end();
            self.give_back(None);
        }
    }
}
