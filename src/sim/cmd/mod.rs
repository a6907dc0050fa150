//! The command line. One file a verb; this one only wires.

mod fuzz;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs the proofs of ringfence.
#[derive(Debug, Parser)]
#[command(name = "ringfence-sim", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Give everything that reads what nobody should send
    Fuzz(fuzz::FuzzArgs),
}

impl Cli {
    /// Runs the verb. 0: everything held; 1: something did not, or could not be run.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Fuzz(args) => args.run(),
        }
    }
}
