//! What operators decided, as parts.

use super::check::{Check, PartsError, ascending, bound};
use crate::ids::{KeyspaceId, LogIndex, PartitionId, PartitionKey, WorkerId};
use crate::placement::PartitionCount;
use crate::state::directive::{
    DIRECTIVES_LEN, Directive, MAX_DIRECTIVE_BYTES, MAX_PARTITION_SETTINGS, MAX_PARTITION_WEIGHT,
    MAX_WORKER_SETTINGS, PartitionSettings, WorkerSettings,
};
use crate::state::plans::{ApprovedPlan, MAX_PLAN_MOVES, PLANS_LEN, PlanStage, PlanStep};
use std::collections::{BTreeMap, VecDeque};

impl Check {
    /// A directive may have been forgotten, but not be of an entry to come.
    pub(super) fn directed(&self, by: Option<LogIndex>) -> Result<(), PartsError> {
        by.map_or(Ok(()), |at| self.applied("a directive", at))
    }

    pub(super) fn directives(&self, parts: Vec<Directive>) -> Result<VecDeque<Directive>, PartsError> {
        bound("the number of directives remembered", parts.len(), DIRECTIVES_LEN)?;
        if !parts.is_sorted_by_key(|directive| directive.at) {
            return Err(PartsError::Order { what: "the directives" });
        }
        for directive in &parts {
            self.directed(Some(directive.at))?;
            for text in [&directive.by, &directive.what, &directive.reason] {
                bound("the length of a directive's text", text.len(), MAX_DIRECTIVE_BYTES)?;
            }
        }
        Ok(parts.into())
    }

    pub(super) fn worker_settings(
        &self,
        parts: Vec<(WorkerId, WorkerSettings)>,
    ) -> Result<BTreeMap<WorkerId, WorkerSettings>, PartsError> {
        bound("the number of workers with settings", parts.len(), MAX_WORKER_SETTINGS)?;
        ascending("the workers with settings", parts.iter().map(|(worker, _)| worker))?;
        for (worker, settings) in &parts {
            if *settings == WorkerSettings::default() {
                return Err(PartsError::NothingSet { what: "worker", name: worker.to_string() });
            }
            let weighed = settings.weight.map(|(_, by)| by);
            [settings.drained, settings.drained_until_join, settings.cordoned, settings.frozen, weighed]
                .into_iter()
                .try_for_each(|by| self.directed(by))?;
        }
        Ok(parts.into_iter().collect())
    }

    pub(super) fn partition_settings(
        &self,
        keyspace: KeyspaceId,
        count: PartitionCount,
        parts: Vec<(PartitionId, PartitionSettings)>,
    ) -> Result<BTreeMap<PartitionId, PartitionSettings>, PartsError> {
        bound("the number of partitions with settings", parts.len(), MAX_PARTITION_SETTINGS)?;
        ascending("the partitions with settings", parts.iter().map(|(partition, _)| *partition))?;
        for (partition, settings) in &parts {
            let wrong = |why| {
                Err(PartsError::Partition {
                    partition: PartitionKey { keyspace, partition: *partition },
                    why,
                })
            };
            if partition.get() >= count.get() {
                return wrong("it has settings, and is not there");
            }
            if *settings == PartitionSettings::default() {
                return wrong("it has settings in which nothing is set");
            }
            if settings.weight().is_some_and(|weight| !(1..=MAX_PARTITION_WEIGHT).contains(&weight)) {
                return wrong("its weight is out of bounds");
            }
            self.directed(settings.frozen)?;
            self.directed(settings.pin.as_ref().map(|(_, by)| *by))?;
            self.directed(settings.weight.map(|(_, by)| by))?;
        }
        Ok(parts.into_iter().collect())
    }

    pub(super) fn plans(&self, parts: Vec<ApprovedPlan>) -> Result<VecDeque<ApprovedPlan>, PartsError> {
        let started = parts.iter().filter(|plan| plan.stage != PlanStage::Open).count();
        bound("the number of plans remembered", started, PLANS_LEN)?;
        ascending("the plans", parts.iter().map(|plan| plan.id))?;
        let under_way = |plan: &&ApprovedPlan| matches!(plan.stage, PlanStage::Open | PlanStage::Running);
        if parts.iter().rev().skip(1).any(|plan| under_way(&plan)) {
            return Err(PartsError::Order { what: "the plans under way" });
        }
        for plan in &parts {
            self.directed(Some(plan.id))?;
            self.directed(plan.undoes)?;
            if plan.given.as_ref().is_some_and(|given| given.at != plan.id) {
                return Err(PartsError::Order { what: "the directives of plans" });
            }
            let given = plan.given.iter().flat_map(|given| [&given.by, &given.what, &given.reason]);
            for text in given {
                bound("the length of a directive's text", text.len(), MAX_DIRECTIVE_BYTES)?;
            }
            bound("the number of a plan's moves", plan.size as usize, MAX_PLAN_MOVES as usize)?;
            bound("the number of a plan's moves in the log", plan.moves.len(), plan.size as usize)?;
            ascending("the moves of a plan", plan.moves.iter().map(|planned| planned.partition))?;
            let waiting = plan.moves.iter().filter(|planned| planned.step == PlanStep::Waiting).count();
            let whole = plan.moves.len() == plan.size as usize;
            let agrees = plan.waiting as usize == waiting
                && match plan.stage {
                    PlanStage::Open => !whole && waiting == plan.moves.len(),
                    PlanStage::Running => whole && waiting > 0,
                    PlanStage::Done => whole && waiting == 0,
                    PlanStage::Cancelled => true,
                };
            if !agrees {
                return Err(PartsError::Order { what: "the steps of a plan" });
            }
        }
        Ok(parts.into())
    }
}
