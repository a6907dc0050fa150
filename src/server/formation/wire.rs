//! The only conversion of formation.proto.

use crate::identity::{Belonging, Incarnation, Member};
use crate::settings::check_address;
use ringfence_api::convert::InvalidField;
use ringfence_api::convert::checked;
use ringfence_api::v1;
use ringfence_core::ids::{ClusterId, NodeId};
use std::collections::BTreeMap;

/// The most nodes in one message: a cluster has no more members.
const MAX_NODES: usize = crate::raft::limits::MEMBERS;

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) node: NodeId,
    pub(super) address: String,
    pub(super) incarnation: Incarnation,
    pub(super) cluster: Option<ClusterId>,
    /// Empty when it waits to be added.
    pub(super) founders: BTreeMap<NodeId, String>,
}

impl From<&Hello> for v1::FormationSelf {
    fn from(from: &Hello) -> v1::FormationSelf {
        let founders = from.founders.iter().map(|(node, address)| v1::FormationNode {
            node: node.get(),
            address: address.clone(),
            incarnation: 0,
        });
        v1::FormationSelf {
            node: Some(v1::FormationNode {
                node: from.node.get(),
                address: from.address.clone(),
                incarnation: from.incarnation.get(),
            }),
            cluster: from.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            founders: founders.collect(),
        }
    }
}

impl TryFrom<v1::FormationSelf> for Hello {
    type Error = InvalidField;

    fn try_from(wire: v1::FormationSelf) -> Result<Hello, InvalidField> {
        let node = wire.node.ok_or_else(|| InvalidField::missing("node"))?;
        let (node, member) = member(node).map_err(|e| e.within("node"))?;
        let incarnation = member.incarnation.ok_or_else(|| InvalidField::missing("node.incarnation"))?;
        let cluster = (!wire.cluster.is_empty()).then(|| cluster(&wire.cluster)).transpose()?;
        let founders = members("founders", wire.founders)?;
        let founders = founders.into_iter().map(|(node, member)| (node, member.address)).collect();
        Ok(Hello { node, address: member.address, incarnation, cluster, founders })
    }
}

/// A cluster that a node is asked to belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adopt {
    pub(super) to: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) belonging: Belonging,
    pub(super) added: bool,
}

impl Adopt {
    pub(super) fn to_wire(&self) -> v1::FormationAdoptRequest {
        let node = |(node, member): (&NodeId, &Member)| v1::FormationNode {
            node: node.get(),
            address: member.address.clone(),
            incarnation: member.incarnation.map_or(0, Incarnation::get),
        };
        let address = self.belonging.members.get(&self.to).map(|member| member.address.clone());
        v1::FormationAdoptRequest {
            to: Some(v1::FormationNode {
                node: self.to.get(),
                address: address.unwrap_or_default(),
                incarnation: self.incarnation.get(),
            }),
            cluster: self.belonging.cluster.to_string(),
            members: self.belonging.members.iter().map(node).collect(),
            added: self.added,
        }
    }
}

impl TryFrom<v1::FormationAdoptRequest> for Adopt {
    type Error = InvalidField;

    fn try_from(wire: v1::FormationAdoptRequest) -> Result<Adopt, InvalidField> {
        let to = wire.to.ok_or_else(|| InvalidField::missing("to"))?;
        let (to, meant) = member(to).map_err(|e| e.within("to"))?;
        let incarnation = meant.incarnation.ok_or_else(|| InvalidField::missing("to.incarnation"))?;
        let members = members("members", wire.members)?;
        if !members.contains_key(&to) {
            return Err(InvalidField::new("members", format_args!("{to} is not among them")));
        }
        let belonging = Belonging { cluster: cluster(&wire.cluster)?, members, founder: false };
        Ok(Adopt { to, incarnation, belonging, added: wire.added })
    }
}

fn cluster(text: &str) -> Result<ClusterId, InvalidField> {
    ClusterId::new(text).map_err(|why| InvalidField::new("cluster", why))
}

fn members(field: &str, wire: Vec<v1::FormationNode>) -> Result<BTreeMap<NodeId, Member>, InvalidField> {
    if wire.len() > MAX_NODES {
        return Err(InvalidField::new(field, format_args!("there are at most {MAX_NODES}")));
    }
    let mut members = BTreeMap::new();
    for (place, node) in wire.into_iter().enumerate() {
        let (node, member) = member(node).map_err(|e| e.at(field, place))?;
        if members.insert(node, member).is_some() {
            return Err(InvalidField::new(field, format_args!("{node} is there twice")));
        }
    }
    Ok(members)
}

fn member(wire: v1::FormationNode) -> Result<(NodeId, Member), InvalidField> {
    let node = checked::node_id("node", wire.node)?;
    check_address(&wire.address).map_err(|why| InvalidField::new("address", why))?;
    let incarnation = (wire.incarnation != 0).then_some(Incarnation::new(wire.incarnation));
    Ok((node, Member { address: wire.address, incarnation }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopt() -> Adopt {
        let member = |port: u16, incarnation: u64| Member {
            address: format!("127.0.0.1:{port}"),
            incarnation: Some(Incarnation::new(incarnation)),
        };
        let ids = [NodeId::new(1).unwrap(), NodeId::new(2).unwrap()];
        Adopt {
            to: ids[1],
            incarnation: Incarnation::new(9),
            belonging: Belonging {
                cluster: ClusterId::new("c1").unwrap(),
                members: BTreeMap::from([(ids[0], member(1, 8)), (ids[1], member(2, 9))]),
                founder: false,
            },
            added: true,
        }
    }

    #[test]
    fn an_adoption_is_the_same_behind_the_wire() {
        assert_eq!(Adopt::try_from(adopt().to_wire()), Ok(adopt()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let wrong = |change: fn(&mut v1::FormationAdoptRequest)| {
            let mut wire = adopt().to_wire();
            change(&mut wire);
            Adopt::try_from(wire).unwrap_err().field().to_owned()
        };
        assert_eq!(wrong(|a| a.to = None), "to");
        assert_eq!(wrong(|a| a.cluster = "A".into()), "cluster");
        assert_eq!(wrong(|a| a.members.truncate(1)), "members");
        assert_eq!(wrong(|a| a.members.push(a.members[0].clone())), "members");
        assert_eq!(wrong(|a| a.members[0].address = "x".into()), "members[0].address");
        assert_eq!(wrong(|a| a.members[0].node = 0), "members[0].node");
        assert_eq!(wrong(|a| a.members = vec![a.members[0].clone(); 1_000]), "members");
    }
}
