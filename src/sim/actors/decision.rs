//! What an operator decides about where partitions are, and how it is carried out: as `ringfence` does it, through the
//! shipped client.

use ringfence::admin::{
    Admin, ApprovedPlan, MoveStep, PartitionChange, PlanStage, PolicyChange, WorkerChange,
};
use ringfence::ids::{LogIndex, PartitionId, WorkerId};
use ringfence::{Error, ErrorKind};
use std::time::Duration;

/// How often an operator looks whether something is done.
const EVERY: Duration = Duration::from_millis(100);

/// What is decided.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// A worker is drained, cordoned, frozen, weighed, or no longer.
    Worker(WorkerId, WorkerChange),
    /// A partition is pinned, frozen, weighed, or no longer.
    Partition(String, PartitionId, PartitionChange),
    /// No planned move begins in a keyspace, or anywhere; or they may again.
    Freeze(Option<String>, bool),
    /// A keyspace is balanced by itself, or is not.
    Balance(String, bool),
    /// A plan is made and approved, and watched to its end.
    Apply(String),
    /// What the last plan moved goes back, and that is watched to its end.
    Undo,
    /// The plan that is being carried out is stopped.
    Cancel,
    /// A worker's session is ended, and the worker drained.
    Evict(WorkerId),
}

/// Carries it out. Returns what there is to say of it.
pub(super) async fn carry_out(admin: &Admin, decision: Decision) -> Result<String, Error> {
    let changed = match decision {
        Decision::Worker(worker, change) => admin.set_worker(&worker, &change).await?,
        Decision::Partition(keyspace, partition, change) => {
            let changed = admin.set_partition(&keyspace, partition, &change).await?;
            // Whoever pins or freezes looks how it stands.
            admin.explain(&keyspace, partition).await?;
            changed
        }
        Decision::Freeze(keyspace, frozen) => admin.freeze(keyspace.as_deref(), frozen).await?,
        Decision::Balance(keyspace, balance) => {
            let policy = PolicyChange { balance: Some(balance), ..PolicyChange::default() };
            admin.update_keyspace(&keyspace, &policy).await?;
            true
        }
        Decision::Evict(worker) => admin.evict_worker(&worker).await?,
        Decision::Cancel => admin.cancel_plan(None).await?,
        Decision::Apply(keyspace) => {
            let plan = admin.plan(&keyspace, &[]).await?;
            let proposal = plan.proposal()?;
            if proposal.moves.is_empty() {
                return Ok("there is nothing to move".to_owned());
            }
            return watched(admin, admin.approve(&proposal).await?).await;
        }
        Decision::Undo => {
            let undo = admin.undo_plan(None).await?;
            if undo.proposal.moves.is_empty() {
                return Ok("there is nothing to undo".to_owned());
            }
            return watched(admin, admin.approve(&undo.proposal).await?).await;
        }
    };
    Ok(if changed { "changed" } else { "it was so" }.to_owned())
}

/// Waits until a plan is over, and says what became of it.
async fn watched(admin: &Admin, plan: LogIndex) -> Result<String, Error> {
    loop {
        let plans = match admin.plans(true).await {
            Ok(plans) => plans,
            Err(error) if error.is_retryable() => Vec::new(),
            Err(error) => return Err(error),
        };
        if let Some(over) = plans.iter().find(|known| known.id == plan && known.stage.is_over()) {
            return told(over);
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// A plan that is done says of each move that it was begun, or why it was not.
fn told(plan: &ApprovedPlan) -> Result<String, Error> {
    let (id, stage) = (plan.id.get(), plan.stage);
    let silent = plan.moves.iter().filter(|planned| planned.step == MoveStep::Waiting).count();
    let all_begun = matches!(stage, PlanStage::Ending | PlanStage::Done);
    if all_begun && (silent > 0 || plan.begun + plan.skipped != plan.size) {
        panic!("plan {id} is done and says nothing of {silent} of its moves: {plan:?}");
    }
    Ok(format!("plan {id} is {stage}: {} begun, {} passed over", plan.begun, plan.skipped))
}

/// Waits until a worker's process may be stopped.
pub(super) async fn emptied(admin: &Admin, worker: &WorkerId) -> Result<(), Error> {
    loop {
        match admin.worker(worker).await {
            Ok(known) if known.may_stop() => return Ok(()),
            Err(error) if !error.is_retryable() && error.kind() != ErrorKind::NotFound => return Err(error),
            _ => tokio::time::sleep(EVERY).await,
        }
    }
}

/// Waits until a worker has another session than the one it had.
pub(super) async fn came_back(admin: &Admin, worker: &WorkerId, before: Option<u64>) -> Result<(), Error> {
    loop {
        let known = admin.worker(worker).await.ok().and_then(|known| known.session);
        if known.is_some_and(|now| Some(now.get()) != before) {
            return Ok(());
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// A drain that ends when the worker joins again, or no longer. What else is set stays.
pub(super) fn drained_until_join(drained: bool) -> WorkerChange {
    WorkerChange { drained_until_join: Some(drained), ..WorkerChange::default() }
}
