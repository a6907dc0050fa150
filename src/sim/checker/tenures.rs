//! A tenure begins once and ends once, and one process never has two of one partition at a time.
//!
//! Tenures of *different* processes may overlap: a paused worker's task cannot end before it runs again. What it then must
//! not do is own or write, and other rules hold that. But end it must, when all is well again.

use super::timeline::{Grants, healed, marked_end};
use super::{Rule, Rules, Verdict};
use crate::history::{Event, History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::{BTreeMap, HashMap};

pub(super) fn check(history: &History, rules: &Rules, verdict: &mut Verdict) {
    let mut tenures = Tenures::default();
    for (index, event) in history.events.iter().enumerate() {
        tenures.event(index, event, verdict);
    }
    if let Some(end) = marked_end(history) {
        still_open(history, end, rules, verdict);
    }
}

/// Whoever still has a tenure when watching ends is the last who was granted it, or has only just been replaced.
fn still_open(history: &History, end: u64, rules: &Rules, verdict: &mut Verdict) {
    let mut open: BTreeMap<(&str, &Scope, Epoch), usize> = BTreeMap::new();
    for (index, event) in history.events.iter().enumerate().filter(|(_, event)| event.at <= end) {
        match &event.what {
            What::Began { scope, epoch, .. } => drop(open.insert((&event.by, scope, *epoch), index)),
            What::Ended { scope, epoch, .. } => drop(open.remove(&(event.by.as_str(), scope, *epoch))),
            What::Died { actor } => open.retain(|(by, ..), _| *by != actor.as_str()),
            _ => {}
        }
    }
    let (grants, well) = (Grants::of(history), healed(history).map_or(0, |(_, at)| at));
    for ((by, scope, epoch), began) in open {
        if let Some((granted, index)) = grants.above(scope, epoch)
            && granted.max(well).saturating_add(rules.ends_us) <= end
        {
            let text = format!(
                "{by} still had {scope} {epoch} at the end, {} us after it was granted anew; {} us are allowed from when all \
                 was well",
                end - granted,
                rules.ends_us
            );
            verdict.found(Rule::NeverEnded, [began, index], text);
        }
    }
}

#[derive(Default)]
struct Tenures<'a> {
    began: HashMap<(&'a Scope, Epoch), (usize, &'a str)>,
    ended: HashMap<(&'a Scope, Epoch), usize>,
    open: HashMap<(&'a str, &'a Scope), (usize, Epoch)>,
}

impl<'a> Tenures<'a> {
    fn event(&mut self, index: usize, event: &'a Event, verdict: &mut Verdict) {
        let by = event.by.as_str();
        match &event.what {
            What::Began { scope, epoch, .. } => {
                if let Some((before, whose)) = self.began.insert((scope, *epoch), (index, by)) {
                    let text = format!("{scope} {epoch} began at {whose} and again at {by}");
                    verdict.found(Rule::BeganTwice, [before, index], text);
                }
                if let Some((before, was)) = self.open.insert((by, scope), (index, *epoch)) {
                    let text = format!("{by} began {scope} {epoch} before its tenure under {was} had ended");
                    verdict.found(Rule::TenuresOverlap, [before, index], text);
                }
            }
            What::Ended { scope, epoch, .. } => self.end(index, by, scope, *epoch, verdict),
            What::Died { actor } => self.open.retain(|(whose, _), _| *whose != actor.as_str()),
            _ => {}
        }
    }

    fn end(&mut self, index: usize, by: &'a str, scope: &'a Scope, epoch: Epoch, verdict: &mut Verdict) {
        match self.began.get(&(scope, epoch)) {
            Some((_, whose)) if *whose == by => {}
            _ => {
                let text = format!("{by} ended {scope} {epoch}, which did not begin there");
                verdict.found(Rule::EndedTwice, [index], text);
            }
        }
        if let Some(before) = self.ended.insert((scope, epoch), index) {
            verdict.found(Rule::EndedTwice, [before, index], format!("{scope} {epoch} ended twice"));
        }
        if self.open.get(&(by, scope)).is_some_and(|(_, open)| *open == epoch) {
            self.open.remove(&(by, scope));
        }
    }
}
