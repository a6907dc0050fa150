//! What the fence costs in etcd. `cargo bench -p ringfence-fence --bench fence_etcd`
//!
//! The same two puts, in turn: behind the fence, and in a transaction without it. A server of its own is started, with client
//! and server on the same machine, one call at a time.

#[allow(dead_code, clippy::unwrap_used, reason = "the tests use more of it, and end where a set-up fails")]
#[path = "../src/fence/tests/etcd/server.rs"]
mod server;

use ringfence_core::ids::ClusterId;
use ringfence_fence::FencingToken;
use ringfence_fence::etcd::{EtcdFence, Txn};
use server::Server;
use std::error::Error;
use std::slice::from_ref;
use std::time::{Duration, Instant};

const ROUNDS: usize = 2_000;

fn puts() -> Txn {
    Txn::new().put("orders/17/cart/5", "3 apples").put("orders/17/last", "cart 5")
}

fn timed(samples: &mut Vec<Duration>, call: impl FnOnce()) {
    let start = Instant::now();
    call();
    samples.push(start.elapsed());
}

fn percentile(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    samples[samples.len() * percent / 100].as_secs_f64() * 1e6
}

fn main() -> Result<(), Box<dyn Error>> {
    if !server::available() {
        return Ok(());
    }
    let server = Server::new();
    let mut client = server.client();
    let cluster = ClusterId::new("prod")?;
    let fence = client.with(async |etcd| EtcdFence::install(etcd, &cluster).await)?;
    let token: FencingToken = "prod/orders/17@42".parse()?;
    client.with(async |etcd| fence.raise(etcd, &token).await)?;
    let (mut fenced, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        timed(&mut fenced, || {
            client
                .with(async |etcd| fence.write(etcd, from_ref(&token), &puts()).await)
                .expect("the owner writes");
        });
        timed(&mut plain, || drop(client.txn(puts())));
    }
    println!("two puts behind the fence, and in a transaction without it; {ROUNDS} calls of each, in turn");
    for percent in [50, 99] {
        let [fenced, plain] = [&mut fenced, &mut plain].map(|samples| percentile(samples, percent));
        println!("p{percent}: {fenced:5.0} us, {plain:5.0} us ({:.2}x)", fenced / plain);
    }
    Ok(())
}
