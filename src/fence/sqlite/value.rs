//! Values that were read. Every one is taken for hostile: somebody may have edited it.

use super::sql::FORMAT;
use crate::{FenceError, HighWater};
use ringfence_core::ids::{ClusterId, Epoch, LockName, Scope, SessionId};

/// A value of SQLite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    /// Perhaps not UTF-8.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

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

    /// What the statement [`READ`](super::sql::READ) answered of this scope.
    pub(super) fn decode(scope: &Scope, columns: [Value<'_>; 5]) -> Result<Read, FenceError> {
        decode(scope, columns)
    }

    /// It answered no row.
    pub(super) fn nothing() -> FenceError {
        corrupt_binding("no row".into())
    }
}

/// A scope to read where none is meant, so that a table of the right name and the wrong shape is found.
pub(super) fn probe() -> Result<Scope, FenceError> {
    let name = LockName::new("probe").map_err(|error| FenceError::store("installing the fence", error))?;
    Ok(Scope::Lock(name))
}

fn decode(
    scope: &Scope,
    [format, cluster, present, epoch, session]: [Value<'_>; 5],
) -> Result<Read, FenceError> {
    if format != Value::Integer(FORMAT) {
        return Err(corrupt_binding(format!("format {}, and this version knows {FORMAT}", shown(format))));
    }
    let bound = match cluster {
        Value::Text(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| ClusterId::new(text).ok()),
        _ => None,
    };
    let bound = bound.ok_or_else(|| corrupt_binding(format!("the cluster {}", shown(cluster))))?;
    if present != Value::Integer(1) {
        return Ok(Read { bound, row: None });
    }
    let corrupt = |column, value| FenceError::Corrupt {
        place: format!("the row of {scope} in ringfence_fence"),
        found: format!("the {column} {}", shown(value)),
    };
    let number = match epoch {
        Value::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let number = number.and_then(|n| Epoch::new(n).ok()).ok_or_else(|| corrupt("epoch", epoch))?;
    let holder = match session {
        Value::Null => None,
        // A session is compared by equality only, so its bits may pass through a signed column.
        Value::Integer(bits) => {
            Some(SessionId::new(bits.cast_unsigned()).ok_or_else(|| corrupt("session", session))?)
        }
        _ => return Err(corrupt("session", session)),
    };
    Ok(Read { bound, row: Some(HighWater::new(number, holder)) })
}

/// As the column has it.
pub(super) fn epoch_column(row: HighWater) -> i64 {
    // Exact: an epoch is at most 2^53 - 1.
    row.epoch().get().cast_signed()
}

/// As the column has it.
pub(super) fn session_column(row: HighWater) -> Option<i64> {
    row.session().map(|session| session.get().cast_signed())
}

fn corrupt_binding(found: String) -> FenceError {
    FenceError::Corrupt { place: "the table ringfence_binding".into(), found }
}

/// A value for a message: escaped, and cut where it is long.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(bytes) => {
            let start = &bytes[..bytes.len().min(40)];
            format!("\"{}\"", String::from_utf8_lossy(start).escape_default())
        }
        Value::Blob(bytes) => format!("a blob of {} bytes", bytes.len()),
    }
}
