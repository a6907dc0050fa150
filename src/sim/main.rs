//! `ringfence-sim`: runs the proofs.

mod cmd;
mod dice;

use clap::Parser;
use cmd::out;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = ringfence_sim::mutants::as_compiler() {
        return code;
    }
    match cmd::Cli::parse().run() {
        Ok(code) => code,
        Err(error) if error.is::<out::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
