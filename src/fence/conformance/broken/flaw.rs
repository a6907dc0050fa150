//! The flaws by name.

use crate::conformance::Rule;
use std::fmt;

macro_rules! flaws {
    ($($(#[$doc:meta])* $variant:ident $name:literal: $text:literal, $rule:ident $(, $also:ident)*;)*) => {
        /// What is wrong with a [`Broken`](super::Broken) store. Each is known from the world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[$doc])* $variant,)*
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &'static [Flaw] = &[$(Flaw::$variant,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Flaw::$variant => $name,)*
                }
            }

            /// The flaw in a sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Flaw::$variant => $text,)*
                }
            }

            /// The rule that is there for it.
            pub const fn found_by(self) -> Rule {
                match self {
                    $(Flaw::$variant => Rule::$rule,)*
                }
            }

            /// The other rules that it breaks. It keeps all the rest.
            pub const fn also_breaks(self) -> &'static [Rule] {
                match self {
                    $(Flaw::$variant => &[$(Rule::$also,)*],)*
                }
            }
        }
    };
}

flaws! {
    /// `UPDATE .. WHERE fence <= :token` on each row.
    PerRow "per-row": "it keeps the epoch in each row, and none of the scope",
        UntouchedRowsFenced, NewerAccepted, OlderRefused, NeverRaisedRefused, ImplausibleRefused,
        Width, OneSession, RaiseFences, SeveralScopesAllOrNothing, ScopeNamedTwice, ManyWriters,
        SurvivesCrash, SurvivesCleanUp;
    /// `INSERT .. WHERE EXISTS (SELECT .. WHERE epoch <= :token)` without a lock.
    UnlockedExists "unlocked-exists":
        "it looks at the fence in the snapshot of its own transaction, and locks nothing",
        OneStep, OneStepForWrites, OneStepForEveryScope, ManyWriters;
    /// etcd's `contrib/lock` storage did.
    Equality "equality": "it compares with `=`: a write under a newer epoch is refused too",
        NewerAccepted, ImplausibleRefused, SeveralScopesAllOrNothing, SurvivesCrash;
    /// An owner id or a random value in place of an order.
    LastOpenerWins "last-opener-wins": "whoever raised last is the owner, whatever its epoch",
        ForwardOnly, NewerAccepted, OlderRefused, ImplausibleRefused, OneSession,
        RefusalChangesNothing, RacingRaises, SurvivesCleanUp;
    /// A fence in memory in front of data on disk.
    ForgetsAtCrash "forgets-at-crash": "it keeps the data on disk and the fence in memory",
        SurvivesCrash, CrashKeepsBinding;
    /// A time to live, a retention job, `DELETE FROM`.
    DeletedOnCleanUp "deleted-on-clean-up": "its clean-up deletes the fence with the data", SurvivesCleanUp;
    /// `WHERE fence < :token`.
    StrictlyGreater "strictly-greater": "it compares with `<`: an epoch counts once",
        EqualAccepted, NewerAccepted, ImplausibleRefused, Width, ScopesApart,
        OneSession, OtherClusterRefused, RefusalChangesNothing, UntouchedRowsFenced, RaiseFences,
        SeveralScopesAllOrNothing, ScopeNamedTwice, OneStep, OneStepForWrites, OneStepForEveryScope,
        NoDeadlock, SurvivesCrash, SurvivesCleanUp;
    /// The check is a call of its own.
    CheckThenWrite "check-then-write": "it lets go of the lock between the check and the write",
        OneStep, OneStepForWrites, OneStepForEveryScope, ManyWriters;
    /// No fence at all.
    NoFence "no-fence": "it accepts everything",
        OlderRefused, NewerAccepted, ForwardOnly, NeverRaisedRefused, ImplausibleRefused, Width,
        OneSession, RefusalChangesNothing, UntouchedRowsFenced, RaiseFences,
        SeveralScopesAllOrNothing, ScopeNamedTwice, RacingRaises, ManyWriters, SurvivesCrash,
        SurvivesCleanUp;
    /// A bare "conflict".
    TellsOneNumber "tells-one-number": "its refusal does not say which epoch won", OlderRefused;
    /// Each connection asks the fence once.
    CachedInHandle "cached-in-handle": "a handle remembers the answer of its first check",
        RaiseFences, NewerAccepted, SeveralScopesAllOrNothing, ManyWriters, SurvivesCleanUp;
    /// A new owner is only known by its first write.
    RaiseDoesNothing "raise-does-nothing": "it takes a raise for a formality",
        RaiseFences, OlderRefused, ForwardOnly, Width, SeveralScopesAllOrNothing, RacingRaises,
        ManyWriters, SurvivesCrash;
    /// No row, no objection.
    AcceptsWithoutRow "accepts-without-row": "it accepts whatever comes first", NeverRaisedRefused;
    /// Nothing looks at how far it goes.
    AnyJump "any-jump": "it believes every epoch", ImplausibleRefused;
    /// A column of type `REAL`.
    SinglePrecision "single-precision": "it keeps epochs as 32-bit floats", Width;
    /// One counter for all partitions.
    KeyspaceWide "keyspace-wide": "it keeps one fence a keyspace", ScopesApart, SeveralScopesAllOrNothing;
    /// The epoch alone tells clones not apart.
    IgnoresSession "ignores-session": "it says that it keeps sessions, and compares none", OneSession;
    /// A token is a number.
    AnyCluster "any-cluster": "it does not look at the cluster", OtherClusterRefused;
    /// Roll-back is somebody else's.
    WritesFirst "writes-first": "it writes, then checks, and has nothing to take back with",
        RefusalChangesNothing, UntouchedRowsFenced, RaiseFences, SeveralScopesAllOrNothing,
        ScopeNamedTwice, ManyWriters;
    /// An optional header.
    UnstampedPasses "unstamped-passes": "it takes a missing token for an old client's", UnstampedRefused;
    /// A loop over single writes.
    AppliedInPart "applied-in-part": "it applies a batch scope by scope",
        SeveralScopesAllOrNothing, ScopeNamedTwice;
    /// A map from scope to token.
    LastTokenCounts "last-token-counts":
        "it compares each token of a scope with the fence, and keeps the last",
        ScopeNamedTwice;
    /// Only a raise is taken for a change of owner.
    NewerWriteUnlocked "newer-write-unlocked": "a write that brings in a newer epoch waits for nobody",
        OneStepForWrites;
    /// The lock of a batch is the lock of its first scope.
    LocksFirstScope "locks-first-scope":
        "it locks the first scope of a batch, and only looks at the others",
        OneStepForEveryScope;
    /// No order of locks.
    LocksAsNamed "locks-as-named": "it locks the scopes in the order in which they are named", NoDeadlock;
    /// `SELECT`, compare in the program, `UPDATE`.
    RaiseInThreeSteps "raise-in-three-steps": "its raise reads, decides and writes without a lock",
        RacingRaises;
    /// A circuit breaker in the wrong place.
    GivesUp "gives-up": "after five refusals in a row it takes itself for broken, and lets one through",
        ManyWriters;
    /// Bound anew at every start.
    ForgetsClusterAtCrash "forgets-cluster-at-crash": "after a restart it belongs to whoever comes first",
        CrashKeepsBinding;
}

impl Flaw {
    /// Every rule that it breaks.
    pub fn breaks(self) -> impl Iterator<Item = Rule> {
        std::iter::once(self.found_by()).chain(self.also_breaks().iter().copied())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}
