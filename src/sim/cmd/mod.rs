//! The command line. One file a verb; this one only wires.

mod chaos;
mod fuzz;
mod judge;
mod model;
mod mutants;
pub(crate) mod out;
mod seeds;
mod world;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs the proofs of ringfence. Without a verb: worlds from their seeds.
#[derive(Debug, Parser)]
#[command(name = "ringfence-sim", version, about, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    seeds: seeds::SeedsArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Break real nodes and real workers in many ways at once, and judge what happened
    Chaos(chaos::ChaosArgs),
    /// A worker of the chaos run
    #[command(hide = true)]
    ChaosWorker(Box<ringfence_sim::chaos::WorkerArgs>),
    /// Give everything that reads what nobody should send
    Fuzz(fuzz::FuzzArgs),
    Judge(judge::Judge),
    Model(model::Model),
    World(world::World),
    /// Break the rules one by one, and look who notices
    Mutants(mutants::Mutants),
}

impl Cli {
    /// Runs the verb. 0: everything held; 1: something did not, or could not be run.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            None => self.seeds.run(),
            Some(Verb::Chaos(args)) => chaos::run(&args),
            Some(Verb::ChaosWorker(args)) => {
                ringfence_sim::chaos::run_worker(*args).map(|()| ExitCode::SUCCESS)
            }
            Some(Verb::Fuzz(args)) => args.run(),
            Some(Verb::Judge(verb)) => verb.run(),
            Some(Verb::Model(verb)) => verb.run(),
            Some(Verb::World(verb)) => verb.run(),
            Some(Verb::Mutants(verb)) => verb.run(),
        }
    }
}
