//! The log in memory.

use super::Stored;
use crate::raft::record;
use crate::raft::types::{Entry, LogId, Payload, Vote};
use crate::raft::wire;
use ringfence_api::v1;
use std::collections::VecDeque;
use std::ops::RangeBounds;

/// The whole uncompacted log, the vote and the commit point, as they will be on disk once all queued writes are done.
#[derive(Default)]
pub(super) struct Cache {
    entries: VecDeque<Entry>,
    bytes: u64,
    /// Bytes ever appended; differences of it measure growth.
    appended: u64,
    pub(super) purged: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
}

/// About what an entry takes, in memory and on disk.
pub(super) fn size(entry: &Entry) -> u64 {
    64 + match &entry.payload {
        Payload::Normal(data) => data.0.len() as u64,
        Payload::Blank | Payload::Membership(_) => 0,
    }
}

impl Cache {
    /// Takes over what a backend holds, checking every record and that no entry is missing.
    pub(super) fn load(stored: Stored) -> Result<Cache, String> {
        let id = |record: &bytes::Bytes| -> Result<LogId, String> {
            let id: v1::RaftLogId = record::decode(record).map_err(|e| e.to_string())?;
            wire::log_id_in(&id).map_err(|e| e.to_string())
        };
        let mut cache = Cache {
            purged: stored
                .purged
                .as_ref()
                .map(id)
                .transpose()
                .map_err(|e| format!("the purge point: {e}"))?,
            committed: stored
                .committed
                .as_ref()
                .map(id)
                .transpose()
                .map_err(|e| format!("the commit point: {e}"))?,
            ..Cache::default()
        };
        if let Some(record) = &stored.vote {
            let vote: v1::RaftVote = record::decode(record).map_err(|e| format!("the vote: {e}"))?;
            cache.vote = Some(wire::vote_in(Some(vote)).map_err(|e| format!("the vote: {e}"))?);
        }
        for (index, record) in &stored.entries {
            let entry: v1::RaftEntry = record::decode(record).map_err(|e| format!("entry {index}: {e}"))?;
            let entry = wire::entry_in(entry).map_err(|e| format!("entry {index}: {e}"))?;
            let expected = cache.next_index();
            if *index != expected || entry.log_id.index() != expected {
                return Err(format!(
                    "entry {expected} is missing: entry {} stands at {index}",
                    entry.log_id.index()
                ));
            }
            if cache.last().is_some_and(|last| entry.log_id < last) {
                return Err(format!("entry {index} is of an earlier term than the one before it"));
            }
            cache.push(entry);
        }
        Ok(cache)
    }

    /// The last entry, or the last purged one.
    pub(super) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|e| e.log_id).or(self.purged)
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index() + 1)
    }

    fn first_index(&self) -> u64 {
        self.entries.front().map(|e| e.log_id.index()).unwrap_or_else(|| self.next_index())
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.appended += size(&entry);
        self.entries.push_back(entry);
    }

    /// Appends entries, which must follow the last one. Only a log that never had one begins anywhere.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        for entry in entries {
            if self.last().is_some() && entry.log_id.index() != self.next_index() {
                return Err(format!("entry {} was appended behind {:?}", entry.log_id, self.last()));
            }
            self.push(entry);
        }
        Ok(())
    }

    /// Forgets `first` and all above.
    pub(super) fn truncate_from(&mut self, first: u64) {
        let keep = usize::try_from(first.saturating_sub(self.first_index())).unwrap_or(usize::MAX);
        while self.entries.len() > keep {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= size(&entry);
            }
        }
    }

    /// Forgets `upto` and all below. A snapshot may lie beyond the end of the log, which is then empty.
    pub(super) fn purge(&mut self, upto: LogId) {
        if self.purged.is_some_and(|purged| purged.index() >= upto.index()) {
            return;
        }
        while self.entries.front().is_some_and(|e| e.log_id.index() <= upto.index()) {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= size(&entry);
            }
        }
        self.purged = Some(upto);
    }

    /// The entries of a range, without those that were purged or are not there yet; no more than `budget` bytes of them,
    /// but at least one.
    pub(super) fn range(&self, range: &impl RangeBounds<u64>, budget: u64) -> Vec<Entry> {
        use std::ops::Bound;
        let first = self.first_index();
        let start = match range.start_bound() {
            Bound::Included(&i) => i,
            Bound::Excluded(&i) => i.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let skip = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut left = budget;
        let mut out = Vec::new();
        for entry in self.entries.iter().skip(skip).take_while(|e| range.contains(&e.log_id.index())) {
            if !out.is_empty() && size(entry) > left {
                break;
            }
            left = left.saturating_sub(size(entry));
            out.push(entry.clone());
        }
        out
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes ever appended.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }
}
