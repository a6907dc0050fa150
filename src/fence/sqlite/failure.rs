//! What SQLite's errors and settings mean to a fence.

use crate::FenceError;
use std::error::Error;

/// The transaction of a check ended before its commit.
#[derive(Debug, thiserror::Error)]
#[error(
    "the transaction of the check had ended before the commit: a statement in it rolled all of it back, as one with OR ROLLBACK or a \
     full disk does, or committed. What ran after that took effect on its own, unfenced"
)]
pub(super) struct Ended;

/// A check was asked for in a transaction that is none any more.
pub(super) fn has_ended() -> FenceError {
    let why = "a check counts in the transaction of the write, and this one has ended: a statement in it rolled all of it back, as \
               one with OR ROLLBACK or a full disk does, or committed";
    FenceError::Unfit { why: why.into() }
}

/// A raise, or whatever else commits durably by itself, was asked for within a transaction.
pub(super) fn within_another() -> FenceError {
    let why = "the connection is in a transaction, and this is durable when its own has committed: commit or roll back first, or \
               take another connection";
    FenceError::Unfit { why: why.into() }
}

/// Turns an error of SQLite into the fence's, naming what was being done. `code` is SQLite's, extended or not.
///
/// Busy and locked mean that nothing happened, so the caller may run its transaction again. Anything else is unknown.
fn means(doing: &'static str, code: Option<i32>, error: impl Error + Send + Sync + 'static) -> FenceError {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    match code.map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => FenceError::busy(doing, error),
        // SQLite has no codes of its own for these.
        _ if error.to_string().contains("no transaction is active") => FenceError::store(doing, Ended),
        _ if error.to_string().contains("no such table: main.ringfence_") => FenceError::NotInstalled,
        _ => FenceError::store(doing, error),
    }
}

/// A `BEGIN` was refused because a transaction is under way.
#[cfg(feature = "sqlx-sqlite")]
pub(super) fn found_a_transaction(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("within a transaction"))
}

/// An error of rusqlite.
#[cfg(feature = "rusqlite")]
pub(super) fn failed(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> FenceError {
    move |error| means(doing, error.sqlite_error().map(|error| error.extended_code), error)
}

/// An error of sqlx.
#[cfg(feature = "sqlx-sqlite")]
pub(super) fn failed_in_sqlx(doing: &'static str) -> impl FnOnce(sqlx::Error) -> FenceError {
    move |error| {
        let code = error.as_database_error().and_then(|error| error.code()?.parse().ok());
        means(doing, code, error)
    }
}

/// `synchronous = OFF`: a power cut can destroy the database, fence and all.
pub(super) fn refused_off() -> FenceError {
    FenceError::NotDurable {
        setting: "PRAGMA synchronous is OFF".into(),
        needed: "PRAGMA synchronous = NORMAL or higher",
    }
}

/// The refusal of a journal that does not survive a power cut; `None` for one that does.
pub(super) fn journal_is_not_durable(journal: &str) -> Option<FenceError> {
    matches!(journal, "off" | "memory").then(|| FenceError::NotDurable {
        setting: format!("PRAGMA journal_mode is {journal}"),
        needed: "PRAGMA journal_mode = WAL, or DELETE, TRUNCATE or PERSIST",
    })
}
