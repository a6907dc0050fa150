"""A worker in Python, over PostgreSQL: it counts, for each partition that it owns, in a table that all workers share.

It needs psycopg 3 (Debian: python3-psycopg) and the functions of src/fence/postgres/migrations/0001_ringfence.sql, bound to the
cluster with `SELECT ringfence.bind('CLUSTER')`. Where the database is, libpq's variables say:

    CREATE TABLE counts (scope text, n bigint, epoch bigint, PRIMARY KEY (scope, n))

    PGHOST=... PGDATABASE=... ringfence run --keyspace orders --id worker-1 --wait-ready -- python3 examples/python-worker/worker.py
"""

import os
import signal
import sys
import threading

import psycopg

TOKEN = os.environ["RINGFENCE_TOKEN"]
EPOCH = int(os.environ["RINGFENCE_EPOCH"])
SCOPE = f"{os.environ['RINGFENCE_KEYSPACE']}/{os.environ['RINGFENCE_PARTITION']}"

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())


def ready():
    """Callers may come: with --wait-ready, a line to this descriptor says so."""
    with os.fdopen(int(os.environ["RINGFENCE_READY_FD"]), "w") as to:
        to.write("ready\n")


def main():
    with psycopg.connect("", autocommit=True) as database:
        # Raise, then read: what is read now cannot change under us any more. A raise counts when it has committed.
        database.execute("SELECT ringfence.raise(%s)", (TOKEN,))
        (n,) = database.execute("SELECT coalesce(max(n), 0) FROM counts WHERE scope = %s", (SCOPE,)).fetchone()
        ready()
        while not stop.is_set():
            n += 1
            with database.transaction():
                database.execute("SELECT ringfence.check(%s)", (TOKEN,))
                database.execute("INSERT INTO counts VALUES (%s, %s, %s)", (SCOPE, n, EPOCH))
            stop.wait(0.05)


try:
    main()
except psycopg.Error as error:
    # RF001: this owner was replaced. Whatever it is, the work of this life ends here.
    sys.exit(f"{TOKEN}: {error.sqlstate}: {error}")
