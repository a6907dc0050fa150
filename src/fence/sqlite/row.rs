//! Reading and writing the fence's rows, with rusqlite.

use super::failure::failed;
use super::sql::{LOCK, RAISE, READ, REMEMBER};
use super::value::{Read, Value, epoch_column, session_column};
use crate::{FenceError, FencingToken, HighWater};
use ringfence_core::ids::Scope;
use ringfence_core::mutant;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Transaction};

/// See [`LOCK`].
pub(super) fn lock(tx: &Transaction<'_>) -> Result<(), FenceError> {
    if mutant!("check-takes-no-lock") {
        return Ok(());
    }
    let doing = "locking the fence";
    tx.prepare_cached(LOCK).map_err(failed(doing))?.execute(()).map(|_| ()).map_err(failed(doing))
}

/// The row for this token, when the database is of its cluster.
pub(super) fn read_for(tx: &Transaction<'_>, token: &FencingToken) -> Result<Option<HighWater>, FenceError> {
    let read = read(tx, token.scope())?;
    read.must_be_bound_to(token.cluster())?;
    Ok(read.row)
}

/// Reads the binding and a scope's row in one statement.
pub(super) fn read(conn: &Connection, scope: &Scope) -> Result<Read, FenceError> {
    let doing = "reading the fence";
    // Of the connection's cache: to prepare it costs as much as to run it.
    let mut statement = conn.prepare_cached(READ).map_err(failed(doing))?;
    statement
        .query_row([scope.to_string()], |columns| {
            let mut values = [Value::Null; 5];
            for (index, value) in values.iter_mut().enumerate() {
                *value = match columns.get_ref(index)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => Value::Integer(number),
                    ValueRef::Real(number) => Value::Real(number),
                    ValueRef::Text(bytes) => Value::Text(bytes),
                    ValueRef::Blob(bytes) => Value::Blob(bytes),
                };
            }
            Ok(Read::decode(scope, values))
        })
        .optional()
        .map_err(failed(doing))?
        .unwrap_or_else(|| Err(Read::nothing()))
}

/// See [`REMEMBER`].
pub(super) fn write(tx: &Transaction<'_>, scope: &Scope, row: HighWater) -> Result<(), FenceError> {
    tx.execute(REMEMBER, (scope.to_string(), epoch_column(row), session_column(row)))
        .map(|_| ())
        .map_err(failed("remembering the epoch"))
}

/// See [`RAISE`].
pub(super) fn write_raised(tx: &Transaction<'_>, scope: &Scope, row: HighWater) -> Result<(), FenceError> {
    tx.execute(RAISE, (scope.to_string(), epoch_column(row), session_column(row)))
        .map(|_| ())
        .map_err(failed("raising the fence"))
}
