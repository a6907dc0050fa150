//! What an operator decides about where partitions are: the methods.

use super::approved::{ApprovedPlan, Hindrance, Proposal, Undo};
use super::directives::{Directive, WorkerDetail};
use super::explain::Explanation;
use super::handle::{Admin, CHANGE, READ, READ_ALL, gather};
use super::plan::{Plan, WhatIf};
use super::settings::Settings;
use super::{PartitionChange, WorkerChange};
use crate::error::{Error, ErrorKind};
use ringfence_api::convert::checked;
use ringfence_api::v1;
use ringfence_core::ids::{KeyspaceName, LogIndex, PartitionId, Revision, WorkerId};
use ringfence_core::placement::Weight;
use ringfence_core::state::MAX_PARTITION_WEIGHT;
use std::collections::BTreeMap;

/// How many moves an approved plan grows by at once.
const CHUNK: usize = 1_000;

impl Admin {
    /// Changes what is set about a worker, which need not have a session. Returns false when it was so already.
    ///
    /// Settings that are left out stay as they are, so operators who set different things undo nothing of each other.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] when settings of too many workers are remembered; [`Admin::forget_worker`] helps.
    pub async fn set_worker(&self, worker: &WorkerId, change: &WorkerChange) -> Result<bool, Error> {
        let request = v1::SetWorkerRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            worker: worker.to_string(),
            drained: change.drained,
            drained_until_join: change.drained_until_join,
            cordoned: change.cordoned,
            frozen: change.frozen,
            weight: change.weight.map(|weight| weight.map_or(0, Weight::get)),
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.set_worker(r).await).await?;
        Ok(answer.changed)
    }

    /// Drains a worker and ends its session, however alive its process is. What it held cools for as long as its lease, and
    /// then goes to others. Returns false when it was drained already and has no session.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when nothing is known of it.
    pub async fn evict_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        let request = v1::EvictWorkerRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            worker: worker.to_string(),
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.evict_worker(r).await).await?;
        Ok(answer.changed)
    }

    /// Forgets what is set about a worker that is gone for good. Returns false when nothing was set.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when it has a session.
    pub async fn forget_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        let request = v1::ForgetWorkerRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            worker: worker.to_string(),
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.forget_worker(r).await).await?;
        Ok(answer.changed)
    }

    /// Changes what is set about a partition. Returns false when it was so already. Settings that are left out stay.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Invalid`] (a weight that is not 1 to 1 000 000), [`ErrorKind::Limit`] (settings of too many
    /// partitions).
    pub async fn set_partition(
        &self,
        keyspace: &str,
        partition: PartitionId,
        change: &PartitionChange,
    ) -> Result<bool, Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let weight = match change.weight {
            Some(Some(weight)) if !(1..=MAX_PARTITION_WEIGHT).contains(&weight) => {
                let why = format!(
                    "{weight} is not a weight: a partition's is between 1 and {MAX_PARTITION_WEIGHT}"
                );
                return Err(Error::own(ErrorKind::Invalid, why));
            }
            weight => weight.map(|weight| weight.unwrap_or(0)),
        };
        let pin = change.pin.as_ref().map(|pin| pin.as_ref().map_or(String::new(), ToString::to_string));
        let request = v1::SetPartitionRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            keyspace,
            partition: partition.get(),
            pin,
            frozen: change.frozen,
            weight,
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.set_partition(r).await).await?;
        Ok(answer.changed)
    }

    /// Lets the brake go that slows repairs down after many workers were lost together (see [`Health::brake`](super::Health)): they are
    /// gone, and what they had may go to others at once. A later loss brings the brake back. Returns false when it is not on.
    ///
    /// # Errors
    /// As for any call.
    pub async fn release_brake(&self) -> Result<bool, Error> {
        let request = v1::ReleaseBrakeRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.release_brake(r).await).await?;
        Ok(answer.changed)
    }

    /// Stops planned moves in a keyspace, or with `None` in all, or lets them go on. Partitions without an owner are granted
    /// all the same. Returns false when it was so already.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn freeze(&self, keyspace: Option<&str>, frozen: bool) -> Result<bool, Error> {
        let keyspace = keyspace.map(KeyspaceName::new).transpose()?;
        let request = v1::FreezeRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            keyspace: keyspace.map_or(String::new(), |name| name.to_string()),
            frozen,
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.freeze(r).await).await?;
        Ok(answer.changed)
    }

    /// The plan for a keyspace as things are, or as they would be if `what_if` were so. Nothing is changed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Invalid`] (what is supposed makes no sense), [`ErrorKind::Refused`] (no plan can be made).
    pub async fn plan(&self, keyspace: &str, what_if: &[WhatIf]) -> Result<Plan, Error> {
        let request = v1::PlanRequest {
            keyspace: KeyspaceName::new(keyspace)?.to_string(),
            what_if: what_if.iter().map(Into::into).collect(),
        };
        let list = async |mut c: Client, r| gather(c.plan(r).await?, |piece| vec![piece]).await;
        Plan::gathered(self.ask_placement(READ_ALL, request, list).await?).map_err(Error::malformed)
    }

    /// Approves moves: those of a plan ([`Plan::proposal`]), or back again ([`Undo::proposal`]). From then on whoever leads
    /// carries them out, within the keyspace's budget. Returns what names the approved plan.
    ///
    /// It is put into the log in pieces, and starts with the last of them. When that fails half way, no move of it begins, and
    /// nothing of it stays: what is refused is dropped, and what was given up makes room for the next.
    ///
    /// # Errors
    /// [`ErrorKind::StaleEpoch`] when a partition of the keyspace was granted since the plan was made: plan again. [`ErrorKind::Refused`] when there is
    /// nothing to approve, another plan is being carried out, or the cluster was restored since; [`ErrorKind::NotFound`], [`ErrorKind::Invalid`],
    /// [`ErrorKind::Limit`]. After [`ErrorKind::UnknownOutcome`] see [`Admin::plans`].
    pub async fn approve(&self, proposal: &Proposal) -> Result<LogIndex, Error> {
        proposal.check()?;
        let request = v1::OpenPlanRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            keyspace: proposal.keyspace.to_string(),
            size: u32::try_from(proposal.moves.len()).unwrap_or(u32::MAX),
            undoes: proposal.undoes.map_or(0, LogIndex::get),
            revision: proposal.revision.map_or(0, Revision::get),
            lineage: proposal.lineage.unwrap_or(0),
            dry_run: false,
        };
        let open = self.ask_placement(CHANGE, request, async |mut c, r| c.open_plan(r).await).await;
        let open = open.map_err(|error| not_approved(None, &error))?;
        let plan = LogIndex::new(open.plan);
        for moves in proposal.moves.chunks(CHUNK) {
            self.extend(plan, &proposal.keyspace, moves)
                .await
                .map_err(|error| not_approved(Some(plan), &error))?;
        }
        Ok(plan)
    }

    /// Whether [`Admin::approve`] would take this, as the coordinator would decide it now. Nothing is done. A plan that it
    /// undoes counts as stopped, also while it is being carried out. Returns what stands in the way of some of its moves, each
    /// reason once: they would be approved, and be passed over or wait.
    ///
    /// # Errors
    /// As [`Admin::approve`].
    pub async fn check_proposal(&self, proposal: &Proposal) -> Result<Vec<Hindrance>, Error> {
        proposal.check()?;
        let refused = |error: Error| not_approved(None, &error);
        // A coordinator that knows no dry run refuses a request that has no id, and does nothing.
        let open = v1::OpenPlanRequest {
            request: None,
            directive: None,
            keyspace: proposal.keyspace.to_string(),
            size: u32::try_from(proposal.moves.len()).unwrap_or(u32::MAX),
            undoes: proposal.undoes.map_or(0, LogIndex::get),
            revision: proposal.revision.map_or(0, Revision::get),
            lineage: proposal.lineage.unwrap_or(0),
            dry_run: true,
        };
        self.ask_placement(READ, open, async |mut c, r| c.open_plan(r).await).await.map_err(refused)?;
        let mut counts: BTreeMap<(bool, String), usize> = BTreeMap::new();
        for moves in proposal.moves.chunks(CHUNK) {
            let extend = v1::ExtendPlanRequest {
                request: None,
                plan: 0,
                keyspace: proposal.keyspace.to_string(),
                moves: moves.iter().map(Into::into).collect(),
                dry_run: true,
            };
            let answer = self.ask_placement(READ, extend, async |mut c, r| c.extend_plan(r).await).await;
            for hindrance in answer.map_err(refused)?.hindrances {
                let reason = (hindrance.passed_over, checked::text(&hindrance.why));
                *counts.entry(reason).or_default() += hindrance.moves as usize;
            }
        }
        let hindrance = |((passed_over, why), moves)| Hindrance { passed_over, why, moves };
        Ok(counts.into_iter().map(hindrance).collect())
    }

    async fn extend(
        &self,
        plan: LogIndex,
        keyspace: &KeyspaceName,
        moves: &[super::ProposedMove],
    ) -> Result<(), Error> {
        let request = v1::ExtendPlanRequest {
            request: Some(self.request_id().await?),
            plan: plan.get(),
            keyspace: keyspace.to_string(),
            moves: moves.iter().map(Into::into).collect(),
            dry_run: false,
        };
        self.ask_placement(CHANGE, request, async |mut c, r| c.extend_plan(r).await).await?;
        Ok(())
    }

    /// The way back from a plan, or with `None` from the last one that has moved something and undoes no other, as things are
    /// now. Nothing is changed: approve its [`proposal`](Undo::proposal). The last one may be somebody else's:
    /// see [`Undo::by`].
    ///
    /// It has the partitions that the plan has moved and that are still where it brought them, and those that are on their
    /// way there: they are taken back when they have arrived. The way back from the way back is the plan again, and has to be
    /// asked for by its number. Of a plan that is being carried out it is the way back from what has begun until now:
    /// [cancel](Admin::cancel_plan) that plan, and ask again, before it is approved.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when no such plan is remembered, [`ErrorKind::Refused`] while another is being carried out, or
    /// when it has moved nothing.
    pub async fn undo_plan(&self, plan: Option<LogIndex>) -> Result<Undo, Error> {
        let plans = self.plans(true).await?;
        let (plan, keyspace) = Undo::which(&plans, plan)?;
        let partitions = self.partitions(keyspace.as_str()).await?;
        Ok(Undo::of(plan, keyspace, &partitions))
    }

    /// Stops a plan; `None`: the one that is being written or carried out. Moves that have begun go on. Returns false when
    /// there was nothing to stop.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when no such plan is remembered.
    pub async fn cancel_plan(&self, plan: Option<LogIndex>) -> Result<bool, Error> {
        let request = v1::CancelPlanRequest {
            request: Some(self.request_id().await?),
            directive: Some(self.directive()),
            plan: plan.map_or(0, LogIndex::get),
        };
        let answer = self.ask_placement(CHANGE, request, async |mut c, r| c.cancel_plan(r).await).await?;
        Ok(answer.changed)
    }

    /// The plans that are remembered, oldest first: the last two that have started, and one that is being written.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn plans(&self, with_moves: bool) -> Result<Vec<ApprovedPlan>, Error> {
        let request = v1::ListPlansRequest { with_moves };
        let list = async |mut c: Client, r| gather(c.list_plans(r).await?, |piece| vec![piece]).await;
        ApprovedPlan::gathered(self.ask_placement(READ_ALL, request, list).await?).map_err(Error::malformed)
    }

    /// Why a partition is where it is, why no other worker has it, and what it would take.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Refused`] (its keyspace cannot be planned).
    pub async fn explain(&self, keyspace: &str, partition: PartitionId) -> Result<Explanation, Error> {
        let keyspace = KeyspaceName::new(keyspace)?.to_string();
        let request = v1::ExplainRequest { keyspace, partition: partition.get() };
        let answer = self.ask_placement(READ, request, async |mut c, r| c.explain(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// What is set about a worker, whether it has a session or not, and what became of it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when nothing is known of a worker of this name.
    pub async fn worker(&self, worker: &WorkerId) -> Result<WorkerDetail, Error> {
        let request = v1::GetWorkerRequest { worker: worker.to_string() };
        let answer = self.ask_placement(READ, request, async |mut c, r| c.get_worker(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// What is frozen, drained, cordoned, pinned and weighed, and by whom.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn settings(&self) -> Result<Settings, Error> {
        let request = v1::ListSettingsRequest {};
        let answer = self.ask_placement(READ, request, async |mut c, r| c.list_settings(r).await).await?;
        answer.try_into().map_err(Error::malformed)
    }

    /// What operators decided, newest first, within a bound.
    ///
    /// # Errors
    /// Those of every method.
    pub async fn directives(&self) -> Result<Vec<Directive>, Error> {
        let request = v1::ListDirectivesRequest {};
        let answer = self.ask_placement(READ, request, async |mut c, r| c.list_directives(r).await).await?;
        Ok(answer.directives.into_iter().map(Into::into).collect())
    }
}

/// What became of a plan that could not be written whole, and what to do.
fn not_approved(plan: Option<LogIndex>, error: &Error) -> Error {
    let message = match error.kind() {
        ErrorKind::StaleEpoch => {
            format!("the map has changed since the plan was made ({error}); nothing was moved: plan again")
        }
        // Its last moves may have arrived, and with them it started.
        ErrorKind::UnknownOutcome => match plan {
            Some(plan) => format!("{error}; plan {} may be under way: look at it", plan.get()),
            None => format!("{error}; nothing was moved"),
        },
        _ => format!("{error}; nothing was moved"),
    };
    Error::own(error.kind(), message)
}

type Client = ringfence_api::v1::placement_service_client::PlacementServiceClient<tonic::transport::Channel>;
