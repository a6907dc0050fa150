//! Texts under keys of their own in a Redis server, behind the fence.

use crate::server::{Client, DURABLE, FORGETFUL, Server};
use redis::Pipeline;
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::redis::{RedisFence, RedisOptions};
use ringfence_fence::{FenceError, FencingToken};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(crate) fn token(text: &str) -> FencingToken {
    text.parse().unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

/// A server with a fence of cluster `prod` in it.
pub(crate) struct Fenced {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) fence: RedisFence,
}

impl Fenced {
    pub(crate) fn new() -> Fenced {
        Fenced::with(DURABLE, RedisFence::options(&cluster("prod")))
    }

    pub(crate) fn forgetful() -> Fenced {
        Fenced::with(FORGETFUL, RedisFence::options(&cluster("prod")).accepting_loss_at_restart())
    }

    pub(crate) fn with(settings: &[&str], options: RedisOptions) -> Fenced {
        let server = Server::new(settings);
        let mut client = server.client();
        let fence = client.with(async |conn| options.install(conn).await).unwrap();
        Fenced { server, client, fence }
    }

    pub(crate) fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |conn| self.fence.raise(conn, token).await)
    }

    pub(crate) fn write(
        &mut self,
        tokens: &[FencingToken],
        write: &Pipeline,
    ) -> Result<Vec<redis::Value>, FenceError> {
        self.client.with(async |conn| self.fence.write(conn, tokens, write).await)
    }

    pub(crate) fn set(&mut self, token: &FencingToken, value: &str) -> Result<(), FenceError> {
        self.write(std::slice::from_ref(token), &set("k", value)).map(drop)
    }

    pub(crate) fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.client.with(async |conn| self.fence.highest(conn, scope).await)
    }
}

/// A write of one text.
pub(crate) fn set(key: &str, value: &str) -> Pipeline {
    let mut write = redis::pipe();
    write.cmd("SET").arg(key).arg(value);
    write
}

/// A server for each store; or, as a cluster takes seconds to come up, one that is emptied.
pub(crate) enum RedisSubject {
    Alone,
    /// One node of Redis Cluster that holds all slots.
    Cluster(Arc<Mutex<Server>>),
}

impl RedisSubject {
    pub(crate) fn in_a_cluster() -> RedisSubject {
        RedisSubject::Cluster(Arc::new(Mutex::new(cluster_of_one())))
    }
}

impl Subject for RedisSubject {
    type Store = RedisStore;

    fn fresh(&self, bound: &ClusterId) -> Result<RedisStore, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        let options = RedisFence::options(&cluster("prod"));
        match self {
            RedisSubject::Alone => {
                Ok(RedisStore { server: Arc::new(Mutex::new(Server::new(DURABLE))), options })
            }
            RedisSubject::Cluster(server) => {
                server.lock().unwrap().client().ask::<()>("FLUSHALL");
                Ok(RedisStore { server: Arc::clone(server), options: options.together("shop") })
            }
        }
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) fn cluster_of_one() -> Server {
    let server = Server::new(&[DURABLE, &["--cluster-enabled", "yes"]].concat());
    let mut client = server.client();
    client.ask::<()>("CLUSTER ADDSLOTSRANGE 0 16383");
    client.until_cluster_is_up();
    server
}

pub(crate) struct RedisStore {
    server: Arc<Mutex<Server>>,
    options: RedisOptions,
}

impl Store for RedisStore {
    type Handle = RedisHandle;

    fn open(&self) -> Result<RedisHandle, FenceError> {
        let mut client = self.server.lock().unwrap().client();
        let fence = client.with(async |conn| self.options.clone().install(conn).await)?;
        Ok(RedisHandle { client, fence })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        let mut server = self.server.lock().unwrap();
        server.kill();
        server.start_again();
        let mut client = server.client();
        if client.info("cluster_enabled") == "1" {
            client.until_cluster_is_up();
        }
        Ok(Crash::Restarted)
    }

    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let mut client = self.server.lock().unwrap().client();
        for key in client.ask::<Vec<String>>("KEYS data:*") {
            client.ask::<()>(&format!("DEL {key}"));
        }
        client.ask::<()>("MEMORY PURGE");
        client.ask::<()>("BGREWRITEAOF");
        Ok(CleanUp::Done)
    }
}

pub(crate) struct RedisHandle {
    pub(crate) client: Client,
    pub(crate) fence: RedisFence,
}

impl RedisHandle {
    /// The key of a text, in the slot of all fences.
    pub(crate) fn key(key: &str) -> String {
        format!("data:{{shop}}{key}")
    }

    pub(crate) fn puts(pairs: &[(&str, &str)]) -> Pipeline {
        let mut write = redis::pipe();
        for (key, value) in pairs {
            write.cmd("SET").arg(RedisHandle::key(key)).arg(value);
        }
        write
    }
}

impl Handle for RedisHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |conn| self.fence.raise(conn, token).await)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        paused();
        let write = RedisHandle::puts(pairs);
        match self.client.with(async |conn| self.fence.write(conn, tokens, &write).await) {
            // As an owner does whose grant the coordinator has confirmed.
            Err(FenceError::Replaced { .. }) => {
                self.client.with(async |conn| self.fence.raise_all(conn, tokens).await)?;
                self.client.with(async |conn| self.fence.write(conn, tokens, &write).await).map(drop)
            }
            answer => answer.map(drop),
        }
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let keys: Vec<String> = self.client.ask("KEYS data:*");
        let prefix = RedisHandle::key("");
        Ok(keys
            .into_iter()
            .map(|key| {
                let value: String = self.client.ask(&format!("GET {key}"));
                (key.strip_prefix(&prefix).unwrap().to_string(), value)
            })
            .collect())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.client.with(async |conn| self.fence.highest(conn, scope).await)
    }
}
