//! A read that rests on the lease.

use super::{NotOwner, Ownership};
use ringfence_core::mutant;

/// A leased read in progress: the ownership was valid when it began.
///
/// A check before the answer is computed is not enough, since the process may be paused while it computes: between
/// check and answer another owner may have been granted the partition and have written. So the answer counts only
/// when the ownership is *still* valid: [`ReadGuard::confirm`] looks again.
///
/// What it rests on are the *rates* of clocks; where that is too little, read through the fence.
#[derive(Debug)]
#[must_use = "an answer counts only after `confirm`"]
pub struct ReadGuard<'a> {
    ownership: &'a Ownership,
}

impl<'a> ReadGuard<'a> {
    pub(super) fn begin(ownership: &'a Ownership) -> Result<ReadGuard<'a>, NotOwner> {
        ownership.tenure().check()?;
        ownership.tenure().count();
        Ok(ReadGuard { ownership })
    }

    /// The ownership it was taken from.
    pub fn ownership(&self) -> &'a Ownership {
        self.ownership
    }

    /// Gives the answer out when the ownership is still valid, one clock read after it was computed.
    ///
    /// # Errors
    /// [`NotOwner`] when it is not: the answer may be out of date, and is dropped.
    pub fn confirm<T>(self, answer: T) -> Result<T, NotOwner> {
        if mutant!("read-not-checked-after") {
            return Ok(answer);
        }
        self.ownership.tenure().check().map(|()| answer)
    }
}
