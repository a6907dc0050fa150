//! The one error of the SDK.
//!
//! A message says what happened and what to do; the kind is for programs. It is not a gRPC status: what a coordinator
//! refused, and what became of a call that nobody answered, are told apart here once and for all.

use crate::lock::Busy;
use crate::net::{EndpointsError, GaveUp};
use ringfence_api::Failure;
use ringfence_core::ids::{Epoch, NameError};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Why something failed, in a form programs can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No coordinator answered before the deadline. Nothing was done.
    Unreachable,
    /// Coordinators answered, and none of them leads. Nothing was done.
    NoLeader,
    /// Coordinators answered, and none of them can serve now: they start, stop, or their disk failed. Nothing was done.
    Unavailable,
    /// The call may or may not take effect. Look at the state before doing it again.
    UnknownOutcome,
    /// The worker's session has ended. Final for the session.
    SessionEnded,
    /// The secret is not the session's. Final.
    WrongSecret,
    /// Another live process holds the worker id. Final for this process.
    DuplicateIdentity,
    /// A keyspace, partition, worker or node of that name does not exist.
    NotFound,
    /// A keyspace or node of that name exists already.
    AlreadyExists,
    /// Something given is missing, malformed or out of bounds. The message names it and the bound.
    Invalid,
    /// The epoch named is not the partition's any more. [`Error::current_epoch`] is.
    StaleEpoch,
    /// The request may have been answered so long ago that the answer was forgotten. It was not run again.
    TooOld,
    /// Something is at its bound. The message names the bound.
    Limit,
    /// Client and coordinator speak different versions of the protocol.
    UnsupportedProtocol,
    /// The endpoints lead to another cluster than before.
    WrongCluster,
    /// The state as it is does not allow it. The message says what stands in the way.
    Refused,
    /// A coordinator's answer makes no sense to this client. Nothing is known of the call's effect.
    Malformed,
    /// A drill was cut short and has no result. Nothing of it is kept, and it may be run again.
    Interrupted,
    /// The lock is held by somebody else, or waited for. [`Error::busy`] says more.
    Busy,
    /// The lock had been lost. Others may have held it since.
    NotHeld,
    /// A worker has ended without giving everything back. What is left goes to others when its lease has run out.
    NotReleased,
}

impl ErrorKind {
    /// The kind in snake case, as the command line prints it: `not_found`.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::NoLeader => "no_leader",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::UnknownOutcome => "unknown_outcome",
            ErrorKind::SessionEnded => "session_ended",
            ErrorKind::WrongSecret => "wrong_secret",
            ErrorKind::DuplicateIdentity => "duplicate_identity",
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::Invalid => "invalid",
            ErrorKind::StaleEpoch => "stale_epoch",
            ErrorKind::TooOld => "too_old",
            ErrorKind::Limit => "limit",
            ErrorKind::UnsupportedProtocol => "unsupported_protocol",
            ErrorKind::WrongCluster => "wrong_cluster",
            ErrorKind::Refused => "refused",
            ErrorKind::Malformed => "malformed",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Busy => "busy",
            ErrorKind::NotHeld => "not_held",
            ErrorKind::NotReleased => "not_released",
        }
    }
}

impl From<ringfence_api::ErrorKind> for ErrorKind {
    fn from(kind: ringfence_api::ErrorKind) -> ErrorKind {
        use ringfence_api::ErrorKind as Wire;
        match kind {
            Wire::NotLeader | Wire::NoLeader => ErrorKind::NoLeader,
            Wire::UnknownOutcome => ErrorKind::UnknownOutcome,
            Wire::SessionEnded => ErrorKind::SessionEnded,
            Wire::WrongSecret => ErrorKind::WrongSecret,
            Wire::DuplicateIdentity => ErrorKind::DuplicateIdentity,
            Wire::NotFound => ErrorKind::NotFound,
            Wire::AlreadyExists => ErrorKind::AlreadyExists,
            Wire::Invalid => ErrorKind::Invalid,
            Wire::StaleEpoch => ErrorKind::StaleEpoch,
            Wire::TooOld => ErrorKind::TooOld,
            Wire::Limit => ErrorKind::Limit,
            Wire::UnsupportedProtocol => ErrorKind::UnsupportedProtocol,
            Wire::WrongCluster => ErrorKind::WrongCluster,
            Wire::Refused => ErrorKind::Refused,
            Wire::Unavailable => ErrorKind::Unavailable,
            // A stream that broke: nobody answered.
            Wire::Transport => ErrorKind::Unreachable,
        }
    }
}

/// Something failed. `Display` says what happened and what to do; [`Error::kind`] is for programs.
///
/// Cheap to clone, so that everyone who waits for one thing gets the same answer.
#[derive(Clone)]
pub struct Error(Arc<Repr>);

