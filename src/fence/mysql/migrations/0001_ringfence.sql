-- ringfence: the fence in MariaDB 10.6 and MySQL 8.0.4, and later. Format 1, revision 1.
--
-- Run it in the database that holds the data: `mariadb orders < 0001_ringfence.sql`, a tool that knows DELIMITER (Flyway), or
-- `MysqlFence::install`. Running it again changes nothing. Then bind the database to its cluster, once:
-- `CALL ringfence_bind('prod');`
--
-- Everything is named `ringfence_`. Whoever runs it needs CREATE, CREATE ROUTINE, ALTER ROUTINE, TRIGGER and REFERENCES; with a
-- binary log and without SUPER also `log_bin_trust_function_creators = ON`, for the triggers. A worker's user needs EXECUTE on
--
--     ringfence_bind, ringfence_check, ringfence_check_by, ringfence_check_all, ringfence_observe, ringfence_raise,
--     ringfence_raise_all, ringfence_highest, ringfence_covers, ringfence_refuse_unstamped, ringfence_revision
--
-- each as GRANT EXECUTE ON PROCEDURE, and no right to the tables; an operator's `ringfence_force_raise` as well. The procedures
-- run with the rights of whoever made them (SQL SECURITY DEFINER): a writer that could update the fence by itself could also
-- take it back. Should that user have PROCESS, a raise that waited in vain can say for whom.
--
-- Errors have a SQLSTATE of their own, and their values in the message, as `name=value`. A message holds 128 characters in
-- MySQL, and each of these fits.
--
--     RF001 fenced: a newer epoch was seen        scope= own= highest=
--     RF002 of another cluster                    presented= bound=
--     RF003 never raised                          scope= own=
--     RF004 implausible: more than 2^48 ahead     scope= own= highest=    (highest=0: never raised)
--     RF005 the epoch is another session's        scope= own= by=
--     RF006 without a token
--     RF007 corrupt: nothing is accepted          place= found=           (to the end)
--     RF008 not durable                           setting= needed=        (to the end)
--     RF009 another transaction stood in the way  scope= blockers=        (to the end)
--     RF010 not a token, a scope or a cluster     found=
--     RF011 not bound to a cluster yet
--     RF012 not as it has to be called            (the message says how)
--     40001 the transaction's snapshot is older than the last raise: run the whole transaction again
--
-- A refusal undoes nothing by itself and does not end the transaction, as no error does here: roll back.

DELIMITER //

SET @ringfence_sql_mode = @@SESSION.sql_mode
//
-- The mode is kept with each procedure, so that they do the same for everybody.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'
//
DROP PROCEDURE IF EXISTS ringfence_may_install
//
CREATE PROCEDURE ringfence_may_install()
BEGIN
    DECLARE other INT;
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    IF EXISTS (SELECT 1 FROM information_schema.TABLES t
                WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'ringfence_binding') THEN
        SELECT MAX(b.format) INTO other FROM ringfence_binding b;
        IF other <> 1 THEN
            SET said = CONCAT('place=the table ringfence_binding found=format ', other, ', and this file makes format 1');
            SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
        ELSEIF other IS NOT NULL AND NOT EXISTS (SELECT 1 FROM information_schema.TABLES t
                WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'ringfence_fence') THEN
            -- An empty one would let every replaced owner in. Restore it, or raise every scope anew to an epoch above all that
            -- were granted before any worker writes.
            SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = 'place=the table ringfence_fence found=no table';
        END IF;
    END IF;
    IF EXISTS (SELECT 1 FROM information_schema.ROUTINES r
                WHERE r.ROUTINE_SCHEMA = DATABASE() AND r.ROUTINE_NAME = 'ringfence_revision') THEN
        CALL ringfence_revision(other);
        IF other > 1 THEN
            SET said = CONCAT('place=the procedures found=revision ', other, ', and this file would take them back to 1');
            SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
        END IF;
    END IF;
END
//
CALL ringfence_may_install()
//
DROP PROCEDURE ringfence_may_install
//

