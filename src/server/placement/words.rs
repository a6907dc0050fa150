//! What a plan and an explanation say, in sentences.

use super::whose;
use crate::admin::moves;
use ringfence_core::ids::WorkerId;
use ringfence_core::lead::{Hindrance, LoadSource, PinTrouble, Stays, Unfit};
use ringfence_core::placement::{Because, Hold, Kept, PinObstacle, WhyNot, WorkerStanding};
use ringfence_core::state::{Keyspace, State};
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
    /// What keeps all of its keyspace from being moved, a sentence each.
    pub(super) frozen: &'a [String],
    /// The worker that it is pinned to.
    pub(super) pin: Option<&'a WorkerId>,
    /// Its owner is cordoned, whatever else is said of it.
    pub(super) owner_cordoned: bool,
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
        Because::PinWaits => match about.pin {
            Some(pin) => format!("it is pinned to worker {pin}, and something keeps it from going there"),
            None => "it is held for another worker, and something keeps it from going there".to_owned(),
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
        (Hold::RepairsOnly, _) if !about.frozen.is_empty() => about.frozen.to_vec(),
        // What is said of a frozen worker is half of it when it is cordoned besides.
        (Hold::OwnerFrozen, _) if about.owner_cordoned => {
            vec![hold.to_string(), Hold::OwnerCordoned.to_string()]
        }
        (hold, _) => vec![hold.to_string()],
    }
}

/// What stands in the way of a move of a plan, a sentence.
pub(super) fn hindrance(why: &Hindrance, state: &State) -> String {
    match why {
        Hindrance::MovedOn => "the partition has another owner or epoch by now: plan again".to_owned(),
        Hindrance::OnItsWay => "the partition is on its way, and has to arrive first".to_owned(),
        Hindrance::NoSession(worker) => {
            format!("worker {worker} has no session: start it, or plan again")
        }
        Hindrance::Unfit(worker, all) => {
            format!("worker {worker} {}", moves::all_told_of(worker, all, state))
        }
        Hindrance::Frozen(what) => whose::frozen(what, state),
        Hindrance::Pinned(worker) => {
            format!(
                "the partition is pinned to worker {worker}, which would take it back: unpin it, or plan again"
            )
        }
        Hindrance::PinAway(worker, unfit) => format!(
            "the partition is pinned to worker {worker}, which {}, and would take it back: wait, or unpin it",
            moves::away(unfit)
        ),
    }
}

/// Why a worker does not have a partition: of one that may not have it all that stands in the way.
pub(super) fn why_not(why: &WhyNot, unfit: &[Unfit]) -> String {
    match why {
        WhyNot::Cordoned | WhyNot::Away | WhyNot::Drained | WhyNot::Frozen | WhyNot::Ineligible
            if unfit.len() > 1 =>
        {
            moves::all_told(unfit)
        }
        why => why.to_string(),
    }
}

/// What keeps a pin from being met, when its worker may have the partition.
pub(super) fn pin_waits(worker: &WorkerId) -> String {
    format!("it is pinned to worker {worker}, and goes there when what keeps it here has ended")
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

/// A pin whose worker may not have the partition, and all that stands in the way.
pub(super) fn pin_trouble(worker: &WorkerId, trouble: &PinTrouble, all: &[Unfit]) -> String {
    match trouble {
        PinTrouble::Absent => format!(
            "it is pinned to worker {worker}, which has no session: the pin waits for it to join; take the pin away if it will not"
        ),
        PinTrouble::Unfit(unfit) => {
            let all = if all.is_empty() { std::slice::from_ref(unfit) } else { all };
            format!("it is pinned to worker {worker}, which {}", moves::all_told(all))
        }
    }
}

/// Why a pin is not met, after the name of the worker. `frozen` says what is, of the cluster and the keyspace.
pub(super) fn unmet(why: PinObstacle, frozen: &str) -> String {
    let text = match why {
        PinObstacle::WorkerAbsent => "has no session",
        PinObstacle::WorkerTakesNone => "takes no partitions now",
        PinObstacle::PartitionFixed => "has to wait: the partition is frozen, or cools down after a move",
        PinObstacle::OwnerKeeps => "has to wait: the owner is frozen, or cannot be reached",
        PinObstacle::InFlight => "has to wait: the partition is on its way to another worker",
        PinObstacle::Waits => "has to wait: the partition waits for a lease to run out or a delay to pass",
        PinObstacle::RepairsOnly => return format!("has to wait: {frozen}"),
    };
    text.to_owned()
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

/// Why a worker holds more than its share. `frozen` says what is, of the cluster and the keyspace.
pub(super) fn kept(kept: &Kept, frozen: &str) -> String {
    let by_rules = format!("kept because {frozen}");
    let parts = [
        (kept.pinned, "pinned to it"),
        (kept.fixed, "frozen or cooling down"),
        (kept.in_flight, "on their way to it"),
        (kept.by_rules, &by_rules),
        (kept.no_better_place, "without a better place"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    parts.collect::<Vec<_>>().join(", ")
}
