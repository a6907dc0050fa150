-- ringfence: the fence in PostgreSQL 14 and later. Format 1, revision 1.
--
-- Run it in one transaction, with any tool: `psql -1 -v ON_ERROR_STOP=1 -f 0001_ringfence.sql`, a migration of sqlx,
-- refinery or Flyway, or `PostgresFence::install`. Running it again changes nothing. Then bind the database to its cluster,
-- once: `SELECT ringfence.bind('prod');`
--
-- It makes a schema of its own. Nobody but its owner is given anything; a worker's role needs
--
--     GRANT USAGE ON SCHEMA ringfence TO worker;
--     GRANT EXECUTE ON FUNCTION ringfence.bind, ringfence.check, ringfence.check_all, ringfence.observe,
--         ringfence.raise, ringfence.raise_all, ringfence.highest, ringfence.blockers, ringfence.revision TO worker;
--
-- and an operator's `ringfence.force_raise` and `ringfence.end_blockers` as well. The functions run with their owner's rights
-- (SECURITY DEFINER), because locking a row needs the right to update it, and a writer that could update the fence by
-- itself could also take it back.
--
-- Errors have a SQLSTATE of their own, and name the values in DETAIL as `name=value`, separated by a space:
--
--     RF001 fenced: a newer epoch was seen        scope= own= highest=
--     RF002 of another cluster                    presented= bound=
--     RF003 never raised                          scope= own=
--     RF004 implausible: more than 2^48 ahead     scope= own= highest=    (highest=0: never raised)
--     RF005 the epoch is another session's        scope= own= holder=
--     RF006 without a token
--     RF007 corrupt: nothing is accepted          place= found=           (each up to the line's end)
--     RF008 not durable                           setting= needed=        (each up to the line's end)
--     RF009 another transaction stood in the way  scope= blockers=        (up to the line's end)
--     RF010 not a token, a scope or a cluster     found=
--     RF011 not bound to a cluster yet
--
-- A refusal is an error, so it ends the transaction: a program that does not look at it cannot commit either.

-- Two who install at once would trip over each other in the catalogue.
SELECT pg_catalog.pg_advisory_xact_lock(8245937407538424687);

DO $do$
DECLARE
    other integer;
BEGIN
    IF to_regclass('ringfence.binding') IS NOT NULL THEN
        EXECUTE 'SELECT b.format FROM ringfence.binding b WHERE b.format <> 1' INTO other;
        IF other IS NOT NULL THEN
            RAISE EXCEPTION 'ringfence: the tables are of format %, and this file makes format 1', other
                USING ERRCODE = 'RF007', DETAIL = E'place=the table ringfence.binding\nfound=format ' || other;
        END IF;
        EXECUTE 'SELECT 1 FROM ringfence.binding' INTO other;
        IF other IS NOT NULL AND to_regclass('ringfence.fence') IS NULL THEN
            RAISE EXCEPTION 'ringfence: this database has had a fence, and its table is gone'
                USING ERRCODE = 'RF007', DETAIL = E'place=the table ringfence.fence\nfound=no table',
                      HINT = 'An empty one would let every replaced owner in. Restore it, or raise every scope anew '
                             'to an epoch above all that were granted before any worker writes.';
        END IF;
    END IF;
    IF to_regprocedure('ringfence.revision()') IS NOT NULL THEN
        EXECUTE 'SELECT ringfence.revision()' INTO other;
        IF other > 1 THEN
            RAISE EXCEPTION 'ringfence: the functions are of revision %, and this file would take them back to 1', other
                USING ERRCODE = 'RF007', DETAIL = E'place=the schema ringfence\nfound=revision ' || other;
        END IF;
    END IF;
END
$do$;

CREATE SCHEMA IF NOT EXISTS ringfence;
REVOKE ALL ON SCHEMA ringfence FROM PUBLIC;

CREATE TABLE IF NOT EXISTS ringfence.binding (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    format  integer NOT NULL,
    cluster text COLLATE "C" NOT NULL
);

-- One row a scope, made by the first raise and there for ever. The collation is the one that no update of a library
-- changes: an index in another order does not find its rows any more.
CREATE TABLE IF NOT EXISTS ringfence.fence (
    scope   text COLLATE "C" PRIMARY KEY,
    epoch   bigint NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    session bigint CHECK (session <> 0)
) WITH (fillfactor = 50);

-- What people do by hand, and what retention jobs do to every table.
CREATE OR REPLACE FUNCTION ringfence.keep() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'ringfence: %', CASE TG_TABLE_NAME
        WHEN 'fence' THEN 'a fence is never deleted, or a replaced owner could write again'
        ELSE 'a database stays with its cluster' END;
END
$$;

CREATE OR REPLACE FUNCTION ringfence.forward_only() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A row that is damaged may be set to a sound epoch.
    IF NEW.scope <> OLD.scope OR (NEW.epoch < OLD.epoch AND OLD.epoch <= 9007199254740991) THEN
        RAISE EXCEPTION 'ringfence: a fence only moves forward';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON ringfence.fence
    FOR EACH STATEMENT EXECUTE FUNCTION ringfence.keep();
CREATE OR REPLACE TRIGGER forward_only BEFORE UPDATE ON ringfence.fence
    FOR EACH ROW EXECUTE FUNCTION ringfence.forward_only();
CREATE OR REPLACE TRIGGER never_deleted BEFORE DELETE OR TRUNCATE ON ringfence.binding
    FOR EACH STATEMENT EXECUTE FUNCTION ringfence.keep();
CREATE OR REPLACE TRIGGER never_changes BEFORE UPDATE ON ringfence.binding
    FOR EACH ROW WHEN (NEW.cluster <> OLD.cluster) EXECUTE FUNCTION ringfence.keep();
-- Also where rows arrive by replication.
ALTER TABLE ringfence.fence ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER forward_only;
ALTER TABLE ringfence.binding ENABLE ALWAYS TRIGGER never_deleted, ENABLE ALWAYS TRIGGER never_changes;

-- Of these functions. A client brings the file that it needs when it finds a lower one.
CREATE OR REPLACE FUNCTION ringfence.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- The lock on which writers and raises of a scope queue. Rows have locks too, and those alone would do to exclude; but
-- whoever asks to share a row is let in before a raise that waits, so busy writers could keep a raise out for ever.
-- This lock is first come, first served, and says who holds it.
CREATE OR REPLACE FUNCTION ringfence.lock_key(scope text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS
    'SELECT pg_catalog.hashtextextended($1 COLLATE "C", 8245937407538424688)';

-- The scope of a token, without a look at the rest of it: this is for finding the row, on the way of every write. (Not STRICT:
-- with GREATEST in it, it would not be inlined.)
CREATE OR REPLACE FUNCTION ringfence.scope_of(token text) RETURNS text LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.substr($1, pg_catalog.strpos($1, '/') + 1,
    greatest(0, pg_catalog.length($1) - pg_catalog.strpos($1, '/') - pg_catalog.strpos(pg_catalog.reverse($1), '@')))$$;

-- A token's cluster, scope and epoch; NULL when it is not one.
CREATE OR REPLACE FUNCTION ringfence.parts(token text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT AS
$$SELECT pg_catalog.regexp_match($1, '^([a-z0-9][a-z0-9._-]{0,62})/([a-z0-9][a-z0-9._-]{0,62}/(?:0|[1-9][0-9]{0,9})|@locks/[a-z0-9][a-z0-9._-]{0,62})@([1-9][0-9]{0,15})$')$$;

CREATE OR REPLACE FUNCTION ringfence.not_a(what text, instead text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF what = 'token' AND coalesce(instead, '') = '' THEN
        RAISE EXCEPTION 'ringfence: a write without a fencing token is refused'
            USING ERRCODE = 'RF006', HINT = 'Stamp it with the token of every scope it touches.';
    END IF;
    RAISE EXCEPTION 'ringfence: % is not a %', quote_nullable(left(instead, 80)), what USING ERRCODE = 'RF010',
        DETAIL = 'found=' || quote_nullable(left(instead, 80)),
        HINT = 'A token is written CLUSTER/KEYSPACE/PARTITION@EPOCH or CLUSTER/@locks/NAME@EPOCH.';
END
$$;

CREATE OR REPLACE FUNCTION ringfence.refuse_not_durable(setting text, needed text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'ringfence: the fence would not be durable: %', setting USING ERRCODE = 'RF008',
        DETAIL = 'setting=' || setting || E'\nneeded=' || needed, HINT = 'Needed: ' || needed || '.';
END
$$;

-- The table of the fence and whose it is; refuses what is damaged, unbound, or another cluster's.
CREATE OR REPLACE FUNCTION ringfence.must_be_of(presented text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound record;
    found_instead text;
BEGIN
    SELECT b.format, b.cluster INTO bound FROM ringfence.binding b;
    IF NOT FOUND THEN
        IF NOT EXISTS (SELECT FROM ringfence.fence) THEN
            RAISE EXCEPTION 'ringfence: this database is not bound to a cluster yet' USING ERRCODE = 'RF011',
                HINT = format('Run: SELECT ringfence.bind(%L);', presented);
        END IF;
        -- Rows without a binding: nobody knows whose they are.
        found_instead := 'no row';
    ELSIF bound.format <> 1 THEN
        found_instead := format('format %s, and these functions know 1', bound.format);
    ELSIF bound.cluster !~ '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        found_instead := 'the cluster ' || quote_literal(left(bound.cluster, 80));
    ELSIF bound.cluster <> presented THEN
        RAISE EXCEPTION 'ringfence: the fence belongs to cluster %, and this token to cluster %', bound.cluster, presented
            USING ERRCODE = 'RF002', DETAIL = format('presented=%s bound=%s', presented, bound.cluster),
                  HINT = 'Point the worker to its own cluster, or give each cluster a database of its own.';
    END IF;
    IF found_instead IS NOT NULL THEN
        RAISE EXCEPTION 'ringfence: the table ringfence.binding holds %', found_instead USING ERRCODE = 'RF007',
            DETAIL = E'place=the table ringfence.binding\nfound=' || found_instead,
            HINT = 'Everything is refused until an operator repairs it. Never delete a row.';
    END IF;
END
$$;

-- The rule, whole: what is refused, and what the row must be afterwards. The caller holds the scope's queueing lock.
CREATE OR REPLACE FUNCTION ringfence.decide(presented text, scope text, own bigint, held_by bigint, makes boolean, max_jump bigint)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen record;
    locked boolean := false;
    found_instead text;
BEGIN
    PERFORM ringfence.must_be_of(presented);
    LOOP
        -- First without a lock: a refusal is final, since epochs only grow, and needs to wait for nobody.
        IF locked THEN
            SELECT f.epoch, f.session INTO seen FROM ringfence.fence f WHERE f.scope = decide.scope FOR NO KEY UPDATE;
        ELSE
            SELECT f.epoch, f.session INTO seen FROM ringfence.fence f WHERE f.scope = decide.scope;
        END IF;
        IF NOT FOUND THEN
            IF NOT makes THEN
                RAISE EXCEPTION 'ringfence: the fence of % was never raised', scope USING ERRCODE = 'RF003',
                    DETAIL = format('scope=%s own=%s', scope, own),
                    HINT = 'The owner raises it before it reads or writes.';
            ELSIF own > max_jump THEN
                RAISE EXCEPTION 'ringfence: %: epoch % is more than 2^48 ahead of 0', scope, own USING ERRCODE = 'RF004',
                    DETAIL = format('scope=%s own=%s highest=0', scope, own),
                    HINT = 'No coordinator grants it: find out who sent it. ringfence.force_raise is for one that is meant.';
            END IF;
            INSERT INTO ringfence.fence AS f (scope, epoch, session) VALUES (decide.scope, own, held_by) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN;
            END IF;
            -- Somebody made it meanwhile.
            locked := true;
            CONTINUE;
        END IF;
        IF seen.epoch NOT BETWEEN 1 AND 9007199254740991 THEN
            found_instead := format('the epoch %s', seen.epoch);
        ELSIF seen.session = 0 THEN
            found_instead := 'the session 0';
        END IF;
        IF found_instead IS NOT NULL THEN
            RAISE EXCEPTION 'ringfence: the row of % in ringfence.fence holds %', scope, found_instead USING ERRCODE = 'RF007',
                DETAIL = format(E'place=the row of %s in ringfence.fence\nfound=%s', scope, found_instead),
                HINT = 'Give the row an epoch at least as high as any that was granted; never delete it.';
        ELSIF own < seen.epoch THEN
            RAISE EXCEPTION 'ringfence: %@% is fenced: the fence has seen %', scope, own, seen.epoch USING ERRCODE = 'RF001',
                DETAIL = format('scope=%s own=%s highest=%s', scope, own, seen.epoch),
                HINT = 'This owner was replaced: stop its task, and do the work again only under a new grant.';
        ELSIF own = seen.epoch AND held_by <> seen.session THEN
            RAISE EXCEPTION 'ringfence: %@% was already used by another session', scope, own USING ERRCODE = 'RF005',
                DETAIL = format('scope=%s own=%s holder=%s', scope, own, seen.session),
                HINT = 'An epoch is granted to one session only: one of the two is a clone or a forgery. Stop both.';
        ELSIF own - seen.epoch > max_jump THEN
            RAISE EXCEPTION 'ringfence: %: epoch % is more than 2^48 ahead of %', scope, own, seen.epoch USING ERRCODE = 'RF004',
                DETAIL = format('scope=%s own=%s highest=%s', scope, own, seen.epoch),
                HINT = 'No coordinator grants it: find out who sent it. ringfence.force_raise is for one that is meant.';
        ELSIF locked THEN
            -- Also where nothing changes: a raise has to write something, or its commit would not wait for the disk.
            UPDATE ringfence.fence AS f
               SET epoch = own, session = CASE WHEN f.epoch = own THEN coalesce(f.session, held_by) ELSE held_by END
             WHERE f.scope = decide.scope;
            RETURN;
        END IF;
        locked := true;
    END LOOP;
END
$$;

-- Accepts a token in the transaction of the write, and keeps raises of its scope out until that ends; or refuses it.
-- Call it first, and outside of savepoints: rolling back to a savepoint lets go of the locks that were taken after it.
CREATE OR REPLACE FUNCTION ringfence.check(token text, held_by bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part text[];
BEGIN
    IF current_setting('fsync') <> 'on' THEN
        PERFORM ringfence.refuse_not_durable('fsync is ' || current_setting('fsync'), 'fsync = on');
    END IF;
    PERFORM pg_advisory_xact_lock_shared(ringfence.lock_key(ringfence.scope_of(token)));
    -- The owner going on, which is nearly every write: one look, and the row's lock with it. What the row says is compared
    -- as the token's text, of which there is one for each token. A row that has changed since the transaction's snapshot
    -- is an error of serialization here, and not an older row. Whatever this does not accept is for the whole rule.
    PERFORM 1
       FROM ringfence.fence f, ringfence.binding b
      WHERE f.scope = ringfence.scope_of(token) AND b.cluster || '/' || f.scope || '@' || f.epoch::text = token
        AND (held_by IS NULL OR f.session = held_by) AND f.session IS DISTINCT FROM 0
        AND f.epoch BETWEEN 1 AND 9007199254740991 AND b.format = 1
        FOR SHARE OF f;
    IF NOT FOUND THEN
        part := ringfence.parts(token);
        IF part IS NULL OR part[3]::bigint > 9007199254740991 THEN
            PERFORM ringfence.not_a('token', token);
        END IF;
        PERFORM ringfence.decide(part[1], part[2], part[3]::bigint, held_by, false, 281474976710656);
    END IF;
    -- For `refuse_unstamped`. Rolling back to a savepoint takes it back, as it does the locks.
    PERFORM set_config('ringfence.checked', 'yes', true);
END
$$;

-- The tokens of all scopes that the transaction touches: all are accepted or none. By scope, so that two transactions
-- never wait for each other; the newest of a scope first, so that it makes the older one refused.
CREATE OR REPLACE FUNCTION ringfence.check_all(tokens text[], held_by bigint[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
BEGIN
    IF coalesce(cardinality(tokens), 0) = 0 THEN
        PERFORM ringfence.not_a('token', NULL);
    END IF;
    FOR one IN
        SELECT t.token, t.session FROM unnest(tokens, held_by) WITH ORDINALITY AS t (token, session, n)
         WHERE t.n <= cardinality(tokens)
         -- Of two numbers without leading zeros, the longer text is the larger.
         ORDER BY ringfence.scope_of(t.token) COLLATE "C", length(split_part(t.token, '@', -1)) DESC,
                  split_part(t.token, '@', -1) COLLATE "C" DESC, t.n
    LOOP
        PERFORM ringfence.check(one.token, one.session);
    END LOOP;
END
$$;

-- What `check_all` would refuse, as its SQLSTATE and DETAIL; NULL when it accepts. The transaction goes on in both cases.
-- For the time before a fence enforces; what is no refusal is an error here too.
CREATE OR REPLACE FUNCTION ringfence.observe(tokens text[], held_by bigint[] DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    detail text;
BEGIN
    PERFORM ringfence.check_all(tokens, held_by);
    RETURN NULL;
EXCEPTION
    WHEN SQLSTATE 'RF001' OR SQLSTATE 'RF002' OR SQLSTATE 'RF003' OR SQLSTATE 'RF004' OR SQLSTATE 'RF005' OR SQLSTATE 'RF006' THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        RETURN SQLSTATE || ' ' || detail;
END
$$;

-- Who holds the lock of a scope: writers between their check and the end of their transaction, or a raise.
CREATE OR REPLACE FUNCTION ringfence.blockers(scope text)
RETURNS TABLE (pid integer, state text, since timestamptz, usename name, application_name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.pid, coalesce(a.state, CASE WHEN l.pid IS NULL THEN 'prepared transaction' ELSE 'unknown' END),
           a.xact_start, a.usename, a.application_name
      FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND (l.classid::bigint << 32 | l.objid::bigint) = ringfence.lock_key($1)
     ORDER BY a.xact_start, l.pid
$$;

-- Ends the backends that hold the lock of a scope in a transaction that began longer ago than that. Their transactions are
-- rolled back: what a paused owner had under way does not take effect.
CREATE OR REPLACE FUNCTION ringfence.end_blockers(scope text, older_than interval DEFAULT '0') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended integer := 0;
    one record;
BEGIN
    PERFORM pg_stat_clear_snapshot();
    FOR one IN SELECT b.pid FROM ringfence.blockers(end_blockers.scope) b
                WHERE b.pid IS NOT NULL AND b.since <= clock_timestamp() - older_than
    LOOP
        ended := ended + pg_terminate_backend(one.pid, 5000)::integer;
    END LOOP;
    RETURN ended;
END
$$;

-- Refuses where a commit may be lost after it has answered, and makes this transaction's wait for the disk.
CREATE OR REPLACE FUNCTION ringfence.durably() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    table_name text;
BEGIN
    IF pg_is_in_recovery() THEN
        PERFORM ringfence.refuse_not_durable('the server is in recovery, as a replica is', 'the primary: target_session_attrs=read-write');
    ELSIF current_setting('transaction_read_only') = 'on' THEN
        PERFORM ringfence.refuse_not_durable('the transaction is read-only', 'READ WRITE');
    ELSIF current_setting('fsync') <> 'on' THEN
        PERFORM ringfence.refuse_not_durable('fsync is ' || current_setting('fsync'), 'fsync = on');
    END IF;
    SELECT c.relname INTO table_name FROM pg_class c
     WHERE c.oid IN ('ringfence.fence'::regclass, 'ringfence.binding'::regclass) AND c.relpersistence <> 'p';
    IF FOUND THEN
        PERFORM ringfence.refuse_not_durable(format('the table ringfence.%s is unlogged', table_name),
                                             format('ALTER TABLE ringfence.%s SET LOGGED', table_name));
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION ringfence.raise_within(tokens text[], held_by bigint[], wait_ms integer, max_jump bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one record;
    before text := current_setting('lock_timeout');
    who text;
BEGIN
    PERFORM ringfence.durably();
    IF coalesce(cardinality(tokens), 0) = 0 THEN
        RETURN;
    END IF;
    BEGIN
        IF wait_ms IS NOT NULL THEN
            PERFORM set_config('lock_timeout', greatest(wait_ms, 1)::text, true);
        END IF;
        FOR one IN
            SELECT t.token, t.session, p AS part FROM unnest(tokens, held_by) WITH ORDINALITY AS t (token, session, n), ringfence.parts(t.token) AS p
             WHERE t.n <= cardinality(tokens)
             ORDER BY p[2] COLLATE "C", t.n
        LOOP
            IF one.part IS NULL OR one.part[3]::bigint > 9007199254740991 THEN
                PERFORM ringfence.not_a('token', one.token);
            END IF;
            PERFORM pg_advisory_xact_lock(ringfence.lock_key(one.part[2]));
            PERFORM ringfence.decide(one.part[1], one.part[2], one.part[3]::bigint, one.session, true, max_jump);
        END LOOP;
        PERFORM set_config('lock_timeout', before, true);
    EXCEPTION WHEN lock_not_available THEN
        PERFORM pg_stat_clear_snapshot();
        SELECT string_agg(format('pid %s (%s, in a transaction since %s, user %s, application %s)', b.pid, b.state,
                                 coalesce(b.since::text, 'unknown'), coalesce(b.usename, 'unknown'), quote_nullable(b.application_name)), '; ')
          INTO who FROM (SELECT * FROM ringfence.blockers(one.part[2]) LIMIT 10) b;
        RAISE EXCEPTION 'ringfence: the fence of % is held by other transactions, and was not raised', one.part[2]
            USING ERRCODE = 'RF009',
                  DETAIL = format('scope=%s blockers=%s', one.part[2], coalesce(who, 'a transaction that locked the row by itself')),
                  HINT = 'End them with ringfence.end_blockers, and set idle_in_transaction_session_timeout.';
    END;
END
$$;

-- Raises a scope, before its owner reads anything. It is durable when the transaction has committed, so call it as a
-- statement of its own.
CREATE OR REPLACE FUNCTION ringfence.raise(token text, held_by bigint DEFAULT NULL, wait_ms integer DEFAULT 5000) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ringfence.raise_within(ARRAY[token], ARRAY[held_by], wait_ms, 281474976710656);
END
$$;

-- Raises several scopes: all or none.
CREATE OR REPLACE FUNCTION ringfence.raise_all(tokens text[], held_by bigint[] DEFAULT NULL, wait_ms integer DEFAULT 5000) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ringfence.raise_within(tokens, held_by, wait_ms, 281474976710656);
END
$$;

-- Raises past the bound on a jump, for an operator who knows why. Nobody moves a fence back.
CREATE OR REPLACE FUNCTION ringfence.force_raise(token text, held_by bigint DEFAULT NULL, wait_ms integer DEFAULT 5000) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ringfence.raise_within(ARRAY[token], ARRAY[held_by], wait_ms, 9007199254740991);
END
$$;

-- The highest epoch seen of a scope; NULL when it was never raised. For display: on a replica it may be old.
CREATE OR REPLACE FUNCTION ringfence.highest(scope text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound text := (SELECT b.cluster FROM ringfence.binding b);
    seen record;
BEGIN
    PERFORM ringfence.must_be_of(bound);
    SELECT f.epoch, f.session INTO seen FROM ringfence.fence f WHERE f.scope = highest.scope;
    IF seen.epoch NOT BETWEEN 1 AND 9007199254740991 OR seen.session = 0 THEN
        RAISE EXCEPTION 'ringfence: the row of % in ringfence.fence is damaged', scope USING ERRCODE = 'RF007',
            DETAIL = format(E'place=the row of %s in ringfence.fence\nfound=the epoch %s, the session %s', scope, seen.epoch, seen.session);
    END IF;
    RETURN seen.epoch;
END
$$;

-- Binds the database to a cluster at first use; from then on refuses another.
CREATE OR REPLACE FUNCTION ringfence.bind(cluster text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cluster IS NULL OR cluster !~ '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        PERFORM ringfence.not_a('cluster', cluster);
    END IF;
    PERFORM ringfence.durably();
    -- Only where nothing was: were the binding lost while rows are left, nobody knows whose they are.
    INSERT INTO ringfence.binding (format, cluster)
    SELECT 1, bind.cluster WHERE NOT EXISTS (SELECT FROM ringfence.binding) AND NOT EXISTS (SELECT FROM ringfence.fence)
        ON CONFLICT DO NOTHING;
    PERFORM ringfence.must_be_of(cluster);
END
$$;

-- For a trigger of your own, BEFORE INSERT OR UPDATE OR DELETE on a table of yours, FOR EACH STATEMENT: refuses a statement
-- whose transaction has checked no token, such as one typed by hand. Which scope was checked, it does not compare.
CREATE OR REPLACE FUNCTION ringfence.refuse_unstamped() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('ringfence.checked', true), '') = '' THEN
        PERFORM ringfence.not_a('token', NULL);
    END IF;
    RETURN NULL;
END
$$;

REVOKE ALL ON ALL TABLES IN SCHEMA ringfence FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ringfence FROM PUBLIC;
