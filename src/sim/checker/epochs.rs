//! Epochs only grow, each is granted to one session, and whoever speaks of one names the same owner.

use super::splits::Splits;
use super::{Rule, Rules, Verdict};
use crate::history::{Event, History, What};
use ringfence_core::ids::{Epoch, NodeId, Scope, SessionId, Term, WorkerId};
use std::collections::{HashMap, HashSet};

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    let mut seen = Seen::default();
    for (index, event) in history.events.iter().enumerate() {
        seen.event(index, event, verdict);
    }
    if rules.all_grants {
        ungranted(history, &seen, verdict);
    }
}

type Grant<'a> = (&'a Scope, Epoch);

#[derive(Default)]
struct Seen<'a> {
    /// The latest grant of each scope in each log.
    latest: HashMap<(&'a str, &'a Scope), (usize, Epoch)>,
    sessions: HashMap<Grant<'a>, (usize, SessionId)>,
    owners: HashMap<Grant<'a>, (usize, &'a WorkerId)>,
    leaders: HashMap<Term, (usize, NodeId)>,
    routes: HashMap<(&'a str, &'a Scope), (usize, Epoch)>,
    granted: HashSet<&'a Scope>,
}

impl<'a> Seen<'a> {
    fn event(&mut self, index: usize, event: &'a Event, verdict: &mut Verdict) {
        let by = event.by.as_str();
        match &event.what {
            What::Granted { scope, epoch, session, worker, .. } => {
                self.grant(index, by, (scope, *epoch), *session, verdict);
                self.owner(index, (scope, *epoch), worker, verdict);
            }
            What::Began { scope, epoch, worker } => self.owner(index, (scope, *epoch), worker, verdict),
            What::Routed { scope, epoch, worker } => {
                self.owner(index, (scope, *epoch), worker, verdict);
                if let Some((before, was)) = self.routes.insert((by, scope), (index, *epoch))
                    && *epoch < was
                {
                    let text = format!("{by} routed {scope} by {was}, and later by the older {epoch}");
                    verdict.found(Rule::RoutesForward, [before, index], text);
                }
            }
            What::Elected { term, node } => {
                let (before, was) = *self.leaders.entry(*term).or_insert((index, *node));
                if was != *node {
                    let text = format!("both {was} and {node} were elected in {term}");
                    verdict.found(Rule::OneLeader, [before, index], text);
                }
            }
            _ => {}
        }
    }

    fn grant(&mut self, index: usize, by: &'a str, grant: Grant<'a>, to: SessionId, verdict: &mut Verdict) {
        let (scope, epoch) = grant;
        self.granted.insert(scope);
        if let Some((before, was)) = self.latest.insert((by, scope), (index, epoch))
            && epoch <= was
        {
            let text = format!("{by} granted {scope} under {epoch}, having granted it under {was} before");
            verdict.found(Rule::EpochsGrow, [before, index], text);
        }
        let (before, was) = *self.sessions.entry(grant).or_insert((index, to));
        if was != to {
            let text = format!("{scope} {epoch} was granted to session {was} and to session {to}");
            verdict.found(Rule::GrantedOnce, [before, index], text);
        }
    }

    fn owner(&mut self, index: usize, grant: Grant<'a>, worker: &'a WorkerId, verdict: &mut Verdict) {
        let (before, was) = *self.owners.entry(grant).or_insert((index, worker));
        if was != worker {
            let (scope, epoch) = grant;
            let text = format!("{scope} {epoch} is owned by {was} here and by {worker} there");
            verdict.found(Rule::OneOwner, [before, index], text);
        }
    }
}

/// Nobody owns, or writes, under an epoch out of thin air. Only a history that has a log's grants can tell.
fn ungranted(history: &History, seen: &Seen<'_>, verdict: &mut Verdict) {
    let (mut told, splits) = (HashSet::new(), Splits::of(history));
    for (index, event) in history.events.iter().enumerate() {
        let (What::Began { scope, epoch, .. }
        | What::Raised { scope, epoch }
        | What::Applied { scope, epoch, .. }
        | What::Routed { scope, epoch, .. }) = &event.what
        else {
            continue;
        };
        let grant = (scope, *epoch);
        // Whoever owns what was split from it raises its fence to an epoch that nobody is granted.
        if matches!(event.what, What::Raised { .. }) && splits.minted(scope, *epoch) {
            continue;
        }
        if seen.granted.contains(scope) && !seen.sessions.contains_key(&grant) && told.insert(grant) {
            verdict.found(Rule::Ungranted, [index], format!("no log grants {scope} {epoch}: {}", event.what));
        }
    }
}
