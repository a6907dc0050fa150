//! The rules, by what they look at.

pub(super) mod compare;
pub(super) mod crash;
pub(super) mod effect;
pub(super) mod race;
