//! What stands in the way of moves that are to be approved: they would be passed over, or wait.

use crate::exit::Failed;
use crate::text::plain;
use ringfence::admin::Hindrance;
use serde::Serialize;
use std::io::{self, Write as _};

#[derive(Debug, Serialize)]
pub(super) struct HindranceShape {
    /// `passed_over` or `waits`.
    becomes: &'static str,
    moves: usize,
    /// What it is, and what to do.
    why: String,
}

impl From<&Hindrance> for HindranceShape {
    fn from(from: &Hindrance) -> HindranceShape {
        let becomes = if from.passed_over { "passed_over" } else { "waits" };
        HindranceShape { becomes, moves: from.moves, why: from.why.clone() }
    }
}

/// How many moves would be passed over.
pub(super) fn passed_over(all: &[HindranceShape]) -> usize {
    all.iter().filter(|one| one.becomes == "passed_over").map(|one| one.moves).sum()
}

/// Why moves are not put to the coordinator of which none would be made.
pub(super) fn none_is_made(all: &[HindranceShape], moves: usize) -> Failed {
    let why: Vec<String> =
        all.iter().map(|HindranceShape { moves, why, .. }| format!("{moves}: {why}")).collect();
    Failed::refused(format!(
        "none of the {moves} moves would be made, all would be passed over; nothing was approved: {}",
        why.join("; ")
    ))
}

/// A line for each.
pub(super) fn text(all: &[HindranceShape]) -> String {
    let line = |one: &HindranceShape| {
        let HindranceShape { becomes, moves, why } = one;
        let would = if *becomes == "waits" { "would wait" } else { "would be passed over" };
        format!("  - {moves} {would}: {}\n", plain(why))
    };
    all.iter().map(line).collect()
}

/// Says it before a question is asked, and before anything is done.
pub(super) fn warn(all: &[HindranceShape]) {
    if !all.is_empty() {
        // Whoever closed it does not want to hear it.
        let _ = write!(io::stderr(), "note: of these moves\n{}", text(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> [HindranceShape; 2] {
        let of = |becomes, moves, why: &str| HindranceShape { becomes, moves, why: why.to_owned() };
        [of("waits", 3, "keyspace orders is frozen"), of("passed_over", 1, "worker w2 is drained\u{1b}[2J")]
    }

    #[test]
    fn what_keeps_all_of_the_moves_is_told_whole() {
        let Failed::Error { code, message, .. } = none_is_made(&two()[1..], 1) else { panic!() };
        assert_eq!(code, "refused");
        assert!(
            message.contains("none of the 1 moves") && message.contains("1: worker w2 is drained"),
            "{message}"
        );
    }

    #[test]
    fn what_waits_is_told_from_what_is_passed_over() {
        assert_eq!(passed_over(&two()), 1);
        assert_eq!(
            text(&two()),
            "  - 3 would wait: keyspace orders is frozen\n\
             \u{20} - 1 would be passed over: worker w2 is drained\\u{1b}[2J\n"
        );
    }
}
