//! A plan as it would be: what moves, why, and how even it is before and after.

use super::approved::{Proposal, ProposedMove};
use super::explain::worker_or_none;
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::{InvalidField, balance_by_from_wire, checked};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, Revision, WorkerId};
use ringfence_core::placement::Weight;
use ringfence_core::state::BalanceBy;
use std::collections::BTreeMap;

/// Something to suppose: how would the plan be, if it were so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIf {
    /// A worker more, which serves the keyspace.
    Add {
        /// Its name, which no worker has that has a session.
        worker: WorkerId,
        /// Its weight.
        weight: Weight,
        /// What it would say of itself, such as its `zone`.
        labels: BTreeMap<String, String>,
    },
    /// A worker that is gone.
    Remove(WorkerId),
    /// Another weight for a worker.
    Weigh {
        /// The worker.
        worker: WorkerId,
        /// Its weight.
        weight: Weight,
    },
}

/// The plan for a keyspace. Nothing is changed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The keyspace.
    pub keyspace: KeyspaceName,
    /// The history that the revision belongs to: a restored cluster has another.
    pub lineage: u64,
    /// The map that it was made from.
    pub revision: Revision,
    /// How far apart the workers are: the largest less the smallest of what each holds above the whole part of its
    /// share, in partitions, or in weight when partitions have weights.
    pub spread: BeforeAfter,
    /// The same of zones.
    pub zone_spread: BeforeAfter,
    /// Each worker, by name.
    pub workers: Vec<PlanWorker>,
    /// Each reason there is, and how many moves have it.
    pub reasons: Vec<(String, u32)>,
    /// What could not be done, a sentence each, escaped.
    pub obstacles: Vec<String>,
    /// How many more obstacles there are.
    pub more_obstacles: u32,
    /// It answers a "what if".
    pub supposed: bool,
    /// What it evens out.
    pub balanced_by: BalanceBy,
    /// The moves, by partition.
    pub moves: Vec<PlannedMove>,
}

/// A number as it is, and as it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BeforeAfter {
    /// As it is.
    pub before: u64,
    /// After the plan.
    pub after: u64,
}

/// A worker of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanWorker {
    /// Its name.
    pub worker: WorkerId,
    /// Its zone; may be empty. Escaped.
    pub zone: String,
    /// Its weight.
    pub weight: u32,
    /// `takes`, `cordoned`, `away`, `drained`, `frozen`, or the label that is in the way. Escaped.
    pub standing: String,
    /// What it holds, in partitions, or in weight when partitions have weights.
    pub holds: BeforeAfter,
    /// Its share of that, rounded up; 0 when it takes none.
    pub share: u64,
}

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedMove {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that the move ends; `None` when nobody ever owned it.
    pub epoch: Option<Epoch>,
    /// Who owns it; `None` when nobody does, and then it is granted without anybody's approval.
    pub from: Option<WorkerId>,
    /// Who gets it.
    pub to: WorkerId,
    /// Why, in words. Escaped.
    pub reason: String,
    /// How much the partition counts; `None` when all count alike.
    pub load: Option<u32>,
}

impl Plan {
    /// What there is to approve: the moves of partitions that have an owner. The others are granted in any case.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when the plan answers a "what if": what it supposes is not so.
    pub fn proposal(&self) -> Result<Proposal, Error> {
        if self.supposed {
            let why =
                "the plan supposes what is not so, and cannot be approved: make the change, and plan again";
            return Err(Error::own(ErrorKind::Refused, why));
        }
        let proposed = |planned: &PlannedMove| {
            let (from, to) = (planned.from.clone()?, planned.to.clone());
            let (partition, epoch) = (planned.partition, planned.epoch?);
            Some(ProposedMove { partition, epoch, from, to, arrives: false })
        };
        Ok(Proposal {
            keyspace: self.keyspace.clone(),
            moves: self.moves.iter().filter_map(proposed).collect(),
            undoes: None,
            revision: Some(self.revision),
            lineage: Some(self.lineage),
        })
    }

