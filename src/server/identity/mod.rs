//! Who a node is, across its restarts: `node.json` in its data directory.
//!
//! It is written before anybody is told, and replaced as a whole: a temporary file, a flush, a rename, a flush of the
//! directory. It holds the node's id, the number of this life of its data (a directory that was emptied gets another
//! one, so that the node is not taken for the one it was), and the cluster it belongs to from the moment it belongs to
//! one. A directory of another node is refused, and so is one of which only a part is there.
//!
//! It is not the membership: that is in the log. What it says of the members is who formed the cluster.

mod file;

#[cfg(test)]
mod tests;

use crate::files::{self, Files, Held};
use crate::text::plain;
use ringfence_core::ids::{ClusterId, NodeId};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file, in a node's data directory.
pub(crate) const FILE: &str = "node.json";
/// The log beside it, by the name that Raft gives it.
const LOG: &str = "log.redb";
/// Beside them, in a directory that must not be used again: why.
const REFUSED: &str = "REFUSED";
/// One process for each data directory.
const LOCK: &str = "node.lock";

/// The number of one life of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// A number that no other data has.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn draw() -> io::Result<Incarnation> {
        // Zero means "not known" on the wire.
        getrandom::u64().map(|number| Incarnation(number.max(1))).map_err(io::Error::other)
    }

    /// The number, from the wire or a file.
    pub(crate) const fn new(number: u64) -> Incarnation {
        Incarnation(number)
    }

    /// The number, for the wire or a file.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

/// One of those that formed the cluster, or were there when this node was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `HOST:PORT`.
    pub address: String,
    /// The life of its data then; `None` when it was not known.
    pub incarnation: Option<Incarnation>,
}

/// The cluster a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belonging {
    /// The cluster.
    pub cluster: ClusterId,
    /// Who belonged to it when this node came to.
    pub members: BTreeMap<NodeId, Member>,
    /// This node named the cluster, and is the one that begins its log. No other ever does.
    pub founder: bool,
}

impl Belonging {
    /// The members' addresses.
    pub(crate) fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.members.iter().map(|(node, member)| (*node, member.address.clone())).collect()
    }
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub node: NodeId,
    /// The life of its data.
    pub incarnation: Incarnation,
    /// The cluster it belongs to; `None` until it does. It never changes after that.
    pub belongs: Option<Belonging>,
    /// Its log was made. From then on a directory without a log has lost the votes the node gave.
    pub has_log: bool,
}

/// Why a node has no identity to start with. None of these goes away by itself.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Another process has the directory.
    #[error("{} is in use by another process: stop that one, or give this node a data directory of its own", .0.display())]
    Locked(PathBuf),
    /// The directory is another node's.
    #[error(
        "{} holds the data of {found} (cluster {}), and this is {wanted}: give each node its own data directory, or set \
         node to {}", .path.display(), .cluster.as_ref().map_or("none yet", |c| c.as_str()), .found.get()
    )]
    OtherNode {
        /// The file that says so.
        path: PathBuf,
        /// Whose data it is.
        found: NodeId,
        /// The cluster of that data.
        cluster: Option<ClusterId>,
        /// Who wanted to use it.
        wanted: NodeId,
    },
    /// The node belongs to another cluster than the one it is asked to belong to.
    #[error(
        "{node} belongs to cluster {has} and cannot belong to cluster {asked}: use an empty data directory for a node of \
         another cluster"
    )]
    OtherCluster {
        /// The node.
        node: NodeId,
        /// Its cluster.
        has: ClusterId,
        /// The other.
        asked: ClusterId,
    },
    /// There is a log and nobody to say whose.
    #[error(
        "{} has a log and no node.json: restore the directory as a whole, or empty it and start the node under a new id",
        .0.display()
    )]
    Orphaned(PathBuf),
    /// The log is gone and the rest is there.
    #[error(
        "{} has lost its log.redb, and with it the votes this node gave: restore the directory as a whole, or remove the \
         node from the cluster and add a new one under a new id", .0.display()
    )]
    LogLost(PathBuf),
    /// The node found out that its log lacks what it had acknowledged.
    #[error("{} says that this directory must not be used again: {why}", .path.display())]
    WentBack {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        why: String,
    },
    /// The file does not hold what was written to it.
    #[error(
        "{} is damaged ({why}): restore it from a copy, or remove the node from the cluster and add a new one under a \
         new id", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer version wrote it.
    #[error(
        "{} has format {found}, and this version knows formats up to {known}: run the version that wrote it, or a newer one",
        .path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The node has stopped.
    #[error("{0} has stopped")]
    Closed(NodeId),
    /// The directory could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl IdentityError {
    /// Whether something that was on the disk is not there any more.
    pub fn is_damage(&self) -> bool {
        match self {
            IdentityError::Orphaned(_)
            | IdentityError::LogLost(_)
            | IdentityError::WentBack { .. }
            | IdentityError::Damaged { .. } => true,
            IdentityError::Locked(_)
            | IdentityError::OtherNode { .. }
            | IdentityError::OtherCluster { .. }
            | IdentityError::Format { .. }
            | IdentityError::Closed(_)
            | IdentityError::Io { .. } => false,
        }
    }
}

