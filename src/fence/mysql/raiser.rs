//! A fence for an owner to declare.

use super::MysqlFence;
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlPool};
use std::fmt;

/// A [`MysqlFence`] that raises on connections of a pool. Made by [`MysqlFence::raiser`].
#[derive(Clone)]
pub struct MysqlRaiser {
    fence: MysqlFence,
    pool: MySqlPool,
}

impl MysqlFence {
    /// A fence for an owner to declare, which takes a connection of the pool for each call.
    pub fn raiser(&self, pool: MySqlPool) -> MysqlRaiser {
        MysqlRaiser { fence: self.clone(), pool }
    }
}

impl MysqlRaiser {
    async fn connection(&self) -> Result<PoolConnection<MySql>, FenceError> {
        // Nothing was sent yet, so nothing is unknown.
        self.pool.acquire().await.map_err(|error| FenceError::busy("taking a connection of the pool", error))
    }
}

impl Fence for MysqlRaiser {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move { self.fence.raise(&mut *self.connection().await?, token).await })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move { self.fence.highest(&mut *self.connection().await?, scope).await })
    }
}

impl Enforces for MysqlRaiser {}

impl fmt::Debug for MysqlRaiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlRaiser of {}", self.fence.cluster())
    }
}
