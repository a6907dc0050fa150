//! How even it is what the workers of a keyspace own at this moment. A plan counts a move where it is going; this counts
//! it at its old owner until that has given the partition up. It is for people, and nothing is decided by it.

use super::Leadership;
use super::picture::{Outlook, Picture};
use crate::ids::{KeyspaceId, SessionId};
use crate::placement::{Candidate, Evenness, PlanError, Spot, View, WorkerIx};
use crate::state::State;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

impl Leadership {
    /// The workers of a keyspace, in the order of their names, and how even it is what they own now. `None` when there
    /// is no such keyspace.
    ///
    /// # Errors
    /// [`PlanError`] when the keyspace could not be planned either.
    pub fn evenness(
        &self,
        now: Instant,
        state: &State,
        id: KeyspaceId,
    ) -> Option<Result<(Vec<Candidate>, Evenness), PlanError>> {
        let (nobody, nothing, absent) = (BTreeSet::new(), BTreeSet::new(), self.presence.absent(now));
        let picture =
            Picture::of(state, id, Outlook { absent: &absent, expiring: &nobody, freed: &nothing })?;
        let places: BTreeMap<SessionId, WorkerIx> =
            (0..).map(WorkerIx::new).zip(&picture.sessions).map(|(place, s)| (s.id(), place)).collect();
        let owned = picture.keyspace.partitions().iter().map(|partition| {
            let place = partition.owner().and_then(|owner| places.get(&owner));
            place.map_or(Spot::HELD, |place| Spot::owned(*place))
        });
        let spots: Vec<Spot> = owned.collect();
        let loads = self.loads.weights(now, self.placing.settings().measure_every, picture.keyspace).loads;
        let view = View::new(picture.keyspace.name(), &picture.candidates, &spots);
        let evenness = Evenness::of(&loads.as_ref().map_or(view, |loads| view.with_loads(loads)));
        Some(evenness.map(|evenness| (picture.candidates, evenness)))
    }
}
