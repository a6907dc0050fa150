//! Names, ids and epochs.
//!
//! Each is a type of its own with a private field: there is no `From<u64>`, no `Default` and no sentinel value, so a
//! number of one kind never passes for another and absence is always an `Option`. `Display` shows the letter of the
//! kind (`p7`, `e34`, `s12`).

mod epoch;
mod name;
mod number;
mod scope;

pub use epoch::{Epoch, EpochError, EpochFloor};
pub use name::{ClusterId, KeyspaceName, LockName, MAX_NAME_BYTES, NameError, StoreName, WorkerId};
pub use number::{
    KeyspaceId, LogIndex, MoveId, NodeId, NodeIdError, PartitionId, PartitionKey, Revision, SessionId, Term,
};
pub use scope::{Scope, ScopeError};
