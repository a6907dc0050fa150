//! After the last fault every partition gets an owner in time, and when all is steady nothing changes hands.

use super::splits::Splits;
use super::timeline::{Grants, end, healed};
use super::{Rule, Rules, Verdict};
use crate::history::{History, What};
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, Scope};
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    if let Some(bound) = rules.progress_us {
        owners(history, bound, rules, verdict);
    }
    quiet(history, verdict);
    calm(history, rules, verdict);
}

/// When a partition had a live, ready owner: from, to before, and the event that began it.
type Served = BTreeMap<Scope, Vec<(u64, u64, usize)>>;

/// From the last fault on, no partition is without a live, ready owner for longer than the bound.
fn owners(history: &History, bound: u64, rules: &Rules, verdict: &mut Verdict) {
    let Some((index, healed)) = healed(history) else {
        return verdict.found(
            Rule::Unreadable,
            [],
            "owners are asked for after the last fault, and no event says when it was over".to_string(),
        );
    };
    let end = end(history);
    let served = served(history);
    for scope in partitions(history, rules) {
        let spans = served.get(&scope).map_or(&[][..], Vec::as_slice);
        let mut free = healed;
        for (from, to, began) in spans.iter().filter(|(_, to, _)| *to > healed) {
            if *from > free.saturating_add(bound) {
                let text = format!(
                    "{scope} had no ready owner for {} us from {} us after the last fault on; {bound} us are allowed",
                    from - free,
                    free - healed
                );
                verdict.found(Rule::NoOwner, [index, *began], text);
            }
            free = free.max(*to);
        }
        if free < end {
            let unknown = if end - free < bound { "; watch for longer, so that it can be told" } else { "" };
            let text = format!(
                "{scope} has had no ready owner for {} us at the end, {} us after the last fault; {bound} us are \
                 allowed{unknown}",
                end - free,
                end - healed
            );
            verdict.found(Rule::NoOwner, [index], text);
        }
    }
}

/// The partitions of all keyspaces that exist at the end, and of those that should; and what was split from them.
fn partitions(history: &History, rules: &Rules) -> Vec<Scope> {
    let mut keyspaces: BTreeMap<&KeyspaceName, u32> = BTreeMap::new();
    for event in &history.events {
        match &event.what {
            What::KeyspaceCreated { keyspace, partitions } => {
                keyspaces.insert(keyspace, *partitions);
            }
            What::KeyspaceDeleted { keyspace } => {
                keyspaces.remove(keyspace);
            }
            _ => {}
        }
    }
    keyspaces.extend(rules.expected.iter().map(|(keyspace, partitions)| (keyspace, *partitions)));
    let of = |(keyspace, count): (&KeyspaceName, u32)| {
        let keyspace = keyspace.clone();
        (0..count).map(move |p| Scope::Partition(keyspace.clone(), PartitionId::new(p)))
    };
    let splits = Splits::of(history);
    let born = splits
        .children()
        .filter(|scope| matches!(scope, Scope::Partition(keyspace, _) if keyspaces.contains_key(keyspace)));
    let born: Vec<Scope> = born.cloned().collect();
    keyspaces.into_iter().flat_map(of).chain(born).collect()
}

/// A claim is told some time after it is made, or not at all when that is short.
const CLAIM_US: u64 = 1_000_000;

/// Until when each process answered "I own it", for those that are asked.
struct Claims<'a> {
    asked: HashSet<&'a str>,
    until: HashMap<(&'a str, &'a Scope, Epoch), u64>,
}

impl<'a> Claims<'a> {
    fn of(history: &'a History) -> Claims<'a> {
        let mut claims = Claims { asked: HashSet::new(), until: HashMap::new() };
        for event in &history.events {
            if let What::Claims { scope, epoch, to: told, .. }
            | What::Believed { scope, epoch, asked: told } = &event.what
            {
                claims.asked.insert(&event.by);
                let until = claims.until.entry((&event.by, scope, *epoch)).or_default();
                *until = (*told).max(*until);
            }
        }
        claims
    }

    /// Until when an owner that was ready at `from` may have answered so.
    fn until(&self, by: &str, scope: &Scope, epoch: Epoch, from: u64) -> u64 {
        if !self.asked.contains(by) {
            return u64::MAX;
        }
        self.until.get(&(by, scope, epoch)).copied().unwrap_or(from).saturating_add(CLAIM_US)
    }
}

/// An owner serves from when it is ready to when it ends or dies, and not longer than until the partition is granted anew or
/// it stops to say that it owns it: somebody who has only not noticed serves nobody.
fn served(history: &History) -> Served {
    let (grants, claims) = (Grants::of(history), Claims::of(history));
    let mut served = Served::new();
    let mut serves = |(by, scope, epoch): (&str, &Scope, Epoch), (from, began): (u64, usize), to: u64| {
        let replaced = grants.above(scope, epoch).map_or(u64::MAX, |(at, _)| at);
        let to = to.min(replaced).min(claims.until(by, scope, epoch, from));
        if from < to {
            served.entry(scope.clone()).or_default().push((from, to, began));
        }
    };
    let mut open: HashMap<(&str, &Scope, Epoch), (u64, usize)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let by = event.by.as_str();
        match &event.what {
            What::Ready { scope, epoch } => {
                open.insert((by, scope, *epoch), (event.at, index));
            }
            What::Ended { scope, epoch, .. } | What::Revoked { scope, epoch } => {
                let owner = (by, scope, *epoch);
                if let Some(ready) = open.remove(&owner) {
                    serves(owner, ready, event.at);
                }
            }
            What::Died { actor } => open.retain(|owner, ready| {
                let lives = owner.0 != actor.as_str();
                if !lives {
                    serves(*owner, *ready, event.at);
                }
                lives
            }),
            _ => {}
        }
    }
    for (owner, ready) in open {
        serves(owner, ready, u64::MAX);
    }
    for spans in served.values_mut() {
        spans.sort_unstable();
    }
    served
}

fn quiet(history: &History, verdict: &mut Verdict) {
    let mut order: Vec<usize> = (0..history.events.len()).collect();
    order.sort_by_key(|index| history.events[*index].at);
    let mut since: Option<(usize, u64)> = None;
    for index in order {
        let event = &history.events[index];
        match &event.what {
            What::Steady => since = Some((index, event.at)),
            What::Fault { .. } | What::End => since = None,
            What::Granted { .. } | What::Vacated { .. } | What::Began { .. } | What::Revoked { .. } => {
                if let Some((steady, at)) = since {
                    let text =
                        format!("{} us after all was steady: {} {}", event.at - at, event.by, event.what);
                    verdict.found(Rule::NotQuiet, [steady, index], text);
                }
            }
            _ => {}
        }
    }
}

/// That it never grew calm is excused by a machine on which the observer itself came too late, and by nothing else.
fn calm(history: &History, rules: &Rules, verdict: &mut Verdict) {
    for (index, event) in history.events.iter().enumerate() {
        if let What::NeverCalm { late_us } = event.what
            && late_us <= rules.busy_us
        {
            let text = format!(
                "it never grew calm, and the observer itself was late by {late_us} us at the most: more than {} us would \
                 excuse it",
                rules.busy_us
            );
            verdict.found(Rule::NeverCalm, [index], text);
        }
    }
}
