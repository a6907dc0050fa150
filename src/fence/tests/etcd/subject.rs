//! Texts under keys of their own in etcd, behind the fence.

use crate::server::{Client, Server};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{CleanUp, Crash, Handle, Store, Subject};
use ringfence_fence::etcd::{Delete, EtcdFence, Txn, TxnReply};
use ringfence_fence::{FenceError, FencingToken};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
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
    pub(crate) fence: EtcdFence,
}

impl Fenced {
    pub(crate) fn new() -> Fenced {
        let server = Server::new();
        let mut client = server.client();
        let fence = client.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
        Fenced { server, client, fence }
    }

    pub(crate) fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |etcd| self.fence.raise(etcd, token).await)
    }

    pub(crate) fn write(&mut self, tokens: &[FencingToken], write: &Txn) -> Result<TxnReply, FenceError> {
        self.client.with(async |etcd| self.fence.write(etcd, tokens, write).await)
    }

    pub(crate) fn set(&mut self, token: &FencingToken, value: &str) -> Result<(), FenceError> {
        self.write(std::slice::from_ref(token), &Txn::new().put("k", value)).map(drop)
    }

    pub(crate) fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.client.with(async |etcd| self.fence.highest(etcd, scope).await)
    }
}

/// A prefix for each store in one server, which takes a second to come up.
pub(crate) struct EtcdSubject {
    pub(crate) server: Arc<Mutex<Server>>,
    stores: AtomicU32,
}

impl EtcdSubject {
    pub(crate) fn new() -> EtcdSubject {
        EtcdSubject { server: Arc::new(Mutex::new(Server::new())), stores: AtomicU32::new(0) }
    }

    pub(crate) fn next_prefix(&self) -> String {
        format!("s{}/", self.stores.fetch_add(1, Ordering::Relaxed))
    }
}

impl Subject for EtcdSubject {
    type Store = EtcdStore;

    fn fresh(&self, bound: &ClusterId) -> Result<EtcdStore, FenceError> {
        assert_eq!(*bound, cluster("prod"));
        Ok(EtcdStore { server: Arc::clone(&self.server), prefix: self.next_prefix() })
    }

    fn keeps_sessions(&self) -> bool {
        true
    }
}

pub(crate) struct EtcdStore {
    pub(crate) server: Arc<Mutex<Server>>,
    pub(crate) prefix: String,
}

impl Store for EtcdStore {
    type Handle = EtcdHandle;

    fn open(&self) -> Result<EtcdHandle, FenceError> {
        let mut client = self.server.lock().unwrap().client();
        let fence =
            client.with(async |etcd| EtcdFence::install_under(etcd, &self.prefix, &cluster("prod")).await)?;
        Ok(EtcdHandle { client, fence, prefix: self.prefix.clone() })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        let mut server = self.server.lock().unwrap();
        server.kill();
        server.start_again();
        Ok(Crash::Restarted)
    }

    /// All the data, and then the history of everything.
    fn clean_up(&mut self) -> Result<CleanUp, FenceError> {
        let mut server = self.server.lock().unwrap();
        let data = format!("{}data/", self.prefix);
        let mut end = data.clone().into_bytes();
        *end.last_mut().unwrap() += 1;
        let delete = Delete { key: data.into(), end, prev: false };
        let revision = server.client().txn(Txn::new().then(delete)).header.revision;
        server.compact(revision);
        Ok(CleanUp::Done)
    }
}

pub(crate) struct EtcdHandle {
    pub(crate) client: Client,
    pub(crate) fence: EtcdFence,
    pub(crate) prefix: String,
}

impl EtcdHandle {
    pub(crate) fn puts(&self, pairs: &[(&str, &str)]) -> Txn {
        pairs
            .iter()
            .fold(Txn::new(), |txn, (key, value)| txn.put(format!("{}data/{key}", self.prefix), *value))
    }
}

impl Handle for EtcdHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |etcd| self.fence.raise(etcd, token).await)
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        // What the rows are is then remembered, so the pause stands between a decision and its write.
        if !tokens.is_empty() {
            self.client.with(async |etcd| self.fence.check(etcd, tokens).await)?;
        }
        paused();
        let write = self.puts(pairs);
        self.client.with(async |etcd| self.fence.write(etcd, tokens, &write).await).map(drop)
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        let prefix = format!("{}data/", self.prefix);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = self.client.all(&prefix);
        Ok(pairs.iter().map(|pair| (text(&pair.key[prefix.len()..]), text(&pair.value))).collect())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        self.client.with(async |etcd| self.fence.highest(etcd, scope).await)
    }
}
