//! The contract of a fence as tests, for storage of your own.
//!
//! Implement [`Subject`], [`Store`] and [`Handle`] for the storage ([`AsyncHandle`] where its client is async), and run the
//! suite from a test. This is all of it for a storage of two maps:
//!
//! ```
//! use ringfence_core::ids::{ClusterId, Epoch, Scope};
//! use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject, run};
//! use ringfence_fence::{FenceError, FencingToken, HighWater, same_cluster};
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! struct Shop; // the kind of storage
//!
//! #[derive(Clone)]
//! struct Client(ClusterId, Arc<Mutex<(BTreeMap<Scope, HighWater>, BTreeMap<String, String>)>>); // fence, data
//!
//! impl Subject for Shop {
//!     type Store = Client;
//!     fn fresh(&self, cluster: &ClusterId) -> Result<Client, FenceError> {
//!         Ok(Client(cluster.clone(), Arc::default()))
//!     }
//!     fn keeps_sessions(&self) -> bool { true }
//! }
//!
//! impl Store for Client {
//!     type Handle = Client;
//!     fn open(&self) -> Result<Client, FenceError> { Ok(self.clone()) }
//!     fn crash(&mut self) -> Result<Crash, FenceError> { Ok(Crash::LosesEverything) }
//!     fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
//!         self.1.lock().unwrap().1.clear();
//!         Ok(CleanUp::Done)
//!     }
//! }
//!
//! impl Handle for Client {
//!     fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
//!         same_cluster(&self.0, token)?;
//!         let (fence, _) = &mut *self.1.lock().unwrap();
//!         let row = HighWater::raise(fence.get(token.scope()).copied(), token)?;
//!         fence.insert(token.scope().clone(), row);
//!         Ok(())
//!     }
//!
//!     fn write(&mut self, tokens: &[FencingToken], pairs: &[(&str, &str)], paused: &mut dyn FnMut())
//!     -> Result<(), FenceError> {
//!         if tokens.is_empty() { return Err(FenceError::Unstamped); }
//!         let (fence, data) = &mut *self.1.lock().unwrap(); // from the check to the end of the write
//!         let mut after = fence.clone();
//!         let mut tokens = tokens.to_vec();
//!         tokens.sort_by_key(|token| std::cmp::Reverse(token.epoch())); // the newest makes the older one refused
//!         for token in &tokens {
//!             same_cluster(&self.0, token)?;
//!             let row = HighWater::check(after.get(token.scope()).copied(), token)?;
//!             after.insert(token.scope().clone(), row);
//!         }
//!         paused(); // here a process may stop for as long as it likes
//!         *fence = after;
//!         data.extend(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())));
//!         Ok(())
//!     }
//!
//!     fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> { Ok(self.1.lock().unwrap().1.clone()) }
//!     fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
//!         Ok(self.1.lock().unwrap().0.get(scope).map(|row| row.epoch()))
//!     }
//! }
//!
//! let report = run(&Shop);
//! assert!(report.conforms(), "{report}");
//! ```
//!
//! Each [`Rule`] stands for a way in which a fence was wrong somewhere; [`Rule::failure`] tells it. A rule tests from
//! outside, through several handles to one store; it does not read the adapter. What it cannot see, such as a raise that is
//! answered before it is on disk when the crash is not hard enough, `docs/conformance.md` lists.
//!
//! A suite that passes everything proves nothing. [`broken`] has storages with one known flaw each, and each is found by
//! the rule that is there for it. Do the same with your adapter's check taken out: the suite has to fail.

mod blocking;
pub mod broken;
mod memory;
mod report;
mod rule;
mod rules;
mod stage;
mod subject;

pub use blocking::{AsyncHandle, Blocking};
pub use memory::{MemoryStore, MemorySubject};
pub use report::{Outcome, Report};
pub use rule::Rule;
pub use subject::{CleanUp, Crash, Handle, Store, Subject};

/// Runs every rule, each on a fresh store.
pub fn run<S: Subject>(subject: &S) -> Report {
    Report::new(Rule::ALL.iter().map(|rule| (*rule, run_rule(subject, *rule))))
}

/// Runs one rule on a fresh store.
///
/// A store that hangs is given up after ten seconds where a rule runs threads; the thread is left behind.
pub fn run_rule<S: Subject>(subject: &S, rule: Rule) -> Outcome {
    use rules::{cleanup, compare, crash, effect, race, scopes, storm};
    let verdict = match rule {
        Rule::EqualAccepted => compare::equal_accepted(subject),
        Rule::NewerAccepted => compare::newer_accepted(subject),
        Rule::OlderRefused => compare::older_refused(subject),
        Rule::ForwardOnly => compare::forward_only(subject),
        Rule::NeverRaisedRefused => compare::never_raised_refused(subject),
        Rule::ImplausibleRefused => compare::implausible_refused(subject),
        Rule::Width => compare::width(subject),
        Rule::ScopesApart => scopes::scopes_apart(subject),
        Rule::OneSession => compare::one_session(subject),
        Rule::OtherClusterRefused => compare::other_cluster_refused(subject),
        Rule::RefusalChangesNothing => effect::refusal_changes_nothing(subject),
        Rule::UntouchedRowsFenced => effect::untouched_rows_fenced(subject),
        Rule::RaiseFences => effect::raise_fences(subject),
        Rule::UnstampedRefused => effect::unstamped_refused(subject),
        Rule::SeveralScopesAllOrNothing => scopes::several_scopes_all_or_nothing(subject),
        Rule::ScopeNamedTwice => scopes::scope_named_twice(subject),
        Rule::OneStep => race::one_step(subject),
        Rule::OneStepForWrites => race::one_step_for_writes(subject),
        Rule::OneStepForEveryScope => race::one_step_for_every_scope(subject),
        Rule::NoDeadlock => race::no_deadlock(subject),
        Rule::RacingRaises => storm::racing_raises(subject),
        Rule::ManyWriters => storm::many_writers(subject),
        Rule::SurvivesCrash => crash::survives_crash(subject),
        Rule::CrashKeepsBinding => crash::crash_keeps_binding(subject),
        Rule::SurvivesCleanUp => cleanup::survives_clean_up(subject),
    };
    match verdict {
        Ok(()) => Outcome::Held,
        Err(stage::End::Broken(what)) => Outcome::Broken(what),
        Err(stage::End::DoesNotApply(why)) => Outcome::DoesNotApply(why),
    }
}
