//! The fence's tables, and the triggers that keep clean-up scripts away from them.

use super::failure::failed;
use super::row;
use crate::FenceError;
use ringfence_core::ids::{ClusterId, Scope};
use ringfence_core::mutant;
use rusqlite::Transaction;

/// The format of the tables. A database of another format is refused.
pub const FORMAT: i64 = 1;

/// `raises` counts the raises of a scope; see `row::write_raised` for why it must change each time.
///
/// The triggers stop what people do by hand and what retention jobs do to every table. A row that is damaged may be
/// set to a sound epoch, and none may be deleted.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS main.ringfence_binding (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    format  INTEGER NOT NULL,
    cluster TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS main.ringfence_fence (
    scope   TEXT NOT NULL PRIMARY KEY,
    epoch   INTEGER NOT NULL CHECK (typeof(epoch) = 'integer' AND epoch BETWEEN 1 AND 9007199254740991),
    session INTEGER,
    raises  INTEGER NOT NULL DEFAULT 0
);
CREATE TRIGGER IF NOT EXISTS main.ringfence_fence_is_never_deleted BEFORE DELETE ON ringfence_fence
BEGIN
    SELECT RAISE(ABORT, 'ringfence: a fence is never deleted, or a replaced owner could write again');
END;
CREATE TRIGGER IF NOT EXISTS main.ringfence_fence_moves_forward BEFORE UPDATE ON ringfence_fence
WHEN NEW.scope <> OLD.scope
  OR (typeof(OLD.epoch) = 'integer' AND OLD.epoch BETWEEN NEW.epoch + 1 AND 9007199254740991)
BEGIN
    SELECT RAISE(ABORT, 'ringfence: a fence only moves forward');
END;
CREATE TRIGGER IF NOT EXISTS main.ringfence_fence_is_not_replaced BEFORE INSERT ON ringfence_fence
WHEN EXISTS (SELECT 1 FROM ringfence_fence WHERE scope = NEW.scope AND epoch > NEW.epoch)
BEGIN
    SELECT RAISE(ABORT, 'ringfence: a fence only moves forward');
END;
CREATE TRIGGER IF NOT EXISTS main.ringfence_binding_is_never_deleted BEFORE DELETE ON ringfence_binding
BEGIN
    SELECT RAISE(ABORT, 'ringfence: a database stays with its cluster');
END;
CREATE TRIGGER IF NOT EXISTS main.ringfence_binding_never_changes BEFORE UPDATE ON ringfence_binding
WHEN NEW.cluster <> OLD.cluster
BEGIN
    SELECT RAISE(ABORT, 'ringfence: a database stays with its cluster');
END;
";

/// Makes what is missing, binds the database if it is not bound, and refuses another cluster's.
pub(super) fn install(tx: &Transaction<'_>, cluster: &ClusterId) -> Result<(), FenceError> {
    let doing = "installing the fence";
    if mutant!("fence-forgotten-on-restart") {
        tx.execute_batch("DROP TABLE IF EXISTS main.ringfence_fence").map_err(failed(doing))?;
    }
    tx.execute_batch(TABLES).map_err(failed(doing))?;
    // Bound only where nothing was: were the binding lost while rows are left, nobody knows whose they are.
    tx.execute(
        "INSERT INTO main.ringfence_binding (one, format, cluster)
         SELECT 1, ?1, ?2
          WHERE NOT EXISTS (SELECT 1 FROM main.ringfence_binding)
            AND NOT EXISTS (SELECT 1 FROM main.ringfence_fence)",
        (FORMAT, cluster.as_str()),
    )
    .map_err(failed(doing))?;
    // Reads through the statement of every check, so a table of the right name and the wrong shape is found now.
    let probe =
        Scope::Lock(ringfence_core::ids::LockName::new("probe").map_err(|e| FenceError::store(doing, e))?);
    row::read(tx, &probe)?.must_be_bound_to(cluster)
}
