//! What a leader does to add a node.
//!
//! In an order that uses up an id as late as possible: the node is asked who it is first, so that a wrong address, a
//! node that does not run, or one with old data costs nothing. Then the id is noted in the log, the node adopts the
//! cluster, and Raft takes it in: as a learner, and as a voter when it has caught up.

use super::Formation;
use super::naming::request_id;
use super::wire::{Adopt, Hello};
use crate::context::Context;
use crate::identity::{Belonging, Member};
use crate::placement::directive::{Given, direct, directed};
use crate::raft::{MembersError, RaftStatus};
use crate::refusal;
use ringfence_api::Failure;
use ringfence_core::ids::{ClusterId, LogIndex, NodeId, Term};
use ringfence_core::state::{Command, Request, Subject};
use std::time::Duration;

/// Adds a node that waits for it. The future may be dropped: the node is not left half-added.
///
/// # Errors
/// [`Failure`]: this node does not lead, the id was used before, the node is not what it should be, or it did not catch
/// up within `patience`.
pub(crate) async fn add(
    formation: &Formation,
    context: &Context,
    node: NodeId,
    address: &str,
    patience: Duration,
    given: Option<&Given>,
) -> Result<(), Failure> {
    let (term, seen) = context.confirm().await?;
    let status = context.raft.status().borrow().clone();
    let cluster = not_a_member(context, &status, node, address)?;
    let removed = request_id(&cluster, &removal_of(node));
    if context.replica.lock().state.answer_to(removed).is_some() {
        return Err(Failure::refused(format_args!(
            "{node} was a member and was removed; a node id is never used again: choose another, with an empty data directory"
        )));
    }

    let peers = &formation.inner.peers;
    let unfit = |why: String| Failure::refused(format_args!("{why}; nothing was changed"));
    let answer = peers.hello(&formation.hello(), node, address).await.map_err(unfit)?;
    fit(&answer.hello, node, &cluster, address).map_err(unfit)?;

    let what = format!("add node {} at {address}", node.get());
    let named = directed(Subject::Cluster, given, &what, Command::NoteNode { node });
    note(context, term, seen, &cluster, &answer.hello, named).await?;
    let adopt = adoption(&status, cluster, &answer.hello, address);
    peers.adopt(&adopt, address).await.map_err(|why| {
        Failure::refused(format_args!("{why}; it is not a member, ask again to go on from here"))
    })?;
    tracing::info!(%node, address, "adding a node");
    context.raft.add_member(node, address.to_owned(), patience).await.map_err(|e| match e {
        e @ MembersError::NotCaughtUp { .. } => {
            Failure::refused(format_args!("{e}; ask again to go on from here"))
        }
        e => members_failure(e),
    })?;
    tracing::info!(%node, address, "added a node");
    Ok(())
}

/// Notes that a node is about to be removed. The answer to its adding is remembered, so that an adding that was
/// interrupted goes on; this one, which is younger, is remembered as long and says that there is nothing to go on with.
pub(crate) async fn note_removal(
    context: &Context,
    node: NodeId,
    given: Option<&Given>,
) -> Result<(), Failure> {
    let (term, seen) = context.confirm().await?;
    let cluster = context.replica.lock().state.cluster().map(|cluster| cluster.id.clone());
    let cluster = cluster.ok_or_else(|| Failure::unavailable("the cluster is not formed yet; ask again"))?;
    let request = Request::Operator { id: request_id(&cluster, &removal_of(node)), seen };
    // It changes nothing: the answer is what is wanted, and who asked for it.
    let what = format!("remove node {}", node.get());
    let note = match given {
        Some(given) => direct(Subject::Cluster, given, &what),
        None => Command::Clear { sessions: Vec::new() },
    };
    // A removal that somebody has begun, and that did not come to its end, is noted already. Whoever ends it has removed the node.
    let begun = removal_is_noted(context, node);
    let request = Some(request).filter(|_| !begun || given.is_none());
    let noted = context.propose(request, vec![note], Some(term)).await?;
    noted.map(|_| ()).map_err(|refusal| refusal::to_failure(context, &refusal.why))
}

