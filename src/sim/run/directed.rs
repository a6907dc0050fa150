//! What the logs hold of operators' decisions, and what was begun under them: told once each, with the entries between
//! which it happened.

use crate::history::{Fact, What};
use ringfence_core::ids::{Epoch, KeyspaceId, LogIndex, PartitionId, Scope, WorkerId};
use ringfence_core::state::{
    CoolingWhy, GrantReason, Keyspace, PartitionSettings, Phase, PlanStage, State, WorkerSettings,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a leader had decided and not handed to its log yet when it was seen to know something: at most so many entries.
const UNDER_WAY: u64 = 8;

/// What was told so far.
#[derive(Default)]
pub(super) struct Directed {
    facts: BTreeSet<Fact>,
    /// How far the log of a leader was read.
    read: u64,
    /// The end of the longest log.
    top: u64,
    /// The highest epochs of which a move, or a wait, was told.
    moves: BTreeMap<(KeyspaceId, PartitionId), Epoch>,
    waits: BTreeMap<(KeyspaceId, PartitionId), Epoch>,
    /// Partitions of which was told that they were split from others.
    splits: BTreeSet<(KeyspaceId, PartitionId)>,
}

impl Directed {
    /// Looks at what one node has applied; `before` is how far it had come when it was looked at last. A leader knows
    /// what is to be done: what others have applied is older.
    pub(super) fn look(
        &mut self,
        state: &State,
        before: u64,
        (leads, last_log): (bool, Option<LogIndex>),
        mut record: impl FnMut(What),
    ) {
        self.top = self.top.max(last_log.map_or(0, LogIndex::get)).max(state.applied().get());
        if leads && state.applied().get() > self.read {
            let now = facts(state);
            let (after, known) = (self.read, self.top + UNDER_WAY);
            for (fact, holds) in self.facts.difference(&now).map(|fact| (fact, false)) {
                record(What::Holds { fact: fact.clone(), holds, after, known });
            }
            for (fact, holds) in now.difference(&self.facts).map(|fact| (fact, true)) {
                record(What::Holds { fact: fact.clone(), holds, after, known });
            }
            (self.facts, self.read) = (now, state.applied().get());
        }
        for keyspace in state.keyspaces() {
            self.look_at(state, keyspace, before, &mut record);
        }
    }

    fn look_at(&mut self, state: &State, keyspace: &Keyspace, before: u64, record: &mut impl FnMut(What)) {
        let worker = |session| state.session(session).map(|session| session.worker().clone());
        for (partition, number) in keyspace.partitions().iter().zip((0..).map(PartitionId::new)) {
            let key = (keyspace.id(), number);
            let is_new = |told: &BTreeMap<_, Epoch>, epoch| told.get(&key).is_none_or(|told| *told < epoch);
            let scope = || Scope::Partition(keyspace.name().clone(), number);
            if let Some(born) = partition.born().filter(|_| self.splits.insert(key)) {
                let parent = Scope::Partition(keyspace.name().clone(), born.parent);
                record(What::Split { parent, child: scope(), epoch: born.epoch });
            }
            match (partition.phase(), partition.epoch()) {
                (Phase::Draining(drain), Some(epoch)) if is_new(&self.moves, epoch) => {
                    let Some(from) = worker(drain.session) else { continue };
                    self.moves.insert(key, epoch);
                    record(What::MoveBegan {
                        scope: scope(),
                        epoch,
                        from,
                        to: drain.to.clone(),
                        asked: drain.why == GrantReason::Operator,
                        why: format!("{:?}", drain.why),
                        after: before,
                        seen: state.applied().get(),
                    });
                }
                (Phase::Cooling(cooling), Some(epoch))
                    if cooling.why == CoolingWhy::Hold && is_new(&self.waits, epoch) =>
                {
                    let Some(last) = partition.history().last() else { continue };
                    self.waits.insert(key, epoch);
                    let for_ms = u64::try_from(cooling.then.as_millis()).unwrap_or(u64::MAX);
                    record(What::Held { scope: scope(), epoch, worker: last.worker.clone(), for_ms });
                }
                _ => {}
            }
        }
    }
}

/// Everything that a state says of this.
fn facts(state: &State) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::new();
    facts.extend(state.frozen().map(|_| Fact::ClusterFrozen));
    for keyspace in state.keyspaces() {
        let name = keyspace.name();
        facts.extend(keyspace.frozen().map(|_| Fact::KeyspaceFrozen { keyspace: name.clone() }));
        facts.extend(keyspace.split().map(|_| Fact::Splitting { keyspace: name.clone() }));
        for (partition, set) in keyspace.settings() {
            of_partition(&Scope::Partition(name.clone(), *partition), set, &mut facts);
        }
        let here = state.sessions().filter(|s| s.keyspaces().contains(&keyspace.id()) && !s.withdrawn());
        facts.extend(here.map(|session| Fact::Serves {
            worker: session.worker().clone(),
            session: session.id(),
            keyspace: name.clone(),
        }));
    }
    for (worker, set) in state.worker_settings() {
        of_worker(worker, set, &mut facts);
    }
    let running = state.plans().filter(|plan| plan.stage == PlanStage::Running);
    facts.extend(running.filter_map(|plan| {
        let keyspace = state.keyspace(plan.moves.first()?.partition.keyspace)?.name().clone();
        Some(Fact::PlanRuns { plan: plan.id.get(), keyspace })
    }));
    facts
}

fn of_partition(scope: &Scope, set: &PartitionSettings, facts: &mut BTreeSet<Fact>) {
    facts.extend(set.frozen.map(|_| Fact::PartitionFrozen { scope: scope.clone() }));
    let pin = set.pin.as_ref();
    facts.extend(pin.map(|(worker, _)| Fact::Pinned { scope: scope.clone(), worker: worker.clone() }));
}

fn of_worker(worker: &WorkerId, set: &WorkerSettings, facts: &mut BTreeSet<Fact>) {
    facts.extend(set.drain().map(|_| Fact::Drained { worker: worker.clone() }));
    facts.extend(set.cordoned.map(|_| Fact::Cordoned { worker: worker.clone() }));
    facts.extend(set.frozen.map(|_| Fact::WorkerFrozen { worker: worker.clone() }));
}
