//! A partition that is split: the shipped state splits it and mints the epochs, the shipped fence refuses.

mod properties;
mod rules;
mod world;

pub use properties::{FENCED, G2, READ};
pub use rules::Rule;
pub use world::{Action, Scene, World};
