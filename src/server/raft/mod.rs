//! Consensus: a replicated log of opaque entries, and the one place that knows how it is done.
//!
//! It turns [`Machine`], a deterministic machine in memory, into one that survives nodes: what [`RaftNode::propose`] has
//! answered is on the disks of a majority. It does not know what an entry means, decides nothing about leases or
//! partitions, and reads no wall clock.
//!
//! Rules:
//! - openraft is named here and nowhere else; what this module exports is in its own types, so that the library can be
//!   replaced, or upgraded, behind one wall.
//! - Nothing is answered before it is durable. The first failed write ends the node's writing for good: after a failed
//!   fsync nobody knows what is on the disk.
//! - A leader's word counts only after [`RaftNode::confirm`].
//! - Runtime, network, disk and clock come from outside (tokio's clock, a [`Dialer`], a [`Disk`], a seed), so that a
//!   simulator runs this very code.
//!
//! | module | what it is |
//! |---|---|
//! | `node` | the handle: start, propose, confirm, status |
//! | `members` | adding and removing nodes, handing over leadership |
//! | `applier` | drives the [`Machine`] |
//! | `log` | the log: memory in front, one writer thread behind |
//! | `snapshot` | snapshots as files of our own format |
//! | `dir` | the data directory and its lock |
//! | `net` | client and service of `proto/ringfence/v1/raft.proto` |
//! | `campaigns`, `runtime` | when a node stands for election again; how long its votes may take |
//! | `watcher`, `upkeep` | the status; compaction and the disk's health |
//! | `wire` | the only conversion between the library's types and bytes |

mod applier;
mod campaigns;
mod config;
mod dir;
mod disk;
mod error;
pub(crate) mod fuzzing;
mod health;
pub mod limits;
mod log;
mod machine;
mod members;
mod net;
mod node;
mod record;
mod runtime;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;
mod types;
mod upkeep;
mod watcher;
mod wire;

pub use config::{Compaction, RaftConfig, Timings};
pub use disk::Disk;
pub use error::{Leader, MembersError, NotLeader, ProposeError, StartError};
pub use log::{LogBackend, LogOp, MemoryLog, Stored};
pub use machine::{Machine, MachineError, Position};
pub use net::{ClusterSecret, DialError, Dialer, RaftService, TcpDialer};
pub use node::{Confirmed, RaftNode};
pub use snapshot::{MemorySnapshots, Snapshot, SnapshotStore};
pub use status::{Member, RaftStatus, Role};
