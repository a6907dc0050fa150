//! The fence's tables and statements, for every client.
//!
//! `main.` throughout: a temporary table of the same name would be found first.

/// The format of the tables. A database of another format is refused.
pub const FORMAT: i64 = 1;

/// `raises` counts the raises of a scope; see [`RAISE`] for why it must change each time.
///
/// The triggers stop what people do by hand and what retention jobs do to every table. A row that is damaged may be
/// set to a sound epoch, and none may be deleted.
pub(super) const TABLES: &str = "
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

/// Binds the database: `?1` the format, `?2` the cluster. Only where nothing was: were the binding lost while rows are left,
/// nobody knows whose they are.
pub(super) const BIND: &str = "
INSERT INTO main.ringfence_binding (one, format, cluster)
SELECT 1, ?1, ?2
 WHERE NOT EXISTS (SELECT 1 FROM main.ringfence_binding)
   AND NOT EXISTS (SELECT 1 FROM main.ringfence_fence)";

/// Takes the database's write lock if the transaction does not have it yet, and changes nothing.
///
/// A statement that may write takes the lock when it starts, before it looks for rows; this one finds none. When the
/// transaction has read an older state than the current one, SQLite refuses the lock, so what the transaction
/// read before is still true when this has succeeded.
pub(super) const LOCK: &str = "UPDATE main.ringfence_fence SET epoch = epoch WHERE scope = ''";

/// The binding and the row of the scope `?1`, in one statement. [`Read`](super::value::Read) knows its columns.
pub(super) const READ: &str = "
SELECT b.format, b.cluster, f.scope IS NOT NULL, f.epoch, f.session
  FROM main.ringfence_binding b LEFT JOIN main.ringfence_fence f ON f.scope = ?1";

/// Remembers what a check decided: `?1` the scope, `?2` the epoch, `?3` the session.
pub(super) const REMEMBER: &str = "UPDATE main.ringfence_fence SET epoch = ?2, session = ?3 WHERE scope = ?1";

/// Remembers what a raise decided, with the same arguments, and makes the row when there is none.
///
/// The count changes even where the epoch does not. SQLite skips a page that is written back as it was, and a commit
/// without pages syncs nothing: raising to an epoch that a check has brought in, without a sync, would answer as durable
/// what is not.
pub(super) const RAISE: &str = "
INSERT INTO main.ringfence_fence (scope, epoch, session, raises) VALUES (?1, ?2, ?3, 1)
ON CONFLICT (scope) DO UPDATE SET epoch = excluded.epoch, session = excluded.session, raises = raises + 1";

/// SQLite's numbers for `PRAGMA synchronous`.
pub(super) const OFF: i64 = 0;
pub(super) const EXTRA: i64 = 3;
