//! The grants of what has no owner.

use super::resting::HowLost;
use super::{ERROR_PACE, Placing};
use crate::ids::{PartitionKey, SessionId};
use crate::lead::brake::BRAKE_PACE;
use crate::lead::budget::Budget;
use crate::lead::loads::{Loads, Weights};
use crate::lead::picture::{Outlook, Picture, Spots, contains_vacant};
use crate::placement::Spot;
use crate::state::{Command, CoolingWhy, EndReason, GrantReason, Partition, Phase, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

impl Placing {
    /// The grants to propose now, by partition: of those that are vacant, and of those that are about to be.
    pub fn grants(
        &mut self,
        now: Instant,
        state: &State,
        outlook: Outlook<'_>,
        loads: &Loads,
        budget: &mut Budget,
    ) -> BTreeMap<PartitionKey, Command> {
        self.losses.forget_old(now);
        if std::mem::take(&mut self.fresh) {
            for keyspace in state.keyspaces() {
                self.vacant.add(keyspace.id(), now);
                self.unbalanced.add(keyspace.id(), now);
            }
        }
        let mut look = self.vacant.take(now);
        look.extend(outlook.freed.iter().map(|key| key.keyspace));
        if look.is_empty() {
            return BTreeMap::new();
        }

        let braked = self.brake_with(now, state, outlook.expiring.len()).is_some();
        let lost = state.ended.iter().filter(|ended| ended.why != EndReason::Left);
        let lost = lost.map(|ended| ended.session).collect();
        let commands = BTreeMap::new();
        let mut grants = Grants { now, state, braked, lost, budget, commands };
        for id in look {
            let Some(picture) = Picture::to_fill(state, id, outlook) else { continue };
            let Spots { spots, handed_on } = picture.spots(&self.moved, outlook);
            let before = grants.commands.len();
            for (key, to) in handed_on {
                grants.add(key, picture.sessions[to.get()].id(), None);
            }
            if contains_vacant(&spots) {
                let weights = loads.weights(now, self.settings.measure_every, picture.keyspace);
                self.fill(now, &picture, &spots, &weights, &mut grants);
            }
            if grants.commands.len() > before {
                self.vacant.add(id, now);
            }
        }
        grants.commands
    }

    /// Grants what is vacant in one keyspace, as far as the brake allows.
    fn fill(
        &mut self,
        now: Instant,
        picture: &Picture<'_>,
        spots: &[Spot],
        weights: &Weights,
        grants: &mut Grants<'_>,
    ) {
        let id = picture.keyspace.id();
        let Some(moves) = self.planner.plan(picture, spots, weights) else {
            return self.vacant.add(id, now + ERROR_PACE);
        };
        let mut room = if grants.braked { grants.budget.flights(picture.keyspace, now) } else { usize::MAX };
        if room == 0 && self.losses.lets_one_through(id, now) {
            room = 1;
        }
        for planned in moves.iter().filter(|m| m.reason.is_repair()) {
            let key = PartitionKey { keyspace: id, partition: planned.partition };
            let Some(partition) = grants.state.partition(key) else { continue };
            let target = picture.sessions[planned.to.get()];
            let last = partition.history().last().map(|tenure| tenure.session);
            let lives = last.is_some_and(|last| grants.state.session(last).is_some());
            if let Some(until) = self.resting.until(key, partition, target.worker(), lives, now) {
                self.vacant.add(id, until);
            } else if room == 0 {
                self.vacant.add(id, now + BRAKE_PACE);
                break;
            } else {
                grants.add(key, target.id(), self.resting.how(key));
                room -= 1;
            }
        }
    }
}

/// The grants of one look.
struct Grants<'a> {
    now: Instant,
    state: &'a State,
    braked: bool,
    /// Sessions that ended without having left.
    lost: BTreeSet<SessionId>,
    budget: &'a mut Budget,
    commands: BTreeMap<PartitionKey, Command>,
}

impl Grants<'_> {
    /// Why nobody owns it, or why it is taken from its owner in this entry, as the history tells it. How it was `freed` is
    /// known when its last owner's session went on then: a setback may also be one of an owner before, or of a task before.
    fn why(&self, partition: &Partition, to: SessionId, freed: Option<HowLost>) -> GrantReason {
        let Some(last) = partition.history().last() else {
            return if partition.born().is_some() { GrantReason::Split } else { GrantReason::First };
        };
        let returns = || self.state.session(to).is_some_and(|session| *session.worker() == last.worker);
        match partition.phase() {
            Phase::Owned { .. } | Phase::Draining(_) => GrantReason::Failover,
            Phase::Cooling(cooling) => match cooling.why {
                CoolingWhy::Lease | CoolingWhy::LockDelay => GrantReason::Failover,
                CoolingWhy::Hold if returns() => GrantReason::Returned,
                CoolingWhy::Hold | CoolingWhy::Backoff => GrantReason::Vacated,
            },
            Phase::Vacant if freed == Some(HowLost::Taken) => GrantReason::Failover,
            Phase::Vacant if partition.setback().is_some() && freed.is_some() => GrantReason::Vacated,
            Phase::Vacant if self.lost.contains(&last.session) => GrantReason::Failover,
            Phase::Vacant => GrantReason::Vacated,
        }
    }

    fn add(&mut self, key: PartitionKey, to: SessionId, freed: Option<HowLost>) {
        let found = self.state.keyspace(key.keyspace).zip(self.state.partition(key));
        let Some((keyspace, partition)) = found else { return };
        self.budget.granted(keyspace, key, self.now);
        let why = self.why(partition, to, freed);
        self.commands.insert(key, Command::Grant { partition: key, replaces: partition.epoch(), to, why });
    }
}