-- One row a scope, made by the first raise and there for ever. `raises` counts: a raise that changes nothing would write
-- nothing, and its commit would not wait for the disk.
CREATE TABLE IF NOT EXISTS ringfence_fence (
    scope   VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    epoch   BIGINT NOT NULL,
    session BIGINT NULL,
    raises  BIGINT NOT NULL,
    CONSTRAINT ringfence_fence_epoch CHECK (epoch BETWEEN 1 AND 9007199254740991),
    CONSTRAINT ringfence_fence_session CHECK (session <> 0)
) ENGINE = InnoDB
//
-- `keeps` is never set. A table that a foreign key names cannot be truncated or dropped, nor given another engine.
CREATE TABLE IF NOT EXISTS ringfence_binding (
    one     TINYINT NOT NULL PRIMARY KEY,
    format  INT NOT NULL,
    cluster VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    keeps   VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    CONSTRAINT ringfence_binding_one CHECK (one = 1),
    CONSTRAINT ringfence_binding_keeps FOREIGN KEY (keeps) REFERENCES ringfence_fence (scope)
) ENGINE = InnoDB
//

-- What people do by hand, and what retention jobs do to every table.
DROP TRIGGER IF EXISTS ringfence_fence_never_deleted
//
CREATE TRIGGER ringfence_fence_never_deleted BEFORE DELETE ON ringfence_fence FOR EACH ROW
BEGIN
    SIGNAL SQLSTATE '45000'
        SET MESSAGE_TEXT = 'ringfence: a fence is never deleted, or a replaced owner could write again';
END
//
DROP TRIGGER IF EXISTS ringfence_fence_forward_only
//
CREATE TRIGGER ringfence_fence_forward_only BEFORE UPDATE ON ringfence_fence FOR EACH ROW
BEGIN
    -- A row that is damaged may be set to a sound epoch.
    IF NEW.scope <> OLD.scope OR (NEW.epoch < OLD.epoch AND OLD.epoch <= 9007199254740991) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ringfence: a fence only moves forward';
    END IF;
END
//
DROP TRIGGER IF EXISTS ringfence_binding_never_deleted
//
CREATE TRIGGER ringfence_binding_never_deleted BEFORE DELETE ON ringfence_binding FOR EACH ROW
BEGIN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ringfence: a database stays with its cluster';
END
//
DROP TRIGGER IF EXISTS ringfence_binding_never_changes
//
CREATE TRIGGER ringfence_binding_never_changes BEFORE UPDATE ON ringfence_binding FOR EACH ROW
BEGIN
    IF NEW.cluster <> OLD.cluster THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ringfence: a database stays with its cluster';
    END IF;
END
//

-- A token's cluster, scope and epoch; refuses what is not one.
DROP PROCEDURE IF EXISTS ringfence_parts
//
CREATE PROCEDURE ringfence_parts(
    IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT cluster VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT own BIGINT)
BEGIN
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    IF token IS NULL OR CHAR_LENGTH(token) = 0 THEN
        SIGNAL SQLSTATE 'RF006'
            SET MESSAGE_TEXT = 'a write without a fencing token is refused: stamp it with the token of every scope it touches';
    END IF;
    IF token REGEXP '^[a-z0-9][a-z0-9._-]{0,62}/([a-z0-9][a-z0-9._-]{0,62}/(0|[1-9][0-9]{0,9})|@locks/[a-z0-9][a-z0-9._-]{0,62})@[1-9][0-9]{0,15}$' THEN
        SET cluster = SUBSTRING_INDEX(token, '/', 1);
        SET own = CAST(SUBSTRING_INDEX(token, '@', -1) AS UNSIGNED);
        SET scope = SUBSTRING(token, CHAR_LENGTH(cluster) + 2,
                              CHAR_LENGTH(token) - CHAR_LENGTH(cluster) - 2 - CHAR_LENGTH(SUBSTRING_INDEX(token, '@', -1)));
    END IF;
    -- Written back, because `$` lets the end of a line pass.
    IF own IS NULL OR own > 9007199254740991 OR HEX(CONCAT(cluster, '/', scope, '@', own)) <> HEX(token) THEN
        SET said = CONCAT('a token is written CLUSTER/KEYSPACE/PARTITION@EPOCH found=', LEFT(QUOTE(token), 60));
        SIGNAL SQLSTATE 'RF010' SET MESSAGE_TEXT = said;
    END IF;
END
//

