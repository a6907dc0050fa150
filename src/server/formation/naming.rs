//! The first entry of a cluster's log: its name, its lineage, and the node ids that are used up.

use crate::context::Context;
use crate::identity::Belonging;
use ringfence_api::Failure;
use ringfence_core::ids::{ClusterId, LogIndex};
use ringfence_core::state::{Command, Request};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// How often a leader that could not propose it tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// Returns when the cluster has its name. Whichever node leads first proposes it; proposed by two leaders in a row it
/// takes effect once, for its request id follows from the cluster.
pub(crate) async fn name_cluster(context: &Context, belonging: &Belonging) {
    let mut applied = context.replica.applied();
    let mut status = context.raft.status();
    loop {
        if context.replica.lock().state.cluster().is_some() {
            return;
        }
        let leads = status.borrow_and_update().leads();
        if leads && let Err(failure) = propose(context, belonging).await {
            tracing::debug!(%failure, "the cluster could not be named yet");
        }
        tokio::select! {
            _ = applied.changed() => {}
            _ = status.changed() => {}
            () = tokio::time::sleep(AGAIN), if leads => {}
        }
    }
}

async fn propose(context: &Context, belonging: &Belonging) -> Result<(), Failure> {
    let (term, _) = context.confirm().await?;
    if context.replica.lock().state.cluster().is_some() {
        return Ok(());
    }
    // Random, and decided once: a second proposal is answered with the first.
    let lineage =
        getrandom::u64().map_err(|e| Failure::unavailable(format_args!("no random numbers: {e}")))?;
    let mut commands = vec![Command::FormCluster { cluster: belonging.cluster.clone(), lineage }];
    commands.extend(belonging.members.keys().map(|node| Command::NoteNode { node: *node }));
    let request = Request::Operator { id: request_id(&belonging.cluster, "form"), seen: LogIndex::new(0) };
    match context.propose(Some(request), commands, Some(term)).await? {
        Ok(_) => tracing::info!(cluster = %belonging.cluster, "the cluster is formed"),
        Err(refusal) => tracing::debug!(why = %refusal.why, "another leader named the cluster first"),
    }
    Ok(())
}

/// A request id that follows from what is asked, so that whoever asks it, and however often, it takes effect once.
pub(super) fn request_id(cluster: &ClusterId, what: &str) -> u128 {
    let hash: [u8; 32] = Sha256::digest(format!("ringfence/{cluster}/{what}")).into();
    hash.iter().take(16).fold(0, |id, byte| (id << 8) | u128::from(*byte))
}
