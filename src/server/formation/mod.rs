//! How nodes become one cluster, and how a node is added to it later.
//!
//! A cluster forms when every node of its list has answered, was given the same list, and belongs to no cluster yet.
//! The steps, each durable before the next and each repeatable after a crash between any two:
//!
//! ```text
//! all       Hello to each other, until each has answered with the same list and no cluster
//! founder   (the lowest id) names the cluster and writes down that it belongs to it, as its founder
//! founder   Adopt to each other node, which writes it down before it answers
//! founder   begins the log with all of them as its members; an election follows
//! leader    the first entry: the cluster's name, its lineage, and the ids that are used up
//! ```
//!
//! Raft starts on a node only when the node belongs to a cluster, so no vote is ever given for a cluster that is not
//! named. Only the founder ever begins the log, and only on the data it named the cluster with.
//!
//! It never decides who is a member later on; that is in the log. And it lets nobody come back with other data: a node
//! that was wiped has forgotten its votes, and its peers know the life of its data that they formed the cluster with.
//!
//! | module | what it is |
//! |---|---|
//! | `settle` | asking until this node belongs to a cluster |
//! | `founding` | what the founder does when it has named the cluster |
//! | `naming` | the first entry of the log |
//! | `adding` | what a leader does to add a node |
//! | `removal` | what a node knows of its own removal |
//! | `service` | what this node answers its peers |
//! | `peers` | the calls to them |
//! | `progress` | what the node waits for, in words |
//! | `wire` | the only conversion of formation.proto |

mod adding;
mod founding;
pub(crate) mod fuzzing;
mod naming;
mod peers;
mod progress;
mod removal;
mod service;
mod settle;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use adding::{add, members_failure, note_removal, removal_is_noted};
pub(crate) use founding::found;
pub(crate) use naming::name_cluster;
pub(crate) use progress::Progress;
pub(crate) use removal::Removal;
pub(crate) use service::FormationService;

use crate::files::{self, Files};
use crate::identity::{Belonging, Identity, IdentityError, IdentityStore};
use crate::settings::{Founders, Membership, Settings};
use crate::surroundings::Surroundings;
use peers::Peers;
use ringfence_core::ids::{ClusterId, NodeId};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Why a node does not come to belong to a cluster. None of these goes away by itself.
#[derive(Debug, thiserror::Error)]
pub enum FormationError {
    /// The node is a member of the cluster and its data is gone.
    #[error(
        "{node} belongs to a cluster and its data directory is new: {told_by} says: {why}. A node that lost its data has \
         forgotten the votes it gave and does not come back under its id: remove it (ringfence cluster remove-node {}), and add a \
         new node under a new id", .node.get()
    )]
    Wiped {
        /// This node.
        node: NodeId,
        /// Who said so.
        told_by: String,
        /// What it said.
        why: String,
    },
    /// The cluster has formed without this node.
    #[error(
        "{told_by} says: {why}. Start this node with join instead of cluster, and add it: ringfence cluster add-node {}=HOST:PORT",
        .node.get()
    )]
    NotAMember {
        /// This node.
        node: NodeId,
        /// Who said so.
        told_by: String,
        /// What it said.
        why: String,
    },
    /// Its identity could not be written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The formation of one node. A clone is the same.
#[derive(Clone)]
pub(crate) struct Formation {
    inner: Arc<Inner>,
}

struct Inner {
    node: NodeId,
    address: String,
    membership: Membership,
    files: Arc<dyn Files>,
    identity: Mutex<IdentityStore>,
    belongs: watch::Sender<Option<Belonging>>,
    /// Raft has started, and answers.
    open: watch::Sender<bool>,
    peers: Peers,
    progress: Progress,
}

impl Formation {
    /// The formation of the node with this identity, reached at `address`.
    pub(crate) fn new(
        settings: &Settings,
        address: String,
        identity: IdentityStore,
        surroundings: &Surroundings,
    ) -> Formation {
        let belongs = watch::Sender::new(identity.identity().belongs.clone());
        let inner = Inner {
            node: settings.node,
            address,
            membership: settings.membership.clone(),
            identity: Mutex::new(identity),
            belongs,
            open: watch::Sender::new(false),
            peers: Peers::new(settings.node, settings.secret.clone(), Arc::clone(&surroundings.dialer)),
            files: Arc::clone(&surroundings.files),
            progress: Progress::default(),
        };
        Formation { inner: Arc::new(inner) }
    }

    /// What the node waits for.
    pub(crate) fn progress(&self) -> &Progress {
        &self.inner.progress
    }

    /// Who the node is.
    pub(crate) fn identity(&self) -> Identity {
        self.inner.identity.lock().unwrap_or_else(PoisonError::into_inner).identity().clone()
    }

    /// The nodes that form a cluster with this one, as its settings list them.
    pub(crate) fn founders(&self) -> Option<&Founders> {
        match &self.inner.membership {
            Membership::Found(founders) => Some(founders),
            Membership::Alone | Membership::Join => None,
        }
    }

    /// Raft has started on this node, and its service answers.
    pub(crate) fn open(&self) {
        self.inner.open.send_replace(true);
    }

    /// Writes down that the node belongs to a cluster, and tells whoever waits for it.
    async fn belong(&self, to: Belonging) -> Result<(), IdentityError> {
        self.change_identity(move |store| store.belong(to)).await?;
        self.inner.belongs.send_replace(self.identity().belongs);
        Ok(())
    }

    /// Writes down that the node's log was made.
    pub(crate) async fn log_made(&self) -> Result<(), IdentityError> {
        self.change_identity(IdentityStore::log_made).await
    }

    /// Writes down that this data directory is not to be used again.
    pub(crate) async fn refuse_from_now_on(&self, why: String) -> Result<(), IdentityError> {
        self.change_identity(move |store| store.refuse_from_now_on(&why)).await
    }

    /// Gives the data directory up. The node has stopped.
    pub(crate) async fn close(&self) {
        // The only error is a task that was cancelled with its runtime, and then nobody is left to tell.
        let _ = self
            .change_identity(|store| {
                store.close();
                Ok(())
            })
            .await;
    }

    /// A flush may take seconds, and the executor has others to serve.
    async fn change_identity(
        &self,
        change: impl FnOnce(&mut IdentityStore) -> Result<(), IdentityError> + Send + 'static,
    ) -> Result<(), IdentityError> {
        let inner = Arc::clone(&self.inner);
        let files = Arc::clone(&inner.files);
        let changed = files::away(&files, move |_| {
            change(&mut inner.identity.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match changed.await {
            Ok(result) => result,
            Err(e) => Err(IdentityError::Io {
                path: crate::identity::FILE.into(),
                source: std::io::Error::other(e),
            }),
        }
    }
}

/// A new cluster's name: 16 hexadecimal digits.
fn new_cluster_id() -> std::io::Result<ClusterId> {
    let number = getrandom::u64().map_err(std::io::Error::other)?;
    ClusterId::new(&format!("{number:016x}")).map_err(std::io::Error::other)
}
