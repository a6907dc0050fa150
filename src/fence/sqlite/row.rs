//! Reading and writing the fence's rows. Every value read is taken for hostile: somebody may have edited it.

use super::failure::failed;
use super::schema::FORMAT;
use crate::{FenceError, FencingToken, HighWater};
use ringfence_core::ids::{ClusterId, Epoch, Scope, SessionId};
use ringfence_core::mutant;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Transaction};

/// What the database says about a scope.
pub(super) struct Read {
    /// The cluster the database is bound to.
    pub(super) bound: ClusterId,
    /// The scope's row.
    pub(super) row: Option<HighWater>,
}

impl Read {
    pub(super) fn must_be_bound_to(&self, cluster: &ClusterId) -> Result<(), FenceError> {
        if self.bound == *cluster {
            Ok(())
        } else {
            Err(FenceError::WrongCluster { presented: cluster.clone(), bound: self.bound.clone() })
        }
    }
}

/// Takes the database's write lock if the transaction does not have it yet, and changes nothing.
///
/// A statement that may write takes the lock when it starts, before it looks for rows; this one finds none. When the
/// transaction has read an older state than the current one, SQLite refuses the lock, so what the transaction
/// read before is still true when this has succeeded.
pub(super) fn lock(tx: &Transaction<'_>) -> Result<(), FenceError> {
    if mutant!("check-takes-no-lock") {
        return Ok(());
    }
    tx.execute("UPDATE main.ringfence_fence SET epoch = epoch WHERE scope = ''", ())
        .map(|_| ())
        .map_err(failed("locking the fence"))
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
    // `main.` throughout: a temporary table of the same name would be found first.
    let mut statement = conn
        .prepare(
            "SELECT b.format, b.cluster, f.scope IS NOT NULL, f.epoch, f.session
               FROM main.ringfence_binding b LEFT JOIN main.ringfence_fence f ON f.scope = ?1",
        )
        .map_err(failed(doing))?;
    statement
        .query_row([scope.to_string()], |columns| {
            let mut values = [ValueRef::Null; 5];
            for (index, value) in values.iter_mut().enumerate() {
                *value = columns.get_ref(index)?;
            }
            Ok(decode(scope, values))
        })
        .optional()
        .map_err(failed(doing))?
        .unwrap_or_else(|| Err(corrupt_binding("no row".into())))
}

fn decode(
    scope: &Scope,
    [format, cluster, present, epoch, session]: [ValueRef<'_>; 5],
) -> Result<Read, FenceError> {
    if format != ValueRef::Integer(FORMAT) {
        return Err(corrupt_binding(format!("format {}, and this version knows {FORMAT}", shown(format))));
    }
    let bound = cluster.as_str().ok().and_then(|text| ClusterId::new(text).ok());
    let bound = bound.ok_or_else(|| corrupt_binding(format!("the cluster {}", shown(cluster))))?;
    if present != ValueRef::Integer(1) {
        return Ok(Read { bound, row: None });
    }
    let corrupt = |column, value| FenceError::Corrupt {
        place: format!("the row of {scope} in ringfence_fence"),
        found: format!("the {column} {}", shown(value)),
    };
    let number = match epoch {
        ValueRef::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let number = number.and_then(|n| Epoch::new(n).ok()).ok_or_else(|| corrupt("epoch", epoch))?;
    let holder = match session {
        ValueRef::Null => None,
        // A session is compared by equality only, so its bits may pass through a signed column.
        ValueRef::Integer(bits) => {
            Some(SessionId::new(bits.cast_unsigned()).ok_or_else(|| corrupt("session", session))?)
        }
        _ => return Err(corrupt("session", session)),
    };
    Ok(Read { bound, row: Some(HighWater::new(number, holder)) })
}

/// Remembers what a check decided, in the user's transaction.
pub(super) fn write(tx: &Transaction<'_>, scope: &Scope, row: HighWater) -> Result<(), FenceError> {
    tx.execute(
        "UPDATE main.ringfence_fence SET epoch = ?2, session = ?3 WHERE scope = ?1",
        (scope.to_string(), epoch_column(row), session_column(row)),
    )
    .map(|_| ())
    .map_err(failed("remembering the epoch"))
}

/// Remembers what a raise decided, and makes the row when there is none.
///
/// The count changes even where the epoch does not. SQLite skips a page that is written back as it was, and a commit
/// without pages syncs nothing: raising to an epoch that a check has brought in, without a sync, would answer as durable
/// what is not.
pub(super) fn write_raised(tx: &Transaction<'_>, scope: &Scope, row: HighWater) -> Result<(), FenceError> {
    tx.execute(
        "INSERT INTO main.ringfence_fence (scope, epoch, session, raises) VALUES (?1, ?2, ?3, 1)
         ON CONFLICT (scope) DO UPDATE SET epoch = excluded.epoch, session = excluded.session, raises = raises + 1",
        (scope.to_string(), epoch_column(row), session_column(row)),
    )
    .map(|_| ())
    .map_err(failed("raising the fence"))
}

fn epoch_column(row: HighWater) -> i64 {
    // Exact: an epoch is at most 2^53 - 1.
    row.epoch().get().cast_signed()
}

fn session_column(row: HighWater) -> Option<i64> {
    row.session().map(|session| session.get().cast_signed())
}

fn corrupt_binding(found: String) -> FenceError {
    FenceError::Corrupt { place: "the table ringfence_binding".into(), found }
}

/// A value for a message: escaped, and cut where it is long.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(bytes) => {
            let start = &bytes[..bytes.len().min(40)];
            format!("\"{}\"", String::from_utf8_lossy(start).escape_default())
        }
        ValueRef::Blob(bytes) => format!("a blob of {} bytes", bytes.len()),
    }
}
