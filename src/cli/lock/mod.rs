//! `ringfence lock`: run a command under a named lock, list and show locks, and take one from whoever holds it.
//!
//! | file | idea |
//! |---|---|
//! | `shape` | the JSON shapes |
//! | `show` | who holds what, since when, and who waits |
//! | `breaking` | a lock that is taken from its holder |
//! | `run` | one command under a lock |

mod breaking;
mod run;
mod shape;
mod show;

use crate::args::Common;
use crate::exit::Outcome;
use crate::operator::{Sure, Who};
use clap::{Args, Subcommand};
use ringfence::ids::{Epoch, LockName};

/// Arguments of `ringfence lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a command while holding a lock, as flock does on one machine
    #[command(after_help = run::AFTER_HELP)]
    Run(Box<run::RunArgs>),
    /// List the locks that somebody holds or waits for
    List {
        /// Only those whose names begin with it
        prefix: Option<LockName>,
    },
    /// Show one lock: who holds it, since when, and who waits
    Show {
        /// Its name
        #[arg(value_name = "NAME")]
        lock: LockName,
    },
    /// Take a lock from whoever holds it
    #[command(after_help = "\
The next one gets it when the lease that the holder may still believe in has run out, or when the holder has said that it knows,
and then after the lock delay that the holder asked for. With --at-once the next one gets it now: two may believe to hold it for
a while, and only a fence at what the lock guards tells them apart. Nothing is done when nobody holds the lock.

Examples:
  ringfence lock break nightly --reason \"its host is gone\"
  ringfence lock break nightly --epoch 42 --yes")]
    Break {
        /// Its name
        #[arg(value_name = "NAME")]
        lock: LockName,
        /// Only from who holds it under this epoch
        #[arg(long, value_name = "N", value_parser = epoch)]
        epoch: Option<Epoch>,
        /// Let nobody wait for the lease of the holder, or for its lock delay
        #[arg(long)]
        at_once: bool,
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        sure: Sure,
    },
}

fn epoch(text: &str) -> Result<Epoch, String> {
    let digits = text.strip_prefix('e').unwrap_or(text);
    let number: u64 = digits.parse().map_err(|_| "it is a number, such as 42".to_owned())?;
    Epoch::new(number).map_err(|error| error.to_string())
}

/// Runs `ringfence lock`.
pub(crate) async fn run(args: LockArgs) -> Outcome {
    let common = &args.common;
    match args.verb {
        Verb::Run(args) => run::run(common, *args).await,
        Verb::List { prefix } => show::list(common, prefix.as_ref().map_or("", LockName::as_str)).await,
        Verb::Show { lock } => show::show(common, &lock).await,
        Verb::Break { lock, epoch, at_once, who, sure } => {
            breaking::run(common, &lock, epoch, at_once, &who, sure).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_written_as_a_number_or_as_it_is_shown() {
        assert_eq!(epoch("42"), epoch("e42"));
        assert_eq!(epoch("42").unwrap().get(), 42);
        for bad in ["", "e", "0", "-1", "ee1", "9007199254740992", "x"] {
            assert!(epoch(bad).is_err(), "{bad}");
        }
    }
}
