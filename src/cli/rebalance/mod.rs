//! `ringfence rebalance`: a plan is made, reviewed, applied, and undone; and what a policy would do is seen before it is trusted.
//!
//! | file | idea |
//! |---|---|
//! | `what_if` | something to suppose |
//! | `plan` | a plan as it would be |
//! | `saved` | a plan in a file, for whoever reviews it |
//! | `apply` | approving a plan, and the way back |
//! | `hindrances` | what stands in the way of moves that are to be approved |
//! | `brake` | letting the brake go |
//! | `status` | how far approved plans are |

mod apply;
mod brake;
mod hindrances;
mod plan;
mod saved;
mod status;
mod what_if;

use crate::args::Common;
use crate::exit::Outcome;
use crate::freeze::keyspace_or_all;
use crate::operator::{Sure, Who};
use crate::simulate;
use clap::{ArgGroup, Args, Subcommand};
use ringfence::ids::KeyspaceName;
use std::path::PathBuf;

/// Arguments of `ringfence rebalance`.
#[derive(Debug, Args)]
#[command(after_help = "\
Plan, review, apply, undo:
  ringfence rebalance plan orders --save orders.plan
  ringfence rebalance apply orders.plan --wait --reason 'two workers more'
  ringfence rebalance undo --wait

A keyspace with `balance` on carries its plan out by itself; plans are for those where a person decides
(`ringfence keyspace update orders --balance false`).")]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what would move and why, and how even it is before and after; nothing is changed
    #[command(after_help = "\
Examples:
  ringfence rebalance plan orders
  ringfence rebalance plan orders --what-if add:w9,weight=2,zone=b --what-if remove:w2
  ringfence rebalance plan orders --save orders.plan")]
    Plan {
        /// The keyspace
        keyspace: KeyspaceName,
        /// Suppose something, may be repeated: add:WORKER[,weight=N][,LABEL=VALUE]..., remove:WORKER, weight:WORKER=N
        #[arg(long, value_name = "WHAT")]
        what_if: Vec<what_if::WhatIfArg>,
        /// Write the plan to a file, for `rebalance apply`
        #[arg(long, value_name = "FILE", conflicts_with = "what_if")]
        save: Option<PathBuf>,
    },
    /// Approve a plan: the coordinator carries it out within the keyspace's budget, whoever leads
    #[command(group = ArgGroup::new("which").required(true).args(["file", "keyspace"]), after_help = "\
A plan is refused when any partition of its keyspace was granted since it was made; plan again then. One plan is carried out at a time.
Moves that have become impossible are passed over, and `rebalance status --moves` says why; what is known of that before, and what
the others wait for, is said by --dry-run, and on standard error.

With --wait the exit code is 0 when every move has been made, and 1 when the plan was cancelled, some were passed over, or some ended
at another worker.")]
    Apply {
        /// A file that `rebalance plan --save` wrote
        file: Option<PathBuf>,
        /// Plan now, and approve that
        #[arg(long)]
        keyspace: Option<KeyspaceName>,
        /// Wait until every move has been made
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Move back what a plan moved: what is still where it brought it, and what is on its way there
    #[command(after_help = "\
Without a plan it is the last one that is no undo itself, if you approved it; of somebody else's it says the number, which has to be named.
A plan that is being carried out is cancelled first. What is still on its way is taken back when it has arrived. What has moved on since stays where it is; then the exit code is 1.
Said again when the first has ended, it takes back what is left. To undo an undo, by its number, is to make the plan's moves again.")]
    Undo {
        /// The plan, by its number; `rebalance status` shows the last two
        #[arg(value_parser = plan_number)]
        plan: Option<u64>,
        /// Wait until every move has been made
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// The plans that are remembered, how far they are, and what is paused
    Status {
        /// Show each move, and what has become of it
        #[arg(long)]
        moves: bool,
    },
    /// Stop the plan that is being carried out; moves that have begun go on
    Cancel {
        #[command(flatten)]
        who: Who,
    },
    /// Stop planned moves in a keyspace, or in all: the same as `freeze`
    Pause {
        /// Only here
        #[arg(long)]
        keyspace: Option<KeyspaceName>,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Let planned moves go on: the same as `unfreeze`
    Resume {
        /// Only here
        #[arg(long)]
        keyspace: Option<KeyspaceName>,
        #[command(flatten)]
        who: Who,
    },
    /// Let the brake go: what was lost together is granted to others at full speed
    #[command(after_help = "\
When many sessions are lost together it is often the network or the coordinator that is ill, and repairs are slowed down
to the budget of moves for one TTL (`ringfence status` says so first). When the workers are gone indeed, this says that it is meant. It
concerns what was lost until now: a later loss brings the brake back.

Example:
  ringfence rebalance release-brake --reason 'zone b is off'")]
    ReleaseBrake {
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
    /// Replay what happens to workers over time, to see what a policy would do; no cluster is asked
    Simulate(Box<simulate::SimulateArgs>),
}

/// `330`, and `i330` as logs write an index.
fn plan_number(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix(['i', 'I']).unwrap_or(text);
    // A sign is no part of a number that names something.
    let number = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| "a plan is named by its number, such as 330".to_owned())
}

/// Runs `ringfence rebalance`.
pub(crate) async fn run(args: RebalanceArgs) -> Outcome {
    let common = &args.common;
    match args.verb {
        Verb::Plan { keyspace, what_if, save } => {
            plan::run(common, &keyspace, what_if, save.as_deref()).await
        }
        Verb::Apply { file, keyspace, wait, who, sure } => {
            apply::apply(common, &apply::Source { file, keyspace }, wait, &who, sure).await
        }
        Verb::Undo { plan, wait, who, sure } => apply::undo(common, plan, wait, &who, sure).await,
        Verb::Status { moves } => status::run(common, moves).await,
        Verb::Cancel { who } => apply::cancel(common, &who).await,
        Verb::Pause { keyspace, who, sure } => {
            keyspace_or_all(common, keyspace.as_ref(), true, &who, Some(sure)).await
        }
        Verb::ReleaseBrake { who, sure } => brake::release(common, &who, sure).await,
        Verb::Simulate(args) => simulate::run(common.output(), &args),
        Verb::Resume { keyspace, who } => keyspace_or_all(common, keyspace.as_ref(), false, &who, None).await,
    }
}

#[cfg(test)]
mod tests {
    use super::plan_number;

    #[test]
    fn a_plan_is_named_by_its_number_with_or_without_the_letter_of_an_index() {
        assert_eq!((plan_number("330"), plan_number("i330")), (Ok(330), Ok(330)));
        assert_eq!(plan_number("I330"), Ok(330), "a telephone writes it so");
        for bad in ["", "i", "ii3", "-1", "p3", "330i", "+12", "i+12"] {
            assert!(plan_number(bad).unwrap_err().contains("such as 330"), "{bad}");
        }
    }
}
