"""A worker in Python that speaks to the coordinator itself, and two smaller things to do with one.

    protoc -I proto --python_out=OUT --grpc_out=OUT --plugin=protoc-gen-grpc=$(which grpc_python_plugin) \\
        proto/ringfence/v1/{common,drill,lock,map,worker}.proto
    PYTHONPATH=OUT python3 examples/clients/python/example.py HOST:PORT[,...] serve KEYSPACE WORKER FILE
    PYTHONPATH=OUT python3 examples/clients/python/example.py HOST:PORT[,...] lock NAME WORKER
    PYTHONPATH=OUT python3 examples/clients/python/example.py HOST:PORT[,...] lookup KEYSPACE KEY

`serve` counts in SQLite, for each partition that it owns, in a table that all workers share (docs/fences-sqlite.md has the fence):

    CREATE TABLE counts (scope TEXT, n INTEGER, epoch INTEGER, PRIMARY KEY (scope, n))

`lock` takes a lock, says its token, and gives it back when a line comes from standard input. Both leave on SIGTERM.
"""

import re
import signal
import sqlite3
import sys
import threading

from coordinator import Coordinator
from session import Grant, NotHeld, Session

RAISE = """
INSERT INTO main.ringfence_fence (scope, epoch, session, raises)
SELECT :scope, :epoch, NULL, 1 FROM main.ringfence_binding
 WHERE format = 1 AND cluster = :cluster AND :epoch BETWEEN 1 AND 9007199254740991
   AND :epoch - COALESCE((SELECT epoch FROM main.ringfence_fence WHERE scope = :scope), 0) BETWEEN 0 AND 281474976710656
ON CONFLICT (scope) DO UPDATE
   SET epoch = excluded.epoch, session = CASE WHEN epoch = excluded.epoch THEN session END, raises = raises + 1
 WHERE epoch BETWEEN 1 AND excluded.epoch"""
CHECK = """
UPDATE main.ringfence_fence SET epoch = :epoch, session = CASE WHEN epoch = :epoch THEN session END
 WHERE scope = :scope AND epoch BETWEEN 1 AND :epoch AND :epoch - epoch <= 281474976710656
   AND :epoch <= 9007199254740991 AND (SELECT cluster FROM main.ringfence_binding) = :cluster"""


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")  # in one piece, also from several threads
    sys.stdout.flush()


def accepted(database: sqlite3.Connection, statement: str, token: str) -> None:
    """Raises or checks. SQLite makes no error of a statement that changes nothing, and that is how this fence refuses."""
    cluster, scope, epoch = re.fullmatch(r"([^/]+)/(.+)@(\d+)", token).groups()
    if database.execute(statement, {"cluster": cluster, "scope": scope, "epoch": int(epoch)}).rowcount != 1:
        raise NotHeld(f"{token}: the storage has seen a newer epoch")


def own(partition: Grant, file: str) -> None:
    """Owns a partition, from its grant until it is wanted back or lost."""
    error = None
    try:
        count(partition, file)
    except NotHeld as lost:
        say(f"lost {lost}")
    except Exception as failed:
        error = repr(failed)
    partition.release(error)
    say(f"released {partition.raises[-1]}")


def count(partition: Grant, file: str) -> None:
    # No transaction but those that are begun here: Python's own begin late, and then the check excludes nobody.
    database = sqlite3.connect(file, timeout=20, isolation_level=None)
    database.execute("PRAGMA main.synchronous = EXTRA")
    for token in partition.raises:
        accepted(database, RAISE, token)
    scope = "/".join(map(str, partition.place))
    n = database.execute("SELECT coalesce(max(n), 0) FROM counts WHERE scope = ?", (scope,)).fetchone()[0]
    partition.ready()
    say(f"ready {partition.token}")
    while partition.until_revoked(0.05):
        token = partition.token  # the operation begins here, and keeps this token
        database.execute("BEGIN IMMEDIATE")
        try:
            accepted(database, CHECK, token)
            database.execute("INSERT INTO counts VALUES (?, ?, ?)", (scope, n + 1, partition.epoch))
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
        n += 1


def serve(session: Session, file: str) -> None:
    while not session.over:
        partition = session.grants.get()
        threading.Thread(target=own, args=(partition, file)).start()


def hold(session: Session, name: str) -> None:
    lock = session.acquire(name, 60)
    if lock is None:
        return say("held by another")
    with lock:
        say(f"holds {lock.token}")
        sys.stdin.readline()
        say(f"still {lock.token}")
    say("released")


def main() -> None:
    coordinator, verb = Coordinator(sys.argv[1].split(",")), sys.argv[2]
    if verb == "lookup":
        return say(str(coordinator.lookup(sys.argv[3], sys.argv[4].encode())))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if verb == "serve":
        session = Session(coordinator, sys.argv[4], [sys.argv[3]])
        threading.Thread(target=serve, args=(session, sys.argv[5]), daemon=True).start()
        while not stop.wait(0.1) and not session.over:
            pass
    else:
        session = Session(coordinator, sys.argv[4], [], ttl_ms=3000)
        hold(session, sys.argv[3])
    if session.over:
        sys.exit(f"the session is over: {session.over}")
    session.leave()
    say("left")


main()
