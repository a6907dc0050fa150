//! Who speaks to whom, and whether it is meant.

use super::ClusterSecret;
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, NodeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

/// This node, and what it must prove and see proven.
#[derive(Clone, Debug)]
pub(in crate::raft) struct Identity {
    pub(in crate::raft) cluster: ClusterId,
    pub(in crate::raft) node: NodeId,
    pub(in crate::raft) store: u64,
    pub(in crate::raft) secret: Option<ClusterSecret>,
}

impl Identity {
    /// The envelope of a request to this node with this store.
    pub(super) fn envelope(&self, to: u64, to_store: Option<u64>) -> v1::RaftEnvelope {
        v1::RaftEnvelope {
            cluster: self.cluster.to_string(),
            from: self.node.get(),
            to,
            to_store: to_store.unwrap_or(0),
        }
    }

    /// A request that proves the secret.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        ClusterSecret::show(self.secret.as_ref(), request.metadata_mut());
        request
    }

    /// Refuses a sender that does not know the secret.
    pub(super) fn admit(&self, metadata: &MetadataMap) -> Result<(), Box<Status>> {
        ClusterSecret::demand(self.secret.as_ref(), metadata)
    }

    /// Refuses a request that another node, or this node before it was wiped, was meant to get.
    pub(super) fn meant(&self, envelope: Option<&v1::RaftEnvelope>) -> Result<(), Box<Status>> {
        let Some(e) = envelope else {
            return Err(Box::new(Status::invalid_argument("field envelope is missing")));
        };
        let refuse = |why: String| Err(Box::new(Status::failed_precondition(why)));
        if e.cluster != self.cluster.as_str() {
            let theirs: String = e.cluster.chars().take(63).collect();
            return refuse(format!("this is cluster {}, not {}", self.cluster, theirs.escape_default()));
        }
        if e.to != self.node.get() {
            return refuse(format!("this is node {}, not {}: check the addresses", self.node.get(), e.to));
        }
        if e.from == self.node.get() {
            return refuse(format!("another process runs as node {}: stop it", e.from));
        }
        if e.to_store != 0 && e.to_store != self.store {
            return refuse(format!(
                "node {} lost its store and with it the votes it gave: remove it from the cluster, and add a new node \
                 under a new id",
                e.to
            ));
        }
        Ok(())
    }
}

/// The stores of peers: as they answered, and as the membership has them. A leader writes the first into the second, and
/// from then on a wiped node is told from the one that joined.
#[derive(Clone, Debug, Default)]
pub(in crate::raft) struct Stores(Arc<Mutex<BTreeMap<u64, PeerStore>>>);

#[derive(Clone, Copy, Debug, Default)]
struct PeerStore {
    answered: Option<u64>,
    joined: Option<u64>,
    /// A term that this node led, and the last entry that the peer acknowledged in it.
    acknowledged: Option<(u64, u64)>,
}

impl Stores {
    fn of(&self, node: u64) -> PeerStore {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied().unwrap_or_default()
    }

    /// A peer answered with this store. False when it is another one than it had before: its answer must not count.
    pub(super) fn answered(&self, node: u64, store: u64) -> bool {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = peers.entry(node).or_default();
        let had = peer.joined.or(peer.answered);
        if had.is_none() {
            peer.answered = (store != 0).then_some(store);
        }
        had.is_none_or(|had| had == store)
    }

    /// A peer acknowledged its log up to here, to this node as the leader of a term.
    pub(super) fn acknowledges(&self, node: u64, term: u64, upto: u64) {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let had = &mut peers.entry(node).or_default().acknowledged;
        *had = Some((term, had.filter(|had| had.0 == term).map_or(upto, |had| had.1.max(upto))));
    }

    /// How much a peer has acknowledged in a term. Within one term it cannot lose it: only a later leader takes entries
    /// back, and whoever knows of that one refuses the earlier.
    pub(super) fn acknowledged(&self, node: u64, term: u64) -> Option<u64> {
        self.of(node).acknowledged.filter(|had| had.0 == term).map(|had| had.1)
    }

