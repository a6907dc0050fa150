//! Owning one partition, under one epoch.
//!
//! | type | what it is |
//! |---|---|
//! | [`Ownership`] | the handle: stamps writes, guards reads, tells when to stop |
//! | [`ReadGuard`] | a leased read, checked before and after its answer is computed |
//! | [`NotOwner`], [`Why`] | the answer when the partition is not owned any more |
//! | [`Phase`] | where the ownership is in its life |
//!
//! Its rules. An ownership is bound to its epoch and never refreshed: an operation that began under it can never be
//! stamped with a newer one. Whether it is valid is a comparison with the clock on the caller's own path, never a
//! flag that a background task sets, so that after a pause the very next call sees it. An ownership ends once, and
//! does not come back.

mod blocking;
mod guard;
mod handle;
mod lease;
mod not_owner;
#[cfg(feature = "tower")]
mod stamping;
mod tenure;

#[cfg(test)]
mod tests;

pub use guard::ReadGuard;
pub use handle::Ownership;
pub use not_owner::{NotOwner, Why};
pub use tenure::Phase;

pub(crate) use lease::SessionLease;
pub(crate) use tenure::{Desk, Grant, Tenure};
