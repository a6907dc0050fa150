//! What SQLite's errors mean to a fence.

use crate::FenceError;
use rusqlite::{Error, ErrorCode};

/// Turns an error of SQLite into the fence's, naming what was being done.
///
/// Busy and locked mean that nothing happened, so the caller may run its transaction again. Anything else is unknown.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(Error) -> FenceError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => FenceError::busy(doing, error),
        // SQLite has no code of its own for a missing table.
        _ if error.to_string().contains("no such table: main.ringfence_") => FenceError::NotInstalled,
        _ => FenceError::store(doing, error),
    }
}
