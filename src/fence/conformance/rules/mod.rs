//! The rules, by what they look at.

pub(super) mod cleanup;
pub(super) mod compare;
pub(super) mod crash;
pub(super) mod effect;
pub(super) mod race;
pub(super) mod scopes;
pub(super) mod storm;
