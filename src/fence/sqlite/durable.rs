//! A transaction whose commit survives a power cut.

use super::failure::{failed, journal_is_not_durable, refused_off, within_another};
use super::sql::{EXTRA, OFF};
use crate::FenceError;
use ringfence_core::mutant;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Runs `work` in an immediate transaction of its own and commits it durably.
///
/// # Errors
/// [`FenceError::Unfit`] in a transaction; [`FenceError::NotDurable`] where the connection's settings cannot be made good;
/// whatever `work` answers, and then nothing is committed.
pub(super) fn durably<T, E: From<FenceError>>(
    conn: &Connection,
    doing: &'static str,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    if !conn.is_autocommit() {
        return Err(within_another().into());
    }
    let _lifted = Lifted::new(conn)?;
    // `new_unchecked`, because `conn` is shared with the guard above.
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(failed(doing))?;
    let answer = work(&tx)?;
    tx.commit().map_err(failed(doing))?;
    Ok(answer)
}

/// Refuses a connection under which a power cut, or a journal in memory that dies with the process, can destroy the
/// database, fence and all.
///
/// # Errors
/// [`FenceError::NotDurable`].
pub(super) fn refuse_off(conn: &Connection) -> Result<(), FenceError> {
    if is_in_memory(conn) {
        return Ok(());
    }
    if synchronous(conn)? == OFF {
        return Err(refused_off());
    }
    let journal: String = conn
        .pragma_query_value(Some("main"), "journal_mode", |row| row.get(0))
        .map_err(failed("reading the journal mode"))?;
    journal_is_not_durable(&journal).map_or(Ok(()), Err)
}

/// The connection at `synchronous = EXTRA`; the setting it had comes back when this is dropped.
struct Lifted<'a> {
    conn: &'a Connection,
    before: i64,
}

impl<'a> Lifted<'a> {
    fn new(conn: &'a Connection) -> Result<Lifted<'a>, FenceError> {
        let before = synchronous(conn)?;
        let lifted = Lifted { conn, before };
        if is_in_memory(conn) {
            return Ok(lifted);
        }
        refuse_off(conn)?;
        if before < EXTRA && !mutant!("raise-not-durable") {
            conn.pragma_update(Some("main"), "synchronous", EXTRA)
                .map_err(failed("making the raise durable"))?;
        }
        Ok(lifted)
    }
}

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        // Should it fail, the connection stays at the stricter setting: slower, and as safe.
        let _ = self.conn.pragma_update(Some("main"), "synchronous", self.before);
    }
}

fn synchronous(conn: &Connection) -> Result<i64, FenceError> {
    conn.pragma_query_value(Some("main"), "synchronous", |row| row.get(0))
        .map_err(failed("reading the durability of the database"))
}

fn is_in_memory(conn: &Connection) -> bool {
    conn.path().is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f011_the_transaction_runs_at_extra_and_the_setting_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("f")).unwrap();
        for (journal, setting) in [("delete", 2), ("truncate", 1), ("persist", 1), ("wal", 1), ("wal", 2)] {
            conn.pragma_update(None, "journal_mode", journal).unwrap();
            conn.pragma_update(None, "synchronous", setting).unwrap();
            let within = durably(&conn, "testing", |tx| synchronous(tx)).unwrap();
            assert_eq!((within, synchronous(&conn).unwrap()), (EXTRA, setting), "{journal}");
            durably(&conn, "testing", |_| Err::<(), _>(FenceError::Unstamped)).unwrap_err();
            assert_eq!(synchronous(&conn).unwrap(), setting);
        }
    }

    #[test]
    fn f011_settings_that_lose_the_database_are_refused_and_named() {
        let dir = tempfile::tempdir().unwrap();
        for (pragma, value) in [("synchronous", "OFF"), ("journal_mode", "MEMORY"), ("journal_mode", "OFF")] {
            let conn = Connection::open(dir.path().join("f")).unwrap();
            conn.pragma_update(None, pragma, value).unwrap();
            match durably(&conn, "testing", |_| Ok(())) {
                Err(FenceError::NotDurable { setting, .. }) => assert!(setting.contains(pragma), "{setting}"),
                other => panic!("{pragma} {value}: {other:?}"),
            }
        }
        assert!(
            durably(&Connection::open_in_memory().unwrap(), "testing", |_| Ok::<_, FenceError>(())).is_ok()
        );
    }

    #[test]
    fn a_raise_inside_a_transaction_of_the_user_is_an_error_and_leaves_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("f")).unwrap();
        conn.execute_batch("CREATE TABLE t (x); BEGIN; INSERT INTO t VALUES (1)").unwrap();
        let nested = durably(&conn, "testing", |_| Ok(()));
        match nested {
            Err(FenceError::Unfit { why }) => assert!(why.contains("commit or roll back first"), "{why}"),
            other => panic!("{other:?}"),
        }
        conn.execute_batch("COMMIT").unwrap();
        assert_eq!(conn.query_row("SELECT count(*) FROM t", (), |r| r.get::<_, i64>(0)), Ok(1));
    }
}
