//! The state, told as stories and hammered with random entries.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | a state with helpers, for stories that read top to bottom |
//! | `handoff` | the transition table of a partition |
//! | `sessions` | join, replacement, suspicion, expiry, leaving |
//! | `retries` | requests that take effect once |
//! | `epochs` | G2 and the ends of ranges |
//! | `entries` | all or nothing, and the one exception |
//! | `locks` | who gets a lock, in which order, and what a lost one waits for |
//! | `directives` | what operators decide |
//! | `plans` | plans that an operator approved |
//! | `splits` | every partition of a keyspace in two |
//! | `reasserts` | fences that are raised again, and storage that has seen more than was granted |
//! | `refusals` | writes that storage refused |
//! | `parts` | the state as plain data, and what is refused as such |
//! | `random` | random commands that mostly fit the state they meet; the api's tests use it too |
//! | `properties` | what holds after any sequence of entries |

mod directives;
mod entries;
mod epochs;
mod handoff;
mod locks;
mod parts;
mod plans;
mod properties;
mod random;
mod reasserts;
mod refusals;
mod retries;
mod sessions;
mod splits;
mod world;

/// What `random` is written against: the same file is compiled into the api's tests, where the paths differ.
mod core {
    pub(super) use crate::{ids, placement, state};
}
