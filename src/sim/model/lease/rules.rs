//! The rules that can be taken out of a world of leases, each to show that it is needed.
//!
//! A rule is taken out around the shipped types: the world answers, arms, proposes or delivers otherwise than the
//! product does. The product has no switch for it.

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A renewal is answered after a round of confirmation that began after its arrival.
    ConfirmsRenewals,
    /// A holder counts its lease from the sending of the renewal. Without it: from the receipt of the answer.
    CountsFromSending,
    /// The rates of two clocks differ by less than the bound. Without it: by five percent.
    RatesWithinTheBound,
    /// A renewal of a suspected session waits for a clear.
    HoldsTheSuspected,
    /// A session is marked when its suspicion is proposed. Without it: when it applies.
    MarksWhenItProposes,
    /// An expiry rests on one suspicion. Without it: on whichever there is when it applies.
    ExpiryNamesItsSuspicion,
    /// A new leader counts from its own beginning. Without it: from a third of a TTL before.
    ArmsInFull,
    /// A lessor ends with its term. Without it: the node that leads again goes on with the one it had.
    LessorBelongsToOneTerm,
    /// A lessor is made when an entry of its own term has applied. Without it: at the election.
    LeadsAfterAnEntryOfItsTerm,
    /// Each renewal is answered anew. Without it: one that was acknowledged before is acknowledged from memory.
    RemembersNoAcknowledgement,
    /// An acknowledgement names the revision it speaks of.
    AcknowledgementsNameTheRevision,
    /// An acknowledgement names the drains in progress.
    AcknowledgementsNameDrains,
    /// A drain that its owner has not seen lasts a TTL. Without it: it ends at its deadline.
    UnseenDrainLastsATtl,
    /// A holder says that it has seen a drain when an acknowledgement has bounded it. Without it: when it was told.
    SaysSeenWhenBounded,
    /// A drain is armed once. Without it: again by a second drain.
    DrainIsArmedOnce,
    /// What a replaced session held cools until its lease has run out. Without it: it is granted at once.
    ReplacedPartitionsCool,
    /// A lock that was broken or that its holder's session has left behind cools until the lease has run out. Without it: it is
    /// granted at once.
    LostLocksCool,
    /// A holder stops to believe in a lock before it releases it.
    ReleasesNoLockThatItBelievesIn,
    /// A holder stops to believe before it releases.
    GivesBackBeforeItReleases,
    /// A lease that ran out does not come back, and a bound does not move back: the shipped lessee is stricter than it has
    /// to be. Without it, each acknowledgement counts by itself.
    WhatIsOverStaysOver,
    /// A leader lasts longer than a third of a TTL.
    LeadersLast,
    /// A suspicion is committed before the next leader counts. Without it: each leader counts from nothing.
    SuspicionsOutliveTheirLeader,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 22] = [
        Rule::ConfirmsRenewals,
        Rule::CountsFromSending,
        Rule::RatesWithinTheBound,
        Rule::HoldsTheSuspected,
        Rule::MarksWhenItProposes,
        Rule::ExpiryNamesItsSuspicion,
        Rule::ArmsInFull,
        Rule::LessorBelongsToOneTerm,
        Rule::LeadsAfterAnEntryOfItsTerm,
        Rule::RemembersNoAcknowledgement,
        Rule::AcknowledgementsNameTheRevision,
        Rule::AcknowledgementsNameDrains,
        Rule::UnseenDrainLastsATtl,
        Rule::SaysSeenWhenBounded,
        Rule::DrainIsArmedOnce,
        Rule::ReplacedPartitionsCool,
        Rule::LostLocksCool,
        Rule::ReleasesNoLockThatItBelievesIn,
        Rule::GivesBackBeforeItReleases,
        Rule::WhatIsOverStaysOver,
        Rule::LeadersLast,
        Rule::SuspicionsOutliveTheirLeader,
    ];

    /// What a world without it is called.
    pub fn name(self) -> &'static str {
        match self {
            Rule::ConfirmsRenewals => "without-confirms-renewals",
            Rule::CountsFromSending => "without-counts-from-sending",
            Rule::RatesWithinTheBound => "without-rates-within-the-bound",
            Rule::HoldsTheSuspected => "without-holds-the-suspected",
            Rule::MarksWhenItProposes => "without-marks-when-it-proposes",
            Rule::ExpiryNamesItsSuspicion => "without-expiry-names-its-suspicion",
            Rule::ArmsInFull => "without-arms-in-full",
            Rule::LessorBelongsToOneTerm => "without-lessor-belongs-to-one-term",
            Rule::LeadsAfterAnEntryOfItsTerm => "without-leads-after-an-entry-of-its-term",
            Rule::RemembersNoAcknowledgement => "without-remembers-no-acknowledgement",
            Rule::AcknowledgementsNameTheRevision => "without-acknowledgements-name-the-revision",
            Rule::AcknowledgementsNameDrains => "without-acknowledgements-name-drains",
            Rule::UnseenDrainLastsATtl => "without-unseen-drain-lasts-a-ttl",
            Rule::SaysSeenWhenBounded => "without-says-seen-when-bounded",
            Rule::DrainIsArmedOnce => "without-drain-is-armed-once",
            Rule::ReplacedPartitionsCool => "without-replaced-partitions-cool",
            Rule::LostLocksCool => "without-lost-locks-cool",
            Rule::ReleasesNoLockThatItBelievesIn => "without-releases-no-lock-that-it-believes-in",
            Rule::GivesBackBeforeItReleases => "without-gives-back-before-it-releases",
            Rule::WhatIsOverStaysOver => "without-what-is-over-stays-over",
            Rule::LeadersLast => "without-leaders-last",
            Rule::SuspicionsOutliveTheirLeader => "without-suspicions-outlive-their-leader",
        }
    }

    /// What is otherwise without it.
    pub fn taken_out(self) -> &'static str {
        match self {
            Rule::ConfirmsRenewals => "renewals are answered without a round of confirmation",
            Rule::CountsFromSending => "a lease is counted from the receipt of the answer",
            Rule::RatesWithinTheBound => "a clock is five percent slow",
            Rule::HoldsTheSuspected => "renewals of the suspected are answered at once",
            Rule::MarksWhenItProposes => "a suspicion is marked when it applies",
            Rule::ExpiryNamesItsSuspicion => "an expiry rests on whatever suspicion there is",
            Rule::ArmsInFull => "a new leader counts from a third of a TTL before its beginning",
            Rule::LessorBelongsToOneTerm => "a lessor is kept across terms",
            Rule::LeadsAfterAnEntryOfItsTerm => "a lessor is made before an entry of its own term",
            Rule::RemembersNoAcknowledgement => "a renewal is acknowledged from memory",
            Rule::AcknowledgementsNameTheRevision => "acknowledgements do not name the revision",
            Rule::AcknowledgementsNameDrains => "acknowledgements do not name drains",
            Rule::UnseenDrainLastsATtl => "a drain ends at its deadline although its owner has not seen it",
            Rule::SaysSeenWhenBounded => "a holder says that it has seen a drain before it is bounded by it",
            Rule::DrainIsArmedOnce => "a second drain arms the first one anew",
            Rule::ReplacedPartitionsCool => "what a replaced session held is granted at once",
            Rule::LostLocksCool => "a lock that was lost is granted at once",
            Rule::ReleasesNoLockThatItBelievesIn => "a holder releases a lock and goes on believing in it",
            Rule::GivesBackBeforeItReleases => "a holder releases and goes on believing",
            Rule::WhatIsOverStaysOver => {
                "an acknowledgement brings back a lease that ran out, and moves a bound back"
            }
            Rule::LeadersLast => "leaders last a quarter of a TTL",
            Rule::SuspicionsOutliveTheirLeader => "each leader counts a silence from nothing",
        }
    }
}
