//! How far one reader is: which revision it has, and what of the next it still has to be sent.
//!
//! A picture is cut into pieces that are made when they are sent, each from what is there then. All pieces of one look
//! name the revision at which it was taken: each shows its part of the map at that revision or later. What changes
//! while the pieces go out is after that revision, and is found by the next look. So a picture of a million partitions
//! costs its reader a position, not a copy.

use crate::replica::Local;
use prost::Message as _;
use ringfence_api::convert::MapEntry;
use ringfence_api::{PIECE_BYTES, v1};
use ringfence_core::ids::{KeyspaceId, KeyspaceName, LogIndex, PartitionId, PartitionKey, Revision};
use ringfence_core::state::{Event, Keyspace};
use std::collections::{BTreeMap, BTreeSet};

/// The most partitions in one piece.
pub(super) const PIECE_ENTRIES: usize = 4_096;

/// One reader's place in the map.
#[derive(Debug)]
pub(super) struct Cursor {
    /// `None`: all keyspaces.
    filter: Option<BTreeSet<KeyspaceName>>,
    /// Everything up to this revision was sent, or is in `open`.
    revision: Option<Revision>,
    /// Keyspaces of which the reader has every partition.
    complete: BTreeSet<KeyspaceId>,
    open: Option<Look>,
}

/// What a look found and is not sent yet.
#[derive(Debug, Default)]
struct Look {
    revision: u64,
    reset: bool,
    deleted: Vec<KeyspaceName>,
    /// Keyspaces to announce.
    keyspaces: BTreeSet<KeyspaceId>,
    /// Keyspaces to send in full, each from this partition on and up to that one. What is split off later comes with the
    /// next look, which says first that there are more.
    full: BTreeMap<KeyspaceId, (u32, u32)>,
    /// Single partitions to send.
    partitions: BTreeSet<PartitionKey>,
}

impl Cursor {
    /// A reader that knows nothing.
    pub(super) fn new(filter: Option<BTreeSet<KeyspaceName>>) -> Cursor {
        Cursor { filter, revision: None, complete: BTreeSet::new(), open: None }
    }

    /// A reader that has everything up to this revision.
    pub(super) fn resume(filter: Option<BTreeSet<KeyspaceName>>, revision: Revision) -> Cursor {
        Cursor { revision: Some(revision), ..Cursor::new(filter) }
    }

