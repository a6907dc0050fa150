//! The library's own suite on both backends, and what must hold when a disk fails or lies.

use super::*;
use crate::files::{Files, SystemFiles};
use crate::raft::applier::Applier;
use crate::raft::error::StartError;
use crate::raft::health::Health;
use crate::raft::machine::{Machine, MachineError, Position};
use crate::raft::snapshot::MemorySnapshots;
use crate::raft::types::{Committed, Data, Entry, LogId, Payload, Runtime, Types, Vote};
use openraft::AsyncRuntime;
use openraft::StorageError;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Nothing;

impl Machine for Nothing {
    type Answer = ();
    fn apply(&mut self, _: Position, _: Option<&[u8]>) -> Result<(), MachineError> {
        Ok(())
    }
    fn snapshot(&self) -> Box<dyn FnOnce() -> Vec<u8> + Send> {
        Box::new(Vec::new)
    }
    fn restore(&mut self, _: Position, _: &[u8]) -> Result<(), MachineError> {
        Ok(())
    }
}

struct Memory;
struct File;

fn applier() -> Applier {
    Applier::new(Nothing, Arc::new(MemorySnapshots::new()), None, Arc::new(Health::new())).0
}

impl StoreBuilder<Types, LogStore, Applier, ()> for Memory {
    async fn build(&self) -> Result<((), LogStore, Applier), StorageError<Types>> {
        let log =
            LogStore::open(Box::new(MemoryLog::new()), Arc::new(Health::new()), |_| Ok(())).expect("opens");
        Ok(((), log, applier()))
    }
}

impl StoreBuilder<Types, LogStore, Applier, tempfile::TempDir> for File {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStore, Applier), StorageError<Types>> {
        let dir = tempfile::tempdir().expect("a directory");
        let log =
            LogStore::open(Box::new(open(dir.path()).expect("opens")), Arc::new(Health::new()), |_| Ok(()))
                .expect("opens");
        Ok((dir, log, applier()))
    }
}

/// A file's log in a directory.
fn open(dir: &Path) -> Result<RedbLog, StartError> {
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let lock = files.lock(&dir.join("LOCK")).expect("a lock file");
    let lock = lock.ok_or_else(|| StartError::Locked(dir.to_path_buf()))?;
    let path = dir.join("log.redb");
    if !path.exists() {
        RedbLog::create(files.as_ref(), &path, &Bytes::from_static(b"us"))?;
    }
    RedbLog::open(&files, &path, lock).map(|(log, _)| log)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new(1).block_on(future)
}

#[test]
fn the_librarys_suite_passes_in_memory() {
    Runtime::run(Suite::test_all(Memory)).expect("passes");
}

#[test]
fn the_librarys_suite_passes_on_a_file() {
    Runtime::run(Suite::test_all(File)).expect("passes");
}

fn id(term: u64, index: u64) -> LogId {
    LogId::new(Committed::new(term), index)
}

fn entry(index: u64, data: &'static [u8]) -> Entry {
    Entry { log_id: id(1, index), payload: Payload::Normal(Data(Bytes::from_static(data))) }
}

fn store(backend: impl LogBackend) -> (LogStore, Arc<Health>) {
    let health = Arc::new(Health::new());
    (LogStore::open(Box::new(backend), Arc::clone(&health), |_| Ok(())).expect("opens"), health)
}

/// A store whose next flushes fail, and then succeed again, as a disk's may.
#[derive(Clone)]
struct Failing {
    inner: MemoryLog,
    fails: Arc<AtomicBool>,
}

impl LogBackend for Failing {
    fn load(&mut self) -> io::Result<Stored> {
        self.inner.load()
    }
    fn commit(&mut self, ops: &[LogOp]) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            Err(io::Error::from_raw_os_error(5))
        } else {
            self.inner.commit(ops)
        }
    }
}

#[test]
fn f039_after_one_failed_flush_nothing_is_ever_acknowledged_again() {
    run(async {
        let fails = Arc::new(AtomicBool::new(false));
        let inner = MemoryLog::new();
        let (mut log, health) = store(Failing { inner: inner.clone(), fails: Arc::clone(&fails) });
        log.save_vote(&Vote::new(1, 1)).await.expect("saved");
        log.blocking_append([entry(0, b"kept")]).await.expect("appended");

        fails.store(true, Ordering::SeqCst);
        log.blocking_append([entry(1, b"lost")]).await.expect_err("the flush failed");
        fails.store(false, Ordering::SeqCst);

        log.save_vote(&Vote::new(2, 1)).await.expect_err("no vote after it");
        log.blocking_append([entry(2, b"later")]).await.expect_err("no entry after it");
        let why = health.stopped().expect("the node stops");
        assert!(why.contains("could not be written") && why.contains("start the node again"), "{why}");
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(1, 1)), "the vote that is on disk");
        log.close().await;

        let (mut log, _) = store(inner);
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(1, 1)));
        assert_eq!(log.get_log_state().await.expect("read").last_log_id, Some(id(1, 0)));
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    run(async {
        let (mut log, _) = store(open(dir.path()).expect("opens"));
        log.save_vote(&Vote::new(7, 3)).await.expect("saved");
        log.blocking_append((0..10).map(|i| entry(i, b"payload"))).await.expect("appended");
        log.truncate_after(Some(id(1, 7))).await.expect("truncated");
        log.save_committed(Some(id(1, 6))).await.expect("saved");
        log.purge(id(1, 2)).await.expect("purged");
        log.close().await;

        let (mut log, _) = store(open(dir.path()).expect("opens: the lock is free"));
        let state = log.get_log_state().await.expect("read");
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(1, 2)), Some(id(1, 7))));
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(7, 3)));
        assert_eq!(log.read_committed().await.expect("read"), Some(id(1, 6)));
        assert_eq!(log.try_get_log_entries(..).await.expect("read").len(), 5);
        log.close().await;
    });
}

