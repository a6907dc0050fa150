//! Ids that are numbers.

use std::fmt;
use std::num::NonZeroU64;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($repr:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// The id with this number.
            pub const fn new(number: $repr) -> Self {
                Self(number)
            }

            /// The number, for a wire field or a column.
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($letter, "{}"), self.0))
            }
        }
    };
}

number!(
    /// One partition of a keyspace; they are numbered from 0.
    PartitionId(u32),
    "p"
);
number!(
    /// One creation of a keyspace: the number that log entries use for its name. Minted by the state, never reused, so
    /// a late command about a keyspace that was deleted never meets the one created again under its name.
    KeyspaceId(u32),
    "k"
);
number!(
    /// One planned move of a partition.
    MoveId(u64),
    "m"
);
number!(
    /// The position of an entry in the replicated log.
    LogIndex(u64),
    "i"
);
number!(
    /// Raft's term: the number of one leadership. It is not an epoch.
    Term(u64),
    "t"
);
number!(
    /// The log index of the last change to the map of partitions. A watch resumes from one.
    Revision(u64),
    "r"
);

/// One life of a worker. Minted by the coordinator, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(NonZeroU64);

impl SessionId {
    /// The session with this number; `None` for zero.
    pub const fn new(number: u64) -> Option<SessionId> {
        match NonZeroU64::new(number) {
            Some(n) => Some(SessionId(n)),
            None => None,
        }
    }

    /// The number, for a wire field.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("s{}", self.0))
    }
}

/// One node of the coordinator. An id is used once: a wiped node does not come back under its old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroU64);

impl NodeId {
    /// The node with this number.
    ///
    /// # Errors
    /// [`NodeIdError`] when it is zero or above 2^53 - 1.
    pub const fn new(number: u64) -> Result<NodeId, NodeIdError> {
        match NonZeroU64::new(number) {
            Some(n) if number < 1 << 53 => Ok(NodeId(n)),
            _ => Err(NodeIdError { number }),
        }
    }

    /// The number, for a wire field.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("n{}", self.0))
    }
}

/// A number that cannot be a node's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not a node id: a node id is between 1 and 9007199254740991 (2^53 - 1)")]
pub struct NodeIdError {
    /// The number refused.
    pub number: u64,
}

/// One partition of one creation of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition in it.
    pub partition: PartitionId,
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.partition)
    }
}