/// Keeps a node's identity: in its data directory, or in memory for a node that forgets.
pub struct IdentityStore {
    identity: Identity,
    place: Place,
}

enum Place {
    /// Nowhere: the node forgets.
    Memory,
    Dir {
        files: Arc<dyn Files>,
        dir: PathBuf,
        /// Held until the node stops. The log has a lock of its own, which is taken when the log is opened, after the node
        /// has come to belong to a cluster: until then this one keeps two processes from becoming two nodes under one
        /// identity.
        _lock: Held,
    },
    /// The node has stopped; another process may have the directory.
    Closed,
}

impl IdentityStore {
    /// The identity of a node without a directory.
    ///
    /// # Errors
    /// [`IdentityError::Io`] when the system has no random numbers.
    pub fn in_memory(node: NodeId) -> Result<IdentityStore, IdentityError> {
        Ok(IdentityStore { identity: fresh(node, Path::new("memory"))?, place: Place::Memory })
    }

    /// Opens the directory for this process, and reads whose it is; an empty one becomes this node's.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(files: Arc<dyn Files>, dir: &Path, node: NodeId) -> Result<IdentityStore, IdentityError> {
        let failed = |path: &Path, source| IdentityError::Io { path: path.to_owned(), source };
        files.create_dir_all(dir).map_err(|e| failed(dir, e))?;
        let path = dir.join(LOCK);
        let held = files.lock(&path).map_err(|e| failed(&path, e))?;
        let lock = held.ok_or_else(|| IdentityError::Locked(dir.to_owned()))?;
        let refused = dir.join(REFUSED);
        if files.exists(&refused) {
            let why = files.read(&refused).map_err(|e| failed(&refused, e))?;
            let why = plain(String::from_utf8_lossy(&why).trim());
            return Err(IdentityError::WentBack { path: refused, why });
        }
        let log = files.exists(&dir.join(LOG));
        let place = Place::Dir { files: Arc::clone(&files), dir: dir.to_owned(), _lock: lock };
        if let Some(identity) = file::read(files.as_ref(), dir)? {
            if identity.node != node {
                return Err(IdentityError::OtherNode {
                    path: file::path(dir),
                    found: identity.node,
                    cluster: identity.belongs.map(|belongs| belongs.cluster),
                    wanted: node,
                });
            }
            if identity.has_log && !log {
                return Err(IdentityError::LogLost(dir.to_owned()));
            }
            return Ok(IdentityStore { identity, place });
        }
        if log {
            return Err(IdentityError::Orphaned(dir.to_owned()));
        }
        let identity = fresh(node, dir)?;
        file::write(files.as_ref(), dir, &identity)?;
        Ok(IdentityStore { identity, place })
    }

    /// Who the node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes the node belong to a cluster. It is durable when this returns. Said again it changes nothing.
    ///
    /// # Errors
    /// [`IdentityError::OtherCluster`] when it belongs to another, [`IdentityError::Io`] when it could not be written;
    /// it belongs to none then.
    pub fn belong(&mut self, to: Belonging) -> Result<(), IdentityError> {
        if let Some(has) = &self.identity.belongs {
            if has.cluster == to.cluster {
                return Ok(());
            }
            let (has, asked) = (has.cluster.clone(), to.cluster);
            return Err(IdentityError::OtherCluster { node: self.identity.node, has, asked });
        }
        self.become_durably(Identity { belongs: Some(to), ..self.identity.clone() })
    }

    /// Notes that the log was made. Said again it changes nothing.
    ///
    /// # Errors
    /// [`IdentityError::Io`] when it could not be written.
    pub fn log_made(&mut self) -> Result<(), IdentityError> {
        if self.identity.has_log {
            return Ok(());
        }
        self.become_durably(Identity { has_log: true, ..self.identity.clone() })
    }

    /// Writes down that this directory must not be used again, and why. It is durable when this returns.
    ///
    /// # Errors
    /// [`IdentityError::Io`] when it could not be written.
    pub fn refuse_from_now_on(&mut self, why: &str) -> Result<(), IdentityError> {
        match &self.place {
            Place::Memory => Ok(()),
            Place::Closed => Err(IdentityError::Closed(self.identity.node)),
            Place::Dir { files, dir, .. } => {
                let (path, tmp) = (dir.join(REFUSED), dir.join(format!("{REFUSED}.tmp")));
                files::replace(files.as_ref(), &path, &tmp, &[why.as_bytes(), b"\n"])
                    .map_err(|source| IdentityError::Io { path, source })
            }
        }
    }

    /// Gives the directory up. What the node is stays known here, and does not change any more.
    pub fn close(&mut self) {
        self.place = Place::Closed;
    }

    fn become_durably(&mut self, identity: Identity) -> Result<(), IdentityError> {
        match &self.place {
            Place::Memory => {}
            Place::Dir { files, dir, .. } => file::write(files.as_ref(), dir, &identity)?,
            Place::Closed => return Err(IdentityError::Closed(self.identity.node)),
        }
        self.identity = identity;
        Ok(())
    }
}

fn fresh(node: NodeId, path: &Path) -> Result<Identity, IdentityError> {
    let incarnation =
        Incarnation::draw().map_err(|source| IdentityError::Io { path: path.to_owned(), source })?;
    Ok(Identity { node, incarnation, belongs: None, has_log: false })
}
