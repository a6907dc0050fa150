# The fence in SQLite, for shell: read it with `.`, with DATABASE set to the file. It needs sqlite3 3.24 or newer, and the tables of
# fence.sql; docs/fences-sqlite.md tells each statement. Both calls fail when the storage has seen a newer epoch: this owner was
# replaced, and its work is to stop.
#
#   raise              before anything is read
#   write "SQL"        the SQL and the check, in one transaction

# Statements on standard input or as arguments; it ends at the first that fails, and what is not committed then never happened.
#
# SIGTERM goes to all processes of the worker. A write that has begun is not to be broken off by it, so it does not hear it.
sql() (
    trap '' TERM
    exec sqlite3 -batch -bail -cmd '.timeout 20000' "$DATABASE" "$@"
)

# CLUSTER/orders/17@42, or CLUSTER/@locks/nightly@9 under a lock.
scope=${RINGFENCE_TOKEN#*/}
scope=${scope%@*}
cluster=${RINGFENCE_TOKEN%%/*}
epoch=$RINGFENCE_EPOCH

# A statement that changes no row was refused, and fails here: SQLite itself makes no error of it.
raise() {
    sql <<SQL
PRAGMA main.synchronous = EXTRA;
CREATE TEMP TABLE accepted (changes INTEGER CHECK (changes = 1));
INSERT INTO main.ringfence_fence (scope, epoch, session, raises)
SELECT '$scope', $epoch, NULL, 1
  FROM main.ringfence_binding
 WHERE format = 1 AND cluster = '$cluster' AND $epoch BETWEEN 1 AND 9007199254740991
   AND $epoch - COALESCE((SELECT epoch FROM main.ringfence_fence WHERE scope = '$scope'), 0) BETWEEN 0 AND 281474976710656
ON CONFLICT (scope) DO UPDATE
   SET epoch = excluded.epoch, session = CASE WHEN epoch = excluded.epoch THEN session END, raises = raises + 1
 WHERE epoch BETWEEN 1 AND excluded.epoch;
INSERT INTO temp.accepted SELECT changes();
SQL
}

write() {
    sql <<SQL
PRAGMA main.synchronous = FULL;
CREATE TEMP TABLE accepted (changes INTEGER CHECK (changes = 1));
BEGIN IMMEDIATE;
UPDATE main.ringfence_fence SET epoch = $epoch, session = CASE WHEN epoch = $epoch THEN session END
 WHERE scope = '$scope' AND epoch BETWEEN 1 AND $epoch AND $epoch - epoch <= 281474976710656
   AND $epoch <= 9007199254740991 AND (SELECT cluster FROM main.ringfence_binding) = '$cluster';
INSERT INTO temp.accepted SELECT changes();
$1
COMMIT;
SQL
}
