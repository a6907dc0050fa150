//! `ringfence-sim`: runs the proofs.

mod cmd;
mod dice;

use clap::Parser;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = ringfence_sim::mutants::as_compiler() {
        return code;
    }
    match cmd::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // Nobody may be there to read it any more.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