#[test]
fn a_request_for_entries_stops_before_it_fills_a_message() {
    run(async {
        let (mut log, _) = store(MemoryLog::new());
        let large: &'static [u8] = vec![7; crate::raft::limits::ENTRY_BYTES].leak();
        log.append((0..8).map(|i| entry(i, large)), IOFlushed::noop()).await.expect("appended");
        let entries = log.limited_get_log_entries(0, 8).await.expect("read");
        assert!((1..4).contains(&entries.len()), "{}", entries.len());
        assert_eq!(log.try_get_log_entries(0..8).await.expect("read").len(), 8);
    });
}

/// The file of a log that was never closed, as a killed process leaves it: after 50 entries, and after one more.
fn unclean_images() -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = || std::fs::read(dir.path().join("log.redb")).expect("read");
    run(async {
        let (mut log, _) = store(open(dir.path()).expect("opens"));
        log.save_vote(&Vote::new(1, 1)).await.expect("saved");
        for i in 0..50 {
            log.blocking_append([entry(i, b"a payload to be found in the file")]).await.expect("appended");
        }
        let before = image();
        log.blocking_append([entry(50, b"the write that the power cut tears")]).await.expect("appended");
        let after = image();
        log.close().await;
        (before, after)
    })
}

const SECTOR: usize = 512;

fn changed_sectors(before: &[u8], after: &[u8]) -> Vec<usize> {
    assert_eq!(before.len(), after.len());
    let differs = |at: &usize| before[*at..*at + SECTOR] != after[*at..*at + SECTOR];
    (0..before.len()).step_by(SECTOR).filter(differs).collect()
}

/// The last entry of a log with this file, after which it goes on.
fn last_of(image: &[u8]) -> Result<u64, StartError> {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("log.redb"), image).expect("written");
    let backend = open(dir.path())?;
    let log = LogStore::open(Box::new(backend), Arc::new(Health::new()), |_| Ok(()))?;
    run(async {
        let mut log = log;
        let last = log.get_log_state().await.expect("read").last_log_id.expect("entries").index();
        assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new(1, 1)));
        log.blocking_append([entry(last + 1, b"goes on")]).await.expect("appended");
        log.close().await;
        Ok(last)
    })
}

/// The byte of redb's header that says which commit is the newest. It is written after the commit was flushed.
const NEWEST: usize = 9;

#[test]
fn a_torn_tail_is_recovered() {
    let (before, after) = unclean_images();
    let mut flushed = after.clone();
    flushed[NEWEST] = before[NEWEST];
    let changed = changed_sectors(&before, &flushed);
    assert!(changed.len() > 2, "{changed:?}");
    // Every sector of the last commit alone missing, and alone written.
    for &torn in &changed {
        for (base, other) in [(&before, &flushed), (&flushed, &before)] {
            let mut image = base.clone();
            image[torn..torn + SECTOR].copy_from_slice(&other[torn..torn + SECTOR]);
            assert_eq!(last_of(&image).expect("recovered"), 49, "the sector at {torn}");
        }
    }
    assert_eq!(last_of(&flushed).expect("recovered"), 49);
    assert_eq!(last_of(&after).expect("recovered"), 50);
}

#[test]
fn g5_an_acknowledged_commit_that_is_damaged_is_refused_and_not_undone() {
    let (before, after) = unclean_images();
    let mut refused = 0;
    for lost in changed_sectors(&before, &after).into_iter().filter(|&at| at > 0) {
        let mut image = after.clone();
        image[lost..lost + SECTOR].copy_from_slice(&before[lost..lost + SECTOR]);
        match last_of(&image) {
            Ok(last) => assert_eq!(last, 50, "the sector at {lost}"),
            Err(error) => {
                assert!(matches!(error, StartError::Corrupt { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no sector of it mattered");
}

#[test]
fn a_corrupt_middle_is_refused_with_the_file_named() {
    for clean in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("log.redb"), unclean_images().0).expect("written");
        if clean {
            // Opened and closed: then the store below verifies nothing by itself.
            drop(open(dir.path()).expect("opens"));
        }
        let path = dir.path().join("log.redb");
        let mut bytes = std::fs::read(&path).expect("read");
        let needle = b"payload to be found";
        let found: Vec<usize> =
            bytes.windows(needle.len()).enumerate().filter(|(_, w)| w == needle).map(|(i, _)| i).collect();
        assert!(found.len() >= 50);
        for at in found {
            bytes[at] ^= 0x20;
        }
        std::fs::write(&path, bytes).expect("written");
        let opened = open(dir.path())
            .and_then(|log| LogStore::open(Box::new(log), Arc::new(Health::new()), |_| Ok(())));
        let error = opened.err().expect("refused");
        assert!(matches!(&error, StartError::Corrupt { path: named, .. } if *named == path), "{error}");
    }
}

#[test]
fn a_log_with_a_hole_is_refused() {
    let mut memory = MemoryLog::new();
    let record = |i| {
        let entry = crate::raft::wire::entry_out(&entry(i, b"x"));
        (i, crate::raft::record::encode(&entry))
    };
    memory.commit(&[LogOp::Append(vec![record(0), record(1), record(3)])]).expect("stored");
    let error = LogStore::open(Box::new(memory), Arc::new(Health::new()), |_| Ok(())).err().expect("refused");
    assert!(error.to_string().contains("entry 2 is missing"), "{error}");
}

#[test]
fn a_second_process_is_refused_while_the_first_has_the_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = open(dir.path()).expect("opens");
    assert!(matches!(open(dir.path()), Err(StartError::Locked(_))));
    drop(first);
    open(dir.path()).expect("opens");
}