    /// The keyspaces named that do not exist.
    pub(super) fn absent<'a>(&'a self, local: &Local) -> Option<&'a KeyspaceName> {
        self.filter.iter().flatten().find(|name| local.state.keyspace_named(name).is_none())
    }

    /// A keyspace it watches of which some partitions are split and some are not.
    pub(super) fn midway<'a>(&self, local: &'a Local) -> Option<&'a KeyspaceName> {
        let mut watched = local.state.keyspaces().filter(|keyspace| self.watches(keyspace.name()));
        watched.find(|keyspace| keyspace.partitioner().is_midway()).map(Keyspace::name)
    }

    /// The next response; `None` when the reader has all there is.
    pub(super) fn next(&mut self, local: &Local) -> Option<v1::WatchResponse> {
        if self.open.is_none() {
            self.open = self.look(local);
        }
        let mut look = self.open.take()?;
        let cluster = local.state.cluster();
        let mut piece = v1::WatchResponse {
            cluster: cluster.map(|cluster| cluster.id.to_string()).unwrap_or_default(),
            lineage: cluster.map(|cluster| lineage(cluster.lineage)).unwrap_or_default(),
            revision: look.revision,
            reset: std::mem::take(&mut look.reset),
            more: false,
            keyspaces: Vec::new(),
            deleted_keyspaces: Vec::new(),
            partitions: Vec::new(),
        };
        // A keyspace may be deleted and created again under its name between two looks: what is gone goes first, alone.
        if look.deleted.is_empty() {
            self.fill(&mut piece, &mut look, local);
        } else {
            piece.deleted_keyspaces = look.deleted.drain(..).map(|name| name.to_string()).collect();
        }
        piece.more = !look.is_done();
        if piece.more {
            self.open = Some(look);
        }
        Some(piece)
    }

    /// Looks at what changed since the last look, or at everything when that is not known any more.
    fn look(&mut self, local: &Local) -> Option<Look> {
        let revision = local.state.revision();
        if self.revision == Some(revision) {
            return None;
        }
        let known = self.revision.and_then(|from| local.recent.since(LogIndex::new(from.get())));
        let look = match known {
            Some(changes) => {
                let mut look = Look { revision: revision.get(), ..Look::default() };
                for change in changes {
                    self.note(&mut look, &change.event, local);
                }
                look
            }
            None => self.everything(local),
        };
        self.revision = Some(revision);
        // A change to what this reader does not watch: it is as far as that revision without being told.
        (look.reset || !look.is_done()).then_some(look)
    }

    fn everything(&mut self, local: &Local) -> Look {
        let ids: BTreeSet<KeyspaceId> =
            local.state.keyspaces().filter(|k| self.watches(k.name())).map(Keyspace::id).collect();
        self.complete.clone_from(&ids);
        Look {
            revision: local.state.revision().get(),
            reset: true,
            full: ids.iter().map(|id| (*id, (0, count(local, *id)))).collect(),
            keyspaces: ids,
            ..Look::default()
        }
    }

    fn note(&mut self, look: &mut Look, event: &Event, local: &Local) {
        match event {
            Event::Partition { key, .. } => {
                let watched = local.state.keyspace(key.keyspace).is_some_and(|k| self.watches(k.name()));
                if watched {
                    look.partitions.insert(*key);
                }
            }
            Event::Keyspace(id) => {
                let watched = local.state.keyspace(*id).is_some_and(|k| self.watches(k.name()));
                if watched {
                    look.keyspaces.insert(*id);
                    // Created, or not known to this reader: partitions that nobody ever owned make no events.
                    if self.complete.insert(*id) {
                        look.full.insert(*id, (0, count(local, *id)));
                    }
                }
            }
            Event::Split(id) => {
                if local.state.keyspace(*id).is_some_and(|k| self.watches(k.name())) {
                    look.keyspaces.insert(*id);
                }
            }
            Event::KeyspaceDeleted(id, name) => {
                self.complete.remove(id);
                if self.watches(name) {
                    look.deleted.push(name.clone());
                }
            }
            Event::GivenBack { .. }
            | Event::Joined(_)
            | Event::Withdrawn(_)
            | Event::Ended { .. }
            | Event::Suspected(_)
            | Event::Cleared(_)
            | Event::WorkerSet { .. }
            | Event::PartitionSet(_)
            | Event::FreezeSet(_)
            | Event::PlanChanged(_)
            | Event::Lock(_)
            | Event::LockOf { .. } => {}
        }
    }

    fn watches(&self, name: &KeyspaceName) -> bool {
        self.filter.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Fills a piece up to its bounds. What has been deleted since the look is left out; the next look says so.
    fn fill(&self, piece: &mut v1::WatchResponse, look: &mut Look, local: &Local) {
        let mut room = Room { entries: PIECE_ENTRIES, bytes: PIECE_BYTES };
        while let Some(id) = look.keyspaces.pop_first() {
            if let Some(keyspace) = local.state.keyspace(id) {
                let message = v1::Keyspace::from(keyspace);
                room.take(message.encoded_len());
                piece.keyspaces.push(message);
            }
            if room.is_full() {
                return;
            }
        }
        while let Some(mut entry) = look.full.first_entry() {
            let (id, (number, end)) = (*entry.key(), *entry.get());
            let key = PartitionKey { keyspace: id, partition: PartitionId::new(number) };
            let there = MapEntry::read(&local.state, key).filter(|_| number < end);
            match there.map(v1::MapEntry::from) {
                Some(message) => {
                    entry.get_mut().0 = number.saturating_add(1);
                    look.partitions.remove(&key);
                    room.take(message.encoded_len());
                    piece.partitions.push(message);
                }
                None => {
                    entry.remove();
                }
            }
            if room.is_full() {
                return;
            }
        }
        while let Some(key) = look.partitions.pop_first() {
            if let Some(message) = MapEntry::read(&local.state, key).map(v1::MapEntry::from) {
                room.take(message.encoded_len());
                piece.partitions.push(message);
            }
            if room.is_full() {
                return;
            }
        }
    }
}

/// How many partitions a keyspace has now.
fn count(local: &Local, id: KeyspaceId) -> u32 {
    local.state.keyspace(id).map_or(0, |keyspace| keyspace.count().get())
}

impl Look {
    fn is_done(&self) -> bool {
        self.deleted.is_empty()
            && self.keyspaces.is_empty()
            && self.full.is_empty()
            && self.partitions.is_empty()
    }
}

/// What still fits into a piece.
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_full(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// A lineage as text.
pub(super) fn lineage(number: u64) -> String {
    format!("{number:016x}")
}
