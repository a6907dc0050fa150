//! `ringfence cluster`: the coordinator's nodes.

use crate::args::Common;
use crate::exit::{Exit, Failed, Outcome};
use crate::operator::{Sure, Who, planned};
use crate::output::{Table, properties};
use crate::shape::ClusterShape;
use crate::text::plain;
use clap::{Args, Subcommand};
use ringfence::ErrorKind;
use ringfence::admin::{Admin, ClusterStatus, Node, NodeRole};
use ringfence::ids::{ClusterId, NodeId};
use ringfence::net::Endpoint;
use serde::Serialize;
use std::str::FromStr;

/// Arguments of `ringfence cluster`.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The nodes, the leader and the term, as the node that answers sees them
    Status,
    /// Add a node; it must run with an empty data directory and wait to be added
    #[command(after_help = "\
It returns when the node has caught up and votes. Nothing is done when the node is a voter at that address already.

Example:
  ringfence cluster add-node 4=10.0.0.4:7600")]
    AddNode {
        /// Its id and where the other nodes reach it; an id is never used twice
        #[arg(value_name = "ID=HOST:PORT")]
        node: NodeArg,
        #[command(flatten)]
        who: Who,
    },
    /// Remove a node for good; its id is never used again
    #[command(after_help = "\
It returns when the node is no member any more, also when it led and another one leads by then; what is left of
an interrupted removal is done. The process goes on running and takes no part: stop it, and throw its data away.

It is asked about on a terminal; elsewhere it needs --yes.

Example:
  ringfence cluster remove-node 4 --dry-run")]
    RemoveNode {
        /// Its id
        #[arg(value_parser = node_id)]
        id: NodeId,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Hand the lead to another node
    TransferLeader {
        /// To this node; otherwise to whichever voter is the furthest
        #[arg(long, value_name = "ID", value_parser = node_id)]
        to: Option<NodeId>,
        #[command(flatten)]
        who: Who,
    },
}

/// `4=10.0.0.4:7600`
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeArg {
    id: NodeId,
    address: String,
}

impl FromStr for NodeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeArg, String> {
        let (id, address) = text.split_once('=').ok_or("write ID=HOST:PORT, such as 4=10.0.0.4:7600")?;
        Endpoint::from_address(address).map_err(|error| error.to_string())?;
        Ok(NodeArg { id: node_id(id)?, address: address.to_owned() })
    }
}

fn node_id(text: &str) -> Result<NodeId, String> {
    let number: u64 = text.parse().map_err(|_| "a node id is a number, such as 4".to_owned())?;
    NodeId::new(number).map_err(|error| error.to_string())
}

/// What a change of the cluster did.
#[derive(Debug, Serialize)]
struct DoneShape {
    /// `added`, `removed`, `transferred`, `unchanged` or `planned`.
    result: &'static str,
    /// The node that was added or removed, or that leads now; planned, the one that would.
    node: u64,
}

/// Runs `ringfence cluster`.
pub(crate) async fn run(args: ClusterArgs) -> Outcome {
    let (admin, output) = (args.common.admin(), args.common.output());
    let (result, node) = match args.verb {
        Verb::Status => {
            let status = admin.cluster_status().await?;
            output.show(&ClusterShape::from(&status), || text(&status))?;
            return Ok(Exit::Done);
        }
        Verb::AddNode { node, who } if who.dry_run => (planned(would_add(&admin, &node).await?), node.id),
        Verb::AddNode { node, who } => {
            let voters = add(&who.asking(admin), &node).await?;
            if let Some(voters) = voters {
                let shape = DoneShape { result: "added", node: node.id.get() };
                output.changed(shape.result, &shape, || added(node.id, voters))?;
                return Ok(Exit::Done);
            }
            ("unchanged", node.id)
        }
        Verb::RemoveNode { id, who, sure } => {
            sure.or_terminal(who.dry_run)?;
            (remove(&who.asking(admin), id, who.dry_run, sure).await?, id)
        }
        Verb::TransferLeader { to, who } if who.dry_run => {
            would_transfer(&admin.health().await?.cluster, to)?
        }
        Verb::TransferLeader { to, who } => transfer(&who.asking(admin), to).await?,
    };
    let id = node.get();
    let sentence = match result {
        "removed" => format!("node {id} is removed for good"),
        "transferred" => format!("node {id} leads"),
        "planned" => format!("node {id}: it would be done; nothing was done"),
        _ => format!("node {id}: there was nothing to do"),
    };
    output.changed(result, &DoneShape { result, node: id }, || sentence + "\n")?;
    Ok(Exit::Done)
}

