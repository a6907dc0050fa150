//! Why a call failed, and what that means for whoever made it.

use crate::v1;
use tonic::Code;

/// Why a call failed. The wire's `ErrorKind`, and one kind that only a client can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The node does not lead. Nothing was done; [`Failure::leader`](super::Failure::leader) may say who leads.
    NotLeader,
    /// No leader is known. Nothing was done.
    NoLeader,
    /// The entry was handed to Raft and its fate is not known. Ask again under the same request id.
    UnknownOutcome,
    /// The session has ended, confirmed by a quorum. Final.
    SessionEnded,
    /// The secret is not the session's. Final.
    WrongSecret,
    /// Another live process holds the worker id. Final for this process.
    DuplicateIdentity,
    /// A keyspace, partition, worker or node of that name does not exist.
    NotFound,
    /// A keyspace or node of that name exists already.
    AlreadyExists,
    /// A field is missing, malformed or out of bounds.
    Invalid,
    /// The epoch named is not the partition's any more.
    StaleEpoch,
    /// The request may have been answered so long ago that the answer was forgotten. It is not run again.
    TooOld,
    /// A queue, message, keyspace or history is at its bound.
    Limit,
    /// The two sides speak different versions of the protocol.
    UnsupportedProtocol,
    /// The request names another cluster.
    WrongCluster,
    /// The state as it is does not allow it.
    Refused,
    /// The node cannot serve. Nothing was done.
    Unavailable,
    /// No answer from a coordinator arrived: the connection failed, a deadline passed, or something in between
    /// answered. The call may have taken effect. Never on the wire.
    Transport,
}

impl ErrorKind {
    /// The call is worth sending again after a back-off, under the same request id, and to another node if there is
    /// one. For every kind that says no, the same call would fail in the same way until somebody changes something.
    pub fn is_retryable(self) -> bool {
        match self {
            ErrorKind::NotLeader
            | ErrorKind::NoLeader
            | ErrorKind::UnknownOutcome
            | ErrorKind::Unavailable
            | ErrorKind::Transport => true,
            ErrorKind::SessionEnded
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
            | ErrorKind::Refused => false,
        }
    }

    /// The call may have taken effect, now or later.
    pub fn may_have_taken_effect(self) -> bool {
        matches!(self, ErrorKind::UnknownOutcome | ErrorKind::Transport)
    }

    /// `UNKNOWN_OUTCOME` is not `UNAVAILABLE`: proxies and service meshes repeat an `UNAVAILABLE` call on their own.
    pub(super) fn code(self) -> Code {
        match self {
            ErrorKind::NotLeader | ErrorKind::NoLeader | ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::UnknownOutcome | ErrorKind::Transport => Code::Unknown,
            ErrorKind::SessionEnded
            | ErrorKind::StaleEpoch
            | ErrorKind::TooOld
            | ErrorKind::WrongCluster
            | ErrorKind::Refused => Code::FailedPrecondition,
            ErrorKind::WrongSecret => Code::PermissionDenied,
            ErrorKind::DuplicateIdentity | ErrorKind::AlreadyExists => Code::AlreadyExists,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Invalid => Code::InvalidArgument,
            ErrorKind::Limit => Code::ResourceExhausted,
            ErrorKind::UnsupportedProtocol => Code::Unimplemented,
        }
    }

    pub(super) fn to_wire(self) -> v1::ErrorKind {
        match self {
            ErrorKind::NotLeader => v1::ErrorKind::NotLeader,
            ErrorKind::NoLeader => v1::ErrorKind::NoLeader,
            // Whoever passes a failed connection on says what it means to the caller.
            ErrorKind::UnknownOutcome | ErrorKind::Transport => v1::ErrorKind::UnknownOutcome,
            ErrorKind::SessionEnded => v1::ErrorKind::SessionEnded,
            ErrorKind::WrongSecret => v1::ErrorKind::WrongSecret,
            ErrorKind::DuplicateIdentity => v1::ErrorKind::DuplicateIdentity,
            ErrorKind::NotFound => v1::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => v1::ErrorKind::AlreadyExists,
            ErrorKind::Invalid => v1::ErrorKind::Invalid,
            ErrorKind::StaleEpoch => v1::ErrorKind::StaleEpoch,
            ErrorKind::TooOld => v1::ErrorKind::TooOld,
            ErrorKind::Limit => v1::ErrorKind::Limit,
            ErrorKind::UnsupportedProtocol => v1::ErrorKind::UnsupportedProtocol,
            ErrorKind::WrongCluster => v1::ErrorKind::WrongCluster,
            ErrorKind::Refused => v1::ErrorKind::Refused,
            ErrorKind::Unavailable => v1::ErrorKind::Unavailable,
        }
    }

    pub(super) fn from_wire(wire: v1::ErrorKind) -> Option<ErrorKind> {
        Some(match wire {
            v1::ErrorKind::Unspecified => return None,
            v1::ErrorKind::NotLeader => ErrorKind::NotLeader,
            v1::ErrorKind::NoLeader => ErrorKind::NoLeader,
            v1::ErrorKind::UnknownOutcome => ErrorKind::UnknownOutcome,
            v1::ErrorKind::SessionEnded => ErrorKind::SessionEnded,
            v1::ErrorKind::WrongSecret => ErrorKind::WrongSecret,
            v1::ErrorKind::DuplicateIdentity => ErrorKind::DuplicateIdentity,
            v1::ErrorKind::NotFound => ErrorKind::NotFound,
            v1::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            v1::ErrorKind::Invalid => ErrorKind::Invalid,
            v1::ErrorKind::StaleEpoch => ErrorKind::StaleEpoch,
            v1::ErrorKind::TooOld => ErrorKind::TooOld,
            v1::ErrorKind::Limit => ErrorKind::Limit,
            v1::ErrorKind::UnsupportedProtocol => ErrorKind::UnsupportedProtocol,
            v1::ErrorKind::WrongCluster => ErrorKind::WrongCluster,
            v1::ErrorKind::Refused => ErrorKind::Refused,
            v1::ErrorKind::Unavailable => ErrorKind::Unavailable,
        })
    }

    /// What a status means that no coordinator wrote. A call that ended without a coordinator's answer may have
    /// taken effect, whatever code a proxy or the transport chose.
    pub(super) fn of_foreign(code: Code) -> ErrorKind {
        match code {
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => ErrorKind::Transport,
            Code::Unimplemented => ErrorKind::UnsupportedProtocol,
            // OUT_OF_RANGE is what tonic says of a message above its size limit.
            Code::ResourceExhausted | Code::OutOfRange => ErrorKind::Limit,
            Code::InvalidArgument => ErrorKind::Invalid,
            Code::NotFound => ErrorKind::NotFound,
            Code::AlreadyExists => ErrorKind::AlreadyExists,
            Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition => ErrorKind::Refused,
        }
    }
}
