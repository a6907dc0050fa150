//! One world in another process, and what it reports.

use crate::leash::leash;
use crate::run::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A world to be run in a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// Only so many of its faults.
    pub faults: Option<usize>,
    /// Without these of them.
    pub without: Vec<usize>,
    /// With a store that believes whoever comes.
    pub no_fence: bool,
    /// It ends after so many simulated milliseconds.
    pub until: Option<u64>,
}

/// What a world reports, as one line of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Everything held.
    pub held: bool,
    /// What did not: the first few.
    pub violations: Vec<String>,
    /// How much happened.
    pub events: u64,
    /// How many faults the seed has.
    pub faults: u64,
    /// Terms that a node led.
    pub elections: u64,
    /// Tenures that began.
    pub tenures: u64,
    /// Planned moves that began.
    pub moves: u64,
    /// Partitions that were split.
    pub splits: u64,
    /// Writes that the store took.
    pub writes: u64,
    /// Writes that the fence refused.
    pub refused: u64,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
    /// For how long of it nothing was to change hands, in milliseconds.
    pub steady_ms: u64,
    /// Grants in that time.
    pub moved_when_steady: u64,
    /// Time that it took, in milliseconds.
    pub took_ms: u64,
    /// Stands for everything that happened: the same seed gives the same number.
    pub history: String,
}

impl Trial {
    /// The world of a seed, as it is.
    pub fn of(seed: u64) -> Trial {
        Trial { seed, ..Trial::default() }
    }

    /// The arguments of the verb that runs it.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["world".to_owned(), "--seed".to_owned(), self.seed.to_string()];
        if let Some(faults) = self.faults {
            arguments.extend(["--faults".to_owned(), faults.to_string()]);
        }
        if !self.without.is_empty() {
            let list: Vec<String> = self.without.iter().map(ToString::to_string).collect();
            arguments.extend(["--without".to_owned(), list.join(",")]);
        }
        if self.no_fence {
            arguments.push("--no-fence".to_owned());
        }
        if let Some(until) = self.until {
            arguments.extend(["--until".to_owned(), until.to_string()]);
        }
        arguments
    }

    /// Takes away what it does without.
    pub fn trim(&self, plan: &mut Plan) {
        plan.fenced = !self.no_fence;
        plan.ends = plan.ends.min(self.until.unwrap_or(u64::MAX));
        plan.faults.truncate(self.faults.unwrap_or(usize::MAX));
        let mut number = 0;
        plan.faults.retain(|_| {
            number += 1;
            !self.without.contains(&(number - 1))
        });
    }

    /// Everything that happens in it, one line an event.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn transcript(&self) -> io::Result<String> {
        let mut command = self.command(&std::env::current_exe()?);
        let output = command.arg("--transcript").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it. A process that dies without a report is a violation.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self) -> io::Result<Report> {
        let output = self.command(&std::env::current_exe()?).args(["-o", "json"]).output()?;
        let reported = serde_json::from_slice::<Report>(&output.stdout);
        Ok(reported.unwrap_or_else(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            let violation = format!("the process ended with {}: {}", output.status, last.join(" / "));
            Report { seed: self.seed, violations: vec![violation], ..Report::default() }
        }))
    }

    /// The command that runs it in a process of its own, which ends with the runner.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        leash(command.args(self.arguments()).stdin(Stdio::null()));
        command
    }
}

impl Report {
    /// What was broken first, without the numbers: the rule, where a rule was.
    pub fn breach(&self) -> Option<String> {
        let first = self.violations.first()?;
        let rule = first.split_once(": ").map(|(rule, _)| rule);
        let rule = rule.filter(|rule| rule.chars().all(|c| c.is_ascii_alphabetic()));
        Some(rule.unwrap_or(first).chars().filter(|c| !c.is_ascii_digit()).collect())
    }

    /// The last of the events that show what was broken first.
    pub fn last_event(&self) -> Option<usize> {
        let numbers = self.violations.first()?.rsplit_once("(events [")?.1;
        numbers.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).max()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} faults, {} elections, {} tenures, {} moves, {} splits, {} writes, {} refused; {} events (history {}); {} s \
             simulated in {} ms",
            self.seed,
            self.faults,
            self.elections,
            self.tenures,
            self.moves,
            self.splits,
            self.writes,
            self.refused,
            self.events,
            self.history,
            self.simulated_ms / 1_000,
            self.took_ms,
        )?;
        if self.held {
            return writeln!(f, "everything held");
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}
