//! A store in memory that can be made with one flaw, each known from a real system.

use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Store, Subject};
use ringfence_fence::{FenceError, Fenced, FencingToken, HighWater, same_cluster};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// What is wrong with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It accepts everything.
    NoFence,
    /// It compares with `==`.
    Equality,
    /// It compares with `<`.
    Strict,
    /// Its refusal does not say which epoch won.
    TellsOneNumber,
    /// It keeps the epoch in each row instead of in one row of the scope.
    PerRow,
    /// It lets go of the lock between the check and the write.
    CheckApart,
    /// It takes a raise for a formality.
    RaiseDoesNothing,
    /// It accepts whatever comes first.
    AcceptsWithoutRow,
    /// It believes every epoch.
    AnyJump,
    /// It keeps epochs as 32-bit floats.
    SinglePrecision,
    /// It keeps one fence a keyspace.
    KeyspaceWide,
    /// It says that it keeps sessions, and compares none.
    IgnoresSession,
    /// It does not look at the cluster.
    AnyCluster,
    /// It writes, then checks, then has nothing to take back with.
    WritesFirst,
    /// It takes a missing token for an old client's.
    UnstampedPasses,
    /// It applies a batch scope by scope.
    AppliesInPart,
    /// It moves the fence of the first scope of a batch only.
    RemembersOne,
    /// It locks the scopes in the order they are named in.
    LocksAsNamed,
    /// It keeps the data on disk and the fence in memory.
    ForgetsAtCrash,
}

/// The subject: sound without a flaw.
pub(crate) struct Flawed(pub(crate) Option<Flaw>);

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        Ok(FlawedStore(Arc::new(Shared {
            flaw: self.0,
            cluster: cluster.clone(),
            gate: Mutex::default(),
            scope_locks: Mutex::default(),
            state: Mutex::default(),
        })))
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

#[derive(Clone)]
pub(crate) struct FlawedStore(Arc<Shared>);

struct Shared {
    flaw: Option<Flaw>,
    cluster: ClusterId,
    /// Held from the check to the end of the write.
    gate: Mutex<()>,
    scope_locks: Mutex<BTreeMap<Scope, Arc<Mutex<()>>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<String, String>,
    row_epochs: BTreeMap<String, Epoch>,
    fence: BTreeMap<String, HighWater>,
}

impl Store for FlawedStore {
    type Handle = FlawedStore;

    fn open(&self) -> Result<FlawedStore, FenceError> {
        Ok(self.clone())
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        if self.has(Flaw::ForgetsAtCrash) {
            self.state().fence.clear();
        }
        Ok(Crash::Restarted)
    }
}

