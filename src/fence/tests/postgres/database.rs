//! A fenced database, and the sessions of those who use it.

use crate::server::{Server, shared};
use ringfence_core::ids::{ClusterId, SessionId};
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::Connection as _;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, Transaction};

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn session(number: u64) -> SessionId {
    SessionId::new(number).unwrap()
}

pub(crate) fn prod() -> ClusterId {
    ClusterId::new("prod").unwrap()
}

/// A database of a name of its own, with a table of texts.
pub(crate) struct Database<'s> {
    pub(crate) server: &'s Server,
    pub(crate) name: String,
    pub(crate) fence: PostgresFence,
}

/// What a test begins with, where there is a server: a fenced database.
pub(crate) async fn fenced() -> Option<Database<'static>> {
    Some(Database::fenced(shared()?).await)
}

/// What the tests write to.
pub(crate) const TEXTS: &str = "CREATE TABLE texts (key text PRIMARY KEY, value text NOT NULL)";

impl Database<'_> {
    pub(crate) fn named<'s>(server: &'s Server, name: &str) -> Database<'s> {
        Database { server, name: name.into(), fence: PostgresFence::of(&prod()) }
    }

    async fn create<'s>(server: &'s Server, options: &str) -> Database<'s> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let create = format!("CREATE DATABASE {name} {options}");
        connect(server, "postgres").await.batch_execute(&create).await.unwrap();
        Database::named(server, &name)
    }

    /// Without a fence.
    pub(crate) async fn bare(server: &Server) -> Database<'_> {
        let database = Database::create(server, "").await;
        database.open().await.batch_execute(TEXTS).await.unwrap();
        database
    }

    pub(crate) async fn fenced(server: &Server) -> Database<'_> {
        let database = Database::bare(server).await;
        PostgresFence::install(&database.open().await, &prod()).await.unwrap();
        database
    }

    pub(crate) async fn open(&self) -> Client {
        connect(self.server, &self.name).await
    }

    pub(crate) fn options(&self) -> sqlx::postgres::PgConnectOptions {
        sqlx::postgres::PgConnectOptions::new_without_pgpass()
            .socket(self.server.socket())
            .username("postgres")
            .database(&self.name)
    }

    pub(crate) async fn open_sqlx(&self) -> sqlx::PgConnection {
        sqlx::PgConnection::connect_with(&self.options()).await.unwrap()
    }

    pub(crate) async fn write(
        &self,
        client: &mut Client,
        tokens: &[FencingToken],
        value: &str,
    ) -> Result<(), FenceError> {
        self.fence.write(client, tokens, async |tx| put(tx, "k", value).await).await
    }

    /// Raises in a session of its own.
    pub(crate) async fn raised(&self, text: &str) -> FencingToken {
        let token = token(text);
        self.fence.raise(&self.open().await, &token).await.unwrap();
        token
    }
}

pub(crate) async fn connect(server: &Server, database: &str) -> Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(server.socket()).user("postgres").dbname(database);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    // It ends with its client.
    tokio::spawn(connection);
    client
}

pub(crate) async fn put(tx: &Transaction<'_>, key: &str, value: &str) -> Result<(), FenceError> {
    tx.execute(
        "INSERT INTO texts VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = $2",
        &[&key, &value],
    )
    .await
    .map(|_| ())
    .map_err(|error| FenceError::store("writing", error))
}

pub(crate) async fn texts(client: &Client) -> BTreeMap<String, String> {
    let rows = client.query("SELECT key, value FROM texts", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Every row of the fence's tables, with the place and the versions of each.
pub(crate) async fn dump(client: &Client) -> Vec<String> {
    let rows = client
        .query(
            "SELECT f.ctid::text || f.xmin::text || f::text FROM ringfence.fence f
             UNION ALL SELECT b.ctid::text || b.xmin::text || b::text FROM ringfence.binding b ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

pub(crate) async fn pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Waits until the database answers yes.
pub(crate) async fn until(client: &Client, question: &str) {
    let start = Instant::now();
    while !client.query_one(question, &[]).await.unwrap().get::<_, bool>(0) {
        if start.elapsed() > Duration::from_secs(30) {
            panic!("it never came to: {question}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until that session waits for a lock.
pub(crate) async fn until_waiting(client: &Client, pid: i32) {
    until(client, &format!("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)")).await;
}
