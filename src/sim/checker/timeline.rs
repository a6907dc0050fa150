//! What several rules ask of a history: when it ended, when all was well, and when what was granted anew.

use crate::history::{History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// When watching ended.
pub(super) fn end(history: &History) -> u64 {
    marked_end(history).unwrap_or_else(|| history.end())
}

/// When watching ended, where somebody says so.
pub(super) fn marked_end(history: &History) -> Option<u64> {
    history.events.iter().find(|event| matches!(event.what, What::End)).map(|event| event.at)
}

/// Where the last fault was over, and when.
pub(super) fn healed(history: &History) -> Option<(usize, u64)> {
    let events = history.events.iter().enumerate();
    events
        .filter(|(_, event)| matches!(event.what, What::Healed))
        .map(|(index, event)| (index, event.at))
        .next_back()
}

/// When each epoch was first seen to be granted, and where.
#[derive(Default)]
pub(super) struct Grants<'a>(HashMap<&'a Scope, BTreeMap<Epoch, (u64, usize)>>);

impl<'a> Grants<'a> {
    pub(super) fn of(history: &'a History) -> Grants<'a> {
        let mut grants = Grants::default();
        for (index, event) in history.events.iter().enumerate() {
            if let What::Granted { scope, epoch, .. } = &event.what {
                let first = grants.0.entry(scope).or_default().entry(*epoch).or_insert((event.at, index));
                *first = (*first).min((event.at, index));
            }
        }
        grants
    }

    /// When the first grant of a scope above this epoch was seen, and where.
    pub(super) fn above(&self, scope: &Scope, epoch: Epoch) -> Option<(u64, usize)> {
        let later = self.0.get(scope)?.range((Bound::Excluded(epoch), Bound::Unbounded));
        later.map(|(_, first)| *first).min()
    }
}
