//! The settings of one Raft node, with the reasons for their defaults, checked as a whole.

use super::error::StartError;
use super::limits;
use super::net::ClusterSecret;
use openraft::{Config as Openraft, SnapshotPolicy};
use ringfence_core::ids::{ClusterId, NodeId};
use std::time::Duration;

/// What a node is and how it behaves.
#[derive(Clone, Debug)]
pub struct RaftConfig {
    /// This node. An id is used once.
    pub node: NodeId,
    /// The cluster it belongs to; messages of other clusters are refused.
    pub cluster: ClusterId,
    /// Heartbeats and elections. The same on every node.
    pub timings: Timings,
    /// When the log is compacted.
    pub compaction: Compaction,
    /// What every peer must present, and is presented with; `None` on a network where nobody else is.
    pub secret: Option<ClusterSecret>,
    /// How long a proposal, a confirmation or a change of members may take before its outcome counts as unknown.
    pub request_timeout: Duration,
    /// How long one flush of the log may take before the node counts as sick: it is reported, and a leader hands its
    /// leadership over.
    pub slow_disk: Duration,
    /// Seed of the election timeouts; `None` takes one from the operating system. Only a simulation fixes it.
    pub seed: Option<u64>,
}

impl RaftConfig {
    /// The defaults for this node of this cluster.
    pub fn new(cluster: ClusterId, node: NodeId) -> RaftConfig {
        RaftConfig {
            node,
            cluster,
            timings: Timings::default(),
            compaction: Compaction::default(),
            secret: None,
            request_timeout: Duration::from_secs(5),
            slow_disk: Duration::from_secs(3),
            seed: None,
        }
    }

    /// The library's settings for ours.
    pub(super) fn to_openraft(&self) -> Result<Openraft, StartError> {
        self.timings.check()?;
        self.compaction.check()?;
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let lease = ms(self.timings.election_max);
        Openraft {
            cluster_name: self.cluster.to_string(),
            heartbeat_interval: ms(self.timings.heartbeat),
            election_timeout_min: ms(self.timings.election_min),
            election_timeout_max: lease,
            // A node that was cut off, or restarted, must not depose a working leader by a higher term.
            enable_pre_vote: Some(true),
            // Without it a leader that lost its quorum keeps, by its heartbeats, a connected majority from electing.
            // The library demands at least lease + election_max, and the lease is election_max.
            quorum_loss_probe_interval: Some(2 * lease),
            // A restarted leader would otherwise go on in its old term with a state that is not yet re-applied; a new
            // term makes "an entry of my own term is applied" mean what it says.
            enable_leader_restore: Some(false),
            // Counting entries here, bytes and time in the compaction task, which also triggers it.
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.compaction.entries),
            max_in_snapshot_log_to_keep: self.compaction.keep,
            purge_batch_size: 64,
            replication_lag_threshold: self.compaction.entries.saturating_add(self.compaction.keep),
            // Counted anew with each piece that leaves: a bound on the whole that is below the real time would start over
            // for ever.
            install_snapshot_timeout: ms(self.timings.install_snapshot),
            snapshot_max_chunk_size: limits::SNAPSHOT_CHUNK_BYTES as u64,
            max_payload_entries: limits::APPEND_ENTRIES as u64,
            max_append_entries: Some(limits::APPEND_ENTRIES as u64),
            api_channel_size: Some(limits::CORE_QUEUE as u64),
            notification_channel_size: Some(limits::CORE_QUEUE as u64),
            // A peer that does not answer is tried again soon: a restarted node must be back within an election.
            backoff: "50ms 100ms 200ms ...500ms".to_string(),
            ..Openraft::default()
        }
        .validate()
        .map_err(|e| StartError::Config(e.to_string()))
    }
}

/// How quickly a dead leader is noticed, and how much delay is not taken for death.
///
/// A node stands for election after `election_max` (the leader's lease, during which nobody votes for another) plus a
/// random time between `election_min` and `election_max`. With the defaults that is 400 to 600 ms of silence, six missed
/// heartbeats on a loaded machine, and a first write after a leader's death within 0.7 s. A follower that was merely paused
/// does not depose a leader: pre-vote asks the others first, and they have heard it.
///
/// A vote costs several flushes of disks, which may take longer than all of these: `campaigns` and `runtime` give it the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How often a leader says that it lives.
    pub heartbeat: Duration,
    /// The least that a node waits when the lease is out. More than a heartbeat.
    pub election_min: Duration,
    /// The lease, and the most that a node waits when it is out. The distance to `election_min` keeps two nodes from
    /// standing at once.
    pub election_max: Duration,
    /// How long a snapshot on its way may stand still: between two pieces, and from the last of them to its installation.
    pub install_snapshot: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            heartbeat: Duration::from_millis(60),
            election_min: Duration::from_millis(100),
            election_max: Duration::from_millis(300),
            install_snapshot: Duration::from_secs(60),
        }
    }
}

impl Timings {
    /// How long a node may hear nothing of a leader before it is out of touch: three election timeouts, so that an
    /// ordinary election passes unnoticed.
    pub(crate) fn leaderless(&self) -> Duration {
        self.election_max * 3
    }

    /// Whether these can work together.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let wrong = |text: String| Err(StartError::Config(text));
        if self.heartbeat.is_zero() {
            return wrong("heartbeat is zero".to_string());
        }
        if self.election_min <= self.heartbeat {
            return wrong(format!(
                "election_min ({:?}) is not above heartbeat ({:?})",
                self.election_min, self.heartbeat
            ));
        }
        if self.election_max < self.heartbeat * 3 {
            return wrong(format!(
                "election_max ({:?}) is less than three times heartbeat ({:?}): a lost heartbeat would end a lease",
                self.election_max, self.heartbeat
            ));
        }
        if self.election_max < self.election_min + self.heartbeat {
            return wrong(format!(
                "election_max ({:?}) is not a heartbeat ({:?}) above election_min ({:?}): nodes would stand at once",
                self.election_max, self.heartbeat, self.election_min
            ));
        }
        if self.install_snapshot < self.election_max {
            return wrong(format!(
                "install_snapshot ({:?}) is below election_max ({:?})",
                self.install_snapshot, self.election_max
            ));
        }
        Ok(())
    }
}

/// When a snapshot replaces the log behind it: whichever bound is reached first. Counting entries alone would let a
/// quiet cluster keep its log for months.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// After this many entries.
    pub entries: u64,
    /// After this many bytes of entries.
    pub bytes: u64,
    /// After this long, if anything was applied.
    pub every: Duration,
    /// How many entries already in a snapshot stay, so that a node that was away briefly needs no snapshot.
    pub keep: u64,
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction { entries: 10_000, bytes: 64 << 20, every: Duration::from_secs(3600), keep: 2_000 }
    }
}

impl Compaction {
    /// Whether these can work together.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let zero = [
            ("snapshot-entries", self.entries == 0),
            ("snapshot-bytes", self.bytes == 0),
            ("snapshot-every-ms", self.every.is_zero()),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(StartError::Config(format!(
                "{name} is 0: a snapshot would be taken after nothing, for ever"
            ))),
            None => Ok(()),
        }
    }
}
