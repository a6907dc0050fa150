//! What a fenced handler is handed: the tokens of its request, and the fence they have to pass in one step with its effect.

use crate::{FenceError, FencingToken, MemoryFence};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Stamps;

/// The tokens that a request presented, in the extensions of the request. **They are not accepted yet.** That the layer let
/// the request through says only that they are tokens of this cluster, and that no newer owner was known a moment ago.
///
/// A handler's effect happens through one of these, and each is the check and the effect in one step:
///
/// | | |
/// |---|---|
/// | [`guarded`](Presented::guarded) | behind a [`MemoryFence`]: the effect in a closure |
/// | [`write`](Presented::write) | behind a fence in SQLite: the effect in a transaction |
/// | [`tokens`](Presented::tokens) | the effect in a store whose own adapter checks them with the write |
/// | [`pass_on`](Presented::pass_on) | the effect in the next service, which checks them |
/// | [`without_effect`](Presented::without_effect) | there is none, for this request |
///
/// Behind [`FenceLayer`](super::FenceLayer), a handler that answers "done" and used none of them is answered as a mistake.
///
/// Cloning copies a pointer.
pub struct Presented<F> {
    inner: Arc<Inner<F>>,
}

struct Inner<F> {
    fence: F,
    tokens: Vec<FencingToken>,
    used: AtomicBool,
}

impl<F> Presented<F> {
    pub(super) fn new(fence: F, tokens: Vec<FencingToken>) -> Presented<F> {
        Presented { inner: Arc::new(Inner { fence, tokens, used: AtomicBool::new(false) }) }
    }

    /// The tokens, in the order of their scopes, for a store that checks them in one step with the write. Comparing them here
    /// is check-then-write.
    pub fn tokens(&self) -> &[FencingToken] {
        self.inner.used.store(true, Ordering::Relaxed);
        &self.inner.tokens
    }

    /// The tokens for a request to the next service: they travel to the last writer unchanged.
    pub fn pass_on(&self) -> Stamps {
        Stamps::of(self.tokens().iter().cloned())
    }

    /// Says that this request has no effect: a repetition of what was done, or a request that was found to be foolish and is
    /// answered with success.
    pub fn without_effect(&self) {
        self.inner.used.store(true, Ordering::Relaxed);
    }

    /// The fence.
    pub fn fence(&self) -> &F {
        &self.inner.fence
    }

    /// Whether the handler went through the fence; undecided while it, or a stream that it answers with, may still do so.
    pub(super) fn was_left_unused(&self) -> bool {
        !self.inner.used.load(Ordering::Relaxed) && Arc::strong_count(&self.inner) == 1
    }
}

impl Presented<MemoryFence> {
    /// Checks all tokens and runs the effect, in one step: see [`MemoryFence::guarded_all`]. It holds the scopes' locks, so it
    /// is short and waits for nothing; work that takes an `await` belongs before it, or behind a
    /// [`HoldLayer`](super::HoldLayer).
    ///
    /// # Errors
    /// As [`MemoryFence::guarded_all`]; the effect has not run. Answer it with [`Refusal`](super::Refusal).
    pub fn guarded<T>(&self, effect: impl FnOnce() -> T) -> Result<T, FenceError> {
        self.inner.fence.guarded_all(self.tokens(), effect)
    }
}

#[cfg(feature = "rusqlite")]
impl Presented<crate::sqlite::SqliteRaiser> {
    /// Checks all tokens and writes, in one transaction of this connection: see
    /// [`SqliteFence::write`](crate::sqlite::SqliteFence::write). It waits for the disk, so it is called where that is fine
    /// (`tokio::task::spawn_blocking`).
    ///
    /// # Errors
    /// As [`SqliteFence::write`](crate::sqlite::SqliteFence::write).
    pub fn write<T, E: From<FenceError>>(
        &self,
        conn: &mut rusqlite::Connection,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.inner.fence.fence().write(conn, self.tokens(), work)
    }
}

impl<F> Clone for Presented<F> {
    fn clone(&self) -> Presented<F> {
        Presented { inner: Arc::clone(&self.inner) }
    }
}

/// The tokens; looking at them here is no use of them.
impl<F> fmt::Debug for Presented<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presented").field(&self.inner.tokens).finish()
    }
}
