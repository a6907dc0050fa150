//! `ringfence-sim judge`: a kept history, judged again.

use super::out::{print, say};
use anyhow::Context as _;
use clap::Args;
use ringfence_sim::chaos;
use ringfence_sim::checker::check;
use ringfence_sim::history::History;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Holds a history that a chaos run kept against the rules again, after a change of the checker for instance.
#[derive(Debug, Args)]
pub(crate) struct Judge {
    /// A `round-N.jsonl`
    file: PathBuf,
    /// Print everything that happened.
    #[arg(long)]
    transcript: bool,
}

impl Judge {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let shown = self.file.display();
        let file = File::open(&self.file).with_context(|| format!("opening {shown}"))?;
        let history = History::read_jsonl(BufReader::new(file)).with_context(|| format!("in {shown}"))?;
        let verdict = check(&history, &chaos::rules()?);
        if self.transcript {
            say!("{history}")?;
        }
        if verdict.held() {
            say!("{} events: {verdict}", history.events.len())?;
            return Ok(ExitCode::SUCCESS);
        }
        print(format_args!("{verdict}"))?;
        Ok(ExitCode::FAILURE)
    }
}
