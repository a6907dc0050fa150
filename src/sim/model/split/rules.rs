//! The rules that can be taken out of a world in which a partition is split.

/// A rule of a split, or of who owns what was split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Whoever owns the child raises the parent's fence. Without it: its own only, as who knows of no split does.
    RaisesTheParent,
    /// It does so before it reads. Without it: when its own fence is raised, and the parent's sometime.
    RaisesTheParentFirst,
    /// A split mints an epoch of the parent. Without it: the parent's fence is raised to the epoch of its last owner.
    MintsAnEpoch,
    /// An owner takes those keys for its own that are its partition's when it is granted. Without it: those from before.
    CoversItsShare,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 4] =
        [Rule::RaisesTheParent, Rule::RaisesTheParentFirst, Rule::MintsAnEpoch, Rule::CoversItsShare];

    /// What a world without it is called.
    pub fn name(self) -> &'static str {
        match self {
            Rule::RaisesTheParent => "without-raises-the-parent",
            Rule::RaisesTheParentFirst => "without-raises-the-parent-first",
            Rule::MintsAnEpoch => "without-mints-an-epoch",
            Rule::CoversItsShare => "without-covers-its-share",
        }
    }

    /// What is otherwise without it.
    pub fn taken_out(self) -> &'static str {
        match self {
            Rule::RaisesTheParent => "the child's owner raises its own fence only",
            Rule::RaisesTheParentFirst => "the child's owner reads before it has raised the parent's fence",
            Rule::MintsAnEpoch => "the parent's fence is raised to the epoch of its last owner",
            Rule::CoversItsShare => "the parent's next owner goes by the number of partitions from before",
        }
    }
}
