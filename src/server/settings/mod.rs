//! How one node is run: one struct, checked as a whole.
//!
//! A setting has one name in all places: `data-dir` is the flag `--data-dir`, the variable `RINGFENCE_DATA_DIR`, and the
//! key `data_dir` of the file. A flag wins over a variable, a variable over the file, the file over the default. What was
//! given is a [`Given`]; [`Given::check`] makes [`Settings`] of it, or says which settings disagree and what to do.
//!
//! It reads two files (the configuration and the secret) and nothing else: no address is bound or resolved here.
//!
//! | module | what it is |
//! |---|---|
//! | `given` | settings as they were given, each or none |
//! | `check` | from given to checked |
//! | `founders` | the list of nodes that form a cluster |
//! | `secret` | the file with the cluster's secret |

mod check;
mod error;
mod founders;
mod given;
mod secret;

#[cfg(test)]
mod tests;

pub use error::SettingsError;
pub use founders::{Founders, FoundersError};
pub use given::Given;

pub(crate) use founders::{check_address, difference};

use crate::raft::{ClusterSecret, Compaction, Timings};
use ringfence_core::ids::NodeId;
use ringfence_core::lead;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The port that a coordinator listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7600;

/// What is logged unless told otherwise. The consensus library reports every step of an election, every message that a
/// node which is down did not take, and an orderly end as an error; what of that concerns an operator, a failed disk
/// above all, the node says itself.
pub const DEFAULT_LOG_FILTER: &str = "info,openraft=off";

/// The settings of one node, fit to run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) node: NodeId,
    pub(crate) listen: SocketAddr,
    /// `None`: the address it listens on, once it is known.
    pub(crate) advertise: Option<String>,
    pub(crate) storage: Storage,
    pub(crate) membership: Membership,
    pub(crate) secret: Option<ClusterSecret>,
    /// How quickly a dead leader is noticed. The same on every node.
    pub timings: Timings,
    /// When the log is compacted into a snapshot.
    pub compaction: Compaction,
    /// How a leader paces its moves.
    pub placing: lead::Settings,
    /// How long a call may wait for the log before its outcome counts as unknown.
    pub request_timeout: Duration,
    /// What is logged, and how.
    pub log: LogSettings,
    pub(crate) warnings: Vec<String>,
}

/// Where a node keeps what it must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Nowhere: it forgets everything when it stops.
    Memory,
    /// In this directory.
    Dir(PathBuf),
}

/// How a node comes to belong to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It is a cluster of one, under whatever address it listens on.
    Alone,
    /// It forms a cluster with these, itself among them.
    Found(Founders),
    /// It waits until the leader of a cluster that exists adds it.
    Join,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level (`info`) or a filter by module (`info,ringfence_server::raft=debug`).
    pub filter: String,
    /// Lines for people, or JSON for machines.
    pub format: LogFormat,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings { filter: DEFAULT_LOG_FILTER.to_owned(), format: LogFormat::Text }
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<LogFormat, SettingsError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(SettingsError::LogFormat(error::shown(text))),
        }
    }
}

impl Settings {
    /// One node in memory on a free port of the loopback interface, for a test or a first try.
    pub fn in_memory() -> Settings {
        Settings::alone(Storage::Memory)
    }

    /// One durable node with its data in `dir`, on a free port of the loopback interface.
    pub fn durable(dir: impl Into<PathBuf>) -> Settings {
        Settings::alone(Storage::Dir(dir.into()))
    }

    fn alone(storage: Storage) -> Settings {
        Settings {
            node: first_node(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            storage,
            membership: Membership::Alone,
            secret: None,
            timings: Timings::default(),
            compaction: Compaction::default(),
            placing: lead::Settings::default(),
            request_timeout: Duration::from_secs(5),
            log: LogSettings::default(),
            warnings: Vec::new(),
        }
    }

    /// The same, listening at this address of the loopback interface.
    ///
    /// # Errors
    /// [`SettingsError`] when it is no address, or one that others can reach: that takes all the settings of a node
    /// ([`Given`]).
    pub fn listening(mut self, listen: &str) -> Result<Settings, SettingsError> {
        self.listen = check::listen_address(listen)?;
        check::guarded(self.listen, false, self.secret.is_some())?;
        Ok(self)
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The address it listens on; port 0 stands for a free one.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// What is allowed and still worth a word in the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How long a node may hear nothing of a leader before its readers are sent elsewhere.
    pub(crate) fn leaderless(&self) -> Duration {
        self.timings.leaderless()
    }
}

fn first_node() -> NodeId {
    const FIRST: NodeId = match NodeId::new(1) {
        Ok(node) => node,
        Err(_) => panic!("1 is a node id"),
    };
    FIRST
}
