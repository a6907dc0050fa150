//! A fence in this process, for state that lives in this process: a cache, an index, a file that one process writes.
//!
//! It dies with the process, and so it protects nothing that outlives it. Its rule: the data it guards is changed
//! inside [`MemoryFence::guarded`] or [`ScopeFence::guarded`] and nowhere else.

mod slot;

use crate::high_water::decide_all;
use crate::token::{Subject, in_lock_order};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken, HighWater, same_cluster};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use slot::{Held, Slot};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A fence in this process, shared by its clones.
///
/// What is atomic with what:
///
/// | call | atomic with |
/// |---|---|
/// | [`guarded`](ScopeFence::guarded), [`guarded_all`](MemoryFence::guarded_all) | the write in the closure: no raise of these scopes returns between the check and the end of the closure |
/// | [`raise`](ScopeFence::raise) | itself: when it has returned, every older write has either ended or will be refused |
/// | [`check`](ScopeFence::check) | nothing: its answer may be out of date when it returns |
///
/// It keeps one small entry for each scope that was raised or asked for by [`MemoryFence::scope`], for as long as any
/// clone lives; entries are never dropped, since a forgotten scope would let a replaced owner back in.
#[derive(Clone)]
pub struct MemoryFence {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: ClusterId,
    // Ordered, so that debug output is the same from run to run.
    slots: RwLock<BTreeMap<Scope, Arc<Slot>>>,
}

impl MemoryFence {
    /// An empty fence of this cluster; it refuses the tokens of any other.
    pub fn new(cluster: ClusterId) -> MemoryFence {
        MemoryFence { shared: Arc::new(Shared { cluster, slots: RwLock::default() }) }
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> &ClusterId {
        &self.shared.cluster
    }

    /// The handle of one scope, raised or not: it looks up nothing.
    pub fn scope(&self, scope: &Scope) -> ScopeFence {
        let subject = Subject { cluster: self.cluster().clone(), scope: scope.clone() };
        ScopeFence { subject: Arc::new(subject), slot: self.find_or_make(scope) }
    }

    /// The same handle for the owner of this token, which compares its own token, and clones of it, fastest.
    ///
    /// # Errors
    /// [`FenceError::WrongCluster`].
    pub fn scope_of(&self, token: &FencingToken) -> Result<ScopeFence, FenceError> {
        same_cluster(self.cluster(), token)?;
        Ok(ScopeFence { subject: Arc::clone(token.subject()), slot: self.find_or_make(token.scope()) })
    }

    /// Raises the fence of the token's scope. Waits for a guarded write of that scope that has begun.
    ///
    /// # Errors
    /// As [`Fence::raise`]; the storage errors do not happen.
    pub fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        same_cluster(self.cluster(), token)?;
        if self.find(token.scope()).is_none() {
            // Decide before there is an entry, so that a refused raise leaves none behind.
            HighWater::raise(None, token)?;
        }
        self.scope_of(token)?.raise(token)
    }

    /// Compares a token; see [`ScopeFence::check`] for what that is worth.
    ///
    /// # Errors
    /// As [`ScopeFence::check`].
    pub fn check(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.raised(token)?.check(token)
    }

    /// Checks a token and writes, in one step; see [`ScopeFence::guarded`].
    ///
    /// # Errors
    /// As [`ScopeFence::guarded`]; the write has then not run.
    pub fn guarded<T>(&self, token: &FencingToken, write: impl FnOnce() -> T) -> Result<T, FenceError> {
        self.raised(token)?.guarded(token, write)
    }

    /// Checks the tokens of several scopes and writes, in one step: all are accepted or none is remembered.
    ///
    /// The scopes are locked in their order, so writes over the same scopes cannot wait for each other in a circle.
    ///
    /// # Errors
    /// As [`ScopeFence::guarded`], and [`FenceError::Unstamped`] without any token; the write has then not run.
    pub fn guarded_all<T>(
        &self,
        tokens: &[FencingToken],
        write: impl FnOnce() -> T,
    ) -> Result<T, FenceError> {
        let tokens = in_lock_order(tokens).ok_or(FenceError::Unstamped)?;
        let mut slots: BTreeMap<&Scope, Arc<Slot>> = BTreeMap::new();
        for token in &tokens {
            slots.insert(token.scope(), self.raised(token)?.slot);
        }
        let mut held: BTreeMap<&Scope, Held<'_>> =
            slots.iter().map(|(scope, s)| (*scope, s.hold())).collect();
        let after = decide_all(tokens.iter().copied(), |scope| held.get(scope)?.row(), HighWater::check)?;
        for (scope, row) in after {
            if let Some(held) = held.get_mut(scope) {
                held.remember(row);
            }
        }
        Ok(write())
    }

