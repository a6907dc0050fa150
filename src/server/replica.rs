//! The replicated state as this node has applied it, and everything that follows it entry by entry.
//!
//! One lock holds the state, the leadership of this node's term if it leads, and a bounded record of what changed
//! lately. An entry is applied, observed by the leadership at that very moment, and recorded under the lock, so whoever
//! reads sees all three at one position. Nothing is queued for readers: they are told that something changed and come
//! to look, so a slow one costs nobody anything.

use crate::clock::Clock;
use crate::raft::{Machine, MachineError, Position};
use ringfence_api::state::{decode_entry, decode_state, encode_state};
use ringfence_core::ids::{LogIndex, PartitionKey, SessionId, Term};
use ringfence_core::lead::Leadership;
use ringfence_core::mutant;
use ringfence_core::state::{Applied, Event, Outcome, State};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// How many changes to partitions are remembered for watches and streams that resume; one that is further behind
/// starts over with a full picture.
pub const RECENT_CHANGES: usize = 65_536;

/// A handle of the replica; a clone is the same replica.
#[derive(Clone)]
pub struct Replica {
    inner: Arc<Inner>,
}

struct Inner {
    local: Mutex<Local>,
    applied: watch::Sender<LogIndex>,
    clock: Arc<dyn Clock>,
}

/// What the lock holds.
pub struct Local {
    /// The state.
    pub state: State,
    /// The last entry applied; `None` before the first.
    pub at: Option<Position>,
    /// This node's leadership, when it leads and has applied an entry of its own term.
    pub leadership: Option<Leadership>,
    /// What changed lately.
    pub recent: Recent,
    /// The open streams of sessions, to be woken when something of theirs changed.
    pub streams: Streams,
}

/// One change to a partition or a keyspace.
#[derive(Clone, Debug)]
pub struct Change {
    /// The entry that made it.
    pub at: LogIndex,
    /// What changed.
    pub event: Event,
}

/// The open streams of sessions.
#[derive(Default)]
pub struct Streams {
    wakers: BTreeMap<SessionId, Vec<Arc<Notify>>>,
}

impl Streams {
    /// Registers a stream of the session.
    pub fn open(&mut self, session: SessionId, waker: Arc<Notify>) {
        self.wakers.entry(session).or_default().push(waker);
    }

    /// Takes a stream out again.
    pub fn close(&mut self, session: SessionId, waker: &Arc<Notify>) {
        if let Some(of) = self.wakers.get_mut(&session) {
            of.retain(|other| !Arc::ptr_eq(other, waker));
            if of.is_empty() {
                self.wakers.remove(&session);
            }
        }
    }

    fn wake(&self, session: SessionId) {
        self.wakers.get(&session).into_iter().flatten().for_each(|waker| waker.notify_one());
    }

    fn wake_all(&self) {
        self.wakers.values().flatten().for_each(|waker| waker.notify_one());
    }
}

/// The last changes to the map, oldest first.
#[derive(Debug, Default)]
pub struct Recent {
    changes: VecDeque<Change>,
    /// Changes at or below this are not all known.
    gone: Option<LogIndex>,
}

impl Recent {
    /// The changes after `since`; `None` when some of them are not remembered any more.
    pub fn since(&self, since: LogIndex) -> Option<impl Iterator<Item = &Change>> {
        if self.gone.is_some_and(|gone| since < gone) && !mutant!("watch-resumes-with-a-gap") {
            return None;
        }
        let first = self.changes.partition_point(|change| change.at <= since);
        Some(self.changes.range(first..))
    }

    fn push(&mut self, change: Change) {
        if self.changes.len() == RECENT_CHANGES
            && let Some(oldest) = self.changes.pop_front()
        {
            self.gone = Some(oldest.at);
        }
        self.changes.push_back(change);
    }

    fn start_over(&mut self, at: LogIndex) {
        self.changes.clear();
        self.gone = Some(at);
    }
}

impl Replica {
    /// The replica before the first entry.
    pub fn new(clock: Arc<dyn Clock>) -> Replica {
        let local = Local {
            state: State::new(),
            at: None,
            leadership: None,
            recent: Recent::default(),
            streams: Streams::default(),
        };
        let applied = watch::Sender::new(LogIndex::new(0));
        Replica { inner: Arc::new(Inner { local: Mutex::new(local), applied, clock }) }
    }

    /// The lock. Held for looking and deciding, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Local> {
        // A panic under the lock is a broken invariant in `apply`; the task that raised it is gone, and serving what it
        // left is no worse than what any other node has. Nothing is half-written: apply has no early exit.
        self.inner.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last index applied, now and whenever it grows.
    pub fn applied(&self) -> watch::Receiver<LogIndex> {
        self.inner.applied.subscribe()
    }

    /// The machine that the log drives. There is one.
    pub fn machine(&self) -> ReplicaMachine {
        ReplicaMachine { replica: self.clone() }
    }
}