-- Refuses a database that is damaged, unbound, or another cluster's.
DROP PROCEDURE IF EXISTS ringfence_must_be_of
//
CREATE PROCEDURE ringfence_must_be_of(IN presented VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
    DECLARE its_format INT;
    DECLARE bound VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE said VARCHAR(192) CHARACTER SET utf8mb4;
    SELECT b.format, b.cluster INTO its_format, bound FROM ringfence_binding b;
    IF its_format IS NULL THEN
        IF EXISTS (SELECT 1 FROM ringfence_fence) THEN
            -- Rows without a binding: nobody knows whose they are.
            SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = 'place=the table ringfence_binding found=no row';
        END IF;
        SIGNAL SQLSTATE 'RF011' SET MESSAGE_TEXT = 'this database is not bound to a cluster yet: CALL ringfence_bind';
    ELSEIF its_format <> 1 THEN
        SET said = CONCAT('place=the table ringfence_binding found=format ', its_format, ', and these procedures know 1');
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
    ELSEIF bound NOT REGEXP '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        SET said = CONCAT('place=the table ringfence_binding found=the cluster ', LEFT(QUOTE(bound), 60));
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
    ELSEIF bound <> presented THEN
        -- Two names of 63 characters are too long for a message; they are cut then.
        SET said = LEFT(CONCAT('bound=', bound, ' presented=', presented), 128);
        SIGNAL SQLSTATE 'RF002' SET MESSAGE_TEXT = said;
    END IF;
END
//

-- The rule: refuses, or returns. `seen` is NULL where there is no row.
DROP PROCEDURE IF EXISTS ringfence_judge
//
CREATE PROCEDURE ringfence_judge(
    IN scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN own BIGINT, IN held_by BIGINT, IN seen BIGINT, IN holder BIGINT, IN makes BOOLEAN, IN max_jump BIGINT)
BEGIN
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    IF seen IS NULL THEN
        IF NOT makes THEN
            SET said = CONCAT('scope=', scope, ' own=', own);
            SIGNAL SQLSTATE 'RF003' SET MESSAGE_TEXT = said;
        ELSEIF own > max_jump THEN
            SET said = CONCAT('scope=', scope, ' own=', own, ' highest=0');
            SIGNAL SQLSTATE 'RF004' SET MESSAGE_TEXT = said;
        END IF;
    ELSEIF seen NOT BETWEEN 1 AND 9007199254740991 THEN
        SET said = LEFT(CONCAT('place=the row of ', scope, ' found=the epoch ', seen), 128);
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
    ELSEIF holder = 0 THEN
        SET said = CONCAT('place=the row of ', scope, ' found=the session 0');
        SIGNAL SQLSTATE 'RF007' SET MESSAGE_TEXT = said;
    ELSEIF own < seen THEN
        SET said = CONCAT('scope=', scope, ' own=', own, ' highest=', seen);
        SIGNAL SQLSTATE 'RF001' SET MESSAGE_TEXT = said;
    ELSEIF own = seen AND held_by <> holder THEN
        SET said = CONCAT('scope=', scope, ' own=', own, ' by=', holder);
        SIGNAL SQLSTATE 'RF005' SET MESSAGE_TEXT = said;
    ELSEIF own - seen > max_jump THEN
        SET said = CONCAT('scope=', scope, ' own=', own, ' highest=', seen);
        SIGNAL SQLSTATE 'RF004' SET MESSAGE_TEXT = said;
    END IF;
END
//

-- Locks a scope's row against raises until the transaction ends, and judges. `seen` and `holder` are what the scope has
-- before, and NULL where this has to be read.
DROP PROCEDURE IF EXISTS ringfence_admit
//
CREATE PROCEDURE ringfence_admit(
    IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN held_by BIGINT,
    INOUT last_scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    INOUT seen BIGINT, INOUT holder BIGINT, OUT writes BOOLEAN)
BEGIN
    DECLARE its_cluster, bound VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE its_scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE own, in_snapshot BIGINT;
    DECLARE its_format INT;
    DECLARE by_hand BOOLEAN DEFAULT FALSE;
    IF @@GLOBAL.read_only THEN
        SIGNAL SQLSTATE 'RF008'
            SET MESSAGE_TEXT = 'setting=the server is read-only, as a replica is needed=the primary';
    END IF;
    SET writes = FALSE;
    -- Of a token, without a look at the rest of it: this is on the way of every write.
    SET its_scope = LEFT(SUBSTRING(token, LOCATE('/', token) + 1,
        GREATEST(0, CHAR_LENGTH(token) - LOCATE('/', token) - CHAR_LENGTH(SUBSTRING_INDEX(token, '@', -1)) - 1)), 80);
    IF its_scope <=> last_scope THEN
        SET in_snapshot = seen, by_hand = TRUE;
    ELSE
        SET seen = NULL, holder = NULL;
        -- A locking read sees what is committed, whatever the transaction's snapshot says. It comes before any other read, or
        -- the snapshot would be taken before the lock.
        SELECT f.epoch, f.session INTO seen, holder FROM ringfence_fence f WHERE f.scope = its_scope LOCK IN SHARE MODE;
        -- Who brings in a newer epoch waits for those that have checked under the one before: what they write is to be in the
        -- snapshot. Of the numbers of two epochs the longer text is the greater.
        IF CHAR_LENGTH(SUBSTRING_INDEX(token, '@', -1)) > CHAR_LENGTH(seen)
           OR CHAR_LENGTH(SUBSTRING_INDEX(token, '@', -1)) = CHAR_LENGTH(seen) AND SUBSTRING_INDEX(token, '@', -1) > CONCAT(seen) THEN
            SELECT f.epoch, f.session INTO seen, holder FROM ringfence_fence f WHERE f.scope = its_scope FOR UPDATE;
        END IF;
        -- And this one sees the snapshot.
        SELECT b.format, b.cluster, f.epoch INTO its_format, bound, in_snapshot
          FROM ringfence_binding b LEFT JOIN ringfence_fence f ON f.scope = its_scope;
    END IF;
    -- The owner going on, which is nearly every write. Of texts there is one for each token.
    IF by_hand OR its_format IS NULL OR its_format <> 1 OR seen IS NULL OR seen NOT BETWEEN 1 AND 9007199254740991
       OR holder = 0 OR in_snapshot IS NULL OR in_snapshot <> seen OR (held_by IS NOT NULL AND NOT held_by <=> holder)
       OR token IS NULL OR HEX(CONCAT(bound, '/', its_scope, '@', seen)) <> HEX(token) THEN
        CALL ringfence_parts(token, its_cluster, its_scope, own);
        CALL ringfence_must_be_of(its_cluster);
        CALL ringfence_judge(its_scope, own, held_by, seen, holder, FALSE, 281474976710656);
        IF NOT (in_snapshot <=> seen) THEN
            -- What the transaction has read may be older than what the owner before has written last.
            SIGNAL SQLSTATE '40001'
                SET MESSAGE_TEXT = 'ringfence: the transaction reads a state from before the last raise: run it again';
        END IF;
        SET writes = own > seen OR (holder IS NULL AND held_by IS NOT NULL);
        IF own > seen THEN
            SET seen = own, holder = held_by;
        ELSEIF holder IS NULL THEN
            SET holder = held_by;
        END IF;
    END IF;
    SET last_scope = its_scope;
END
//

-- Refuses a check outside of a transaction, where it would hold nothing, and takes away the savepoint of a check before it. An
-- accepted check sets it: should it be gone at the end, the last check was refused, or the transaction was ended in between, by a
-- statement that commits by itself or by a deadlock.
DROP PROCEDURE IF EXISTS ringfence_mark
//
CREATE PROCEDURE ringfence_mark()
BEGIN
    DECLARE EXIT HANDLER FOR 1305
        SIGNAL SQLSTATE 'RF012' SET MESSAGE_TEXT = 'a check counts in the transaction of the write: START TRANSACTION first';
    SAVEPOINT ringfence_checked;
    RELEASE SAVEPOINT ringfence_checked;
END
//

DROP PROCEDURE IF EXISTS ringfence_admit_one
//
CREATE PROCEDURE ringfence_admit_one(
    IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN held_by BIGINT)
BEGIN
    DECLARE its_scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE epoch_now, session_now BIGINT;
    DECLARE writes BOOLEAN;
    CALL ringfence_admit(token, held_by, its_scope, epoch_now, session_now, writes);
    IF writes THEN
        UPDATE ringfence_fence f SET f.epoch = epoch_now, f.session = session_now WHERE f.scope = its_scope;
    END IF;
END
//

-- By scope, so that two transactions never wait for each other; the newest of a scope first, so that it makes the older one
-- refused. Nothing is written before all are accepted: an error does not take back what was written before it.
DROP PROCEDURE IF EXISTS ringfence_admit_all
//
CREATE PROCEDURE ringfence_admit_all(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4)
BEGIN
    DECLARE one_token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE its_scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE by_session, epoch_now, session_now BIGINT;
    DECLARE writes, any_writes, done BOOLEAN DEFAULT FALSE;
    DECLARE inner_cluster VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE own BIGINT;
    DECLARE asked CURSOR FOR
        SELECT t.token, h.held_by
          FROM JSON_TABLE(tokens, '$[*]' COLUMNS (n FOR ORDINALITY, token VARCHAR(255) PATH '$')) AS t
          LEFT JOIN JSON_TABLE(COALESCE(held_by, '[]'), '$[*]' COLUMNS (n FOR ORDINALITY, held_by BIGINT PATH '$')) AS h ON h.n = t.n
         ORDER BY CAST(SUBSTRING(t.token, LOCATE('/', t.token) + 1, GREATEST(0, CHAR_LENGTH(t.token) - LOCATE('/', t.token)
                  - CHAR_LENGTH(SUBSTRING_INDEX(t.token, '@', -1)) - 1)) AS BINARY),
                  CHAR_LENGTH(SUBSTRING_INDEX(t.token, '@', -1)) DESC, CAST(SUBSTRING_INDEX(t.token, '@', -1) AS BINARY) DESC, t.n;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
    IF COALESCE(JSON_LENGTH(tokens), 0) = 0 THEN
        CALL ringfence_parts(NULL, inner_cluster, its_scope, own);
    END IF;
    OPEN asked;
    look: LOOP
        FETCH asked INTO one_token, by_session;
        IF done THEN
            LEAVE look;
        END IF;
        CALL ringfence_admit(one_token, by_session, its_scope, epoch_now, session_now, writes);
        SET any_writes = any_writes OR writes, done = FALSE;
    END LOOP;
    CLOSE asked;
    IF any_writes THEN
        SET done = FALSE;
        OPEN asked;
        write_down: LOOP
            FETCH asked INTO one_token, by_session;
            IF done THEN
                LEAVE write_down;
            END IF;
            CALL ringfence_parts(one_token, inner_cluster, its_scope, own);
            UPDATE ringfence_fence f
               SET f.session = CASE WHEN f.epoch < own THEN by_session ELSE COALESCE(f.session, by_session) END, f.epoch = own
             WHERE f.scope = its_scope AND f.epoch <= own;
            SET done = FALSE;
        END LOOP;
        CLOSE asked;
    END IF;
END
//

-- Accepts a token in the transaction of the write, and keeps raises of its scope out until that ends; or refuses it.
DROP PROCEDURE IF EXISTS ringfence_check
//
CREATE PROCEDURE ringfence_check(IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
    SET @ringfence_checked = NULL;
    CALL ringfence_mark();
    CALL ringfence_admit_one(token, NULL);
    SAVEPOINT ringfence_checked;
    SET @ringfence_checked = token;
END
//

-- The same for a token whose session is known, as the bits of a signed number.
DROP PROCEDURE IF EXISTS ringfence_check_by
//
CREATE PROCEDURE ringfence_check_by(
    IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN held_by BIGINT)
BEGIN
    SET @ringfence_checked = NULL;
    CALL ringfence_mark();
    CALL ringfence_admit_one(token, held_by);
    SAVEPOINT ringfence_checked;
    SET @ringfence_checked = token;
END
//

-- The tokens of all scopes that the transaction touches, as a JSON array of texts: all are accepted or none. `held_by` is an
-- array of numbers and nulls, or NULL.
DROP PROCEDURE IF EXISTS ringfence_check_all
//
CREATE PROCEDURE ringfence_check_all(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4)
BEGIN
    SET @ringfence_checked = NULL;
    CALL ringfence_mark();
    CALL ringfence_admit_all(tokens, held_by);
    SAVEPOINT ringfence_checked;
    SET @ringfence_checked = tokens;
END
//

-- What `ringfence_check_all` would refuse, as its SQLSTATE and message; NULL when it accepts. For the time before a fence
-- enforces; what is no refusal is an error here too.
DROP PROCEDURE IF EXISTS ringfence_observe
//
CREATE PROCEDURE ringfence_observe(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4)
BEGIN
    DECLARE code CHAR(5);
    DECLARE said VARCHAR(512) CHARACTER SET utf8mb4;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLSTATE 'RF001', SQLSTATE 'RF002', SQLSTATE 'RF003', SQLSTATE 'RF004', SQLSTATE 'RF005', SQLSTATE 'RF006'
            GET DIAGNOSTICS CONDITION 1 code = RETURNED_SQLSTATE, said = MESSAGE_TEXT;
        CALL ringfence_mark();
        CALL ringfence_admit_all(tokens, held_by);
    END;
    SELECT CONCAT(code, ' ', said) AS would_refuse;
END
//

-- For a trigger of your own, BEFORE INSERT, UPDATE or DELETE on a table of yours, FOR EACH ROW: refuses what no token was checked
-- for in this connection, and checks that token again, in the same step as the row is written. So it also holds where the
-- transaction of the check has ended unseen.
DROP PROCEDURE IF EXISTS ringfence_refuse_unstamped
//
CREATE PROCEDURE ringfence_refuse_unstamped()
BEGIN
    IF LEFT(@ringfence_checked, 1) = '[' THEN
        CALL ringfence_admit_all(@ringfence_checked, NULL);
    ELSE
        CALL ringfence_admit_one(@ringfence_checked, NULL);
    END IF;
END
//

-- Refuses a table that takes no part in a transaction, such as one of MyISAM: its rows are not taken back with a refusal.
DROP PROCEDURE IF EXISTS ringfence_covers
//
CREATE PROCEDURE ringfence_covers(IN table_name VARCHAR(64) CHARACTER SET utf8mb4)
BEGIN
    DECLARE its_engine VARCHAR(64);
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    SELECT t.ENGINE INTO its_engine FROM information_schema.TABLES t
     WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = table_name;
    IF its_engine IS NULL OR its_engine <> 'InnoDB' THEN
        SET said = LEFT(CONCAT('its engine is ', COALESCE(its_engine, 'unknown'), ', and the fence covers InnoDB only: ',
                               QUOTE(table_name)), 128);
        SIGNAL SQLSTATE 'RF012' SET MESSAGE_TEXT = said;
    END IF;
END
//

-- Refuses where a commit may be lost after it has answered, where others do not see the lock of a row, and where somebody
-- else's transaction would be committed.
DROP PROCEDURE IF EXISTS ringfence_durably
//
CREATE PROCEDURE ringfence_durably()
BEGIN
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE its_name VARCHAR(64);
    DECLARE alone BOOLEAN DEFAULT FALSE;
    BEGIN
        -- Outside of a transaction, a savepoint is gone as soon as it is made.
        DECLARE EXIT HANDLER FOR 1305 SET alone = TRUE;
        SAVEPOINT ringfence_alone;
        RELEASE SAVEPOINT ringfence_alone;
    END;
    IF NOT alone THEN
        SIGNAL SQLSTATE 'RF012'
            SET MESSAGE_TEXT = 'the connection is in a transaction, and a raise commits one of its own: end it, and set autocommit = 1';
    ELSEIF @@GLOBAL.read_only THEN
        SIGNAL SQLSTATE 'RF008'
            SET MESSAGE_TEXT = 'setting=the server is read-only, as a replica is needed=the primary';
    ELSEIF @@GLOBAL.innodb_flush_log_at_trx_commit NOT IN (1, 3) THEN
        SET said = CONCAT('setting=innodb_flush_log_at_trx_commit is ', @@GLOBAL.innodb_flush_log_at_trx_commit,
                          ' needed=innodb_flush_log_at_trx_commit = 1');
        SIGNAL SQLSTATE 'RF008' SET MESSAGE_TEXT = said;
    ELSEIF @@GLOBAL.log_bin AND @@GLOBAL.sync_binlog <> 1 THEN
        -- What is in InnoDB's log and not in the binary log is taken back when the server recovers.
        SET said = CONCAT('setting=there is a binary log and sync_binlog is ', @@GLOBAL.sync_binlog, ' needed=sync_binlog = 1');
        SIGNAL SQLSTATE 'RF008' SET MESSAGE_TEXT = said;
    END IF;
    SELECT MIN(t.TABLE_NAME) INTO its_name FROM information_schema.TABLES t
     WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME IN ('ringfence_fence', 'ringfence_binding') AND t.ENGINE <> 'InnoDB';
    IF its_name IS NOT NULL THEN
        SET said = CONCAT('setting=the table ', its_name, ' is not of InnoDB needed=ALTER TABLE .. ENGINE = InnoDB');
        SIGNAL SQLSTATE 'RF008' SET MESSAGE_TEXT = said;
    END IF;
    /*M! IF EXISTS (SELECT 1 FROM information_schema.GLOBAL_VARIABLES v
                     WHERE v.VARIABLE_NAME = 'WSREP_ON' AND v.VARIABLE_VALUE = 'ON') THEN
        SIGNAL SQLSTATE 'RF012'
            SET MESSAGE_TEXT = 'Galera does not show the lock of a row to its other nodes, so a fence there excludes nobody';
    END IF; */
END
//

-- Several scopes in one transaction: all or none. `wait_s` is how long it waits for each, in seconds.
DROP PROCEDURE IF EXISTS ringfence_raise_within
//
CREATE PROCEDURE ringfence_raise_within(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4, IN wait_s INT, IN max_jump BIGINT)
BEGIN
    DECLARE one_token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE its_cluster VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE its_scope, last_scope VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE own, by_session, seen, holder BIGINT;
    DECLARE made INT;
    DECLARE done BOOLEAN DEFAULT FALSE;
    DECLARE who VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE before_it INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
    DECLARE asked CURSOR FOR
        SELECT t.token, h.held_by
          FROM JSON_TABLE(tokens, '$[*]' COLUMNS (n FOR ORDINALITY, token VARCHAR(255) PATH '$')) AS t
          LEFT JOIN JSON_TABLE(COALESCE(held_by, '[]'), '$[*]' COLUMNS (n FOR ORDINALITY, held_by BIGINT PATH '$')) AS h ON h.n = t.n
         ORDER BY CAST(SUBSTRING(t.token, LOCATE('/', t.token) + 1, GREATEST(0, CHAR_LENGTH(t.token) - LOCATE('/', t.token)
                  - CHAR_LENGTH(SUBSTRING_INDEX(t.token, '@', -1)) - 1)) AS BINARY), t.n;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
    CALL ringfence_durably();
    -- First without a lock: a refusal is final, since epochs only grow, and needs to wait for nobody.
    OPEN asked;
    look: LOOP
        FETCH asked INTO one_token, by_session;
        IF done THEN
            LEAVE look;
        END IF;
        CALL ringfence_parts(one_token, its_cluster, its_scope, own);
        CALL ringfence_must_be_of(its_cluster);
        IF NOT its_scope <=> last_scope THEN
            SET seen = NULL, holder = NULL;
            SELECT f.epoch, f.session INTO seen, holder FROM ringfence_fence f WHERE f.scope = its_scope;
        END IF;
        CALL ringfence_judge(its_scope, own, by_session, seen, holder, TRUE, max_jump);
        IF seen = own THEN
            SET holder = COALESCE(holder, by_session);
        ELSE
            SET seen = own, holder = by_session;
        END IF;
        SET last_scope = its_scope, done = FALSE;
    END LOOP;
    CLOSE asked;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            SET SESSION innodb_lock_wait_timeout = before_it;
            RESIGNAL;
        END;
        DECLARE EXIT HANDLER FOR 1205
        BEGIN
            ROLLBACK;
            SET SESSION innodb_lock_wait_timeout = before_it;
            BEGIN
                -- Without PROCESS nobody may know.
                DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET who = NULL;
                SELECT CONCAT('perhaps ', t.trx_mysql_thread_id, ' (since ', t.trx_started, ')') INTO who
                  FROM information_schema.INNODB_TRX t
                 WHERE t.trx_rows_locked > 0 AND t.trx_mysql_thread_id <> CONNECTION_ID()
                 ORDER BY t.trx_started, t.trx_id LIMIT 1;
            END;
            SET who = LEFT(CONCAT('scope=', its_scope, ' blockers=', COALESCE(who, 'a transaction that has checked and not ended')), 128);
            SIGNAL SQLSTATE 'RF009' SET MESSAGE_TEXT = who;
        END;
        IF wait_s IS NOT NULL THEN
            SET SESSION innodb_lock_wait_timeout = GREATEST(wait_s, 1);
        END IF;
        START TRANSACTION;
        SET done = FALSE;
        OPEN asked;
        raise_each: LOOP
            FETCH asked INTO one_token, by_session;
            IF done THEN
                LEAVE raise_each;
            END IF;
            CALL ringfence_parts(one_token, its_cluster, its_scope, own);
            CALL ringfence_must_be_of(its_cluster);
            SET seen = NULL, holder = NULL;
            -- Makes the row, or locks the one that is there. To look for it first would lock the gap where it is not, and two
            -- who do would wait for each other.
            INSERT INTO ringfence_fence (scope, epoch, session, raises) VALUES (its_scope, own, by_session, 1)
                ON DUPLICATE KEY UPDATE raises = ringfence_fence.raises + 1;
            SET made = ROW_COUNT();
            IF made <> 1 THEN
                SELECT f.epoch, f.session INTO seen, holder FROM ringfence_fence f WHERE f.scope = its_scope FOR UPDATE;
            END IF;
            CALL ringfence_judge(its_scope, own, by_session, seen, holder, TRUE, max_jump);
            IF made <> 1 THEN
                UPDATE ringfence_fence f
                   SET f.session = CASE WHEN f.epoch = own THEN COALESCE(f.session, by_session) ELSE by_session END, f.epoch = own
                 WHERE f.scope = its_scope;
            END IF;
            SET done = FALSE;
        END LOOP;
        CLOSE asked;
        COMMIT;
        SET SESSION innodb_lock_wait_timeout = before_it;
    END;
END
//

-- Raises a scope, before its owner reads anything. It commits a transaction of its own, and is durable when it returns.
DROP PROCEDURE IF EXISTS ringfence_raise
//
CREATE PROCEDURE ringfence_raise(IN token VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
    CALL ringfence_raise_within(JSON_ARRAY(token), NULL, 5, 281474976710656);
END
//

-- Raises several scopes: all or none. As for `ringfence_check_all`; `wait_s` is how long it waits for each, at least a second.
DROP PROCEDURE IF EXISTS ringfence_raise_all
//
CREATE PROCEDURE ringfence_raise_all(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4, IN wait_s INT)
BEGIN
    CALL ringfence_raise_within(tokens, held_by, wait_s, 281474976710656);
END
//

-- Raises past the bound on a jump, for an operator who knows why. Nobody moves a fence back.
DROP PROCEDURE IF EXISTS ringfence_force_raise
//
CREATE PROCEDURE ringfence_force_raise(IN tokens LONGTEXT CHARACTER SET utf8mb4, IN held_by LONGTEXT CHARACTER SET utf8mb4, IN wait_s INT)
BEGIN
    CALL ringfence_raise_within(tokens, held_by, wait_s, 9007199254740991);
END
//

-- The highest epoch seen of a scope; NULL when it was never raised. For display: on a replica it may be old.
DROP PROCEDURE IF EXISTS ringfence_highest
//
CREATE PROCEDURE ringfence_highest(IN of_scope VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
    DECLARE bound VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE seen, holder BIGINT;
    SELECT b.cluster INTO bound FROM ringfence_binding b;
    CALL ringfence_must_be_of(bound);
    SELECT f.epoch, f.session INTO seen, holder FROM ringfence_fence f WHERE f.scope = of_scope;
    IF seen IS NOT NULL THEN
        -- Only what is damaged is refused.
        CALL ringfence_judge(of_scope, seen, holder, seen, holder, FALSE, 0);
    END IF;
    SELECT CAST(seen AS CHAR) AS highest;
END
//

-- Binds the database to a cluster at first use; from then on refuses another.
DROP PROCEDURE IF EXISTS ringfence_bind
//
CREATE PROCEDURE ringfence_bind(IN to_cluster VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
BEGIN
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4;
    IF to_cluster IS NULL OR to_cluster NOT REGEXP '^[a-z0-9][a-z0-9._-]{0,62}$' OR LOCATE('\n', to_cluster) > 0 THEN
        SET said = CONCAT('a cluster is named with a to z, 0 to 9, dot, dash and underscore found=',
                          COALESCE(LEFT(QUOTE(to_cluster), 50), 'NULL'));
        SIGNAL SQLSTATE 'RF010' SET MESSAGE_TEXT = said;
    END IF;
    CALL ringfence_durably();
    -- Only where nothing was: were the binding lost while rows are left, nobody knows whose they are.
    IF NOT EXISTS (SELECT 1 FROM ringfence_binding) AND NOT EXISTS (SELECT 1 FROM ringfence_fence) THEN
        INSERT IGNORE INTO ringfence_binding (one, format, cluster) VALUES (1, 1, to_cluster);
    END IF;
    CALL ringfence_must_be_of(to_cluster);
END
//

-- Of these procedures, and made last. A client brings the file that it needs when it finds a lower one.
DROP PROCEDURE IF EXISTS ringfence_revision
//
CREATE PROCEDURE ringfence_revision(OUT revision INT)
BEGIN
    SET revision = 1;
END
//
SET SESSION sql_mode = @ringfence_sql_mode
//
DELIMITER ;
