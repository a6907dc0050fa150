//! The replicated log, reduced to what Raft promises.
//!
//! Proposals of one term are committed in their order, or never. One of an earlier term may still be committed after a
//! later election, until an entry of the later term is. Each entry was applied by the shipped `State::apply`, once;
//! nodes differ in how far they have come, not in what they find.

use crate::model::setting::partition;
use ringfence_core::ids::{Epoch, LogIndex, PartitionKey, SessionId};
use ringfence_core::state::{Applied, Command, Entry, Event, Outcome, State};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// An entry on its way to the log.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The leadership that proposed it.
    pub term: u64,
    /// `None` for a new leader's first entry.
    pub entry: Option<Entry>,
    /// The leader decided it, and waits for it before it looks again.
    pub awaited: bool,
}

impl Hash for Proposal {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.term, &self.entry, self.awaited).hash(hasher);
    }
}

/// An entry of the log, and the state after it.
#[derive(Debug)]
pub struct Committed {
    /// What was proposed.
    pub proposal: Arc<Proposal>,
    /// What it did.
    pub applied: Applied,
    /// The state after it.
    pub state: State,
    /// Stands for this entry and all before it.
    print: u64,
}

/// The log.
#[derive(Clone, Debug, Default)]
pub struct Log(Vec<Arc<Committed>>);

impl Log {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The term of the last entry.
    pub fn last_term(&self) -> u64 {
        self.0.last().map_or(0, |last| last.proposal.term)
    }

    /// The entry after so many.
    pub fn get(&self, at: usize) -> Option<&Arc<Committed>> {
        self.0.get(at)
    }

    /// The entries after so many.
    pub fn after(&self, at: usize) -> &[Arc<Committed>] {
        &self.0[at.min(self.0.len())..]
    }

    /// The state as of so many entries; there is one at the least.
    pub fn state(&self, applied: usize) -> &State {
        &self.0[applied.max(1) - 1].state
    }

    /// The state as of the whole log: the truth.
    pub fn truth(&self) -> &State {
        self.state(self.len())
    }

    /// Commits a proposal.
    pub fn commit(&mut self, proposal: Arc<Proposal>) -> &Arc<Committed> {
        let mut state = self.0.last().map_or_else(State::new, |last| last.state.clone());
        let index = LogIndex::new(self.0.len() as u64 + 1);
        let applied = match &proposal.entry {
            Some(entry) => state.apply(index, entry),
            None => {
                state.skip(index);
                Applied { outcome: Ok(Vec::new()), events: Vec::new() }
            }
        };
        let mut hasher = DefaultHasher::new();
        (self.0.last().map(|last| last.print), &proposal).hash(&mut hasher);
        let print = hasher.finish();
        let at = self.0.len();
        self.0.push(Arc::new(Committed { proposal, applied, state, print }));
        &self.0[at]
    }

    /// Every grant there was, oldest first. The lock goes by the partition's key.
    pub fn grants(&self) -> impl Iterator<Item = (PartitionKey, Epoch, SessionId)> {
        self.0.iter().flat_map(|committed| committed.grants())
    }
}

impl Hash for Log {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.last().map(|last| last.print).hash(hasher);
    }
}

impl Committed {
    fn grants(&self) -> impl Iterator<Item = (PartitionKey, Epoch, SessionId)> {
        let commands = self.proposal.entry.iter().flat_map(|entry| &entry.commands);
        let outcomes = self.applied.outcome.iter().flatten();
        let of_partitions =
            commands.zip(outcomes).filter_map(|(command, outcome)| match (command, outcome) {
                (Command::Grant { partition, to, .. }, Outcome::Granted(epoch)) => {
                    Some((*partition, *epoch, *to))
                }
                _ => None,
            });
        // A lock is granted by whatever frees it.
        let of_locks = self.applied.events.iter().filter_map(|event| match event {
            Event::LockOf { lock, session } => {
                let grant = self.state.lock(lock)?.held_by(*session)?;
                Some((partition(), grant.epoch, *session))
            }
            _ => None,
        });
        of_partitions.chain(of_locks)
    }
}
