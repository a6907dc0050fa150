//! What a store took is what somebody asked for, and under one epoch of a partition one process asks.
//!
//! Two processes under one epoch both pass a fence, so a fence cannot tell; that an epoch is granted once is what keeps them
//! apart, and where a log may forget that, nothing does.

use super::{Rule, Rules, Verdict};
use crate::history::{Call, History, OpId, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::HashMap;

/// An operation as it was asked for.
struct Asked<'a> {
    index: usize,
    key: &'a str,
    call: Call,
    token: Option<&'a (Scope, Epoch)>,
}

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    let mut asked: HashMap<OpId, Asked<'_>> = HashMap::new();
    let mut users: HashMap<&(Scope, Epoch), (usize, &str)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let What::Invoked { op, key, call, token } = &event.what else { continue };
        asked.entry(*op).or_insert(Asked { index, key, call: *call, token: token.as_ref() });
        let Some(token) = token else { continue };
        let by = event.by.as_str();
        let (before, user) = *users.entry(token).or_insert((index, by));
        if user != by && !rules.only_fences {
            let text = format!("both {user} and {by} used {} {}", token.0, token.1);
            verdict.found(Rule::TwoUsers, [before, index], text);
        }
    }
    for (index, event) in history.events.iter().enumerate() {
        let What::Applied { op, key, scope, epoch, value } = &event.what else { continue };
        let took = format!("{} took #{op}, {value} on {key} under {scope} {epoch}", event.by);
        let Some(asked) = asked.get(op) else {
            verdict.found(Rule::TakenUnasked, [index], format!("{took}, and nobody had asked for it"));
            continue;
        };
        let same = asked.key == key
            && matches!(asked.call, Call::Write(v) | Call::Append(v) if v == *value)
            && asked.token.is_some_and(|(of, under)| of == scope && under == epoch);
        if !same {
            let text = format!("{took}; asked for was: {}", history.events[asked.index].what);
            verdict.found(Rule::TakenUnasked, [asked.index, index], text);
        }
    }
}
