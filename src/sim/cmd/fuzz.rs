//! `ringfence-sim fuzz`: inputs that nobody should send, to everything that reads.

use super::out::say;
use anyhow::{Context as _, bail};
use clap::Args;
use ringfence_sim::fuzz::{Fire, Target, Verdict, all, judge, keep, read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `ringfence-sim fuzz`.
#[derive(Debug, Args)]
pub(crate) struct FuzzArgs {
    /// How long, all targets together
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Draw from this seed; a run says which one it had
    #[arg(long)]
    seed: Option<u64>,
    /// Only this target; may be given again
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// The folder with the inputs to begin with; one that fails is kept there
    #[arg(long, value_name = "DIR", default_value = "tests/corpus")]
    corpus: PathBuf,
    /// Judge this one input of the target, and nothing else
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with_all = ["seconds", "seed"])]
    replay: Option<PathBuf>,
    /// Keep inputs that had an outcome of their own, for the next run to begin with
    #[arg(long)]
    keep: bool,
}

impl FuzzArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let targets = self.targets()?;
        if let Some(file) = &self.replay {
            return replay(&targets, file);
        }
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        say!("seed {seed}")?;
        let share = Duration::from_secs(self.seconds) / u32::try_from(targets.len())?;
        let mut failed = false;
        for target in &targets {
            failed |= self.fire(target, seed, share)?;
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let all = all();
        let names: Vec<&str> = all.iter().map(|target| target.name).collect();
        if let Some(other) = self.target.iter().find(|name| !names.contains(&name.as_str())) {
            bail!("there is no target {other}; there are {}", names.join(", "));
        }
        Ok(all
            .into_iter()
            .filter(|t| self.target.is_empty() || self.target.iter().any(|n| n == t.name))
            .collect())
    }

    /// Whether something failed. A target ends with its first failure: the next would most likely be the same.
    fn fire(&self, target: &Target, seed: u64, share: Duration) -> anyhow::Result<bool> {
        let name = target.name;
        let corpus = read(&self.corpus, name)?;
        for kept in &corpus {
            if let Verdict::Failed(why) = judge(target, &kept.bytes) {
                report(name, &kept.path, &why)?;
                return Ok(true);
            }
        }
        let mut fire = Fire::new(target, corpus.into_iter().map(|kept| kept.bytes).collect(), seed);
        let began = Instant::now();
        while began.elapsed() < share {
            if let Some(failure) = fire.shoot() {
                let path = keep(&self.corpus, name, "crash", &failure.input)?;
                report(name, &path, &failure.why)?;
                return Ok(true);
            }
        }
        if self.keep {
            for input in fire.found() {
                keep(&self.corpus, name, "found", input)?;
            }
        }
        let (inputs, read, found) = (fire.inputs, fire.read, fire.found().len());
        say!("{name:<16} {inputs:>9} inputs, {read:>9} of them read, {found:>4} outcomes")?;
        Ok(false)
    }
}

fn replay(targets: &[Target], file: &PathBuf) -> anyhow::Result<ExitCode> {
    let input = std::fs::read(file).with_context(|| file.display().to_string())?;
    let mut code = ExitCode::SUCCESS;
    for target in targets {
        match judge(target, &input) {
            Verdict::Read => say!("{}: read", target.name)?,
            Verdict::Refused(why) => say!("{}: refused: {why}", target.name)?,
            Verdict::Failed(why) => {
                say!("{}: FAILED: {why}", target.name)?;
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn report(target: &str, path: &std::path::Path, why: &str) -> anyhow::Result<()> {
    say!("{target}: FAILED: {why}")?;
    say!("  cargo run -p ringfence-sim -- fuzz --target {target} --replay {}", path.display())
}
