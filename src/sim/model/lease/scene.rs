//! One state of a world: the log, who leads, who holds, and what is on its way.

use super::clock::Clocks;
use super::leader::Leader;
use super::log::{Log, Proposal};
use super::worker::Worker;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A state.
#[derive(Clone, Debug)]
pub struct Scene {
    /// How often the clocks have ticked.
    pub tick: u32,
    /// What they show.
    pub clocks: Clocks,
    /// The newest term that was voted for.
    pub term: u64,
    /// The log.
    pub log: Log,
    /// What was proposed and is not committed, by term and in order.
    pub pending: Vec<Arc<Proposal>>,
    /// Those who may believe that they lead, by term.
    pub leaders: Vec<Leader>,
    /// The workers that are not taken for granted.
    pub workers: Vec<Worker>,
    /// How many drains operators ask for yet.
    pub drains: u8,
    /// How many processes under the first worker's name start yet.
    pub joins: u8,
    /// For how many ticks the dead worker has kept its partition; counted in worlds of progress only.
    pub kept: u8,
}

impl Scene {
    /// The leader of a term, when it may still believe.
    pub fn leader(&self, term: u64) -> Option<&Leader> {
        self.leaders.iter().find(|leader| leader.term == term)
    }

    pub(super) fn leader_mut(&mut self, term: u64) -> Option<&mut Leader> {
        self.leaders.iter_mut().find(|leader| leader.term == term)
    }

    /// How many entries there are or may come to be.
    pub fn entries(&self) -> usize {
        self.log.len() + self.pending.len()
    }
}

impl Hash for Scene {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Scene { term, log, pending, leaders, workers, drains, joins, kept, tick: _, clocks: _ } = self;
        (term, log, pending, drains, joins, kept).hash(hasher);
        leaders.iter().for_each(|leader| leader.hash_in(self, hasher));
        workers.iter().for_each(|worker| worker.hash_in(self, hasher));
    }
}

/// As the checker tells states apart.
impl PartialEq for Scene {
    fn eq(&self, other: &Scene) -> bool {
        let print = |scene: &Scene| {
            let mut hasher = DefaultHasher::new();
            scene.hash(&mut hasher);
            hasher.finish()
        };
        print(self) == print(other)
    }
}
