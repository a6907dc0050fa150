//! The typed form of a failed call.
//!
//! A gRPC status has a code and a text. Neither is enough to act on: `UNAVAILABLE` may mean "nothing was done" or "it
//! may take effect yet". A [`Failure`] says which, in its [`ErrorKind`], and carries what a program needs to go on: the
//! leader's address, how the session ended, the epoch that is current. It travels as an `ErrorDetail` in the status's
//! details.
//!
//! It is not the error type of the SDK, which has more to say (a lease that ran out is no failed call).
//!
//! The rule: a message says what to do next, and shows foreign text escaped.

mod kind;

#[cfg(test)]
mod tests;

pub use kind::ErrorKind;

use crate::PROTOCOL;
use crate::convert::{InvalidField, NodeAddress, Owner, SessionEnd};
use crate::text::{shown, shown_within};
use crate::v1;
use prost::Message as _;
use ringfence_core::ids::{ClusterId, Epoch, SessionId};
use std::fmt;
use tonic::Status;

/// The longest address that a failure carries, in bytes; a join refuses longer ones.
const MAX_ADDRESS_BYTES: usize = ringfence_core::state::MAX_ADDRESS_BYTES;

/// What a failure carries besides its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Leader(NodeAddress),
    Ended(SessionEnd),
    Identity { holder: String, claimant: String },
    Epoch { current: Option<Epoch>, owner: Option<Owner> },
    NoMember { certain: bool },
}

/// A failed call: why, what a program needs to go on, and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: ErrorKind,
    message: String,
    detail: Option<Box<Detail>>,
}

impl Failure {
    fn new(kind: ErrorKind, message: impl fmt::Display) -> Failure {
        Failure { kind, message: shown(&message.to_string()), detail: None }
    }

    fn with(mut self, detail: Detail) -> Failure {
        self.detail = Some(Box::new(detail));
        self
    }

    /// This node does not lead; `leader` does, when it is known.
    pub fn not_leader(leader: Option<NodeAddress>) -> Failure {
        match leader {
            Some(leader) => {
                Failure::new(ErrorKind::NotLeader, format_args!("this node does not lead; ask {leader}"))
                    .with(Detail::Leader(leader))
            }
            None => Failure::new(ErrorKind::NotLeader, "this node does not lead; ask another node"),
        }
    }

    /// No leader is known.
    pub fn no_leader() -> Failure {
        let message = "no leader is known; nothing was done, ask again after a back-off or at another node";
        Failure::new(ErrorKind::NoLeader, message)
    }

    /// The entry was handed to Raft and its fate is not known.
    pub fn unknown_outcome() -> Failure {
        let message = "it is not known whether this takes effect; ask again under the same request id";
        Failure::new(ErrorKind::UnknownOutcome, message)
    }

