//! Leases and handoffs: the shipped state, leadership and lessee among elections, lags, clocks and losses.

mod action;
mod clock;
mod leader;
mod log;
mod properties;
mod rules;
mod scene;
mod step;
mod story;
mod worker;
mod world;

pub use action::Action;
pub use properties::{G2, G3, G4};
pub use rules::Rule;
pub use scene::Scene;
pub use world::{Progress, World};
