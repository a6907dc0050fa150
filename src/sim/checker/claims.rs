//! No two processes both answer "I own it".

use super::{Rule, Rules, Verdict};
use crate::history::{History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::BTreeMap;

/// One process owned under one epoch, from `from` to before `to`.
struct Claim<'a> {
    by: &'a str,
    epoch: Epoch,
    from: u64,
    to: u64,
    events: [usize; 2],
}

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    for (scope, mut claims) in collect(history, verdict) {
        if !rules.exclusive(scope) {
            continue;
        }
        claims.sort_by_key(|claim| (claim.epoch, claim.from));
        // The one that lasted longest, of all those under epochs up to here. Two under one epoch overlap like any two.
        let mut longest: Option<&Claim<'_>> = None;
        for claim in &claims {
            if let Some(before) = longest
                && before.by != claim.by
                && claim.from < before.to
            {
                let (a, b) = (before, claim);
                let text = format!(
                    "{} still owned {scope} under {} at {} us, when {} had owned it under {} since {} us",
                    a.by, a.epoch, a.to, b.by, b.epoch, b.from
                );
                verdict.found(Rule::TwoOwners, [a.events, b.events].concat(), text);
            }
            if longest.is_none_or(|before| before.to < claim.to) {
                longest = Some(claim);
            }
        }
    }
}

/// Whole claims as they are, and single answers of one process about one grant as one claim.
fn collect<'a>(history: &'a History, verdict: &mut Verdict) -> BTreeMap<&'a Scope, Vec<Claim<'a>>> {
    let mut claims: BTreeMap<&Scope, Vec<Claim<'_>>> = BTreeMap::new();
    let mut answers: BTreeMap<(&Scope, &str, Epoch), Claim<'_>> = BTreeMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let (by, events) = (event.by.as_str(), [index, index]);
        match &event.what {
            What::Claims { scope, epoch, from, to } if from < to => {
                let claim = Claim { by, epoch: *epoch, from: *from, to: *to, events };
                claims.entry(scope).or_default().push(claim);
            }
            What::Claims { from, to, .. } => {
                verdict.found(
                    Rule::Unreadable,
                    [index],
                    format!("a claim from {from} us to {to} us is none"),
                );
            }
            What::Believed { scope, epoch, asked } => {
                let new = Claim { by, epoch: *epoch, from: event.at, to: *asked, events };
                let claim = answers.entry((scope, by, *epoch)).or_insert(new);
                if event.at < claim.from {
                    (claim.from, claim.events[0]) = (event.at, index);
                }
                if *asked >= claim.to {
                    (claim.to, claim.events[1]) = (*asked, index);
                }
            }
            _ => {}
        }
    }
    for ((scope, _, _), claim) in answers {
        claims.entry(scope).or_default().push(claim);
    }
    claims
}
