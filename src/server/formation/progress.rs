//! What a node waits for while its cluster forms, in words for an operator.

use ringfence_core::ids::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a node waits for. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    inner: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    /// What the node itself is about.
    step: String,
    /// What stands between it and other nodes.
    peers: BTreeMap<NodeId, String>,
}

impl Progress {
    /// The node is about this. Empty: it waits for nothing.
    pub(crate) fn step(&self, step: impl Into<String>) {
        self.with(|waiting| waiting.step = step.into());
    }

    /// This stands between the node and a peer; `None`: nothing does. Returns true when that is news.
    pub(crate) fn peer(&self, node: NodeId, problem: Option<String>) -> bool {
        self.with(|waiting| match problem {
            Some(problem) => waiting.peers.insert(node, problem.clone()).as_ref() != Some(&problem),
            None => waiting.peers.remove(&node).is_some(),
        })
    }

    /// The node waits for nothing any more.
    pub(crate) fn done(&self) {
        self.with(|waiting| *waiting = Waiting::default());
    }

    /// In words; empty when the node waits for nothing.
    pub(crate) fn text(&self) -> String {
        self.with(|waiting| {
            let peers: Vec<&str> = waiting.peers.values().map(String::as_str).collect();
            match (waiting.step.is_empty(), peers.is_empty()) {
                (true, true) => String::new(),
                (false, true) => waiting.step.clone(),
                (true, false) => peers.join("; "),
                (false, false) => format!("{}: {}", waiting.step, peers.join("; ")),
            }
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Waiting) -> T) -> T {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
