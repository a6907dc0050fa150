//! What a client library has to do for the fence. The traits are sealed: their implementations are in this module's
//! siblings, one a library.

use super::failure::Failure;
use super::statement::Statement;

/// An open transaction of the user's: `&tokio_postgres::Transaction`, or `&mut sqlx::Transaction<Postgres>`.
///
/// A pool's transaction is one of these inside; write `&*tx` where it is not accepted as it is.
#[diagnostic::on_unimplemented(
    message = "a fence is checked in a transaction, and `{Self}` is none",
    note = "pass `&tokio_postgres::Transaction` or `&mut sqlx::Transaction<'_, sqlx::Postgres>`"
)]
pub trait InTransaction: Call {}

/// A connection without an open transaction: `&tokio_postgres::Client`, or `&mut sqlx::PgConnection`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection to PostgreSQL",
    note = "pass `&tokio_postgres::Client` or `&mut sqlx::PgConnection`; of a pool's connection, `&*conn` or `&mut *conn`"
)]
pub trait Connection: Call {
    /// Runs a text of several statements in one transaction.
    #[doc(hidden)]
    fn batch(&mut self, sql: &'static str) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A connection that can begin a transaction: `tokio_postgres::Client`, or `sqlx::PgConnection`.
pub trait Begin: Send {
    /// The library's transaction.
    type Transaction<'c>: Open
    where
        Self: 'c;

    #[doc(hidden)]
    fn begin(&mut self) -> impl Future<Output = Result<Self::Transaction<'_>, Failure>> + Send;
}

/// A transaction that was begun here.
pub trait Open: Send {
    #[doc(hidden)]
    fn call(&mut self, statement: Statement) -> impl Future<Output = Result<Option<String>, Failure>> + Send;

    #[doc(hidden)]
    fn commit(self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends it without effect, now rather than when it is dropped: until then it holds the fence.
    #[doc(hidden)]
    fn roll_back(self) -> impl Future<Output = ()> + Send;
}

/// Runs one statement, in one round trip.
pub trait Call: Send {
    #[doc(hidden)]
    fn call(&mut self, statement: Statement) -> impl Future<Output = Result<Option<String>, Failure>> + Send;
}
