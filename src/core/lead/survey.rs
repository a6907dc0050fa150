//! A look at one keyspace for people: the plan as it would be made now, or if something were different, and why a
//! partition is where it is. Nothing is decided here.

use super::Leadership;
use super::loads::{LoadSource, Weights};
use super::picture::{Outlook, Picture, ZONE_LABEL, standing_by_settings};
use super::receive::{Unfit, receive};
use crate::ids::{Epoch, KeyspaceId, KeyspaceName, PartitionId, PartitionKey, WorkerId};
use crate::placement::{
    Candidate, Explanation, Pin, Plan, PlanError, Rules, Spot, Standing, Vacancy, View, Weight, WorkerIx,
    ZoneIx, explain, plan,
};
use crate::state::{BalanceBy, Partition, Phase, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Something to suppose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// A worker joins. One that is there is taken to join anew.
    Add {
        /// Its name.
        worker: WorkerId,
        /// Its weight.
        weight: Weight,
        /// Its labels.
        labels: BTreeMap<String, String>,
    },
    /// A worker is gone; its partitions are vacant.
    Remove(WorkerId),
    /// A worker has another weight.
    Weigh(WorkerId, Weight),
}

/// A keyspace as a plan sees it: a copy, so that the plan is made without holding on to the state.
#[derive(Clone, Debug)]
pub struct Survey {
    id: KeyspaceId,
    name: KeyspaceName,
    /// The last epoch of each partition.
    epochs: Vec<Option<Epoch>>,
    candidates: Vec<Candidate>,
    /// The zones' names, by their numbers.
    zones: Vec<String>,
    spots: Vec<Spot>,
    weights: Weights,
    /// Where each partition's load comes from; empty when all count alike.
    sources: Vec<LoadSource>,
    by: BalanceBy,
    rules: Rules,
}

/// Why no plan moves a partition that has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stays {
    /// It is frozen.
    Frozen,
    /// An operator moved it, and it is moved by nobody else for so much longer.
    CoolsDown(Duration),
    /// Its owner is not ready; what operators demand it gives up all the same.
    NotReady,
    /// Its owner was told to give it up, for a worker that is gone.
    NowhereToGo,
}

/// Why the worker that a partition is pinned to may not have it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinTrouble {
    /// It has no session.
    Absent,
    /// It has one.
    Unfit(Unfit),
}

impl Leadership {
    /// Why no plan moves a partition that has an owner; nothing when one may.
    pub fn stays(&self, now: Instant, state: &State, key: PartitionKey) -> Vec<Stays> {
        let (Some(keyspace), Some(partition)) = (state.keyspace(key.keyspace), state.partition(key)) else {
            return Vec::new();
        };
        let mut stays = Vec::new();
        let frozen = keyspace.settings().get(&key.partition).is_some_and(|set| set.frozen.is_some());
        stays.extend(frozen.then_some(Stays::Frozen));
        let moved = self.placing.moved().get(&key).filter(|_| partition.owner().is_some());
        let left = moved.map(|at| self.placing.settings().cool_down.saturating_sub(now.since(*at)));
        stays.extend(left.filter(|left| !left.is_zero()).map(Stays::CoolsDown));
        stays.extend(match partition.phase() {
            Phase::Owned { ready: false, .. } => Some(Stays::NotReady),
            Phase::Draining(drain) if state.session_of(&drain.to).is_none() => Some(Stays::NowhereToGo),
            _ => None,
        });
        stays
    }

    /// The worker that a partition is pinned to, and why that one may not have it now, if it may not.
    pub fn pin(
        &self,
        now: Instant,
        state: &State,
        key: PartitionKey,
    ) -> Option<(WorkerId, Option<PinTrouble>)> {
        let keyspace = state.keyspace(key.keyspace)?;
        let (worker, _) = keyspace.settings().get(&key.partition)?.pin.as_ref()?;
        let trouble = match state.session_of(worker) {
            None => Some(PinTrouble::Absent),
            Some(session) => {
                receive(state, keyspace, session, &self.presence.absent(now)).err().map(PinTrouble::Unfit)
            }
        };
        Some((worker.clone(), trouble))
    }

    /// The keyspace as this leadership would plan it now.
    pub fn survey(&self, now: Instant, state: &State, id: KeyspaceId) -> Option<Survey> {
        let (nobody, nothing, absent) = (BTreeSet::new(), BTreeSet::new(), self.presence.absent(now));
        let outlook = Outlook { absent: &absent, expiring: &nobody, freed: &nothing };
        let picture = Picture::of(state, id, outlook)?.with_news(self.placing.news(id));
        let spots = picture.spots(self.placing.moved(), outlook).spots;
        let zones = picture.candidates.iter().zip(&picture.sessions).filter_map(|(candidate, session)| {
            Some((candidate.zone?.get(), session.labels().get(ZONE_LABEL)?.clone()))
        });
        let keyspace = picture.keyspace;
        let weights = self.loads.weights(now, self.placing.settings().measure_every, keyspace);
        let source = |partition| self.loads.source(keyspace, partition);
        let sources = weights.loads.iter().flat_map(|_| keyspace.count().partitions().map(source));
        Some(Survey {
            id,
            name: picture.keyspace.name().clone(),
            epochs: picture.keyspace.partitions().iter().map(Partition::epoch).collect(),
            zones: zones.collect::<BTreeMap<u32, String>>().into_values().collect(),
            spots,
            sources: sources.collect(),
            by: keyspace.policy().balance_by(),
            rules: picture.rules(&weights),
            weights,
            candidates: picture.candidates,
        })
    }
}

