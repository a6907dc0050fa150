//! What is particular to tokio-postgres.

use super::PostgresFence;
use super::connection::{Begin, Call, Connection, InTransaction, Open};
use super::failure::Failure;
use super::statement::{Argument, Statement};
use crate::{Enforces, Fence, FenceError, FenceFuture, FencingToken};
use ringfence_core::ids::{Epoch, Scope};
use std::fmt;
use std::sync::Arc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Transaction};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let server = error.as_db_error();
        Failure {
            code: server.map(|error| error.code().code().to_owned()),
            message: server.map_or_else(|| error.to_string(), |error| error.message().to_owned()),
            detail: server.and_then(|error| error.detail()).map(ToOwned::to_owned),
            source: Arc::new(error),
        }
    }
}

/// With the types given, so that the text, its arguments and the answer are one round trip, and nothing is left prepared
/// in a connection that a pooler may hand to somebody else.
async fn call(client: &impl GenericClient, statement: Statement) -> Result<Option<String>, Failure> {
    let typed = |argument: &Argument| match argument {
        Argument::Text(_) => Type::TEXT,
        Argument::Texts(_) => Type::TEXT_ARRAY,
        Argument::Number(_) => Type::INT8,
        Argument::Numbers(_) => Type::INT8_ARRAY,
    };
    let arguments: Vec<(&(dyn ToSql + Sync), Type)> = statement
        .arguments
        .iter()
        .map(|argument| {
            let value: &(dyn ToSql + Sync) = match argument {
                Argument::Text(text) => text,
                Argument::Texts(texts) => texts,
                Argument::Number(number) => number,
                Argument::Numbers(numbers) => numbers,
            };
            (value, typed(argument))
        })
        .collect();
    Ok(client.query_typed_one(statement.sql, &arguments).await?.try_get(0)?)
}

impl Call for &Client {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        call(*self, statement).await
    }
}

impl Connection for &Client {
    async fn batch(&mut self, sql: &'static str) -> Result<(), Failure> {
        Ok(self.batch_execute(sql).await?)
    }
}

impl Call for &Transaction<'_> {
    async fn call(&mut self, statement: Statement) -> Result<Option<String>, Failure> {
        call(*self, statement).await
    }
}

impl InTransaction for &Transaction<'_> {}

impl Begin for Client {
    type Transaction<'c> = Transaction<'c>;

    async fn begin(&mut self) -> Result<Transaction<'_>, Failure> {
        Ok(self.transaction().await?)
    }
}

impl Open for Transaction<'_> {
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

/// A [`PostgresFence`] that raises on connections of tokio-postgres. Made by [`PostgresFence::tokio_raiser`].
#[derive(Clone)]
pub struct TokioRaiser<F> {
    fence: PostgresFence,
    connect: F,
}

impl PostgresFence {
    /// A fence for an owner to declare, which asks `connect` for a connection for each call and drops it afterwards.
    ///
    /// With a pool, `connect` takes one of its connections. One connection for all raises works as well, in an `Arc`,
    /// but a raise that waits for a paused owner then makes the others wait behind it.
    ///
    /// ```no_run
    /// # use ringfence_fence::{DeclaredFence, FenceError, postgres::PostgresFence};
    /// # use std::sync::Arc;
    /// # fn declare(fence: PostgresFence, client: Arc<tokio_postgres::Client>) -> DeclaredFence {
    /// DeclaredFence::enforced("ledger", fence.tokio_raiser(move || {
    ///     let client = Arc::clone(&client); // or pool.get(), its error turned with FenceError::busy
    ///     async { Ok(client) }
    /// }))
    /// # }
    /// ```
    pub fn tokio_raiser<F, C, A>(&self, connect: F) -> TokioRaiser<F>
    where
        F: Fn() -> A + Send + Sync,
        A: Future<Output = Result<C, FenceError>> + Send,
        C: std::ops::Deref<Target = Client> + Send + Sync,
    {
        TokioRaiser { fence: self.clone(), connect }
    }
}

impl<F, C, A> Fence for TokioRaiser<F>
where
    F: Fn() -> A + Send + Sync,
    A: Future<Output = Result<C, FenceError>> + Send,
    C: std::ops::Deref<Target = Client> + Send + Sync,
{
    fn raise<'a>(&'a self, token: &'a FencingToken) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            let client = (self.connect)().await?;
            self.fence.raise(&*client, token).await
        })
    }

    fn highest<'a>(&'a self, scope: &'a Scope) -> FenceFuture<'a, Option<Epoch>> {
        Box::pin(async move {
            let client = (self.connect)().await?;
            self.fence.highest(&*client, scope).await
        })
    }
}

impl<F> Enforces for TokioRaiser<F> where TokioRaiser<F>: Fence {}

impl<F> fmt::Debug for TokioRaiser<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokioRaiser of {}", self.fence.cluster())
    }
}
