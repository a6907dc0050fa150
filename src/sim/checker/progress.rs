//! After the last fault every partition gets an owner in time, and when all is steady nothing changes hands.

use super::{Rule, Rules, Verdict};
use crate::history::{Event, History, What};
use ringfence_core::ids::{Epoch, KeyspaceName, PartitionId, Scope};
use std::collections::{BTreeMap, HashMap};

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    if let Some(bound) = rules.progress_us {
        owners(history, bound, verdict);
    }
    quiet(history, verdict);
}

/// When a partition had a live, ready owner: from, to before, and the event that began it.
type Served = BTreeMap<Scope, Vec<(u64, u64, usize)>>;

/// From the last fault on, no partition is without a live, ready owner for longer than the bound.
fn owners(history: &History, bound: u64, verdict: &mut Verdict) {
    let healed =
        |(index, event): (usize, &Event)| matches!(event.what, What::Healed).then_some((index, event.at));
    let Some((index, healed)) = history.events.iter().enumerate().filter_map(healed).next_back() else {
        return verdict.found(
            Rule::Unreadable,
            [],
            "owners are asked for after the last fault, and no event says when it was over".to_string(),
        );
    };
    let end = end(history);
    let served = served(history);
    for scope in partitions(history) {
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

/// When watching ended.
fn end(history: &History) -> u64 {
    let mark = history.events.iter().find(|event| matches!(event.what, What::End));
    mark.map_or_else(|| history.end(), |event| event.at)
}

/// The partitions of all keyspaces that exist at the end.
fn partitions(history: &History) -> Vec<Scope> {
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
    let of = |(keyspace, count): (&KeyspaceName, u32)| {
        let keyspace = keyspace.clone();
        (0..count).map(move |p| Scope::Partition(keyspace.clone(), PartitionId::new(p)))
    };
    keyspaces.into_iter().flat_map(of).collect()
}

fn served(history: &History) -> Served {
    let mut served = Served::new();
    let mut open: HashMap<(&str, &Scope, Epoch), (u64, usize)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let by = event.by.as_str();
        match &event.what {
            What::Ready { scope, epoch } => {
                open.insert((by, scope, *epoch), (event.at, index));
            }
            What::Ended { scope, epoch, .. } | What::Revoked { scope, epoch } => {
                if let Some((from, began)) = open.remove(&(by, scope, *epoch)) {
                    served.entry(scope.clone()).or_default().push((from, event.at, began));
                }
            }
            What::Died { actor } => open.retain(|(whose, scope, _), (from, began)| {
                let lives = *whose != actor.as_str();
                if !lives {
                    served.entry((*scope).clone()).or_default().push((*from, event.at, *began));
                }
                lives
            }),
            _ => {}
        }
    }
    for ((_, scope, _), (from, began)) in open {
        served.entry(scope.clone()).or_default().push((from, u64::MAX, began));
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
