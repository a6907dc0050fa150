//! Runs the catchers, and says who caught what.

use super::workshop::{self, Built};
use super::{Binary, Catcher, Mutant};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal as _, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long one test may take. A mutant may make one wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(150);

/// What became of one mutant.
#[derive(Debug)]
pub struct Verdict {
    /// The mutant.
    pub mutant: &'static Mutant,
    /// Who caught it first; nobody.
    pub caught: Option<Caught>,
    /// Catchers that count for nothing, and why: they are not there, or fail without any mutant.
    pub unfit: Vec<(Catcher, String)>,
}

/// Who caught a mutant.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The catcher.
    pub by: Catcher,
    /// The seed of the world that came to harm, where worlds are drawn by lot.
    pub seed: Option<u64>,
}

/// How one run of a catcher ended.
#[derive(Clone, Debug)]
enum Run {
    Passed,
    Failed {
        seed: Option<u64>,
    },
    /// It did not end in time.
    Hung,
}

/// Builds everything, and lets the catchers of each mutant have a look, `jobs` of them at a time.
///
/// # Errors
/// The build failed.
pub fn hunt(mutants: Vec<&'static Mutant>, jobs: usize) -> anyhow::Result<Vec<Verdict>> {
    let hunter = Hunter { binaries: workshop::build()?, without: Mutex::default() };
    let total = mutants.len();
    let waiting = Mutex::new(mutants.into_iter().enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new(BTreeMap::new());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((at, mutant)) = next() {
                    let verdict = hunter.look(mutant);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.insert(at, verdict);
                    if std::io::stderr().is_terminal() {
                        eprint!("\r{} of {total} looked at ", done.len());
                    }
                }
            });
        }
    });
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

/// Whether a catcher passes when there is nothing to catch, once it is known.
type Alone = OnceLock<Result<(), String>>;

struct Hunter {
    binaries: BTreeMap<Binary, Built>,
    /// How each catcher ends without a mutant: looked at once.
    without: Mutex<BTreeMap<Catcher, Arc<Alone>>>,
}

impl Hunter {
    fn look(&self, mutant: &'static Mutant) -> Verdict {
        let mut unfit = Vec::new();
        for by in mutant.catchers {
            let seed = match self.run(*by, Some(mutant)) {
                Ok(Run::Passed) => continue,
                Ok(Run::Failed { seed }) => seed,
                Ok(Run::Hung) => None,
                Err(error) => {
                    unfit.push((*by, format!("{error:#}")));
                    continue;
                }
            };
            match self.passes_without(*by) {
                Ok(()) => return Verdict { mutant, caught: Some(Caught { by: *by, seed }), unfit },
                Err(why) => unfit.push((*by, why)),
            }
        }
        Verdict { mutant, caught: None, unfit }
    }

    fn passes_without(&self, catcher: Catcher) -> Result<(), String> {
        let cell = {
            let mut without = self.without.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(without.entry(catcher).or_default())
        };
        let look = || match self.run(catcher, None) {
            Ok(Run::Passed) => Ok(()),
            Ok(Run::Failed { .. } | Run::Hung) => Err("it fails without any mutant".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        };
        cell.get_or_init(look).clone()
    }

    fn run(&self, catcher: Catcher, mutant: Option<&Mutant>) -> anyhow::Result<Run> {
        let built = self.binaries.get(&catcher.binary()).context("it was not built")?;
        let test = built.tests.get(&catcher.test()).context("there is no such test")?;
        let mut command = Command::new(&built.executable);
        command.args(["--exact", test, "--test-threads=1"]).current_dir(&built.package_dir);
        // A failure is what is looked for: it need not be made small, or be remembered in a file.
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        command.env_remove("RINGFENCE_SEED").env_remove("RINGFENCE_SEEDS").env_remove("RINGFENCE_MUTANT");
        if let Catcher::Random { worlds, .. } = catcher {
            command.env("RINGFENCE_SEEDS", worlds.to_string());
        }
        if let Some(mutant) = mutant {
            command.env("RINGFENCE_MUTANT", mutant.name);
        }
        let (ended, out) = wait(command)?;
        match ended {
            None => Ok(Run::Hung),
            Some(_) if !out.contains("running 1 test\n") => bail!("it did not run"),
            Some(true) => Ok(Run::Passed),
            Some(false) => Ok(Run::Failed { seed: seed(&out) }),
        }
    }
}

/// Runs a command and reads what it says; whether it succeeded, `None` when it had to be ended.
fn wait(mut command: Command) -> anyhow::Result<(Option<bool>, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = child.stdout.take().context("its output")?;
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        // What was said before an error is enough.
        let _ = stdout.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let ended = within(&mut child, PATIENCE)?;
    Ok((ended, reader.join().unwrap_or_default()))
}

fn within(child: &mut Child, patience: Duration) -> anyhow::Result<Option<bool>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if began.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The seed that a world drawn by lot has printed.
fn seed(out: &str) -> Option<u64> {
    let (_, rest) = out.split_once("RINGFENCE_SEED=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_read_from_what_a_world_says() {
        assert_eq!(seed("panicked at\nRINGFENCE_SEED=17: G3(\"..\")"), Some(17));
        assert_eq!(seed("it passed"), None);
    }

    #[test]
    fn a_process_that_fails_hangs_or_succeeds_is_told_apart() {
        let run = |script: &str, patience_ms| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            within(&mut child, Duration::from_millis(patience_ms)).unwrap()
        };
        assert_eq!(run("exit 0", 60_000), Some(true));
        assert_eq!(run("exit 101", 60_000), Some(false));
        assert_eq!(run("exec sleep 60", 0), None);
    }
}
