//! What the founder does when it has named the cluster: everybody adopts it, and the log begins.

use super::Formation;
use super::wire::Adopt;
use crate::identity::Belonging;
use crate::raft::{MembersError, RaftNode};
use futures_util::future::join_all;
use ringfence_core::state::Applied;
use std::time::Duration;

/// How often a node that has not adopted the cluster is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// Begins the log, unless it has begun or this node is not the one to do it. May be dropped and called again at any
/// point: to adopt and to begin twice is to do it once.
///
/// # Errors
/// [`MembersError`] when Raft cannot begin, because the node stops or an address is none.
pub(crate) async fn found(
    formation: &Formation,
    raft: &RaftNode<Applied>,
    belonging: &Belonging,
) -> Result<(), MembersError> {
    let status = raft.status();
    let has_begun = || !status.borrow().members.is_empty();
    if !belonging.founder || has_begun() {
        return Ok(());
    }
    formation.progress().step(format!("waiting for every node to adopt cluster {}", belonging.cluster));
    while !adopted_by_all(formation, belonging).await {
        tokio::time::sleep(AGAIN).await;
        // A node that has just started learns a moment later what its log holds: the cluster may be formed long since,
        // and one of its nodes down.
        if has_begun() {
            return Ok(());
        }
    }
    raft.initialize(belonging.addresses()).await
}

async fn adopted_by_all(formation: &Formation, belonging: &Belonging) -> bool {
    let peers = &formation.inner.peers;
    let others = belonging.members.iter().filter(|(node, _)| **node != peers.node());
    let calls = others.filter_map(|(node, member)| {
        let incarnation = member.incarnation?;
        let belonging = Belonging { founder: false, ..belonging.clone() };
        let adopt = Adopt { to: *node, incarnation, belonging, added: false };
        Some(async move { (*node, peers.adopt(&adopt, &member.address).await) })
    });
    let mut all = true;
    for (node, answer) in join_all(calls).await {
        let problem = answer.err();
        all &= problem.is_none();
        if formation.progress().peer(node, problem.clone())
            && let Some(problem) = problem
        {
            tracing::warn!(peer = %node, "has not adopted the cluster: {problem}");
        }
    }
    all
}
