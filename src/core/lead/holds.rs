//! Partitions that wait for a worker which announced its restart.

use super::picture::is_held;
use crate::ids::{Epoch, PartitionKey, SessionId, WorkerId};
use crate::mutant;
use crate::state::{Session, State, Tenure};
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

    /// The partitions, of those that cool, whose waiting ends because their worker is back. One that has joined and is
    /// not connected yet would not learn of a grant, and one that is about to leave again takes none: they go on waiting
    /// for it, within their bound. What waits was decided when it was given up, whatever the policy says by now.
    pub fn due(
        &mut self,
        state: &State,
        absent: &BTreeSet<SessionId>,
        cooling: impl Iterator<Item = PartitionKey>,
    ) -> Vec<(PartitionKey, Epoch)> {
        self.0.retain(|_, session| state.session(*session).is_some());
        let stays = |id: &SessionId| {
            state.session(*id).is_some_and(|session| !session.withdrawn() || mutant!("leaver-taken-for-back"))
        };
        let here = |id: &SessionId| !absent.contains(id) && stays(id);
        let back: BTreeSet<WorkerId> =
            self.0.iter().filter(|(_, id)| here(id)).map(|(worker, _)| worker.clone()).collect();
        if back.is_empty() || mutant!("hold-to-its-end") {
            return Vec::new();
        }
        self.0.retain(|worker, _| !back.contains(worker));
        // The session that gave a partition up may live on for a while: another owner of it takes its time. That one has
        // not come back.
        let is_back = |key: PartitionKey, last: &Tenure| {
            let another = |session: &Session| {
                (session.id() != last.session || mutant!("leaver-taken-for-back"))
                    && session.keyspaces().contains(&key.keyspace)
            };
            back.contains(&last.worker) && state.session_of(&last.worker).is_some_and(another)
        };
        cooling
            .filter_map(|key| Some((key, state.partition(key)?)))
            .filter(|(key, partition)| {
                let last = partition.history().last();
                is_held(partition) && last.is_some_and(|last| is_back(*key, last))
            })
            .filter_map(|(key, partition)| Some((key, partition.epoch()?)))
            .collect()
    }
}
