//! A table of texts in a SQLite file, behind the fence.

use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::sqlite::SqliteFence;
use ringfence_fence::{FenceError, FencingToken};
use rusqlite::{Connection, Transaction};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

/// A fenced database in a directory of its own.
pub(crate) struct Database {
    dir: TempDir,
    pub(crate) fence: SqliteFence,
}

impl Database {
    pub(crate) fn new(journal: &str) -> Database {
        let dir = tempfile::tempdir().unwrap();
        let conn = Connection::open(dir.path().join("db")).unwrap();
        conn.pragma_update(None, "journal_mode", journal).unwrap();
        conn.execute_batch("CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT NOT NULL)").unwrap();
        Database { fence: SqliteFence::install(&conn, &cluster("prod")).unwrap(), dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn open(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

/// Every row of every table, the fence's included.
pub(crate) fn dump(conn: &Connection) -> Vec<String> {
    ["texts", "ringfence_fence", "ringfence_binding"].iter().flat_map(|table| rows(conn, table)).collect()
}

fn rows(conn: &Connection, table: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map((), |row| {
        let values: Vec<String> = (0..columns).map(|i| format!("{:?}", row.get_ref(i).unwrap())).collect();
        Ok(format!("{table}: {}", values.join(" ")))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

pub(crate) fn put(tx: &Transaction<'_>, key: &str, value: &str) -> Result<(), FenceError> {
    tx.execute("INSERT OR REPLACE INTO texts (key, value) VALUES (?1, ?2)", (key, value))
        .map(|_| ())
        .map_err(|error| FenceError::store("writing", error))
}

pub(crate) fn texts(conn: &Connection) -> BTreeMap<String, String> {
    let mut statement = conn.prepare("SELECT key, value FROM texts").unwrap();
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

pub(crate) struct SqliteSubject {
    pub(crate) journal: &'static str,
}

impl Subject for SqliteSubject {
    type Store = SqliteStore;

    fn fresh(&self, bound: &ClusterId) -> Result<SqliteStore, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        let database = Database::new(self.journal);
        Ok(SqliteStore { keeper: database.open(), database })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) struct SqliteStore {
    // Dropped first. While it is open no handle is the last one, so none cleans up when it closes.
    keeper: Connection,
    database: Database,
}

impl SqliteStore {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.keeper
    }
}

impl Store for SqliteStore {
    type Handle = SqliteHandle;

    fn open(&self) -> Result<SqliteHandle, FenceError> {
        Ok(SqliteHandle { conn: self.database.open(), fence: self.database.fence.clone() })
    }

    /// Goes on with a copy of the files as they stand in the middle of work, as after `kill -9`.
    fn crash(&mut self) -> Result<Crash, FenceError> {
        let dir = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.database.dir.path()).unwrap() {
            let file = file.unwrap();
            // The index of the log in shared memory is rebuilt from the log.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
            }
        }
        let database = Database { dir, fence: self.database.fence.clone() };
        self.keeper = database.open();
        self.database = database;
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let tidy = "DELETE FROM texts; VACUUM; REINDEX; ANALYZE; PRAGMA optimize; PRAGMA wal_checkpoint;";
        self.keeper.execute_batch(tidy).map_err(|error| FenceError::store("cleaning up", error))?;
        Ok(CleanUp::Done)
    }
}

pub(crate) struct SqliteHandle {
    conn: Connection,
    fence: SqliteFence,
}

impl SqliteHandle {
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.conn
    }
}

impl Handle for SqliteHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.raise(&mut self.conn, token)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        self.fence.write(&mut self.conn, tokens, |tx| {
            paused();
            pairs.iter().try_for_each(|(key, value)| put(tx, key, value))
        })
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(texts(&self.conn))
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.fence.highest(&self.conn, scope)
    }
}
