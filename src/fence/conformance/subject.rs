//! What the suite needs of a storage.

use crate::{FenceError, FencingToken};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::collections::BTreeMap;

/// A kind of storage under test.
pub trait Subject {
    /// One store of that kind.
    type Store: Store;

    /// Makes an empty store whose fence is bound to this cluster. It is asked for once a rule.
    ///
    /// # Errors
    /// Whatever keeps it from being made; the rule then counts as broken.
    fn fresh(&self, cluster: &ClusterId) -> Result<Self::Store, FenceError>;

    /// Whether the fence keeps the session of a token and refuses another one under the same epoch.
    fn keeps_sessions(&self) -> bool {
        false
    }
}

/// One store: its data, a map from text to text, and its fence.
pub trait Store {
    /// One client's access to it.
    type Handle: Handle;

    /// Opens another handle. Handles are independent, as those of two processes are.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    fn open(&self) -> Result<Self::Handle, FenceError>;

    /// Crashes the store as hard as the test can, losing everything that need not survive, and starts it again.
    ///
    /// All handles were dropped before.
    ///
    /// # Errors
    /// Whatever keeps it from starting again.
    fn crash(&mut self) -> Result<Crash, FenceError>;

    /// Deletes all the data, as a program that tidies up does, and runs whatever housekeeping the storage has: expiry,
    /// retention, compaction, vacuum. Handles may be open.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        Ok(CleanUp::NotTried)
    }
}

/// What became of [`Store::clean_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanUp {
    /// The data is gone.
    Done,
    /// The subject does not say how to clean up.
    NotTried,
}

/// What a crash has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The store is back.
    Restarted,
    /// Data and fence are gone together, so there is nothing left to protect.
    LosesEverything,
}

/// One client's access to a store. It is moved to a thread of its own where a rule needs two.
pub trait Handle: Send + 'static {
    /// Raises the fence to this token.
    ///
    /// # Errors
    /// The fence's refusal. [`FenceError::Busy`] is tried again, for ten seconds.
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError>;

    /// Writes all pairs under all tokens, in one step, replacing what the keys held. It may be called without tokens.
    ///
    /// `paused` stands for a process that stops for a while. Call it after each fence has answered, and before the data
    /// is written, as late as the adapter can; with a check and a write that are one statement, just before it. It
    /// must be called in every write that is accepted.
    ///
    /// # Errors
    /// The fence's refusal; nothing is written then. [`FenceError::Busy`] is tried again, for ten seconds.
    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError>;

    /// All the data.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError>;

    /// The highest epoch the fence has seen of a scope.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError>;
}
