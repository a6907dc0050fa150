//! The rules by name.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident $name:literal: $text:literal, $failure:literal;)*) => {
        /// One rule of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// Every rule, in the order in which they are run.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// Its name, for a report or a list of exceptions: short, and the same in every version.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$variant => $name,)*
                }
            }

            /// The rule in a sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Rule::$variant => $text,)*
                }
            }

            /// What happens in the world where it is broken, with the numbers of `docs/cases.md`.
            pub const fn failure(self) -> &'static str {
                match self {
                    $(Rule::$variant => $failure,)*
                }
            }
        }
    };
}

rules! {
    /// Strict comparison refuses the second write of the rightful owner.
    EqualAccepted "equal-accepted": "the owner writes again and again under one epoch, through several handles",
        "a strict comparison lets the rightful owner write once, and stops it then (T01)";
    /// Comparison by equality refuses the newer owner.
    NewerAccepted "newer-accepted": "a write under a newer epoch is accepted, and fences the older ones as a raise does",
        "a comparison by equality refuses the new owner, and the old one goes on (T01)";
    /// What a fence is for; and the loser must learn both numbers.
    OlderRefused "older-refused": "an older epoch is refused, with its own number and the winning one",
        "a replaced owner writes; or it is stopped by an error that does not say why (F099, T21)";
    /// "Last one wins" lets a replaced owner take its place back.
    ForwardOnly "forward-only": "a fence only moves forward, whatever was refused in between",
        "a replaced owner that opens the store again takes its place back (T09)";
    /// Accepting where nothing is known lets the stalest owner in after anything that loses rows.
    NeverRaisedRefused "never-raised-refused": "a write to a scope that nobody has raised is refused, and raises nothing",
        "after a loss of rows the first who comes is believed, and that is the one who slept longest (T07)";
    /// One forged epoch near the top would lock everybody out for good.
    ImplausibleRefused "implausible-refused": "a jump of more than 2^48 at once is refused, and one of 2^48 is not",
        "one forged or garbled number locks every owner out for good (F096, T10)";
    /// Signed columns, doubles and 32-bit fields each lose some epochs.
    Width "width": "every epoch up to 2^53 - 1 is kept and compared exactly",
        "neighbours become equal in a double, or the larger one negative in a narrow column (T17)";
    /// A prefix match, or a fence per keyspace, mixes what was counted apart.
    ScopesApart "scopes-apart": "raising one scope moves no other",
        "an owner is refused because another partition changed hands (F042)";
    /// Only where the fence keeps sessions.
    OneSession "one-session": "a second session under one epoch is refused before anything is written",
        "a cloned machine or a forked process writes under the same number (F042, T11, T12)";
    /// Two clusters count epochs apart; over one store each would fence the other at random.
    OtherClusterRefused "other-cluster-refused": "a token of another cluster is refused, for a raise and for a write",
        "a test cluster is pointed at the store of the real one (F057)";
    /// State that moves before the check moves for everybody.
    RefusalChangesNothing "refusal-changes-nothing": "a refused write leaves the data and the fence as they were",
        "what was refused has happened all the same (F076, F049)";
    /// A fence kept per row leaves open every row that the new owner has not written.
    UntouchedRowsFenced "untouched-rows-fenced": "rows that the new owner has not touched, and new rows, are fenced too",
        "`WHERE fence <= 33` on each row protects only the rows that the new owner has written (T02)";
    /// The new owner reads before it writes: what it has read must not change behind it.
    RaiseFences "raise-fences": "a raise without a write fences the older owner, also one that was accepted before it",
        "the new owner reads, and what it has read changes behind it (T04)";
    /// An optional token is no token.
    UnstampedRefused "unstamped-refused": "a write without a token is refused",
        "the protection is there, and the old client does not know of it (F005)";
    /// A batch that is half applied is worse than either half.
    SeveralScopesAllOrNothing "several-scopes-all-or-nothing":
        "a write over several scopes is accepted or refused as a whole, and fences each of them",
        "one of two partitions has moved, and half of the batch is there (T13)";
    /// The lower number must not hide behind the higher.
    ScopeNamedTwice "scope-named-twice": "of two tokens of one scope the newer makes the older refused, in either order",
        "a batch of an old and a new operation of one owner takes both (T05, T13)";
    /// The gap between check and write is where a paused owner sleeps.
    OneStep "one-step": "no raise returns between a check and its write",
        "an owner pauses after its check, and writes on top of what its successor has read (T03, T18)";
    /// A newer owner that writes at once must be kept out of the gap as one that raises.
    OneStepForWrites "one-step-for-writes": "no write under a newer epoch returns between a check and its write",
        "only raises take the lock, and a newer write gets between (T03)";
    /// Each scope of a batch, and not only the first.
    OneStepForEveryScope "one-step-for-every-scope":
        "of the scopes of one write, none is raised between the check and the write",
        "the first partition of a batch is locked, and the second is only looked at (T03, T13)";
    /// Fences locked in the order of the caller's list wait for each other.
    NoDeadlock "no-deadlock": "two writes over the same scopes in opposite order both end",
        "two batches wait for each other until somebody ends one of them (T13)";
    /// A raise that reads, decides and writes in three steps takes another one back.
    RacingRaises "racing-raises": "of raises at one time the highest stays, and none that has answered is taken back",
        "two new owners raise at once, and the fence ends at the lower number (T09)";
    /// What only shows when several do everything at once.
    ManyWriters "many-writers":
        "while several write and one raises, nobody writes under an epoch that was replaced before it began",
        "it works in every test of two clients, and lets one through in a storm (T03, T57)";
    /// A fence that forgets lets the replaced owner in after the restart.
    SurvivesCrash "survives-crash": "what a raise or a write has answered survives a crash",
        "a fence in memory, or one that is flushed later, begins anew after a restart (F011, T09)";
    /// What stands beside the epoch has to survive as well.
    CrashKeepsBinding "crash-keeps-binding": "the cluster, the sessions and every scope are known after a crash as before",
        "after a restart the store belongs to whoever comes first (F057)";
    /// A fence is never deleted, expired or collected.
    SurvivesCleanUp "survives-clean-up": "no clean-up of the data takes the fence with it",
        "housekeeping removes the only evidence that a sleeping owner was replaced (F001, T08)";
}

impl Rule {
    /// The rule of that name.
    pub fn named(name: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}
