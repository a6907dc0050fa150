//! What a plan and an explanation say, in sentences.

use ringfence_core::lead::LoadSource;
use ringfence_core::placement::{Because, Kept, PinObstacle, WorkerStanding};

/// What keeps a partition whose move is planned for balance, where nobody balances.
pub(super) const NOT_BY_ITSELF: &str =
    "the keyspace does not balance by itself: approve a plan, or switch its balancing on";

/// Why a partition is where it is.
pub(super) fn because(because: &Because) -> String {
    match because {
        Because::Home => "it is at home: the ring prefers this worker for it".to_owned(),
        Because::Pinned => "it is pinned there".to_owned(),
        Because::Overflow(why) => format!("its home {why}; this worker is the next that could take it"),
        Because::KeptOverflow(why) => {
            format!("its home {why}; another worker could take it, and whoever owns a partition keeps it")
        }
        Because::Kept => "its home could take it, and whoever owns a partition keeps it".to_owned(),
        Because::Fixed => {
            "it is frozen there, cools down after a move, or is being given up with nowhere to go".to_owned()
        }
        Because::Arriving => "it is on its way there".to_owned(),
        Because::Waits => {
            "nobody owns it: it waits for a lease to run out, a delay to pass or its owner to come back"
                .to_owned()
        }
        Because::Unplaced(why) => format!("nobody owns it: {why}"),
    }
}

/// Why a pin is not met, after the name of the worker.
pub(super) fn unmet(why: PinObstacle) -> &'static str {
    match why {
        PinObstacle::WorkerAbsent => "has no session",
        PinObstacle::WorkerTakesNone => "takes no partitions now",
        PinObstacle::PartitionFixed => "has to wait: the partition is frozen, or cools down after a move",
        PinObstacle::OwnerKeeps => "has to wait: the owner is frozen, or cannot be reached",
        PinObstacle::InFlight => "has to wait: the partition is on its way to another worker",
        PinObstacle::Waits => "has to wait: the partition waits for a lease to run out or a delay to pass",
        PinObstacle::RepairsOnly => "has to wait: the keyspace is frozen",
    }
}

/// What a plan may do with a worker: a word, or the label that is in the way.
pub(super) fn standing(standing: &WorkerStanding) -> String {
    match standing {
        WorkerStanding::Takes => "takes".to_owned(),
        WorkerStanding::Cordoned => "cordoned".to_owned(),
        WorkerStanding::Away => "away".to_owned(),
        WorkerStanding::Drained => "drained".to_owned(),
        WorkerStanding::Frozen => "frozen".to_owned(),
        WorkerStanding::Ineligible(constraint) => constraint.to_string(),
    }
}

/// Who says how much a partition counts.
pub(super) fn source(source: LoadSource) -> &'static str {
    match source {
        LoadSource::Measured => "measured",
        LoadSource::Set => "set by an operator",
        LoadSource::One => "not set: 1",
        LoadSource::Mean => "not measured: the mean of the others",
    }
}

/// Why a worker holds more than its share.
pub(super) fn kept(kept: &Kept) -> String {
    let parts = [
        (kept.pinned, "pinned to it"),
        (kept.fixed, "frozen or cooling down"),
        (kept.in_flight, "on their way to it"),
        (kept.by_rules, "kept because the keyspace is frozen"),
        (kept.no_better_place, "without a better place"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}
