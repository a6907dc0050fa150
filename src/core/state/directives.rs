//! Commands that carry out what operators decided.

use super::State;
use super::apply::Change;
use super::directive::{
    DIRECTIVES_LEN, Directive, MAX_DIRECTIVE_BYTES, MAX_PARTITION_SETTINGS, MAX_PARTITION_WEIGHT,
    MAX_WORKER_SETTINGS, PartitionChange, PartitionSettings, Subject, WorkerChange, WorkerSettings, switched,
};
use super::outcome::{Event, Outcome, Refused};
use super::partition::Partition;
use super::plans::PlanStage;
use super::text::cut;
use super::undo::Undo;
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, WorkerId};
use crate::placement::unmet;

impl State {
    /// The drain of this worker that lasts until it joins, by its directive.
    pub fn drain_until_join(&self, worker: &WorkerId) -> Option<LogIndex> {
        self.worker_settings.get(worker)?.drained_until_join
    }

    /// What an operator froze that keeps this partition from being moved to this worker.
    pub fn freeze_of_move(&self, key: PartitionKey, to: &WorkerId) -> Option<Subject> {
        let keyspace = self.keyspaces.get(&key.keyspace);
        let owner =
            self.partition(key).and_then(Partition::owner).and_then(|owner| self.sessions.get(&owner));
        let is_frozen =
            |worker: &WorkerId| self.worker_settings.get(worker).is_some_and(|w| w.frozen.is_some());
        if self.frozen.is_some() {
            Some(Subject::Cluster)
        } else if keyspace.is_some_and(|keyspace| keyspace.frozen.is_some()) {
            Some(Subject::Keyspace(key.keyspace))
        } else if keyspace
            .and_then(|k| k.settings.get(&key.partition))
            .is_some_and(|set| set.frozen.is_some())
        {
            Some(Subject::Partition(key))
        } else {
            let workers = owner.map(|owner| &owner.worker).into_iter().chain([to]);
            workers.filter(|worker| is_frozen(worker)).map(|worker| Subject::Worker(worker.clone())).next()
        }
    }

    /// The worker that a partition is pinned to, as far as what is set tells that it may have it: it has a session that serves
    /// the keyspace and is not about to leave, its labels fit, and it is neither frozen, drained nor cordoned. Whether it
    /// renews its lease is another matter.
    pub fn pin_of(&self, key: PartitionKey) -> Option<&WorkerId> {
        let keyspace = self.keyspaces.get(&key.keyspace)?;
        let (worker, _) = keyspace.settings.get(&key.partition)?.pin.as_ref()?;
        let session = self.session_of(worker)?;
        let set = self.worker_settings.get(worker);
        let takes = set.is_none_or(|set| set.frozen.is_none() && !set.takes_nothing());
        let may = takes
            && session.keyspaces.contains(&key.keyspace)
            && !session.withdrawn
            && unmet(keyspace.policy.constraints(), &session.labels).is_none();
        may.then_some(worker)
    }
}

