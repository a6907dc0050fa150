//! The proof: a whole ringfence world from one seed, its faults, its mutants, and the checker that judges what happened.
//!
//! Nothing of the product depends on this crate, and it brings no second implementation of anything: coordinators, SDK and
//! fences are the shipped ones, run on a simulated network, disk and clock.

mod actors;
pub mod chaos;
pub mod checker;
pub mod fuzz;
pub mod history;
mod leash;
mod ledger;
pub mod model;
pub mod mutants;
pub mod run;
pub mod seeds;
pub mod world;