    /// A plan from the pieces in which it comes.
    pub(super) fn gathered(pieces: Vec<v1::PlanResponse>) -> Result<Plan, InvalidField> {
        use v1::plan_response::Piece;
        let mut pieces = pieces.into_iter().map(|piece| piece.piece);
        let Some(Some(Piece::Summary(summary))) = pieces.next() else {
            return Err(InvalidField::missing("summary"));
        };
        let promised = [("workers", summary.workers as usize), ("moves", summary.moves as usize)];
        let mut plan = Plan::try_from(summary).map_err(|e| e.within("summary"))?;
        for piece in pieces {
            match piece {
                Some(Piece::Workers(piece)) => {
                    for wire in piece.workers {
                        let place = plan.workers.len();
                        plan.workers.push(PlanWorker::try_from(wire).map_err(|e| e.at("workers", place))?);
                    }
                }
                Some(Piece::Moves(piece)) => {
                    for wire in piece.moves {
                        let place = plan.moves.len();
                        plan.moves.push(PlannedMove::try_from(wire).map_err(|e| e.at("moves", place))?);
                    }
                }
                Some(Piece::Summary(_)) | None => return Err(InvalidField::missing("moves")),
            }
        }
        for ((what, promised), came) in promised.into_iter().zip([plan.workers.len(), plan.moves.len()]) {
            if came != promised {
                return Err(InvalidField::new(
                    what,
                    format_args!("{promised} were promised, and {came} came"),
                ));
            }
        }
        if !plan.moves.is_sorted_by(|a, b| a.partition < b.partition) {
            return Err(InvalidField::new("moves", "they are not ascending by partition"));
        }
        Ok(plan)
    }
}

impl From<&WhatIf> for v1::WhatIf {
    fn from(from: &WhatIf) -> v1::WhatIf {
        use v1::what_if::{Add, Change, Weigh};
        let change = match from {
            WhatIf::Add { worker, weight, labels } => Change::Add(Add {
                worker: worker.to_string(),
                weight: weight.get(),
                labels: labels.clone().into_iter().collect(),
            }),
            WhatIf::Remove(worker) => Change::Remove(worker.to_string()),
            WhatIf::Weigh { worker, weight } => {
                Change::Weigh(Weigh { worker: worker.to_string(), weight: weight.get() })
            }
        };
        v1::WhatIf { change: Some(change) }
    }
}

impl TryFrom<v1::PlanSummary> for Plan {
    type Error = InvalidField;

    fn try_from(wire: v1::PlanSummary) -> Result<Plan, InvalidField> {
        Ok(Plan {
            keyspace: checked::keyspace_name("keyspace", &wire.keyspace)?,
            lineage: wire.lineage,
            revision: Revision::new(wire.revision),
            spread: BeforeAfter { before: wire.spread_before, after: wire.spread_after },
            zone_spread: BeforeAfter { before: wire.zone_spread_before, after: wire.zone_spread_after },
            workers: Vec::new(),
            reasons: wire.reasons.iter().map(|why| (checked::text(&why.reason), why.moves)).collect(),
            obstacles: wire.obstacles.iter().map(|obstacle| checked::text(obstacle)).collect(),
            more_obstacles: wire.more_obstacles,
            supposed: wire.supposed,
            balanced_by: balance_by_from_wire("balanced_by", wire.balanced_by)?,
            moves: Vec::new(),
        })
    }
}

impl TryFrom<v1::PlanWorker> for PlanWorker {
    type Error = InvalidField;

    fn try_from(wire: v1::PlanWorker) -> Result<PlanWorker, InvalidField> {
        Ok(PlanWorker {
            worker: checked::worker_id("worker", &wire.worker)?,
            zone: checked::text(&wire.zone),
            weight: wire.weight,
            standing: checked::text(&wire.standing),
            holds: BeforeAfter { before: wire.before, after: wire.after },
            share: wire.share,
        })
    }
}

impl TryFrom<v1::PlannedMove> for PlannedMove {
    type Error = InvalidField;

    fn try_from(wire: v1::PlannedMove) -> Result<PlannedMove, InvalidField> {
        Ok(PlannedMove {
            partition: PartitionId::new(wire.partition),
            epoch: checked::epoch_or_none("epoch", wire.epoch)?,
            from: worker_or_none("from", &wire.from)?,
            to: checked::worker_id("to", &wire.to)?,
            reason: checked::text(&wire.reason),
            load: Some(wire.load).filter(|load| *load > 0),
        })
    }
}
