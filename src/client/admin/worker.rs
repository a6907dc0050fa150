//! The workers that have a session.

use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{KeyspaceName, SessionId, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A worker and its session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worker {
    /// Its name.
    pub worker: WorkerId,
    /// Its present life.
    pub session: SessionId,
    /// Where callers reach it; may be empty.
    pub address: String,
    /// Its share of the partitions relative to other workers.
    pub weight: u32,
    /// What it said of itself when it joined.
    pub labels: BTreeMap<String, String>,
    /// The keyspaces it serves. One that serves none only takes locks: nobody plans for it.
    pub keyspaces: Vec<KeyspaceName>,
    /// Its lease.
    pub ttl: Duration,
    /// How many thirds of its TTL it was silent, 0 to 2, as far as the log says. At 3 its session ends.
    pub suspicion_thirds: u32,
    /// How many partitions it owns.
    pub partitions: u32,
    /// How many of them are ready.
    pub ready: u32,
    /// How many locks it holds.
    pub locks: u32,
    /// How many locks it waits for.
    pub awaited_locks: u32,
    /// When it joined by the leader's wall clock, in milliseconds since 1970; for display.
    pub joined_unix_ms: u64,
}

impl TryFrom<v1::Worker> for Worker {
    type Error = InvalidField;

    fn try_from(wire: v1::Worker) -> Result<Worker, InvalidField> {
        let name = |name: &String| checked::keyspace_name("keyspaces", name);
        Ok(Worker {
            worker: checked::worker_id("worker", &wire.worker)?,
            session: checked::session("session", wire.session)?,
            address: wire.address,
            weight: wire.weight,
            labels: wire.labels.into_iter().collect(),
            keyspaces: wire.keyspaces.iter().map(name).collect::<Result<_, _>>()?,
            ttl: Duration::from_millis(wire.ttl_ms),
            suspicion_thirds: wire.suspicion_thirds,
            partitions: wire.partitions,
            ready: wire.ready,
            locks: wire.locks,
            awaited_locks: wire.awaited_locks,
            joined_unix_ms: wire.joined_unix_ms,
        })
    }
}
