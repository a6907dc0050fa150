//! The store: maps in memory, a lock for each scope, and the places where a flaw leaves something out.

use super::{Flaw, rules};
use crate::conformance::{CleanUp, Crash, Handle, Store};
use crate::{FenceError, Fenced, FencingToken, HighWater, same_cluster};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// After how long a writer that waits finds that it is a deadlock, as a database does.
const DEADLOCK: Duration = Duration::from_secs(1);

/// How many refusals in a row [`Flaw::GivesUp`] bears.
const PATIENCE: u32 = 5;

/// How long [`Flaw::RaiseInThreeSteps`] thinks about what it has read.
const THOUGHT: Duration = Duration::from_millis(1);

/// A store of a [`Broken`](super::Broken) kind.
pub struct BrokenStore(Arc<Shared>);

/// A handle to it.
pub struct BrokenHandle {
    shared: Arc<Shared>,
    /// For [`Flaw::CachedInHandle`].
    cache: BTreeMap<String, HighWater>,
}

struct Shared {
    flaw: Option<Flaw>,
    locks: Mutex<BTreeMap<Scope, Arc<Mutex<()>>>>,
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    /// `None` after a crash that has forgotten it.
    cluster: Option<ClusterId>,
    rows: BTreeMap<String, String>,
    row_epochs: BTreeMap<String, Epoch>,
    fence: BTreeMap<String, HighWater>,
    refused_in_a_row: u32,
}

impl BrokenStore {
    pub(super) fn new(flaw: Option<Flaw>, cluster: &ClusterId) -> BrokenStore {
        let state = State {
            cluster: Some(cluster.clone()),
            rows: BTreeMap::new(),
            row_epochs: BTreeMap::new(),
            fence: BTreeMap::new(),
            refused_in_a_row: 0,
        };
        BrokenStore(Arc::new(Shared { flaw, locks: Mutex::default(), state: Mutex::new(state) }))
    }
}

impl Store for BrokenStore {
    type Handle = BrokenHandle;

    fn open(&self) -> Result<BrokenHandle, FenceError> {
        Ok(BrokenHandle { shared: Arc::clone(&self.0), cache: BTreeMap::new() })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        let mut state = self.0.state();
        state.refused_in_a_row = 0;
        if self.0.has(Flaw::ForgetsAtCrash) {
            state.fence.clear();
        }
        if self.0.has(Flaw::ForgetsClusterAtCrash) {
            state.cluster = None;
        }
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let mut state = self.0.state();
        state.rows.clear();
        if self.0.has(Flaw::DeletedOnCleanUp) {
            state.fence.clear();
        }
        Ok(CleanUp::Done)
    }
}

impl Shared {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, scope: &Scope) -> Arc<Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(scope.clone()).or_default())
    }

    /// The locks that a write takes, in their order, each once.
    fn locks_of(&self, tokens: &[FencingToken]) -> Vec<Arc<Mutex<()>>> {
        let newer = |token: &FencingToken| {
            self.state().fence.get(&self.key(token.scope())).is_some_and(|row| row.epoch() < token.epoch())
        };
        if self.has(Flaw::UnlockedExists) || (self.has(Flaw::NewerWriteUnlocked) && tokens.iter().any(newer))
        {
            return Vec::new();
        }
        let mut scopes: Vec<&Scope> = tokens.iter().map(FencingToken::scope).collect();
        if self.has(Flaw::LocksFirstScope) {
            scopes.truncate(1);
        }
        if !self.has(Flaw::LocksAsNamed) {
            scopes.sort();
        }
        let mut taken = BTreeSet::new();
        scopes.into_iter().filter(|scope| taken.insert(*scope)).map(|scope| self.lock_of(scope)).collect()
    }

    /// The key of a scope's fence.
    fn key(&self, scope: &Scope) -> String {
        match scope {
            Scope::Partition(keyspace, _) if self.has(Flaw::KeyspaceWide) => keyspace.to_string(),
            _ => scope.to_string(),
        }
    }

    fn of_this_cluster(&self, state: &mut State, token: &FencingToken) -> Result<(), FenceError> {
        if self.has(Flaw::AnyCluster) {
            return Ok(());
        }
        same_cluster(state.cluster.get_or_insert_with(|| token.cluster().clone()), token)
    }
}

impl State {
    /// Only forward, because another may have come in between.
    fn remember(&mut self, flaw: Option<Flaw>, key: String, row: HighWater) {
        let ahead = self.fence.get(&key).is_some_and(|seen| seen.epoch() > row.epoch());
        if !ahead || !matches!(flaw, Some(Flaw::CheckThenWrite | Flaw::UnlockedExists)) {
            self.fence.insert(key, row);
        }
    }

    fn apply(&mut self, tokens: &[FencingToken], pairs: &[(&str, &str)]) {
        for (key, value) in pairs {
            self.rows.insert((*key).to_string(), (*value).to_string());
            for token in tokens {
                self.row_epochs.insert((*key).to_string(), token.epoch());
            }
        }
    }

