//! The contract of a fence as tests, for storage of your own.
//!
//! Implement [`Subject`], [`Store`] and [`Handle`] for the storage and run the suite from a test:
//!
//! ```
//! use ringfence_fence::conformance::{MemorySubject, run};
//!
//! let report = run(&MemorySubject); // your subject here
//! assert!(report.conforms(), "{report}");
//! ```
//!
//! Each [`Rule`] stands for a way in which a fence was wrong somewhere. A rule tests from outside, through two handles to
//! one store; it does not read the adapter. The suite has been run against stores with one known flaw each, and each was
//! found by the rule that names it: a suite that passes everything proves nothing, so do the same with your adapter's
//! check taken out.

mod memory;
mod report;
mod rule;
mod rules;
mod stage;
mod subject;

pub use memory::{MemoryStore, MemorySubject};
pub use report::{Outcome, Report};
pub use rule::Rule;
pub use subject::{Crash, Handle, Store, Subject};

/// Runs every rule, each on a fresh store.
pub fn run<S: Subject>(subject: &S) -> Report {
    Report::new(Rule::ALL.iter().map(|rule| (*rule, run_rule(subject, *rule))))
}

/// Runs one rule on a fresh store.
///
/// A store that hangs is given up after ten seconds where a rule runs threads; the thread is left behind.
pub fn run_rule<S: Subject>(subject: &S, rule: Rule) -> Outcome {
    use rules::{compare, crash, effect, race};
    let verdict = match rule {
        Rule::EqualAccepted => compare::equal_accepted(subject),
        Rule::OlderRefused => compare::older_refused(subject),
        Rule::ForwardOnly => compare::forward_only(subject),
        Rule::NeverRaisedRefused => compare::never_raised_refused(subject),
        Rule::ImplausibleRefused => compare::implausible_refused(subject),
        Rule::Width => compare::width(subject),
        Rule::ScopesApart => compare::scopes_apart(subject),
        Rule::OneSession => compare::one_session(subject),
        Rule::OtherClusterRefused => compare::other_cluster_refused(subject),
        Rule::RefusalChangesNothing => effect::refusal_changes_nothing(subject),
        Rule::UntouchedRowsFenced => effect::untouched_rows_fenced(subject),
        Rule::RaiseFences => effect::raise_fences(subject),
        Rule::UnstampedRefused => effect::unstamped_refused(subject),
        Rule::SeveralScopesAllOrNothing => effect::several_scopes_all_or_nothing(subject),
        Rule::OneStep => race::one_step(subject),
        Rule::NoDeadlock => race::no_deadlock(subject),
        Rule::SurvivesCrash => crash::survives_crash(subject),
    };
    match verdict {
        Ok(()) => Outcome::Held,
        Err(stage::End::Broken(what)) => Outcome::Broken(what),
        Err(stage::End::DoesNotApply(why)) => Outcome::DoesNotApply(why),
    }
}
