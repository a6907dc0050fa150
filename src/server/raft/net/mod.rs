//! Messages between the nodes of one cluster, over gRPC.

mod dial;
mod secret;
mod service;

pub use dial::{DialError, Dialer, TcpDialer};
pub use secret::ClusterSecret;
pub use service::RaftService;
