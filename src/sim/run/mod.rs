//! One world, from its seed to its verdict.
//!
//! | module | what it is |
//! |---|---|
//! | `choice` | what an operator decides about where partitions are |
//! | `directed` | what the logs hold of that |
//! | `fault` | what goes wrong |
//! | `kinds` | what a world is about |
//! | `panics` | what panicked |
//! | `plan` | what goes wrong when, drawn from the seed |
//! | `stage` | the actors, and what a fault does to them |
//! | `witness` | what is written down by whoever sees through everything |

mod choice;
mod directed;
mod fault;
mod kinds;
mod panics;
mod plan;
mod stage;
mod witness;

pub use choice::Choice;
pub use fault::{Fault, Timed};
pub use kinds::{KINDS, Kind};
pub use plan::Plan;

use crate::checker::{Rules, Verdict, check};
use crate::history::History;
use stage::Stage;

/// What one world came to.
pub struct Outcome {
    /// Everything that happened.
    pub history: History,
    /// What was broken.
    pub verdict: Verdict,
    /// Nodes that became different from others, or could not go on although a disk lost no more than it may.
    pub broken: Vec<String>,
    /// What the machines did, for figures.
    pub figures: Figures,
}

impl Outcome {
    /// Whether everything held.
    pub fn held(&self) -> bool {
        self.verdict.held() && self.broken.is_empty()
    }
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
    /// Terms that a node led.
    pub elections: u64,
}

/// How long an owner that was replaced may go on when all is well again: it has to hear that it is over, and what it does
/// takes it up to four seconds more.
const ENDS_MS: u64 = 8_000;

/// Runs a world.
///
/// # Errors
/// When the system does not give the processes what they need.
pub fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    panics::watch();
    let mut stage = Stage::open(plan)?;
    let mut now = 0;
    while now < plan.ends {
        now += plan.tick;
        stage.tick(now)?;
    }
    let (history, figures, broken) = stage.close_down();
    // Of a world that ends before owners had time to come back nobody can tell whether they would have.
    let whole = plan.ends >= plan.steady;
    let keyspaces = Plan::keyspaces().into_iter().filter(|_| whole);
    let mut rules = Rules {
        leases: !plan.beyond_drift,
        progress_us: whole.then(|| plan.progress_ms() * 1_000),
        granted_us: whole.then(|| plan.granted_ms() * 1_000),
        ends_us: ENDS_MS * 1_000,
        expected: keyspaces
            .map(|name| Ok((name.parse()?, plan.partitions)))
            .collect::<anyhow::Result<_>>()?,
        only_fences: plan.kind == Kind::Forgetful,
        ..Rules::default()
    };
    rules.fence_takeover.extend(plan.fast_keyspace());
    let verdict = check(&history, &rules);
    Ok(Outcome { history, verdict, broken, figures })
}
