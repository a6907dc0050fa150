//! Who decides something, why, and whether it is meant.
//!
//! What is decided about placement is remembered with a name and a reason. What is large or destroys something is asked
//! about on a terminal; where nobody can be asked, `--yes` has to be said.

use crate::args::Common;
use crate::exit::Failed;
use crate::text::plain;
use clap::Args;
use ringfence::admin::Admin;
use std::io::{self, IsTerminal as _, Write as _};

/// How long a name or a reason may be, in bytes: the coordinator keeps no more.
const MAX_TEXT_BYTES: usize = 256;

/// What every verb takes that decides something about placement.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Who and why")]
pub(crate) struct Who {
    /// Who decides it, for histories [default: USER, or unknown]
    #[arg(long, env = "RINGFENCE_OPERATOR", value_name = "NAME", value_parser = text)]
    by: Option<String>,
    /// Why, for histories
    #[arg(long, value_name = "TEXT", value_parser = text)]
    reason: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What a verb takes besides that is large, or destroys something.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Who and why")]
pub(crate) struct Sure {
    /// Yes, it is meant: do not ask
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

impl Who {
    /// Who is asked, in whose name and why.
    pub(crate) fn admin(&self, common: &Common) -> Admin {
        self.asking(common.admin())
    }

    /// The same over connections that are there.
    pub(crate) fn asking(&self, admin: Admin) -> Admin {
        let admin = match self.by.as_ref().filter(|by| !by.is_empty()) {
            Some(by) => admin.by(by),
            None => admin.assumed_by(self.name()),
        };
        match &self.reason {
            Some(reason) => admin.because(reason),
            None => admin,
        }
    }
}

impl Who {
    /// The name that is remembered.
    pub(crate) fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        let by = self.by.clone().filter(|by| !by.is_empty()).or_else(user);
        by.unwrap_or_else(|| "unknown".to_owned())
    }
}

impl Sure {
    /// It was asked about already.
    pub(crate) fn asked(self) -> Sure {
        Sure { yes: true }
    }

    /// Fails, before anything is asked of the cluster, when there is nobody who could be asked and `--yes` was not said.
    pub(crate) fn or_terminal(self, dry_run: bool) -> Result<(), Failed> {
        if self.yes || dry_run || io::stdin().is_terminal() {
            return Ok(());
        }
        Err(Failed::usage(
            "this has to be confirmed, and standard input is no terminal: say --yes, or --dry-run to see what it would do",
        ))
    }

    /// Asks whether this is meant, unless that was said.
    pub(crate) fn ask(self, what: &str) -> Result<(), Failed> {
        if self.yes {
            return Ok(());
        }
        // Whoever cannot be asked has not said yes, and a closed stream is no end of the command that is as good as any.
        let answer = answer_to(what)
            .map_err(|e| Failed::io(format!("nothing was done: it could not be asked: {e}")))?;
        if is_yes(&answer) { Ok(()) } else { Err(Failed::refused("nothing was done")) }
    }
}

fn answer_to(question: &str) -> io::Result<String> {
    let mut terminal = io::stderr();
    write!(terminal, "{}\nGo on? [y/N] ", plain(question))?;
    terminal.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}

fn text(text: &str) -> Result<String, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("it has {} bytes, and {MAX_TEXT_BYTES} are kept", text.len()));
    }
    Ok(text.to_owned())
}

/// The word for what became of a change.
pub(crate) fn result(changed: bool) -> &'static str {
    if changed { "changed" } else { "unchanged" }
}

/// The word for what would become of it.
pub(crate) fn planned(would_change: bool) -> &'static str {
    if would_change { "planned" } else { "unchanged" }
}

/// In how many steps what is waited for is told where no person looks.
const STEPS: u64 = 10;

/// How far something is that is waited for, on standard error: on a terminal a bar that is drawn anew, and elsewhere a
/// plain line at each tenth, so that the log of a hook that waits is short and says where it stands.
pub(crate) struct Progress<W: io::Write = io::Stderr> {
    to: W,
    terminal: bool,
    shown: Option<String>,
    step: Option<u64>,
    held: Option<String>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let to = io::stderr();
        let terminal = to.is_terminal();
        Progress { to, terminal, shown: None, step: None, held: None }
    }
}

impl<W: io::Write> Progress<W> {
    /// So many of all are done: `partitions gone`.
    pub(crate) fn show(&mut self, done: u64, of: u64, what: &str) {
        if self.terminal {
            return self.redraw(format!("{} {what}", bar(done, of)));
        }
        let step = done.min(of).saturating_mul(STEPS).checked_div(of).unwrap_or(STEPS);
        if self.step != Some(step) {
            self.step = Some(step);
            // A log that is gone has nobody to tell.
            let _ = writeln!(self.to, "{done}/{of} {}", plain(what));
        }
    }

