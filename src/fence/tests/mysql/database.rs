//! A fenced database, and the sessions of those who use it.

use crate::server::{Server, shared};
use ringfence_core::ids::{ClusterId, SessionId};
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlSslMode};
use sqlx::{Connection as _, MySql, MySqlConnection, Transaction};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn session(number: u64) -> SessionId {
    SessionId::new(number).unwrap()
}

pub(crate) fn prod() -> ClusterId {
    ClusterId::new("prod").unwrap()
}

/// What InnoDB has to exclude in.
pub(crate) const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// A database of a name of its own, with a table of texts.
pub(crate) struct Database<'s> {
    pub(crate) server: &'s Server,
    pub(crate) name: String,
    pub(crate) fence: MysqlFence,
}

/// What a test begins with, where there is a server: a fenced database.
pub(crate) async fn fenced() -> Option<Database<'static>> {
    Some(Database::fenced(shared()?).await)
}

/// What the tests write to. `key` is a word of SQL here.
pub(crate) const TEXTS: &str =
    "CREATE TABLE texts (k VARCHAR(80) PRIMARY KEY, value VARCHAR(80) NOT NULL) ENGINE = InnoDB";

impl Database<'_> {
    pub(crate) fn named<'s>(server: &'s Server, name: &str) -> Database<'s> {
        // Patient: what the tests wait for in between may take its time on a machine that is busy.
        let fence = MysqlFence::of(&prod()).raising_within(Duration::from_secs(60));
        Database { server, name: name.into(), fence }
    }

    /// Without a fence.
    pub(crate) async fn bare(server: &Server) -> Database<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        run(&mut connect(server, "mysql").await, &format!("CREATE DATABASE {name}")).await;
        let database = Database::named(server, &name);
        run(&mut database.open().await, TEXTS).await;
        database
    }

    pub(crate) async fn fenced(server: &Server) -> Database<'_> {
        let database = Database::bare(server).await;
        MysqlFence::install(&mut database.open().await, &prod()).await.unwrap();
        database
    }

    /// With procedures that somebody has changed.
    pub(crate) async fn flawed<'s>(server: &'s Server, migration: &str) -> Database<'s> {
        let database = Database::bare(server).await;
        install(&mut database.open().await, migration).await;
        database
    }

    pub(crate) async fn open(&self) -> MySqlConnection {
        connect(self.server, &self.name).await
    }

    pub(crate) fn options(&self) -> MySqlConnectOptions {
        options(self.server, &self.name)
    }

    pub(crate) async fn write(
        &self,
        conn: &mut MySqlConnection,
        tokens: &[FencingToken],
        value: &str,
    ) -> Result<(), FenceError> {
        self.fence.write(conn, tokens, async |tx| put(tx, "k", value).await).await
    }

    /// Raises in a session of its own.
    pub(crate) async fn raised(&self, text: &str) -> FencingToken {
        let token = token(text);
        self.fence.raise(&mut self.open().await, &token).await.unwrap();
        token
    }
}

fn options(server: &Server, database: &str) -> MySqlConnectOptions {
    let options = MySqlConnectOptions::new().socket(server.socket()).username("root");
    options.database(database).ssl_mode(MySqlSslMode::Disabled)
}

pub(crate) async fn connect(server: &Server, database: &str) -> MySqlConnection {
    MySqlConnection::connect_with(&options(server, database)).await.unwrap()
}

/// Runs the migration as it stands in a text, and binds.
pub(crate) async fn install(conn: &mut MySqlConnection, migration: &str) {
    let (_, statements) = migration.split_once("DELIMITER //\n").unwrap();
    let statements = statements.split_once("DELIMITER ;").unwrap().0.split("\n//\n").map(str::trim);
    for statement in statements.filter(|statement| !statement.is_empty()) {
        run(conn, statement).await;
    }
    run(conn, "CALL ringfence_bind('prod')").await;
}

/// Statements that have to work.
pub(crate) async fn run(conn: &mut MySqlConnection, sql: &str) {
    attempt(conn, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub(crate) async fn attempt(conn: &mut MySqlConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(conn).await.map(|_| ())
}

/// The SQLSTATE of a statement that has to fail, and what it says.
pub(crate) async fn refused(conn: &mut MySqlConnection, sql: &str) -> (String, String) {
    let error = attempt(conn, sql).await.expect_err(sql);
    let server = error.as_database_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    let server = server.downcast_ref::<MySqlDatabaseError>();
    (server.code().unwrap().to_owned(), server.message().to_owned())
}

/// The text of one value.
pub(crate) async fn ask(conn: &mut MySqlConnection, sql: &str) -> Option<String> {
    let scalar = sqlx::query_scalar::<MySql, Option<String>>(sqlx::AssertSqlSafe(sql));
    scalar.fetch_one(conn).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) async fn begin<'c>(conn: &'c mut MySqlConnection, isolation: &str) -> Transaction<'c, MySql> {
    run(conn, &format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")).await;
    conn.begin().await.unwrap()
}

pub(crate) async fn put(tx: &mut Transaction<'_, MySql>, key: &str, value: &str) -> Result<(), FenceError> {
    let put = sqlx::query("INSERT INTO texts VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)");
    let done = put.bind(key.to_owned()).bind(value.to_owned()).execute(&mut **tx).await;
    done.map(|_| ()).map_err(|error| FenceError::store("writing", error))
}

pub(crate) async fn texts(conn: &mut MySqlConnection) -> BTreeMap<String, String> {
    let rows = sqlx::query_as::<MySql, (String, String)>("SELECT k, value FROM texts").fetch_all(conn).await;
    rows.unwrap().into_iter().collect()
}

/// Every row of the fence's tables.
pub(crate) async fn dump(conn: &mut MySqlConnection) -> Vec<String> {
    let all = "SELECT CONCAT_WS(' ', scope, epoch, session, raises) FROM ringfence_fence
               UNION ALL SELECT CONCAT_WS(' ', format, cluster) FROM ringfence_binding ORDER BY 1";
    sqlx::query_scalar::<MySql, String>(all).fetch_all(conn).await.unwrap()
}

pub(crate) async fn id(conn: &mut MySqlConnection) -> String {
    ask(conn, "SELECT CAST(CONNECTION_ID() AS CHAR)").await.unwrap()
}

/// Waits until that session waits for the lock of a row. The table of transactions would be some tenths of a second old.
pub(crate) async fn until_waiting(observer: &mut MySqlConnection, id: &str) {
    let start = Instant::now();
    loop {
        let status: (String, String, String) =
            sqlx::query_as("SHOW ENGINE INNODB STATUS").fetch_one(&mut *observer).await.unwrap();
        let of_it = format!("thread id {id},");
        let mut transactions = status.2.split("---TRANSACTION");
        if transactions.any(|one| one.contains(&of_it) && one.contains("LOCK WAIT")) {
            return;
        }
        if start.elapsed() > Duration::from_secs(30) {
            panic!("it never waited: {}", status.2);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
