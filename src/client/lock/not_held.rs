//! Why a lock is not held any more.

use crate::error::{Error, ErrorKind};
use crate::fence::FencingToken;
use crate::ownership::{self, NotOwner};
use ringfence_core::ids::Epoch;
use std::fmt;

/// The lock is not held, or not now, under the epoch of this guard. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not held under epoch {}: {why}; {}", .token.short(), .token.epoch().get(), .why.what_to_do())]
pub struct NotHeld {
    token: FencingToken,
    why: Why,
}

/// Why a lock is lost, or pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The coordinator took it: an operator broke it, or it was taken over by fence.
    Taken,
    /// The lease ran out: no renewal was acknowledged in time, or this process was paused for longer than the lease.
    Expired,
    /// The coordinator ended the session: it had expired there, or somebody connected under the same name.
    SessionEnded,
    /// It was given back: released, or its session was closed.
    Released,
    /// The connection to the coordinator is gone for longer than the grace, of a lock that is taken over by fence. The one
    /// reason that may pass: the lock is held again when the coordinator confirms it, or is lost.
    Disconnected,
    /// This process is a fork of the one that holds it.
    Forked,
}

impl NotHeld {
    /// The token of the guard. Its epoch is over, unless [`NotHeld::is_final`] says otherwise.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// The epoch of the guard.
    pub fn epoch(&self) -> Epoch {
        self.token.epoch()
    }

    /// Why.
    pub fn why(&self) -> Why {
        self.why
    }

    /// True when the guard never becomes valid again; false only for [`Why::Disconnected`].
    pub fn is_final(&self) -> bool {
        self.why != Why::Disconnected
    }
}

impl From<NotOwner> for NotHeld {
    fn from(over: NotOwner) -> NotHeld {
        let why = match over.why() {
            // A lock is not drained.
            ownership::Why::Taken | ownership::Why::DrainOver => Why::Taken,
            ownership::Why::Expired => Why::Expired,
            ownership::Why::SessionEnded => Why::SessionEnded,
            ownership::Why::TaskEnded => Why::Released,
            ownership::Why::Disconnected => Why::Disconnected,
            ownership::Why::Forked => Why::Forked,
        };
        NotHeld { token: over.token().clone(), why }
    }
}

impl From<NotHeld> for Error {
    fn from(lost: NotHeld) -> Error {
        Error::own(ErrorKind::NotHeld, lost.to_string())
    }
}

impl Why {
    fn what_to_do(self) -> &'static str {
        match self {
            Why::Taken | Why::Expired | Why::SessionEnded | Why::Released => {
                "nothing was written; stop, and ask for the lock anew when you still want it: others may have held it meanwhile"
            }
            Why::Disconnected => "nothing was written; try again shortly, or stop",
            Why::Forked => "nothing was written; connect anew in the child, after exec",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Taken => "the coordinator took it",
            Why::Expired => "its lease ran out without an acknowledged renewal",
            Why::SessionEnded => "its session has ended",
            Why::Released => "it was given back",
            Why::Disconnected => "the coordinator is out of reach",
            Why::Forked => "this process is a fork of the holder",
        })
    }
}
