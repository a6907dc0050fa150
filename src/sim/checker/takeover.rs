//! What an owner left while all was well is granted again as soon as is promised: within the lease, the lock delay and a
//! second, under one leader.
//!
//! Judged is what happens once all is steady, where the only fault is the one that took the owner. While several things are
//! broken at once nobody can say which of them a grant waited for; there the loose bound of `progress` holds.

use super::timeline::{Grants, marked_end};
use super::{Rule, Rules, Verdict};
use crate::history::{Ending, History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::{BTreeMap, HashMap};

/// When one process had a partition, from when to when it ended or died.
struct Tenure<'a> {
    by: &'a str,
    epoch: Epoch,
    from: u64,
    /// When, where, and whether that leaves the partition for somebody else without delay.
    end: Option<(u64, usize, Left)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Its process died.
    Died,
    /// It was asked for it, or lost it.
    Gave,
    /// It ended by itself: that is held back, twice as long each time.
    Failed,
}

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    let (Some(bound), Some(end)) = (rules.granted_us, marked_end(history)) else { return };
    let (tenures, grants, marks) = (tenures(history), Grants::of(history), marks(history));
    for (scope, all) in &tenures {
        for tenure in all {
            let Some((left, index, how)) = tenure.end.filter(|(_, _, how)| *how != Left::Failed) else {
                continue;
            };
            let until = left.saturating_add(bound);
            if until > end
                || !all_is_well(&marks, scope, left, until, how)
                || !somebody_else(&tenures, scope, tenure, until)
            {
                continue;
            }
            let (scope, epoch, by) = (*scope, tenure.epoch, tenure.by);
            let again = grants.above(scope, epoch);
            if again.is_none_or(|(at, _)| at > until) {
                let when = again.map_or("never".to_owned(), |(at, _)| format!("{} us later", at - left));
                let text = format!(
                    "{by} had {scope} under {epoch} until {left} us, with all else well and one leader; it was granted again \
                     {when}, and {bound} us are allowed"
                );
                let events = [Some(index), again.map(|(_, index)| index)];
                verdict.found(Rule::GrantedLate, events.into_iter().flatten().collect::<Vec<_>>(), text);
            }
        }
    }
}

/// What a grant may have waited for, and when all was steady.
fn marks(history: &History) -> Vec<(u64, &What)> {
    let marks = history.events.iter().map(|event| (event.at, &event.what));
    marks
        .filter(|(_, what)| {
            matches!(
                what,
                What::Steady | What::Fault { .. } | What::Elected { .. } | What::KeyspaceDeleted { .. }
            )
        })
        .collect()
}

/// All was steady, and neither a fault nor an election nor the end of the keyspace came from then to the end of the window.
fn all_is_well(marks: &[(u64, &What)], scope: &Scope, left: u64, until: u64, how: Left) -> bool {
    let steady = marks.iter().filter(|(at, what)| matches!(what, What::Steady) && *at <= left);
    let Some(steady) = steady.map(|(at, _)| *at).max() else { return false };
    marks.iter().filter(|(at, _)| (steady..=until).contains(at)).all(|(at, what)| match what {
        // What killed it is no excuse for what comes after.
        What::Fault { .. } => how == Left::Died && *at == left,
        What::Elected { .. } => *at <= left,
        What::KeyspaceDeleted { keyspace } => !matches!(scope, Scope::Partition(of, _) if of == keyspace),
        _ => true,
    })
}

/// Another process had something of the same keyspace all the time, so there was one to give it to.
fn somebody_else(tenures: &Tenures<'_>, scope: &Scope, left: &Tenure<'_>, until: u64) -> bool {
    let Some((at, ..)) = left.end else { return false };
    let same = |other: &Scope| match (other, scope) {
        (Scope::Partition(a, _), Scope::Partition(b, _)) => a == b,
        _ => false,
    };
    let all = tenures.iter().filter(|(other, _)| same(other)).flat_map(|(_, all)| all);
    all.into_iter().any(|other| {
        other.by != left.by && other.from <= at && other.end.is_none_or(|(ended, ..)| ended > until)
    })
}

type Tenures<'a> = BTreeMap<&'a Scope, Vec<Tenure<'a>>>;

fn tenures(history: &History) -> Tenures<'_> {
    let mut open: HashMap<(&str, &Scope, Epoch), u64> = HashMap::new();
    let mut tenures: Tenures<'_> = BTreeMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let by = event.by.as_str();
        match &event.what {
            What::Began { scope, epoch, .. } => drop(open.insert((by, scope, *epoch), event.at)),
            What::Ended { scope, epoch, why } => {
                let how =
                    if matches!(why, Ending::Revoked | Ending::Lost) { Left::Gave } else { Left::Failed };
                if let Some(from) = open.remove(&(by, scope, *epoch)) {
                    let end = Some((event.at, index, how));
                    tenures.entry(scope).or_default().push(Tenure { by, epoch: *epoch, from, end });
                }
            }
            What::Died { actor } => open.retain(|(by, scope, epoch), from| {
                let lives = *by != actor.as_str();
                if !lives {
                    let end = Some((event.at, index, Left::Died));
                    tenures.entry(scope).or_default().push(Tenure { by, epoch: *epoch, from: *from, end });
                }
                lives
            }),
            _ => {}
        }
    }
    for ((by, scope, epoch), from) in open {
        tenures.entry(scope).or_default().push(Tenure { by, epoch, from, end: None });
    }
    tenures
}