    /// Forgets those that are no members any more.
    pub(in crate::raft) fn retain(&self, member: impl Fn(u64) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|node, _| member(*node));
    }

    /// The membership has this store for a node.
    pub(in crate::raft) fn joined(&self, node: u64, store: Option<u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(node).or_default().joined = store;
    }

    /// The store a peer answered with last.
    pub(in crate::raft) fn learnt(&self, node: u64) -> Option<u64> {
        self.of(node).answered
    }

    /// The store that a message to this node must mean.
    pub(in crate::raft) fn meant(&self, node: u64) -> Option<u64> {
        self.of(node).joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn identity(node: u64, store: u64, secret: Option<&[u8]>) -> Identity {
        Identity {
            cluster: ClusterId::new("c1").expect("a name"),
            node: NodeId::new(node).expect("an id"),
            store,
            secret: secret.and_then(ClusterSecret::new),
        }
    }

    fn refused(receiver: &Identity, envelope: &v1::RaftEnvelope) -> Code {
        receiver.meant(Some(envelope)).expect_err("refused").code()
    }

    #[test]
    fn f037_f057_only_what_is_meant_for_this_node_and_its_store_is_taken() {
        let (one, two) = (identity(1, 11, None), identity(2, 22, None));
        assert!(two.meant(Some(&one.envelope(2, None))).is_ok());
        assert!(two.meant(Some(&one.envelope(2, Some(22)))).is_ok());
        assert_eq!(refused(&two, &one.envelope(3, None)), Code::FailedPrecondition);
        assert_eq!(
            refused(&two, &one.envelope(2, Some(21))),
            Code::FailedPrecondition,
            "f012: a wiped store"
        );
        assert_eq!(
            refused(&two, &identity(2, 5, None).envelope(2, None)),
            Code::FailedPrecondition,
            "itself"
        );
        let foreign = v1::RaftEnvelope { cluster: "c2\n".to_string(), ..one.envelope(2, None) };
        assert_eq!(refused(&two, &foreign), Code::FailedPrecondition);
        assert_eq!(two.meant(None).expect_err("missing").code(), Code::InvalidArgument);
    }

    #[test]
    fn f012_an_answer_from_another_store_does_not_count() {
        let stores = Stores::default();
        assert!(stores.answered(2, 22) && stores.answered(2, 22));
        assert!(!stores.answered(2, 23), "before the membership knows it");
        stores.joined(2, Some(22));
        assert_eq!((stores.meant(2), stores.learnt(2)), (Some(22), Some(22)));
        assert!(stores.answered(2, 22) && !stores.answered(2, 23));
        stores.retain(|node| node != 2);
        assert!(stores.answered(2, 23), "removed, and added again");
    }

    #[test]
    fn f012_what_a_peer_acknowledged_is_known_for_the_term_it_was_in() {
        let stores = Stores::default();
        assert_eq!(stores.acknowledged(2, 3), None);
        stores.acknowledges(2, 3, 70);
        stores.acknowledges(2, 3, 60);
        assert_eq!(stores.acknowledged(2, 3), Some(70), "an answer that comes late takes nothing back");
        stores.acknowledges(2, 5, 40);
        assert_eq!((stores.acknowledged(2, 3), stores.acknowledged(2, 5)), (None, Some(40)));
    }

    #[test]
    fn f037_a_sender_without_the_secret_is_refused() {
        let ours = identity(1, 1, Some(b"0123456789abcdef"));
        let other = identity(2, 1, Some(b"0123456789abcdeX"));
        assert!(ours.admit(ours.request(()).metadata()).is_ok());
        for stranger in [other, identity(2, 1, None)] {
            let refused = ours.admit(stranger.request(()).metadata()).expect_err("refused");
            assert_eq!(refused.code(), Code::Unauthenticated);
        }
        assert!(!format!("{:?} {ours:?}", ours.request(())).contains("0123456789"));
    }
}
