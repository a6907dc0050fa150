//! Explores a world and says what was found.

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A model whose steps can be told.
pub trait Story: Model {
    /// What happened between two states.
    fn tell(&self, before: &Self::State, action: &Self::Action, after: &Self::State) -> String;

    /// The same world, with `TIME_IS_UP` among what can be seen in it from then on.
    fn until(self, at: Instant) -> Self;
}

/// Seen in every state that is looked at too late. The checker has a limit of its own, which it keeps only when it works
/// with several threads; and with several, a counterexample is not the shortest.
pub(super) const TIME_IS_UP: &str = "the time is up";

/// The property of that name in a world that ends then.
pub(super) fn is_up(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// What a world was found to be like.
#[derive(Clone, Debug)]
pub struct Report {
    /// The world.
    pub name: String,
    /// How many different states were seen.
    pub states: usize,
    /// How many steps the furthest of them is away.
    pub depth: usize,
    /// Every state that there is was seen. Otherwise it was cut off, by time or by a violation.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
    /// What held in every state that was looked at.
    pub held: Vec<&'static str>,
    /// What should be seen in some state, and was in none that was looked at.
    pub unseen: Vec<&'static str>,
    /// What did not hold, and the steps to where it did not.
    pub violation: Option<Violation>,
}

/// A counterexample. There is none with fewer steps.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What did not hold.
    pub property: &'static str,
    /// How it came about.
    pub steps: Vec<String>,
}

impl Report {
    /// Everything held in a world that was explored to its end, and nothing that should be seen is missing.
    pub fn proves(&self) -> bool {
        self.complete && self.violation.is_none() && self.unseen.is_empty()
    }

    /// The time was up before everything was seen, and nothing was found until then.
    pub fn is_cut_off(&self) -> bool {
        !self.complete && self.violation.is_none()
    }

    /// One word on it.
    pub fn verdict(&self) -> &'static str {
        match (&self.violation, self.unseen.is_empty(), self.complete) {
            (Some(_), ..) => "VIOLATED",
            (None, false, true) => "VACUOUS",
            (None, _, true) => "holds",
            (None, _, false) => "CUT OFF, proves nothing",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (extent, held, unseen) = if self.complete {
            ("complete", "holds     ", "never seen")
        } else {
            ("not explored to its end", "held so far", "not seen yet")
        };
        let Report { name, states, depth, took, .. } = self;
        let took = took.as_secs_f32();
        writeln!(f, "{name}: {}; {states} states, depth {depth}, {extent}, {took:.1} s", self.verdict())?;
        for property in &self.held {
            writeln!(f, "  {held} {property}")?;
        }
        for property in &self.unseen {
            writeln!(f, "  {unseen} {property}")?;
        }
        if let Some(Violation { property, steps }) = &self.violation {
            writeln!(f, "  VIOLATED   {property}, in {} steps:", steps.len())?;
            for (number, step) in steps.iter().enumerate() {
                writeln!(f, "    {:2}  {step}", number + 1)?;
            }
        }
        Ok(())
    }
}

/// Explores a world, the nearest states first, until all are seen, something does not hold, or the time is up: to within
/// the next 1500 states, which is how often the checker looks up.
pub fn explore<M>(name: &str, model: M, limit: Option<Duration>) -> Report
where
    M: Story + Clone + Send + Sync + 'static,
    M::State: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + fmt::Debug + PartialEq + Send + Sync + 'static,
{
    let begun = Instant::now();
    // Beyond the end of the clock there is no limit.
    let model = match limit.and_then(|limit| begun.checked_add(limit)) {
        Some(until) => model.until(until),
        None => model,
    };
    let mut properties = model.properties();
    properties.retain(|property| property.name != TIME_IS_UP);
    let invariants: BTreeSet<&'static str> =
        properties.iter().filter(|p| p.expectation == Expectation::Always).map(|p| p.name).collect();
    let ends_with = invariants.iter().copied().chain([TIME_IS_UP]).collect();
    let checker = model.clone().checker().threads(1).finish_when(HasDiscoveries::AnyOf(ends_with));
    let checker = checker.spawn_bfs().join();
    let took = begun.elapsed();
    let mut report = Report {
        name: name.to_owned(),
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: !checker.discoveries().contains_key(TIME_IS_UP),
        took,
        held: Vec::new(),
        unseen: Vec::new(),
        violation: None,
    };
    for property in properties {
        match (checker.discovery(property.name), invariants.contains(property.name)) {
            (None, true) => report.held.push(property.name),
            (None, false) => report.unseen.push(property.name),
            (Some(_), false) => {}
            (Some(path), true) => {
                let path = path.into_vec();
                let steps = path.windows(2).filter_map(|pair| match pair {
                    [(before, Some(action)), (after, _)] => Some(model.tell(before, action, after)),
                    _ => None,
                });
                report.violation = Some(Violation { property: property.name, steps: steps.collect() });
                report.complete = false;
            }
        }
    }
    // Where a violation stopped it, the rest was not looked at.
    if report.violation.is_some() {
        report.held.clear();
        report.unseen.clear();
    }
    report
}
