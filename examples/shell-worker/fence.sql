-- The tables of the fence in SQLite, as this project's own clients make them. Safe to run again.
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
