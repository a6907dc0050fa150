//! What has become of a plan's move, as things are now.
//!
//! The plan itself remembers that a move has begun, and not how it ended: that is the partition's affair. Here the two are
//! held against each other, for whoever waits for a plan, shows it or undoes it.

use super::State;
use super::partition::{Partition, Phase, Tenure};
use super::plans::{ApprovedPlan, PlanMove, PlanStep, SkipReason};
use crate::ids::WorkerId;

/// What has become of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// It has not begun.
    Waiting,
    /// It was passed over.
    Skipped(SkipReason),
    /// Its partition drains or waits for its next owner, or that one is not ready.
    Moving,
    /// Its target has the partition.
    There,
    /// Another has the partition, or nobody.
    Elsewhere {
        /// Who has it.
        owner: Option<WorkerId>,
        /// Who got it when the move ended, while that is remembered.
        first: Option<WorkerId>,
    },
}

impl State {
    /// What has become of a plan's move.
    pub fn course(&self, planned: &PlanMove) -> Course {
        match planned.step {
            PlanStep::Waiting => return Course::Waiting,
            PlanStep::Skipped(why) => return Course::Skipped(why),
            PlanStep::Begun => {}
        }
        let Some(partition) = self.partition(planned.partition) else {
            return Course::Elsewhere { owner: None, first: None };
        };
        if partition.last_grant().is_none_or(|last| last.epoch <= planned.epoch) {
            return Course::Moving;
        }
        let next = partition.next_after(planned);
        let is_last = next.is_some() && next == partition.last_grant();
        let owner = partition.owner().and_then(|owner| self.session(owner)).map(|owner| owner.worker.clone());
        match partition.phase {
            Phase::Owned { ready: false, .. } if is_last => Course::Moving,
            Phase::Owned { .. } if owner.as_ref() == Some(&planned.to) => Course::There,
            _ => Course::Elsewhere { owner, first: next.map(|next| next.worker.clone()) },
        }
    }

    /// How many of a plan's moves have begun and not ended.
    pub fn moving(&self, plan: &ApprovedPlan) -> usize {
        let begun = plan.moves.iter().filter(|planned| planned.step == PlanStep::Begun);
        begun.filter(|planned| self.course(planned) == Course::Moving).count()
    }
}

impl Partition {
    fn last_grant(&self) -> Option<&Tenure> {
        self.history.last()
    }

    /// The grant that followed the epoch that a move ends, while it is remembered.
    pub(super) fn next_after(&self, planned: &PlanMove) -> Option<&Tenure> {
        let place = self.history.iter().position(|tenure| tenure.epoch == planned.epoch)?;
        self.history.get(place + 1)
    }
}
