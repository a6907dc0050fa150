//! Storages with one known flaw each, to see the suite find it.
//!
//! They are for tests: of the suite itself, and of whoever wants to see what a report of a broken storage looks like.
//!
//! ```
//! use ringfence_fence::conformance::broken::{Broken, Flaw};
//! use ringfence_fence::conformance::{Outcome, Rule, run_rule};
//!
//! // The guard that people write first: `UPDATE .. WHERE fence <= 33`, on each row.
//! let storage = Broken::with(Flaw::PerRow);
//! let Outcome::Broken(why) = run_rule(&storage, Rule::UntouchedRowsFenced) else { panic!() };
//! assert!(why.contains("accepted"), "{why}");
//!
//! // It looks right where nobody tries a row that the new owner has not written.
//! assert_eq!(run_rule(&storage, Rule::EqualAccepted), Outcome::Held);
//! ```
//!
//! A store in memory, where everything is a map behind a lock, so that the flaw is all there is to see. A sound one is
//! [`Broken::without_a_flaw`]. `docs/conformance.md` has the table of flaws and of the rules that find them.

mod flaw;
mod rules;
mod store;

pub use flaw::Flaw;
pub use store::{BrokenHandle, BrokenStore};

use super::Subject;
use crate::FenceError;
use ringfence_core::ids::ClusterId;

/// A kind of storage with one flaw, or with none.
#[derive(Clone, Copy, Debug)]
pub struct Broken(Option<Flaw>);

impl Broken {
    /// The storage with this flaw, and no other.
    pub const fn with(flaw: Flaw) -> Broken {
        Broken(Some(flaw))
    }

    /// The same storage, sound: what is found with a flaw is not found without it.
    pub const fn without_a_flaw() -> Broken {
        Broken(None)
    }
}

impl Subject for Broken {
    type Store = BrokenStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<BrokenStore, FenceError> {
        Ok(BrokenStore::new(self.0, cluster))
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}
