//! The fence for an async owner: a connection that raises.

use super::RedisFence;
use crate::{Enforces, Fence, FenceFuture, FencingToken};
use redis::aio::ConnectionLike;
use ringfence_core::ids::{Epoch, Scope};
use std::fmt;

/// A [`RedisFence`] with a connection to raise it on. Made by [`RedisFence::raiser`].
///
/// The connection is one whose clones share it, such as redis-rs' `MultiplexedConnection`: raises that are made at once
/// travel together, and the server flushes them together.
#[derive(Clone)]
pub struct RedisRaiser<C> {
    fence: RedisFence,
    conn: C,
}

impl<C> RedisRaiser<C> {
    pub(super) fn new(fence: RedisFence, conn: C) -> RedisRaiser<C> {
        RedisRaiser { fence, conn }
    }

    /// The fence it raises.
    pub fn fence(&self) -> &RedisFence {
        &self.fence
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> Fence for RedisRaiser<C> {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        let mut conn = self.conn.clone();
        Box::pin(async move { self.fence.raise(&mut conn, token).await })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        let mut conn = self.conn.clone();
        Box::pin(async move { self.fence.highest(&mut conn, scope).await })
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> Enforces for RedisRaiser<C> {}

impl<C> fmt::Debug for RedisRaiser<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisRaiser of {}", self.fence.cluster())
    }
}
