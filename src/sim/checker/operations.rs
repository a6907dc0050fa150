//! What clients were told, key by key: nothing acknowledged is lost, and none of it is hidden from the next owner.

use super::linear::{self, Op, Stuck};
use super::{Rule, Verdict};
use crate::history::{Call, History, OpId, Outcome, What};
use ringfence_core::ids::{Epoch, KeyspaceName, Scope};
use std::collections::{BTreeMap, HashMap};

/// An operation with all that is known about it.
struct Known<'a> {
    id: OpId,
    by: &'a str,
    index: usize,
    returned_index: Option<usize>,
    token: Option<&'a (Scope, Epoch)>,
    op: Op,
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for (key, mut ops) in collect(history, verdict) {
        ops.sort_by_key(|known| known.op.invoked);
        let plain: Vec<Op> = ops.iter().map(|known| known.op.clone()).collect();
        if let Err(stuck) = linear::check(&plain) {
            report(Rule::Lost, key, &ops, &stuck, verdict);
            continue;
        }
        by_epochs(key, &ops, verdict);
    }
}

/// An owner reads after it has raised the fence. So what is acknowledged under a lower epoch was there before that read,
/// whenever the acknowledgement arrived: the order of epochs adds to the order of times. A key may go to a partition that is
/// split from its own, and whose epochs begin above all that were granted before: the order goes on there.
fn by_epochs(key: &str, ops: &[Known<'_>], verdict: &mut Verdict) {
    let mut first_read: BTreeMap<(Realm<'_>, Epoch), (u64, usize)> = BTreeMap::new();
    for (scope, epoch, known) in ops.iter().filter_map(|known| known.token.map(|(s, e)| (s, *e, known))) {
        if known.op.call == Call::Read {
            first_read.entry((realm(scope), epoch)).or_insert((known.op.invoked, known.index));
        }
    }
    let mut clipped: Vec<Op> = Vec::with_capacity(ops.len());
    for known in ops {
        let mut op = known.op.clone();
        if let (Some((scope, epoch)), Some(returned), false) =
            (known.token, op.returned, op.call == Call::Read)
        {
            let here = realm(scope);
            let later = first_read.range((here, *epoch)..).filter(|((r, e), _)| *r == here && e > epoch);
            if let Some(((_, next), (read, read_index))) = later.min_by_key(|(_, (read, _))| *read) {
                if *read <= op.invoked {
                    let text = format!(
                        "{} was told that #{} on {key} took effect under {scope} {epoch}, which it began after {next}'s owner \
                         had begun to read",
                        known.by, known.id
                    );
                    verdict.found(Rule::HiddenFromNextOwner, [*read_index, known.index], text);
                    return;
                }
                // Ended a moment before that read began.
                op.returned = Some(returned.min(read - 1));
            }
        }
        clipped.push(op);
    }
    if let Err(stuck) = linear::check(&clipped) {
        report(Rule::HiddenFromNextOwner, key, ops, &stuck, verdict);
    }
}

/// What has one order of epochs for a key: its keyspace, or else what is fenced by itself.
type Realm<'a> = (Option<&'a KeyspaceName>, Option<&'a Scope>);

fn realm(scope: &Scope) -> Realm<'_> {
    match scope {
        Scope::Partition(keyspace, _) => (Some(keyspace), None),
        other => (None, Some(other)),
    }
}

fn report(rule: Rule, key: &str, ops: &[Known<'_>], stuck: &Stuck, verdict: &mut Verdict) {
    let show = |at: usize| {
        let known = &ops[at];
        let token = known.token.map(|(scope, epoch)| format!(" under {scope} {epoch}")).unwrap_or_default();
        format!("{}'s #{} ({}{token})", known.by, known.id, known.op)
    };
    let last = stuck.last.map_or("nothing".to_string(), show);
    let open: Vec<String> = stuck.open.iter().map(|at| show(*at)).collect();
    let text = format!(
        "the operations on {key} fit in no order: after {} of them, the last {last}, what comes next does not: {}",
        stuck.done,
        open.join("; ")
    );
    let events = stuck.last.iter().chain(&stuck.open);
    let events: Vec<usize> =
        events.flat_map(|at| [Some(ops[*at].index), ops[*at].returned_index]).flatten().collect();
    verdict.found(rule, events, text);
}

/// The operations of each key, without those that were refused and without reads that found out nothing.
fn collect<'a>(history: &'a History, verdict: &mut Verdict) -> BTreeMap<&'a str, Vec<Known<'a>>> {
    let mut ops: BTreeMap<OpId, (&str, Known<'_>)> = BTreeMap::new();
    let mut outcomes: HashMap<OpId, &Outcome> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        if let What::Invoked { op, key, call, token } = &event.what {
            let made = Op { call: *call, invoked: event.at, returned: None, found: Vec::new() };
            let known = Known {
                id: *op,
                by: &event.by,
                index,
                returned_index: None,
                token: token.as_ref(),
                op: made,
            };
            if let Some((_, before)) = ops.insert(*op, (key, known)) {
                verdict.found(
                    Rule::Unreadable,
                    [before.index, index],
                    format!("there are two operations #{op}"),
                );
            }
        }
    }
    for (index, event) in history.events.iter().enumerate() {
        let What::Returned { op, outcome } = &event.what else { continue };
        let Some((_, known)) = ops.get_mut(op) else {
            verdict.found(Rule::Unreadable, [index], format!("#{op} returned, and nobody had begun it"));
            continue;
        };
        if known.returned_index.replace(index).is_some() || event.at < known.op.invoked {
            let text = format!("#{op} returned twice, or before it began");
            verdict.found(Rule::Unreadable, [known.index, index], text);
            continue;
        }
        outcomes.insert(*op, outcome);
        if let Outcome::Ok(found) = outcome {
            known.op.returned = Some(event.at);
            known.op.found.clone_from(found);
        }
    }
    let mut keys: BTreeMap<&str, Vec<Known<'_>>> = BTreeMap::new();
    for (id, (key, known)) in ops {
        let refused = outcomes.get(&id) == Some(&&Outcome::Refused);
        let blind = known.op.call == Call::Read && known.op.returned.is_none();
        if !refused && !blind {
            keys.entry(key).or_default().push(known);
        }
    }
    keys
}