    /// Something that runs for a while under one leader was cut short; the message says what is known of it.
    pub fn interrupted(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::UnknownOutcome, message)
    }

    /// The session has ended. Only after a quorum has confirmed it.
    pub fn session_ended(session: SessionId, how: impl Into<SessionEnd>) -> Failure {
        let how = how.into();
        let message = format_args!("session {session} has ended: {how}; stop its tasks and join anew");
        Failure::new(ErrorKind::SessionEnded, message).with(Detail::Ended(how))
    }

    /// The secret is not the session's.
    pub fn wrong_secret(session: SessionId) -> Failure {
        let message =
            format_args!("the secret is not that of session {session}; only its own process may use it");
        Failure::new(ErrorKind::WrongSecret, message)
    }

    /// Another live process holds the worker id. The two are the addresses given at join; either may be empty.
    pub fn duplicate_identity(worker: &str, holder: &str, claimant: &str) -> Failure {
        let named = |address: &str| {
            if address.is_empty() { "no address given".to_owned() } else { address.to_owned() }
        };
        let message = format!(
            "worker id {worker} is held by a live process ({}) and asked for by another ({}); give each process an id \
             of its own, or stop one",
            named(holder),
            named(claimant)
        );
        Failure::new(ErrorKind::DuplicateIdentity, message).with(Detail::Identity {
            holder: shown_within(holder, MAX_ADDRESS_BYTES),
            claimant: shown_within(claimant, MAX_ADDRESS_BYTES),
        })
    }

    /// Something named in the request does not exist.
    pub fn not_found(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::NotFound, message)
    }

    /// Something of that name exists already.
    pub fn already_exists(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::AlreadyExists, message)
    }

    /// A field is missing, malformed or out of bounds. An [`InvalidField`] converts to this.
    pub fn invalid(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Invalid, message)
    }

    /// The epoch named is not the partition's any more.
    pub fn stale_epoch(current: Option<Epoch>, owner: Option<Owner>) -> Failure {
        let at = current.map_or("without an epoch yet".to_owned(), |epoch| format!("at {epoch}"));
        let by = owner.as_ref().map_or("nobody owns it".to_owned(), |owner| format!("{owner} owns it"));
        let message = format_args!("the partition has moved on: it is {at} and {by}; look at it again");
        Failure::new(ErrorKind::StaleEpoch, message).with(Detail::Epoch { current, owner })
    }

    /// The request is older than the oldest answer kept.
    pub fn too_old() -> Failure {
        let message = "the answer to this request may have been given and forgotten, so it is not run again; look at \
                       the state, and ask under a new request id if it still needs doing";
        Failure::new(ErrorKind::TooOld, message)
    }

    /// Something is at its bound; the message names the bound.
    pub fn limit(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Limit, message)
    }

    /// The client speaks a protocol version that this node does not.
    pub fn unsupported_protocol(spoken: u32) -> Failure {
        let side = if spoken > PROTOCOL { "the coordinator" } else { "the client" };
        let message = format_args!(
            "the client speaks protocol {spoken} and this node speaks {PROTOCOL}; upgrade {side}"
        );
        Failure::new(ErrorKind::UnsupportedProtocol, message)
    }

    /// The client does not know how keys are spread while the partitions of this keyspace are split.
    pub fn split_unknown(keyspace: &ringfence_core::ids::KeyspaceName) -> Failure {
        let message = format_args!(
            "the partitions of keyspace {keyspace} are being split, and this client would look for keys in the wrong ones; \
             upgrade the client"
        );
        Failure::new(ErrorKind::UnsupportedProtocol, message)
    }

    /// The request names another cluster than this one.
    pub fn wrong_cluster(named: &str, this: &ClusterId) -> Failure {
        let message = format_args!(
            "the request is for cluster {named} and this is cluster {this}; check the addresses of the coordinator"
        );
        Failure::new(ErrorKind::WrongCluster, message)
    }

    /// The state as it is does not allow it; the message says what stands in the way.
    pub fn refused(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Refused, message)
    }

    /// This node cannot serve: it starts, it stops, or its disk failed.
    pub fn unavailable(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Unavailable, message)
    }

    /// This node was removed from the cluster, or (not `certain`) somebody has begun to remove it; the message says where to ask.
    pub fn no_member(message: impl fmt::Display, certain: bool) -> Failure {
        Failure::new(ErrorKind::Unavailable, message).with(Detail::NoMember { certain })
    }

    /// A client's own: no answer arrived.
    pub fn transport(message: impl fmt::Display) -> Failure {
        Failure::new(ErrorKind::Transport, message)
    }

    /// The failure in a status that a coordinator wrote. `None` when the status has no detail of ours, or one of a kind
    /// that this code does not know.
    pub fn from_status(status: &Status) -> Option<Failure> {
        if status.details().is_empty() {
            return None;
        }
        let wire = v1::ErrorDetail::decode(status.details()).ok()?;
        let kind = ErrorKind::from_wire(v1::ErrorKind::try_from(wire.kind).ok()?)?;
        let mut failure = Failure::new(kind, status.message());
        failure.detail = detail_of(kind, wire).map(Box::new);
        Some(failure)
    }

    /// What a client makes of any failed call. A status that no coordinator wrote comes from the transport or from
    /// something in between; unless its code says otherwise the call may have taken effect.
    pub fn decode(status: &Status) -> Failure {
        Failure::from_status(status).unwrap_or_else(|| {
            let message = if status.message().is_empty() {
                format!("the call failed with {:?} and without a coordinator's answer", status.code())
            } else {
                status.message().to_owned()
            };
            Failure::new(ErrorKind::of_foreign(status.code()), message)
        })
    }

    /// Why.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// For people: what happened and what to do. Escaped.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// See [`ErrorKind::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Who leads, when a node that does not lead knew it.
    pub fn leader(&self) -> Option<&NodeAddress> {
        match self.detail.as_deref() {
            Some(Detail::Leader(leader)) => Some(leader),
            _ => None,
        }
    }

    /// Whether the node that answered is no member of the cluster any more, and whether it is certain of that.
    pub fn is_no_member(&self) -> Option<bool> {
        match self.detail.as_deref() {
            Some(Detail::NoMember { certain }) => Some(*certain),
            _ => None,
        }
    }

    /// The same with another message.
    #[must_use]
    pub fn saying(self, message: impl fmt::Display) -> Failure {
        Failure { message: shown(&message.to_string()), ..self }
    }

    /// How the session ended.
    pub fn session_end(&self) -> Option<SessionEnd> {
        match self.detail.as_deref() {
            Some(Detail::Ended(how)) => Some(*how),
            _ => None,
        }
    }

    /// Of two processes with one worker id: the address of the one that holds it, and of the one that asked for it.
    pub fn identities(&self) -> Option<(&str, &str)> {
        match self.detail.as_deref() {
            Some(Detail::Identity { holder, claimant }) => Some((holder, claimant)),
            _ => None,
        }
    }

    /// The partition's current epoch, when the one named was stale.
    pub fn current_epoch(&self) -> Option<Epoch> {
        match self.detail.as_deref() {
            Some(Detail::Epoch { current, .. }) => *current,
            _ => None,
        }
    }

    /// The partition's current owner, when the epoch named was stale.
    pub fn current_owner(&self) -> Option<&Owner> {
        match self.detail.as_deref() {
            Some(Detail::Epoch { owner, .. }) => owner.as_ref(),
            _ => None,
        }
    }
}

