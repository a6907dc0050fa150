#!/bin/sh
# A worker in shell, over SQLite: it counts, for each partition that it owns, in a file that all workers share.
#
#   sqlite3 counts.db < examples/shell-worker/fence.sql
#   sqlite3 counts.db "INSERT INTO ringfence_binding VALUES (1, 1, 'CLUSTER')"      # `ringfence cluster status` prints its id
#   sqlite3 counts.db "PRAGMA journal_mode = WAL; CREATE TABLE counts (scope TEXT, n INTEGER, epoch INTEGER, PRIMARY KEY (scope, n))"
#   DATABASE=counts.db ringfence run --keyspace orders --id worker-1 -- sh examples/shell-worker/worker.sh
set -eu
. "$(dirname "$0")/fence.sh"

# Raise, then read: what is read now cannot change under us any more.
raise
n=$(sql "SELECT coalesce(max(n), 0) FROM counts WHERE scope = '$scope'")

stop=
trap 'stop=yes' TERM
while [ -z "$stop" ]; do
    n=$((n + 1))
    write "INSERT INTO counts VALUES ('$scope', $n, $epoch);"
    sleep 0.05 || true
done
