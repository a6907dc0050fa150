//! A table of texts in a SQLite file, behind the fence for sqlx.

use crate::subject::cluster;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{AsyncHandle, Blocking, CleanUp, Crash, Store, Subject};
use ringfence_fence::sqlite::SqlxFence;
use ringfence_fence::{FenceError, Fenced, FencingToken};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).create_if_missing(true)
}

/// A fenced database in a directory of its own.
pub(crate) struct Database {
    dir: TempDir,
    pub(crate) fence: SqlxFence,
}

impl Database {
    pub(crate) async fn new(journal: &str) -> Database {
        let dir = tempfile::tempdir().unwrap();
        let journal: SqliteJournalMode = journal.parse().unwrap();
        let options = options(&dir.path().join("db")).journal_mode(journal);
        let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
        let texts = "CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT NOT NULL)";
        sqlx::raw_sql(texts).execute(&mut conn).await.unwrap();
        let fence = SqlxFence::install(&mut conn, &cluster("prod")).await.unwrap();
        conn.close().await.unwrap();
        Database { dir, fence }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) async fn open(&self) -> SqliteConnection {
        SqliteConnection::connect_with(&options(&self.path())).await.unwrap()
    }

    /// One that does not wait for others.
    pub(crate) async fn impatient(&self) -> SqliteConnection {
        let options = options(&self.path()).busy_timeout(Duration::ZERO);
        SqliteConnection::connect_with(&options).await.unwrap()
    }
}

pub(crate) async fn run(conn: &mut SqliteConnection, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(conn)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub(crate) async fn put(conn: &mut SqliteConnection, key: &str, value: &str) -> Result<(), FenceError> {
    let put = sqlx::query("INSERT OR REPLACE INTO texts (key, value) VALUES (?1, ?2)");
    let done = put.bind(key.to_owned()).bind(value.to_owned()).execute(conn).await;
    done.map(|_| ()).map_err(|error| FenceError::store("writing", error))
}

pub(crate) async fn texts(conn: &mut SqliteConnection) -> BTreeMap<String, String> {
    let rows = sqlx::query_as::<Sqlite, (String, String)>("SELECT key, value FROM texts");
    rows.fetch_all(conn).await.unwrap().into_iter().collect()
}

/// How the writes are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Helper,
    Deferred,
    /// The known-bad one: the fence is read, and nothing is locked.
    LooksOnly,
}

pub(crate) struct SqlxSubject {
    pub(crate) journal: &'static str,
    pub(crate) way: Way,
}

impl Subject for SqlxSubject {
    type Store = SqlxStore;

    fn fresh(&self, bound: &ClusterId) -> Result<SqlxStore, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        let runtime = runtime();
        let (database, keeper) = runtime.block_on(async {
            let database = Database::new(self.journal).await;
            let keeper = database.open().await;
            (database, keeper)
        });
        Ok(SqlxStore { way: self.way, keeper, runtime, database })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) struct SqlxStore {
    way: Way,
    // Dropped first. While it is open no handle is the last one, so none cleans up when it closes.
    keeper: SqliteConnection,
    runtime: Runtime,
    database: Database,
}

impl Store for SqlxStore {
    type Handle = Blocking<SqlxHandle>;

    fn open(&self) -> Result<Blocking<SqlxHandle>, FenceError> {
        let runtime = runtime();
        let conn = runtime.block_on(self.database.open());
        let handle = SqlxHandle { way: self.way, conn, fence: self.database.fence.clone() };
        Ok(Blocking::new(handle, move |call| runtime.block_on(call)))
    }

    /// Goes on with a copy of the files as they stand in the middle of work, as after `kill -9`.
    fn crash(&mut self) -> Result<Crash, FenceError> {
        // A connection of sqlx closes on a thread of its own, after it was dropped; what it takes back is waited for.
        self.runtime.block_on(run(&mut self.keeper, "BEGIN IMMEDIATE"));
        let dir = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.database.dir.path()).unwrap() {
            let file = file.unwrap();
            // The index of the log in shared memory is rebuilt from the log.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
            }
        }
        let database = Database { dir, fence: self.database.fence.clone() };
        self.keeper = self.runtime.block_on(database.open());
        self.database = database;
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let tidy = "DELETE FROM texts; VACUUM; REINDEX; ANALYZE; PRAGMA optimize; PRAGMA wal_checkpoint;";
        self.runtime.block_on(run(&mut self.keeper, tidy));
        Ok(CleanUp::Done)
    }
}

pub(crate) struct SqlxHandle {
    way: Way,
    conn: SqliteConnection,
    fence: SqlxFence,
}

/// A busy database is told as such, whichever statement of the transaction it has met.
fn failed(error: sqlx::Error) -> FenceError {
    let code: Option<i32> = error.as_database_error().and_then(|error| error.code()?.parse().ok());
    match code.map(|code| code & 0xff) {
        Some(5 | 6) => FenceError::busy("writing", error),
        _ => FenceError::store("writing", error),
    }
}

impl SqlxHandle {
    async fn checked(&mut self, tokens: &[FencingToken]) -> Result<Transaction<'_, Sqlite>, FenceError> {
        if let Way::LooksOnly = self.way {
            let token = &tokens[0];
            let highest = self.fence.highest(&mut self.conn, token.scope()).await?;
            if let Some(highest) = highest.filter(|highest| *highest > token.epoch()) {
                return Err(Fenced::new(token.clone(), highest).into());
            }
            return self.conn.begin().await.map_err(failed);
        }
        let mut tx = self.conn.begin().await.map_err(failed)?;
        match self.fence.check_all(&mut tx, tokens).await {
            Ok(()) => Ok(tx),
            Err(refused) => {
                tx.rollback().await.map_err(failed)?;
                Err(refused)
            }
        }
    }
}

impl AsyncHandle for SqlxHandle {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.raise(&mut self.conn, token).await
    }

    async fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let mut work = async |tx: &mut Transaction<'_, Sqlite>| {
            paused();
            for (key, value) in pairs {
                put(tx, key, value).await?;
            }
            Ok(())
        };
        if let Way::Helper = self.way {
            return self.fence.write(&mut self.conn, tokens, work).await;
        }
        let mut tx = self.checked(tokens).await?;
        work(&mut tx).await?;
        tx.commit().await.map_err(failed)
    }

    async fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        Ok(texts(&mut self.conn).await)
    }

    async fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.fence.highest(&mut self.conn, scope).await
    }
}