impl Change<'_> {
    /// Remembers a directive. The commands after it in the entry are carried out in its name.
    pub(super) fn direct(&mut self, subject: &Subject, by: &str, what: &str, reason: &str) -> Outcome {
        let forgotten = (self.state.directives.len() == DIRECTIVES_LEN)
            .then(|| self.state.directives.pop_front())
            .flatten();
        self.journal.push(Undo::Directed(forgotten));
        let text = |text| cut(text, MAX_DIRECTIVE_BYTES).to_owned();
        self.state.directives.push_back(Directive {
            at: self.index,
            unix_ms: self.unix_ms,
            subject: subject.clone(),
            by: text(by),
            what: text(what),
            reason: text(reason),
        });
        self.directive = Some(self.index);
        Outcome::Done
    }

    /// The commands after it in the entry are carried out in the name of an earlier directive, which may have been
    /// forgotten since. Nothing more is done in the name of a plan that was stopped, or that has not started.
    pub(super) fn under(&mut self, directive: LogIndex) -> Result<Outcome, Refused> {
        if directive == LogIndex::new(0) || directive >= self.index {
            return Err(Refused::NoSuchDirective(directive));
        }
        let plan = self.state.plans.iter().find(|plan| plan.id == directive);
        if plan.is_some_and(|plan| plan.stage != PlanStage::Running) {
            return Err(Refused::PlanNotRunning(directive));
        }
        self.directive = Some(directive);
        Ok(Outcome::Done)
    }

    pub(super) fn set_worker(
        &mut self,
        worker: &WorkerId,
        change: &WorkerChange,
    ) -> Result<Outcome, Refused> {
        let before = self.state.worker_settings.get(worker).cloned();
        let after = before.clone().unwrap_or_default().with(change, self.index);
        if before.is_none()
            && after != WorkerSettings::default()
            && self.state.worker_settings.len() >= MAX_WORKER_SETTINGS
        {
            let what = "the number of workers with settings";
            return Err(Refused::Limit { what, bound: MAX_WORKER_SETTINGS as u64 });
        }
        Ok(self.replace_settings(worker, before, after))
    }

    /// Ends a drain that was to last until the worker joins.
    pub(super) fn end_drain_until_join(&mut self, worker: &WorkerId) {
        let Some(before) = self.state.worker_settings.get(worker).cloned() else { return };
        let after = WorkerSettings { drained_until_join: None, ..before.clone() };
        self.replace_settings(worker, Some(before), after);
    }

    fn replace_settings(
        &mut self,
        worker: &WorkerId,
        before: Option<WorkerSettings>,
        after: WorkerSettings,
    ) -> Outcome {
        let settings = before.clone().unwrap_or_default();
        if after == settings {
            return Outcome::Unchanged;
        }
        let weight = after.weight() != settings.weight();
        if after == WorkerSettings::default() {
            self.state.worker_settings.remove(worker);
        } else {
            self.state.worker_settings.insert(worker.clone(), after);
        }
        self.journal.push(Undo::WorkerSettings(worker.clone(), before));
        self.events.push(Event::WorkerSet { worker: worker.clone(), weight });
        Outcome::Done
    }

    /// Forgets what was set about a worker that is gone for good.
    pub(super) fn forget_worker(&mut self, worker: &WorkerId) -> Result<Outcome, Refused> {
        if let Some(session) = self.state.workers.get(worker) {
            return Err(Refused::WorkerLives { worker: worker.clone(), session: *session });
        }
        let Some(before) = self.state.worker_settings.remove(worker) else { return Ok(Outcome::Unchanged) };
        let weight = before.weight.is_some();
        self.journal.push(Undo::WorkerSettings(worker.clone(), Some(before)));
        self.events.push(Event::WorkerSet { worker: worker.clone(), weight });
        Ok(Outcome::Done)
    }

    pub(super) fn set_partition(
        &mut self,
        key: PartitionKey,
        change: &PartitionChange,
    ) -> Result<Outcome, Refused> {
        if let Some(Some(weight)) = change.weight
            && !(1..=MAX_PARTITION_WEIGHT).contains(&weight)
        {
            return Err(Refused::PartitionWeight(weight));
        }
        let by = self.index;
        self.state.partition(key).ok_or(Refused::NoSuchPartition(key))?;
        let Some(keyspace) = self.state.keyspaces.get_mut(&key.keyspace) else {
            return Err(Refused::NoSuchPartition(key));
        };
        let before = keyspace.settings.get(&key.partition).cloned();
        let settings = before.clone().unwrap_or_default();
        let after = settings.with(change, by);
        if after == settings {
            return Ok(Outcome::Unchanged);
        }
        if after == PartitionSettings::default() {
            keyspace.settings.remove(&key.partition);
        } else {
            if before.is_none() && keyspace.settings.len() >= MAX_PARTITION_SETTINGS {
                let what = "the number of a keyspace's partitions with settings";
                return Err(Refused::Limit { what, bound: MAX_PARTITION_SETTINGS as u64 });
            }
            keyspace.settings.insert(key.partition, after);
        }
        self.journal.push(Undo::PartitionSettings(key, before));
        self.events.push(Event::PartitionSet(key));
        Ok(Outcome::Done)
    }

    /// Stops or lets go on all planned moves of a keyspace, or of all keyspaces.
    pub(super) fn freeze(&mut self, keyspace: Option<KeyspaceId>, frozen: bool) -> Result<Outcome, Refused> {
        let by = self.index;
        let slot = self.freeze_slot(keyspace)?;
        let before = *slot;
        let after = switched(before, Some(frozen), by);
        if before == after {
            return Ok(Outcome::Unchanged);
        }
        *slot = after;
        self.journal.push(Undo::Frozen(keyspace, before));
        self.events.push(Event::FreezeSet(keyspace));
        Ok(Outcome::Done)
    }

    fn freeze_slot(&mut self, keyspace: Option<KeyspaceId>) -> Result<&mut Option<LogIndex>, Refused> {
        match keyspace {
            None => Ok(&mut self.state.frozen),
            Some(id) => {
                let keyspace = self.state.keyspaces.get_mut(&id).ok_or(Refused::NoSuchKeyspace(id))?;
                Ok(&mut keyspace.frozen)
            }
        }
    }
}
