//! What can go wrong, in terms of what the caller does next.

use ringfence_core::ids::{NodeId, Term};
use std::io;
use std::path::{Path, PathBuf};

/// Where to go instead: the leader as far as this node knows it.
pub type Leader = (NodeId, String);

fn shown(leader: &Option<Leader>) -> String {
    match leader {
        Some((node, address)) => format!("ask the leader, {node} at {address}"),
        None => "no leader is known yet: try again, here or at another node".to_string(),
    }
}

/// Why a node did not start. None of these goes away by itself.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Two settings disagree.
    #[error("the Raft settings do not fit together: {0}")]
    Config(String),
    /// Another process has the directory.
    #[error("{} is in use by another process: stop that one, or give this one a data directory of its own", .0.display())]
    Locked(PathBuf),
    /// The directory belongs to another node or cluster.
    #[error("{} holds the data of {found}, not of {wanted}: start it with the ids it was made for", .path.display())]
    NotOurs {
        /// The file that says so.
        path: PathBuf,
        /// Whose data it holds.
        found: String,
        /// What this node was told to be.
        wanted: String,
    },
    /// What the disk holds is damaged. Serving without it could lose what was acknowledged.
    #[error("{} is damaged: {why}; do not delete it to get on: restore the node's directory from a copy, or remove the \
             node from the cluster and add a new one under a new id", .path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anything else, such as an entry that this version does not know.
    #[error("Raft did not start: {0}")]
    Raft(String),
}

impl StartError {
    /// What an error of the disk means for a start. [`Damaged`] inside it names the file itself.
    pub(super) fn of_file(path: &Path, error: io::Error) -> StartError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Damaged>()) {
            Some(damaged) => StartError::Corrupt { path: damaged.path.clone(), why: damaged.why.clone() },
            None if error.kind() == io::ErrorKind::InvalidData => {
                StartError::Corrupt { path: path.to_path_buf(), why: error.to_string() }
            }
            None => StartError::Io { path: path.to_path_buf(), source: error },
        }
    }
}

/// A file that does not hold what was written to it.
#[derive(Debug, thiserror::Error)]
#[error("{} is damaged: {why}", .path.display())]
pub(super) struct Damaged {
    path: PathBuf,
    why: String,
}

impl Damaged {
    /// As an error of the system, so that it passes through interfaces that know no other.
    pub(super) fn error(path: &Path, why: impl Into<String>) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Damaged { path: path.to_path_buf(), why: why.into() })
    }
}

/// This node cannot answer as the leader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLeader {
    /// It is not the leader, or could not reach a quorum to confirm that it is.
    #[error("this node cannot confirm that it leads: {}", shown(.leader))]
    Elsewhere {
        /// The leader it knows of; `None` also when it is itself cut off.
        leader: Option<Leader>,
    },
    /// The node has stopped, or its disk has failed; the text says why.
    #[error("this node has stopped: {0}")]
    Stopped(String),
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Certainly not committed: this node does not lead, or not in the term asked for.
    #[error("this node does not lead{}: {}", .term.map(|t| format!(" in {t}")).unwrap_or_default(), shown(.leader))]
    NotLeader {
        /// The leader it knows of.
        leader: Option<Leader>,
        /// The term the proposal was bound to, if it was.
        term: Option<Term>,
    },
    /// Certainly not committed: too large for one entry.
    #[error("an entry of {bytes} bytes is above the limit of {limit}: propose it in parts")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It may have been committed, or may still be. Only a retry that takes effect once is safe.
    #[error("the outcome is not known: the entry may or may not be committed ({0})")]
    Unknown(String),
    /// Certainly not committed: the node has stopped; the text says why.
    #[error("this node has stopped: {0}")]
    Stopped(String),
}

/// Why a change of members, or a transfer, did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// Ask the leader.
    #[error("this node does not lead: {}", shown(.0))]
    NotLeader(Option<Leader>),
    /// One change at a time.
    #[error("another change of members is under way: wait for it, or look at it in the status")]
    Busy,
    /// Members changed between looking and changing.
    #[error("the members changed meanwhile: look again, then decide again")]
    Changed,
    /// The request makes no sense with the members as they are.
    #[error("{0}")]
    Invalid(String),
    /// The new member did not catch up in time, and was taken out again.
    #[error(
        "{node} at {address} did not catch up within {waited_ms} ms and was removed again: check that it runs, is \
             empty, and can be reached at that address from every node"
    )]
    NotCaughtUp {
        /// The node that was to be added.
        node: NodeId,
        /// Its address.
        address: String,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// Leadership did not move in time; the old leader goes on.
    #[error("leadership did not move to {to} within {waited_ms} ms: look at that node's status")]
    NotTransferred {
        /// The node that was to lead.
        to: NodeId,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// It may have happened, or may still happen: look at the members.
    #[error("the outcome is not known ({0}): look at the members")]
    Unknown(String),
    /// The node has stopped.
    #[error("this node has stopped: {0}")]
    Stopped(String),
}
