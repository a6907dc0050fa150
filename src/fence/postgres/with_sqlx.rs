//! What is particular to sqlx.

use super::PostgresFence;
use super::connection::{Begin, Call, Connection, InTransaction, Open};
use super::failure::Failure;
use super::statement::{Argument, Statement};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use sqlx::postgres::PgDatabaseError;
use sqlx::{Connection as _, Error, PgConnection, PgPool, Postgres, Transaction};
use std::fmt;
use std::sync::Arc;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let server = match &error {
            Error::Database(error) => error.try_downcast_ref::<PgDatabaseError>(),
            _ => None,
        };
        Failure {
            code: server.map(|error| error.code().to_owned()),
            message: server.map_or_else(|| error.to_string(), |error| error.message().to_owned()),
            detail: server.and_then(|error| error.detail()).map(ToOwned::to_owned),
            source: Arc::new(error),
        }
    }
}

/// Prepared once a connection, and from then on one round trip.
async fn call(conn: &mut PgConnection, statement: Statement) -> Result<Option<String>, Failure> {
    let mut query = sqlx::query_scalar::<Postgres, Option<String>>(statement.sql);
    for argument in statement.arguments {
        query = match argument {
            Argument::Text(text) => query.bind(text),
            Argument::Texts(texts) => query.bind(texts),
            Argument::Number(number) => query.bind(number),
            Argument::Numbers(numbers) => query.bind(numbers),
        };
    }
    Ok(query.fetch_one(conn).await?)
}

impl Call for &mut PgConnection {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        if statement.alone && self.is_in_transaction() {
            let why = "the connection is in a transaction, and a raise is durable when its own has committed";
            return Err(Failure::unfit(why));
        }
        call(self, statement).await
    }
}

impl Connection for &mut PgConnection {
    async fn batch(&mut self, sql: &'static str) -> Result<(), Failure> {
        sqlx::raw_sql(sql).execute(&mut **self).await?;
        Ok(())
    }
}

impl Call for &mut Transaction<'_, Postgres> {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        call(self, statement).await
    }
}

impl InTransaction for &mut Transaction<'_, Postgres> {}

impl Begin for PgConnection {
    type Transaction<'c> = Transaction<'c, Postgres>;

    async fn begin(&mut self) -> Result<Transaction<'_, Postgres>, Failure> {
        Ok(sqlx::Connection::begin(self).await?)
    }
}

impl Open for Transaction<'_, Postgres> {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        call(self, statement).await
    }

    async fn commit(self) -> Result<(), Failure> {
        Ok(Transaction::commit(self).await?)
    }

    async fn roll_back(self) {
        // Should it fail, the connection is gone, and the server rolls back by itself.
        let _ = self.rollback().await;
    }
}

/// A [`PostgresFence`] that raises on connections of a pool of sqlx. Made by [`PostgresFence::sqlx_raiser`].
#[derive(Clone)]
pub struct SqlxRaiser {
    fence: PostgresFence,
    pool: PgPool,
}

impl PostgresFence {
    /// A fence for an owner to declare, which takes a connection of the pool for each call.
    pub fn sqlx_raiser(&self, pool: PgPool) -> SqlxRaiser {
        SqlxRaiser { fence: self.clone(), pool }
    }
}

impl SqlxRaiser {
    async fn connection(&self) -> Result<sqlx::pool::PoolConnection<Postgres>, FenceError> {
        // Nothing was sent yet, so nothing is unknown.
        self.pool.acquire().await.map_err(|error| FenceError::busy("taking a connection of the pool", error))
    }
}

impl Fence for SqlxRaiser {
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move { self.fence.raise(&mut *self.connection().await?, token).await })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move { self.fence.highest(&mut *self.connection().await?, scope).await })
    }
}

impl Enforces for SqlxRaiser {}

impl fmt::Debug for SqlxRaiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlxRaiser of {}", self.fence.cluster())
    }
}