    /// Something that has no number of all.
    pub(crate) fn say(&mut self, line: String) {
        if self.terminal {
            return self.redraw(line);
        }
        if self.step.take().is_some() {
            let _ = writeln!(self.to, "{}", plain(&line));
        }
    }

    /// It does not go on, and why: said once, and again when that is something else.
    pub(crate) fn hold(&mut self, line: String) {
        if self.terminal {
            return self.redraw(line);
        }
        if self.held.as_ref() != Some(&line) {
            let _ = writeln!(self.to, "{}", plain(&line));
        }
        self.held = Some(line);
    }

    /// Back to the beginning of the line, and nothing after it is left.
    fn redraw(&mut self, line: String) {
        if self.shown.as_ref() != Some(&line) {
            // A terminal that is gone has nobody to tell.
            let _ = write!(self.to, "\r{}\x1b[K", plain(&line));
            let _ = self.to.flush();
        }
        self.shown = Some(line);
    }
}

/// What follows begins on a line of its own.
impl<W: io::Write> Drop for Progress<W> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = writeln!(self.to);
        }
    }
}

/// A bar as wide as it is far: `[#####-----] 5/10`.
fn bar(done: u64, of: u64) -> String {
    const WIDTH: u64 = 30;
    let of = of.max(done).max(1);
    let full = usize::try_from(u128::from(done) * u128::from(WIDTH) / u128::from(of)).unwrap_or(0);
    format!("[{}{}] {done}/{of}", "#".repeat(full), "-".repeat(WIDTH as usize - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        for yes in ["y\n", "yes\n", " Y "] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yes please\n", "yy\n"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }

    #[test]
    fn what_would_be_cut_is_bad_usage_and_says_the_bound() {
        assert_eq!(text(&"x".repeat(256)).unwrap().len(), 256);
        assert!(text(&"x".repeat(257)).unwrap_err().contains("256"));
    }

    #[test]
    fn a_bar_ends_when_it_is_done() {
        assert_eq!(bar(0, 4), format!("[{}] 0/4", "-".repeat(30)));
        assert_eq!(bar(4, 4), format!("[{}] 4/4", "#".repeat(30)));
        assert!(bar(1, 2).starts_with(&format!("[{}-", "#".repeat(15))));
        assert!(bar(u64::MAX, u64::MAX).contains("##") && bar(9, 4).contains("9/9"));
    }

    fn told(terminal: bool) -> String {
        let mut to = Vec::new();
        let mut progress = Progress { to: &mut to, terminal, shown: None, step: None, held: None };
        for done in 0..=100 {
            progress.show(done, 100, "partitions gone");
            progress.show(done, 100, "partitions gone");
        }
        progress.say("3 left".to_owned());
        progress.say("2 left".to_owned());
        drop(progress);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn where_no_person_looks_progress_is_plain_lines_and_few() {
        let told = told(false);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 12, "{told}");
        assert_eq!((lines[0], lines[1]), ("0/100 partitions gone", "10/100 partitions gone"));
        assert_eq!(lines[10..], ["100/100 partitions gone", "3 left"]);
        assert!(!told.contains(['\r', '\x1b', '#']), "{told:?}");
    }

    #[test]
    fn on_a_terminal_progress_is_one_line_that_is_drawn_anew() {
        let told = told(true);
        assert_eq!(told.matches('\r').count(), 101 + 2, "once for each change: {told:?}");
        assert!(told.contains("\r[###---------------------------] 10/100 partitions gone\x1b[K"), "{told:?}");
        assert_eq!(told.lines().count(), 1);
        assert!(told.ends_with("\r2 left\x1b[K\n"), "{told:?}");
    }

    #[test]
    fn why_it_does_not_go_on_is_said_once() {
        let mut to = Vec::new();
        let mut progress = Progress { to: &mut to, terminal: false, shown: None, step: None, held: None };
        for why in ["frozen", "frozen", "the brake", "frozen"] {
            progress.hold(why.to_owned());
        }
        drop(progress);
        assert_eq!(to, b"frozen\nthe brake\nfrozen\n");
    }

    #[test]
    fn nothing_to_wait_for_is_done() {
        let mut to = Vec::new();
        Progress { to: &mut to, terminal: false, shown: None, step: None, held: None }.show(
            0,
            0,
            "partitions gone",
        );
        assert_eq!(to, b"0/0 partitions gone\n");
    }
}
