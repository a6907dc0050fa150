//! The conformance suite's view of the fence.

use crate::database::{TEXTS, connect, install, prod, put, run};
use crate::server::Server;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{AsyncHandle, Blocking, CleanUp, Crash, Store, Subject};
use ringfence_fence::mysql::MysqlFence;
use ringfence_fence::{FenceError, FencingToken};
use sqlx::{MySql, MySqlConnection, Transaction};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Runtime};

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Which isolation its sessions ask for.
pub(crate) struct MysqlSubject<'s> {
    server: &'s Mutex<Server>,
    isolation: &'static str,
}

pub(crate) struct MysqlStore<'s> {
    server: &'s Mutex<Server>,
    isolation: &'static str,
}

const DATABASE: &str = "conformance";

impl<'s> MysqlSubject<'s> {
    /// With the procedures of the fence, whole or with something taken out.
    pub(crate) fn new(
        server: &'s Mutex<Server>,
        isolation: &'static str,
        migration: &str,
    ) -> MysqlSubject<'s> {
        let held = server.lock().unwrap_or_else(PoisonError::into_inner);
        runtime().block_on(async {
            let mut admin = connect(&held, "mysql").await;
            run(&mut admin, "DROP DATABASE IF EXISTS conformance").await;
            run(&mut admin, "CREATE DATABASE conformance").await;
            let mut conn = connect(&held, DATABASE).await;
            run(&mut conn, TEXTS).await;
            install(&mut conn, migration).await;
            // Each rule begins with an empty table again, and to truncate one takes its time.
            run(&mut conn, "DROP TRIGGER ringfence_fence_never_deleted").await;
            run(&mut conn, "DROP TRIGGER ringfence_binding_never_deleted").await;
        });
        MysqlSubject { server, isolation }
    }
}

impl<'s> Subject for MysqlSubject<'s> {
    type Store = MysqlStore<'s>;

    fn fresh(&self, bound: &ClusterId) -> Result<MysqlStore<'s>, FenceError> {
        assert_eq!(*bound, prod());
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        runtime().block_on(async {
            let mut conn = connect(&server, DATABASE).await;
            for statement in [
                "DELETE FROM ringfence_fence",
                "DELETE FROM ringfence_binding",
                "DELETE FROM texts",
                "CALL ringfence_bind('prod')",
            ] {
                run(&mut conn, statement).await;
            }
        });
        Ok(MysqlStore { server: self.server, isolation: self.isolation })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

impl Store for MysqlStore<'_> {
    type Handle = Blocking<MysqlHandle>;

    fn open(&self) -> Result<Blocking<MysqlHandle>, FenceError> {
        let runtime = runtime();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = runtime.block_on(async {
            let mut conn = connect(&server, DATABASE).await;
            run(&mut conn, &format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", self.isolation)).await;
            conn
        });
        let handle = MysqlHandle { conn, fence: MysqlFence::of(&prod()) };
        Ok(Blocking::new(handle, move |call| runtime.block_on(call)))
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).killed_and_restarted(&[]);
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        runtime().block_on(async {
            let mut conn = connect(&server, DATABASE).await;
            for tidy in [
                "DELETE FROM texts",
                "OPTIMIZE TABLE texts, ringfence_fence",
                "ANALYZE TABLE ringfence_fence",
            ] {
                run(&mut conn, tidy).await;
            }
        });
        Ok(CleanUp::Done)
    }
}

pub(crate) struct MysqlHandle {
    conn: MySqlConnection,
    fence: MysqlFence,
}

impl AsyncHandle for MysqlHandle {
    async fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.raise(&mut self.conn, token).await
    }

    async fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        let work = async |tx: &mut Transaction<'_, MySql>| {
            paused();
            for (key, value) in pairs {
                put(tx, key, value).await?;
            }
            Ok(())
        };
        self.fence.write(&mut self.conn, tokens, work).await
    }

    async fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let rows = sqlx::query_as::<MySql, (String, String)>("SELECT k, value FROM texts");
        let rows = rows.fetch_all(&mut self.conn).await;
        Ok(rows.map_err(|error| FenceError::store("using the table of texts", error))?.into_iter().collect())
    }

    async fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.fence.highest(&mut self.conn, scope).await
    }
}
