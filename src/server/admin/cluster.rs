//! The nodes: their status, and changes to them.

use super::majority;
use crate::context::Context;
use crate::formation::{self, Formation, Removal, members_failure};
use crate::placement::directive::{direct, said};
use crate::raft::{Member, RaftStatus};
use crate::refusal;
use crate::settings::Founders;
use ringfence_api::Failure;
use ringfence_api::convert::{InvalidField, checked};
use ringfence_api::v1;
use ringfence_core::ids::{LogIndex, NodeId, Term};
use ringfence_core::state::Subject;
use std::time::Duration;

/// How long a new node may take to catch up. It may have a snapshot to receive, of tens of megabytes.
const CATCH_UP: Duration = Duration::from_secs(60);

/// Between two looks at who answers.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The nodes, the leader and the term, as this node sees them. Without a quorum, and while the cluster forms. A leader
/// that it has not heard of for `leaderless` is not known to lead any more: Raft itself remembers it for ever.
pub(super) fn status(
    formation: &Formation,
    context: Option<&Context>,
    leaderless: Duration,
) -> v1::ClusterStatusResponse {
    let identity = formation.identity();
    let cluster = identity.belongs.as_ref().map(|belongs| belongs.cluster.to_string());
    let raft = context.map(|context| {
        let mut raft = context.raft.status().borrow().clone();
        if context.raft.since_contact().is_none_or(|silence| silence > leaderless) {
            raft.leader = None;
        }
        raft
    });
    let mut response = v1::ClusterStatusResponse {
        cluster: cluster.unwrap_or_default(),
        answered_by: identity.node.get(),
        forming: formation.progress().text(),
        ..v1::ClusterStatusResponse::default()
    };
    match raft {
        Some(raft) => {
            response.leader = raft.leader.as_ref().map_or(0, |(node, _)| node.get());
            response.term = Term::get(raft.term);
            response.applied_index = raft.applied.map_or(0, |at| at.index.get());
            let silent = context.map(|context| context.raft.silent_for()).unwrap_or_default();
            let reachable = |node: &NodeId| {
                let answers = || silent.get(node).is_some_and(|silence| *silence <= leaderless);
                raft.leads().then(|| *node == raft.node || answers())
            };
            let members = raft.members.iter();
            response.nodes =
                members.map(|(node, member)| shown(&raft, *node, member, reachable(node))).collect();
            let removal = context.and_then(|context| Removal::of(context, raft.leader.is_none()));
            response.removed = removal.map_or(String::new(), |removal| removal.to_string());
        }
        None => {
            let listed = formation.founders().into_iter().flat_map(Founders::nodes);
            let node = |(node, address): (&NodeId, &String)| v1::Node {
                node: node.get(),
                address: address.clone(),
                // What all of them will be, until one is elected.
                role: v1::NodeRole::Follower.into(),
                ..v1::Node::default()
            };
            response.nodes = listed.map(node).collect();
        }
    }
    response
}

fn shown(raft: &RaftStatus, node: NodeId, member: &Member, reachable: Option<bool>) -> v1::Node {
    let leads = raft.leader.as_ref().is_some_and(|(leader, _)| *leader == node);
    let role = match (leads, member.voter) {
        (true, _) => v1::NodeRole::Leader,
        (false, true) => v1::NodeRole::Follower,
        (false, false) => v1::NodeRole::Learner,
    };
    v1::Node {
        node: node.get(),
        address: member.address.clone(),
        role: role.into(),
        matched_index: member.matched.map(LogIndex::get),
        reachable,
    }
}

/// Adds a node that waits for it.
pub(super) async fn add(
    formation: &Formation,
    context: &Context,
    request: v1::AddNodeRequest,
) -> Result<(), Failure> {
    let node = checked::node_id("node", request.node)?;
    crate::settings::check_address(&request.address).map_err(|why| InvalidField::new("address", why))?;
    let given = said(&context.replica.lock().state, request.directive);
    formation::add(formation, context, node, &request.address, CATCH_UP, given.as_ref()).await
}

