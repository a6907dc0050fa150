//! What stores take: never less than they have seen, each operation once, and nothing that they refused.

use super::{Rule, Verdict};
use crate::history::{Call, Event, History, OpId, Outcome, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::{HashMap, HashSet};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let mut stores = Stores::default();
    for (index, event) in history.events.iter().enumerate() {
        stores.event(index, event, verdict);
    }
    refusals(history, &stores, verdict);
    missing(history, &stores, verdict);
}

/// What was acknowledged was taken, also where later writes have hidden it from every read. Only where the history has what
/// the store of that scope took.
fn missing(history: &History, stores: &Stores<'_>, verdict: &mut Verdict) {
    let mut begun: HashMap<OpId, (usize, &Scope)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Invoked { op, call, token: Some((scope, _)), .. }
                if *call != Call::Read && stores.tells.contains(scope) =>
            {
                begun.insert(*op, (index, scope));
            }
            What::Returned { op, outcome: Outcome::Ok(_) } => {
                if let Some((before, scope)) = begun.get(op)
                    && !stores.taken.contains_key(op)
                {
                    let text = format!(
                        "{} was told that #{op} took effect, and no store of {scope} took it",
                        event.by
                    );
                    verdict.found(Rule::Lost, [*before, index], text);
                }
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Stores<'a> {
    /// For each store and scope: the highest epoch seen, and where.
    highest: HashMap<(&'a str, &'a Scope), (usize, Epoch)>,
    /// For each scope, over all stores, up to the end.
    ever: HashMap<&'a Scope, Epoch>,
    applied: HashMap<(&'a str, OpId), usize>,
    taken: HashMap<OpId, usize>,
    /// The scopes of which a store says what it took.
    tells: HashSet<&'a Scope>,
}

impl<'a> Stores<'a> {
    fn event(&mut self, index: usize, event: &'a Event, verdict: &mut Verdict) {
        let by = event.by.as_str();
        match &event.what {
            What::Raised { scope, epoch } => {
                if let Some((before, highest)) = self.seen(index, by, scope, *epoch) {
                    let text = format!("{by} put its fence of {scope} from {highest} back to {epoch}");
                    verdict.found(Rule::FenceWentBack, [before, index], text);
                }
            }
            What::Applied { op, scope, epoch, key, .. } => {
                if let Some((before, highest)) = self.seen(index, by, scope, *epoch) {
                    let text =
                        format!("{by} took #{op} on {key} under {scope} {epoch}, having seen {highest}");
                    verdict.found(Rule::StaleAccepted, [before, index], text);
                }
                if let Some(before) = self.applied.insert((by, *op), index) {
                    verdict.found(Rule::AppliedTwice, [before, index], format!("{by} took #{op} twice"));
                }
                self.taken.insert(*op, index);
                self.tells.insert(scope);
            }
            _ => {}
        }
    }

    /// Notes an epoch; returns the higher one that was seen before, if there is one.
    fn seen(&mut self, index: usize, by: &'a str, scope: &'a Scope, epoch: Epoch) -> Option<(usize, Epoch)> {
        let ever = self.ever.entry(scope).or_insert(epoch);
        *ever = epoch.max(*ever);
        let highest = self.highest.entry((by, scope)).or_insert((index, epoch));
        if epoch >= highest.1 {
            *highest = (index, epoch);
            return None;
        }
        Some(*highest)
    }
}

/// A refusal is reported by whoever got it, so it is held against the whole of what the stores did.
fn refusals(history: &History, stores: &Stores<'_>, verdict: &mut Verdict) {
    for (index, event) in history.events.iter().enumerate() {
        let by = event.by.as_str();
        match &event.what {
            What::RefusedStale { op, scope, epoch, highest } => {
                if epoch >= highest {
                    let text =
                        format!("#{op} under {scope} {epoch} was refused by a fence that has seen {highest}");
                    verdict.found(Rule::WronglyRefused, [index], text);
                } else if let Some(ever) = stores.ever.get(scope)
                    && highest > ever
                {
                    let text = format!(
                        "{by} was told that the fence of {scope} has seen {highest}, but {ever} is all it ever saw"
                    );
                    verdict.found(Rule::WronglyRefused, [index], text);
                }
            }
            What::Returned { op, outcome: Outcome::Refused } => {
                if let Some(taken) = stores.taken.get(op) {
                    verdict.found(
                        Rule::RefusedApplied,
                        [*taken, index],
                        format!("{by} was told that #{op} was refused, and a store took it"),
                    );
                }
            }
            _ => {}
        }
    }
}
