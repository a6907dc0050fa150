//! Whether those that are left when a node is removed could go on without it.

use crate::raft::Member;
use ringfence_core::ids::NodeId;
use std::collections::BTreeMap;

/// Says why a node must not be removed now: too few of the voters that would be left answer, and nothing could be decided
/// until one of the others is back, not even its return. `answers` is asked of all but the node.
pub(super) fn would_be_lost(
    members: &BTreeMap<NodeId, Member>,
    node: NodeId,
    answers: impl Fn(NodeId) -> bool,
) -> Option<String> {
    let left = members.iter().filter(|(id, member)| **id != node && member.voter);
    let (there, silent): (Vec<NodeId>, Vec<NodeId>) = left.map(|(id, _)| *id).partition(|id| answers(*id));
    let all = there.len() + silent.len();
    let needed = all / 2 + 1;
    (there.len() < needed).then(|| {
        let silent = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "without {node}, {} of {all} voting nodes would answer, and {needed} are needed to decide anything: start {silent} \
             again first, or remove what is gone for good before {node}",
            there.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: &[u64], learners: &[u64]) -> BTreeMap<NodeId, Member> {
        let member = |voter| {
            move |id: &u64| {
                let member = Member { address: format!("h{id}:7600"), voter, matched: None };
                (NodeId::new(*id).unwrap(), member)
            }
        };
        voters.iter().map(member(true)).chain(learners.iter().map(member(false))).collect()
    }

    #[test]
    fn a_node_is_kept_while_the_others_could_not_go_on_without_it() {
        // Voters, learners, who is removed, who answers of the others, whether it goes.
        for (voters, learners, node, there, goes) in [
            (&[1, 2, 3][..], &[][..], 1, &[2, 3][..], true),
            (&[1, 2, 3], &[], 3, &[1, 2], true),
            (&[1, 2, 3], &[], 1, &[2], false),
            (&[1, 2, 3, 4, 5], &[], 1, &[2, 3], false),
            (&[1, 2, 3, 4, 5], &[], 1, &[2, 3, 4], true),
            (&[1, 2, 3, 4, 5], &[], 5, &[1, 2, 3], true),
            (&[1, 2, 3, 4], &[], 4, &[1, 2], true),
            // Who has no vote does not count, whether it answers or goes.
            (&[1, 2, 3], &[4], 1, &[2, 4], false),
            (&[1, 2, 3], &[4], 4, &[1, 2], true),
            (&[1, 2], &[], 2, &[1], true),
        ] {
            let lost = would_be_lost(&members(voters, learners), NodeId::new(node).unwrap(), |id| {
                there.contains(&id.get())
            });
            assert_eq!(
                lost.is_none(),
                goes,
                "{voters:?} {learners:?} without {node}, {there:?} answer: {lost:?}"
            );
        }
        let lost =
            would_be_lost(&members(&[1, 2, 3], &[]), NodeId::new(1).unwrap(), |id| id.get() == 2).unwrap();
        assert!(lost.contains("1 of 2") && lost.contains("start n3 again"), "{lost}");
    }
}
