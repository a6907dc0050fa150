//! `ringfence-sim`: runs the proofs.

mod cmd;
mod dice;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = ringfence_sim::mutants::as_compiler() {
        return code;
    }
    match cmd::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
