//! What the leader was told of refused writes, until it is noted in the log.
//!
//! A storm of refusals is told by many, often, and says one thing again and again. So it is added up here, and goes into the
//! log once a second, in one entry of bounded size. What a node that stops or is deposed has not noted yet is lost, which
//! loses a number.

use crate::context::Context;
use ringfence_core::state::{Command, MAX_REFUSALS_NOTED, RefusalNote, RefusedWrite};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Between two entries about refused writes.
const PACE: Duration = Duration::from_secs(1);
/// How many of an entry are told to the log of the process.
const LOGGED: usize = 10;

/// Refused writes that were not noted yet. A clone is the same heap.
#[derive(Clone, Default)]
pub struct Gathered {
    heap: Arc<Mutex<BTreeMap<RefusedWrite, RefusalNote>>>,
    news: Arc<Notify>,
}

/// The heap has as many different refusals as one entry may note.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Gathered {
    /// Adds what was told: all of it, or nothing, so that whoever told it may say it again.
    pub(super) fn add(&self, notes: Vec<RefusalNote>) -> Result<(), Full> {
        let mut heap = self.heap();
        let new: BTreeSet<&RefusedWrite> =
            notes.iter().map(|note| &note.what).filter(|what| !heap.contains_key(what)).collect();
        if heap.len() + new.len() > MAX_REFUSALS_NOTED {
            return Err(Full);
        }
        for note in notes {
            match heap.get_mut(&note.what) {
                Some(known) => {
                    known.count = known.count.saturating_add(note.count);
                    known.first_unix_ms = known.first_unix_ms.min(note.first_unix_ms);
                    known.last_unix_ms = known.last_unix_ms.max(note.last_unix_ms);
                    known.reporter = note.reporter.or(known.reporter.take());
                }
                None => drop(heap.insert(note.what.clone(), note)),
            }
        }
        self.news.notify_one();
        Ok(())
    }

    fn take(&self) -> Vec<RefusalNote> {
        std::mem::take(&mut *self.heap()).into_values().collect()
    }

    /// The heap is plain data, and whole after every statement.
    fn heap(&self) -> MutexGuard<'_, BTreeMap<RefusedWrite, RefusalNote>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what was gathered, until `stop` is cancelled.
pub(crate) async fn run(context: Context, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = context.gathered.news.notified() => {}
        }
        let notes = context.gathered.take();
        if notes.is_empty() {
            continue;
        }
        log(&notes);
        if let Err(failure) = context.propose(None, vec![Command::NoteRefusals { notes }], None).await {
            tracing::debug!(%failure, "refused writes were told here and are not noted");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PACE) => {}
        }
    }
}

fn log(notes: &[RefusalNote]) {
    for RefusalNote { what, count, reporter, .. } in notes.iter().take(LOGGED) {
        let RefusedWrite { scope, own, highest, store, observed } = what;
        let reporter = reporter.as_ref().map(ToString::to_string).unwrap_or_default();
        if *observed {
            tracing::warn!(%scope, %own, %highest, %store, count, reporter, "storage observes only, and took writes of a replaced owner");
        } else {
            tracing::warn!(%scope, %own, %highest, %store, count, reporter, "storage refused writes of a replaced owner");
        }
    }
    if notes.len() > LOGGED {
        tracing::warn!(more = notes.len() - LOGGED, "and more refused writes: ringfence fence refusals");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::ids::{Epoch, StoreName};

    fn note(store: &str, count: u64, at: u64) -> RefusalNote {
        let what = RefusedWrite {
            scope: "orders/17".parse().unwrap(),
            own: Epoch::new(1).unwrap(),
            highest: Epoch::new(2).unwrap(),
            store: StoreName::new(store).unwrap(),
            observed: false,
        };
        RefusalNote { what, count, first_unix_ms: at, last_unix_ms: at, reporter: None }
    }

    #[test]
    fn a_storm_is_one_note_and_what_is_different_has_a_bound() {
        let gathered = Gathered::default();
        for at in 1..=1_000 {
            assert_eq!(gathered.add(vec![note("ledger", 1_000, at)]), Ok(()));
        }
        let different = (1..MAX_REFUSALS_NOTED).map(|n| note(&format!("s{n}"), 1, 1)).collect();
        assert_eq!(gathered.add(different), Ok(()));
        assert_eq!(gathered.add(vec![note("one-more", 1, 1), note("ledger", 1, 1_001)]), Err(Full));
        let notes = gathered.take();
        assert_eq!(notes.len(), MAX_REFUSALS_NOTED);
        let storm = notes.iter().find(|note| note.what.store.as_str() == "ledger").unwrap();
        assert_eq!((storm.count, storm.first_unix_ms, storm.last_unix_ms), (1_000_000, 1, 1_000));
        assert!(gathered.take().is_empty());
    }
}
