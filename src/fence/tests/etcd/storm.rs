//! The storm of stale writes, in etcd.

use crate::server::{Client, Server, available};
use crate::shared_storm::{Process, nothing_gets_through, some_get_through};
use crate::subject::cluster;
use ringfence_fence::etcd::{EtcdFence, Txn};
use ringfence_fence::{FenceError, FencingToken};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Connected {
    client: Client,
    fence: EtcdFence,
    number: Arc<AtomicUsize>,
    guarded: bool,
    _server: Arc<Server>,
}

impl Process for Connected {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        self.client.with(async |etcd| self.fence.raise(etcd, token).await)
    }

    fn append(&mut self, token: &FencingToken, paused: impl FnOnce()) -> Result<(), FenceError> {
        // A key of its own.
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let write = Txn::new().put(format!("log/{number:09}"), token.epoch().get().to_string());
        self.client.with(async |etcd| self.fence.check(etcd, from_ref(token)).await)?;
        paused();
        if self.guarded {
            self.client.with(async |etcd| self.fence.write(etcd, from_ref(token), &write).await)?;
        } else {
            // The same check, as a transaction of its own.
            self.client.txn(write);
        }
        Ok(())
    }

    fn written(&mut self) -> Vec<u64> {
        let pairs = self.client.all("log/").into_iter();
        let mut log: Vec<(i64, u64)> = pairs
            .map(|pair| (pair.modified, String::from_utf8(pair.value).unwrap().parse().unwrap()))
            .collect();
        log.sort_unstable();
        log.into_iter().map(|(_, epoch)| epoch).collect()
    }
}

fn processes(guarded: bool) -> Vec<Connected> {
    let (server, number) = (Arc::new(Server::new()), Arc::default());
    let connect = |_| {
        let mut client = server.client();
        let fence = client.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
        Connected { client, fence, number: Arc::clone(&number), guarded, _server: Arc::clone(&server) }
    };
    (0..5).map(connect).collect()
}

#[test]
fn t03_no_stale_write_gets_through_while_others_raise() {
    if available() {
        nothing_gets_through(processes(true), 200);
    }
}

#[test]
fn t57_t03_some_stale_writes_get_through_when_check_and_write_are_two_steps() {
    if available() {
        some_get_through(processes(false), 0);
    }
}

/// `cargo test -p ringfence-fence --test etcd -- --ignored --nocapture`
#[test]
#[ignore = "ten thousand attempts; run by name"]
fn no_stale_write_of_10_000_gets_through() {
    if available() {
        nothing_gets_through(processes(true), 10_000);
        some_get_through(processes(false), 10_000);
    }
}
