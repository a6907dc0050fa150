//! How an owner raises the fences it declared, and the difference between storage that enforces and storage that
//! merely advises.
//!
//! Before an owner may read the state of a partition, every fence of it has been raised to the owner's epoch. The
//! [`Fence`] trait is that call and nothing more: the *check* differs with each storage, because it must be one step
//! with the user's write, so it lives in the adapter.

use crate::{FenceError, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The answer of a [`Fence`], on any runtime.
pub type FenceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FenceError>> + Send + 'a>>;

/// A resource that an owner raises before it reads.
///
/// It may be dropped half-way: a raise that was not waited for may still take effect, which is harmless, because the
/// caller was granted that epoch.
pub trait Fence: Send + Sync {
    /// Raises the fence of the token's scope to the token's epoch, durably, before it answers.
    ///
    /// Raising again to the same epoch succeeds.
    ///
    /// # Errors
    /// [`FenceError::Fenced`] when a higher epoch was seen: the caller is no longer the owner and must not start.
    /// [`FenceError::WrongCluster`], [`FenceError::Implausible`] and [`FenceError::OtherSession`] refuse as well; after
    /// [`FenceError::Busy`] the caller tries again, and after [`FenceError::Store`] it may, since a raise is idempotent.
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()>;

    /// The highest epoch seen of a scope; `None` when it was never raised. For display and for repair: a positive
    /// answer may be stale by the time it is read.
    ///
    /// # Errors
    /// [`FenceError::Busy`], [`FenceError::Store`] or [`FenceError::Corrupt`] when it cannot be read.
    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>>;
}

/// The promise that every write to the resource is checked against the fence in one step with the write, and that a
/// raise is durable before it answers. See [`conformance`](crate::conformance) for the promise as tests.
///
/// Where correctness is asked for, the type asks for this trait; storage that does not implement it does not compile:
///
/// ```compile_fail,E0277
/// # use ringfence_fence::{CannotCheck, DeclaredFence};
/// DeclaredFence::enforced("smtp", CannotCheck); // `CannotCheck` does not enforce anything
/// ```
pub trait Enforces: Fence {}

impl<F: Fence + ?Sized> Fence for Arc<F> {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        (**self).raise(token)
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        (**self).highest(scope)
    }
}

impl<F: Enforces + ?Sized> Enforces for Arc<F> {}

/// Whether a resource refuses a replaced owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// It compares tokens and refuses the older one.
    Enforced,
    /// It compares nothing, or only counts what it would refuse. There the lease is advice, and only an idempotency key
    /// protects the resource.
    Advisory,
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Enforcement::Enforced => "enforced",
            Enforcement::Advisory => "advisory",
        })
    }
}

/// A resource that cannot compare tokens: a mail server, somebody's HTTP API, a plain file.
///
/// Raising it does nothing. It is declared as [`DeclaredFence::advisory`], so that `status` shows it and nobody takes it
/// for protected. What helps there is an idempotency key and a record of what may have happened:
/// [`effects`](crate::effects).
#[derive(Clone, Copy, Debug)]
pub struct CannotCheck;

impl Fence for CannotCheck {
    fn raise<'a>(&'a self, _: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn highest<'a>(&'a self, _: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A fence that an owner has declared, under a name for people, with what it is worth.
///
/// What it is worth follows from the type it was declared with; no flag can say otherwise.
#[derive(Clone)]
pub struct DeclaredFence {
    name: Arc<str>,
    fence: Declared,
}

#[derive(Clone)]
enum Declared {
    Enforced(Arc<dyn Enforces>),
    Advisory(Arc<dyn Fence>),
}

impl DeclaredFence {
    /// A resource that refuses replaced owners.
    pub fn enforced(name: &str, fence: impl Enforces + 'static) -> DeclaredFence {
        DeclaredFence { name: name.into(), fence: Declared::Enforced(Arc::new(fence)) }
    }

    /// A resource that does not: [`CannotCheck`], or an enforcing fence in [`ObserveOnly`](crate::ObserveOnly).
    pub fn advisory(name: &str, fence: impl Fence + 'static) -> DeclaredFence {
        DeclaredFence { name: name.into(), fence: Declared::Advisory(Arc::new(fence)) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is worth.
    pub fn enforcement(&self) -> Enforcement {
        match self.fence {
            Declared::Enforced(_) => Enforcement::Enforced,
            Declared::Advisory(_) => Enforcement::Advisory,
        }
    }

    /// The fence to rely on for correctness.
    ///
    /// # Errors
    /// [`AdvisoryRefused`] when it does not refuse replaced owners.
    pub fn for_correctness(&self) -> Result<Arc<dyn Enforces>, AdvisoryRefused> {
        match &self.fence {
            Declared::Enforced(fence) => Ok(Arc::clone(fence)),
            Declared::Advisory(_) => Err(AdvisoryRefused { name: self.name.to_string() }),
        }
    }
}

/// Both kinds are raised alike: an observed fence can only count what it has been told.
impl Fence for DeclaredFence {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        match &self.fence {
            Declared::Enforced(fence) => fence.raise(token),
            Declared::Advisory(fence) => fence.raise(token),
        }
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        match &self.fence {
            Declared::Enforced(fence) => fence.highest(scope),
            Declared::Advisory(fence) => fence.highest(scope),
        }
    }
}

impl fmt::Debug for DeclaredFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.name, self.enforcement())
    }
}

/// Correctness was asked of a resource that does not check tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is advisory: it refuses no replaced owner, so correctness cannot rest on it. Write through storage that \
     enforces the fence, or make the effect idempotent and ask for an efficiency lock"
)]
pub struct AdvisoryRefused {
    name: String,
}

impl AdvisoryRefused {
    /// The name the resource was declared under.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryFence, ObserveOnly};
    use ringfence_core::ids::ClusterId;
    use std::task::{Context, Poll, Waker};

    fn now<T>(mut answer: FenceFuture<'_, T>) -> Result<T, FenceError> {
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("a fence in memory answers at once"),
        }
    }

    #[test]
    fn a02_b05_a_resource_that_does_not_check_is_called_advisory_and_refused_where_correctness_was_asked_for()
    {
        let memory = MemoryFence::new(ClusterId::new("prod").unwrap());
        let enforced = DeclaredFence::enforced("memory", memory.clone());
        assert_eq!(enforced.enforcement(), Enforcement::Enforced);
        assert!(enforced.for_correctness().is_ok());

        for advisory in [
            DeclaredFence::advisory("smtp", CannotCheck),
            DeclaredFence::advisory("ledger", ObserveOnly::without_refusing(memory)),
        ] {
            assert_eq!(advisory.enforcement().to_string(), "advisory");
            let error = advisory.for_correctness().err().unwrap();
            assert_eq!(error.name(), advisory.name());
            assert!(error.to_string().contains("idempotent"), "{error}");
        }
    }

    #[test]
    fn t04_every_declared_fence_is_raised_through_one_object_safe_call() {
        let memory = MemoryFence::new(ClusterId::new("prod").unwrap());
        let token: FencingToken = "prod/orders/17@42".parse().unwrap();
        let declared: Vec<Arc<dyn Fence>> = vec![
            Arc::new(DeclaredFence::enforced("memory", memory.clone())),
            Arc::new(DeclaredFence::advisory("smtp", CannotCheck)),
        ];
        for fence in &declared {
            now(fence.raise(&token)).unwrap();
        }
        assert_eq!(now(declared[0].highest(token.scope())).unwrap(), Some(token.epoch()));
        assert_eq!(now(declared[1].highest(token.scope())).unwrap(), None);
    }
}
