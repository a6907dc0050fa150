//! Fuzzing: everything that reads what comes from outside is given inputs that nobody should send.
//!
//! Inputs are mutations of those in `tests/corpus`, drawn from a seed, so a run can be had again. There is no coverage to
//! steer by on a stable compiler; instead an input that is refused in words never seen before, or read where it was
//! refused before, becomes one to mutate further.
//!
//! | module | what it is |
//! |---|---|
//! | `targets` | what is fuzzed, and what must hold there |
//! | `judge` | what must hold everywhere |
//! | `meter` | memory and steps |
//! | `mutate` | inputs made from others |
//! | `corpus` | the inputs that are kept |

mod corpus;
mod judge;
mod meter;
mod mutate;
mod scratch;
#[cfg(test)]
mod seeds;
mod targets;
#[cfg(test)]
mod tests;

pub use corpus::{Kept, keep, read};
pub use judge::{Verdict, judge};
pub use targets::{Form, Target, all};

use fastrand::Rng;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many inputs found on the way are mutated further.
const MAX_FOUND: usize = 1_024;

/// How often a failing input is tried smaller.
const MAX_TRIES: usize = 4_000;

/// One target under fire. The same seed and corpus give the same inputs.
pub struct Fire<'a> {
    target: &'a Target,
    pool: Vec<Vec<u8>>,
    kept: usize,
    outcomes: HashSet<u64>,
    rng: Rng,
    /// How many inputs were judged.
    pub inputs: u64,
    /// How many of them were read.
    pub read: u64,
}

/// An input that something does not hold for.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input, as small as it could be made.
    pub input: Vec<u8>,
    /// What does not hold.
    pub why: String,
}

impl<'a> Fire<'a> {
    /// Begins with these inputs.
    pub fn new(target: &'a Target, corpus: Vec<Vec<u8>>, seed: u64) -> Fire<'a> {
        // Each target has numbers of its own, so that leaving one out does not change the others'.
        let mut hasher = DefaultHasher::new();
        target.name.hash(&mut hasher);
        let rng = Rng::with_seed(seed ^ hasher.finish());
        let pool = if corpus.is_empty() { vec![Vec::new()] } else { corpus };
        Fire { target, kept: pool.len(), pool, outcomes: HashSet::new(), rng, inputs: 0, read: 0 }
    }

    /// Judges one input that is new, and makes it smaller if it fails.
    pub fn shoot(&mut self) -> Option<Failure> {
        let input = self.draw();
        self.inputs += 1;
        let verdict = judge(self.target, &input);
        match &verdict {
            Verdict::Failed(why) => {
                let input = minimized(self.target, input, why);
                let Verdict::Failed(why) = judge(self.target, &input) else { return None };
                return Some(Failure { input, why });
            }
            Verdict::Read => self.read += 1,
            Verdict::Refused(_) => {}
        }
        if self.outcomes.insert(outcome(&verdict, input.len())) && self.pool.len() < self.kept + MAX_FOUND {
            self.pool.push(input);
        }
        None
    }

    /// The inputs that had an outcome of their own.
    pub fn found(&self) -> &[Vec<u8>] {
        &self.pool[self.kept..]
    }

    fn draw(&mut self) -> Vec<u8> {
        // Those that were kept are nearly right, and those that were found are mostly refused: half of each.
        let from = if self.rng.bool() { self.kept } else { self.pool.len() };
        let at = self.rng.usize(..from);
        let donor = self.rng.usize(..self.pool.len());
        mutate::mutate(self.target.form, &self.pool[at], &self.pool[donor], &mut self.rng)
    }
}

/// What happened, without the numbers and names in it.
fn outcome(verdict: &Verdict, length: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    match verdict {
        // An input that was read and is twice as long has more in it.
        Verdict::Read => ("read", length.checked_ilog2()).hash(&mut hasher),
        Verdict::Refused(why) => shape(why).hash(&mut hasher),
        Verdict::Failed(why) => ("failed", shape(why)).hash(&mut hasher),
    }
    hasher.finish()
}

/// An error's words, without what it quotes and counts.
fn shape(why: &str) -> String {
    let quoted = why.find('"').zip(why.rfind('"'));
    let (before, after) = quoted.map_or((why, ""), |(first, last)| (&why[..first], &why[last..]));
    let parts = before.split('`').step_by(2).chain([after]);
    parts.flat_map(str::chars).filter(|c| c.is_ascii() && !c.is_ascii_digit()).collect()
}

/// The smallest input found that fails in the same way.
fn minimized(target: &Target, mut input: Vec<u8>, why: &str) -> Vec<u8> {
    let same = |verdict: Verdict| matches!(verdict, Verdict::Failed(other) if shape(&other) == shape(why));
    let mut tries = 0;
    loop {
        let smaller =
            mutate::smaller(target.form, &input).into_iter().filter(|other| other.len() < input.len());
        let found = smaller.take_while(|_| {
            tries += 1;
            tries < MAX_TRIES
        });
        match { found }.find(|other| same(judge(target, other))) {
            Some(found) => input = found,
            None => return input,
        }
    }
}