/// A detail that cannot be read is left out rather than making the whole failure unreadable: the kind is what counts.
fn detail_of(kind: ErrorKind, wire: v1::ErrorDetail) -> Option<Detail> {
    match kind {
        ErrorKind::NotLeader => NodeAddress::try_from(wire.leader?).ok().map(Detail::Leader),
        ErrorKind::SessionEnded => Some(Detail::Ended(wire.ended().into())),
        ErrorKind::DuplicateIdentity => Some(Detail::Identity {
            holder: shown_within(&wire.holder_address, MAX_ADDRESS_BYTES),
            claimant: shown_within(&wire.claimant_address, MAX_ADDRESS_BYTES),
        }),
        ErrorKind::StaleEpoch => Some(Detail::Epoch {
            current: Epoch::new(wire.epoch).ok(),
            owner: wire.owner.and_then(|owner| owner.try_into().ok()),
        }),
        ErrorKind::Unavailable => match wire.no_member() {
            v1::NoMember::Certain => Some(Detail::NoMember { certain: true }),
            v1::NoMember::Likely => Some(Detail::NoMember { certain: false }),
            v1::NoMember::Unspecified => None,
        },
        _ => None,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<InvalidField> for Failure {
    fn from(invalid: InvalidField) -> Failure {
        Failure::invalid(invalid)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        let mut wire = v1::ErrorDetail { kind: failure.kind.to_wire().into(), ..Default::default() };
        match failure.detail.map(|detail| *detail) {
            None => {}
            Some(Detail::Leader(leader)) => wire.leader = Some(leader.into()),
            Some(Detail::Ended(how)) => wire.set_ended(how.into()),
            Some(Detail::Identity { holder, claimant }) => {
                wire.holder_address = holder;
                wire.claimant_address = claimant;
            }
            Some(Detail::Epoch { current, owner }) => {
                wire.epoch = current.map_or(0, Epoch::get);
                wire.owner = owner.map(Into::into);
            }
            Some(Detail::NoMember { certain: true }) => wire.set_no_member(v1::NoMember::Certain),
            Some(Detail::NoMember { certain: false }) => wire.set_no_member(v1::NoMember::Likely),
        }
        Status::with_details(failure.kind.code(), failure.message, wire.encode_to_vec().into())
    }
}