/// Removes a node for good. Its id is noted, and never used again. False when it was removed before: whoever does not know what
/// became of a removal asks for it again.
pub(super) async fn remove(
    context: &Context,
    request: v1::RemoveNodeRequest,
    leaderless: Duration,
) -> Result<bool, Failure> {
    let dry_run = request.node == 0 && request.dry_run_of != 0;
    let node = checked::node_id("node", if dry_run { request.dry_run_of } else { request.node })?;
    context.confirm().await?;
    let members = context.raft.status().borrow().members.clone();
    if !members.contains_key(&node) {
        if formation::removal_is_noted(context, node) {
            return Ok(false);
        }
        return Err(Failure::not_found(format_args!(
            "{node} is not a member; the members are {}",
            names(&members)
        )));
    }
    if members.len() == 1 {
        return Err(Failure::refused(format_args!("{node} is the last node; stop it to end the cluster")));
    }
    others_go_on(context, node, leaderless).await?;
    if dry_run {
        return Ok(true);
    }
    // Before it is: a leader that removes itself cannot note anything afterwards.
    let given = said(&context.replica.lock().state, request.directive);
    formation::note_removal(context, node, given.as_ref()).await?;
    context.raft.remove_member(node).await.map_err(members_failure)?;
    tracing::warn!(%node, "removed a node");
    Ok(true)
}

/// Refuses when those that would be left could not decide anything. A leader that has just begun has not heard of all
/// that are there, so they are given as long as a node may be silent.
async fn others_go_on(context: &Context, node: NodeId, leaderless: Duration) -> Result<(), Failure> {
    let lost = || {
        let raft = context.raft.status().borrow().clone();
        let silent = context.raft.silent_for();
        let answers =
            |id: NodeId| id == raft.node || silent.get(&id).is_some_and(|since| *since <= leaderless);
        majority::would_be_lost(&raft.members, node, answers)
    };
    let they_answer = async {
        while lost().is_some() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let _ = tokio::time::timeout(leaderless, they_answer).await;
    lost().map_or(Ok(()), |why| Err(Failure::refused(why)))
}

/// Hands the lead to another node.
pub(super) async fn transfer(
    context: &Context,
    request: v1::TransferLeadershipRequest,
) -> Result<NodeId, Failure> {
    let to = (request.to != 0).then(|| checked::node_id("to", request.to)).transpose()?;
    let (term, _) = context.confirm().await?;
    let members = context.raft.status().borrow().members.clone();
    if let Some(to) = to {
        match members.get(&to) {
            None => {
                let names = names(&members);
                return Err(Failure::not_found(format_args!(
                    "{to} is not a member; the members are {names}"
                )));
            }
            Some(member) if !member.voter => {
                return Err(Failure::refused(format_args!("{to} is a learner and cannot lead")));
            }
            Some(_) => {}
        }
    }
    // What is refused is not remembered.
    let to = match to {
        Some(to) => to,
        None => context.raft.heir().map_err(members_failure)?,
    };
    // Before it is: who has handed the lead on cannot note anything afterwards. It may not succeed, and says no more than that.
    let given = said(&context.replica.lock().state, request.directive);
    if let Some(given) = given.filter(|_| to != context.raft.status().borrow().node) {
        let what = format!("asked to hand the lead to node {}", to.get());
        let noted = context.propose(None, vec![direct(Subject::Cluster, &given, &what)], Some(term)).await?;
        noted.map_err(|refusal| refusal::to_failure(context, &refusal.why))?;
    }
    let leader = context.raft.transfer_leadership(Some(to)).await.map_err(members_failure)?;
    tracing::info!(%leader, "an operator moved leadership");
    Ok(leader)
}

fn names<T>(members: &std::collections::BTreeMap<NodeId, T>) -> String {
    members.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
