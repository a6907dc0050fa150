//! The library's types, filled in with ours.

use bytes::Bytes;
use openraft::vote::leader_id_std;
use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Real Raft: one leader a term, so that a term names a leadership (the library's other kind does not promise it).
pub(super) type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub(super) type Committed = leader_id_std::CommittedLeaderId<u64>;
pub(super) type Vote = openraft::impls::Vote<LeaderId>;
pub(super) type LogId = openraft::LogId<Committed>;
pub(super) type Payload = openraft::EntryPayload<Data, u64, Peer>;
pub(super) type Entry = openraft::Entry<Committed, Payload>;
pub(super) type Membership = openraft::Membership<u64, Peer>;
pub(super) type StoredMembership = openraft::StoredMembership<Committed, u64, Peer>;

/// Our tokio, with the random numbers of elections drawn from the seed of the node's scope: the operating system's in
/// production, a fixed one in a simulation.
pub(super) type Runtime = openraft_rt::deterministic_rng::DeterministicRng<super::runtime::Patient>;

openraft::declare_raft_types!(
    /// Ties them together.
    pub(super) Types:
        D = Data,
        R = Answer,
        NodeId = u64,
        Node = Peer,
        Term = u64,
        LeaderId = LeaderId,
        Vote = Vote,
        Payload = Payload,
        Entry = Entry,
        AsyncRuntime = Runtime,
);

/// The bytes of one proposal. They are shown by their length only: they may hold a client's secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Data(pub(super) Bytes);

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What applying an entry answered. It is erased here and given its type back by the handle, which was made together with
/// the machine; the alternative is the machine's type in every signature of log and network.
pub(super) struct Answer(
    // In a mutex only because the library wants `Sync`.
    Mutex<Box<dyn Any + Send>>,
);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer(..)")
    }
}

impl Answer {
    pub(super) fn new<A: Send + 'static>(answer: A) -> Answer {
        Answer(Mutex::new(Box::new(answer)))
    }

    /// The answer, if it is of this type.
    pub(super) fn take<A: 'static>(self) -> Option<A> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).downcast().ok().map(|answer| *answer)
    }
}

/// A member as the library keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    /// `host:port`, never resolved before it is dialled.
    pub(super) address: String,
    /// The number of its store, once learnt.
    pub(super) store: Option<u64>,
}

/// Position of a log id, in our types.
pub(super) fn position(id: &LogId) -> super::Position {
    super::Position {
        term: ringfence_core::ids::Term::new(id.committed_leader_id().term),
        index: ringfence_core::ids::LogIndex::new(id.index()),
    }
}

/// The log id at a position.
pub(super) fn log_id(at: super::Position) -> LogId {
    LogId::new(Committed::new(at.term.get()), at.index.get())
}
