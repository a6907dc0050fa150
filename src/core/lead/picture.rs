//! One keyspace as the planner sees it: which workers may be given something, and where every partition stands.

use super::loads::Weights;
use super::receive::{Unfit, receive};
use super::splitting;
use crate::ids::{EpochFloor, KeyspaceId, PartitionKey, SessionId, WorkerId};
use crate::mutant;
use crate::placement::{
    Candidate, Newly, Pin, Rules, Spot, Standing, Vacancy, WorkerIx, WorkerStanding, ZoneIx, unmet,
};
use crate::state::{
    CoolingWhy, Drain, GrantReason, Keyspace, Partition, PartitionSettings, Phase, Session, State,
    WorkerSettings,
};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// What the state does not say: who is not there, and what is about to change and not applied yet.
#[derive(Clone, Copy, Debug)]
pub struct Outlook<'a> {
    /// Sessions without a connection to this leader. They are neither given anything nor balanced away from.
    pub absent: &'a BTreeSet<SessionId>,
    /// Sessions whose expiry is handed out.
    pub expiring: &'a BTreeSet<SessionId>,
    /// Partitions that what is handed out takes from their owners.
    pub freed: &'a BTreeSet<PartitionKey>,
}

/// One keyspace, with its workers in the planner's order.
pub(super) struct Picture<'a> {
    pub(super) keyspace: &'a Keyspace,
    floor: EpochFloor,
    pub(super) sessions: Vec<&'a Session>,
    pub(super) candidates: Vec<Candidate>,
    /// Only what is vacant may be placed.
    repairs_only: bool,
}

/// The label by which workers name their zone.
pub const ZONE_LABEL: &str = "zone";

