//! Partitions that wait for a worker which announced its restart.

use super::picture::is_held;
use crate::ids::{Epoch, PartitionKey, SessionId, WorkerId};
use crate::state::{Session, State};
use std::collections::{BTreeMap, BTreeSet};

/// Workers that joined and may find something waiting for them.
#[derive(Clone, Debug, Hash)]
pub struct Holds(BTreeMap<WorkerId, SessionId>);

impl Holds {
    /// Those of a leader that has looked at nothing yet: any of them may have come back under an earlier one.
    pub fn new(state: &State) -> Holds {
        Holds(state.sessions().map(|session| (session.worker().clone(), session.id())).collect())
    }

    /// A worker has joined.
    pub fn joined(&mut self, session: &Session) {
        self.0.insert(session.worker().clone(), session.id());
    }

    /// The partitions whose waiting ends because their worker is back. One that has joined and is not connected yet
    /// would not learn of a grant: they go on waiting for it, within their bound.
    pub fn due(&mut self, state: &State, absent: &BTreeSet<SessionId>) -> Vec<(PartitionKey, Epoch)> {
        self.0.retain(|_, session| state.session(*session).is_some());
        let here = |id: &SessionId| !absent.contains(id);
        let back: BTreeSet<WorkerId> =
            self.0.iter().filter(|(_, id)| here(id)).map(|(worker, _)| worker.clone()).collect();
        if back.is_empty() {
            return Vec::new();
        }
        self.0.retain(|worker, _| !back.contains(worker));
        let is_back = |key: PartitionKey, worker: &WorkerId| {
            let serves = |session: &Session| session.keyspaces().contains(&key.keyspace);
            back.contains(worker) && state.session_of(worker).is_some_and(serves)
        };
        let holding = state.keyspaces().filter(|keyspace| !keyspace.policy().rejoin_hold().is_zero());
        holding
            .flat_map(|keyspace| keyspace.keys().zip(keyspace.partitions()))
            .filter(|(key, partition)| {
                let last = partition.history().last();
                is_held(partition) && last.is_some_and(|last| is_back(*key, &last.worker))
            })
            .filter_map(|(key, partition)| Some((key, partition.epoch()?)))
            .collect()
    }
}
