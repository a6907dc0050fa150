//! What must hold, at every moment and when trouble is over.

use super::{Violation, WORKERS, World};
use crate::ids::{Epoch, KeyspaceId, PartitionKey, SessionId};
use crate::state::{Born, Phase, Takeover};
use std::collections::BTreeMap;

impl World {
    /// G3, at its worst: the new owner might believe from the moment its grant is committed.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for process in self.processes.iter().filter(|process| process.alive) {
            let (Some(lessee), now) = (&process.lessee, process.clock.read(self.now)) else { continue };
            for (key, epoch) in lessee.believes(now) {
                let granted = self.granted_over(key, epoch);
                if granted.is_some() && self.keeps_g3(key.keyspace) {
                    let text = format!(
                        "{} believes in {key} at {epoch}, which is granted at {granted:?}, {} ms after the start",
                        process.worker,
                        self.now / 1_000
                    );
                    return Err(Violation::G3(text));
                }
            }
        }
        Ok(())
    }

    /// The grant by which somebody else owns what `key` was under `epoch`: its own, or that of a partition that was split
    /// from it since.
    fn granted_over(&self, key: PartitionKey, epoch: Epoch) -> Option<(PartitionKey, Epoch)> {
        let keyspace = self.truth.keyspace(key.keyspace)?;
        let of_it = |other: &PartitionKey| {
            let since = |born: &Born| born.parent == key.partition && born.epoch > epoch;
            *other == key || keyspace.ancestors(other.partition).any(|born| since(&born))
        };
        let last = |other: PartitionKey| Some((other, self.truth.partition(other)?.history().last()?.epoch));
        let granted = |(other, granted): &(PartitionKey, Epoch)| *other != key || *granted > epoch;
        keyspace.keys().filter(of_it).filter_map(last).find(granted)
    }

    fn keeps_g3(&self, keyspace: KeyspaceId) -> bool {
        self.truth.keyspace(keyspace).is_some_and(|keyspace| keyspace.policy().takeover() == Takeover::Lease)
    }

    /// G4, when trouble is over: everything has an owner that is ready, and every worker its share.
    pub(super) fn settled(&self) -> Result<(), Violation> {
        let mut owned: BTreeMap<(KeyspaceId, SessionId), u32> = BTreeMap::new();
        for key in self.truth.keyspaces().flat_map(crate::state::Keyspace::keys) {
            let Some(partition) = self.truth.partition(key) else { continue };
            match partition.phase() {
                Phase::Owned { session, ready: true } => {
                    *owned.entry((key.keyspace, *session)).or_insert(0) += 1;
                }
                other => return Err(Violation::G4(format!("{key} is {other:?} in peace"))),
            }
        }
        let each = |id: KeyspaceId| self.truth.keyspace(id).map_or(0, |k| k.count().get()) / WORKERS as u32;
        if owned.iter().any(|((keyspace, _), count)| *count != each(*keyspace)) {
            return Err(Violation::G4(format!("out of balance in peace: {owned:?}")));
        }
        Ok(())
    }
}
