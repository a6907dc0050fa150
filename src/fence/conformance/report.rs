//! What a run came to.

use super::Rule;
use std::fmt;

/// What one rule came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store keeps the rule.
    Held,
    /// It does not; the text says what was seen.
    Broken(String),
    /// The rule says nothing about this store, for this reason.
    DoesNotApply(&'static str),
}

/// What every rule came to. Displayed, it is one line a rule, and two for a broken one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    outcomes: Vec<(Rule, Outcome)>,
}

impl Report {
    pub(super) fn new(outcomes: impl Iterator<Item = (Rule, Outcome)>) -> Report {
        Report { outcomes: outcomes.collect() }
    }

    /// Whether no rule is broken.
    pub fn conforms(&self) -> bool {
        self.broken().next().is_none()
    }

    /// What one rule came to; `None` when it was not run.
    pub fn of(&self, rule: Rule) -> Option<&Outcome> {
        self.outcomes().find(|(run, _)| *run == rule).map(|(_, outcome)| outcome)
    }

    /// The broken rules.
    pub fn broken(&self) -> impl Iterator<Item = Rule> {
        self.outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Broken(_)))
            .map(|(rule, _)| *rule)
    }

    /// Every rule with what it came to.
    pub fn outcomes(&self) -> impl Iterator<Item = (Rule, &Outcome)> {
        self.outcomes.iter().map(|(rule, outcome)| (*rule, outcome))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rule, outcome) in &self.outcomes {
            let name = rule.name();
            match outcome {
                Outcome::Held => writeln!(f, "held    {name}")?,
                Outcome::Broken(what) => {
                    writeln!(f, "BROKEN  {name}: {what}")?;
                    writeln!(f, "        the rule: {rule}. Without it: {}", rule.failure())?;
                }
                Outcome::DoesNotApply(why) => writeln!(f, "-       {name}: {why}")?,
            }
        }
        Ok(())
    }
}
