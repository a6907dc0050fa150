//! Why a partition is not owned any more.

use crate::fence::FencingToken;
use ringfence_core::ids::Epoch;
use std::fmt;

/// The partition is not owned, or not now, under the epoch of this ownership.
///
/// Whatever asked gets this one error: a stamp, a read, `ready`, a wait. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not owned under epoch {}: {why}; {}", .token.short(), .token.epoch().get(), .why.what_to_do())]
pub struct NotOwner {
    token: FencingToken,
    why: Why,
}

/// Why an ownership is over, or pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The coordinator gave the partition to another, or took it.
    Taken,
    /// The drain deadline passed before the task returned.
    DrainOver,
    /// The lease ran out: no renewal was acknowledged in time, or this process was paused for longer than the lease.
    Expired,
    /// The coordinator ended the session: it had expired there, or the same worker id joined again.
    SessionEnded,
    /// The owner function has returned, or its task ended otherwise. Who still holds the handle may not write with it.
    TaskEnded,
    /// The connection to the coordinator is gone for longer than the grace, in a keyspace that is taken over by fence.
    /// The one reason that may pass: the ownership is valid again when the coordinator confirms it, or is lost.
    Disconnected,
    /// This process is a fork of the one that owns the partition.
    Forked,
}

impl NotOwner {
    pub(crate) fn new(token: FencingToken, why: Why) -> NotOwner {
        NotOwner { token, why }
    }

    /// The token of this ownership. Its epoch is over, unless [`NotOwner::is_final`] says otherwise.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// The epoch of this ownership.
    pub fn epoch(&self) -> Epoch {
        self.token.epoch()
    }

    /// Why.
    pub fn why(&self) -> Why {
        self.why
    }

    /// True when this ownership never becomes valid again; false only for [`Why::Disconnected`].
    pub fn is_final(&self) -> bool {
        self.why != Why::Disconnected
    }
}

impl Why {
    fn what_to_do(self) -> &'static str {
        match self {
            Why::Taken | Why::DrainOver | Why::Expired | Why::SessionEnded | Why::TaskEnded => {
                "nothing was written; end this task, the next grant comes with an epoch and a task of its own"
            }
            Why::Disconnected => "nothing was written; try again shortly, or pass the caller on",
            Why::Forked => "nothing was written; join as a worker of its own in the child, after exec",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Taken => "the coordinator gave it to another owner, or took it",
            Why::DrainOver => "its drain deadline passed",
            Why::Expired => "its lease ran out without an acknowledged renewal",
            Why::SessionEnded => "the worker's session has ended",
            Why::TaskEnded => "its owner function has ended",
            Why::Disconnected => "the coordinator is out of reach",
            Why::Forked => "this process is a fork of the owner",
        })
    }
}