impl<'a> Picture<'a> {
    /// The keyspace and those of its workers that are not about to end. One that is suspected, absent, or about to leave
    /// keeps what it has and gets nothing.
    pub(super) fn of(state: &'a State, id: KeyspaceId, outlook: Outlook<'_>) -> Option<Picture<'a>> {
        let keyspace = state.keyspace(id)?;
        // By name, which is the planner's order.
        let sessions = state.workers.values().filter_map(|session| state.session(*session));
        let sessions: Vec<&Session> =
            sessions.filter(|s| s.keyspaces().contains(&id) && !outlook.expiring.contains(&s.id())).collect();
        let spread = keyspace.policy().spread_zones();
        let mut zones = BTreeMap::new();
        let mut zone_of = |session: &'a Session| {
            let name = session.labels().get(ZONE_LABEL).filter(|name| spread && !name.is_empty())?;
            let next = ZoneIx::new(u32::try_from(zones.len()).ok()?);
            Some(*zones.entry(name).or_insert(next))
        };
        let candidates = sessions.iter().map(|session| Candidate {
            worker: session.worker().clone(),
            weight: state
                .worker_settings()
                .get(session.worker())
                .and_then(|set| set.weight().filter(|_| !mutant!("weight-ignored")))
                .unwrap_or(session.weight()),
            standing: standing(state, keyspace, session, outlook.absent),
            zone: zone_of(session),
            newly: None,
        });
        let candidates = candidates.collect();
        let repairs_only = state.frozen().is_some() || keyspace.frozen().is_some();
        Some(Picture { keyspace, floor: state.floor(), sessions, candidates, repairs_only })
    }

    /// Says what is new about its workers, for the reasons of moves.
    pub(super) fn with_news(mut self, news: Option<&BTreeMap<WorkerId, Newly>>) -> Picture<'a> {
        if let Some(news) = news {
            for candidate in &mut self.candidates {
                candidate.newly = news.get(&candidate.worker).copied();
            }
        }
        self
    }

    /// What balancing has to keep to.
    pub(super) fn rules(&self, weights: &Weights) -> Rules {
        let even_out = weights.waits_until.is_none();
        Rules { repairs_only: self.repairs_only, even_out, ..Rules::default() }
    }

    /// The same when something in it is vacant, or is about to be; a look that finds nothing costs no more than that.
    pub(super) fn to_fill(state: &'a State, id: KeyspaceId, outlook: Outlook<'_>) -> Option<Picture<'a>> {
        let vacant = |partition: &Partition| *partition.phase() == Phase::Vacant;
        let waits = state.keyspace(id)?.partitions().iter().any(vacant);
        let freed = || outlook.freed.iter().any(|key| key.keyspace == id);
        (waits || freed()).then(|| Picture::of(state, id, outlook))?
    }

    /// Whether an operator's word takes one of these partitions from its owner.
    pub(super) fn demands_any(&self, mut keys: impl Iterator<Item = PartitionKey>) -> bool {
        let standings = self.candidates.iter().zip(&self.sessions);
        let emptied: BTreeSet<SessionId> = standings
            .filter(|(candidate, _)| candidate.standing.gives_up())
            .map(|(_, session)| session.id())
            .collect();
        let settings = self.keyspace.settings();
        if emptied.is_empty() && settings.is_empty() {
            return false;
        }
        let pinned_to = |key: &PartitionKey| {
            let (worker, _) = settings.get(&key.partition)?.pin.as_ref()?;
            let at = self.candidates.binary_search_by(|candidate| candidate.worker.cmp(worker)).ok()?;
            self.candidates[at].standing.takes().then(|| self.sessions[at].id())
        };
        keys.any(|key| {
            let partition = self.keyspace.partitions().get(key.partition.get() as usize);
            let Some(owner) = partition.and_then(Partition::owner) else { return false };
            emptied.contains(&owner) || pinned_to(&key).is_some_and(|to| to != owner)
        })
    }

    /// Where its partitions stand. Those in `moved` stay with whoever has them.
    pub(super) fn spots(&self, moved: &BTreeMap<PartitionKey, Instant>, outlook: Outlook<'_>) -> Spots {
        let keyspace = self.keyspace;
        let place = |at: usize| u32::try_from(at).ok().map(WorkerIx::new);
        let places = self.sessions.iter().enumerate();
        let by_id: BTreeMap<SessionId, WorkerIx> =
            places.filter_map(|(at, session)| Some((session.id(), place(at)?))).collect();
        let by_name: BTreeMap<&WorkerId, WorkerIx> =
            self.sessions.iter().filter_map(|s| Some((s.worker(), *by_id.get(&s.id())?))).collect();
        let takes = |ix: WorkerIx| self.candidates[ix.get()].standing.takes();
        // A freeze does not stop what has begun.
        let completes = |ix: WorkerIx| takes(ix) || self.candidates[ix.get()].standing.is_frozen();
        let settings = |key: PartitionKey| keyspace.settings().get(&key.partition);
        let stays = |key: PartitionKey| {
            let frozen =
                |set: &PartitionSettings| set.frozen.is_some() && !mutant!("partition-freeze-ignored");
            let cools_down = moved.contains_key(&key) && !mutant!("cool-down-forgotten");
            cools_down || settings(key).is_some_and(frozen)
        };
        // With a lock delay what is freed cools before it is granted.
        let cools = !keyspace.policy().lock_delay().is_zero();
        let floor = self.floor.max(keyspace.floor());

        // An owner that is not ready is not balanced away from. What operators demand it gives up all the same.
        let demanded = |key: PartitionKey, by: WorkerIx| {
            let pin = settings(key).and_then(|set| by_name.get(&set.pin.as_ref()?.0)).copied();
            let pinned_elsewhere = pin.is_some_and(|to| to != by && takes(to));
            pinned_elsewhere || self.candidates[by.get()].standing.gives_up()
        };

        let splitting = splitting::ownerless(keyspace, self.floor, self.repairs_only);
        let mut handed_on = Vec::new();
        let mut spot = |(key, partition): (PartitionKey, &Partition)| {
            let gone = |owner: &SessionId| outlook.expiring.contains(owner) || outlook.freed.contains(&key);
            // When its epochs are used up it is granted to nobody, and must not hold up what is proposed with it.
            let spent = partition.epoch.max(floor).next().is_none();
            let mut avoid = None;
            let vacant = Spot::vacant(why_vacant(partition, partition.owner().is_some()));
            let spot = match partition.phase() {
                Phase::Vacant if spent => Spot::HELD,
                // It is granted when it is split, which is at this look.
                Phase::Vacant | Phase::Cooling(_) if splitting.contains(&key.partition.get()) => Spot::HELD,
                Phase::Draining(drain) if gone(&drain.session) && drain.why == GrantReason::Split => {
                    Spot::HELD
                }
                Phase::Vacant => vacant,
                Phase::Cooling(_) if outlook.freed.contains(&key) && !spent => vacant,
                Phase::Cooling(_) => Spot::HELD,
                Phase::Owned { session, .. } if gone(session) && (cools || spent) => Spot::HELD,
                Phase::Owned { session, .. } if gone(session) => vacant,
                Phase::Draining(drain) if gone(&drain.session) && (cools || spent) => Spot::HELD,
                Phase::Draining(drain) if gone(&drain.session) => {
                    // The move goes on without the owner's release, to where it was going.
                    let owner = by_id.get(&drain.session).copied();
                    match target(drain, &by_name).filter(|to| completes(*to) && owner != Some(*to)) {
                        Some(to) => {
                            handed_on.push((key, to));
                            Spot::in_flight(to)
                        }
                        None => {
                            avoid = owner;
                            vacant
                        }
                    }
                }
                Phase::Owned { session, ready } => match by_id.get(session) {
                    Some(by) if (*ready || demanded(key, *by)) && !stays(key) => Spot::owned(*by),
                    Some(by) => Spot::fixed(*by),
                    None => Spot::HELD,
                },
                Phase::Draining(drain) if mutant!("plan-blind-to-moves") => {
                    by_id.get(&drain.session).map_or(Spot::HELD, |by| Spot::owned(*by))
                }
                Phase::Draining(drain) => match (target(drain, &by_name), by_id.get(&drain.session)) {
                    (Some(to), _) => Spot::in_flight(to),
                    (None, Some(by)) => Spot::fixed(*by),
                    (None, None) => Spot::HELD,
                },
            };
            let setback = partition.setback().and_then(|setback| by_name.get(&setback.worker)).copied();
            let spot = match setback.or(avoid).filter(|_| !mutant!("setback-forgotten")) {
                Some(worker) => spot.avoiding(worker),
                None => spot,
            };
            match pin(partition, settings(key)) {
                Some(worker) => spot.pinned(by_name.get(worker).map_or(Pin::Absent, |ix| Pin::To(*ix))),
                None => spot,
            }
        };
        let spots = keyspace.keys().zip(keyspace.partitions()).map(&mut spot).collect();
        Spots { spots, handed_on }
    }
}

