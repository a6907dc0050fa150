//! Why a partition has no owner, as the leader sees it: for whoever is on call. Nothing is decided here.

use super::Leadership;
use super::picture::{Outlook, Picture, standing_by_settings};
use super::splitting;
use crate::ids::{KeyspaceId, PartitionKey, SessionId};
use crate::placement::{Candidate, Unplaced, WorkerStanding};
use crate::state::{CoolingWhy, Keyspace, Partition, Phase, Session, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Why nobody owns a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ownerless {
    /// No worker may have it.
    NobodyMay(Unplaced),
    /// The keyspace cannot be planned.
    NotPlanned,
    /// Its epochs are used up.
    Spent,
    /// Many sessions ran out together, and repairs are slowed down.
    Braked,
    /// An earlier owner's lease may still run, and after it maybe a lock delay.
    Lease,
    /// The keyspace's lock delay.
    LockDelay,
    /// Its owner's task failed, and it waits for the back-off.
    Backoff,
    /// Its owner's task returned by itself, time and again, and it waits for the back-off.
    Rests,
    /// Its owner is being restarted, and gets it back when it joins.
    Restart,
    /// It is being split.
    Split,
    /// Nothing stands in the way: it is granted at once.
    Granted,
}

impl Ownerless {
    /// One word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Ownerless::NobodyMay(why) => match why {
                Unplaced::NoWorkers => "no_workers",
                Unplaced::AllCordoned => "all_cordoned",
                Unplaced::AllAway => "all_away",
                Unplaced::AllDrained => "all_drained",
                Unplaced::AllFrozen => "all_frozen",
                Unplaced::AllIneligible => "wrong_labels",
                Unplaced::NoneTakes => "nobody_may",
            },
            Ownerless::NotPlanned => "not_planned",
            Ownerless::Spent => "epochs_used_up",
            Ownerless::Braked => "brake",
            Ownerless::Lease => "lease",
            Ownerless::LockDelay => "lock_delay",
            Ownerless::Backoff | Ownerless::Rests => "back_off",
            Ownerless::Restart => "restart",
            Ownerless::Split => "split",
            Ownerless::Granted => "being_granted",
        }
    }
}

/// Why, and what it would take.
impl fmt::Display for Ownerless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ownerless::NobodyMay(why) => return why.fmt(f),
            Ownerless::NotPlanned => "the keyspace cannot be planned: see the reasons of `ringfence status`",
            Ownerless::Spent => "the epochs are used up: create another keyspace",
            Ownerless::Braked => {
                "the brake is on: wait, or `ringfence rebalance release-brake` when the workers are gone for good"
            }
            Ownerless::Lease => "an earlier owner's lease may still run: wait",
            Ownerless::LockDelay => "the keyspace's lock delay: wait",
            Ownerless::Backoff => "the owner's task failed, and it is tried again after a back-off: see its error",
            Ownerless::Rests => {
                "the owner's task returned by itself more than once, and it is tried again after a back-off"
            }
            Ownerless::Restart => "the owner is being restarted: wait for it, or end the cooling",
            Ownerless::Split => "it is being split, and is granted then",
            Ownerless::Granted => "nothing stands in the way: it is granted at once",
        })
    }
}

impl Leadership {
    /// Of the partitions of a keyspace that nobody owns, how many there are for each reason. It costs a look at all.
    pub fn ownerless(&self, now: Instant, state: &State, id: KeyspaceId) -> BTreeMap<Ownerless, u64> {
        let mut reasons = BTreeMap::new();
        let Some(keyspace) = state.keyspace(id) else { return reasons };
        let mut vacant: Option<Vacant> = None;
        for (key, partition) in keyspace.keys().zip(keyspace.partitions()) {
            let why = match partition.phase() {
                Phase::Owned { .. } | Phase::Draining(_) => continue,
                Phase::Cooling(cooling) => waits_for(cooling.why),
                Phase::Vacant => {
                    let vacant = vacant.get_or_insert_with(|| self.vacant(now, state, keyspace));
                    self.why_vacant(now, vacant, key, partition)
                }
            };
            *reasons.entry(why).or_default() += 1;
        }
        reasons
    }

    /// Why nobody owns a partition; `None` when somebody does.
    pub fn ownerless_why(&self, now: Instant, state: &State, key: PartitionKey) -> Option<Ownerless> {
        let (keyspace, partition) = (state.keyspace(key.keyspace)?, state.partition(key)?);
        match partition.phase() {
            Phase::Owned { .. } | Phase::Draining(_) => None,
            Phase::Cooling(cooling) => Some(waits_for(cooling.why)),
            Phase::Vacant => {
                let vacant = self.vacant(now, state, keyspace);
                Some(self.why_vacant(now, &vacant, key, partition))
            }
        }
    }

