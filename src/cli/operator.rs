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
        let admin = admin.by(self.name());
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
    pub(crate) fn or_terminal(self, who: &Who) -> Result<(), Failed> {
        if self.yes || who.dry_run || io::stdin().is_terminal() {
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
        let mut terminal = io::stderr();
        write!(terminal, "{}\nGo on? [y/N] ", plain(what))?;
        terminal.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if is_yes(&answer) { Ok(()) } else { Err(Failed::refused("nothing was done")) }
    }
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

/// How far something is that is waited for: one line on standard error that is written anew, when a person looks at it.
pub(crate) struct Progress {
    shown: Option<String>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { shown: None }
    }

    /// Shows a line when it says something new.
    pub(crate) fn show(&mut self, line: String) {
        if self.shown.as_ref() != Some(&line) && io::stderr().is_terminal() {
            // Back to the beginning of the line, and nothing after it is left. A terminal that is gone has nobody to tell.
            let _ = write!(io::stderr(), "\r{}\x1b[K", plain(&line));
            let _ = io::stderr().flush();
        }
        self.shown = Some(line);
    }
}

/// What follows begins on a line of its own.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() && io::stderr().is_terminal() {
            let _ = writeln!(io::stderr());
        }
    }
}

/// A bar as wide as it is far: `[#####-----] 5/10`.
pub(crate) fn bar(done: u64, of: u64) -> String {
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
}
