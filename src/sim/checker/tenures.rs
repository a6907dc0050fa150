//! A tenure begins once and ends once, and one process never has two of one partition at a time.
//!
//! Tenures of *different* processes may overlap: a paused worker's task cannot end before it runs again. What it then must
//! not do is own or write, and other rules hold that.

use super::{Rule, Verdict};
use crate::history::{Event, History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::HashMap;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let mut tenures = Tenures::default();
    for (index, event) in history.events.iter().enumerate() {
        tenures.event(index, event, verdict);
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
