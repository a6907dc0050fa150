//! The planned moves that begin now.

use super::{ERROR_PACE, MAX_UNSETTLED, Placing};
use crate::ids::{LogIndex, PartitionKey, SessionId};
use crate::lead::MAX_COMMANDS;
use crate::lead::budget::Budget;
use crate::lead::loads::Loads;
use crate::lead::picture::{Outlook, Picture, Spots};
use crate::mutant;
use crate::placement::{Candidate, Newly, PlannedMove, Reason};
use crate::state::{Command, GrantReason, Partition, State};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

impl Placing {
    /// The moves to begin now, within each keyspace's budget and its bound on moves in a minute.
    ///
    /// What an operator demands, by a drain, a pin or a label, is done also where balancing is not, and in the midst of a
    /// split, which balancing waits for. Nothing is done where it is frozen.
    pub fn moves(
        &mut self,
        now: Instant,
        state: &State,
        absent: &BTreeSet<SessionId>,
        loads: &Loads,
        budget: &mut Budget,
    ) -> Vec<Vec<Command>> {
        let for_too_long = now.since(self.unsettled_from) >= self.settings.settle * MAX_UNSETTLED
            && !mutant!("unsettled-for-ever");
        if !self.settled(now) && !for_too_long {
            return Vec::new();
        }
        let look = self.unbalanced.take(now);
        if look.is_empty() {
            return Vec::new();
        }
        self.unsettled_from = now;
        self.moved.retain(|_, at| now.since(*at) < self.settings.cool_down);
        let (nobody, nothing) = (BTreeSet::new(), BTreeSet::new());
        let outlook = Outlook { absent, expiring: &nobody, freed: &nothing };
        let mut drains: BTreeMap<Option<LogIndex>, Vec<Command>> = BTreeMap::new();
        for id in look {
            let Some(picture) = Picture::of(state, id, outlook) else { continue };
            let policy = picture.keyspace.policy();
            // Else what is in flight changes by an event, which brings the keyspace back here.
            if let Some(opens) = budget.opens(picture.keyspace, now) {
                self.unbalanced.add(id, opens);
            }
            // Without room only what is in flight already may begin another move: what its owner does not get ready.
            let full = budget.moves(picture.keyspace, now) == 0;
            if full && !picture.demands_any(budget.loading(picture.keyspace, now)) {
                continue;
            }
            let picture = picture.with_news(self.news.get(&id));
            let Spots { spots, .. } = picture.spots(&self.moved, outlook);
            let weights = loads.weights(now, self.settings.measure_every, picture.keyspace);
            if let Some(until) = weights.waits_until {
                self.unbalanced.add(id, until);
            }
            let Some(moves) = self.planner.plan(&picture, &spots, &weights) else {
                self.unbalanced.add(id, now + ERROR_PACE);
                continue;
            };
            let cooled_down = self.moved.iter().filter(|(key, _)| key.keyspace == id);
            if let Some(at) = cooled_down.map(|(_, at)| *at + self.settings.cool_down).min() {
                self.unbalanced.add(id, at);
            }
            if !moves.iter().any(|planned| planned.reason.is_balance()) && weights.waits_until.is_none() {
                self.news.remove(&id);
            }
            let balance = policy.balance() || mutant!("manual-balanced");
            // The worker of a partition gets both halves: until all are split, who has one early has more than its share,
            // and what it gave away would come back to it.
            let balance = balance && picture.keyspace.split().is_none();
            let demanded = |m: &PlannedMove| !m.reason.is_balance() && !mutant!("drain-waits-for-balance");
            let wanted = |m: &&PlannedMove| !m.reason.is_repair() && (balance || demanded(m));
            for planned in moves.iter().filter(wanted) {
                let key = PartitionKey { keyspace: id, partition: planned.partition };
                let Some(epoch) = state.partition(key).and_then(Partition::epoch) else { continue };
                match budget.has_room_for(picture.keyspace, key, now) {
                    true => {}
                    false if full => continue,
                    false => break,
                }
                self.unbalanced.add(id, now);
                budget.begins(picture.keyspace, key, now);
                let directive = directive(state, &picture, key, planned);
                drains.entry(directive).or_default().push(Command::Drain {
                    partition: key,
                    epoch,
                    to: picture.sessions[planned.to.get()].worker().clone(),
                    deadline: policy.drain_deadline(),
                    why: grant_reason(planned.reason),
                });
            }
        }
        let mut entries = Vec::new();
        for (directive, drains) in drains {
            let under = directive.map(|directive| Command::Under { directive });
            for part in drains.chunks(MAX_COMMANDS - usize::from(under.is_some())) {
                entries.push(under.iter().chain(part).cloned().collect());
            }
        }
        entries
    }
}

/// The directive that a planned move follows from.
fn directive(
    state: &State,
    picture: &Picture<'_>,
    key: PartitionKey,
    planned: &PlannedMove,
) -> Option<LogIndex> {
    let weighed = |worker: &Candidate| {
        let settings = state.worker_settings().get(&worker.worker)?;
        settings.weight.filter(|_| worker.newly == Some(Newly::Reweighted)).map(|(_, by)| by)
    };
    match planned.reason {
        Reason::Weight => {
            let places = [Some(planned.to), planned.from].into_iter().flatten();
            places.filter_map(|place| picture.candidates.get(place.get())).find_map(weighed)
        }
        Reason::Pin => picture.keyspace.settings().get(&key.partition)?.pin.as_ref().map(|(_, by)| *by),
        Reason::Drain => {
            let owner = state.session(state.partition(key)?.owner()?)?;
            state.worker_settings().get(owner.worker())?.drain()
        }
        _ => None,
    }
}

/// What the history says of a planned move.
fn grant_reason(why: Reason) -> GrantReason {
    match why {
        Reason::Pin => GrantReason::Pin,
        Reason::Drain => GrantReason::Drain,
        Reason::Label => GrantReason::Label,
        Reason::Join => GrantReason::Join,
        Reason::Weight => GrantReason::Weight,
        Reason::Zone => GrantReason::Zone,
        Reason::Load => GrantReason::Load,
        Reason::Balance => GrantReason::Balance,
        // Repairs are no planned moves, and have their reasons from the history.
        Reason::First | Reason::Leave | Reason::Failure | Reason::Returned => GrantReason::Vacated,
    }
}
