//! Partitions that are split: whose epoch is which, and who is refused.
//!
//! A split mints an epoch of the parent. Nobody is granted it, and the child's own epochs begin above it. Whoever owns the
//! child raises the parent's fence to it before its own, so once a store has seen the child it takes nothing more of those
//! who owned the parent before: the keys of both are refused to them.

use super::{Rule, Verdict};
use crate::history::{History, What};
use ringfence_core::ids::{Epoch, Scope};
use std::collections::{BTreeMap, HashMap};

/// Where a partition was split from: the event that says so, what, and under which epoch.
type Born<'a> = (usize, &'a Scope, Epoch);

/// The splits of a history.
#[derive(Default)]
pub(super) struct Splits<'a>(BTreeMap<&'a Scope, Born<'a>>);

impl<'a> Splits<'a> {
    pub(super) fn of(history: &'a History) -> Splits<'a> {
        let mut splits = Splits::default();
        for (index, event) in history.events.iter().enumerate() {
            if let What::Split { parent, child, epoch } = &event.what {
                splits.0.entry(child).or_insert((index, parent, *epoch));
            }
        }
        splits
    }

    /// What was split from others.
    pub(super) fn children(&self) -> impl Iterator<Item = &'a Scope> {
        self.0.keys().copied()
    }

    /// Whether a split minted this epoch.
    pub(super) fn minted(&self, scope: &Scope, epoch: Epoch) -> bool {
        self.0.values().any(|(_, parent, minted)| *parent == scope && *minted == epoch)
    }

    /// What a partition was split from, the nearest first.
    fn ancestors(&self, child: &Scope) -> impl Iterator<Item = Born<'a>> {
        let born = |scope: &Scope| self.0.get(scope).copied();
        // A parent is there before its child, so its number is lower.
        std::iter::successors(born(child), move |(_, parent, _)| born(parent))
    }
}

/// Which epochs are granted.
pub(super) fn grants(history: &History, verdict: &mut Verdict) {
    let splits = Splits::of(history);
    if splits.0.is_empty() {
        return;
    }
    for (index, event) in history.events.iter().enumerate() {
        let What::Granted { scope, epoch, .. } = &event.what else { continue };
        if let Some((born, parent, minted)) = splits.0.get(scope).filter(|(.., minted)| epoch <= minted) {
            let text = format!("{}, and it was split from {parent} under {minted}", event.what);
            verdict.found(Rule::SplitEpoch, [*born, index], text);
        }
        if let Some((born, (split, ..))) =
            splits.0.iter().find(|(_, (_, parent, minted))| *parent == scope && minted == epoch)
        {
            let text = format!("{}, an epoch that the split of {born} had minted", event.what);
            verdict.found(Rule::SplitEpoch, [*split, index], text);
        }
    }
}

