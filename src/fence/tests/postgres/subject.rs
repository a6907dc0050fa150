//! The conformance suite's view of the fence, with either client.

use crate::database::{Database, TEXTS, connect, prod, put};
use crate::server::Server;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{AsyncHandle, Blocking, CleanUp, Crash, Store, Subject};
use ringfence_fence::postgres::PostgresFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::Connection as _;
use std::collections::BTreeMap;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Which client, and which isolation its sessions ask for.
#[derive(Clone, Copy)]
pub(crate) struct PostgresSubject<'s> {
    pub(crate) server: &'s Server,
    pub(crate) sqlx: bool,
    pub(crate) isolation: &'static str,
    /// The functions of the fence, whole or with something taken out.
    pub(crate) functions: &'s str,
}

pub(crate) struct PostgresStore<'s> {
    subject: PostgresSubject<'s>,
    database: Database<'s>,
}

impl<'s> Subject for PostgresSubject<'s> {
    type Store = PostgresStore<'s>;

    fn fresh(&self, bound: &ClusterId) -> Result<PostgresStore<'s>, FenceError> {
        assert_eq!(*bound, prod());
        let database = runtime().block_on(async {
            // The same database again, because each one makes a crash slower to recover from.
            let maintenance = connect(self.server, "postgres").await;
            let exists = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'conformance')";
            if !maintenance.query_one(exists, &[]).await.unwrap().get::<_, bool>(0) {
                maintenance.batch_execute("CREATE DATABASE conformance").await.unwrap();
            }
            let isolated = format!(
                "ALTER DATABASE conformance SET default_transaction_isolation = '{}'",
                self.isolation
            );
            maintenance.batch_execute(&isolated).await.unwrap();
            let database = Database::named(self.server, "conformance");
            let client = database.open().await;
            let anew = "DROP SCHEMA IF EXISTS ringfence CASCADE; DROP TABLE IF EXISTS texts";
            client.batch_execute(anew).await.unwrap();
            client.batch_execute(TEXTS).await.unwrap();
            client.batch_execute(self.functions).await.unwrap();
            client.batch_execute("SELECT ringfence.bind('prod')").await.unwrap();
            database
        });
        Ok(PostgresStore { subject: *self, database })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

impl Store for PostgresStore<'_> {
    type Handle = Blocking<PostgresHandle>;

    fn open(&self) -> Result<Blocking<PostgresHandle>, FenceError> {
        let runtime = runtime();
        let link = runtime.block_on(async {
            if self.subject.sqlx {
                Link::Sqlx(Box::new(self.database.open_sqlx().await))
            } else {
                Link::Tokio(connect(self.database.server, &self.database.name).await)
            }
        });
        let handle = PostgresHandle { link, fence: self.database.fence.clone() };
        Ok(Blocking::new(handle, move |call| runtime.block_on(call)))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        self.database.server.killed_and_restarted();
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        runtime().block_on(async {
            let client = self.database.open().await;
            for tidy in ["DELETE FROM texts", "VACUUM texts", "VACUUM FULL ringfence.fence", "CHECKPOINT"] {
                client.batch_execute(tidy).await.map_err(failed)?;
            }
            Ok(CleanUp::Done)
        })
    }
}

enum Link {
    Tokio(Client),
    Sqlx(Box<sqlx::PgConnection>),
}

pub(crate) struct PostgresHandle {
    link: Link,
    fence: PostgresFence,
}

fn failed<E: std::error::Error + Send + Sync + 'static>(error: E) -> FenceError {
    FenceError::store("using the table of texts", error)
}

impl AsyncHandle for PostgresHandle {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        match &mut self.link {
            Link::Tokio(client) => self.fence.raise(&*client, token).await,
            Link::Sqlx(conn) => self.fence.raise(&mut **conn, token).await,
        }
    }

    async fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        match &mut self.link {
            Link::Tokio(client) => {
                let work = async |tx: &mut tokio_postgres::Transaction<'_>| {
                    paused();
                    for (key, value) in pairs {
                        put(tx, key, value).await?;
                    }
                    Ok(())
                };
                self.fence.write(client, tokens, work).await
            }
            Link::Sqlx(conn) => {
                // As people write it who do not use the helper.
                let mut tx = conn.begin().await.map_err(failed)?;
                let checked = self.fence.check_all(&mut tx, tokens).await;
                if checked.is_err() {
                    tx.rollback().await.map_err(failed)?;
                    return checked;
                }
                paused();
                for (key, value) in pairs {
                    sqlx::query(
                        "INSERT INTO texts VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = $2",
                    )
                    .bind(key)
                    .bind(value)
                    .execute(&mut *tx)
                    .await
                    .map_err(failed)?;
                }
                tx.commit().await.map_err(failed)
            }
        }
    }

    async fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let select = "SELECT key, value FROM texts";
        match &mut self.link {
            Link::Tokio(client) => {
                let rows = client.query(select, &[]).await.map_err(failed)?;
                Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
            }
            Link::Sqlx(conn) => {
                let rows: Vec<(String, String)> =
                    sqlx::query_as(select).fetch_all(&mut **conn).await.map_err(failed)?;
                Ok(rows.into_iter().collect())
            }
        }
    }

    async fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        match &mut self.link {
            Link::Tokio(client) => self.fence.highest(&*client, scope).await,
            Link::Sqlx(conn) => self.fence.highest(&mut **conn, scope).await,
        }
    }
}
