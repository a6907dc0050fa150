//! What a plan and an explanation say, in sentences.

use crate::admin::moves;
use ringfence_core::ids::WorkerId;
use ringfence_core::lead::{LoadSource, PinTrouble, Stays};
use ringfence_core::placement::{Because, Hold, Kept, PinObstacle, WorkerStanding};
use ringfence_core::state::Keyspace;
use std::time::Duration;

/// What keeps a partition whose move is planned for balance, where nobody balances now.
pub(super) fn balancing_waits(keyspace: &Keyspace) -> Option<&'static str> {
    if !keyspace.policy().balance() {
        Some("the keyspace does not balance by itself: approve a plan, or switch its balancing on")
    } else if keyspace.split().is_some() {
        Some(
            "the keyspace is being split, and is balanced when all is split; `ringfence keyspace show` tells how far it is",
        )
    } else {
        None
    }
}

/// What is known of one partition beside what the plan sees of it.
pub(super) struct About<'a> {
    /// Where a move under way takes it.
    pub(super) target: Option<&'a WorkerId>,
    /// What it waits for while nobody owns it.
    pub(super) waits: Option<String>,
    /// Why no plan moves it.
    pub(super) stays: &'a [Stays],
}

/// Why a partition is where it is.
pub(super) fn because(because: &Because, about: &About<'_>) -> String {
    match because {
        Because::Home => "it is at home: the ring prefers this worker for it".to_owned(),
        Because::Pinned => "it is pinned there".to_owned(),
        Because::Overflow(why) => format!("its home {why}; this worker is the next that could take it"),
        Because::KeptOverflow(why) => {
            format!("its home {why}; another worker could take it, and whoever owns a partition keeps it")
        }
        Because::Kept => "its home could take it, and whoever owns a partition keeps it".to_owned(),
        Because::Fixed => match about.stays.first() {
            Some(stays) => format!("it stays with its owner: {}", self::stays(*stays)),
            None => "it stays with its owner for the moment".to_owned(),
        },
        Because::Arriving => match about.target {
            Some(target) => format!("it is on its way to worker {target}"),
            None => "it is on its way".to_owned(),
        },
        Because::StandsIn => {
            "nobody owns it and no worker takes partitions: it goes to one that is frozen, for a freeze keeps nothing down"
                .to_owned()
        }
        Because::Waits => match &about.waits {
            Some(waits) => format!("nobody owns it, and it waits: {waits}"),
            None => "nobody owns it, and it waits".to_owned(),
        },
        Because::Unplaced(why) => format!("nobody owns it: {why}"),
    }
}

/// What keeps a partition where it is, each a sentence.
pub(super) fn holds(hold: &Hold, about: &About<'_>) -> Vec<String> {
    match (hold, about.target) {
        (Hold::Fixed, _) if !about.stays.is_empty() => about.stays.iter().copied().map(stays).collect(),
        (Hold::InFlight, Some(target)) => {
            vec![format!("a move to worker {target} is under way: wait until it is ready there")]
        }
        (hold, _) => vec![hold.to_string()],
    }
}

/// Why no plan moves a partition.
fn stays(stays: Stays) -> String {
    match stays {
        Stays::Frozen => "it is frozen: unfreeze it".to_owned(),
        Stays::CoolsDown(left) => format!(
            "an operator moved it, and it cools down for another {}s: wait, or move it again",
            left.saturating_add(Duration::from_millis(999)).as_secs()
        ),
        Stays::NotReady => {
            "its owner is not ready, and is not balanced away from: wait for it; a drain, a pin and a move take it all the same"
                .to_owned()
        }
        Stays::NowhereToGo => "it was to move to a worker that is gone: wait until its owner has given it up".to_owned(),
    }
}

/// A pin whose worker may not have the partition.
pub(super) fn pin_trouble(worker: &WorkerId, trouble: &PinTrouble) -> String {
    match trouble {
        PinTrouble::Absent => format!(
            "it is pinned to worker {worker}, which has no session: the pin waits for it to join; take the pin away if it will not"
        ),
        PinTrouble::Unfit(unfit) => format!("it is pinned to worker {worker}, which {}", moves::told(unfit)),
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
        WorkerStanding::Frozen | WorkerStanding::FrozenOut => "frozen".to_owned(),
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
