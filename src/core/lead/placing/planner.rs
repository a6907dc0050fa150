//! The plan of a keyspace, made anew at each look. What it takes long to make is kept from one look to the next.

use crate::ids::KeyspaceId;
use crate::lead::loads::Weights;
use crate::lead::picture::Picture;
use crate::mutant;
use crate::placement::{PartitionKeys, PlanError, PlannedMove, Ring, Spot, View, plan};
use std::collections::BTreeMap;

/// Rings, which follow from the workers in the state, and why a keyspace could not be planned.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    rings: BTreeMap<KeyspaceId, (Ring, PartitionKeys)>,
    /// Why a keyspace could not be planned; its assignment stands.
    errors: BTreeMap<KeyspaceId, PlanError>,
}

impl Planner {
    /// The keyspace is gone.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.rings.remove(&id);
        self.errors.remove(&id);
    }

    /// Why keyspaces could not be planned.
    pub(super) fn errors(&self) -> impl Iterator<Item = (KeyspaceId, &PlanError)> {
        self.errors.iter().map(|(id, error)| (*id, error))
    }

    /// A planning error leaves the assignment as it is, and is shown until a plan succeeds.
    pub(super) fn plan(
        &mut self,
        picture: &Picture<'_>,
        spots: &[Spot],
        weights: &Weights,
    ) -> Option<Vec<PlannedMove>> {
        let id = picture.keyspace.id();
        let cached = self.rings.remove(&id);
        let made = Self::plan_with(picture, spots, weights, cached);
        match made {
            Ok((moves, cache)) => {
                self.rings.insert(id, cache);
                self.errors.remove(&id);
                Some(moves)
            }
            Err(_) if mutant!("error-becomes-empty-plan") => Some(Vec::new()),
            Err(error) => {
                self.errors.insert(id, error);
                None
            }
        }
    }

    fn plan_with(
        picture: &Picture<'_>,
        spots: &[Spot],
        weights: &Weights,
        cached: Option<(Ring, PartitionKeys)>,
    ) -> Result<(Vec<PlannedMove>, (Ring, PartitionKeys)), PlanError> {
        let keyspace = picture.keyspace;
        let (ring, keys) = match cached {
            Some((ring, keys)) if ring.is_of(&picture.candidates) => (ring, Some(keys)),
            Some((_, keys)) => (Ring::new(&picture.candidates)?, Some(keys)),
            None => (Ring::new(&picture.candidates)?, None),
        };
        // A split has made them more.
        let keys = keys.filter(|keys| keys.are_of(keyspace.name(), spots.len()));
        let keys = keys.unwrap_or_else(|| PartitionKeys::new(keyspace.name(), keyspace.count()));
        let view = View::new(keyspace.name(), &picture.candidates, spots).with_ring(&ring).with_keys(&keys);
        let view = view.with_rules(picture.rules(weights));
        let moves = match &weights.loads {
            Some(loads) => plan(&view.with_loads(loads))?.moves,
            None => plan(&view)?.moves,
        };
        Ok((moves, (ring, keys)))
    }
}