    /// What [`Flaw::PerRow`] has instead of a fence.
    fn check_rows(&self, tokens: &[FencingToken], pairs: &[(&str, &str)]) -> Result<(), FenceError> {
        for token in tokens {
            for (key, _) in pairs {
                if let Some(seen) = self.row_epochs.get(*key).filter(|seen| **seen > token.epoch()) {
                    return Err(Fenced::new(token.clone(), *seen).into());
                }
            }
        }
        Ok(())
    }
}

impl BrokenHandle {
    fn has(&self, flaw: Flaw) -> bool {
        self.shared.has(flaw)
    }

    /// Decides on all tokens; answers what is to be remembered.
    fn check(
        &mut self,
        state: &mut State,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
    ) -> Result<BTreeMap<String, HighWater>, FenceError> {
        let shared = Arc::clone(&self.shared);
        if self.has(Flaw::PerRow) {
            state.check_rows(tokens, pairs)?;
        }
        let mut after: BTreeMap<String, HighWater> = BTreeMap::new();
        let mut in_order: Vec<&FencingToken> = tokens.iter().collect();
        if !self.has(Flaw::LastTokenCounts) {
            // The newest of a scope first, so that it makes the older one refused.
            in_order.sort_by_key(|token| std::cmp::Reverse(token.epoch()));
        }
        for token in in_order {
            shared.of_this_cluster(state, token)?;
            let key = shared.key(token.scope());
            let mut row = state.fence.get(&key).copied();
            if self.has(Flaw::CachedInHandle) {
                row = self.cache.get(&key).copied().or(row);
            }
            if !self.has(Flaw::LastTokenCounts) {
                row = after.get(&key).copied().or(row);
            }
            let row = rules::check(shared.flaw, row, token)?;
            self.cache.insert(key.clone(), row);
            after.insert(key, row);
        }
        Ok(after)
    }

    /// Opens after too many refusals.
    fn breaks_the_circuit(&self, state: &mut State, refused: bool) -> bool {
        state.refused_in_a_row = if refused { state.refused_in_a_row + 1 } else { 0 };
        self.has(Flaw::GivesUp) && state.refused_in_a_row > PATIENCE
    }

    /// [`Flaw::AppliedInPart`]: one after the other, until one is refused.
    fn write_in_part(&mut self, tokens: &[FencingToken], pairs: &[(&str, &str)]) -> Result<(), FenceError> {
        let shared = Arc::clone(&self.shared);
        for (token, pair) in tokens.iter().zip(pairs.iter().cycle()) {
            let (token, mut state) = (std::slice::from_ref(token), shared.state());
            for (key, row) in self.check(&mut state, token, &[*pair])? {
                state.remember(shared.flaw, key, row);
            }
            state.apply(token, &[*pair]);
        }
        Ok(())
    }
}

/// As a database does: waits a while, then finds that it is a deadlock.
fn lock_or_deadlock(lock: &Mutex<()>) -> Result<MutexGuard<'_, ()>, FenceError> {
    let start = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() < DEADLOCK => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(FenceError::store("locking", std::io::Error::other("deadlock detected")));
            }
        }
    }
}

impl Handle for BrokenHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let shared = Arc::clone(&self.shared);
        let key = shared.key(token.scope());
        shared.of_this_cluster(&mut shared.state(), token)?;
        let read = || shared.state().fence.get(&key).copied();
        let mut row = None;
        if self.has(Flaw::RaiseInThreeSteps) {
            row = Some(rules::raise(shared.flaw, read(), token)?);
            thread::sleep(THOUGHT);
        }
        let lock = shared.lock_of(token.scope());
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = shared.state();
        let row = match row {
            Some(row) => row,
            None => rules::raise(shared.flaw, state.fence.get(&key).copied(), token)?,
        };
        self.cache.insert(key.clone(), row);
        state.fence.insert(key, row);
        Ok(())
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let shared = Arc::clone(&self.shared);
        if tokens.is_empty() && !self.has(Flaw::UnstampedPasses) {
            return Err(FenceError::Unstamped);
        }
        let locks = shared.locks_of(tokens);
        let mut held = Vec::new();
        for lock in &locks {
            held.push(lock_or_deadlock(lock)?);
            if self.has(Flaw::LocksAsNamed) && held.len() < locks.len() {
                paused();
            }
        }
        if self.has(Flaw::WritesFirst) {
            shared.state().apply(tokens, pairs);
        }
        if self.has(Flaw::AppliedInPart) {
            paused();
            return self.write_in_part(tokens, pairs);
        }
        let checked = {
            // A snapshot of its own is all that some look at.
            let mut state = shared.state();
            let mut seen = state.clone();
            let checked = self.check(&mut seen, tokens, pairs);
            state.cluster = seen.cluster;
            if self.breaks_the_circuit(&mut state, checked.is_err()) { Ok(BTreeMap::new()) } else { checked }
        }?;
        if self.has(Flaw::CheckThenWrite) {
            held.clear();
        }
        paused();
        let mut state = shared.state();
        for (key, row) in checked {
            state.remember(shared.flaw, key, row);
        }
        state.apply(tokens, pairs);
        Ok(())
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(self.shared.state().rows.clone())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        let key = self.shared.key(scope);
        Ok(self.shared.state().fence.get(&key).map(|row| row.epoch()))
    }
}
