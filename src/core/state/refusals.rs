//! Writes that storage refused, or would have refused, as programs have told it.
//!
//! A refused write means that a worker wrote after its successor had begun: it was paused, or cut off, and did not know.
//! Who reports may be the worker itself, when it runs again, or a service that holds the fence. Its session is over more
//! often than not, so a report needs none, and nothing rests on it: what is kept here is for people.
//!
//! It is bounded by how much is different, not by how often it happens: the same refusal again is a count.

use super::State;
use super::apply::Change;
use super::outcome::Outcome;
use super::partition::{Partition, Tenure};
use super::undo::Undo;
use crate::ids::{Epoch, LogIndex, Scope, SessionId, StoreName, WorkerId};
use crate::mutant;

/// How many different refusals are remembered; the one that was reported least lately is forgotten first.
pub const REFUSALS_LEN: usize = 256;
/// How many different refusals one command may note.
pub const MAX_REFUSALS_NOTED: usize = 256;

/// Writes that the same storage refused for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusedWrites {
    /// What makes them the same.
    pub what: RefusedWrite,
    /// How many. It stops at the largest number there is.
    pub count: u64,
    /// When the first and the last was refused, by the clock of the leader that was told; for display.
    pub first_unix_ms: u64,
    /// See `first_unix_ms`.
    pub last_unix_ms: u64,
    /// The entry that noted the last of them.
    pub at: LogIndex,
    /// Who had the epoch that was refused, as far as it was remembered when the first was noted.
    pub writer: Option<Holder>,
    /// Who was granted the partition after that, as far as it was remembered then.
    pub successor: Option<Holder>,
    /// The worker whose program has reported the last of them, as it called itself.
    pub reporter: Option<WorkerId>,
}

/// What a storage refused, and which: refusals that agree in all of it are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefusedWrite {
    /// What the write's token spoke for.
    pub scope: Scope,
    /// The epoch of the write.
    pub own: Epoch,
    /// The highest epoch that the fence had seen.
    pub highest: Epoch,
    /// The storage, as the program that reports calls it.
    pub store: StoreName,
    /// The fence only observes: the write went through.
    pub observed: bool,
}

/// A holder of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: SessionId,
    /// The epoch.
    pub epoch: Epoch,
    /// When it was granted, by the clock of the leader then.
    pub granted_unix_ms: u64,
}

/// Refusals to note.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalNote {
    /// What was refused.
    pub what: RefusedWrite,
    /// How often.
    pub count: u64,
    /// When the first and the last was refused, by the leader's clock.
    pub first_unix_ms: u64,
    /// See `first_unix_ms`.
    pub last_unix_ms: u64,
    /// The worker whose program reports it, as it calls itself.
    pub reporter: Option<WorkerId>,
}

impl RefusedWrites {
    /// For how long at least the writer had been replaced when the first of these writes reached the storage: that long it
    /// was paused or cut off, or the write was under way. `None` when nobody knows any more when the next grant was.
    pub fn late_ms(&self) -> Option<u64> {
        let replaced = self.successor.as_ref()?.granted_unix_ms;
        Some(self.first_unix_ms.saturating_sub(replaced))
    }
}

impl State {
    /// Writes that storage refused, or would have refused; those reported last come last.
    pub fn refusals(&self) -> impl DoubleEndedIterator<Item = &RefusedWrites> {
        self.refusals.iter()
    }

    /// Who had the epoch of a refused write, and who was granted the partition next, as far as that is remembered.
    fn holders(&self, what: &RefusedWrite) -> (Option<Holder>, Option<Holder>) {
        let Scope::Partition(keyspace, number) = &what.scope else { return (None, None) };
        let keyspace = self.keyspace_named(keyspace);
        let partition = keyspace.and_then(|keyspace| keyspace.partitions.get(number.get() as usize));
        let history = || partition.map(Partition::history).into_iter().flatten();
        let writer = history().find(|tenure| tenure.epoch == what.own);
        // Without the writer's own the first one that is known may be a later successor: then it says less.
        let successor = history().find(|tenure| tenure.epoch > what.own);
        (writer.map(Holder::of), successor.map(Holder::of))
    }
}

impl Holder {
    fn of(tenure: &Tenure) -> Holder {
        let Tenure { worker, session, epoch, unix_ms, .. } = tenure;
        Holder { worker: worker.clone(), session: *session, epoch: *epoch, granted_unix_ms: *unix_ms }
    }
}

impl Change<'_> {
    /// Notes writes that were refused. What is more than a command may note is passed over: nothing rests on it.
    pub(super) fn note_refusals(&mut self, notes: &[RefusalNote]) -> Outcome {
        self.journal.push(Undo::Refusals(self.state.refusals.clone()));
        for note in notes.iter().take(MAX_REFUSALS_NOTED) {
            let known = self.state.refusals.iter().position(|kept| kept.what == note.what);
            let before = known.and_then(|place| self.state.refusals.remove(place));
            let noted = match before {
                Some(kept) => RefusedWrites {
                    count: kept.count.saturating_add(note.count),
                    first_unix_ms: kept.first_unix_ms.min(note.first_unix_ms),
                    last_unix_ms: kept.last_unix_ms.max(note.last_unix_ms),
                    at: self.index,
                    reporter: note.reporter.clone().or(kept.reporter),
                    ..kept
                },
                None => {
                    let (writer, successor) = self.state.holders(&note.what);
                    RefusedWrites {
                        what: note.what.clone(),
                        count: note.count,
                        first_unix_ms: note.first_unix_ms.min(note.last_unix_ms),
                        last_unix_ms: note.last_unix_ms,
                        at: self.index,
                        writer,
                        successor,
                        reporter: note.reporter.clone(),
                    }
                }
            };
            if self.state.refusals.len() >= REFUSALS_LEN && !mutant!("refusals-without-bound") {
                self.state.refusals.pop_front();
            }
            self.state.refusals.push_back(noted);
        }
        Outcome::Done
    }
}