    /// The highest epoch seen of a scope; `None` when it was never raised.
    pub fn highest(&self, scope: &Scope) -> Option<Epoch> {
        self.find(scope)?.hold().row().map(HighWater::epoch)
    }

    /// The handle of a scope that exists: a refused check must not make one.
    fn raised(&self, token: &FencingToken) -> Result<ScopeFence, FenceError> {
        same_cluster(self.cluster(), token)?;
        match self.find(token.scope()) {
            Some(slot) => Ok(ScopeFence { subject: Arc::clone(token.subject()), slot }),
            None => Err(FenceError::NotRaised { token: token.clone() }),
        }
    }

    fn find(&self, scope: &Scope) -> Option<Arc<Slot>> {
        // A poisoned map is whole: an insertion either happened or did not.
        self.shared.slots.read().unwrap_or_else(PoisonError::into_inner).get(scope).cloned()
    }

    fn find_or_make(&self, scope: &Scope) -> Arc<Slot> {
        self.find(scope).unwrap_or_else(|| {
            let mut slots = self.shared.slots.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(scope.clone()).or_default())
        })
    }
}

impl Fence for MemoryFence {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move { MemoryFence::raise(self, token) })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move { Ok(MemoryFence::highest(self, scope)) })
    }
}

impl Enforces for MemoryFence {}

impl fmt::Debug for MemoryFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes = self.shared.slots.read().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "MemoryFence of {} ({scopes} scopes)", self.cluster())
    }
}

/// The fence of one scope. Made by [`MemoryFence::scope`] or [`MemoryFence::scope_of`]; all handles of a scope share it.
#[derive(Clone)]
pub struct ScopeFence {
    // Taken from the owner's token where there is one, so that comparing the two is comparing two pointers.
    subject: Arc<Subject>,
    slot: Arc<Slot>,
}

impl ScopeFence {
    /// The scope it watches.
    pub fn scope(&self) -> &Scope {
        &self.subject.scope
    }

    /// Compares a token, without a lock when its epoch is the highest seen: a few nanoseconds.
    ///
    /// **Nothing stands between this answer and a raise that comes right after it.** It is for refusing early what would
    /// be refused anyway, and for work that is guarded at its end. A write belongs into [`ScopeFence::guarded`].
    ///
    /// A higher epoch is remembered. At an equal epoch sessions are not compared here; `guarded` and `raise` do.
    ///
    /// # Errors
    /// [`FenceError::Fenced`] below the highest epoch; [`FenceError::NotRaised`], [`FenceError::Implausible`],
    /// [`FenceError::WrongCluster`] and [`FenceError::WrongScope`] as everywhere.
    #[inline]
    pub fn check(&self, token: &FencingToken) -> Result<(), FenceError> {
        if self.slot.is_highest(token.epoch()) && self.is_of(token) {
            return Ok(());
        }
        self.guarded(token, || ())
    }

    /// Checks a token and runs the write, in one step: until the write has returned, no raise of this scope returns.
    ///
    /// The lock is held while `write` runs, so it should be short. It must not wait for another guarded write or raise of
    /// the same scope, which would wait for it. A write that panics leaves the fence as it is: raised, and usable.
    ///
    /// # Errors
    /// As [`HighWater::check`], and [`FenceError::WrongCluster`] or [`FenceError::WrongScope`]; the write has not run.
    pub fn guarded<T>(&self, token: &FencingToken, write: impl FnOnce() -> T) -> Result<T, FenceError> {
        self.admits(token)?;
        let mut held = self.slot.hold();
        let row = HighWater::check(held.row(), token)?;
        held.remember(row);
        Ok(write())
    }

    /// Raises the fence; waits for a guarded write that has begun.
    ///
    /// # Errors
    /// As [`HighWater::raise`], and [`FenceError::WrongCluster`] or [`FenceError::WrongScope`].
    pub fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.admits(token)?;
        let mut held = self.slot.hold();
        let row = HighWater::raise(held.row(), token)?;
        held.remember(row);
        Ok(())
    }

    /// The highest epoch seen; `None` when it was never raised.
    pub fn highest(&self) -> Option<Epoch> {
        self.slot.hold().row().map(HighWater::epoch)
    }

    #[inline]
    fn is_of(&self, token: &FencingToken) -> bool {
        Arc::ptr_eq(&self.subject, token.subject()) || self.subject == *token.subject()
    }

    /// Refuses a token of another cluster or scope.
    fn admits(&self, token: &FencingToken) -> Result<(), FenceError> {
        if self.is_of(token) {
            return Ok(());
        }
        same_cluster(&self.subject.cluster, token)?;
        Err(FenceError::WrongScope { token: token.clone(), fence: self.scope().clone() })
    }
}

impl fmt::Debug for ScopeFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeFence of {}", self.scope())
    }
}

#[cfg(test)]
mod tests;