/// Whether a removal of this node was begun, as far as this node's state says.
pub(crate) fn removal_is_noted(context: &Context, node: NodeId) -> bool {
    let local = context.replica.lock();
    let cluster = local.state.cluster().map(|cluster| &cluster.id);
    cluster.is_some_and(|cluster| local.state.answer_to(request_id(cluster, &removal_of(node))).is_some())
}

fn removal_of(node: NodeId) -> String {
    format!("remove/{}", node.get())
}

fn not_a_member(
    context: &Context,
    status: &RaftStatus,
    node: NodeId,
    address: &str,
) -> Result<ClusterId, Failure> {
    if let Some(member) = status.members.get(&node).filter(|member| member.voter) {
        return Err(Failure::already_exists(format_args!(
            "{node} is a member already, at {}",
            member.address
        )));
    }
    if let Some((other, _)) = status.members.iter().find(|(other, m)| **other != node && m.address == address)
    {
        return Err(Failure::already_exists(format_args!("{other} is at {address} already")));
    }
    let local = context.replica.lock();
    let cluster = local.state.cluster().map(|cluster| cluster.id.clone());
    cluster.ok_or_else(|| Failure::unavailable("the cluster is not formed yet; ask again"))
}

/// Whether what answers is the node that is meant, with data that may come into this cluster.
fn fit(answered: &Hello, node: NodeId, cluster: &ClusterId, address: &str) -> Result<(), String> {
    if answered.node != node {
        return Err(format!("at {address} answers {}, not {node}", answered.node));
    }
    match &answered.cluster {
        Some(other) if other != cluster => Err(format!(
            "{node} at {address} belongs to cluster {other}, and this is cluster {cluster}: start it with an empty data \
             directory"
        )),
        None if !answered.founders.is_empty() => Err(format!(
            "{node} at {address} forms a cluster of its own: start it with join instead of cluster"
        )),
        _ => Ok(()),
    }
}

/// Uses the id up. Asked again for the same data it is answered as the first time; for a node that was wiped meanwhile,
/// or another one under that id, it is refused.
async fn note(
    context: &Context,
    term: Term,
    seen: LogIndex,
    cluster: &ClusterId,
    answered: &Hello,
    commands: Vec<Command>,
) -> Result<(), Failure> {
    let (node, incarnation) = (answered.node, answered.incarnation.get());
    let id = request_id(cluster, &format!("add/{}/{incarnation}", node.get()));
    let request = Request::Operator { id, seen };
    let noted = context.propose(Some(request), commands, Some(term)).await?;
    noted.map(|_| ()).map_err(|refusal| refusal::to_failure(context, &refusal.why))
}

fn adoption(status: &RaftStatus, cluster: ClusterId, answered: &Hello, address: &str) -> Adopt {
    let others = status
        .members
        .iter()
        .map(|(node, member)| (*node, Member { address: member.address.clone(), incarnation: None }));
    let added = Member { address: address.to_owned(), incarnation: Some(answered.incarnation) };
    let members = others.chain([(answered.node, added)]).collect();
    Adopt {
        to: answered.node,
        incarnation: answered.incarnation,
        belonging: Belonging { cluster, members, founder: false },
        added: true,
    }
}

/// What a change of members that did not happen means to the operator.
pub(crate) fn members_failure(error: MembersError) -> Failure {
    use crate::raft::NotLeader;
    match error {
        MembersError::NotLeader(leader) => crate::context::not_leader(NotLeader::Elsewhere { leader }),
        MembersError::Stopped(why) => crate::context::not_leader(NotLeader::Stopped(why)),
        MembersError::Unknown(_) => Failure::unknown_outcome(),
        MembersError::Invalid(_) => Failure::invalid(error),
        MembersError::Busy
        | MembersError::Changed
        | MembersError::NotCaughtUp { .. }
        | MembersError::NotTransferred { .. } => Failure::refused(error),
    }
}