/// Applies entries to the replica.
pub struct ReplicaMachine {
    replica: Replica,
}

impl Machine for ReplicaMachine {
    type Answer = Applied;

    fn apply(&mut self, at: Position, payload: Option<&[u8]>) -> Result<Applied, MachineError> {
        let entry = payload.map(decode_entry).transpose();
        let entry = entry.map_err(|e| MachineError::new(format!("log entry {}: {e}", at.index)))?;
        let early = mutant!("drain-clock-before-lock").then(|| self.replica.inner.clock.now());
        let applied = {
            let local = &mut *self.replica.lock();
            // Read under the lock: a drain whose clock began before it applied could end before a lease that was
            // acknowledged in between, without word of the drain.
            let now = early.unwrap_or_else(|| self.replica.inner.clock.now());
            let applied = match &entry {
                Some(entry) => local.state.apply(at.index, entry),
                None => {
                    local.state.skip(at.index);
                    Applied { outcome: Ok(vec![Outcome::Done]), events: Vec::new() }
                }
            };
            local.at = Some(at);
            local.note(at, &applied.events, now);
            applied
        };
        self.replica.inner.applied.send_replace(at.index);
        Ok(applied)
    }

    fn snapshot(&self) -> Box<dyn FnOnce() -> Vec<u8> + Send> {
        let state = self.replica.lock().state.clone();
        Box::new(move || encode_state(&state))
    }

    fn restore(&mut self, at: Position, bytes: &[u8]) -> Result<(), MachineError> {
        let state =
            decode_state(bytes).map_err(|e| MachineError::new(format!("the snapshot at {at}: {e}")))?;
        {
            let local = &mut *self.replica.lock();
            local.state = state;
            local.at = Some(at);
            // A leader is never sent a snapshot; a leadership that is still here belongs to a term that is over.
            local.step_down();
            local.recent.start_over(at.index);
        }
        self.replica.inner.applied.send_replace(at.index);
        Ok(())
    }
}

impl Local {
    fn note(&mut self, at: Position, events: &[Event], now: ringfence_core::time::Instant) {
        let led = self.leadership.is_some();
        // An entry of a later term: whatever this node led is over.
        let kept = mutant!("lessor-kept-across-terms");
        self.leadership = self.leadership.take().filter(|led| led.term() >= at.term || kept);
        if let Some(leadership) = &mut self.leadership {
            leadership.observe(events, now, &self.state);
        }
        if led && self.leadership.is_none() {
            self.streams.wake_all();
        }
        for event in events {
            match event {
                Event::Partition { before, after, .. } => {
                    before.iter().chain(after).for_each(|session| self.streams.wake(*session));
                }
                Event::Cleared(session) | Event::Ended { session, .. } | Event::LockOf { session, .. } => {
                    self.streams.wake(*session);
                }
                _ => {}
            }
            if matches!(
                event,
                Event::Partition { .. } | Event::Keyspace(_) | Event::Split(_) | Event::KeyspaceDeleted(..)
            ) {
                self.recent.push(Change { at: at.index, event: event.clone() });
            }
        }
    }

    /// Ends this node's leadership, if it has one; its streams find out at once.
    pub fn step_down(&mut self) {
        if self.leadership.take().is_some() {
            self.streams.wake_all();
        }
    }

    /// The leadership of this very term.
    pub fn leading(&mut self, term: Term) -> Option<&mut Leadership> {
        self.leadership.as_mut().filter(|led| led.term() == term)
    }

    /// The partition's keyspace by name, for messages.
    pub fn name_of(&self, key: PartitionKey) -> Option<&ringfence_core::ids::KeyspaceName> {
        self.state.keyspace(key.keyspace).map(ringfence_core::state::Keyspace::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_core::time::Instant;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A clock that counts who reads it while the replica is not locked.
    #[derive(Default)]
    struct Watching {
        replica: OnceLock<Replica>,
        unlocked: AtomicUsize,
    }

    impl Clock for Watching {
        fn now(&self) -> Instant {
            if self.replica.get().is_some_and(|replica| replica.inner.local.try_lock().is_ok()) {
                self.unlocked.fetch_add(1, Ordering::Relaxed);
            }
            Instant::from_nanos(1)
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    /// Between a reading and the entry a renewal could be answered that does not tell of the drain.
    #[test]
    fn p04_the_clock_of_an_entry_is_read_when_nothing_can_be_answered_before_it_applies() {
        let clock = Arc::new(Watching::default());
        let replica = Replica::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(clock.replica.set(replica.clone()).is_ok());
        let at = Position { term: Term::new(1), index: LogIndex::new(1) };
        replica.machine().apply(at, None).unwrap();
        assert_eq!(clock.unlocked.load(Ordering::Relaxed), 0);
        // The control: a reading without the lock is noticed.
        clock.now();
        assert_eq!(clock.unlocked.load(Ordering::Relaxed), 1);
    }
}
