//! One who leads in a term, or believes so: the shipped leadership, and the renewals that wait for it.

use super::clock::Relative;
use super::scene::Scene;
use ringfence_core::ids::SessionId;
use ringfence_core::lead::Leadership;
use ringfence_core::time::Instant;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The leader of one term. It stays one until it learns better.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Its term.
    pub term: u64,
    /// How many entries it has applied.
    pub applied: usize,
    /// What it decides by, from its own term's first entry on.
    pub led: Option<Arc<Leadership>>,
    /// The renewal of each worker that has arrived and is not answered.
    pub inbox: Vec<Option<Renewal>>,
    /// Whose renewal it has acknowledged.
    pub acknowledged: Vec<bool>,
    /// For how many ticks it has led; counted in worlds of progress only.
    pub age: u8,
}

/// A renewal that waits for its answer.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Renewal {
    /// Whose.
    pub session: SessionId,
    /// Its number on its connection.
    pub number: u64,
    /// When it arrived, by the leader's clock.
    pub arrival: Instant,
    /// A round that began later has succeeded.
    pub confirmed: bool,
}

impl Leader {
    /// A node that was voted for. It has applied what is committed, and its own first entry is on its way.
    pub fn new(term: u64, applied: usize, workers: usize) -> Leader {
        let (inbox, acknowledged) = (vec![None; workers], vec![false; workers]);
        Leader { term, applied, led: None, inbox, acknowledged, age: 0 }
    }

    /// Has a round succeeded for a renewal that it has not answered?
    pub fn has_something_to_say(&self) -> bool {
        self.inbox.iter().flatten().any(|renewal| renewal.confirmed)
    }

    pub(super) fn hash_in<H: Hasher>(&self, scene: &Scene, hasher: &mut H) {
        let Leader { term, applied, led, inbox, acknowledged, age } = self;
        (term, applied, acknowledged, age).hash(hasher);
        let now = scene.clocks.leader(*term, scene.tick);
        (led, inbox).hash(&mut Relative::new(hasher, now, scene.clocks.longest));
    }
}