/// Whether it would be added. The leader is asked: another node may know the members as they were.
async fn would_add(admin: &Admin, node: &NodeArg) -> Result<bool, Failed> {
    let status = admin.health().await?.cluster;
    if votes_at(&status, node) {
        return Ok(false);
    }
    // A removal that would change nothing is one that was made, and an id is never used again.
    if !status.nodes.iter().any(|found| found.id == node.id) {
        match admin.plan_remove_node(node.id).await {
            Ok(_) => {
                let id = node.id.get();
                return Err(Failed::refused(format!(
                    "node {id} was a member and was removed; a node id is never used again: choose another, with an empty data \
                     directory"
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// How many vote now; `None` when the node voted already. The leader is asked who its members are: a node that was removed knows
/// them as they were.
async fn add(admin: &Admin, node: &NodeArg) -> Result<Option<usize>, ringfence::Error> {
    let status = admin.health().await?.cluster;
    let voters = || status.nodes.iter().filter(|found| found.role != NodeRole::Learner);
    if votes_at(&status, node) {
        return Ok(None);
    }
    admin.add_node(node.id, &node.address).await?;
    Ok(Some(voters().count() + 1))
}

/// Removes a node, when that is meant. The leader is asked who its members are: another node may know them as they were. What is
/// no member takes nothing away, and is not asked about: the coordinator knows whether it was removed before.
async fn remove(admin: &Admin, id: NodeId, dry_run: bool, sure: Sure) -> Result<&'static str, Failed> {
    if dry_run {
        return Ok(planned(admin.plan_remove_node(id).await?));
    }
    let status = admin.health().await?.cluster;
    if let Some(node) = status.nodes.iter().find(|node| node.id == id) {
        sure.ask(&removal(&status, node))?;
    }
    Ok(if admin.remove_node(id).await? { "removed" } else { "unchanged" })
}

/// What it means to remove a node.
fn removal(status: &ClusterStatus, node: &Node) -> String {
    let voters = status.nodes.iter().filter(|other| other.role != NodeRole::Learner && other.id != node.id);
    let left = voters.count();
    format!(
        "This removes node {} at {}, a {}, for good: its id is never used again. {left} nodes are left that vote, and the cluster \
         works while {} of them do.",
        node.id.get(),
        node.address,
        node.role,
        left / 2 + 1
    )
}

fn votes_at(status: &ClusterStatus, node: &NodeArg) -> bool {
    let mut voters = status.nodes.iter().filter(|found| found.role != NodeRole::Learner);
    voters.any(|found| (found.id, found.address.as_str()) == (node.id, node.address.as_str()))
}

/// Fails when there is no such node.
fn known(status: &ClusterStatus, id: NodeId) -> Result<&Node, Failed> {
    let found = status.nodes.iter().find(|node| node.id == id);
    found.ok_or_else(|| {
        Failed::of(ErrorKind::NotFound, format!("there is no node {} in the cluster", id.get()))
    })
}

/// What `transfer-leader` would do: to the node that is named, or else to another voter than the leader.
fn would_transfer(status: &ClusterStatus, to: Option<NodeId>) -> Result<(&'static str, NodeId), Failed> {
    let voters = || status.nodes.iter().filter(|node| node.role != NodeRole::Learner);
    match to {
        Some(to) if status.leader == Some(to) => Ok(("unchanged", to)),
        Some(to) => match known(status, to)? {
            Node { role: NodeRole::Learner, .. } => {
                Err(Failed::refused(format!("node {} does not vote, and cannot lead", to.get())))
            }
            Node { reachable: Some(false), .. } => Err(Failed::refused(format!(
                "node {} does not answer the leader, and cannot take the lead: see that it runs, or name another",
                to.get()
            ))),
            _ => Ok(("planned", to)),
        },
        None => match voters().find(|node| status.leader != Some(node.id) && node.reachable != Some(false)) {
            Some(other) => Ok(("planned", other.id)),
            None => Err(Failed::refused("there is no other voter that answers, to hand the lead to")),
        },
    }
}

/// What is said when a node was added and so many vote now.
fn added(node: NodeId, voters: usize) -> String {
    let warning = if voters == 2 { "\nnote: of two nodes neither may fail; add a third" } else { "" };
    format!("node {} is added: it votes{warning}\n", node.get())
}

async fn transfer(admin: &Admin, to: Option<NodeId>) -> Result<(&'static str, NodeId), Failed> {
    // A read first: where nobody answers, it is known that nothing was done.
    let status = admin.health().await?.cluster;
    match to {
        Some(to) => match would_transfer(&status, Some(to))? {
            ("unchanged", leads) => Ok(("unchanged", leads)),
            _ => handed(to, admin.transfer_leadership(Some(to)).await?),
        },
        None => Ok(("transferred", admin.transfer_leadership(None).await?)),
    }
}

/// What became of it when this one leads then. A node that is asked to lead and does not answer loses the election to another.
fn handed(to: NodeId, leads: NodeId) -> Result<(&'static str, NodeId), Failed> {
    if to == leads {
        return Ok(("transferred", leads));
    }
    Err(Failed::refused(format!(
        "node {} was asked to take the lead and did not: node {} leads now; `ringfence cluster status` says who answers",
        to.get(),
        leads.get()
    )))
}

fn text(status: &ClusterStatus) -> String {
    let none = || "none yet: this node is no member of one".to_owned();
    let removed = match (status.removed.is_empty(), status.answered_by) {
        (true, _) => String::new(),
        (false, None) => format!("NO MEMBER: {}\n\n", plain(&status.removed)),
        (false, Some(node)) => format!("NODE {} IS NO MEMBER: {}\n\n", node.get(), plain(&status.removed)),
    };
    removed
        + &properties([
            ("cluster", status.cluster.as_ref().map_or_else(none, ClusterId::to_string)),
            ("leader", status.leader.map(|id| id.get().to_string()).unwrap_or_default()),
            ("term", status.term.get().to_string()),
            ("answered by", status.answered_by.map(|id| id.get().to_string()).unwrap_or_default()),
            ("forming", status.forming.clone()),
        ])
        + "\n"
        + &nodes(status).text()
}

/// The nodes for people.
pub(crate) fn nodes(status: &ClusterStatus) -> Table {
    let mut table = Table::new(["NODE", "ADDRESS", "ROLE", "MATCHED", "REACHABLE"]);
    for node in &status.nodes {
        table.row([
            node.id.get().to_string(),
            node.address.clone(),
            node.role.to_string(),
            node.matched.map(|index| index.get().to_string()).unwrap_or_default(),
            node.reachable.map(|yes| if yes { "yes" } else { "NO" }.to_owned()).unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;

    #[test]
    fn a_node_is_written_id_equals_address() {
        let node: NodeArg = "4=10.0.0.4:7600".parse().unwrap();
        assert_eq!((node.id.get(), node.address.as_str()), (4, "10.0.0.4:7600"));
        for bad in ["4", "x=a:1", "0=a:1", "4=a", "4=http://a:1", "=", "4="] {
            assert!(bad.parse::<NodeArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn f066_whoever_goes_from_one_node_to_two_is_told_what_that_means() {
        let node = NodeId::new(2).unwrap();
        assert!(added(node, 2).contains("neither may fail"));
        assert_eq!(added(node, 3), "node 2 is added: it votes\n");
    }

    /// Node 1 leads, node 2 answers it, node 3 does not, and node 4 catches up.
    fn three_voters() -> ClusterStatus {
        use ringfence_api::v1;
        let node = |(node, role, reachable): (u64, v1::NodeRole, bool)| v1::Node {
            node,
            address: format!("10.0.0.{node}:7600"),
            role: role.into(),
            matched_index: None,
            reachable: Some(reachable),
        };
        let nodes = [
            (1, v1::NodeRole::Leader, true),
            (3, v1::NodeRole::Follower, false),
            (2, v1::NodeRole::Follower, true),
            (4, v1::NodeRole::Learner, true),
        ];
        let nodes = nodes.map(node).into();
        let wire = v1::ClusterStatusResponse { leader: 1, term: 1, nodes, ..Default::default() };
        ClusterStatus::try_from(wire).unwrap()
    }

    fn said(failed: Failed) -> (Exit, String) {
        match failed {
            Failed::Error { exit, message, .. } => (exit, message),
            Failed::PipeClosed => panic!("it is an error"),
        }
    }

    #[test]
    fn a_lead_that_another_got_than_the_one_asked_is_a_failure_that_names_both() {
        let [one, two] = [1, 2].map(|id| NodeId::new(id).unwrap());
        assert_eq!(handed(one, one).unwrap_or_else(|e| panic!("{e:?}")), ("transferred", one));
        let (exit, message) = said(handed(one, two).unwrap_err());
        assert_eq!(exit, Exit::Failed);
        assert!(message.contains("node 1 was asked") && message.contains("node 2 leads now"), "{message}");
    }

    #[test]
    fn a_node_that_does_not_answer_or_does_not_vote_is_not_asked_to_lead() {
        let status = three_voters();
        let to = |id| would_transfer(&status, Some(NodeId::new(id).unwrap()));
        assert_eq!(to(1).unwrap_or_else(|e| panic!("{e:?}")).0, "unchanged");
        assert_eq!(to(2).unwrap_or_else(|e| panic!("{e:?}")).0, "planned");
        for (id, why) in [(3, "does not answer"), (4, "does not vote"), (5, "no node 5")] {
            let (exit, message) = said(to(id).unwrap_err());
            assert!(exit == Exit::Failed && message.contains(why), "{message}");
        }
        let (_, other) = would_transfer(&status, None).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(other.get(), 2);
    }

    #[test]
    fn the_json_shape_of_a_change_is_a_contract() {
        let shape = DoneShape { result: "added", node: 4 };
        assert_eq!(json(&shape).unwrap(), r#"{"result":"added","node":4}"#);
    }
}
