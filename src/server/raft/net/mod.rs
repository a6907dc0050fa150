//! Messages between the nodes of one cluster, over gRPC.
//!
//! `client` speaks and `service` answers `proto/ringfence/v1/raft.proto`. Every request says which cluster, node and
//! store it means, and proves the cluster's secret if there is one; a request that is not meant for this node changes
//! nothing.

mod client;
mod dial;
mod envelope;
mod secret;
mod service;
mod snapshot;

pub(super) use client::{Peers, PeersConfig};
pub use dial::{DialError, Dialer, TcpDialer};
pub(super) use envelope::{Identity, Stores};
pub use secret::ClusterSecret;
pub use service::RaftService;
pub(super) use service::{Contact, ServiceParts};
pub(super) use snapshot::Assembly;