/// Where every partition of a keyspace stands.
pub(super) struct Spots {
    pub(super) spots: Vec<Spot>,
    /// Those whose drain is over, and the targets of their moves.
    pub(super) handed_on: Vec<(PartitionKey, WorkerIx)>,
}

pub(super) fn contains_vacant(spots: &[Spot]) -> bool {
    spots.iter().any(|spot| matches!(spot.standing, Standing::Vacant(_)))
}

/// What a plan may do with a worker.
///
/// One that is suspected, without a connection or about to leave comes first: nobody can tell whether it would let go of
/// anything.
pub(super) fn standing(
    state: &State,
    keyspace: &Keyspace,
    session: &Session,
    absent: &BTreeSet<SessionId>,
) -> WorkerStanding {
    match receive(state, keyspace, session, absent) {
        Ok(()) => WorkerStanding::Takes,
        Err(Unfit::Leaving | Unfit::Suspected | Unfit::Absent) if mutant!("away-ignored") => {
            standing_by_settings(state, keyspace, session.worker(), session.labels())
        }
        Err(Unfit::NotServing | Unfit::Leaving | Unfit::Suspected | Unfit::Absent) => WorkerStanding::Away,
        Err(Unfit::Frozen) => standing_by_settings(state, keyspace, session.worker(), session.labels()),
        Err(Unfit::Ineligible(constraint)) => WorkerStanding::Ineligible(constraint),
        Err(Unfit::Drained) => WorkerStanding::Drained,
        Err(Unfit::Cordoned) => WorkerStanding::Cordoned,
    }
}

/// What a plan may do with a worker that is there.
pub(super) fn standing_by_settings(
    state: &State,
    keyspace: &Keyspace,
    worker: &WorkerId,
    labels: &BTreeMap<String, String>,
) -> WorkerStanding {
    let set = state.worker_settings().get(worker);
    let on = |of: fn(&WorkerSettings) -> bool| set.is_some_and(of);
    if on(|set| set.frozen.is_some()) && !mutant!("worker-freeze-ignored") {
        let out =
            on(WorkerSettings::takes_nothing) || unmet(keyspace.policy().constraints(), labels).is_some();
        if out || mutant!("frozen-stand-in-for-nobody") {
            WorkerStanding::FrozenOut
        } else {
            WorkerStanding::Frozen
        }
    } else if let Some(constraint) = unmet(keyspace.policy().constraints(), labels) {
        WorkerStanding::Ineligible(constraint.clone())
    } else if on(|set| set.drain().is_some()) && !mutant!("drain-ignored") {
        WorkerStanding::Drained
    } else if on(|set| set.cordoned.is_some()) && !mutant!("cordon-ignored") {
        WorkerStanding::Cordoned
    } else {
        WorkerStanding::Takes
    }
}

/// The worker that a partition belongs to: the one it is held for while that is restarted, or the one it is pinned to.
fn pin<'a>(partition: &'a Partition, set: Option<&'a PartitionSettings>) -> Option<&'a WorkerId> {
    if is_held(partition) && !mutant!("hold-for-anybody") {
        return partition.history().last().map(|tenure| &tenure.worker);
    }
    set.and_then(|set| set.pin.as_ref()).map(|(worker, _)| worker).filter(|_| !mutant!("pin-ignored"))
}

/// Whether a partition waits for its last owner, which is being restarted.
pub(super) fn is_held(partition: &Partition) -> bool {
    matches!(partition.phase(), Phase::Cooling(cooling) if cooling.why == CoolingWhy::Hold)
}

/// Why nobody owns a partition, or nobody will in a moment: only a lost owner has it taken away while it has it.
fn why_vacant(partition: &Partition, taken_away: bool) -> Vacancy {
    match partition.setback() {
        _ if partition.history().is_empty() => Vacancy::First,
        _ if taken_away => Vacancy::Failed,
        Some(setback) if setback.error.is_empty() => Vacancy::Returned,
        Some(_) => Vacancy::Failed,
        None => Vacancy::Left,
    }
}

fn target(drain: &Drain, by_name: &BTreeMap<&WorkerId, WorkerIx>) -> Option<WorkerIx> {
    by_name.get(&drain.to).copied()
}
