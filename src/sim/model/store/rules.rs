//! The rules that can be taken out of a world of storage.

/// A rule of the fence, or of who uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The storage asks a fence at all.
    ThereIsAFence,
    /// Epochs are compared by their order. Without it: by equality, and the last raise wins.
    ComparesByOrder,
    /// A check and its write are one step.
    ChecksWithTheWrite,
    /// A raise is durable when it is answered. Without it: with the next write only.
    RaisesAreDurable,
    /// An owner raises before it reads.
    RaisesBeforeItReads,
    /// An owner raises every fence before it reads anything. Without it: each before it reads what is behind it.
    RaisesAllBeforeItReads,
    /// A grant is told when it is committed. Without it: when it is proposed.
    TellsWhatIsCommitted,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 7] = [
        Rule::ThereIsAFence,
        Rule::ComparesByOrder,
        Rule::ChecksWithTheWrite,
        Rule::RaisesAreDurable,
        Rule::RaisesBeforeItReads,
        Rule::RaisesAllBeforeItReads,
        Rule::TellsWhatIsCommitted,
    ];

    /// What a world without it is called.
    pub fn name(self) -> &'static str {
        match self {
            Rule::ThereIsAFence => "without-there-is-a-fence",
            Rule::ComparesByOrder => "without-compares-by-order",
            Rule::ChecksWithTheWrite => "without-checks-with-the-write",
            Rule::RaisesAreDurable => "without-raises-are-durable",
            Rule::RaisesBeforeItReads => "without-raises-before-it-reads",
            Rule::RaisesAllBeforeItReads => "without-raises-all-before-it-reads",
            Rule::TellsWhatIsCommitted => "without-tells-what-is-committed",
        }
    }

    /// What is otherwise without it.
    pub fn taken_out(self) -> &'static str {
        match self {
            Rule::ThereIsAFence => "there is no fence",
            Rule::ComparesByOrder => "epochs are compared by equality, and the last raise wins",
            Rule::ChecksWithTheWrite => "a write takes effect some time after its check",
            Rule::RaisesAreDurable => "a raise is answered before it is durable",
            Rule::RaisesBeforeItReads => "an owner reads before it raises",
            Rule::RaisesAllBeforeItReads => "an owner raises each fence before it reads what is behind it",
            Rule::TellsWhatIsCommitted => "a grant is told before it is committed",
        }
    }
}
