//! Many worlds, one after the other: the verb that is run when none is named.

use super::out::{note, print, say};
use anyhow::Context as _;
use clap::Args;
use ringfence_sim::seeds::{self, Progress, Report, Seeds, Shrunk, Trial, shrink};
use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How many worlds are tried to make a broken one smaller.
const SHRINKING: usize = 80;
/// How many seeds a run takes: each is a number in memory.
const MOST: u64 = 10_000_000;
/// How many lines of the transcript are printed before what was broken.
const LINES: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct SeedsArgs {
    /// The seeds, from the first to before the last.
    #[arg(long, value_name = "FIRST..END", value_parser = range)]
    seeds: Option<Range<u64>>,
    /// How many worlds at once; one a processor unless given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Begin no seed after so many seconds, once --at-least are done.
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// How many seeds are run however long they take.
    #[arg(long, value_name = "SEEDS", default_value_t = 0, requires = "within")]
    at_least: u64,
    /// Where the seeds that held are kept, so that the next run of the same build goes on; nowhere when empty.
    #[arg(long, value_name = "FILE", default_value = "target/seeds.json")]
    state: String,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is no range of seeds: give FIRST..END, such as 0..1000");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let range = number(first)?..number(end)?;
    match range.end.checked_sub(range.start) {
        None | Some(0) => Err(wrong()),
        Some(count) if count > MOST => {
            Err(format!("{text:?} are {count} seeds, and a run takes at most {MOST}"))
        }
        Some(_) => Ok(range),
    }
}

impl SeedsArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let range = self.seeds.clone().unwrap_or(0..1_000);
        let mut progress =
            if self.state.is_empty() { Progress::none() } else { Progress::open(Path::new(&self.state))? };
        // Now, and not when a hundred thousand seeds are done.
        progress.save().with_context(|| format!("{} could not be written", self.state))?;
        let began = Instant::now();
        let jobs = self.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        let seeds = Seeds {
            range: range.clone(),
            jobs: jobs.unwrap_or(1),
            // Beyond the end of the clock there is no limit.
            until: (self.within.and_then(|within| began.checked_add(Duration::from_secs(within))))
                .map(|until| (until, self.at_least)),
        };
        let already = range.clone().filter(|seed| progress.is_done(*seed)).count() as u64;
        let mut bar = Bar::new(range.end - range.start, already);
        let mut total = Report::default();
        let broken = seeds::run(&seeds, &mut progress, |progress, report| {
            add(&mut total, report);
            bar.step();
            // After each, so that a run that is interrupted loses none. It takes a thousandth of what a world takes, and
            // whether it could be written is said below.
            let _ = progress.save();
        });
        bar.end();
        let (saved, broken) = (progress.save(), broken?);
        say!(
            "{} seeds in {:.0} s ({already} more were done before): {} faults, {} elections, {} tenures, {} writes \
             accepted, {} stale ones refused, {} simulated minutes",
            bar.done,
            began.elapsed().as_secs_f64(),
            total.faults,
            total.elections,
            total.tenures,
            total.writes,
            total.refused,
            total.simulated_ms / 60_000,
        )?;
        let Some(broken) = broken else {
            if bar.done == 0 && already == 0 {
                anyhow::bail!("no seed was run: give more time (--within), or a least number (--at-least)");
            }
            say!("everything held")?;
            saved.with_context(|| format!("{} could not be written", self.state))?;
            return Ok(ExitCode::SUCCESS);
        };
        say!("seed {} is broken; making it smaller", broken.seed)?;
        print(format_args!("{broken}"))?;
        tell(&shrink(&broken, SHRINKING, Trial::run)?)?;
        Ok(ExitCode::FAILURE)
    }
}

fn add(total: &mut Report, report: &Report) {
    total.faults += report.faults;
    total.elections += report.elections;
    total.tenures += report.tenures;
    total.writes += report.writes;
    total.refused += report.refused;
    total.simulated_ms += report.simulated_ms;
}

/// Prints how to see it again, what was broken, and what happened just before.
fn tell(shrunk: &Shrunk) -> anyhow::Result<()> {
    let again = shrunk.trial.arguments().join(" ");
    say!("\nafter {} tries this is left of it:\n", shrunk.tried)?;
    print(format_args!("{}", shrunk.report))?;
    let transcript = shrunk.trial.transcript()?;
    let lines: Vec<&str> = transcript.lines().collect();
    let last = shrunk.report.last_event().map_or(lines.len(), |event| (event + 1).min(lines.len()));
    say!("")?;
    for line in &lines[last.saturating_sub(LINES)..last] {
        say!("{line}")?;
    }
    say!("\nall of it: cargo run --release -p ringfence-sim -- {again} --transcript")
}

/// A line that shows how far it is, where somebody looks.
struct Bar {
    all: u64,
    already: u64,
    done: u64,
    began: Instant,
    shown: bool,
}

impl Bar {
    fn new(all: u64, already: u64) -> Bar {
        Bar { all, already, done: 0, began: Instant::now(), shown: std::io::stderr().is_terminal() }
    }

    fn step(&mut self) {
        self.done += 1;
        if !self.shown {
            return;
        }
        let rate = self.done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let (now, width) = (self.already + self.done, 30);
        let full = (width * now / self.all.max(1)).min(width) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(width as usize - full));
        let left = (self.all.saturating_sub(now)) as f64 / rate;
        let mut terminal = std::io::stderr();
        // One that went away is not worth an error.
        let _ =
            write!(terminal, "\r[{bar}] {now}/{} seeds, {rate:.1} a second, {left:.0} s left  ", self.all);
        let _ = terminal.flush();
    }

    fn end(&self) {
        if self.shown && self.done > 0 {
            note(format_args!(""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn a_range_of_seeds_says_what_is_wrong_with_it() {
        assert_eq!(range("3..7"), Ok(3..7));
        for bad in ["", "5", "5..5", "7..3", "a..b", "0..", "-1..4"] {
            assert!(range(bad).unwrap_err().contains("FIRST..END"), "{bad}");
        }
        assert!(range("0..18446744073709551615").unwrap_err().contains("at most"));
    }
}
