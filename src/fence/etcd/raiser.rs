//! The fence for an async owner: a client that raises.

use super::{EtcdFence, EtcdKv};
use crate::{Enforces, Fence, FenceFuture, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use std::fmt;

/// An [`EtcdFence`] with a client to raise it with. Made by [`EtcdFence::raiser`].
///
/// Clones of the client are to share its connection, as those of [`EtcdConnection`](super::EtcdConnection) do.
#[derive(Clone)]
pub struct EtcdRaiser<C> {
    fence: EtcdFence,
    etcd: C,
}

impl<C> EtcdRaiser<C> {
    pub(super) fn new(fence: EtcdFence, etcd: C) -> EtcdRaiser<C> {
        EtcdRaiser { fence, etcd }
    }

    /// The fence it raises.
    pub fn fence(&self) -> &EtcdFence {
        &self.fence
    }
}

impl<C: EtcdKv + Clone + Sync> Fence for EtcdRaiser<C> {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        let mut etcd = self.etcd.clone();
        Box::pin(async move { self.fence.raise(&mut etcd, token).await })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        let mut etcd = self.etcd.clone();
        Box::pin(async move { self.fence.highest(&mut etcd, scope).await })
    }
}

impl<C: EtcdKv + Clone + Sync> Enforces for EtcdRaiser<C> {}

impl<C> fmt::Debug for EtcdRaiser<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdRaiser of {}", self.fence.cluster())
    }
}