impl Survey {
    /// The name of the keyspace.
    pub fn keyspace(&self) -> &KeyspaceName {
        &self.name
    }

    /// The last epoch of a partition when the survey was made; `None` when it never had one.
    pub fn epoch(&self, partition: PartitionId) -> Option<Epoch> {
        self.epochs.get(partition.get() as usize).copied().flatten()
    }

    /// The workers, in the order of their names, which is that of a [`WorkerIx`].
    pub fn workers(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The name of a zone.
    pub fn zone(&self, zone: ZoneIx) -> &str {
        self.zones.get(zone.get() as usize).map_or("", String::as_str)
    }

    /// The name of a worker.
    pub fn name(&self, worker: WorkerIx) -> &WorkerId {
        &self.candidates[worker.get()].worker
    }

    /// By what the keyspace is balanced.
    pub fn balanced_by(&self) -> BalanceBy {
        self.by
    }

    /// How many partitions there are.
    pub fn count(&self) -> usize {
        self.spots.len()
    }

    /// How many partitions have a measured load, while balancing waits for the others.
    pub fn waits_for_loads(&self) -> Option<usize> {
        self.weights.waits_until.map(|_| self.weights.measured)
    }

    /// How much a partition counts, and who says so; `None` when all count alike.
    pub fn load(&self, partition: PartitionId) -> Option<(u32, LoadSource)> {
        let at = partition.get() as usize;
        Some((*self.weights.loads.as_ref()?.get(at)?, *self.sources.get(at)?))
    }

    /// The plan.
    ///
    /// # Errors
    /// [`PlanError`] when none can be made.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        plan(&self.view())
    }

    /// Why a partition is where it is.
    ///
    /// # Errors
    /// [`PlanError`] when no plan can be made, or the partition is not there.
    pub fn explain(&self, partition: PartitionId) -> Result<Explanation, PlanError> {
        explain(&self.view(), partition)
    }

    fn view(&self) -> View<'_> {
        let view = View::new(&self.name, &self.candidates, &self.spots).with_rules(self.rules);
        self.weights.loads.as_ref().map_or(view, |loads| view.with_loads(loads))
    }

    /// Supposes something, of the state that the survey was made of. A worker to remove or to weigh has to be there, and one to
    /// add must not be: it would lose all that it has.
    ///
    /// # Errors
    /// The worker that is not there, or is.
    pub fn suppose(&mut self, what: WhatIf, state: &State) -> Result<(), WorkerId> {
        match what {
            WhatIf::Weigh(worker, weight) => match self.find(&worker) {
                Ok(at) => self.candidates[at].weight = weight,
                Err(_) => return Err(worker),
            },
            WhatIf::Remove(worker) => match self.find(&worker) {
                Ok(at) => {
                    self.candidates.remove(at);
                    let below = |ix: usize| if ix < at { Some(ix) } else { ix.checked_sub(1) };
                    self.renumber(|ix| (ix != at).then(|| below(ix)).flatten());
                }
                Err(_) => return Err(worker),
            },
            WhatIf::Add { worker, weight, labels } => {
                let Err(at) = self.find(&worker) else { return Err(worker) };
                let Some(keyspace) = state.keyspace(self.id) else { return Ok(()) };
                let zone = labels.get(ZONE_LABEL).filter(|_| keyspace.policy().spread_zones());
                let zone = zone.filter(|name| !name.is_empty()).map(|name| self.zone_named(name));
                let standing = standing_by_settings(state, keyspace, &worker, &labels);
                let newly = Some(crate::placement::Newly::Joined);
                let candidate = Candidate { worker: worker.clone(), weight, standing, zone, newly };
                self.candidates.insert(at, candidate);
                self.renumber(|ix| Some(ix + usize::from(ix >= at)));
                for (partition, set) in keyspace.settings() {
                    if set.pin.as_ref().is_some_and(|(to, _)| *to == worker) {
                        self.spots[partition.get() as usize].pin = Some(Pin::To(place(at)));
                    }
                }
            }
        }
        Ok(())
    }

    fn find(&self, worker: &WorkerId) -> Result<usize, usize> {
        self.candidates.binary_search_by(|candidate| candidate.worker.cmp(worker))
    }

    fn zone_named(&mut self, name: &str) -> ZoneIx {
        let at = self.zones.iter().position(|zone| zone == name).unwrap_or_else(|| {
            self.zones.push(name.to_owned());
            self.zones.len() - 1
        });
        ZoneIx::new(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// Gives workers other places; a worker without a place is gone.
    fn renumber(&mut self, to: impl Fn(usize) -> Option<usize>) {
        let to = |ix: WorkerIx| to(ix.get()).map(place);
        for spot in &mut self.spots {
            spot.standing = match spot.standing {
                Standing::Owned { by, movable } => match to(by) {
                    Some(by) => Standing::Owned { by, movable },
                    None => Standing::Vacant(Vacancy::Left),
                },
                Standing::InFlight { to: target } => match to(target) {
                    Some(to) => Standing::InFlight { to },
                    None => Standing::Vacant(Vacancy::Left),
                },
                other => other,
            };
            spot.avoid = spot.avoid.and_then(to);
            spot.pin = spot.pin.map(|pin| match pin {
                Pin::To(worker) => to(worker).map_or(Pin::Absent, Pin::To),
                Pin::Absent => Pin::Absent,
            });
        }
    }
}

fn place(at: usize) -> WorkerIx {
    WorkerIx::new(u32::try_from(at).unwrap_or(u32::MAX))
}
