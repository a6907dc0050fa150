//! What can be wrong with the settings of a node.

use super::founders::FoundersError;
use std::path::PathBuf;

/// Settings that cannot work. The text names the setting, or the two that disagree, and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A setting that has no default was not given.
    #[error("{name} is missing: {hint}")]
    Missing {
        /// The setting.
        name: &'static str,
        /// What to give.
        hint: &'static str,
    },
    /// A setting has a value that it cannot have.
    #[error("{name} is {value}: {why}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was given, escaped.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// The list of nodes cannot be one.
    #[error("cluster: {0}")]
    Cluster(#[from] FoundersError),
    /// The node is not in its own list.
    #[error(
        "node is {node} and cluster lists {listed}: add this node to the list, or set join to be added to them"
    )]
    NotListed {
        /// This node.
        node: u64,
        /// The nodes listed.
        listed: String,
    },
    /// The node has two addresses.
    #[error(
        "advertise is {advertise} and cluster lists {listed} for this node: give the same address in both"
    )]
    TwoAddresses {
        /// The address to advertise.
        advertise: String,
        /// The one in the list.
        listed: String,
    },
    /// Nobody can reach the address it would tell.
    #[error(
        "listen is {0}, which is no address that others can dial: set advertise to the one by which they reach this node"
    )]
    NoAdvertise(std::net::SocketAddr),
    /// A node cannot both form a cluster and wait for one.
    #[error(
        "join and cluster are both set: set cluster on the nodes that form a cluster, join on one that is added to it"
    )]
    JoinAndCluster,
    /// Everybody on the network could call it.
    #[error(
        "listen is {0}, which others can reach, and traffic is neither encrypted nor authenticated: listen on 127.0.0.1, or \
         set insecure when the network keeps strangers out"
    )]
    Insecure(std::net::SocketAddr),
    /// Everybody on the network could pass for a node.
    #[error(
        "listen is {0}, which others can reach, and cluster-secret-file is not set: give all nodes a file with the same \
         secret, for example from: openssl rand -hex 32"
    )]
    NoSecret(std::net::SocketAddr),
    /// The secret's file cannot be used. What is in it is never shown.
    #[error("cluster-secret-file is {}: {why}", .path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration cannot be used.
    #[error("config is {}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line.
        why: String,
    },
    /// Timings or snapshot settings disagree.
    #[error("{0}")]
    Raft(String),
    /// The form of log lines is unknown.
    #[error("log-format is {0}: it is text or json")]
    LogFormat(String),
}

/// A value for a message: escaped and cut, so that it cannot write to a terminal.
pub(super) fn shown(value: &str) -> String {
    let cut: String = value.chars().take(80).collect();
    let dots = if cut.len() < value.len() { "..." } else { "" };
    format!("\"{}{dots}\"", cut.escape_debug())
}
