//! The rules by name.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// One rule of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $name,)*
        }

        impl Rule {
            /// Every rule, in the order in which they are run.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// The rule in a sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Rule::$name => $text,)*
                }
            }
        }
    };
}

rules! {
    /// Strict comparison refuses the second write of the rightful owner.
    EqualAccepted: "the owner writes again and again under one epoch",
    /// What a fence is for; and the loser must learn both numbers.
    OlderRefused: "an older epoch is refused, with its own number and the winning one",
    /// Comparison by equality, or "last one wins", lets a replaced owner take its place back.
    ForwardOnly: "a fence only moves forward, whatever was refused in between",
    /// Accepting where nothing is known lets the stalest owner in after anything that loses rows.
    NeverRaisedRefused: "a write to a scope that nobody has raised is refused",
    /// One forged epoch near the top would lock everybody out for good.
    ImplausibleRefused: "a jump of more than 2^48 at once is refused, and one of 2^48 is not",
    /// Signed columns, doubles and 32-bit fields each lose some epochs.
    Width: "every epoch up to 2^53 - 1 is kept and compared exactly",
    /// A prefix match, or a fence per keyspace, mixes what was counted apart.
    ScopesApart: "raising one scope moves no other",
    /// Only where the fence keeps sessions.
    OneSession: "a second session under one epoch is refused before anything is written",
    /// Two clusters count epochs apart; over one store each would fence the other at random.
    OtherClusterRefused: "a token of another cluster is refused, for a raise and for a write",
    /// State that moves before the check moves for everybody.
    RefusalChangesNothing: "a refused write leaves the data and the fence as they were",
    /// A fence kept per row leaves open every row that the new owner has not written.
    UntouchedRowsFenced: "rows that the new owner has not touched, and new rows, are fenced too",
    /// The new owner reads before it writes: what it has read must not change behind it.
    RaiseFences: "a raise without a write fences the older owner",
    /// An optional token is no token.
    UnstampedRefused: "a write without a token is refused",
    /// A batch that is half applied is worse than either half.
    SeveralScopesAllOrNothing: "a write over several scopes is accepted or refused as a whole",
    /// The gap between check and write is where a paused owner sleeps.
    OneStep: "no raise returns between a check and its write",
    /// Fences locked in the order of the caller's list wait for each other.
    NoDeadlock: "two writes over the same scopes in opposite order both end",
    /// A fence that forgets lets the replaced owner in after the restart.
    SurvivesCrash: "what a raise or a write has answered survives a crash",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}