impl FlawedStore {
    fn has(&self, flaw: Flaw) -> bool {
        self.0.flaw == Some(flaw)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn key(&self, scope: &Scope) -> String {
        match scope {
            Scope::Partition(keyspace, _) if self.has(Flaw::KeyspaceWide) => keyspace.to_string(),
            _ => scope.to_string(),
        }
    }

    /// The rule, bent where the flaw bends it.
    fn decide(&self, token: &FencingToken, raising: bool) -> Result<HighWater, FenceError> {
        if !self.has(Flaw::AnyCluster) {
            same_cluster(&self.0.cluster, token)?;
        }
        let row = self.state().fence.get(&self.key(token.scope())).copied();
        let taken = HighWater::new(token.epoch(), token.session());
        let sound = if raising { HighWater::raise(row, token) } else { HighWater::check(row, token) };
        let (Some(flaw), Some(seen)) = (self.0.flaw, row) else {
            return match (self.0.flaw, sound) {
                (Some(Flaw::NoFence), _) => Ok(taken),
                (Some(Flaw::AcceptsWithoutRow), Err(FenceError::NotRaised { .. })) => Ok(taken),
                (_, sound) => sound,
            };
        };
        let fenced = || Err(Fenced::new(token.clone(), seen.epoch()).into());
        match flaw {
            Flaw::NoFence | Flaw::PerRow => Ok(taken),
            Flaw::Equality if raising || token.epoch() == seen.epoch() => Ok(taken),
            Flaw::Equality => fenced(),
            Flaw::Strict if !raising && token.epoch() == seen.epoch() => fenced(),
            Flaw::RaiseDoesNothing if raising => sound.map(|_| seen),
            Flaw::AnyJump => HighWater::force_raise(row, token),
            Flaw::SinglePrecision if token.epoch().get() as f32 >= seen.epoch().get() as f32 => Ok(taken),
            Flaw::IgnoresSession if token.epoch() == seen.epoch() => Ok(seen),
            Flaw::TellsOneNumber => sound.map_err(|error| match error {
                FenceError::Fenced(f) => Fenced::new(token.clone(), f.own()).into(),
                other => other,
            }),
            _ => sound,
        }
    }

    fn decide_rows(&self, tokens: &[FencingToken], pairs: &[(&str, &str)]) -> Result<(), FenceError> {
        let state = self.state();
        for token in tokens {
            for (key, _) in pairs {
                if let Some(seen) = state.row_epochs.get(*key).filter(|seen| **seen > token.epoch()) {
                    return Err(Fenced::new(token.clone(), *seen).into());
                }
            }
        }
        Ok(())
    }

    fn remember(&self, token: &FencingToken, row: HighWater) {
        self.state().fence.insert(self.key(token.scope()), row);
    }

    fn apply(&self, tokens: &[FencingToken], pairs: &[(&str, &str)]) {
        let mut state = self.state();
        for (key, value) in pairs {
            state.rows.insert(key.to_string(), value.to_string());
            for token in tokens {
                state.row_epochs.insert(key.to_string(), token.epoch());
            }
        }
    }

    fn scope_lock(&self, scope: &Scope) -> Arc<Mutex<()>> {
        Arc::clone(self.0.scope_locks.lock().unwrap().entry(scope.clone()).or_default())
    }
}

/// As a database does: waits a while, then finds that it is a deadlock.
fn lock_or_deadlock(lock: &Mutex<()>) -> Result<MutexGuard<'_, ()>, FenceError> {
    let start = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::WouldBlock) if start.elapsed() < Duration::from_secs(1) => thread::yield_now(),
            Err(_) => return Err(FenceError::store("locking", std::io::Error::other("deadlock detected"))),
        }
    }
}

impl Handle for FlawedStore {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        let _gate = self.0.gate.lock().unwrap();
        let row = self.decide(token, true)?;
        self.remember(token, row);
        Ok(())
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        if tokens.is_empty() && !self.has(Flaw::UnstampedPasses) {
            return Err(FenceError::Unstamped);
        }
        let locks: Vec<_> = tokens.iter().map(|token| self.scope_lock(token.scope())).collect();
        let mut held = Vec::new();
        let gate = if self.has(Flaw::LocksAsNamed) {
            for lock in &locks {
                held.push(lock_or_deadlock(lock)?);
                paused();
            }
            None
        } else {
            Some(self.0.gate.lock().unwrap())
        };
        if self.has(Flaw::WritesFirst) {
            self.apply(tokens, pairs);
        }
        if self.has(Flaw::PerRow) {
            self.decide_rows(tokens, pairs)?;
        }
        let mut rows = Vec::new();
        for (token, pair) in tokens.iter().zip(pairs.iter().cycle()) {
            let row = self.decide(token, false)?;
            if self.has(Flaw::AppliesInPart) {
                self.remember(token, row);
                self.apply(std::slice::from_ref(token), &[*pair]);
            }
            rows.push((token, row));
        }
        let _gate = gate.filter(|_| !self.has(Flaw::CheckApart));
        let moved = if self.has(Flaw::RemembersOne) { 1 } else { rows.len() };
        for (token, row) in rows.into_iter().take(moved) {
            self.remember(token, row);
        }
        paused();
        self.apply(tokens, pairs);
        Ok(())
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(self.state().rows.clone())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        Ok(self.state().fence.get(&self.key(scope)).map(|row| row.epoch()))
    }
}
