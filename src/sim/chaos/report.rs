//! What a run came to.

use crate::checker::{Rule, Violation};
use ringfence::ids::Scope;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The figures of one keyspace.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// `takeover = fence`; otherwise `lease`.
    pub by_fence: bool,
    /// Times that an owner's task began.
    pub tenures: u64,
    /// Writes that workers were told had taken effect.
    pub writes_acknowledged: u64,
    /// Writes of replaced owners that the fence refused.
    pub stale_writes_refused: u64,
}

/// The figures.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What decided on faults.
    pub seed: u64,
    /// The workers' storage checked tokens.
    pub fence: bool,
    /// How long it took.
    pub seconds: u64,
    /// Histories that were judged.
    pub rounds: u64,
    /// Rounds in which no calm came. It is a violation unless the run itself was measured to be late meanwhile: then the
    /// machine was too busy for leases to last, and nobody can say whether calm would have come.
    pub rounds_never_calm: u64,
    /// What was broken how often.
    pub faults: BTreeMap<String, u64>,
    /// Of those, how many the process did not notice.
    pub without_effect: BTreeMap<String, u64>,
    /// How often the system really refused a file descriptor to a process (EMFILE).
    pub files_refused: u64,
    /// What this machine has no tools for.
    pub skipped: Vec<String>,
    /// Times that an owner's task began.
    pub tenures: u64,
    /// Writes that workers were told had taken effect.
    pub writes_acknowledged: u64,
    /// Writes of which nobody knows.
    pub writes_unknown: u64,
    /// Reads that found something out.
    pub reads: u64,
    /// Writes of replaced owners that the fence refused.
    pub stale_writes_refused: u64,
    /// Writes of replaced owners that the storage took.
    pub stale_writes_accepted: u64,
    /// The same by keyspace, each with its `takeover`.
    pub keyspaces: BTreeMap<String, Figures>,
    /// Events of all histories.
    pub events: u64,
    /// What was broken of what is promised.
    pub violations: Vec<Violation>,
    /// Where the histories with violations are kept.
    pub kept: Option<String>,
}

impl Report {
    /// Counts something of a partition's keyspace.
    pub(super) fn of(&mut self, scope: &Scope, count: impl FnOnce(&mut Figures)) {
        if let Scope::Partition(keyspace, _) = scope
            && let Some(figures) = self.keyspaces.get_mut(keyspace.as_str())
        {
            count(figures);
        }
    }

    /// Why the run did not show what it should; `None` when it did. Without the fence it has to show corruption.
    pub fn shortfall(&self) -> Option<String> {
        let found = |rule| self.violations.iter().any(|violation| violation.rule == rule);
        let empty = self.writes_acknowledged == 0 || self.tenures == 0;
        match (self.fence, self.stale_writes_accepted, self.violations.len()) {
            _ if empty => Some("nothing was written, or nothing changed hands".to_owned()),
            (true, 0, 0) if self.rounds > 0 && self.rounds_never_calm == self.rounds => {
                Some("the machine was too busy for the TTL: no round grew calm".to_owned())
            }
            (true, 0, 0) => None,
            (true, stale, violations) => {
                Some(format!("{violations} violations, {stale} stale writes accepted"))
            }
            (false, 0, _) => Some("no stale write was accepted although there was no fence".to_owned()),
            (false, ..) if !found(Rule::StaleAccepted) => {
                Some("stale writes were accepted, and the checker did not find them".to_owned())
            }
            (false, ..) => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.faults.values().sum();
        writeln!(f, "{:<24}{}", "seed", self.seed)?;
        writeln!(f, "{:<24}{} in {} s", "rounds", self.rounds, self.seconds)?;
        writeln!(f, "{:<24}{total}", "faults")?;
        for (kind, count) in &self.faults {
            write!(f, "  {kind:<30}{count:>5}")?;
            match self.without_effect.get(kind) {
                Some(none) => writeln!(f, ", {none} of them without effect")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "{:<24}{}", "descriptors refused", self.files_refused)?;
        let rows = [
            ("tenures", self.tenures),
            ("writes acknowledged", self.writes_acknowledged),
            ("writes of unknown end", self.writes_unknown),
            ("reads", self.reads),
            ("stale writes refused", self.stale_writes_refused),
            ("stale writes accepted", self.stale_writes_accepted),
            ("events judged", self.events),
            ("rounds never calm", self.rounds_never_calm),
            ("violations", self.violations.len() as u64),
        ];
        for (name, count) in rows {
            writeln!(f, "{name:<24}{count}")?;
        }
        for (name, figures) in &self.keyspaces {
            writeln!(
                f,
                "{:<24}{} tenures, {} writes acknowledged, {} stale refused; takeover = {}",
                format!("keyspace {name}"),
                figures.tenures,
                figures.writes_acknowledged,
                figures.stale_writes_refused,
                if figures.by_fence { "fence" } else { "lease" },
            )?;
        }
        for skipped in &self.skipped {
            writeln!(f, "SKIPPED {skipped}")?;
        }
        const SHOWN: usize = 10;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "VIOLATION {violation}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "... and {} more", self.violations.len() - SHOWN)?;
        }
        if let Some(kept) = &self.kept {
            writeln!(f, "histories and logs are kept in {kept}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_shows_something_or_says_why_not() {
        let violation = Violation { rule: Rule::StaleAccepted, text: String::new(), events: vec![] };
        let other = Violation { rule: Rule::Lost, ..violation.clone() };
        let short = |fence, writes_acknowledged, stale_writes_accepted, violations: &[&Violation]| {
            let violations = violations.iter().map(|v| (*v).clone()).collect();
            let report = Report {
                fence,
                writes_acknowledged,
                stale_writes_accepted,
                violations,
                tenures: 1,
                ..Report::default()
            };
            report.shortfall().is_some()
        };
        assert!(!short(true, 1, 0, &[]));
        assert!(short(true, 0, 0, &[]), "nothing was written");
        assert!(short(true, 1, 1, &[&violation]) && short(true, 1, 0, &[&other]));
        assert!(!short(false, 1, 1, &[&violation]));
        assert!(short(false, 1, 0, &[&other]), "no corruption without the fence");
        assert!(short(false, 1, 1, &[&other]), "it was not found");
    }

    #[test]
    fn a_run_that_never_grew_calm_showed_nothing() {
        let short = |rounds_never_calm| {
            let report = Report {
                fence: true,
                rounds: 2,
                rounds_never_calm,
                writes_acknowledged: 1,
                tenures: 1,
                ..Report::default()
            };
            report.shortfall().is_some()
        };
        assert_eq!((short(0), short(1), short(2)), (false, false, true));
    }
}
