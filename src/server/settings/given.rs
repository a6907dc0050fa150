//! Settings as they were given: each or none.

use super::error::SettingsError;
use crate::text::plain;
use serde::Deserialize;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Settings as flags, variables or a file gave them. The file is TOML and has these names as its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Given {
    /// The id of this node: a number that no node of the cluster, present or past, has had.
    pub node: Option<u64>,
    /// The address to listen on: an IP address (or `localhost`) and a port.
    pub listen: Option<String>,
    /// `HOST:PORT` by which other nodes and clients reach this node; the one in `cluster` unless given.
    pub advertise: Option<String>,
    /// Where the node keeps its log, its snapshots and its identity.
    pub data_dir: Option<PathBuf>,
    /// The nodes that form the cluster, each as `ID=HOST:PORT`: one, three or five, the same on each of them. Once the
    /// cluster is formed it plays no part any more.
    pub cluster: Option<Vec<String>>,
    /// Waits to be added to a cluster that exists, instead of forming one.
    pub join: Option<bool>,
    /// Listens where others can reach it although nothing is encrypted.
    pub insecure: Option<bool>,
    /// A file with the secret that the nodes of the cluster prove to each other.
    pub cluster_secret_file: Option<PathBuf>,
    /// How often a leader says that it lives, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// The least that a node waits before it stands for election when the leader's lease is out, in milliseconds.
    pub election_min_ms: Option<u64>,
    /// The leader's lease, and the most that a node waits when it is out, in milliseconds.
    pub election_max_ms: Option<u64>,
    /// A snapshot is taken after so many log entries.
    pub snapshot_entries: Option<u64>,
    /// A snapshot is taken after so many bytes of log.
    pub snapshot_bytes: Option<u64>,
    /// A snapshot is taken after so long, in milliseconds, if anything changed.
    pub snapshot_every_ms: Option<u64>,
    /// How many entries stay in the log although a snapshot has them.
    pub snapshot_keep_entries: Option<u64>,
    /// Balancing waits so long after the last worker came or went, in milliseconds.
    pub settle_ms: Option<u64>,
    /// A partition that an operator moved is not balanced away for so long, in milliseconds.
    pub cool_down_ms: Option<u64>,
    /// Repairs are slowed down when more than so many sessions in a hundred are lost together.
    pub brake_percent: Option<u16>,
    /// How often workers tell the loads of their partitions, in keyspaces that balance by load, in milliseconds.
    pub measure_every_ms: Option<u64>,
    /// What is logged: a level, or a filter by module.
    pub log: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
}

/// The longest file that is read.
const MAX_BYTES: u64 = 8 << 20;

impl Given {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SettingsError::File`] when it cannot be read, is not TOML, or has a key that is not a setting.
    pub fn read(path: &Path) -> Result<Given, SettingsError> {
        let wrong = |why: String| SettingsError::File { path: path.to_owned(), why };
        let file = std::fs::File::open(path).map_err(|e| wrong(e.to_string()))?;
        let mut text = String::new();
        // A pipe is fine, and a device that never ends is not.
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        read.map_err(|e| wrong(e.to_string()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("it is longer than {MAX_BYTES} bytes")));
        }
        toml::from_str(&text).map_err(|e| wrong(plain(&e.to_string())))
    }

    /// These settings, and `below` for what they leave open.
    #[must_use]
    pub fn or(self, below: Given) -> Given {
        Given {
            node: self.node.or(below.node),
            listen: self.listen.or(below.listen),
            advertise: self.advertise.or(below.advertise),
            data_dir: self.data_dir.or(below.data_dir),
            cluster: self.cluster.or(below.cluster),
            join: self.join.or(below.join),
            insecure: self.insecure.or(below.insecure),
            cluster_secret_file: self.cluster_secret_file.or(below.cluster_secret_file),
            heartbeat_ms: self.heartbeat_ms.or(below.heartbeat_ms),
            election_min_ms: self.election_min_ms.or(below.election_min_ms),
            election_max_ms: self.election_max_ms.or(below.election_max_ms),
            snapshot_entries: self.snapshot_entries.or(below.snapshot_entries),
            snapshot_bytes: self.snapshot_bytes.or(below.snapshot_bytes),
            snapshot_every_ms: self.snapshot_every_ms.or(below.snapshot_every_ms),
            snapshot_keep_entries: self.snapshot_keep_entries.or(below.snapshot_keep_entries),
            settle_ms: self.settle_ms.or(below.settle_ms),
            cool_down_ms: self.cool_down_ms.or(below.cool_down_ms),
            brake_percent: self.brake_percent.or(below.brake_percent),
            measure_every_ms: self.measure_every_ms.or(below.measure_every_ms),
            log: self.log.or(below.log),
            log_format: self.log_format.or(below.log_format),
        }
    }
}
