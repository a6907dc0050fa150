//! Runs the catchers, and says who caught what.

use super::workshop::{self, Built};
use super::{Binary, Catcher, FURTHER_SEEDS, Mutant};
use crate::leash::leash;
use crate::run::KINDS;
use crate::seeds::{Report, Trial};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
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
    /// What was violated in a whole world.
    pub violated: Option<String>,
}

/// How one run of a catcher ended.
#[derive(Clone, Debug)]
enum Run {
    Passed,
    Failed {
        seed: Option<u64>,
        violated: Option<String>,
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
                        // A terminal that went away is not worth an error.
                        let _ = write!(io::stderr(), "\r{} of {total} looked at ", done.len());
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
            for by in tries(*by) {
                let (seed, violated) = match self.run(by, Some(mutant)) {
                    Ok(Run::Passed) => continue,
                    Ok(Run::Failed { seed, violated }) => (seed, violated),
                    Ok(Run::Hung) => (None, None),
                    Err(error) => {
                        unfit.push((by, format!("{error:#}")));
                        continue;
                    }
                };
                match self.passes_without(by) {
                    Ok(()) => {
                        return Verdict { mutant, caught: Some(Caught { by, seed, violated }), unfit };
                    }
                    Err(why) => unfit.push((by, why)),
                }
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
        let mut command = Command::new(&built.executable);
        command.current_dir(&built.package_dir);
        match (catcher, catcher.test()) {
            (Catcher::World { seed, until }, _) => {
                let trial = Trial { until: Some(until), ..Trial::of(seed) };
                command.args(trial.arguments()).args(["-o", "json"]);
            }
            (_, test) => {
                let test = test.and_then(|test| built.tests.get(&test)).context("there is no such test")?;
                command.args(["--exact", test, "--test-threads=1"]);
            }
        }
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
        match (ended, catcher) {
            (None, _) => Ok(Run::Hung),
            (Some(true), Catcher::World { .. }) => Ok(Run::Passed),
            (Some(false), Catcher::World { seed, .. }) => {
                Ok(Run::Failed { seed: Some(seed), violated: Some(violated(&out)) })
            }
            (Some(_), _) if !out.contains("running 1 test\n") => bail!("it did not run"),
            (Some(true), _) => Ok(Run::Passed),
            (Some(false), _) => Ok(Run::Failed { seed: seed(&out), violated: None }),
        }
    }
}

/// What is run for a catcher, in this order: of a world that does not come to harm any more some others of its kind, too.
fn tries(catcher: Catcher) -> Vec<Catcher> {
    match catcher {
        Catcher::World { seed, until } => {
            let of_its_kind = |further| seed.saturating_add(further * KINDS);
            (0..=FURTHER_SEEDS).map(of_its_kind).map(|seed| Catcher::World { seed, until }).collect()
        }
        other => vec![other],
    }
}

/// What a world's report says was violated: the checker's first rule by its name; else what else came to light; else that
/// something panicked, since a library's own assertion says less than a rule of ours and is in some builds only.
fn violated(out: &str) -> String {
    let report = serde_json::from_str::<Report>(out).unwrap_or_default();
    let all =
        || report.violations.iter().map(|text| text.split_once(": ").map_or(text.as_str(), |(what, _)| what));
    let of_the_checker = all().find(|what| what.bytes().all(|b| b.is_ascii_alphabetic()));
    let seen = of_the_checker.or_else(|| all().find(|what| !what.starts_with("panicked at ")));
    match (seen, report.violations.is_empty()) {
        (Some(what), _) => what.to_owned(),
        (None, false) => "a panic".to_owned(),
        (None, true) => "it died without a report".to_owned(),
    }
}

/// Runs a command and reads what it says; whether it succeeded, `None` when it had to be ended.
fn wait(mut command: Command) -> anyhow::Result<(Option<bool>, String)> {
    // A group of its own, so that what it has started can be ended with it.
    leash(&mut command).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
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
            // It is not waited for yet, so the number is still its own.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("it has no number")?;
            kill_process_group(group, Signal::KILL)?;
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
            let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
            within(&mut child, Duration::from_millis(patience_ms)).unwrap()
        };
        assert_eq!(run("exit 0", 60_000), Some(true));
        assert_eq!(run("exit 101", 60_000), Some(false));
        assert_eq!(run("exec sleep 60", 0), None);
    }

    #[test]
    fn what_a_process_has_started_is_ended_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo begun; wait"]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(within(&mut child, Duration::ZERO).unwrap(), None);
        // The other one holds the pipe open for as long as it lives.
        assert_eq!(stdout.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn a_world_that_no_longer_comes_to_harm_has_others_of_its_kind() {
        let world = |seed| Catcher::World { seed, until: 9_000 };
        let worlds = tries(world(7));
        assert_eq!(worlds.len() as u64, 1 + FURTHER_SEEDS);
        assert_eq!(worlds[..2], [world(7), world(7 + KINDS)]);
        let test = Catcher::Test { of: Binary::Core, test: "a" };
        assert_eq!(tries(test), [test]);
    }

    #[test]
    fn what_was_violated_is_read_from_a_report() {
        let report = |violations: &[&str]| {
            let violations = violations.iter().map(ToString::to_string).collect();
            serde_json::to_string(&Report { violations, ..Report::default() }).unwrap()
        };
        assert_eq!(violated(&report(&["TwoOwners: a and b (events [1])", "Lost: c"])), "TwoOwners");
        assert_eq!(violated(&report(&["panicked at src/a.rs:1:2: no"])), "a panic");
        let differ = "nodes 1 and 3 differ after entry 34";
        assert_eq!(violated(&report(&["panicked at src/a.rs:1:2: no", differ])), differ);
        assert_eq!(violated(&report(&["panicked at src/a.rs:1:2: no", differ, "Lost: c"])), "Lost");
        assert_eq!(violated(""), "it died without a report");
    }
}