#[derive(Debug, thiserror::Error)]
enum Repr {
    #[error(transparent)]
    Endpoints(EndpointsError),
    #[error(transparent)]
    Answer(Failure),
    #[error(transparent)]
    GaveUp(GaveUp),
    #[error(transparent)]
    Name(NameError),
    #[error(transparent)]
    Busy(Busy),
    #[error("{1}")]
    Own(ErrorKind, String),
}

impl Error {
    /// An error that this crate finds by itself.
    pub(crate) fn own(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Repr::Own(kind, message.into())))
    }

    /// A coordinator's answer that cannot be understood.
    pub(crate) fn malformed(why: impl fmt::Display) -> Error {
        let message = format!(
            "a coordinator's answer makes no sense to this client ({why}); are their versions apart?"
        );
        Error::own(ErrorKind::Malformed, message)
    }

    /// Why, for programs.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Repr::Endpoints(_) | Repr::Name(_) => ErrorKind::Invalid,
            Repr::Answer(failure) => failure.kind().into(),
            Repr::GaveUp(gave_up) => gave_up.kind(),
            Repr::Busy(_) => ErrorKind::Busy,
            Repr::Own(kind, _) => *kind,
        }
    }

    /// Nothing was done that stands in the way, and the same call may succeed later without anything being changed. The SDK has retried until
    /// the call's deadline already; wait before the next.
    ///
    /// [`ErrorKind::UnknownOutcome`] is not among them: look at the state first.
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            ErrorKind::Unreachable
            | ErrorKind::NoLeader
            | ErrorKind::Unavailable
            | ErrorKind::Interrupted
            | ErrorKind::Busy => true,
            ErrorKind::UnknownOutcome
            | ErrorKind::SessionEnded
            | ErrorKind::WrongSecret
            | ErrorKind::DuplicateIdentity
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Invalid
            | ErrorKind::StaleEpoch
            | ErrorKind::TooOld
            | ErrorKind::Limit
            | ErrorKind::UnsupportedProtocol
            | ErrorKind::WrongCluster
            | ErrorKind::Refused
            | ErrorKind::Malformed
            | ErrorKind::NotHeld
            | ErrorKind::NotReleased => false,
        }
    }

    /// With [`ErrorKind::StaleEpoch`]: the partition's current epoch, when it has one.
    pub fn current_epoch(&self) -> Option<Epoch> {
        self.failure()?.current_epoch()
    }

    /// With [`ErrorKind::DuplicateIdentity`]: the address of the process that holds the worker id, and of the one that
    /// asked for it. Either may be empty.
    pub fn identities(&self) -> Option<(&str, &str)> {
        self.failure()?.identities()
    }

    /// With [`ErrorKind::Busy`]: the lock, and who holds it as far as that is known.
    pub fn busy(&self) -> Option<&Busy> {
        match &*self.0 {
            Repr::Busy(busy) => Some(busy),
            _ => None,
        }
    }

    /// What a coordinator answered, when one did.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match &*self.0 {
            Repr::Answer(failure) => Some(failure),
            Repr::Endpoints(_) | Repr::GaveUp(_) | Repr::Name(_) | Repr::Busy(_) | Repr::Own(..) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The kind and the message: what `unwrap` in a test should print.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind(), self.0)
    }
}

impl std::error::Error for Error {}

impl From<EndpointsError> for Error {
    fn from(error: EndpointsError) -> Error {
        Error(Arc::new(Repr::Endpoints(error)))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error(Arc::new(Repr::Answer(failure)))
    }
}

impl From<GaveUp> for Error {
    fn from(gave_up: GaveUp) -> Error {
        Error(Arc::new(Repr::GaveUp(gave_up)))
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Error {
        Error(Arc::new(Repr::Name(error)))
    }
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Error {
        Error(Arc::new(Repr::Busy(busy)))
    }
}

/// So that what needs no conversion can be given where a conversion may fail.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_and_shows_its_kind_and_what_to_do() {
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
        let error = Error::from(Failure::not_found("there is no keyspace orders"));
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(!error.is_retryable());
        assert_eq!(format!("{error:?}"), "NotFound: there is no keyspace orders");
        assert_eq!(error.kind().as_str(), "not_found");
    }

    #[test]
    fn t43_only_what_did_nothing_is_retryable() {
        assert!(Error::from(Failure::no_leader()).is_retryable());
        assert!(Error::from(Failure::unavailable("it stops")).is_retryable());
        assert!(!Error::from(Failure::unknown_outcome()).is_retryable());
    }

    #[test]
    fn f106_a_stale_epoch_carries_the_current_one() {
        let error = Error::from(Failure::stale_epoch(Epoch::new(9).ok(), None));
        assert_eq!(error.current_epoch().map(Epoch::get), Some(9));
    }
}
