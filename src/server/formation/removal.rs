//! What a node knows of its own removal. The entry that says so may not have reached it: the others stop talking to it then, and
//! what it has is the note that was made before.

use super::removal_is_noted;
use crate::context::Context;
use std::fmt;

/// This node was removed, or is likely to have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It was.
    Certain,
    /// Somebody has begun to remove it, and no leader has been heard of since.
    Likely,
}

impl Removal {
    /// What this node knows of its own removal; `None` when there is nothing to know.
    pub(crate) fn of(context: &Context, leaderless: bool) -> Option<Removal> {
        let raft = context.raft.status().borrow().clone();
        let is_member = raft.members.contains_key(&raft.node) || raft.members.is_empty();
        let noted = removal_is_noted(context, raft.node);
        Removal::from(is_member, noted, leaderless)
    }

    fn from(is_member: bool, noted: bool, leaderless: bool) -> Option<Removal> {
        match (is_member, noted) {
            (false, true) => Some(Removal::Certain),
            (true, true) if leaderless => Some(Removal::Likely),
            _ => None,
        }
    }
}

/// With what to do.
impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Removal::Certain => {
                "this node was removed from the cluster for good, and what it knows of the others is old: stop it, throw its \
                 data away, and ask another node"
            }
            Removal::Likely => {
                "somebody has begun to remove this node, and it has heard of no leader since: ask another node, which knows \
                 whether it was removed"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_hears_a_leader_was_not_removed_whatever_was_begun() {
        assert_eq!(Removal::from(true, true, false), None);
        assert_eq!(Removal::from(true, true, true), Some(Removal::Likely));
        for leaderless in [true, false] {
            assert_eq!(Removal::from(false, true, leaderless), Some(Removal::Certain));
            assert_eq!(Removal::from(true, false, leaderless), None);
            assert_eq!(Removal::from(false, false, leaderless), None, "it waits to be added");
        }
    }
}