    /// Of the partitions of a keyspace how many are with workers whose labels do not fit it, when no other may have them,
    /// and why none may: they stay until an operator does something. While one that could take them is only suspected or without a
    /// connection there is nothing to do: it comes back, or its session ends.
    pub fn misplaced(&self, now: Instant, state: &State, id: KeyspaceId) -> Option<(u64, Unplaced)> {
        state.keyspace(id).filter(|keyspace| !keyspace.policy().constraints().is_empty())?;
        let (nobody, nothing, absent) = (BTreeSet::new(), BTreeSet::new(), self.presence.absent(now));
        let outlook = Outlook { absent: &absent, expiring: &nobody, freed: &nothing };
        let picture = Picture::of(state, id, outlook)?;
        let why = Unplaced::of_what_is_owned(&picture.candidates)?;
        let workers = || picture.candidates.iter().zip(&picture.sessions);
        let may_be_back = |(candidate, session): (&Candidate, &&Session)| {
            let by_settings =
                || standing_by_settings(state, picture.keyspace, session.worker(), session.labels());
            candidate.standing == WorkerStanding::Away && !session.withdrawn() && by_settings().takes()
        };
        if workers().any(may_be_back) {
            return None;
        }
        let of_wrong_labels: BTreeSet<SessionId> = workers()
            .filter(|(candidate, _)| matches!(candidate.standing, WorkerStanding::Ineligible(_)))
            .map(|(_, session)| session.id())
            .collect();
        let owners = picture.keyspace.partitions().iter().filter_map(Partition::owner);
        let misplaced = owners.filter(|owner| of_wrong_labels.contains(owner)).count();
        (misplaced > 0).then_some((u64::try_from(misplaced).unwrap_or(u64::MAX), why))
    }

    fn vacant(&self, now: Instant, state: &State, keyspace: &Keyspace) -> Vacant {
        let id = keyspace.id();
        let (nobody, nothing, absent) = (BTreeSet::new(), BTreeSet::new(), self.presence.absent(now));
        let outlook = Outlook { absent: &absent, expiring: &nobody, freed: &nothing };
        let candidates =
            Picture::of(state, id, outlook).map(|picture| picture.candidates).unwrap_or_default();
        // Where no other may have it, what has no owner goes to frozen workers.
        let of =
            |takes: fn(&WorkerStanding) -> bool| candidates.iter().filter(|c| takes(&c.standing)).count();
        let takers = match of(WorkerStanding::takes) {
            0 => of(|standing| *standing == WorkerStanding::Frozen),
            takers => takers,
        };
        let frozen = state.frozen().is_some() || keyspace.frozen().is_some();
        Vacant {
            nobody_may: Unplaced::among(&candidates),
            takers,
            not_planned: self.placing.errors().any(|(failed, _)| failed == id),
            braked: self.placing.braked(now, state),
            splitting: splitting::ownerless(keyspace, state.floor(), frozen),
            spent: state.floor().max(keyspace.floor()).next().is_none(),
        }
    }

    fn why_vacant(
        &self,
        now: Instant,
        vacant: &Vacant,
        key: PartitionKey,
        partition: &Partition,
    ) -> Ownerless {
        if vacant.spent || partition.epoch.next().is_none() {
            Ownerless::Spent
        } else if vacant.splitting.contains(&key.partition.get()) {
            Ownerless::Split
        } else if vacant.not_planned {
            Ownerless::NotPlanned
        } else if let Some(why) = vacant.nobody_may {
            Ownerless::NobodyMay(why)
        } else if self.placing.rests(key, partition, vacant.takers, now) {
            Ownerless::Rests
        } else if vacant.braked {
            Ownerless::Braked
        } else {
            Ownerless::Granted
        }
    }
}

/// What is the same for all vacant partitions of a keyspace.
struct Vacant {
    nobody_may: Option<Unplaced>,
    takers: usize,
    not_planned: bool,
    braked: bool,
    splitting: std::ops::Range<u32>,
    spent: bool,
}

fn waits_for(why: CoolingWhy) -> Ownerless {
    match why {
        CoolingWhy::Lease => Ownerless::Lease,
        CoolingWhy::LockDelay => Ownerless::LockDelay,
        CoolingWhy::Backoff => Ownerless::Backoff,
        CoolingWhy::Hold => Ownerless::Restart,
    }
}
