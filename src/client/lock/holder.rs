//! Who has a lock.

use ringfence_api::convert::LockHolder;
use ringfence_core::ids::{Epoch, LockName, SessionId, WorkerId};
use std::fmt;

/// Who holds a lock, as the coordinator said. It may have changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// Where it is reached, as it said when it connected; may be empty.
    pub address: String,
    /// The epoch under which it holds the lock.
    pub epoch: Epoch,
}

impl From<LockHolder> for Holder {
    fn from(from: LockHolder) -> Holder {
        let LockHolder { worker, session, address, epoch, .. } = from;
        Holder { worker, session, address, epoch }
    }
}

/// `worker-3 at 10.0.0.3:80 under epoch 7`
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { worker, address, epoch, .. } = self;
        let at = if address.is_empty() { "" } else { " at " };
        write!(f, "{worker}{at}{address} under epoch {}", epoch.get())
    }
}

/// A lock that is not free. The error of it is [`ErrorKind::Busy`](crate::ErrorKind::Busy), and
/// [`Error::busy`](crate::Error::busy) gives this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lock {lock} is not free: {}; try again later, or wait for it", Why(self))]
pub struct Busy {
    pub(crate) lock: LockName,
    pub(crate) holder: Option<Holder>,
    pub(crate) behind: Option<u32>,
    pub(crate) ours: bool,
}

impl Busy {
    /// The lock.
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    /// Who holds it. `None` when others only wait for it, when it rests after its last holder has lost it, and after a wait for
    /// it, of which the coordinator says only how many were before.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// How many were before it in the queue when it began to wait at the coordinator.
    pub fn behind(&self) -> Option<u32> {
        self.behind
    }

    /// It is held, or waited for, in this process.
    pub fn is_ours(&self) -> bool {
        self.ours
    }
}

struct Why<'a>(&'a Busy);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy { holder, behind, ours, .. } = self.0;
        match (holder, behind, ours) {
            (Some(holder), _, true) => write!(f, "this process holds it ({holder})"),
            (Some(holder), _, false) => write!(f, "{holder} holds it"),
            (None, _, true) => f.write_str("this process waits for it already"),
            (None, Some(behind), false) => {
                write!(f, "it was waited for behind {behind} others and whoever holds it")
            }
            (None, None, false) => f.write_str("others wait for it, or it rests after a holder has lost it"),
        }
    }
}
