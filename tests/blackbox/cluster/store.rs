//! What owners write to. With a fence it is storage as it should be; without one it believes whoever comes: the
//! negative control.

use ringfence::FencingToken;
use ringfence::fence::{DeclaredFence, FenceError, MemoryFence};
use ringfence::ids::{ClusterId, Scope};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A list of writes, shared by its clones.
#[derive(Clone)]
pub(crate) struct Store {
    fence: Option<MemoryFence>,
    writes: Arc<Mutex<Vec<Write>>>,
}

/// One write that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) scope: Scope,
    pub(crate) epoch: u64,
    pub(crate) what: String,
}

impl Store {
    /// Checks the token of every write.
    pub(crate) fn fenced(cluster: ClusterId) -> Store {
        Store { fence: Some(MemoryFence::new(cluster)), writes: Arc::default() }
    }

    /// Checks nothing.
    pub(crate) fn trusting() -> Store {
        Store { fence: None, writes: Arc::default() }
    }

    /// Both, for a test and its control.
    pub(crate) fn with_and_without_fence(cluster: &ClusterId) -> [Store; 2] {
        [Store::fenced(cluster.clone()), Store::trusting()]
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// The fence, for a worker to declare.
    pub(crate) fn declared(&self) -> Vec<DeclaredFence> {
        self.fence.iter().map(|fence| DeclaredFence::enforced("store", fence.clone())).collect()
    }

    pub(crate) fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.raise(token))
    }

    pub(crate) fn write(&self, stamp: &FencingToken, what: &str) -> Result<(), FenceError> {
        let write = || {
            let write =
                Write { scope: stamp.scope().clone(), epoch: stamp.epoch().get(), what: what.to_owned() };
            self.writes.lock().unwrap().push(write);
        };
        match &self.fence {
            Some(fence) => fence.guarded(stamp, write),
            None => {
                write();
                Ok(())
            }
        }
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }

    /// A write that took effect after one of a newer owner of the same partition: what must not be.
    pub(crate) fn stale_write(&self) -> Option<Write> {
        let mut newest: BTreeMap<Scope, u64> = BTreeMap::new();
        self.writes().into_iter().find(|write| {
            let newest = newest.entry(write.scope.clone()).or_insert(write.epoch);
            *newest = (*newest).max(write.epoch);
            *newest > write.epoch
        })
    }
}
