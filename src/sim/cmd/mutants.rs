//! `ringfence-sim mutants`: breaks each rule in turn, and looks whether somebody notices.

use super::out::{note, say};
use clap::{Args, ValueEnum};
use ringfence_sim::mutants::{Mutant, Verdict, all, hunt};
use std::process::ExitCode;

/// Breaks the rules of the product one by one, and prints who caught it: mutant, catcher, seed.
///
/// Exits with 0 when every mutant was caught, and with 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct Mutants {
    /// These only; all when none is named.
    names: Vec<String>,
    /// How many tests run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// As a table, or as the table of docs/mutants.md.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Markdown,
}

impl Mutants {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let unknown = self.names.iter().find(|name| all().all(|mutant| mutant.name != name.as_str()));
        if let Some(name) = unknown {
            anyhow::bail!("there is no mutant {name}; docs/mutants.md lists them");
        }
        let chosen: Vec<&'static Mutant> =
            all().filter(|m| self.names.is_empty() || self.names.iter().any(|name| name == m.name)).collect();
        let verdicts = hunt(chosen, self.jobs)?;
        match self.output {
            Output::Table => table(&verdicts)?,
            Output::Markdown => markdown(&verdicts)?,
        }
        for verdict in &verdicts {
            for (catcher, why) in &verdict.unfit {
                note(format_args!("{}: {catcher} catches nothing: {why}", verdict.mutant.name));
            }
        }
        let missed: Vec<&str> =
            verdicts.iter().filter(|v| v.caught.is_none()).map(|v| v.mutant.name).collect();
        if missed.is_empty() {
            note(format_args!("All {} were caught", verdicts.len()));
            return Ok(ExitCode::SUCCESS);
        }
        let (few, all, names) = (missed.len(), verdicts.len(), missed.join(", "));
        note(format_args!("{few} of {all} were not caught: {names}"));
        Ok(ExitCode::FAILURE)
    }
}

/// Who caught it, and with which seed.
fn caught(verdict: &Verdict) -> (String, String) {
    verdict.caught.as_ref().map_or(("NOBODY".to_owned(), String::new()), |caught| {
        let seed = caught.seed.map(|seed| seed.to_string()).unwrap_or_default();
        (caught.by.to_string(), caught.violated.iter().fold(seed, |seed, what| format!("{seed}: {what}")))
    })
}

fn table(verdicts: &[Verdict]) -> anyhow::Result<()> {
    let width = verdicts.iter().map(|v| v.mutant.name.len()).max().unwrap_or(0);
    say!("{:width$}  CAUGHT BY", "MUTANT")?;
    for verdict in verdicts {
        let (by, seed) = caught(verdict);
        let seed = if seed.is_empty() { seed } else { format!(" (seed {seed})") };
        say!("{:width$}  {by}{seed}", verdict.mutant.name)?;
    }
    Ok(())
}

fn markdown(verdicts: &[Verdict]) -> anyhow::Result<()> {
    say!("| mutant | what the product does then | breaks | caught by | seed |\n|---|---|---|---|---|")?;
    for verdict in verdicts {
        let Mutant { name, fault, breaks, .. } = verdict.mutant;
        let (by, seed) = caught(verdict);
        say!("| `{name}` | {fault} | {breaks} | `{by}` | {seed} |")?;
    }
    Ok(())
}
