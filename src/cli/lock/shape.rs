//! The JSON shapes of locks. `docs/cli.md` documents them.

use crate::shape::{ms, takeover};
use ringfence::admin::{
    Lock, LockDetail, LockHolder, LockMode, LockWaiter, LockWish, held_for, is_over_alert,
};
use serde::Serialize;

/// A lock.
#[derive(Debug, Serialize)]
pub(super) struct LockShape {
    name: String,
    /// How many hold it, or have lost it and cool.
    held: u32,
    waiting: u32,
    /// At most 1000, in the order of their grants.
    holders: Vec<HolderShape>,
}

impl LockShape {
    pub(super) fn new(lock: &Lock, now_unix_ms: u64) -> LockShape {
        LockShape {
            name: lock.name.to_string(),
            held: lock.held,
            waiting: lock.waiting,
            holders: lock.holders.iter().map(|holder| HolderShape::new(holder, now_unix_ms)).collect(),
        }
    }
}

/// One that holds a lock, or has lost it.
#[derive(Debug, Serialize)]
pub(super) struct HolderShape {
    worker: String,
    session: u64,
    address: Option<String>,
    epoch: u64,
    #[serde(flatten)]
    wish: WishShape,
    granted_index: u64,
    granted_unix_ms: u64,
    /// By the coordinator's clock; `null` when it has lost it.
    held_ms: Option<u64>,
    /// It is held for longer than its holder said.
    over_alert: bool,
    /// What those wait for whom it excludes; `null` while it holds the lock.
    cooling: Option<CoolingShape>,
}

impl HolderShape {
    pub(super) fn new(holder: &LockHolder, now_unix_ms: u64) -> HolderShape {
        HolderShape {
            worker: holder.worker.to_string(),
            session: holder.session.get(),
            address: Some(holder.address.clone()).filter(|address| !address.is_empty()),
            epoch: holder.epoch.get(),
            wish: WishShape::new(&holder.wish),
            granted_index: holder.at.get(),
            granted_unix_ms: holder.unix_ms,
            held_ms: held_for(holder, now_unix_ms).map(ms),
            over_alert: is_over_alert(holder, now_unix_ms),
            cooling: holder.cooling.map(|cooling| CoolingShape {
                lease_ms: cooling.lease.map_or(0, ms),
                then_ms: ms(cooling.then),
            }),
        }
    }
}

/// How it was asked for.
#[derive(Debug, Serialize)]
struct WishShape {
    /// `exclusive` or `shared`.
    mode: &'static str,
    /// `lease` or `fence`.
    takeover: &'static str,
    lock_delay_ms: u64,
    alert_after_ms: Option<u64>,
}

impl WishShape {
    fn new(wish: &LockWish) -> WishShape {
        WishShape {
            mode: mode(wish.mode()),
            takeover: takeover(wish.takeover()),
            lock_delay_ms: ms(wish.lock_delay()),
            alert_after_ms: wish.alert_after().map(ms),
        }
    }
}

/// The word for it.
pub(super) fn mode(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
    }
}

#[derive(Debug, Serialize)]
struct CoolingShape {
    /// For the lease that its holder may still believe in, at most so long from when it lost the lock; 0: for none.
    lease_ms: u64,
    /// And then for its lock delay.
    then_ms: u64,
}

/// A lock with its queue.
#[derive(Debug, Serialize)]
pub(super) struct DetailShape {
    #[serde(flatten)]
    lock: LockShape,
    /// The next one first; at most 1000.
    queue: Vec<WaiterShape>,
    now_unix_ms: u64,
}

impl From<&LockDetail> for DetailShape {
    fn from(from: &LockDetail) -> DetailShape {
        let waiter = |waiter: &LockWaiter| WaiterShape {
            worker: waiter.worker.to_string(),
            session: waiter.session.get(),
            wish: WishShape::new(&waiter.wish),
            since_unix_ms: waiter.since_unix_ms,
            waited_ms: from.now_unix_ms.saturating_sub(waiter.since_unix_ms),
        };
        DetailShape {
            lock: LockShape::new(&from.lock, from.now_unix_ms),
            queue: from.queue.iter().map(waiter).collect(),
            now_unix_ms: from.now_unix_ms,
        }
    }
}

#[derive(Debug, Serialize)]
struct WaiterShape {
    worker: String,
    session: u64,
    #[serde(flatten)]
    wish: WishShape,
    since_unix_ms: u64,
    waited_ms: u64,
}

/// What became of a lock that was to be broken.
#[derive(Debug, Serialize)]
pub(super) struct BrokenShape {
    /// `broken`, `planned` or `unchanged`.
    pub(super) result: &'static str,
    pub(super) lock: String,
    pub(super) at_once: bool,
    /// Whom it was taken from, or would be.
    pub(super) holders: Vec<HolderShape>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::show::tests::{cooled, nightly};
    use crate::output::json;

    #[test]
    fn the_json_shape_of_a_lock_is_a_contract() {
        let wish = r#""mode":"exclusive","takeover":"lease","lock_delay_ms":15000,"alert_after_ms":60000"#;
        let grant = r#""granted_index":40,"granted_unix_ms":1000"#;
        assert_eq!(
            json(&DetailShape::from(&nightly())).unwrap(),
            format!(
                r#"{{"name":"nightly","held":1,"waiting":1,"holders":[{{"worker":"w1","session":5,"address":"10.0.0.1:80","epoch":9,{wish},{grant},"held_ms":200000,"over_alert":true,"cooling":null}}],"queue":[{{"worker":"w2","session":6,{wish},"since_unix_ms":2000,"waited_ms":199000}}],"now_unix_ms":201000}}"#
            )
        );
        assert_eq!(
            json(&HolderShape::new(&cooled(), 201_000)).unwrap(),
            format!(
                r#"{{"worker":"w1","session":5,"address":null,"epoch":9,{wish},{grant},"held_ms":null,"over_alert":false,"cooling":{{"lease_ms":10000,"then_ms":15000}}}}"#
            )
        );
    }
}
