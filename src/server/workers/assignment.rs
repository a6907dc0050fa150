//! What a session holds, as one stream has been told: a complete picture first, changes after it.

use crate::replica::Local;
use ringfence_api::convert::{Held, HeldLock};
use ringfence_api::v1;
use ringfence_core::ids::{Epoch, KeyspaceName, LockName, LogIndex, PartitionKey, SessionId};
use ringfence_core::mutant;
use ringfence_core::state::Event;
use std::collections::{BTreeMap, BTreeSet};

/// How many partitions one message names at most: a picture of any size goes in pieces well below a message's limit.
const PIECE: usize = 4_096;

/// What one stream has told its worker.
pub(super) struct Told {
    session: SessionId,
    /// The session's revision told; `None` before the first picture.
    revision: Option<LogIndex>,
    /// The entry up to which changes were looked at.
    seen: LogIndex,
    held: BTreeMap<PartitionKey, (Epoch, KeyspaceName)>,
    /// Each with its epoch and the request that it was granted to.
    locks: BTreeMap<LockName, (Epoch, u64)>,
}

impl Told {
    pub(super) fn nothing(session: SessionId) -> Told {
        Told {
            session,
            revision: None,
            seen: LogIndex::new(0),
            held: BTreeMap::new(),
            locks: BTreeMap::new(),
        }
    }

    /// True when an acknowledgement that names this revision may be sent.
    pub(super) fn covers(&self, revision: u64) -> bool {
        self.revision.is_some_and(|told| told.get() >= revision) || mutant!("acknowledged-before-told")
    }

    /// The messages that bring the worker up to date; empty when it is.
    pub(super) fn catch_up(&mut self, local: &Local) -> Vec<v1::Assignment> {
        let state = &local.state;
        let Some(session) = state.session(self.session) else { return Vec::new() };
        if self.revision == Some(session.assignment()) {
            self.seen = state.applied();
            return Vec::new();
        }
        let recent = self.revision.and_then(|_| local.recent.since(self.seen));
        let changed: Option<BTreeSet<PartitionKey>> = recent.map(|changes| {
            let mine = changes.filter_map(|change| match change.event {
                Event::Partition { key, before, after } => {
                    (before == Some(self.session) || after == Some(self.session)).then_some(key)
                }
                _ => None,
            });
            mine.collect()
        });
        let complete = changed.is_none();
        let look_at = changed.unwrap_or_else(|| session.holds().clone());
        let mut gone = Vec::new();
        if complete {
            self.held.clear();
            self.locks.clear();
        }
        let mut held = Vec::new();
        for key in look_at {
            match held_of(local, self.session, key) {
                Some((message, epoch, name)) => {
                    self.held.insert(key, (epoch, name));
                    held.push(message);
                }
                None => {
                    if let Some((epoch, name)) = self.held.remove(&key) {
                        let (keyspace, partition) = (name.to_string(), key.partition.get());
                        gone.push(v1::Gone { keyspace, partition, epoch: epoch.get() });
                    }
                }
            }
        }
        let (locks, gone_locks) = self.locks(local);
        self.revision = Some(session.assignment());
        self.seen = state.applied();
        let mut pieces = pieces(session.assignment().get(), complete, held, gone);
        // There are few enough for any piece, and all pieces count together.
        if let Some(last) = pieces.last_mut() {
            (last.locks, last.gone_locks) = (locks, gone_locks);
        }
        pieces
    }

    /// The locks that were granted or lost since the last look. A session has few enough to look at all of them.
    fn locks(&mut self, local: &Local) -> (Vec<v1::HeldLock>, Vec<v1::GoneLock>) {
        let names =
            local.state.session(self.session).into_iter().flat_map(ringfence_core::state::Session::locks);
        let held: Vec<HeldLock> =
            names.filter_map(|name| HeldLock::read(&local.state, self.session, name)).collect();
        let now: BTreeMap<LockName, (Epoch, u64)> =
            held.iter().map(|held| (held.lock.clone(), (held.epoch, held.number))).collect();
        let before = std::mem::replace(&mut self.locks, now);
        let is_new = |held: &HeldLock| before.get(&held.lock) != Some(&(held.epoch, held.number));
        let news = held.into_iter().filter(is_new).map(v1::HeldLock::from).collect();
        let gone = before.iter().filter(|(name, grant)| self.locks.get(*name) != Some(*grant));
        let gone = gone.map(|(name, (epoch, number))| v1::GoneLock {
            lock: name.to_string(),
            epoch: epoch.get(),
            number: *number,
        });
        (news, gone.collect())
    }
}

fn held_of(local: &Local, session: SessionId, key: PartitionKey) -> Option<(v1::Held, Epoch, KeyspaceName)> {
    let held = Held::read(&local.state, session, key)?;
    let (epoch, name) = (held.epoch, held.keyspace.clone());
    Some((held.into(), epoch, name))
}

fn pieces(
    revision: u64,
    complete: bool,
    held: Vec<v1::Held>,
    mut gone: Vec<v1::Gone>,
) -> Vec<v1::Assignment> {
    let mut pieces = Vec::new();
    let mut held = held.into_iter().peekable();
    loop {
        let piece: Vec<v1::Held> = held.by_ref().take(PIECE).collect();
        let of_gone: Vec<v1::Gone> = gone.drain(..gone.len().min(PIECE)).collect();
        let more = held.peek().is_some() || !gone.is_empty();
        pieces.push(v1::Assignment {
            revision,
            complete,
            more,
            held: piece,
            gone: of_gone,
            ..Default::default()
        });
        if !more {
            return pieces;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An acknowledgement that overtakes its assignment would extend what the worker does not hold any more.
    #[test]
    fn p03_nothing_is_acknowledged_before_the_assignment_it_names_was_told() {
        let mut told = Told::nothing(SessionId::new(1).unwrap());
        assert!(!told.covers(0) && !told.covers(7));
        told.revision = Some(LogIndex::new(7));
        assert!(told.covers(6) && told.covers(7) && !told.covers(8));
    }
}
