//! The timeline that a person follows: one line an event, with the seconds since the start.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// Prints events as they happen. With JSON output it prints nothing.
pub(super) struct Timeline {
    start: Instant,
    quiet: bool,
    colour: bool,
}

/// What an event means for whoever watches.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    /// It goes on.
    Plain,
    /// The demo breaks something.
    Fault,
    /// Something was defended, or recovered.
    Good,
    /// Something was corrupted.
    Bad,
}

impl Timeline {
    pub(super) fn new(quiet: bool) -> Timeline {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Timeline { start: Instant::now(), quiet, colour }
    }

    /// Prints one event. Whoever reads may have gone; the demo goes on.
    pub(super) fn say(&self, tone: Tone, text: &str) {
        if self.quiet {
            return;
        }
        let (on, off) = match (self.colour, tone) {
            (false, _) | (true, Tone::Plain) => ("", ""),
            (true, Tone::Fault) => ("\u{1b}[33m", "\u{1b}[0m"),
            (true, Tone::Good) => ("\u{1b}[32m", "\u{1b}[0m"),
            (true, Tone::Bad) => ("\u{1b}[31m", "\u{1b}[0m"),
        };
        let at = self.start.elapsed().as_secs_f64();
        let _ = writeln!(std::io::stdout(), "{at:7.3}s  {on}{text}{off}");
    }
}
