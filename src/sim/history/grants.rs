//! Which grants an observer has told of already.

use ringfence_core::ids::{Epoch, SessionId};

/// What makes a grant this one and no other: two grants under one epoch are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    /// The log entry that made it.
    pub(crate) entry: u64,
    /// To whom.
    pub(crate) session: SessionId,
    /// Under which epoch.
    pub(crate) epoch: Epoch,
}

/// More than a coordinator remembers of a partition: what is dropped here comes back nowhere.
const KEPT: usize = 64;

/// Those of a partition's grants, in the order of its history, that were not seen before. Whatever their epochs are: an
/// observer that drops what does not grow would hide what is to be found.
pub(crate) fn unseen<'h, T>(
    seen: &mut Vec<Grant>,
    history: &'h [T],
    grant: impl Fn(&T) -> Grant,
) -> Vec<(Grant, &'h T)> {
    let new: Vec<(Grant, &T)> =
        history.iter().map(|one| (grant(one), one)).filter(|(grant, _)| !seen.contains(grant)).collect();
    seen.extend(new.iter().map(|(grant, _)| grant));
    seen.drain(..seen.len().saturating_sub(KEPT));
    new
}
