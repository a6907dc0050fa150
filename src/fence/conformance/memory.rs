//! [`MemoryFence`] as a subject; the shortest example of one.

use super::{CleanUp, Crash, Handle, Store, Subject};
use crate::{FenceError, FencingToken, MemoryFence};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A map in memory behind a [`MemoryFence`].
#[derive(Clone, Copy, Debug)]
pub struct MemorySubject;

impl Subject for MemorySubject {
    type Store = MemoryStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<MemoryStore, FenceError> {
        Ok(MemoryStore { fence: MemoryFence::new(cluster.clone()), data: Arc::default() })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

/// The store, and a handle to it.
#[derive(Clone)]
pub struct MemoryStore {
    fence: MemoryFence,
    data: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Store for MemoryStore {
    type Handle = MemoryStore;

    fn open(&self) -> Result<MemoryStore, FenceError> {
        Ok(self.clone())
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        Ok(Crash::LosesEverything)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(CleanUp::Done)
    }
}

impl Handle for MemoryStore {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.raise(token)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        self.fence.guarded_all(tokens, || {
            paused();
            let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
            data.extend(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())));
        })
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(self.data.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        Ok(self.fence.highest(scope))
    }
}
