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
    /// What stands between it and the nodes it asks.
    peers: BTreeMap<NodeId, String>,
    /// What stands between it and the nodes that asked it.
    callers: BTreeMap<NodeId, String>,
}

impl Progress {
    /// The node is about this. Empty: it waits for nothing.
    pub(crate) fn step(&self, step: impl Into<String>) {
        self.with(|waiting| waiting.step = step.into());
    }

    /// This stands between the node and one that it asks; `None`: nothing does. Returns true when that is news.
    pub(crate) fn peer(&self, node: NodeId, problem: Option<String>) -> bool {
        self.with(|waiting| note(&mut waiting.peers, node, problem))
    }

    /// This stands between the node and one that asked it; `None`: nothing does. Returns true when that is news.
    pub(crate) fn caller(&self, node: NodeId, problem: Option<String>) -> bool {
        self.with(|waiting| note(&mut waiting.callers, node, problem))
    }

    /// The node waits for nothing any more.
    pub(crate) fn done(&self) {
        self.with(|waiting| *waiting = Waiting::default());
    }

    /// In words; empty when the node waits for nothing.
    pub(crate) fn text(&self) -> String {
        self.with(|waiting| {
            // Of one node once: what this node found itself says more.
            let callers = waiting.callers.iter().filter(|(node, _)| !waiting.peers.contains_key(node));
            let problems = waiting.peers.values().chain(callers.map(|(_, problem)| problem));
            let problems: Vec<&str> = problems.map(String::as_str).collect();
            match (waiting.step.is_empty(), problems.is_empty()) {
                (true, true) => String::new(),
                (false, true) => waiting.step.clone(),
                (true, false) => problems.join("; "),
                (false, false) => format!("{}: {}", waiting.step, problems.join("; ")),
            }
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Waiting) -> T) -> T {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn note(problems: &mut BTreeMap<NodeId, String>, node: NodeId, problem: Option<String>) -> bool {
    match problem {
        Some(problem) => problems.insert(node, problem.clone()).as_ref() != Some(&problem),
        None => problems.remove(&node).is_some(),
    }
}
