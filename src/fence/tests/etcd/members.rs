//! Three members: elections, and members that come and go.

use crate::server::{Client, Server, available};
use crate::subject::{cluster, token};
use ringfence_fence::etcd::{EtcdFence, Txn};
use ringfence_fence::{FenceError, FenceErrorKind};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Each member is killed in turn, so the leader is at least once. Raises and writes go on; what was answered is kept, and
/// what failed is busy or unknown and nothing else.
#[test]
fn f011_t14_elections_lose_no_raise_and_their_errors_are_busy_or_unknown() {
    if !available() {
        return;
    }
    let mut members = Server::members(3);
    let addresses: Vec<String> = members.iter().map(Server::address).collect();
    let mut client = Client::to(&addresses);
    let fence = client.with(async |etcd| EtcdFence::install(etcd, &cluster("prod")).await).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let working = {
        let (over, fence) = (Arc::clone(&over), fence.clone());
        thread::spawn(move || {
            let mut client = Client::to(&addresses);
            let (mut raised, mut written, mut failed) = (0_u64, 0_u64, 0_u64);
            let mut next = 1;
            while !over.load(Ordering::Relaxed) {
                let own = token(&format!("prod/orders/17@{next}"));
                let write = Txn::new().put("k", next.to_string());
                let answer = client.with(async |etcd| {
                    fence.raise(etcd, &own).await?;
                    fence.write(etcd, from_ref(&own), &write).await
                });
                match answer {
                    Ok(_) => {
                        (raised, written) = (next, next);
                        next += 1;
                    }
                    Err(error) => {
                        let kind = error.kind();
                        assert!(matches!(kind, FenceErrorKind::Busy | FenceErrorKind::Store), "{error}");
                        failed += 1;
                    }
                }
            }
            (raised, written, failed)
        })
    };
    let mut seen = 0;
    for member in &mut members {
        let progressed = |client: &mut Client, than: u64| {
            crate::server::until("work goes on", || {
                let scope = token("prod/orders/17@1").scope().clone();
                let highest = client.with(async |etcd| fence.highest(etcd, &scope).await);
                highest.ok().flatten().is_some_and(|epoch| epoch.get() > than + 3)
            });
        };
        progressed(&mut client, seen);
        member.kill();
        let scope = token("prod/orders/17@1").scope().clone();
        let after = loop {
            if let Ok(Some(epoch)) = client.with(async |etcd| fence.highest(etcd, &scope).await) {
                break epoch.get();
            }
        };
        progressed(&mut client, after);
        member.start_again();
        seen = after;
    }
    over.store(true, Ordering::Relaxed);
    let (raised, written, failed) = working.join().unwrap();
    let scope = token("prod/orders/17@1").scope().clone();
    let highest = client.with(async |etcd| fence.highest(etcd, &scope).await).unwrap().unwrap().get();
    assert!(highest == raised || highest == raised + 1, "{raised} was answered, and {highest} is there");
    let last: u64 = client.get("k").unwrap().parse().unwrap();
    assert!(last == written || last == written + 1, "{written} was answered, and {last} is there");
    assert!(failed > 0, "no member was missed, so nothing was tried");
    let old = token(&format!("prod/orders/17@{}", raised - 1));
    let late =
        client.with(async |etcd| fence.write(etcd, from_ref(&old), &Txn::new().put("k", "late")).await);
    assert!(matches!(late, Err(FenceError::Fenced(_))), "{late:?}");
}
