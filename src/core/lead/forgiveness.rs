//! Setbacks that are over: an owner that has been ready for a while is one that works, and its partition's next failure
//! is a first one again.
//!
//! Otherwise a task that fails once a month would wait longer each time, and `ringfence status` would call it failing for
//! ever. The clock is the leader's, which counts from the entry that it saw; a new leader counts in full. What the state
//! keeps changes by an entry, one command for each partition, and once for each row of failures. Nodes of an earlier version
//! cannot read that entry: nothing is forgiven before something was used that they cannot read either.

use crate::ids::{Epoch, KeyspaceId, PartitionKey};
use crate::mutant;
use crate::state::{Command, Partition, Phase, State};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an owner has to have been ready. Ten times the longest back-off: who fails again and again, however slowly
/// within that, goes on to wait longer.
pub const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// Partitions with setbacks whose owners are ready, and since when.
#[derive(Clone, Debug, Default, Hash)]
pub struct Forgiveness(BTreeMap<PartitionKey, (Epoch, Instant)>);

impl Forgiveness {
    /// Counts all that may be forgiven, in full.
    pub fn new(now: Instant, state: &State) -> Forgiveness {
        let mut forgiveness = Forgiveness::default();
        for (key, partition) in state.keyspaces().flat_map(|k| k.keys().zip(k.partitions())) {
            forgiveness.note(key, partition, now);
        }
        forgiveness
    }

    /// A partition has changed.
    pub(super) fn observe(&mut self, key: PartitionKey, now: Instant, state: &State) {
        match state.partition(key) {
            Some(partition) => self.note(key, partition, now),
            None => drop(self.0.remove(&key)),
        }
    }

    fn note(&mut self, key: PartitionKey, partition: &Partition, now: Instant) {
        match works(partition) {
            Some(epoch) => {
                let since =
                    self.0.get(&key).filter(|(same, _)| *same == epoch).map_or(now, |(_, since)| *since);
                self.0.insert(key, (epoch, since));
            }
            None => drop(self.0.remove(&key)),
        }
    }

    /// A keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.0.retain(|key, _| key.keyspace != id);
    }

    /// What is forgiven now.
    pub(super) fn due(&mut self, now: Instant, state: &State) -> Vec<Command> {
        if self.0.is_empty() || !state.has_what_is_new() || mutant!("setback-never-forgiven") {
            return Vec::new();
        }
        // What was forgiven is no event: nothing that a watcher of the map could see has changed.
        let works = |key: &PartitionKey| state.partition(*key).and_then(works);
        self.0.retain(|key, (epoch, _)| works(key) == Some(*epoch));
        let due = self.0.iter().filter(|(_, (_, since))| now.since(*since) >= FORGIVEN_AFTER);
        due.map(|(key, (epoch, _))| Command::Forgive { partition: *key, epoch: *epoch }).collect()
    }
}

/// The epoch under which its owner is ready, when it had setbacks before.
fn works(partition: &Partition) -> Option<Epoch> {
    partition.setback()?;
    matches!(partition.phase(), Phase::Owned { ready: true, .. }).then(|| partition.epoch())?
}
