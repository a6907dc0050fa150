//! A witness that sees into every node: what its log granted, who led, and whether all nodes became the same.

use crate::actors::node::Node;
use crate::history::{Recorder, What};
use ringfence_core::ids::{Epoch, KeyspaceId, LogIndex, PartitionId, Scope};
use ringfence_core::state::State;
use ringfence_server::raft::RaftStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::watch;

/// What was seen so far.
#[derive(Default)]
pub(super) struct Witness {
    lives: BTreeMap<u64, Life>,
    elected: BTreeSet<(u64, u64)>,
    states: BTreeMap<LogIndex, (u64, u64)>,
    /// The highest epochs that any life of any node has told of.
    told: BTreeMap<(KeyspaceId, PartitionId), Epoch>,
    /// All is steady: a life that begins to read its log tells only what nobody has told before.
    pub(super) steady: bool,
    /// Nodes that applied the same entries and became different.
    pub(super) diverged: Vec<String>,
}

/// One life of a node: one reading of the log.
#[derive(Default)]
struct Life {
    number: u64,
    watched: Option<(watch::Receiver<RaftStatus>, watch::Receiver<LogIndex>)>,
    epochs: BTreeMap<(KeyspaceId, PartitionId), Epoch>,
}

impl Witness {
    /// A node begins to read its log anew.
    pub(super) fn restarted(&mut self, node: u64) {
        let life = self.lives.entry(node).or_default();
        *life = Life { number: life.number + 1, ..Life::default() };
    }

    /// How many terms a node was seen to lead.
    pub(super) fn elections(&self) -> u64 {
        self.elected.len() as u64
    }

    /// Looks at a node.
    pub(super) fn look(&mut self, node: &mut Node, at_us: u64, recorder: &Recorder) {
        let (id, Some(context)) = (node.id, node.context()) else { return };
        let life = self.lives.entry(id).or_default();
        let first = life.watched.is_none();
        let (status, applied) =
            life.watched.get_or_insert_with(|| (context.raft.status(), context.replica.applied()));
        if first || status.has_changed().unwrap_or(false) {
            let status = status.borrow_and_update();
            if status.leads() && self.elected.insert((status.term.get(), id)) {
                let elected = What::Elected { term: status.term, node: status.node };
                recorder.record(at_us, format!("n{id}"), elected);
            }
        }
        if first || applied.has_changed().unwrap_or(false) {
            applied.borrow_and_update();
            let local = context.replica.lock();
            let actor = format!("n{id}.{}", life.number);
            let (told, steady) = (&mut self.told, self.steady);
            life.read(&local.state, |key, epoch, what| {
                let before = told.get(&key).copied();
                if before < Some(epoch) {
                    told.insert(key, epoch);
                } else if steady {
                    return;
                }
                recorder.record(at_us, actor.as_str(), what);
            });
            self.compare(id, &local.state);
        }
    }

    fn compare(&mut self, node: u64, state: &State) {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        let (first, known) = *self.states.entry(state.applied()).or_insert((node, hash));
        if known != hash {
            let at = state.applied().get();
            self.diverged.push(format!("nodes {first} and {node} differ after entry {at}"));
        }
    }
}

impl Life {
    fn read(&mut self, state: &State, mut record: impl FnMut((KeyspaceId, PartitionId), Epoch, What)) {
        for keyspace in state.keyspaces() {
            for (partition, number) in keyspace.partitions().iter().zip(0..) {
                let partition_id = PartitionId::new(number);
                let key = (keyspace.id(), partition_id);
                let known = self.epochs.entry(key);
                let last = partition.history().iter().map(|tenure| tenure.epoch).max();
                let before = match &known {
                    std::collections::btree_map::Entry::Occupied(known) => Some(*known.get()),
                    std::collections::btree_map::Entry::Vacant(_) => None,
                };
                if last <= before {
                    continue;
                }
                let mut new: Vec<_> =
                    partition.history().iter().filter(|tenure| Some(tenure.epoch) > before).collect();
                new.sort_by_key(|tenure| tenure.at);
                let scope = Scope::Partition(keyspace.name().clone(), partition_id);
                for tenure in new {
                    let granted = What::Granted {
                        scope: scope.clone(),
                        epoch: tenure.epoch,
                        session: tenure.session,
                        worker: tenure.worker.clone(),
                    };
                    record(key, tenure.epoch, granted);
                }
                if let Some(last) = last {
                    *known.or_insert(last) = last;
                }
            }
        }
    }
}
