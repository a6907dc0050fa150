//! The log as the library sees it.

use super::cache::Cache;
use super::writer::Writer;
use super::{LogBackend, LogOp};
use crate::raft::campaigns::Campaigns;
use crate::raft::error::StartError;
use crate::raft::health::Health;
use crate::raft::types::{Entry, LogId, Types, Vote};
use crate::raft::{limits, record, wire};
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use ringfence_core::mutant;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The log of one node. A clone is the same log.
#[derive(Clone)]
pub(in crate::raft) struct LogStore {
    cache: Arc<Mutex<Cache>>,
    writer: Writer,
    campaigns: Campaigns,
}

impl LogStore {
    /// Reads everything a backend holds and, when `fits` agrees with the last entry purged from it, starts its writer.
    pub(in crate::raft) fn open(
        mut backend: Box<dyn LogBackend>,
        health: Arc<Health>,
        fits: impl FnOnce(Option<LogId>) -> Result<(), StartError>,
    ) -> Result<LogStore, StartError> {
        let place = backend.place();
        let stored = backend.load().map_err(|e| StartError::of_file(&place, e))?;
        let cache = Cache::load(stored).map_err(|why| StartError::Corrupt { path: place.clone(), why })?;
        fits(cache.purged)?;
        let writer = Writer::start(backend, health).map_err(|e| StartError::of_file(&place, e))?;
        Ok(LogStore { cache: Arc::new(Mutex::new(cache)), writer, campaigns: Campaigns::default() })
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // Nothing that holds the lock can leave the cache half changed, short of a failed allocation.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes kept, and bytes ever appended.
    pub(in crate::raft) fn bytes(&self) -> (u64, u64) {
        let cache = self.cache();
        (cache.bytes(), cache.appended())
    }

    /// The last entry purged.
    pub(in crate::raft) fn purged(&self) -> Option<LogId> {
        self.cache().purged
    }

    /// What every vote that is written delays.
    pub(in crate::raft) fn campaigns(&self) -> &Campaigns {
        &self.campaigns
    }

    /// Closes the files.
    pub(in crate::raft) async fn close(&self) {
        self.writer.close().await;
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        Ok(self.cache().range(&range, u64::MAX))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        // What is read here becomes one message.
        Ok(self.cache().range(&(start..end), limits::APPEND_BYTES as u64))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.cache().vote)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let cache = self.cache();
        Ok(LogState { last_purged_log_id: cache.purged, last_log_id: cache.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        if mutant!("vote-not-persisted") {
            self.cache().vote = Some(*vote);
            return Ok(());
        }
        let voting = self.campaigns.voting(vote.committed);
        self.writer.write_through(LogOp::Vote(record::encode(&wire::vote_out(vote)))).await?;
        self.campaigns.voted(&voting);
        self.cache().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let Some(id) = committed else { return Ok(()) };
        self.cache().committed = Some(id);
        self.writer.write(LogOp::Committed(record::encode(&wire::log_id_out(&id))), None).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.cache().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let records = entries
            .iter()
            .map(|e| (e.log_id.index(), record::encode(&wire::entry_out(e))))
            .collect::<Vec<_>>();
        // Readable from here on, though not durable: a leader sends entries while its own disk still writes them.
        self.cache().append(entries).map_err(io::Error::other)?;
        self.writer
            .write(LogOp::Append(records), Some(Box::new(|result| callback.io_completed(result))))
            .await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let first = last.map_or(0, |id| id.index() + 1);
        self.cache().truncate_from(first);
        if mutant!("truncation-not-persisted") {
            return Ok(());
        }
        self.writer.write_through(LogOp::TruncateFrom(first)).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.cache().purge(upto);
        // Not waited for: writes keep their order, and until this one is durable the log is merely longer.
        self.writer.write(LogOp::PurgeTo(upto.index(), record::encode(&wire::log_id_out(&upto))), None).await
    }
}
