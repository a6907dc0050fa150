//! The rules that can be taken out, and the kinds of trouble. A rule is taken out in the harness: it answers, arms or
//! proposes otherwise than the product says. `docs/mutants.md` tells what becomes of the product itself without one.

/// A rule of the protocol. A world without it must come to harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A renewal is answered after a confirmation round, by the state applied then.
    ConfirmsRenewals,
    /// A holder counts from the sending of its renewal. Without it: from the receipt of the answer.
    CountsFromSending,
    /// A lease is worth its TTL less the drift and a margin.
    AllowsForDrift,
    /// A renewal of a session under suspicion waits for a clear.
    HoldsTheSuspected,
    /// The mark is set when a suspicion is handed out. Without it: when it applies.
    MarksWhenItProposes,
    /// An expiry rests on one suspicion, and is refused when that was taken back.
    ExpiryNamesItsSuspicion,
    /// A new leader arms every session at its own beginning. Without it: a third of a TTL earlier.
    ArmsInFull,
    /// A lessor is thrown away with its term. Without it: a node that leads again has its old deadlines.
    LessorBelongsToOneTerm,
    /// A lessor is made when an entry of its own term was applied. Without it: at the election, on the state there is.
    LeadsBeforeAnEntryOfItsTerm,
    /// An acknowledgement extends nothing while the holder's picture is older.
    AcknowledgementsNameTheRevision,
    /// An acknowledgement says what is left of each drain.
    AcknowledgementsNameDrains,
    /// A drain that its owner has not seen lasts a TTL at the least. Without it: its deadline.
    UnseenDrainLastsATtl,
    /// A second drain does not arm the first one anew.
    DrainIsArmedOnce,
    /// The partitions of a session that was replaced cool until its lease has run out.
    ReplacedPartitionsCool,
}

/// How often what happens, in a thousand steps of some 8 ms each; and how slow things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) elections: u64,
    /// A leader is cut off from the others, and another one is elected.
    pub(super) isolations: u64,
    /// A node is paused.
    pub(super) pauses: u64,
    /// A process is paused.
    pub(super) sleeps: u64,
    pub(super) cuts: u64,
    pub(super) deaths: u64,
    pub(super) replacements: u64,
    pub(super) drains: u64,
    /// A keyspace of the least size begins to be split, or the beginning is taken back.
    pub(super) splits: u64,
    /// Fences are ordered to be raised again, and now and then an owner's storage has seen more than it was granted.
    pub(super) reasserts: u64,
    /// Of a thousand messages.
    pub(super) losses: u64,
    pub(super) slow_messages: u64,
    /// Of a thousand rounds.
    pub(super) failed_rounds: u64,
    /// Of a thousand proposals.
    pub(super) slow_commits: u64,
    /// Of a thousand entries, how many a node leaves for its next step.
    pub(super) lag: u64,
    pub(super) drain_deadline_ms: u64,
}

impl Profile {
    /// Everything at once.
    pub(super) const ALL: Profile = Profile {
        elections: 2,
        isolations: 1,
        pauses: 4,
        sleeps: 4,
        cuts: 6,
        deaths: 2,
        replacements: 1,
        drains: 8,
        splits: 0,
        reasserts: 0,
        losses: 60,
        slow_messages: 60,
        failed_rounds: 30,
        slow_commits: 60,
        lag: 300,
        drain_deadline_ms: 1_500,
    };

    /// Processes are paused for about a TTL, and nothing else happens; everything is fast.
    pub(super) const SLEEPS: Profile = Profile {
        elections: 0,
        isolations: 0,
        pauses: 0,
        sleeps: 12,
        cuts: 0,
        deaths: 0,
        replacements: 0,
        drains: 0,
        splits: 0,
        reasserts: 0,
        losses: 0,
        slow_messages: 0,
        failed_rounds: 0,
        slow_commits: 0,
        lag: 0,
        drain_deadline_ms: 1_500,
    };

    /// Suspicions meet elections, while proposals take long.
    pub(super) const SUSPICIONS: Profile = Profile {
        isolations: 5,
        slow_commits: 800,
        slow_messages: 60,
        failed_rounds: 100,
        ..Profile::SLEEPS
    };

    /// Suspicions are taken back while rounds fail and proposals take long.
    pub(super) const CLEARS: Profile = Profile { slow_commits: 900, failed_rounds: 400, ..Profile::SLEEPS };

    /// Leaders are elected that have not caught up.
    pub(super) const LAGGARDS: Profile =
        Profile { elections: 5, slow_messages: 60, lag: 900, ..Profile::SLEEPS };

    /// Partitions are drained again and again.
    pub(super) const DRAINS: Profile = Profile { sleeps: 1, drains: 8, slow_commits: 900, ..Profile::SLEEPS };

    /// Everything at once, while keyspaces are split.
    pub(super) const SPLITS: Profile = Profile { splits: 6, drains: 4, ..Profile::ALL };

    /// Everything at once, while fences are raised again.
    pub(super) const REASSERTS: Profile = Profile { reasserts: 6, drains: 4, splits: 1, ..Profile::ALL };

    /// Drains, and half of the messages are lost.
    pub(super) const LOSSES: Profile = Profile { sleeps: 4, drains: 20, losses: 500, ..Profile::SLEEPS };
}
