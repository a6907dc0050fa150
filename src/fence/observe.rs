//! The first rung of adoption: count what a fence would refuse, and refuse nothing.
//!
//! A fence enforces unless it is wrapped in here by name. The wrapper does not implement
//! [`Enforces`](crate::Enforces), so an observed fence cannot be declared where correctness was asked for.

use crate::{Fence, FenceError, FenceFuture, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fence that lets everything through and counts what it would have refused.
///
/// ```
/// # use ringfence_core::ids::ClusterId;
/// # use ringfence_fence::{FencingToken, MemoryFence, ObserveOnly, Observed};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ledger = ObserveOnly::without_refusing(MemoryFence::new(ClusterId::new("prod")?));
/// let (old, new): (FencingToken, FencingToken) = ("prod/orders/17@33".parse()?, "prod/orders/17@34".parse()?);
/// ledger.fence().raise(&new)?;
///
/// let seen = ledger.observe(|fence| fence.check(&old))?;
/// assert!(matches!(seen, Observed::WouldRefuse(_))); // log it, then write all the same
/// assert_eq!(ledger.counts().would_refuse, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ObserveOnly<F> {
    fence: F,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    accepted: AtomicU64,
    would_refuse: AtomicU64,
}

/// What an observed check came to. The write goes on in both cases.
#[derive(Clone, Debug)]
#[must_use = "a refusal that is only observed is worth a line in the log"]
pub enum Observed {
    /// The fence accepts the write.
    Accepted,
    /// The fence would refuse the write, for this reason.
    WouldRefuse(FenceError),
}

/// How often an observed fence was asked, since it was made. It belongs in `status`, beside the word *observe*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedCounts {
    /// Accepted.
    pub accepted: u64,
    /// Let through, and refused once the fence enforces.
    pub would_refuse: u64,
}

impl<F> ObserveOnly<F> {
    /// Takes the teeth out of a fence. Replaced owners can write; nothing but the count tells.
    pub fn without_refusing(fence: F) -> ObserveOnly<F> {
        ObserveOnly { fence, tally: Arc::default() }
    }

    /// The fence inside, which enforces.
    pub fn fence(&self) -> &F {
        &self.fence
    }

    /// Ends the observation; from now on the fence refuses.
    pub fn enforce(self) -> F {
        self.fence
    }

    /// The counts so far. Clones count together.
    pub fn counts(&self) -> ObservedCounts {
        ObservedCounts {
            accepted: self.tally.accepted.load(Ordering::Relaxed),
            would_refuse: self.tally.would_refuse.load(Ordering::Relaxed),
        }
    }

    /// Runs one check and turns a refusal into a count.
    ///
    /// # Errors
    /// What is no decision of the fence, such as [`FenceError::Busy`] or [`FenceError::Store`], is passed on: the write
    /// would have met it too.
    pub fn observe(&self, check: impl FnOnce(&F) -> Result<(), FenceError>) -> Result<Observed, FenceError> {
        self.count(check(&self.fence))
    }

    fn count(&self, answer: Result<(), FenceError>) -> Result<Observed, FenceError> {
        match answer {
            Ok(()) => {
                self.tally.accepted.fetch_add(1, Ordering::Relaxed);
                Ok(Observed::Accepted)
            }
            Err(why) if why.is_refusal() => {
                self.tally.would_refuse.fetch_add(1, Ordering::Relaxed);
                Ok(Observed::WouldRefuse(why))
            }
            Err(other) => Err(other),
        }
    }
}

impl<F: Fence> Fence for ObserveOnly<F> {
    /// Raises the fence inside. A raise that it refuses is counted and answered as if it had succeeded, or a mere
    /// observation would keep an owner from starting.
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            let answer = self.fence.raise(token).await;
            self.count(answer).map(|_| ())
        })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        self.fence.highest(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFence;
    use ringfence_core::ids::ClusterId;

    #[test]
    fn f005_a_fence_refuses_by_default_and_observing_has_a_name_and_a_count() {
        let fence = MemoryFence::new(ClusterId::new("prod").unwrap());
        let (old, new): (FencingToken, FencingToken) =
            ("prod/orders/17@33".parse().unwrap(), "prod/orders/17@34".parse().unwrap());
        fence.raise(&new).unwrap();
        assert!(matches!(fence.check(&old), Err(FenceError::Fenced(_))));

        let observing = ObserveOnly::without_refusing(fence);
        assert!(matches!(observing.observe(|f| f.check(&new)).unwrap(), Observed::Accepted));
        assert!(matches!(
            observing.observe(|f| f.check(&old)).unwrap(),
            Observed::WouldRefuse(FenceError::Fenced(_))
        ));
        assert_eq!(observing.clone().counts(), ObservedCounts { accepted: 1, would_refuse: 1 });
        assert!(observing.enforce().check(&old).is_err());
    }

    #[test]
    fn a_storage_that_fails_is_not_counted_as_a_refusal() {
        let observing = ObserveOnly::without_refusing(());
        let io = || std::io::Error::other("gone");
        assert!(observing.observe(|()| Err(FenceError::store("checking", io()))).is_err());
        assert_eq!(observing.counts(), ObservedCounts { accepted: 0, would_refuse: 0 });
    }
}