/// What stores take of the parent once they have seen the child.
pub(super) fn stores(history: &History, verdict: &mut Verdict) {
    let splits = Splits::of(history);
    // For each store and parent: below which epoch it takes nothing, and since which event.
    let mut bounds: HashMap<(&str, &Scope), (usize, Epoch, &Scope)> = HashMap::new();
    for (index, event) in history.events.iter().enumerate() {
        let (What::Raised { scope, epoch } | What::Applied { scope, epoch, .. }) = &event.what else {
            continue;
        };
        let store = event.by.as_str();
        if let What::Applied { op, key, .. } = &event.what
            && let Some((since, minted, child)) =
                bounds.get(&(store, scope)).filter(|(_, minted, _)| epoch < minted)
        {
            let text = format!(
                "{store} took #{op} on {key} under {scope} {epoch}, having seen an owner of {child}, which was split from it \
                 under {minted}"
            );
            verdict.found(Rule::StaleAccepted, [*since, index], text);
        }
        for (_, parent, minted) in splits.ancestors(scope) {
            let bound = bounds.entry((store, parent)).or_insert((index, minted, scope));
            if bound.1 < minted {
                *bound = (index, minted, scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Rules, check};
    use crate::history::{Call, OpId};
    use ringfence_core::ids::{SessionId, WorkerId};

    fn scope(number: u32) -> Scope {
        format!("orders/{number}").parse().unwrap()
    }

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    /// `a` owned partition 0 under 1, and it was split under 2: 1 is the child. An event a millisecond.
    #[derive(Default)]
    struct Story(History);

    impl Story {
        fn begun() -> Story {
            let mut story = Story::default();
            story
                .granted(0, 1)
                .then("store", What::Raised { scope: scope(0), epoch: epoch(1) })
                .split(0, 1, 2);
            story
        }

        fn then(&mut self, by: &str, what: What) -> &mut Story {
            let at = (self.0.events.len() as u64 + 1) * 1_000;
            self.0.push(at, by, what);
            self
        }

        fn split(&mut self, parent: u32, child: u32, e: u64) -> &mut Story {
            self.then("n1", What::Split { parent: scope(parent), child: scope(child), epoch: epoch(e) })
        }

        fn granted(&mut self, number: u32, e: u64) -> &mut Story {
            let (session, worker): (_, WorkerId) =
                (SessionId::new(e).unwrap(), format!("w{e}").parse().unwrap());
            let (scope, epoch) = (scope(number), epoch(e));
            self.then("n1", What::Granted { scope, epoch, session, worker, entry: None })
        }

        fn raised(&mut self, number: u32, e: u64) -> &mut Story {
            self.then("store", What::Raised { scope: scope(number), epoch: epoch(e) })
        }

        /// Somebody asked for it, and it was taken.
        fn wrote(&mut self, op: OpId, number: u32, e: u64) -> &mut Story {
            self.asked(op, number, e).took(op, number, e)
        }

        fn asked(&mut self, op: OpId, number: u32, e: u64) -> &mut Story {
            let token = Some((scope(number), epoch(e)));
            let (key, call) = ("k".to_owned(), Call::Append(op));
            self.then(&format!("w{e}"), What::Invoked { op, key, call, token })
        }

        fn took(&mut self, op: OpId, number: u32, e: u64) -> &mut Story {
            let (key, scope, epoch) = ("k".to_owned(), scope(number), epoch(e));
            self.then("store", What::Applied { op, key, scope, epoch, value: op })
        }

        fn found(&self) -> Vec<Rule> {
            check(&self.0, &Rules::default()).violations.iter().map(|violation| violation.rule).collect()
        }
    }

    #[test]
    fn a_split_that_goes_well_holds() {
        let mut story = Story::begun();
        // The owner from before writes until somebody fences it.
        story.wrote(1, 0, 1).granted(0, 3).granted(1, 3).raised(0, 2).raised(1, 3).wrote(2, 1, 3);
        story.raised(0, 3).wrote(3, 0, 3);
        assert_eq!(story.found(), []);
    }

    #[test]
    fn the_epoch_of_a_split_that_is_granted_is_found() {
        assert_eq!(Story::begun().granted(0, 2).found(), [Rule::SplitEpoch]);
        assert_eq!(Story::begun().granted(1, 2).found(), [Rule::SplitEpoch]);
        assert_eq!(Story::begun().granted(1, 3).granted(0, 4).found(), []);
        // To raise a fence to it is one thing, to own under it another.
        let began = |e| What::Began { scope: scope(0), epoch: epoch(e), worker: "w2".parse().unwrap() };
        assert_eq!(Story::begun().raised(0, 2).found(), []);
        assert_eq!(Story::begun().raised(0, 5).found(), [Rule::Ungranted]);
        assert_eq!(Story::begun().then("w2", began(2)).found(), [Rule::Ungranted]);
    }

    #[test]
    fn an_owner_from_before_a_split_that_is_believed_after_it_is_found() {
        // The child's owner came, and has not raised the parent's fence.
        let mut story = Story::begun();
        story.granted(1, 3).raised(1, 3).wrote(1, 0, 1);
        assert_eq!(story.found(), [Rule::StaleAccepted]);
        // Another store has not seen the child.
        let mut other = Story::begun();
        other.granted(1, 3).then("another", What::Raised { scope: scope(1), epoch: epoch(3) }).wrote(1, 0, 1);
        assert_eq!(other.found(), []);
        // A child of the child fences those who owned either.
        for (number, e) in [(0, 1), (1, 3)] {
            let mut twice = Story::begun();
            twice.granted(1, 3).split(1, 3, 4).granted(3, 5).raised(3, 5).wrote(1, number, e);
            assert_eq!(twice.found(), [Rule::StaleAccepted], "{number}");
        }
    }

    /// A key that goes to the child has one order of epochs.
    #[test]
    fn what_was_acknowledged_before_a_split_and_hidden_from_the_child_is_found() {
        let read = |found: &[u64]| {
            let mut story = Story::begun();
            story.asked(1, 0, 1).granted(1, 3);
            let (key, token) = ("k".to_owned(), Some((scope(1), epoch(3))));
            story.then("w3", What::Invoked { op: 2, key, call: Call::Read, token });
            let ok = crate::history::Outcome::Ok;
            story.then("w3", What::Returned { op: 2, outcome: ok(found.to_vec()) });
            // It was taken, and its acknowledgement came after that read.
            story.then("w1", What::Returned { op: 1, outcome: ok(Vec::new()) });
            story.found()
        };
        assert_eq!(read(&[1]), []);
        assert_eq!(read(&[]), [Rule::HiddenFromNextOwner]);
    }

    #[test]
    fn a_partition_that_was_split_off_needs_an_owner_too() {
        let rules = Rules { progress_us: Some(500), ..Rules::default() };
        let without = |split: bool| {
            let mut story = Story::default();
            story.then("n1", What::KeyspaceCreated { keyspace: "orders".parse().unwrap(), partitions: 1 });
            story
                .granted(0, 1)
                .then("w1", What::Began { scope: scope(0), epoch: epoch(1), worker: "w1".parse().unwrap() });
            story.then("w1", What::Ready { scope: scope(0), epoch: epoch(1) });
            if split {
                story.split(0, 1, 2);
            }
            story.then("net", What::Healed).then("net", What::End);
            check(&story.0, &rules).count(Rule::NoOwner)
        };
        assert_eq!((without(false), without(true)), (0, 1));
    }
}
