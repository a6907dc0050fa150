//! Storage and its fences: the shipped state mints the epochs, the shipped rule of the fence decides.

mod properties;
mod rules;
mod world;

pub use properties::{FENCED, G2, READ};
pub use rules::Rule;
pub use world::{Action, Scene, World};
