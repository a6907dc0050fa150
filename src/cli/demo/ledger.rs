//! What the workers said, in the order in which it arrived.

use super::messages::Told;
use std::collections::BTreeMap;
use std::time::Instant;

/// A write that a worker was told is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    pub(super) seq: u64,
}

/// Who writes a partition, as far as acknowledgements show.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) worker: String,
    pub(super) epoch: u64,
    /// When the first acknowledgement under this epoch arrived.
    pub(super) since: Instant,
}

/// The demo's memory.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) acks: Vec<Ack>,
    pub(super) writers: BTreeMap<u32, Writer>,
    pub(super) refused: Vec<Told>,
    pub(super) stopping: Option<Told>,
    pub(super) resumed: bool,
    pub(super) failed: Option<String>,
}

impl Ledger {
    pub(super) fn note(&mut self, worker: &str, told: Told) {
        match told {
            Told::Acked { partition, epoch, seq } => {
                self.acks.push(Ack { partition, epoch, seq });
                let newer = self.writers.get(&partition).is_none_or(|writer| writer.epoch < epoch);
                if newer {
                    let writer = Writer { worker: worker.to_string(), epoch, since: Instant::now() };
                    self.writers.insert(partition, writer);
                }
            }
            Told::Refused { .. } => self.refused.push(told),
            Told::Stopping { .. } => self.stopping = Some(told),
            Told::Resumed { .. } => self.resumed = true,
            Told::Failed { error } => self.failed = Some(format!("{worker}: {error}")),
            Told::Ready { .. } | Told::Ended { .. } => {}
        }
    }

    /// The partitions that this worker writes, with their epochs.
    pub(super) fn written_by(&self, worker: &str) -> BTreeMap<u32, u64> {
        let of = self.writers.iter().filter(|(_, writer)| writer.worker == worker);
        of.map(|(partition, writer)| (*partition, writer.epoch)).collect()
    }

    /// True when each of these partitions is written under a higher epoch than the one given.
    pub(super) fn all_above(&self, epochs: &BTreeMap<u32, u64>) -> bool {
        epochs
            .iter()
            .all(|(partition, epoch)| self.writers.get(partition).is_some_and(|writer| writer.epoch > *epoch))
    }
}
